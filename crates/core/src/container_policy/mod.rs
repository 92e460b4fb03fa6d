//! Container policies: flash caches that write, choose and evict whole erase units ("containers"), one file each, and one row each in
//! the table at the end of this file.
//!
//! Source: Cheng, Douglis, Shilane, Trachtman, Wallace, Desnoyers, Li: Erasing Belady's limitations: in search of flash cache
//! offline optimality. USENIX ATC 2016, sections 2.2 and 5.3.
//!
//! A container policy decides what is cached, and where: unlike a [`Policy`](crate::policy::Policy) it answers with what is to be
//! done on the flash device. What is cached is clean: a client's write goes to the backend too.

pub mod bcache;
pub mod pannier;
pub mod ripq;
pub mod throttle;

use crate::access::Access;
use crate::index::Index;
use crate::named::{Named, Table};
use crate::policy::Info;
use crate::step::{Cause, FlashStep};

/// What became of one access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerOutcome {
    /// The block is in the cache.
    Hit {
        /// It is in a container that fills up in RAM and was not written to flash yet.
        in_ram: bool,
    },
    /// The block was not in the cache and now is.
    Admit,
    /// The block is not in the cache. If it was, a write that was not cached made its copy invalid.
    Bypass,
}

/// The flash that a container policy manages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flash {
    /// All its erase units.
    pub units: u32,
    /// Pages of a unit, each of which holds one block.
    pub unit_pages: u32,
    /// Units that hold no data between two accesses, fewer than `units`: copying forward may fill them meanwhile.
    pub reserve_units: u32,
}

impl Flash {
    /// Most blocks on flash between two accesses.
    pub fn data_blocks(&self) -> u32 {
        (self.units - self.reserve_units) * self.unit_pages
    }
}

/// What a container policy wrote and reset. Blocks are counted when their page is written, so that the three causes add up to the
/// device's page writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pages written with blocks that clients wrote.
    pub client_write_blocks: u64,
    /// Pages written with blocks that were read and not in the cache.
    pub admitted_blocks: u64,
    /// Pages written with blocks that were on a unit which was reset.
    pub copied_forward_blocks: u64,
    /// Units reset.
    pub units_reset: u64,
    /// Blocks that were neither overwritten nor copied since when their unit was reset.
    pub live_at_reset_blocks: u64,
}

impl Counts {
    /// All pages written.
    pub fn written_blocks(&self) -> u64 {
        self.client_write_blocks + self.admitted_blocks + self.copied_forward_blocks
    }

    fn count(&mut self, cause: Cause) {
        match cause {
            Cause::Client => self.client_write_blocks += 1,
            Cause::Admission => self.admitted_blocks += 1,
            Cause::CopyForward => self.copied_forward_blocks += 1,
        }
    }
}

/// A cache of blocks on flash and in the containers that fill up in RAM. It is told every access once, in order.
pub trait ContainerPolicy {
    /// What names a block.
    type Key: Copy + Eq;

    /// Decides about one access at `time_us`, which never goes back, and pushes what is to be done on flash.
    fn access(&mut self, access: Access<Self::Key>, time_us: u64, steps: &mut Vec<FlashStep>) -> ContainerOutcome;

    /// Forgets `block` at once, because it was trimmed; whether it was in the cache.
    fn remove(&mut self, block: Self::Key) -> bool;

    /// Whether `block` is in the cache.
    fn contains(&self, block: Self::Key) -> bool;

    /// The flash page that holds `block`; none while it is in RAM.
    fn page_of(&self, block: Self::Key) -> Option<u32>;

    /// Number of blocks in the cache: those on flash and those in RAM.
    fn len(&self) -> usize;

    /// Whether the cache is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Most blocks that the containers in RAM hold between two accesses.
    fn ram_blocks_max(&self) -> usize;

    /// What was written and reset so far.
    fn counts(&self) -> Counts;

    /// A hint that `later` will be accessed soon and `soon`, for which the hint as `later` was given before, sooner.
    fn prefetch(&self, soon: Self::Key, later: Self::Key) {
        let _ = (soon, later);
    }

    /// Asserts the policy's invariants, its memory bound included. Slow; for tests.
    fn check(&self);
}

/// The table of container policies.
pub enum ContainerPolicies {}

impl Table for ContainerPolicies {
    type Row = Info;

    const WHAT: &'static str = "container policy";

    fn rows() -> &'static [&'static Info] {
        CONTAINER_POLICIES
    }
}

/// A container policy and its options as a user wrote them: `ripq+`, `pannier:copy=2`.
pub type Spec = Named<ContainerPolicies>;

/// What to do with a container policy once it is built; lets callers run each as its own, inlined type.
pub trait Visitor<K> {
    /// What comes of it.
    type Output;

    /// Uses the policy.
    fn visit<P: ContainerPolicy<Key = K> + Send + 'static>(self, policy: P) -> Self::Output;
}

/// Builds the table.
macro_rules! container_policies {
    ($($module:ident::$policy:ident,)*) => {
        /// Every container policy, in the order in which they are listed.
        pub static CONTAINER_POLICIES: &[&Info] = &[$(&$module::INFO),*];

        impl Spec {
            /// Builds the policy for `flash`, which has a unit that is not in reserve, and hands it to `visitor`. `index` is empty.
            pub fn build<I: Index + Send + 'static, V: Visitor<I::Key>>(&self, index: I, flash: Flash, visitor: V) -> V::Output {
                assert!(flash.reserve_units < flash.units, "a flash cache has a unit that is not in reserve");
                $(if self.is(&$module::INFO) {
                    return visitor.visit($module::$policy::new(index, flash, self.options()));
                })*
                unreachable!("a parsed policy is one of the table")
            }
        }
    };
}

container_policies! {
    ripq::RipqPlus,
    pannier::Pannier,
    bcache::Bcache,
}
