//! The same RAM for caches that are compared with each other.

use flashwise_trace::Trace;

use super::{Case, Experiment, Layout};
use crate::cache_settings::Ram;
use crate::endurance::{Geometry, ram_blocks};

impl Experiment {
    /// Returns the experiment with the same RAM, in bytes, for all cases over `trace`. A share is that of the largest
    /// cache. If buffers of one case need more, all cases have as much. Without modelled flash the experiment stays as
    /// it is.
    #[must_use]
    pub fn with_equal_ram(mut self, trace: &Trace, cases: &[Case]) -> Experiment {
        let block_bytes = trace.block_size_bytes();
        let largest = cases.iter().map(|case| case.capacity_blocks).max().unwrap_or(0);
        let Layout::Flash(settings) = &mut self.layout else { return self };
        settings.ram = Ram::Bytes(ram_blocks(settings.ram, largest, block_bytes).saturating_mul(block_bytes));
        let geometries = cases.iter().filter_map(|case| self.geometry(case, block_bytes, None).ok().flatten());
        let needed = geometries.map(|geometry: Geometry| geometry.ram_used_blocks()).max();
        if let (Some(needed), Layout::Flash(settings)) = (needed, &mut self.layout) {
            settings.ram = Ram::Bytes(needed.saturating_mul(block_bytes));
        }
        self
    }
}
