//! Container policies on host-managed flash.
//!
//! Source: Cheng et al., USENIX ATC 2016, section 5.3 and Table 2 (RIPQ+, Pannier).
//!
//! What fills up in RAM is a part of the size of the cache, as the write buffer of C is, so that no algorithm has more blocks than another.

use flashwise_core::access::{Access, Op};
use flashwise_core::container_policy::{ContainerOutcome, ContainerPolicy, Flash, Spec, Visitor};
use flashwise_core::index::Dense;
use flashwise_core::step::FlashStep;

use super::Counts;
use super::counts::FlashWrites;
use super::online::{FlashCache, Online};
use super::settings::Geometry;
use crate::device::{Device, Zoned};

/// The flash for a cache with `policy`, of whose blocks some are in RAM.
///
/// # Errors
/// The erase units that the cache needs at least, if it has fewer.
pub(super) fn flash_of(policy: &Spec, geometry: &Geometry) -> Result<Flash, u32> {
    struct InRam;
    impl Visitor<u32> for InRam {
        type Output = usize;

        fn visit<P: ContainerPolicy<Key = u32>>(self, policy: P) -> usize {
            policy.ram_blocks_max()
        }
    }
    let Geometry { units, unit_pages, capacity_blocks, .. } = *geometry;
    let least = Flash { units, unit_pages, reserve_units: units - 1 };
    let in_ram = policy.build(Dense::new(0), least, InRam);
    match capacity_blocks.saturating_sub(in_ram) / unit_pages as usize {
        0 => Err((in_ram + unit_pages as usize).div_ceil(unit_pages as usize) as u32),
        data_units => Ok(Flash { reserve_units: units - data_units as u32, ..least }),
    }
}

impl Visitor<u32> for Online<'_> {
    type Output = Counts;

    fn visit<P: ContainerPolicy<Key = u32>>(self, policy: P) -> Counts {
        let Geometry { units, unit_pages, .. } = *self.geometry;
        let device = Zoned::new(units, unit_pages).expect("the geometry is that of a device");
        let counts = Counts::none(unit_pages, device.wear());
        self.run(OnlineContainers { policy, steps: Vec::new(), device }, counts)
    }
}

struct OnlineContainers<P> {
    policy: P,
    steps: Vec<FlashStep>,
    device: Zoned,
}

impl<P: ContainerPolicy<Key = u32>> FlashCache for OnlineContainers<P> {
    #[inline]
    fn access(&mut self, access: Access<u32>, time_us: u64, counts: &mut Counts) {
        let is_write = access.op == Op::Write;
        match self.policy.access(access, time_us, &mut self.steps) {
            ContainerOutcome::Hit { in_ram } if !is_write => {
                counts.flash_hits += 1;
                counts.buffer_hits += u64::from(in_ram);
            }
            ContainerOutcome::Hit { .. } | ContainerOutcome::Admit => counts.count_insertion(is_write),
            ContainerOutcome::Bypass => counts.bypasses += 1,
        }
        for step in self.steps.drain(..) {
            self.device.step(step);
        }
    }

    fn counted(&self, counts: Counts) -> Counts {
        let found = self.policy.counts();
        let flash_writes = FlashWrites {
            client_blocks: found.client_write_blocks,
            admission_blocks: found.admitted_blocks,
            copy_forward_blocks: found.copied_forward_blocks,
        };
        let (device, wear) = (*self.device.counters(), self.device.wear());
        Counts { flash_writes, evicted_live_blocks: found.live_at_reset_blocks, device, wear, ..counts }
    }
}
