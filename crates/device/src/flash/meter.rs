//! What a device's flash is asked to do, for those who want to know.

/// Hears of each operation of the flash, in order. Pages and units are physical; the pages of a unit are programmed in order.
pub trait Meter {
    /// A page is read.
    fn read(&mut self, page: u32);
    /// A page is programmed.
    fn program(&mut self, page: u32);
    /// A unit is erased.
    fn erase(&mut self, unit: u32);
}

/// Nobody wants to know.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unmetered;

impl Meter for Unmetered {
    #[inline]
    fn read(&mut self, _page: u32) {}
    #[inline]
    fn program(&mut self, _page: u32) {}
    #[inline]
    fn erase(&mut self, _unit: u32) {}
}
