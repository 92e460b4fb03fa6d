//! Container policies: flash caches that write, choose and evict whole erase units ("containers"). Each has its own
//! file, and a row in the table at the end of this file.
//!
//! Source: Cheng, Douglis, Shilane, Trachtman, Wallace, Desnoyers, Li: Erasing Belady's limitations: in search of flash
//! cache offline optimality. USENIX ATC 2016, sections 2.2 and 5.3.
//!
//! A container policy decides about the contents of the cache and their location: unlike a
//! [`Policy`](crate::policy::Policy) it returns steps for the flash device. Cached data is clean: a client's write also
//! goes to the backend.

pub mod bcache;
pub mod pannier;
pub mod ripq;
pub mod throttle;

use crate::access::Access;
use crate::index::Index;
use crate::named::{Named, Table};
use crate::policy::Info;
use crate::step::{FlashStep, FlashWrites};

/// The outcome of one access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerOutcome {
    /// The block is in the cache.
    Hit {
        /// True if it is in a container that fills in RAM and was not written to flash yet.
        in_ram: bool,
    },
    /// The block was not in the cache; now it is.
    Admit,
    /// The block is not in the cache. If it was, a write that bypassed the cache invalidated its copy.
    Bypass,
}

/// The flash that a container policy manages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flash {
    /// All its erase units.
    pub units: u32,
    /// The pages of a unit; each holds one block.
    pub unit_pages: u32,
    /// Units without data between two accesses, fewer than `units`; copying forward may fill them in the meantime.
    pub reserve_units: u32,
}

impl Flash {
    /// Returns the maximum number of blocks on flash between two accesses.
    pub fn data_blocks(&self) -> u32 {
        (self.units - self.reserve_units) * self.unit_pages
    }
}

crate::counts! {
    /// Writes and resets of a container policy. Blocks are counted when their page is written, so the three causes add
    /// up to the device's page writes.
    pub struct Counts {
        /// Pages written.
        pub flash_writes: FlashWrites,
        /// Units reset.
        pub units_reset: u64,
        /// Blocks still valid and not copied when their unit was reset.
        pub live_at_reset_blocks: u64,
    }
}

/// A cache of blocks on flash and in the containers that fill in RAM. It sees every access once, in order.
pub trait ContainerPolicy {
    /// The name of a block.
    type Key: Copy + Eq;

    /// Decides about one access at `time_us`, which never decreases, and pushes the steps for the flash.
    fn access(&mut self, access: Access<Self::Key>, time_us: u64, steps: &mut Vec<FlashStep>) -> ContainerOutcome;

    /// Forgets `block` at once, because it was trimmed. Returns true if it was in the cache.
    fn remove(&mut self, block: Self::Key) -> bool;

    /// True if `block` is in the cache.
    fn contains(&self, block: Self::Key) -> bool;

    /// Returns the flash page of `block`; `None` while it is in RAM.
    fn page_of(&self, block: Self::Key) -> Option<u32>;

    /// Returns the number of blocks in the cache, on flash and in RAM.
    fn len(&self) -> usize;

    /// True if the cache is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the maximum number of blocks in RAM containers between two accesses.
    fn ram_blocks_max(&self) -> usize;

    /// Returns the writes and resets so far.
    fn counts(&self) -> Counts;

    /// Hints that `later` will be accessed soon, and `soon`, an earlier `later`, even sooner.
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

/// A consumer of a built container policy; it can run each as its own, inlined type.
pub trait Visitor<K> {
    /// The result.
    type Output;

    /// Uses the policy.
    fn visit<P: ContainerPolicy<Key = K> + Send + 'static>(self, policy: P) -> Self::Output;
}

/// Builds the table.
macro_rules! container_policies {
    ($($module:ident::$policy:ident,)*) => {
        /// Every container policy, in the order of the table.
        pub static CONTAINER_POLICIES: &[&Info] = &[$(&$module::INFO),*];

        impl Spec {
            /// Builds the policy for `flash`, which must have a unit that is not in reserve, and passes it to
            /// `visitor`. `index` must be empty.
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
