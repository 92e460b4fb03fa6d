//! How files and block devices are opened.

/// The use of the page cache by reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageCache {
    /// Bypassed if the file system allows that. Otherwise [`Disk::notes`](super::Disk::notes) has a note.
    #[default]
    AvoidIfPossible,
    /// Bypassed; opening fails if the file system does not allow that.
    Avoid,
    /// Used.
    Use,
}

/// How to open a disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// True if writing is refused.
    pub read_only: bool,
    /// The use of the page cache.
    pub page_cache: PageCache,
}

/// The allocation of a new file's space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Space is taken when it is written.
    Sparse,
    /// All space is allocated at once, so writes never fail for lack of it.
    Full,
}
