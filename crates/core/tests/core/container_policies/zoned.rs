//! A flash device of erase units that are written front to back and reset whole, with page contents.

use flashwise_core::step::FlashStep;

/// A zoned flash device. A page holds a block in one of its versions.
pub struct Zoned {
    unit_pages: u32,
    /// Written pages of each unit.
    written: Vec<u32>,
    /// The content of each page, once known.
    pub content: Vec<Option<(u32, u32)>>,
    pub writes: u64,
    pub resets: u64,
}

impl Zoned {
    pub fn new(units: u32, unit_pages: u32) -> Zoned {
        let written = vec![0; units as usize];
        Zoned { unit_pages, written, content: vec![None; (units * unit_pages) as usize], writes: 0, resets: 0 }
    }

    /// Executes a step, and panics on steps that such a device rejects.
    pub fn perform(&mut self, step: FlashStep) {
        let at = |page: u32| ((page / self.unit_pages) as usize, page % self.unit_pages);
        match step {
            FlashStep::Read { page } => {
                let (unit, page_of_unit) = at(page);
                assert!(page_of_unit < self.written[unit], "page {page} is read before it is written");
            }
            FlashStep::Write { page } => {
                let (unit, page_of_unit) = at(page);
                assert_eq!(page_of_unit, self.written[unit], "page {page} is written at the write pointer");
                self.written[unit] += 1;
                self.content[page as usize] = None;
                self.writes += 1;
            }
            FlashStep::Reset { unit } => {
                let first = (unit * self.unit_pages) as usize;
                self.content[first..first + self.unit_pages as usize].fill(None);
                assert!(self.written[unit as usize] > 0, "unit {unit} is reset though nothing was written to it");
                self.written[unit as usize] = 0;
                self.resets += 1;
            }
            FlashStep::Discard { page } => panic!("page {page} is discarded by itself"),
        }
    }
}
