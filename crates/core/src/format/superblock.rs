//! The superblock: identifies the cache and its backend on a flash device.

use super::{
    BLOCK_BYTES, Digest, Geometry, Page, PageError, Place, RunEnd, SUPERBLOCK_MAGIC, VERSION, VERSION_ANYWHERE,
    VERSION_BUCKETS, VERSION_EPOCHS, VERSION_FAILED, VERSION_MARKED, VERSION_MAX, VERSION_MIN, VERSION_OTHER,
    VERSION_ZONED, array_at, check_crc, put, u32_at, u64_at,
};
use crate::checksum;

/// The state of a cache, which determines if it may hold data that its backend lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In use, or its user crashed: the log has its contents.
    InUse,
    /// Shut down cleanly: the log has its contents, dirty blocks included.
    Clean,
    /// Detached: everything was written back, and the backend is complete without it.
    Detached,
}

/// The layout of a cache on its flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// A log.
    #[default]
    Log,
    /// Buckets written in order of writes: [WLFC](crate::wlfc).
    Wlfc,
    /// A layout of another program, such as a test. It has a number.
    Other(u8),
}

impl Layout {
    /// The layouts by name.
    pub const NAMES: [(&str, Layout); 2] = [("log", Layout::Log), ("wlfc", Layout::Wlfc)];

    /// Returns the layout's name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, layout)| *layout == self).map_or("other", |(name, _)| name)
    }
}

/// The first page of a bucket after a reset, if buckets are not zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resets {
    /// Zeroes: before version 7.
    #[default]
    Unmarked,
    /// A mark in the first sector, then zeroes: version 7.
    FirstSector,
    /// A [mark](crate::wlfc::header::reset_mark) in each sector, so that a torn reset differs from damage.
    EverySector,
}

/// An erase unit that failed and is no longer written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedUnit {
    /// Its number.
    pub unit: u32,
    /// True if its contents are valid; otherwise its reset failed.
    pub counts: bool,
}

/// The superblock: identifies the cache and its backend on a flash device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Counts the superblock's writes; the higher of two valid copies counts.
    pub generation: u64,
    /// The UUID of this cache, created when the device is formatted.
    pub cache: [u8; 16],
    /// The UUID of its backend.
    pub backend: [u8; 16],
    /// The division of the device.
    pub geometry: Geometry,
    /// Size of the volume in bytes.
    pub volume_bytes: u64,
    /// The state in which its last run ended.
    pub state: State,
    /// Counts the starts, as the backend's side does; 0 in a cache of version 1.
    pub attach: u64,
    /// The last start that the backend's side is known to have counted.
    pub attach_confirmed: u64,
    /// True if it may hold data that the backend lacks.
    pub may_be_dirty: bool,
    /// The log was durable at least up to this place; in state [`State::Clean`] it ends here.
    pub durable: Place,
    /// Copies recorded as clean before this place are invalid, because the backend was changed without the cache.
    pub clean_from: Place,
    /// True if each unit is a zone, written front to back and never in place. Superblocks are then appended to two
    /// separate zones.
    pub in_order: bool,
    /// The layout of its units.
    pub layout: Layout,
    /// `None` if the log has never had records of [epochs](crate::epochs). Otherwise those before this place do not
    /// count; [`NO_EPOCHS`](Self::NO_EPOCHS) if none do.
    pub epochs: Option<Place>,
    /// Buckets that failed, at most [`FAILED_UNITS_MAX`](Self::FAILED_UNITS_MAX).
    pub failed_units: Vec<FailedUnit>,
    /// The first page of a bucket after a reset.
    pub resets: Resets,
    /// The digest of all buckets that did not fail. Later changes have later runs and sequences.
    pub digest: Option<Digest>,
    /// The durable ends of runs, for buckets: at most [`ENDS_MAX`](Self::ENDS_MAX), newest last. Before version 7 only
    /// [`durable`](Self::durable) has this.
    pub ends: Vec<RunEnd>,
}

/// The place of [`Superblock::epochs`].
const EPOCHS: usize = 132;
const FAILED_UNITS: usize = 128;
const FAILED_UNITS_COUNT: usize = 4;
const ENDS: usize = BLOCK_BYTES - Superblock::ENDS_MAX * RunEnd::BYTES;
const DIGEST: usize = ENDS - Digest::BYTES;
/// Marks a failed unit whose contents are invalid.
const COUNTS_NOT: u32 = 1 << 31;

impl Superblock {
    /// Maximum number of failed units.
    pub const FAILED_UNITS_MAX: usize = (DIGEST - FAILED_UNITS - FAILED_UNITS_COUNT) / 4;
    /// The place from which records of epochs count, if dirty blocks are not written back in order.
    pub const NO_EPOCHS: Place = Place { sequence: u64::MAX, page: 0 };
    /// Maximum number of recorded runs.
    pub const ENDS_MAX: usize = 8;

