//! The functions of a layout, and of the contents of its caches.

use std::any::Any;
use std::fmt::Debug;
use std::io;

use flashwise_core::cache;
use flashwise_core::format::{Digest, Geometry, Layout, Place, Superblock};

use crate::disk::Disk;
use crate::driver::Driver;
use crate::flash::{FlashError, Progress};
use crate::offline::check::Report;
use crate::offline::detach::{DetachError, Pair};
use crate::offline::salvage::{List, Outcome, SalvageOptions};
use crate::volume::{Opening, VolumeConfig, VolumeError};

/// A layout of a cache on its flash.
pub trait CacheLayout: Debug + Sync {
    /// Returns its number in superblocks.
    fn number(&self) -> Layout;

    /// Refuses a flash whose units do not fit.
    ///
    /// # Errors
    /// They do not fit, and the message says why.
    fn check_flash(&self, _flash: &dyn Disk, _geometry: Geometry) -> io::Result<()> {
        Ok(())
    }

    /// Completes the superblock of a new cache.
    fn begin(&self, _superblock: &mut Superblock) {}

    /// Writes what a new cache has besides its superblock, durably.
    ///
    /// # Errors
    /// The flash cannot be written.
    fn format(&self, _flash: &dyn Disk, _superblock: &Superblock) -> io::Result<()> {
        Ok(())
    }

    /// Returns the contents of a new cache.
    fn empty(&self, superblock: &Superblock) -> Box<dyn Held>;

    /// Reads the contents of a cache.
    ///
    /// # Errors
    /// The flash cannot be read, or its contents are no cache.
    fn read(
        &self,
        flash: &dyn Disk,
        superblock: &Superblock,
        threads: u32,
        progress: Progress<'_>,
    ) -> Result<Box<dyn Held>, FlashError>;

    /// True if a volume can grow while it has a cache.
    fn grows(&self) -> bool {
        true
    }

    /// True if settings of a live cache can be changed.
    fn changes(&self) -> bool {
        true
    }

    /// Returns the name of its policy, if it has only one.
    fn policy(&self) -> Option<&'static str> {
        None
    }

    /// Changes the configuration of the cache in RAM that a volume has without its flash.
    fn fit_without_flash(&self, _config: &VolumeConfig, _cache: &mut cache::Config) {}

    /// Checks the contents of a flash offline, and with `data` also their checksums.
    ///
    /// # Errors
    /// The flash cannot be read.
    fn check(
        &self,
        flash: &dyn Disk,
        superblock: &Superblock,
        data: bool,
        report: &mut Report,
        progress: &(dyn Fn(u64) + Sync),
    ) -> io::Result<()>;

    /// Writes back the certain blocks of a damaged cache. The superblock comes with true if it is the one on the flash.
    ///
    /// # Errors
    /// A device fails, or the cache cannot be read at all.
    fn salvage(
        &self,
        pair: Pair<'_>,
        superblock: (Superblock, bool),
        options: &SalvageOptions,
        list: List<'_>,
        reading: Progress<'_>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Outcome, DetachError>;
}

/// The contents of a cache that is not in use. Defaults are those of a cache without dirty blocks.
pub trait Held: Any + Debug + Send {
    /// Makes the contents durable.
    ///
    /// # Errors
    /// The flash cannot be written.
    fn settle(&mut self, _flash: &dyn Disk) -> io::Result<()> {
        Ok(())
    }

    /// Records the settled contents in the superblock of the next start. `in_order`: dirty blocks will be written back
    /// in order.
    fn note_in(&self, _superblock: &mut Superblock, _in_order: bool) {}

    /// Returns the digest of the settled contents, for the start of this number.
    fn digest(&self, _start: u64) -> Option<Digest> {
        None
    }

    /// True if there may be dirty or lost blocks.
    fn may_be_dirty(&self) -> bool {
        false
    }

    /// Returns the number of blocks, and how many of them may be dirty or are lost.
    fn blocks(&self) -> (u64, u64);

    /// Drops the clean blocks, and returns their number. Changes the superblock of the new start if it has to say that.
    ///
    /// # Errors
    /// The flash cannot be written.
    fn drop_clean(&mut self, flash: &dyn Disk, superblock: &mut Superblock) -> io::Result<u64>;

    /// Returns a note for the administrator.
    fn note(&self) -> Option<String> {
        None
    }

    /// Writes the dirty blocks back offline, durably. The backend has the epochs that end at or before `done`. Calls
    /// `note_ahead` before the backend has more than the flash records as written back in order. Returns their number,
    /// and the blocks that cannot be written back, in order.
    ///
    /// # Errors
    /// The backend cannot be written.
    fn destage(
        self: Box<Self>,
        _flash: &dyn Disk,
        _backend: &dyn Disk,
        _superblock: &Superblock,
        _done: Place,
        _note_ahead: &dyn Fn() -> io::Result<()>,
        _progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(u64, Vec<u32>), DetachError> {
        Ok((0, Vec::new()))
    }

    /// Returns the engine of a volume that begins with these contents.
    ///
    /// # Errors
    /// The configuration of the volume does not fit.
    fn open(self: Box<Self>, opening: &mut Opening<'_>) -> Result<Box<dyn Driver>, VolumeError>;
}
