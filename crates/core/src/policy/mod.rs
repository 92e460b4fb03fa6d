//! Replacement policies: one file each, and one row each in the table at the end of this file.
//!
//! A policy's file is its paper: what becomes of an [access](Policy::access), in the paper's letters, over a [table of
//! blocks](crate::blocks::Blocks) whose lists are the paper's queues. What a cache asks of every policy is answered from that table.
//!
//! ```
//! use flashwise_core::access::Access;
//! use flashwise_core::index::Hashed;
//! use flashwise_core::policy::{Boxed, Outcome, Policy, Spec};
//!
//! // LRU for a cache of two blocks, which are named by 64-bit addresses. (Dense ids want an `index::Dense`.)
//! let mut lru = Spec::parse("lru")?.build(Hashed::<u64>::new(), 2, Boxed);
//! assert_eq!(lru.access(Access::read(1)), Outcome::Admit { evicted: None });
//! assert_eq!(lru.access(Access::write(2)), Outcome::Admit { evicted: None });
//! assert_eq!(lru.access(Access::read(1)), Outcome::Hit);
//! assert_eq!(lru.access(Access::read(3)), Outcome::Admit { evicted: Some(2) });
//! assert!(lru.contains(1) && !lru.contains(2) && lru.len() == 2);
//! # Ok::<(), flashwise_core::options::OptionError>(())
//! ```
//!
//! A box costs a call for each access. Where that matters, a [`Visitor`] of one's own runs each policy as its own, inlined type.

pub mod arc;
pub mod cacheus;
pub mod car;
pub mod clock;
pub mod clock_pro;
mod experts;
pub mod fif;
pub mod fifo;
pub mod larc;
pub mod lecar;
pub mod lfu;
pub mod lirs;
pub mod lirs2;
pub mod lru;
pub mod min;
pub mod mq;
pub mod ocf_lru;
#[cfg(any(test, feature = "planted"))]
pub mod planted;
pub mod s3_fifo;
pub mod sieve;
pub mod slru;
pub mod smq;
pub mod two_q;
pub mod w_tinylfu;

use crate::access::{Access, NEVER, Op};
use crate::blocks::{NodeId, Queues};
use crate::decision::Decision;
use crate::directory::{Directory, Moved};
use crate::index::Index;
use crate::named::{Named, Row, Table};
use crate::options::Parameter;

/// What a policy decided about one access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<K> {
    /// The block is in the cache.
    Hit,
    /// The block was not in the cache and now is, in the place of `evicted` or in free space.
    Admit {
        /// The block that left the cache.
        evicted: Option<K>,
    },
    /// The block is not in the cache, and no block came or left for it, except that a write may have made its own block leave: a rule whose
    /// [budget](crate::admission::budget) is used up does not let a write hit stay.
    Bypass,
}

impl<K> Outcome<K> {
    /// True if an access of this kind with this outcome writes the flash: it is admitted, or a write hit.
    #[inline]
    pub fn writes(&self, op: Op) -> bool {
        match self {
            Outcome::Hit => op == Op::Write,
            Outcome::Admit { .. } => true,
            Outcome::Bypass => false,
        }
    }
}

/// Outcomes as the tables of policies' tests write them.
#[cfg(test)]
mod outcomes {
    use super::Outcome;

    pub const HIT: Outcome<u32> = Outcome::Hit;
    /// Into free space.
    pub const FILL: Outcome<u32> = Outcome::Admit { evicted: None };

    /// In the place of `block`.
    pub const fn evict(block: u32) -> Outcome<u32> {
        Outcome::Admit { evicted: Some(block) }
    }
}

/// A replacement policy: decides what a cache of a fixed number of blocks holds.
///
/// A policy never counts, logs, times or allocates cache space. It is told every access once, in order.
pub trait Policy {
    /// What names a block.
    type Key: Copy + Eq;

