//! Planted bugs: what a wrong cache would do, brought about from outside, to show that the tests find it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use flashwise_core::format::{
    BLOCK_BYTES, Header, Kind, MetadataPage, Page, RECORDS_PER_PAGE, Record, Role, Superblock, decode_metadata,
    encode_metadata,
};
use flashwise_testing::fake_disk::{FakeDisk, Filter};
use flashwise_testing::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// Flushes of the flash are answered and not done.
    SkipFlashFlushes,
    /// One flush of the flash is answered and not done, the n-th.
    SkipOneFlashFlush(u64),
    /// Flushes of the backend are answered without effect, so clean blocks may not be.
    SkipBackendFlushes,
    /// One of them.
    SkipOneBackendFlush(u64),
    /// Writes do not wait for flushes before them.
    IgnoreOrder,
    /// The marks that older copies no longer count are not written.
    SkipForgets,
    /// One of them.
    SkipOneForget(u64),
    /// Those of blocks that were written past the flash because it refused them for lack of space.
    RefusedStays,
    /// Those of blocks that clients wrote past the flash whom the I/O filter denies it.
    FilteredStays,
    /// Dirty blocks are dropped, instead of copied forward, when their unit is reset.
    DropDirty,
    /// Regions that are overwritten past the flash are not said to be unsure before.
    SkipUnsure,
    /// They are not recorded again when the unit with the record is reset.
    SkipUnsureAgain,
    /// They are said to be sure again before what was overwritten is forgotten.
    SureTooEarly,
    /// Copies that recovery left out are not said to be forgotten.
    SkipForgetRegions,
    /// The log's epoch stays the same at every start.
    SameEpoch,
    /// Recovery takes the older of two copies of a block.
    OlderWins,
    /// Recovery overlooks the newest unit.
    OverlookNewestUnit,
    /// A unit is reset before it is durable that it is no longer needed.
    ResetEarly,
    /// Data from flash is not checked against its checksum, and one bit is wrong.
    IgnoreChecksums,
    /// The backend's side does not count starts.
    SkipCounting,
    /// The flash's side does not.
    SkipCountingOnFlash,
    /// The backend's side does not note orderly ends.
    SkipClosing,
    /// Where pages of a zone are skipped, it is not said.
    UnsaidSkips,
    /// The ends of epochs are not recorded.
    SkipEpochEnds,
    /// Epochs that are done are not recorded.
    SkipEpochsDone,
    /// It is not recorded that the order is broken.
    SkipBroken,
    /// One block is written back an epoch early.
    EpochEarly,
    /// Flushes of the journal are answered and not done.
    SkipJournalFlushes,
    /// A group in the journal is marked as being in place before it is.
    MarkEarly,
    /// No footer is a witness.
    SkipWitness,
    /// Of two whole copies of the superblock the older one holds.
    TrustOlderSuperblock,
    /// The engine answers flushes at once.
    AnswerFlushesAtOnce,
}

/// Pages of metadata without the records of a kind that `loses` says are lost.
pub fn lossy_filter(kind: Kind, mut loses: impl FnMut(&Header, &Record) -> bool + Send + 'static) -> Filter {
    Arc::new(Mutex::new(move |page: &mut Page| {
        for role in [Role::Segment, Role::Footer] {
            let Ok(MetadataPage { header, mut records }) = decode_metadata(role, page) else { continue };
            for record in records.iter_mut().filter(|record| record.kind == kind) {
                if loses(&header, record) {
                    record.kind = Kind::Void;
                }
            }
            encode_metadata(role, &header, &records, page);
        }
    }))
}

/// A way to lose marks: all, or the n-th.
pub fn forget_filter(only: Option<u64>) -> Filter {
    let mut seen = 0;
    lossy_filter(Kind::Forget, move |_, _| {
        seen += 1;
        only.is_none_or(|only| only == seen)
    })
}

/// Blocks that stay in the log's records though they were forgotten.
pub type Stays = Arc<Mutex<HashSet<u32>>>;

/// A way to lose the marks of some blocks.
pub fn stays_filter(stays: Stays) -> Filter {
    lossy_filter(Kind::Forget, move |_, record| stays.lock().unwrap().contains(&record.block))
}

/// Returns a filter that loses dirty blocks when they are copied forward from the oldest unit. All writes of a block
/// differ, except zeroes.
pub fn drop_dirty_filter() -> Filter {
    let zeroes = crc32c::crc32c(&[0; BLOCK_BYTES]);
    // By block and checksum, the unit where it was first.
    let mut first: HashMap<(u32, u32), u64> = HashMap::new();
    lossy_filter(Kind::Dirty, move |header, record| {
        let from = *first.entry((record.block, record.crc)).or_insert(header.sequence);
        record.crc != zeroes && from < header.sequence && from <= header.tail
    })
}

/// A way to lose records of regions, or to have more of them.
pub fn region_filter(planted: Planted) -> Filter {
    // By first block, the unit that said that the region is unsure.
    let mut said: HashMap<u32, u64> = HashMap::new();
    Arc::new(Mutex::new(move |page: &mut Page| {
        for role in [Role::Segment, Role::Footer] {
            let Ok(MetadataPage { header, mut records }) = decode_metadata(role, page) else { continue };
            let void = |record: &mut Record| record.kind = Kind::Void;
            match planted {
                Planted::SkipUnsure => records.iter_mut().filter(|it| it.kind == Kind::Unsure).for_each(void),
                Planted::SkipForgetRegions => {
                    records.iter_mut().filter(|it| it.kind == Kind::ForgetRegion).for_each(void)
                }
                Planted::SureTooEarly => {
                    let unsure = |record: &&Record| record.kind == Kind::Unsure;
                    let sure: Vec<Record> = records.iter().filter(unsure).copied().collect();
                    records.extend(sure.into_iter().map(|record| Record { kind: Kind::Sure, ..record }));
                    records.truncate(RECORDS_PER_PAGE);
                }
                _ => {
                    for record in &mut records {
                        match record.kind {
                            Kind::Unsure if *said.entry(record.block).or_insert(header.sequence) != header.sequence => {
                                void(record)
                            }
                            Kind::Sure | Kind::ForgetRegion if record.slot == 0 => said.clear(),
                            Kind::Sure | Kind::ForgetRegion => drop(said.remove(&record.block)),
                            _ => {}
                        }
                    }
                }
            }
            encode_metadata(role, &header, &records, page);
        }
    }))
}