    /// Returns the superblock of a new and empty cache, never written before.
    pub fn new(cache: [u8; 16], backend: [u8; 16], geometry: Geometry, volume_bytes: u64) -> Superblock {
        Superblock {
            generation: 0,
            cache,
            backend,
            geometry,
            volume_bytes,
            state: State::InUse,
            attach: 1,
            attach_confirmed: 0,
            may_be_dirty: true,
            durable: Place::default(),
            clean_from: Place::default(),
            in_order: false,
            layout: Layout::Log,
            epochs: None,
            failed_units: Vec::new(),
            resets: Resets::Unmarked,
            digest: None,
            ends: Vec::new(),
        }
    }

    /// Records the durable end of a run, in place of an earlier record unless that is further. The oldest run is
    /// dropped if there are too many.
    pub fn note_end(&mut self, end: RunEnd) {
        let knows_more = |known: &&RunEnd| known.run == end.run && known.sequence > end.sequence;
        let end = self.ends.iter().find(knows_more).copied().unwrap_or(end);
        self.ends.retain(|other| other.run != end.run);
        self.ends.push(end);
        let oldest = self.ends.len().saturating_sub(Superblock::ENDS_MAX);
        self.ends.drain(..oldest);
    }

    /// Returns the version of the format that it needs.
    pub fn version(&self) -> u32 {
        match (self.layout, self.in_order) {
            (Layout::Other(number), _) => VERSION_OTHER + u32::from(number),
            (Layout::Wlfc, _) if self.resets == Resets::EverySector => VERSION,
            (Layout::Wlfc, _) if self.resets == Resets::FirstSector => VERSION_MARKED,
            (Layout::Wlfc, _) if self.failed_units.is_empty() => VERSION_BUCKETS,
            (Layout::Wlfc, _) => VERSION_FAILED,
            (Layout::Log, _) if self.epochs.is_some() => VERSION_EPOCHS,
            (Layout::Log, true) => VERSION_ZONED,
            (Layout::Log, false) => VERSION_ANYWHERE,
        }
    }

    /// Encodes the superblock.
    pub fn encode(&self) -> Page {
        let mut page = [0; BLOCK_BYTES];
        put(&mut page, 0, &SUPERBLOCK_MAGIC.to_le_bytes());
        let version = self.version();
        put(&mut page, 12, &version.to_le_bytes());
        put(&mut page, 16, &self.generation.to_le_bytes());
        put(&mut page, 24, &self.cache);
        put(&mut page, 40, &self.backend);
        put(&mut page, 56, &(BLOCK_BYTES as u32).to_le_bytes());
        put(&mut page, 60, &self.geometry.unit_pages.to_le_bytes());
        put(&mut page, 64, &self.geometry.units.to_le_bytes());
        let state: u32 = match self.state {
            State::InUse => 1,
            State::Clean => 2,
            State::Detached => 3,
        };
        put(&mut page, 68, &state.to_le_bytes());
        put(&mut page, 72, &self.volume_bytes.to_le_bytes());
        put(&mut page, 80, &self.attach.to_le_bytes());
        put(&mut page, 88, &self.attach_confirmed.to_le_bytes());
        put(&mut page, 96, &u32::from(self.may_be_dirty).to_le_bytes());
        put(&mut page, 100, &self.durable.page.to_le_bytes());
        put(&mut page, 104, &self.durable.sequence.to_le_bytes());
        put(&mut page, 112, &self.clean_from.sequence.to_le_bytes());
        put(&mut page, 120, &self.clean_from.page.to_le_bytes());
        put(&mut page, 124, &u32::from(self.in_order && version >= VERSION_BUCKETS).to_le_bytes());
        assert!(self.failed_units.len() <= failed_units_max(version), "there is room for the failed units");
        put(&mut page, FAILED_UNITS, &(self.failed_units.len() as u32).to_le_bytes());
        for (number, failed) in self.failed_units.iter().enumerate() {
            let entry = failed.unit | if failed.counts { 0 } else { COUNTS_NOT };
            put(&mut page, FAILED_UNITS + FAILED_UNITS_COUNT + 4 * number, &entry.to_le_bytes());
        }
        if let Some(epochs) = self.epochs.filter(|_| version == VERSION_EPOCHS) {
            put(&mut page, EPOCHS, &epochs.sequence.to_le_bytes());
            put(&mut page, EPOCHS + 8, &epochs.page.to_le_bytes());
        }
        assert!(self.ends.len() <= Superblock::ENDS_MAX, "there is room for the ends of runs");
        for (number, end) in self.ends.iter().enumerate().filter(|_| has_ends(version)) {
            end.encode(&mut page, ENDS + RunEnd::BYTES * number);
        }
        Digest::encode(self.digest.filter(|_| version == VERSION), &mut page, DIGEST);
        let crc = checksum::crc32c(&page[12..]);
        put(&mut page, 8, &crc.to_le_bytes());
        page
    }

