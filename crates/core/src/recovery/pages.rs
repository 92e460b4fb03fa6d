//! The pages of a unit, read in pieces, because a unit may be too large for memory.

use std::collections::HashMap;
use std::ops::Range;

use super::{Units, belongs, page_of};
use crate::format::{BLOCK_BYTES, Geometry, Page, Role, decode_metadata};

/// Maximum number of pages per read.
const WINDOW_PAGES: u32 = 1024;

/// A unit's pages.
pub(super) struct Pages<'a, U> {
    geometry: Geometry,
    units: &'a U,
    unit: u32,
    /// The pages of the last read.
    window: Vec<u8>,
    first: u32,
}

impl<'a, U: Units> Pages<'a, U> {
    /// Creates access to the pages of `unit`, without reading any.
    pub(super) fn new(geometry: Geometry, units: &'a U, unit: u32) -> Self {
        Pages { geometry, units, unit, window: Vec::new(), first: 0 }
    }

    /// Returns a page, read together with those behind it.
    pub(super) fn page(&mut self, page: u32) -> Result<&Page, U::Error> {
        let held = (self.window.len() / BLOCK_BYTES) as u32;
        if !(self.first..self.first + held).contains(&page) {
            self.window.clear();
            let count = WINDOW_PAGES.min(self.geometry.unit_pages - page);
            let mut window = vec![0; count as usize * BLOCK_BYTES];
            self.units.read_pages(self.unit, page, &mut window)?;
            (self.window, self.first) = (window, page);
        }
        Ok(page_of(&self.window, page - self.first))
    }

    /// Returns some pages, as bytes.
    pub(super) fn read(&mut self, pages: Range<u32>) -> Result<Vec<u8>, U::Error> {
        let mut bytes = vec![0; pages.len() * BLOCK_BYTES];
        self.units.read_pages(self.unit, pages.start, &mut bytes)?;
        Ok(bytes)
    }
}

/// Findings from the metadata on all pages of a unit for one sequence number, before its segments are read.
#[derive(Debug, Default)]
pub(super) struct Traces {
    /// The page up to which the unit was durable.
    pub(super) durable_end: u32,
    /// The highest epoch.
    pub(super) epoch: u64,
    /// By the end of segments, the page where the log continues if it skipped some.
    pub(super) resumed: HashMap<u32, u32>,
}

impl Traces {
    /// Scans all pages.
    pub(super) fn find<U: Units>(
        geometry: Geometry,
        cache: u64,
        sequence: u64,
        pages: &mut Pages<'_, U>,
    ) -> Result<Traces, U::Error> {
        let mut traces = Traces::default();
        for page in 0..geometry.unit_pages {
            let role = if page < geometry.segments_end() { Role::Segment } else { Role::Footer };
            let Ok(found) = decode_metadata(role, pages.page(page)?) else { continue };
            let header = found.header;
            if !belongs(geometry, cache, pages.unit, &header) || (header.sequence, header.page) != (sequence, page) {
                continue;
            }
            traces.durable_end = traces.durable_end.max(header.durable_end.min(geometry.segments_end()));
            traces.epoch = traces.epoch.max(header.epoch);
            if header.skipped > 0
                && let Some(end) = page.checked_sub(header.skipped)
            {
                traces.resumed.insert(end, page);
            }
        }
        Ok(traces)
    }

    /// Returns the page of the segment that follows an end of segments.
    pub(super) fn begins_at(&self, end: u32) -> u32 {
        self.resumed.get(&end).copied().unwrap_or(end)
    }
}