    /// Its table of blocks, from which the provided methods answer; none for a policy that keeps its blocks otherwise, which answers
    /// [`remove`](Self::remove), [`contains`](Self::contains), [`len`](Self::len) and [`prefetch`](Self::prefetch) itself.
    fn blocks(&self) -> Option<&dyn Queues<Self::Key>>;

    /// The same, to change it.
    fn blocks_mut(&mut self) -> Option<&mut dyn Queues<Self::Key>>;

    /// Shows a policy that knows the future the [next uses](Access::next_use) of all accesses that follow, before the first of them.
    fn foresee(&mut self, next_uses: &[u32]) {
        let _ = next_uses;
    }

    /// Decides about one access.
    fn access(&mut self, access: Access<Self::Key>) -> Outcome<Self::Key>;

    /// Forgets `block` at once, because it was trimmed or its cached copy is no longer valid; whether it was in the cache.
    ///
    /// Ghosts of it go too: the next access to `block` is to a block never seen. The place it leaves is free, and the next
    /// admissions fill free places before they evict.
    fn remove(&mut self, block: Self::Key) -> bool {
        self.blocks_mut().is_some_and(|blocks| blocks.take_out(block))
    }

    /// Takes `block` out of the cache, which has no space for it: it was admitted and found no place, or lost the one that it had. Unlike
    /// what is [removed](Self::remove), its content still counts, and a policy with ghosts need not forget it.
    fn refuse(&mut self, block: Self::Key) {
        self.remove(block);
    }

    /// The cache's space is in use, all of it, even where the policy sees free places: what fills a cache ends here.
    fn space_is_full(&mut self) {}

    /// From now on a `share` of each queue of cached blocks, 0 to 1, is *young*, from the end where blocks are put that were used last.
    fn set_young(&mut self, share: f64) {
        if let Some(blocks) = self.blocks_mut() {
            blocks.set_young(share);
        }
    }

    /// Whether `block` is in the cache and young: of those that the policy would keep longest, as its [table of blocks](Self::directory) knows. Where
    /// there is none, all that is cached is young.
    fn is_young(&self, block: Self::Key) -> bool {
        self.directory().map_or_else(|| self.contains(block), |directory| directory.is_young(block))
    }

    /// Whether `block` is in the cache.
    #[inline]
    fn contains(&self, block: Self::Key) -> bool {
        self.blocks().is_some_and(|blocks| blocks.is_cached(block))
    }

    /// Number of blocks in the cache.
    #[inline]
    fn len(&self) -> usize {
        self.blocks().map_or(0, |blocks| blocks.cached_len())
    }

    /// Whether the cache is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tells the time, which never goes back, of the accesses that follow. Only what divides time into frames listens.
    #[inline]
    fn tick(&mut self, time_us: u64) {
        let _ = time_us;
    }

    /// Tells a budget of writes how many blocks the flash was written with for other reasons than an access, such as headers. A number below 0 is of
    /// blocks that the policy admitted and that were not written.
    #[inline]
    fn note_others_written(&mut self, blocks: f64) {
        let _ = blocks;
    }

    /// Shows a block that is in the cache's space already, after a restart: to what replaces, past any admission rule.
    fn warm(&mut self, block: Self::Key) -> Outcome<Self::Key> {
        self.access(Access { block, op: Op::Read, request_blocks: 1, next_use: NEVER })
    }

    /// What was decided last about a setting that adapts; none before the first decision, and where nothing adapts.
    fn decision(&self) -> Option<&Decision> {
        None
    }

    /// A hint that `later` will be accessed soon and `soon`, for which the hint as `later` was given before, sooner.
    #[inline]
    fn prefetch(&self, soon: Self::Key, later: Self::Key) {
        if let Some(blocks) = self.blocks() {
            blocks.prefetch_nodes(soon, later);
        }
    }

    /// The [table of blocks](Self::blocks), which can be the directory of a log as well: see [`blocks`](crate::blocks).
    fn directory(&self) -> Option<&dyn Directory<Self::Key>> {
        self.blocks().map(|blocks| blocks as &dyn Directory<Self::Key>)
    }