/// Superblocks that do not count starts.
pub fn uncounted_filter() -> Filter {
    Arc::new(Mutex::new(|page: &mut Page| {
        if let Ok(superblock) = Superblock::decode(page) {
            *page = Superblock { attach: superblock.attach.min(2), ..superblock }.encode();
        }
    }))
}

/// Segments that do not say what they skip.
pub fn unsaid_filter() -> Filter {
    Arc::new(Mutex::new(|page: &mut Page| {
        if let Ok(MetadataPage { header, records }) = decode_metadata(Role::Segment, page) {
            encode_metadata(Role::Segment, &Header { skipped: 0, ..header }, &records, page);
        }
    }))
}

/// Footers that vouch for nothing.
pub fn witness_filter() -> Filter {
    Arc::new(Mutex::new(|page: &mut Page| {
        if let Ok(MetadataPage { header, records }) = decode_metadata(Role::Footer, page) {
            encode_metadata(Role::Footer, &Header { durable_end: 0, ..header }, &records, page);
        }
    }))
}

/// Puts the older copy of the superblock in the place of the newest, as if that were not looked at.
pub fn trust_older(flash: &FakeDisk) {
    let generation =
        |page: &usize| Superblock::decode(&flash.page(*page)).map_or(0, |superblock| superblock.generation);
    let mut copies = flash.superblock_pages();
    copies.sort_by_key(generation);
    flash.set_page(copies[1], flash.page(copies[0]));
}

/// All metadata pages of the log that are durable, newest sequence first.
pub fn metadata(flash: &FakeDisk, pages: usize) -> Vec<(usize, Role, MetadataPage)> {
    let mut found = Vec::new();
    for page in 0..pages {
        let bytes = flash.stable_page(page);
        for role in [Role::Segment, Role::Footer] {
            found.extend(decode_metadata(role, &bytes).ok().map(|metadata| (page, role, metadata)));
        }
    }
    found.sort_by_key(|(page, _, metadata)| std::cmp::Reverse((metadata.header.sequence, *page)));
    found
}

fn put(flash: &FakeDisk, page: usize, role: Role, metadata: &MetadataPage) {
    let mut bytes = [0; BLOCK_BYTES];
    encode_metadata(role, &metadata.header, &metadata.records, &mut bytes);
    flash.set_page(page, bytes);
}

/// The newest dirty record of some block, wherever it is repeated, is changed by `change`; returns its slot.
fn change_newest(
    flash: &FakeDisk,
    pages: usize,
    random: &mut Random,
    change: impl Fn(&mut flashwise_core::format::Record),
) {
    let mut all = metadata(flash, pages);
    let dirty = |metadata: &MetadataPage| metadata.records.iter().any(|record| record.kind == Kind::Dirty);
    let candidates: Vec<usize> = (0..all.len().min(4)).filter(|&at| dirty(&all[at].2)).collect();
    if candidates.is_empty() {
        return;
    }
    let at = candidates[random.below(candidates.len() as u64) as usize];
    let records = &all[at].2.records;
    let slot = records.iter().rfind(|record| record.kind == Kind::Dirty).unwrap().slot;
    let sequence = all[at].2.header.sequence;
    for (page, role, metadata) in all.iter_mut().filter(|(.., metadata)| metadata.header.sequence == sequence) {
        for record in metadata.records.iter_mut().filter(|record| record.slot == slot && record.kind == Kind::Dirty) {
            change(record);
        }
        put(flash, *page, *role, metadata);
    }
}

/// Changes a device after a power failure, so that it looks as it would to a wrong recovery.
pub fn distort(planted: Planted, flash: &FakeDisk, pages: usize, unit_pages: usize, random: &mut Random) {
    match planted {
        Planted::OlderWins => change_newest(flash, pages, random, |record| record.kind = Kind::Void),
        Planted::IgnoreChecksums => {
            change_newest(flash, pages, random, |record| {
                let mut bytes = flash.page(record.slot as usize);
                bytes[777] ^= 4;
                record.crc = crc32c::crc32c(&bytes);
            });
            // The data itself, once: the records were changed together.
            for (_, _, metadata) in metadata(flash, pages) {
                for record in metadata.records.iter().filter(|record| record.kind == Kind::Dirty) {
                    let mut bytes = flash.page(record.slot as usize);
                    bytes[777] ^= 4;
                    if crc32c::crc32c(&bytes) == record.crc {
                        flash.set_page(record.slot as usize, bytes);
                    }
                }
            }
        }
        Planted::OverlookNewestUnit => {
            if let Some((page, ..)) = metadata(flash, pages).first() {
                let unit = page / unit_pages;
                for page in unit * unit_pages..(unit + 1) * unit_pages {
                    flash.set_page(page, [0; BLOCK_BYTES]);
                }
            }
        }
        _ => {}
    }
}
