//! Processor time and memory of recovery. A full log of 64 GiB becomes a usable cache, from its pages of metadata.
//!
//! There are no devices: the pages are generated in memory, and this time is not counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use flashwise_benches::{memory_peak_bytes, thread_seconds};
use flashwise_core::cache::{Config, LogCache};
use flashwise_core::format::{BLOCK_BYTES, Geometry, Header, Kind, Page, Record, Role, encode_metadata};
use flashwise_core::recovery::{Footer, Known, RecoveryError, UnitScan, Units, footer_of, recover};

struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn count(bytes: usize) {
    PEAK.fetch_max(ALLOCATED.fetch_add(bytes, Relaxed) + bytes, Relaxed);
}

// SAFETY: passes everything on to the system's allocator.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as the caller guarantees.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as the caller guarantees.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(bytes);
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller guarantees.
        unsafe { System.realloc(pointer, layout, bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller guarantees.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const GEOMETRY: Geometry = Geometry { units: 32_768, unit_pages: 512 };
const CACHE: u64 = 7;
/// First page and data pages of the segments of a unit.
const SEGMENTS: [(u32, u32); 3] = [(0, 252), (253, 252), (506, 2)];
const END: u32 = 509;
/// Units whose footers are generated in one batch.
const BATCH: usize = 64;

/// A log with a block in every slot, one in four of them dirty.
struct FullLog {
    /// Number of blocks of the volume.
    blocks: u64,
    /// Time spent on generating pages.
    making_seconds: Cell<f64>,
}

impl FullLog {
    fn header(sequence: u64, page: u32, data_pages: u32) -> Header {
        let previous_end = if sequence == 1 { 0 } else { END };
        let footer_pages = if page == GEOMETRY.segments_end() { GEOMETRY.footer_pages() } else { 0 };
        Header {
            cache: CACHE,
            epoch: 1,
            sequence,
            tail: 1,
            previous_end,
            page,
            data_pages,
            durable_end: END,
            footer_pages,
            skipped: 0,
        }
    }

    fn records(&self, unit: u32, (first, data_pages): (u32, u32)) -> impl Iterator<Item = Record> {
        let blocks = self.blocks;
        (0..data_pages).map(move |at| {
            let slot = GEOMETRY.slot(unit, first + 1 + at);
            let block = (u64::from(slot) * 2_654_435_761 % blocks) as u32;
            Record { kind: if at % 4 == 0 { Kind::Dirty } else { Kind::Clean }, block, slot, crc: slot }
        })
    }

    fn segment(&self, unit: u32, segment: (u32, u32), page: &mut Page) {
        let records: Vec<Record> = self.records(unit, segment).collect();
        encode_metadata(Role::Segment, &Self::header(unit.into(), segment.0, segment.1), &records, page);
    }

    fn footer(&self, unit: u32, bytes: &mut [u8]) {
        let records: Vec<Record> = SEGMENTS.iter().flat_map(|&segment| self.records(unit, segment)).collect();
        let header = Self::header(unit.into(), GEOMETRY.segments_end(), END);
        let mut chunks = records.chunks(252);
        for (at, page) in bytes.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            let header = Header { page: header.page + at as u32, ..header };
            let page = page.try_into().expect("a page");
            encode_metadata(Role::Footer, &header, chunks.next().unwrap_or_default(), page);
        }
    }

    fn make<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = thread_seconds();
        let made = work();
        self.making_seconds.set(self.making_seconds.get() + thread_seconds() - before);
        made
    }

    /// Returns the processor time, except that for generating pages.
    fn seconds(&self) -> f64 {
        thread_seconds() - self.making_seconds.get()
    }

    fn scans(&self) -> Vec<UnitScan> {
        let footer_bytes = GEOMETRY.footer_pages() as usize * BLOCK_BYTES;
        let mut scans = Vec::with_capacity(GEOMETRY.log_units() as usize);
        let mut pages = vec![[0; BLOCK_BYTES]; BATCH];
        let footer = vec![0; footer_bytes];
        let units: Vec<u32> = (1..GEOMETRY.units).collect();
        for batch in units.chunks(BATCH) {
            self.make(|| {
                batch.iter().zip(&mut pages).for_each(|(&unit, page)| self.segment(unit, SEGMENTS[0], page));
            });
            let scan = |(&unit, page)| UnitScan::new(GEOMETRY, CACHE, unit, page, &footer);
            scans.extend(batch.iter().zip(&pages).map(scan));
        }
        scans
    }
}