    /// The same, for the log to say where blocks are. Whoever does tells of each block that [`Moved`].
    fn directory_mut(&mut self) -> Option<&mut dyn Directory<Self::Key>> {
        self.blocks_mut().map(|blocks| blocks as &mut dyn Directory<Self::Key>)
    }

    /// A block in the [`directory_mut`](Self::directory_mut) moved. Only what keeps a node's number listens.
    fn moved(&mut self, moved: Moved) {
        let _ = moved;
    }

    /// Asserts the policy's invariants, its memory bound included. Slow; for tests.
    fn check(&self);
}

/// What a policy says that admits every miss, and evicts for it once its cache is full; its [`Policy::access`] is [`on_demand`]'s.
trait OnDemand<I: Index> {
    /// Whether an admission takes the place of a block.
    fn is_full(&self) -> bool;

    /// The cached block of `node` was accessed.
    fn hit(&mut self, node: NodeId);

    /// A full cache makes room.
    fn evict(&mut self) -> Option<I::Key>;

    /// A block that is not cached comes into the cache, which has room.
    fn admit(&mut self, block: I::Key);
}

/// Access to a policy that is [`OnDemand`], all of whose nodes are cached blocks.
macro_rules! on_demand {
    ($index:ident) => {
        #[inline]
        fn access(&mut self, access: $crate::access::Access<$index::Key>) -> $crate::policy::Outcome<$index::Key> {
            if let Some(node) = self.blocks.find(access.block) {
                self.hit(node);
                return $crate::policy::Outcome::Hit;
            }
            let evicted = if self.is_full() { self.evict() } else { None };
            self.admit(access.block);
            $crate::policy::Outcome::Admit { evicted }
        }
    };
}
pub(crate) use on_demand;

/// What a policy over an index `I` says of its table of blocks, the field `blocks`.
macro_rules! of_blocks {
    ($index:ident) => {
        type Key = $index::Key;

        fn blocks(&self) -> Option<&dyn $crate::blocks::Queues<$index::Key>> {
            Some(&self.blocks)
        }

        fn blocks_mut(&mut self) -> Option<&mut dyn $crate::blocks::Queues<$index::Key>> {
            Some(&mut self.blocks)
        }
    };
}
pub(crate) use of_blocks;

/// What stands before a policy, and is a policy itself, passes these on to it.
macro_rules! pass_on {
    ($self:ident => $policy:expr) => {
        fn blocks(&$self) -> Option<&dyn $crate::blocks::Queues<Self::Key>> {
            $policy.blocks()
        }

        fn blocks_mut(&mut $self) -> Option<&mut dyn $crate::blocks::Queues<Self::Key>> {
            $policy.blocks_mut()
        }

        fn refuse(&mut $self, block: Self::Key) {
            $policy.refuse(block);
        }

        fn space_is_full(&mut $self) {
            $policy.space_is_full();
        }

        fn set_young(&mut $self, share: f64) {
            $policy.set_young(share);
        }

        fn is_young(&$self, block: Self::Key) -> bool {
            $policy.is_young(block)
        }

        #[inline]
        fn contains(&$self, block: Self::Key) -> bool {
            $policy.contains(block)
        }

        #[inline]
        fn len(&$self) -> usize {
            $policy.len()
        }

        fn moved(&mut $self, moved: $crate::directory::Moved) {
            $policy.moved(moved);
        }
    };
}
pub(crate) use pass_on;

impl<P: Policy + ?Sized> Policy for Box<P> {
    type Key = P::Key;

    pass_on!(self => (**self));

    fn foresee(&mut self, next_uses: &[u32]) {
        (**self).foresee(next_uses);
    }

    fn access(&mut self, access: Access<P::Key>) -> Outcome<P::Key> {
        (**self).access(access)
    }

    fn remove(&mut self, block: P::Key) -> bool {
        (**self).remove(block)
    }

    fn tick(&mut self, time_us: u64) {
        (**self).tick(time_us);
    }

    fn note_others_written(&mut self, blocks: f64) {
        (**self).note_others_written(blocks);
    }

