//! The layouts of caches on flash, as volumes and offline tools use them.
//!
//! A layout is a [`CacheLayout`]: it formats a flash, and reads its contents. The contents are a [`Held`]: they are
//! settled, written back offline, or become the engine of a volume. Volumes and tools name no layout, and ask these.

mod rows;
mod traits;

use std::any::Any;

use flashwise_core::format::{Digest, Place, RunEnd};
use flashwise_engine::wlfc::BucketsEnd;

pub use rows::{LAYOUTS, layout_of};
pub use traits::{CacheLayout, Held};

/// Returns contents of a known type.
///
/// # Panics
/// They are of another layout.
pub fn contents<T: Held>(held: Box<dyn Held>) -> T {
    let held: Box<dyn Any> = held;
    *held.downcast().expect("the contents are of this layout")
}

/// The durable end of a run's writes to its flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Its encoding in superblocks and records.
    pub place: Place,
    /// The end of the run, if the superblock keeps those.
    pub run: Option<RunEnd>,
    /// The digest of everything that is durable.
    pub digest: Option<Digest>,
}

/// A position in the log.
impl From<Place> for End {
    fn from(place: Place) -> End {
        End { place, run: None, digest: None }
    }
}

/// The place is the sequence and the lower half of the run.
impl From<BucketsEnd> for End {
    fn from(BucketsEnd { run, digest }: BucketsEnd) -> End {
        End { place: Place { sequence: run.sequence, page: run.run as u32 }, run: Some(run), digest }
    }
}
