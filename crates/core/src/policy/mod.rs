//! Replacement policies: one file each, and one row each in the table at the end of this file.
//!
//! A policy's file is its paper: the handling of an [access](Policy::access) with the paper's letters. The lists of its
//! [table of blocks](crate::blocks::Blocks) are the paper's queues. The table answers all general questions of a cache.
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
//! A box costs an indirect call per access. To avoid it, implement a [`Visitor`], which runs each policy as its own,
//! inlined type.

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
use crate::index::{Dense, Index};
use crate::named::{Named, Row, Table};
use crate::options::Parameter;

/// A policy's decision about one access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<K> {
    /// The block is in the cache.
    Hit,
    /// The block was not in the cache; now it is, in the place of `evicted` or in free space.
    Admit {
        /// The block that left the cache.
        evicted: Option<K>,
    },
    /// The block is not in the cache, and no other block entered or left. A write may have evicted its own block: a
    /// rule whose [budget](crate::admission::budget) is used up evicts the block of a write hit.
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

/// Outcomes for the tables of the policies' tests.
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

/// A replacement policy: decides which blocks a cache of a fixed size holds.
///
/// A policy never counts, logs, times or allocates cache space. It sees every access once, in order.
pub trait Policy {
    /// The name of a block.
    type Key: Copy + Eq;

    /// Returns its table of blocks, which the provided methods use; `None` for a policy with other data structures.
    /// Such a policy implements [`remove`](Self::remove), [`contains`](Self::contains), [`len`](Self::len) and
    /// [`prefetch`](Self::prefetch) itself.
    fn blocks(&self) -> Option<&dyn Queues<Self::Key>>;

    /// Returns its table of blocks, mutable.
    fn blocks_mut(&mut self) -> Option<&mut dyn Queues<Self::Key>>;

    /// Gives an offline policy the [next uses](Access::next_use) of all following accesses, before the first of them.
    fn foresee(&mut self, next_uses: &[u32]) {
        let _ = next_uses;
    }

    /// Decides about one access.
    fn access(&mut self, access: Access<Self::Key>) -> Outcome<Self::Key>;

    /// Forgets `block` at once, because it was trimmed or its cached copy is invalid. Returns true if it was in the
    /// cache.
    ///
    /// Its ghosts go too: the next access to `block` counts as the first. The place it leaves is free, and the next
    /// admissions fill free places before they evict.
    fn remove(&mut self, block: Self::Key) -> bool {
        self.blocks_mut().is_some_and(|blocks| blocks.take_out(block))
    }

    /// Evicts `block` because the cache has no space for it: it was just admitted, or it lost its space. Unlike a
    /// [removed](Self::remove) block its content is still valid, so a policy with ghosts need not forget it.
    fn refuse(&mut self, block: Self::Key) {
        self.remove(block);
    }

    /// Ends the filling of the cache: all of its space is in use, even if the policy sees free places.
    fn space_is_full(&mut self) {}

    /// Marks a `share` of each queue of cached blocks, 0 to 1, as *young*, from the end where recently used blocks are
    /// inserted.
    fn set_young(&mut self, share: f64) {
        if let Some(blocks) = self.blocks_mut() {
            blocks.set_young(share);
        }
    }

    /// True if `block` is cached and young, that is, among the last that the policy would evict, according to its
    /// [table of blocks](Self::directory). Without a table all cached blocks are young.
    fn is_young(&self, block: Self::Key) -> bool {
        self.directory().map_or_else(|| self.contains(block), |directory| directory.is_young(block))
    }

    /// True if `block` is in the cache.
    #[inline]
    fn contains(&self, block: Self::Key) -> bool {
        self.blocks().is_some_and(|blocks| blocks.is_cached(block))
    }

    /// Returns the number of blocks in the cache.
    #[inline]
    fn len(&self) -> usize {
        self.blocks().map_or(0, |blocks| blocks.cached_len())
    }

    /// True if the cache is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets the time of the following accesses, which never decreases. Only rules with timeframes use it.
    #[inline]
    fn tick(&mut self, time_us: u64) {
        let _ = time_us;
    }

    /// Reports to a write budget the blocks written to the flash for other reasons than an access, such as headers.
    /// Negative numbers are admitted blocks that were not written.
    #[inline]
    fn note_others_written(&mut self, blocks: f64) {
        let _ = blocks;
    }

    /// True if a budget of writes is overdrawn by more than a minute brings.
    #[inline]
    fn is_overdrawn(&self) -> bool {
        false
    }

    /// Limits the rest of a budget of writes to this many blocks. Time adds to the rest later, as before.
    #[inline]
    fn limit_budget(&mut self, blocks: f64) {
        let _ = blocks;
    }

