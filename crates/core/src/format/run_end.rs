//! The durable end of a run of a cache of buckets.

use super::{Page, put, u32_at, u64_at};

/// The location of a write, recorded by a later page. It distinguishes a lost header from one that was never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Witness {
    /// The bucket.
    pub bucket: u32,
    /// The epoch of the bucket.
    pub epoch: u64,
    /// The first page.
    pub page: u32,
}

impl Witness {
    /// Encodes it in 16 bytes; `None` as zeroes.
    pub(crate) fn encode(of: Option<Witness>, page: &mut Page, at: usize) {
        if let Some(Witness { bucket, epoch, page: first }) = of {
            put(page, at, &epoch.to_le_bytes());
            put(page, at + 8, &(bucket + 1).to_le_bytes());
            put(page, at + 12, &first.to_le_bytes());
        }
    }

    /// Decodes it.
    pub(crate) fn decode(page: &Page, at: usize) -> Option<Witness> {
        let bucket = u32_at(page, at + 8).checked_sub(1)?;
        Some(Witness { bucket, epoch: u64_at(page, at), page: u32_at(page, at + 12) })
    }
}

/// Knowledge about a run of a cache of buckets: one start or one recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// Its number, as in headers; not 0.
    pub run: u64,
    /// Its writes with smaller sequence numbers were durable.
    pub sequence: u64,
    /// The last of those writes: the one with the preceding sequence number.
    pub last: Option<Witness>,
}

impl RunEnd {
    pub(super) const BYTES: usize = 32;

    pub(super) fn encode(&self, page: &mut Page, at: usize) {
        put(page, at, &self.run.to_le_bytes());
        put(page, at + 8, &self.sequence.to_le_bytes());
        Witness::encode(self.last, page, at + 16);
    }

    pub(super) fn decode(page: &Page, at: usize) -> Option<RunEnd> {
        let run = Some(u64_at(page, at)).filter(|run| *run > 0)?;
        Some(RunEnd { run, sequence: u64_at(page, at + 8), last: Witness::decode(page, at + 16) })
    }
}