    fn warm(&mut self, block: P::Key) -> Outcome<P::Key> {
        (**self).warm(block)
    }

    fn decision(&self) -> Option<&Decision> {
        (**self).decision()
    }

    fn prefetch(&self, soon: P::Key, later: P::Key) {
        (**self).prefetch(soon, later);
    }

    fn check(&self) {
        (**self).check();
    }
}

/// What a policy is called, where it comes from and what can be set.
#[derive(Debug)]
pub struct Info {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its name in full.
    pub title: &'static str,
    /// The paper that introduced it.
    pub source: &'static str,
    /// What can be set, with the defaults of that paper.
    pub parameters: &'static [Parameter],
    /// Whether it reads [`Access::next_use`], so that it can only be simulated.
    pub offline: bool,
}

impl Row for Info {
    fn name(&self) -> &'static str {
        self.name
    }

    fn parameters(&self) -> &'static [Parameter] {
        self.parameters
    }
}

/// The table of policies.
pub enum Policies {}

impl Table for Policies {
    type Row = Info;

    const WHAT: &'static str = "policy";
    const ALIASES: &'static [(&'static str, &'static str)] = &[("belady", "fif"), ("opt", "fif")];

    fn rows() -> &'static [&'static Info] {
        POLICIES
    }
}

/// A policy and its options as a user wrote them: `lru`, `larc:fill=ghost`.
pub type Spec = Named<Policies>;

/// The policies that need not know the future, which a live cache can have, in the order in which they are listed.
pub fn online() -> impl Iterator<Item = &'static Info> + Clone {
    POLICIES.iter().copied().filter(|info| !info.offline)
}

/// What to do with a policy once it is built; lets callers run each policy as its own, inlined type.
pub trait Visitor<K> {
    /// What comes of it.
    type Output;

    /// Uses the policy.
    fn visit<P: Policy<Key = K> + Send + 'static>(self, policy: P) -> Self::Output;
}

/// Any policy.
pub type AnyPolicy<K> = Box<dyn Policy<Key = K> + Send>;

/// Makes any policy of the one that is built.
#[derive(Clone, Copy, Debug)]
pub struct Boxed;

impl<K: Copy + Eq> Visitor<K> for Boxed {
    type Output = AnyPolicy<K>;

    fn visit<P: Policy<Key = K> + Send + 'static>(self, policy: P) -> AnyPolicy<K> {
        Box::new(policy)
    }
}

/// Builds the table.
macro_rules! policies {
    ($($(#[$attribute:meta])* $module:ident::$policy:ident,)*) => {
        /// Every policy, in the order in which they are listed.
        pub static POLICIES: &[&Info] = &[$($(#[$attribute])* &$module::INFO),*];

        impl Spec {
            /// Builds the policy for a cache of `capacity` blocks, which is at least 1, and hands it to `visitor`. `index` is empty.
            pub fn build<I: Index + Send + 'static, V: Visitor<I::Key>>(&self, index: I, capacity: usize, visitor: V) -> V::Output {
                assert!(capacity > 0, "a cache has room for at least one block");
                $($(#[$attribute])* if self.is(&$module::INFO) {
                    return visitor.visit($module::$policy::new(index, capacity, self.options()));
                })*
                unreachable!("a parsed policy is one of the table")
            }
        }
    };
}

policies! {
    lru::Lru,
    fifo::Fifo,
    clock::Clock,
    clock_pro::ClockPro,
    slru::Slru,
    lfu::Lfu,
    two_q::TwoQ,
    mq::Mq,
    arc::Arc,
    car::Car,
    larc::Larc,
    lirs::Lirs,
    lirs2::Lirs2,
    lecar::Lecar,
    cacheus::Cacheus,
    s3_fifo::S3Fifo,
    sieve::Sieve,
    w_tinylfu::WTinyLfu,
    ocf_lru::OcfLru,
    smq::Smq,
    fif::Fif,
    min::Min,
    #[cfg(any(test, feature = "planted"))]
    planted::Planted,
}
