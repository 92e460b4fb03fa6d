//! Flash wear of caches, compared with the offline optimum, on modelled devices.
//!
//! Source: Cheng, Douglis, Shilane, Trachtman, Wallace, Desnoyers, Li: Erasing Belady's limitations: in search of flash
//! cache offline optimality. USENIX ATC 2016.
//!
//! Accesses are counted per block, and only reads count for hits. [`crate::offline`] decides for the offline
//! algorithms. Here their decisions become caches (`planned.rs`) that run like all others. Their layout is in place
//! behind the translation layer of a conventional SSD, in containers on host-managed flash, or one erase unit for each
//! block. Replacement policies run in place too, container policies on host-managed flash. Every algorithm of a size
//! has the same flash, including spare erase units, and the same RAM. RAM that its buffers leave is its read cache.

mod algorithm;
mod budget;
mod containers;
mod counts;
mod error;
mod in_place;
mod offline_runs;
mod planned;
mod settings;
mod tally;
mod unit_caching;
mod write_buffer;

use flashwise_core::container_policy::{self, ContainerPolicy, Flash};
use flashwise_core::index::Dense;
use flashwise_trace::Trace;
use flashwise_trace::progress::Progress;

pub use algorithm::{Algorithm, Budget, CopyForwardReduction, Limit, Method, Offline, Order, Placement, algorithms};
pub use counts::Endurance;
pub use error::EnduranceError;
pub use flashwise_core::block_cache::FlashWrites;
use in_place::InPlace;
pub(crate) use offline_runs::{OfflineRun, run_offline};
pub(crate) use planned::{Placed, Planned};
pub(crate) use settings::ram_blocks;
pub use settings::{Buffers, Geometry, Settings, WRITE_BUFFERS};
use unit_caching::{Places, UnitCaching};

use crate::offline::{FlashStream, Plan};
use flashwise_device::flash::{Device, Ftl, Zoned};

/// Work on a plan, as a cache on its device.
pub(crate) trait Performs {
    /// Result of the work.
    type Output;

    /// Runs `cache` on `device`.
    fn perform<P: Placed>(self, cache: Planned<'_, P>, device: impl Device) -> Self::Output;
}

/// Performs the decisions of `plan` over `stream` by `how`, on a device of its own.
pub(crate) fn perform_by<H: Performs>(
    stream: &FlashStream,
    plan: &Plan,
    geometry: &Geometry,
    placement: Placement,
    progress: &dyn Progress,
    how: H,
) -> H::Output {
    match placement {
        Placement::InPlace { trim } => {
            let placed = InPlace::new(stream, geometry.ftl.logical_pages, trim);
            how.perform(Planned::new(stream, plan, placed), device_of(geometry))
        }
        Placement::Containers { reduction, order, .. } => {
            let placed = containers::containers(stream, plan, geometry, reduction, order, progress);
            let device = Zoned::new(geometry.units, geometry.unit_pages).expect("the geometry is that of a device");
            how.perform(Planned::new(stream, plan, placed), device)
        }
        Placement::UnitCaching => {
            let placed = UnitCaching::new(stream);
            how.perform(Planned::new(stream, plan, placed), Places::new(geometry.capacity_blocks))
        }
    }
}

/// Performs the decisions of `plan` over `stream` on a device of its own. The counts have no days, because a stream has
/// no times. `progress` may end it.
pub fn perform(
    stream: &FlashStream,
    plan: &Plan,
    geometry: &Geometry,
    placement: Placement,
    progress: &dyn Progress,
) -> Endurance {
    struct Alone<'a>(&'a FlashStream, u32, &'a dyn Progress);
    impl Performs for Alone<'_> {
        type Output = Endurance;

        fn perform<P: Placed>(self, cache: Planned<'_, P>, device: impl Device) -> Endurance {
            tally::run(self.0, cache, device, self.1, self.2)
        }
    }
    perform_by(stream, plan, geometry, placement, progress, Alone(stream, geometry.unit_pages, progress))
}

/// Returns the conventional SSD of a cache.
fn device_of(geometry: &Geometry) -> Ftl {
    Ftl::new(geometry.ftl.clone()).expect("the geometry is that of a device")
}

/// Returns the flash for a cache with a container policy that keeps some blocks in RAM, and its geometry with that RAM.
///
/// # Errors
/// The number of erase units that the cache needs at least, if it has fewer.
pub(crate) fn flash_of(policy: &container_policy::Spec, geometry: Geometry) -> Result<(Flash, Geometry), u32> {
    struct InRam;
    impl container_policy::Visitor<u32> for InRam {
        type Output = usize;

        fn visit<P: ContainerPolicy<Key = u32>>(self, policy: P) -> usize {
            policy.ram_blocks_max()
        }
    }
    let Geometry { units, unit_pages, capacity_blocks, .. } = geometry;
    let least = Flash { units, unit_pages, reserve_units: units - 1 };
    let in_ram = policy.build(Dense::new(0), least, InRam);
    match capacity_blocks.saturating_sub(in_ram) / unit_pages as usize {
        0 => Err((in_ram + unit_pages as usize).div_ceil(unit_pages as usize) as u32),
        data_units => {
            let flash = Flash { reserve_units: units - data_units as u32, ..least };
            Ok((flash, geometry.with_buffer(in_ram as u64)))
        }
    }
}

/// Duration of the accesses after the first `warmup` in days; `None` if the trace's times are unusable.
pub(crate) fn days(trace: &Trace, warmup: u64) -> Option<f64> {
    const DAY_US: f64 = 86_400e6;
    if trace.rates_refused().is_some() {
        return None;
    }
    let times = trace.times();
    let mut skipped = usize::try_from(warmup).unwrap_or(usize::MAX);
    let first_us = trace.batches().find_map(|columns| {
        let in_batch = skipped.min(columns.rows);
        skipped -= in_batch;
        let counted = if in_batch < columns.rows { &columns.time_us[in_batch..] } else { &[] };
        counted.iter().copied().find(|&time_us| times.hold(time_us))
    })?;
    // Traces are not always sorted, so the latest time may come earlier.
    let days = times.latest_us.saturating_sub(first_us) as f64 / DAY_US;
    (days > 0.0).then_some(days)
}