impl Units for FullLog {
    type Error = Infallible;

    fn read_pages(&self, unit: u32, page: u32, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.make(|| {
            bytes.fill(0);
            for segment in SEGMENTS.into_iter().filter(|segment| segment.0 >= page) {
                let at = (segment.0 - page) as usize * BLOCK_BYTES;
                if let Some(place) = bytes.get_mut(at..at + BLOCK_BYTES) {
                    self.segment(unit, segment, place.try_into().expect("a page"));
                }
            }
        });
        Ok(())
    }

    fn written_pages(&self, _: u32) -> Result<u32, Infallible> {
        Ok(GEOMETRY.unit_pages)
    }

    fn read_footers(
        &self,
        units: &[u32],
        each: &mut dyn FnMut(Option<Footer>) -> Result<(), RecoveryError<Infallible>>,
    ) -> Result<(), RecoveryError<Infallible>> {
        let footer_bytes = GEOMETRY.footer_pages() as usize * BLOCK_BYTES;
        let mut footers = vec![0; BATCH * footer_bytes];
        for batch in units.chunks(BATCH) {
            self.make(|| {
                let places = footers.chunks_exact_mut(footer_bytes);
                batch.iter().zip(places).for_each(|(&unit, bytes)| self.footer(unit, bytes));
            });
            for (&unit, bytes) in batch.iter().zip(footers.chunks_exact(footer_bytes)) {
                each(footer_of(GEOMETRY, CACHE, unit, bytes))?;
            }
        }
        Ok(())
    }
}

fn main() {
    let gigabytes = f64::from(GEOMETRY.pages()) * BLOCK_BYTES as f64 / 1e9;
    let told = |what: &str, seconds: f64| {
        println!("{what:32} {seconds:6.2} s, {:5.1} GB of cache per processor second", gigabytes / seconds);
    };
    let log = FullLog { blocks: 2 * u64::from(GEOMETRY.pages()) + 1, making_seconds: Cell::new(0.0) };
    let resident = memory_peak_bytes();
    let start = log.seconds();
    let scans = log.scans();
    let scanned = log.seconds();
    told("first pages", scanned - start);
    let known = Known { cache: CACHE, ..Known::default() };
    let recovered = recover(GEOMETRY, known, scans, &log).expect("the log is whole");
    let rebuilt = log.seconds();
    told("footers, and the log from them", rebuilt - scanned);
    let checksums = recovered.checksums;
    let config = Config {
        dirty_age_us: u64::MAX,
        commit_age_us: u64::MAX,
        sequential_blocks: 0,
        segment_blocks: 252,
        ..Config::new(GEOMETRY, "lru".parse().expect("a policy"))
    };
    let cache = LogCache::new(config, recovered.log, recovered.lost);
    let end = log.seconds();
    told("a cache with a policy (lru)", end - rebuilt);
    told("all", end - start);
    let blocks = cache.log().len();
    let each = |bytes: usize| bytes as f64 / blocks as f64;
    println!(
        "{blocks} blocks: {:.1} bytes allocated for each in the steady state, {:.1} at the peak ({:.1} resident)",
        each(ALLOCATED.load(Relaxed)),
        each(PEAK.load(Relaxed)),
        each((memory_peak_bytes() - resident) as usize)
    );
    assert_eq!(checksums.len(), GEOMETRY.pages() as usize);
}