    /// Inserts a block that is already in the cache's space, after a restart. It reaches the replacement policy
    /// directly, without an admission rule.
    fn warm(&mut self, block: Self::Key) -> Outcome<Self::Key> {
        self.access(Access { block, op: Op::Read, request_blocks: 1, next_use: NEVER })
    }

    /// Returns the last decision about an adaptive setting; `None` before the first, and for settings that do not
    /// adapt.
    fn decision(&self) -> Option<&Decision> {
        None
    }

    /// Hints that `later` will be accessed soon, and `soon`, an earlier `later`, even sooner.
    #[inline]
    fn prefetch(&self, soon: Self::Key, later: Self::Key) {
        if let Some(blocks) = self.blocks() {
            blocks.prefetch_nodes(soon, later);
        }
    }

    /// Returns the [table of blocks](Self::blocks) as a directory of a log: see [`blocks`](crate::blocks).
    fn directory(&self) -> Option<&dyn Directory<Self::Key>> {
        self.blocks().map(|blocks| blocks as &dyn Directory<Self::Key>)
    }

    /// Returns the directory, mutable, for the log to set positions of blocks. The caller reports each block that
    /// [`Moved`].
    fn directory_mut(&mut self) -> Option<&mut dyn Directory<Self::Key>> {
        self.blocks_mut().map(|blocks| blocks as &mut dyn Directory<Self::Key>)
    }

    /// Handles the move of a block in the [`directory_mut`](Self::directory_mut). Only policies that store node numbers
    /// need this.
    fn moved(&mut self, moved: Moved) {
        let _ = moved;
    }

    /// Asserts the policy's invariants, its memory bound included. Slow; for tests.
    fn check(&self);
}

/// A policy that admits every miss, and evicts once its cache is full. [`on_demand`] provides its [`Policy::access`].
trait OnDemand<I: Index> {
    /// True if an admission must evict.
    fn is_full(&self) -> bool;

    /// Handles an access to the cached block of `node`.
    fn hit(&mut self, node: NodeId);

    /// Evicts a block of a full cache.
    fn evict(&mut self) -> Option<I::Key>;

    /// Inserts a block that is not cached; the cache has room.
    fn admit(&mut self, block: I::Key);
}

/// Implements [`Policy::access`] for an [`OnDemand`] policy whose nodes are all cached blocks.
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

/// Implements access to the table of blocks, the field `blocks`, for a policy over an index `I`.
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

/// Forwards these methods to the policy behind a wrapper that is a policy itself.
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

    fn is_overdrawn(&self) -> bool {
        (**self).is_overdrawn()
    }

    fn limit_budget(&mut self, blocks: f64) {
        (**self).limit_budget(blocks);
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

/// Name, source and parameters of a policy.
#[derive(Debug)]
pub struct Info {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its full name.
    pub title: &'static str,
    /// The paper that introduced it.
    pub source: &'static str,
    /// Its parameters, with the defaults of that paper.
    pub parameters: &'static [Parameter],
    /// True if it reads [`Access::next_use`], and so can only be simulated.
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

/// Returns the policies that need not know the future, so a live cache can use them, in the order of the table.
pub fn online() -> impl Iterator<Item = &'static Info> + Clone {
    POLICIES.iter().copied().filter(|info| !info.offline)
}

/// A consumer of a built policy; it can run each policy as its own, inlined type.
pub trait Visitor<K> {
    /// The result.
    type Output;

    /// Uses the policy.
    fn visit<P: Policy<Key = K> + Send + 'static>(self, policy: P) -> Self::Output;
}

/// Any policy.
pub type AnyPolicy<K> = Box<dyn Policy<Key = K> + Send>;

/// Boxes the built policy.
#[derive(Clone, Copy, Debug)]
pub struct Boxed;

impl<K: Copy + Eq> Visitor<K> for Boxed {
    type Output = AnyPolicy<K>;

    fn visit<P: Policy<Key = K> + Send + 'static>(self, policy: P) -> AnyPolicy<K> {
        Box::new(policy)
    }
}

impl Spec {
    /// Builds the policy for a cache of `capacity` blocks, at least 1, of a trace with `unique_blocks`.
    // It is compiled here, so that a policy in the crate of the simulator is called by the replay only. The compiler
    // inlines a policy with one caller; otherwise, a replay takes up to 40 % more time.
    pub fn boxed(&self, unique_blocks: usize, capacity: usize) -> AnyPolicy<u32> {
        self.build(Dense::new(unique_blocks), capacity, Boxed)
    }
}

/// Builds the table.
macro_rules! policies {
    ($($(#[$attribute:meta])* $module:ident::$policy:ident,)*) => {
        /// Every policy, in the order of the table.
        pub static POLICIES: &[&Info] = &[$($(#[$attribute])* &$module::INFO),*];

        impl Spec {
            /// Builds the policy for a cache of `capacity` blocks, at least 1, and passes it to `visitor`. `index` must
            /// be empty.
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