    /// Decodes a superblock. The checksum has the same position in every version, so damage is not mistaken for a newer
    /// one.
    pub fn decode(page: &Page) -> Result<Superblock, PageError> {
        if u64_at(page, 0) != SUPERBLOCK_MAGIC {
            return Err(PageError::Magic);
        }
        check_crc(u32_at(page, 8), &page[12..])?;
        let version = u32_at(page, 12);
        let other = version.checked_sub(VERSION_OTHER).and_then(|number| u8::try_from(number).ok());
        if other.is_none() && !(VERSION_MIN..=VERSION_MAX).contains(&version) {
            return Err(PageError::Version { found: version });
        }
        let field = |field, found: u32, valid: bool| {
            if valid { Ok(found) } else { Err(PageError::Field { field, found: found.into() }) }
        };
        let unit_pages = u32_at(page, 60);
        let possible = (Geometry::UNIT_PAGES_MIN..=Geometry::UNIT_PAGES_MAX).contains(&unit_pages);
        let unit_pages = field("pages per erase unit", unit_pages, possible)?;
        let units = u32_at(page, 64);
        let units_max = u32::MAX / unit_pages;
        let units = field("number of erase units", units, (Geometry::UNITS_MIN..=units_max).contains(&units))?;
        let block_bytes = u32_at(page, 56);
        field("block size", block_bytes, block_bytes as usize == BLOCK_BYTES)?;
        let state = match u32_at(page, 68) {
            1 => State::InUse,
            2 => State::Clean,
            3 => State::Detached,
            found => return Err(PageError::Field { field: "state", found: found.into() }),
        };
        let is_wlfc = (VERSION_BUCKETS..=VERSION).contains(&version);
        let count = if is_wlfc && version >= VERSION_FAILED { u32_at(page, FAILED_UNITS) } else { 0 };
        let count = field("number of failed units", count, count as usize <= failed_units_max(version))?;
        let failed = |number: u32| {
            let entry = u32_at(page, FAILED_UNITS + FAILED_UNITS_COUNT + 4 * number as usize);
            let unit = field("failed unit", entry & !COUNTS_NOT, (1..units).contains(&(entry & !COUNTS_NOT)))?;
            Ok(FailedUnit { unit, counts: entry & COUNTS_NOT == 0 })
        };
        let is_ordered = version == VERSION_EPOCHS;
        Ok(Superblock {
            generation: u64_at(page, 16),
            cache: array_at(page, 24),
            backend: array_at(page, 40),
            geometry: Geometry { units, unit_pages },
            volume_bytes: u64_at(page, 72),
            state,
            // Version 1 has zeroes from here on.
            attach: u64_at(page, 80),
            attach_confirmed: u64_at(page, 88),
            may_be_dirty: u32_at(page, 96) != 0 || version == 1,
            durable: Place { sequence: u64_at(page, 104), page: u32_at(page, 100) },
            clean_from: Place { sequence: u64_at(page, 112), page: u32_at(page, 120) },
            in_order: version == VERSION_ZONED || version >= VERSION_BUCKETS && u32_at(page, 124) != 0,
            layout: other.map_or(if is_wlfc { Layout::Wlfc } else { Layout::Log }, Layout::Other),
            epochs: is_ordered.then(|| Place { sequence: u64_at(page, EPOCHS), page: u32_at(page, EPOCHS + 8) }),
            failed_units: (0..count).map(failed).collect::<Result<_, _>>()?,
            resets: match version {
                VERSION => Resets::EverySector,
                VERSION_MARKED => Resets::FirstSector,
                _ => Resets::Unmarked,
            },
            digest: Digest::decode(page, DIGEST).filter(|_| version == VERSION),
            ends: if has_ends(version) { ends(page) } else { Vec::new() },
        })
    }
}

/// Returns the maximum number of failed units in a superblock of this version.
fn failed_units_max(version: u32) -> usize {
    let end = if version == VERSION { DIGEST } else { ENDS };
    (end - FAILED_UNITS - FAILED_UNITS_COUNT) / 4
}

fn has_ends(version: u32) -> bool {
    (VERSION_MARKED..=VERSION).contains(&version)
}

