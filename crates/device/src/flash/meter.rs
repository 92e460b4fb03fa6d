//! Observation of a device's flash operations.

/// An observer of flash operations, in order. Pages and units are physical; the pages of a unit are programmed in
/// order.
pub trait Meter {
    /// A page is read.
    fn read(&mut self, page: u32);
    /// A page is programmed.
    fn program(&mut self, page: u32);
    /// A unit is erased.
    fn erase(&mut self, unit: u32);
}

/// Ignores all operations.
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
