//! The contents of a cache, for either layout.

use std::io;

use flashwise_core::format::{Digest, Layout, Place, RunEnd, Superblock};
use flashwise_core::recovery::Recovered;
use flashwise_engine::wlfc::BucketsEnd;

use crate::disk::Disk;
use crate::flash::{FlashError, Progress, recover_log, settle, write_superblock};
use crate::wlfc::start;

/// The contents of a cache, by its layout.
#[derive(Debug)]
pub enum Held {
    /// A log.
    Log(Box<Recovered>),
    /// Buckets.
    Wlfc(Box<start::Held>),
}

impl Held {
    /// Reads the contents of a cache.
    pub(super) fn read(
        flash: &dyn Disk,
        superblock: &Superblock,
        threads: u32,
        progress: Progress<'_>,
    ) -> Result<Held, FlashError> {
        Ok(match superblock.layout {
            Layout::Log => Held::Log(Box::new(recover_log(flash, superblock, threads, progress)?)),
            Layout::Wlfc => Held::Wlfc(Box::new(start::scan(flash, superblock, threads, progress)?)),
        })
    }

    pub(super) fn empty(superblock: &Superblock) -> Held {
        match superblock.layout {
            Layout::Log => Held::Log(Box::new(Recovered::empty(superblock.geometry, superblock.in_order))),
            Layout::Wlfc => Held::Wlfc(Box::new(start::Held::empty(superblock))),
        }
    }

    /// Returns the place from which records of epochs count in this run, if data is written back `in_order`. `before`
    /// is that of the last run.
    pub(super) fn epochs(&self, in_order: bool, before: Option<Place>) -> Option<Place> {
        let Held::Log(recovered) = self else { return None };
        match (in_order, before) {
            (true, Some(before)) if before != Superblock::NO_EPOCHS => Some(before),
            (true, _) => Some(recovered.end),
            // Older programs cannot read the records.
            (false, before) => before.map(|_| Superblock::NO_EPOCHS),
        }
    }

    /// Makes the recovered contents durable.
    pub(super) fn settle(&mut self, flash: &dyn Disk) -> io::Result<()> {
        match self {
            Held::Log(recovered) => settle(flash, recovered),
            Held::Wlfc(held) => held.settle(flash),
        }
    }

    /// The durable ends of the runs since the last start, as found when the cache was settled.
    pub(super) fn ends(&self) -> &[RunEnd] {
        match self {
            Held::Log(_) => &[],
            Held::Wlfc(held) => &held.ends,
        }
    }

    /// The digest of buckets for the start of this number.
    pub(super) fn digest(&self, start: u64) -> Option<Digest> {
        match self {
            Held::Log(_) => None,
            Held::Wlfc(held) => Some(held.digest(start)),
        }
    }

    /// True for buckets that are [marked where they are reset](Superblock::resets) since the cache was settled.
    pub(super) fn marks_from_now_on(&self) -> bool {
        matches!(self, Held::Wlfc(held) if held.marks_from_now_on())
    }

    /// The end of durable data. Buckets keep it in the [ends of runs](Superblock::ends) instead.
    pub(super) fn end(&self) -> Place {
        match self {
            Held::Log(recovered) => recovered.end,
            Held::Wlfc(_) => Place::default(),
        }
    }

    pub(super) fn may_be_dirty(&self) -> bool {
        match self {
            Held::Log(recovered) => recovered.log.dirty_blocks() > 0 || !recovered.lost.is_empty(),
            Held::Wlfc(held) => held.may_be_dirty(),
        }
    }

    /// Drops the clean blocks, records where in the log that happened, and returns their number. Before it resets
    /// buckets, it writes the superblock of the new start without a digest.
    pub(super) fn drop_clean(&mut self, flash: &dyn Disk, superblock: &mut Superblock) -> io::Result<u64> {
        match self {
            Held::Log(recovered) => {
                let clean = recovered.log.len() as u64 - recovered.log.dirty_blocks();
                superblock.clean_from = recovered.end;
                recovered.log.drop_clean();
                Ok(clean)
            }
            Held::Wlfc(held) => {
                let clean = held.clean_blocks();
                superblock.digest = None;
                write_superblock(flash, superblock)?;
                held.drop_clean(flash)?;
                Ok(clean)
            }
        }
    }
}

/// The durable end of a run's writes to its flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A position in the log.
    Log(Place),
    /// The end of programmed buckets.
    Buckets(BucketsEnd),
}

impl End {
    /// The encoding in superblocks and records. For buckets, it is the sequence and the lower half of the run.
    pub(super) fn place(self) -> Place {
        match self {
            End::Log(place) => place,
            End::Buckets(BucketsEnd { run, .. }) => Place { sequence: run.sequence, page: run.run as u32 },
        }
    }
}