fn ends(page: &Page) -> Vec<RunEnd> {
    (0..Superblock::ENDS_MAX).map_while(|number| RunEnd::decode(page, ENDS + RunEnd::BYTES * number)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Witness;
    use super::*;

    const GEOMETRY: Geometry = Geometry { units: 11, unit_pages: 512 };

    fn superblock() -> Superblock {
        Superblock {
            generation: 7,
            state: State::Detached,
            attach: 5,
            attach_confirmed: 4,
            may_be_dirty: false,
            durable: Place { sequence: 8, page: 9 },
            clean_from: Place { sequence: 6, page: 3 },
            ..Superblock::new([1; 16], [2; 16], GEOMETRY, 10 << 30)
        }
    }

    #[test]
    fn a_superblock_reads_back_and_a_changed_byte_is_noticed() {
        let page = superblock().encode();
        assert_eq!(Superblock::decode(&page), Ok(superblock()));
        assert_eq!(&page[..8], b"flashwis");
        for at in 0..BLOCK_BYTES {
            let mut damaged = page;
            damaged[at] ^= 1;
            assert!(Superblock::decode(&damaged).is_err(), "byte {at}");
        }
        let mut newer = page;
        newer[12] = 10;
        assert!(
            matches!(Superblock::decode(&newer), Err(PageError::Checksum { .. })),
            "a flipped bit is no newer version"
        );
        let crc = checksum::crc32c(&newer[12..]);
        put(&mut newer, 8, &crc.to_le_bytes());
        assert_eq!(Superblock::decode(&newer), Err(PageError::Version { found: 10 }));
    }

    /// Version 2 differs in the possible records, version 4 in the writing of units, version 5 in their contents.
    #[test]
    fn a_superblock_of_versions_2_and_4_to_9_is_read_as_it_is() {
        let mut page = superblock().encode();
        assert_eq!(page[12], 3);
        page[12] = 2;
        let crc = crc32c::crc32c(&page[12..]);
        put(&mut page, 8, &crc.to_le_bytes());
        assert_eq!(Superblock::decode(&page), Ok(superblock()));
        let zoned = Superblock { in_order: true, ..superblock() };
        assert_eq!((zoned.encode()[12], Superblock::decode(&zoned.encode())), (4, Ok(zoned)));
        for in_order in [false, true] {
            let epochs = Some(Place { sequence: 7, page: 30 + u32::from(in_order) });
            let ordered = Superblock { in_order, epochs, ..superblock() };
            assert_eq!((ordered.encode()[12], Superblock::decode(&ordered.encode())), (9, Ok(ordered)));
            let wlfc = Superblock { in_order, layout: Layout::Wlfc, ..superblock() };
            assert_eq!((wlfc.encode()[12], Superblock::decode(&wlfc.encode())), (5, Ok(wlfc.clone())));
            let failed = |number: usize| FailedUnit { unit: 1 + number as u32 % 10, counts: number.is_multiple_of(3) };
            let failed_units = (0..Superblock::FAILED_UNITS_MAX).map(failed).collect();
            let worn = Superblock { failed_units, ..wlfc };
            assert_eq!((worn.encode()[12], Superblock::decode(&worn.encode())), (6, Ok(worn.clone())));
            let mut marked = Superblock { resets: Resets::FirstSector, ..worn };
            for run in (1..20).chain([13]) {
                let last = (run % 2 == 0).then_some(Witness { bucket: run as u32, epoch: run << 33, page: 5 });
                marked.note_end(RunEnd { run, sequence: run + 100, last });
            }
            let runs: Vec<u64> = marked.ends.iter().map(|end| end.run).collect();
            assert_eq!(runs, [12, 14, 15, 16, 17, 18, 19, 13], "the newest, each once");
            assert_eq!((marked.encode()[12], Superblock::decode(&marked.encode())), (7, Ok(marked.clone())));
            let digest = Some(Digest::new(5, 6, [0, 0x8000_0001, u32::MAX].into_iter()));
            let newest = Superblock { resets: Resets::EverySector, digest, ..marked };
            assert_eq!((newest.encode()[12], Superblock::decode(&newest.encode())), (8, Ok(newest)));
        }
    }

    /// A version 1 page is a version 3 page without the later fields.
    #[test]
    fn a_superblock_of_version_1_is_read_and_may_be_dirty() {
        let mut page = superblock().encode();
        page[12] = 1;
        page[80..124].fill(0);
        let crc = checksum::crc32c(&page[12..]);
        put(&mut page, 8, &crc.to_le_bytes());
        let read = Superblock::decode(&page).unwrap();
        assert_eq!((read.attach, read.attach_confirmed, read.may_be_dirty), (0, 0, true));
        assert_eq!((read.durable, read.clean_from), (Place::default(), Place::default()));
        assert_eq!((read.generation, read.state), (7, State::Detached));
    }
}
