//! WLFC against a plain model of the paper's text, and B_like by hand: the same figures over random, skewed and real
//! requests.

use crate::workloads::{bundled_path, random};
use flashwise_core::cache::{Cache, Event, Kind, Request};
use flashwise_core::filter::Caching;
use flashwise_core::wlfc::{BucketOptions, Config, Figures, Refresh, Wlfc};
use flashwise_device::flash::{Clock, Profile};
use flashwise_device::tier_model_of_option;
use flashwise_sim::simulate::{Counting, Warmup};
use flashwise_sim::stretch::Counts;
use flashwise_sim::wlfc::{BLike, BLikeConfig, BucketError, BucketSettings, Buckets, System, run_buckets};
use flashwise_trace::normalised::{Settings, open_with_requests};
use flashwise_trace::progress::Silent;
use flashwise_trace::request_file::CacheRequest;

/// Backend bucket, logs as (first block, blocks), pages written, priority, when it was set.
type PlainWrite = (u64, Vec<(u64, u64)>, u64, f64, u64);

/// The paper's text, slow and obvious: section IV.B.3 and IV.C, with reads and writes of whole blocks. Buckets are
/// found by looking through all, priorities are halved one by one, and what a block holds is looked for in every log.
struct Plain {
    config: Config,
    write: Vec<PlainWrite>,
    /// (backend bucket, whether dirty, logs of the write bucket that it has), most recently used last.
    read: Vec<(u64, bool, usize)>,
    allocated: u32,
    set: u64,
    figures: Figures,
}

impl Plain {
    fn new(config: Config) -> Plain {
        Plain { config, write: Vec::new(), read: Vec::new(), allocated: 0, set: 0, figures: Figures::default() }
    }

    fn bucket_blocks(&self) -> u64 {
        self.config.bucket_blocks.into()
    }

    fn request(&mut self, write: bool, first: u64, blocks: u64) {
        self.figures.requests += 1;
        let (mut at, end) = (first, first + blocks);
        while at < end {
            let backend = at / self.bucket_blocks();
            let stop = ((backend + 1) * self.bucket_blocks()).min(end);
            let inside = at % self.bucket_blocks();
            if write {
                self.write(backend, inside, stop - at)
            } else {
                self.read(backend, inside, stop - at)
            }
            at = stop;
        }
    }

    /// How many of the blocks are in logs from the `from`-th on of the write bucket at `place`.
    fn logged(&self, place: usize, from: usize, first: u64, blocks: u64) -> u64 {
        let logs = &self.write[place].1[from..];
        (first..first + blocks).filter(|block| logs.iter().any(|(at, len)| (*at..at + len).contains(block))).count()
            as u64
    }

    /// The backend is read once from the first to the last block that is in no log.
    fn read_backend(&mut self, place: Option<usize>) {
        let all = self.bucket_blocks();
        let missing: Vec<u64> =
            (0..all).filter(|block| place.is_none_or(|place| self.logged(place, 0, *block, 1) == 0)).collect();
        if let (Some(first), Some(last)) = (missing.first(), missing.last()) {
            self.figures.backend_reads += 1;
            self.figures.backend_read_blocks += last + 1 - first;
        }
    }

    fn write_backend(&mut self) {
        self.figures.backend_writes += 1;
        self.figures.backend_written_blocks += self.bucket_blocks();
    }

    fn read(&mut self, backend: u64, first: u64, blocks: u64) {
        self.figures.read_blocks += blocks;
        let all = self.bucket_blocks();
        let place = self.write.iter().position(|write| write.0 == backend);
        let logs = place.map_or(0, |place| self.write[place].1.len());
        if let Some(copy) = self.read.iter().position(|read| read.0 == backend) {
            let (_, dirty, fresh) = self.read.remove(copy);
            self.figures.read_hits += blocks;
            if logs == fresh {
                self.figures.flash_read_blocks += blocks;
                self.read.push((backend, dirty, fresh));
                return;
            }
            // All of the copy that is not in newer logs, and those.
            self.figures.flash_read_blocks += all;
            self.figures.copy_blocks += all;
            self.figures.resets += 1;
            self.read.push((backend, true, logs));
            return;
        }
        let found = place.map_or(0, |place| self.logged(place, 0, first, blocks));
        self.figures.read_hits += found;
        self.figures.read_admissions += blocks - found;
        self.read_backend(place);
        self.figures.flash_read_blocks += place.map_or(0, |place| self.logged(place, 0, 0, all));
        self.figures.copy_blocks += all;
        self.read.push((backend, logs > 0, logs));
        if self.read.len() > self.config.read_queue as usize {
            let (_, dirty, _) = self.read.remove(0);
            if dirty {
                self.figures.flash_read_blocks += all;
                self.write_backend();
            }
            self.figures.resets += 1;
        }
    }

    fn write(&mut self, backend: u64, first: u64, blocks: u64) {
        self.figures.written_blocks += blocks;
        let (page_blocks, bucket_pages) = (u64::from(self.config.page_blocks), u64::from(self.config.bucket_pages()));
        let pages = blocks.div_ceil(page_blocks);
        self.figures.log_blocks += blocks;
        self.figures.flash_write_requests += 1;
        self.figures.padding_blocks += pages * page_blocks - blocks;
        let mut victim = None;
        let place = self.write.iter().position(|write| write.0 == backend);
        self.figures.write_hits += match self.read.iter().any(|read| read.0 == backend) {
            true => blocks,
            false => place.map_or(0, |place| self.logged(place, 0, first, blocks)),
        };
        let place = match place {
            Some(place) if self.write[place].2 + pages <= bucket_pages => place,
            _ => {
                if place.is_some() {
                    victim = place;
                } else if self.write.len() == self.config.write_queue as usize {
                    let order = |a: &usize, b: &usize| {
                        let key = |place: usize| (self.write[place].3, self.write[place].4);
                        key(*a).partial_cmp(&key(*b)).unwrap()
                    };
                    victim = (0..self.write.len()).min_by(order);
                }
                self.allocated += 1;
                if self.allocated == self.config.halving {
                    self.allocated = 0;
                    self.write.iter_mut().for_each(|write| write.3 /= 2.0);
                }
                self.write.push((backend, Vec::new(), 0, 0.0, 0));
                self.write.len() - 1
            }
        };
        self.set += 1;
        let write = &mut self.write[place];
        write.1.push((first, blocks));
        write.2 += pages;
        (write.3, write.4) = ((bucket_pages - write.2) as f64, self.set);
        if let Some(victim) = victim {
            self.evict(victim);
        }
    }

    fn evict(&mut self, place: usize) {
        let (all, backend, logs) = (self.bucket_blocks(), self.write[place].0, self.write[place].1.len());
        if let Some(copy) = self.read.iter().position(|read| read.0 == backend) {
            if self.read[copy].2 < logs {
                self.read.remove(copy);
                self.figures.flash_read_blocks += all;
                self.figures.copy_blocks += all;
                self.figures.copy_forward_blocks += all;
                self.figures.resets += 1;
                self.read.push((backend, true, 0));
            } else {
                self.read[copy].2 = 0;
            }
        } else {
            self.read_backend(Some(place));
            self.figures.flash_read_blocks += self.logged(place, 0, 0, all);
            self.write_backend();
        }
        self.write.remove(place);
        self.figures.resets += 1;
    }
}

fn config(write_queue: u32, read_queue: u32) -> Config {
    let config = Config::new(4, 16, 4, 0.5).unwrap();
    Config { buckets: write_queue + read_queue + 2, write_queue, read_queue, halving: write_queue, ..config }
}

fn assert_alike(config: &Config, requests: impl Iterator<Item = (bool, u64, u64)>) -> Figures {
    let (mut plain, mut wlfc, mut steps) = (Plain::new(config.clone()), Wlfc::new(config.clone()).unwrap(), Vec::new());
    for (at, (write, first, blocks)) in requests.enumerate() {
        let kind = if write { Kind::Write } else { Kind::Read };
        steps.clear();
        let request = Request::whole(kind, first * 4096, blocks * 4096, false);
        wlfc.on(Event::Request { request: &request, now_us: 0 }, &mut steps);
        plain.request(write, first, blocks);
        assert_eq!(wlfc.figures(), plain.figures, "after request {at}: {write} {first} {blocks}");
        if at % 1000 == 0 {
            wlfc.check();
        }
    }
    wlfc.figures()
}

#[test]
fn figures_are_those_of_a_plain_model_over_random_and_skewed_requests() {
    for (seed, (write_queue, read_queue)) in [(3, 3), (1, 5), (6, 2), (8, 8)].into_iter().enumerate() {
        for skewed in [false, true] {
            let mut state = seed as u64;
            let requests = (0..20_000).map(|_| {
                let range = if skewed { 1 + random(&mut state) % 640 } else { 640 };
                let (first, blocks) = (random(&mut state) % range, 1 + random(&mut state) % 10);
                (random(&mut state) % 5 < 3, first, blocks)
            });
            let figures = assert_alike(&config(write_queue, read_queue), requests);
            assert!(figures.resets > 1000 && figures.write_hits > 100 && figures.read_hits > 100, "{figures:?}");
        }
    }
}

/// Requests are cut to whole blocks, 16 at most.
#[test]
fn figures_are_those_of_a_plain_model_over_a_real_trace() {
    let (_, file) = open_with_requests(bundled_path(), &Settings::default(), &Silent).unwrap();
    let mut requests = Vec::new();
    file.for_each(|request| {
        let (first, end) = (request.offset_bytes / 4096, (request.offset_bytes + request.length_bytes).div_ceil(4096));
        requests.push((request.kind == Kind::Write, first, (end - first).min(16)));
    })
    .unwrap();
    let config = Config { volume_blocks: 1 << 32, ..config(40, 40) };
    let figures = assert_alike(&config, requests.into_iter().take(60_000));
    assert!(figures.resets > 1000 && figures.backend_reads > 1000, "{figures:?}");
}

fn request(kind: Kind, block: u64, blocks: u64) -> CacheRequest {
    let (offset_bytes, length_bytes) = (4096 * block, 4096 * blocks);
    CacheRequest { time_us: 0, kind, offset_bytes, length_bytes, durable: false, caching: Caching::Usual }
}

fn buckets(counts: &Counts) -> Buckets {
    counts.buckets.unwrap()
}

/// 8 buckets of 4 pages of 4 blocks, one of them for the journal, and 4 spare ones. A write of a block writes a page,
/// and a page of the journal: 1 ms on two planes or one. A read of a block reads a page. Of 16 blocks read, the backend
/// serves 12, with an access for each run around the 4 cached blocks.
#[test]
fn b_like_by_hand() {
    let profile = Profile { pages_per_block: 4, ..Profile::find("wlfc", "wlfc").unwrap() };
    let clock = Clock::new(&profile, 64 << 10).unwrap();
    let hdd = tier_model_of_option("backend", "hdd").unwrap();
    let config = BLikeConfig { spare: 0.5, journal_buckets: 1, ..BLikeConfig::new(12 * 4, 4, 4, 4) };
    let mut cache = BLike::new(config, clock, &hdd).unwrap();
    cache.request(&request(Kind::Write, 4, 1));
    let Buckets { figures, latencies } = buckets(&cache.counts());
    assert_eq!((figures.log_blocks, figures.padding_blocks, figures.metadata_blocks), (1, 3, 4));
    assert_eq!((latencies.writes_ns, figures.backend_accesses()), (1_000_000, 0));
    cache.request(&request(Kind::Write, 4, 4));
    cache.request(&request(Kind::Read, 4, 4));
    let Buckets { figures, latencies } = buckets(&cache.counts());
    assert_eq!((figures.write_hits, figures.read_hits, latencies.reads_ns), (1, 4, 50_000));
    cache.request(&request(Kind::Read, 0, 16));
    let figures = buckets(&cache.counts()).figures;
    assert_eq!((figures.backend_reads, figures.backend_read_blocks, figures.read_hits), (2, 12, 8));
    cache.check();
    // 70 blocks elsewhere drive the 4 dirty ones out, which are neighbours: one access of the backend.
    (0..70).for_each(|block| cache.request(&request(Kind::Read, 1000 + 10 * block, 1)));
    cache.check();
    let (counts, figures) = (cache.counts(), buckets(&cache.counts()).figures);
    assert_eq!((figures.backend_writes, figures.backend_written_blocks), (1, 4));
    assert!(counts.device.erasures > 10, "{counts:?}");
}

#[test]
fn b_like_holds_its_invariants_over_random_requests() {
    let profile = Profile { pages_per_block: 4, ..Profile::find("wlfc", "wlfc").unwrap() };
    let hdd = tier_model_of_option("backend", "hdd").unwrap();
    let config = BLikeConfig { spare: 0.2, ..BLikeConfig::new(30 * 4, 4, 4, 4) };
    let mut cache = BLike::new(config, Clock::new(&profile, 64 << 10).unwrap(), &hdd).unwrap();
    let mut state = 3;
    for at in 0..20_000 {
        let kind = [Kind::Write, Kind::Read, Kind::Write, Kind::Trim, Kind::Flush][(random(&mut state) % 5) as usize];
        let blocks = if kind == Kind::Flush { 0 } else { 1 + random(&mut state) % 20 };
        cache.request(&request(kind, random(&mut state) % 400, blocks));
        if at % 100 == 0 {
            cache.check();
        }
    }
}

/// Random requests of 4 KiB over 256 MiB, which fit in the write queue of 1 GiB of flash. The figures of all three
/// caches add up. Without reads, WLFC has at most 40 % of B_like's erasures. With one read in eight requests it has
/// less than half, and faster writes. WLFC_c's reads take at most 1.1 times as long.
#[test]
fn figures_add_up_and_wlfc_erases_less_than_b_like() {
    let run = |system, reads: u64| {
        let each = |consume: &mut dyn FnMut(&CacheRequest)| {
            let mut state = 9;
            for _ in 0..200_000 {
                let kind = if random(&mut state) % 8 < reads { Kind::Read } else { Kind::Write };
                consume(&request(kind, random(&mut state) % 65_536, 1));
            }
            Ok::<(), BucketError>(())
        };
        let options = BucketOptions { refresh: Refresh::Evict, ..BucketOptions::default() };
        let settings = BucketSettings { options, ..BucketSettings::paper() };
        let counting = Counting { warmup: Warmup::Accesses(1000), epoch: Some(60_000) };
        let (ran, _) = run_buckets(&settings, system, 1 << 30, (counting, 200_000), None, each).unwrap();
        let counts = ran.counted.counts;
        let sum =
            ran.epochs.iter().fold(Counts::default(), |sum, epoch| Counts { buckets: None, ..sum + epoch.counts });
        assert_eq!((ran.epochs.len(), sum), (4, Counts { buckets: None, ..counts }));
        let Buckets { figures, latencies } = buckets(&counts);
        assert_eq!((figures.requests, counts.accesses(), ran.warmup_accesses), (199_000, 199_000, 1000));
        assert_eq!(latencies.reads + latencies.writes, 199_000);
        assert!(latencies.reads_ns + latencies.writes_ns <= latencies.elapsed_ns, "{counts:?}");
        counts
    };
    let (wlfc, b_like) = (run(System::Wlfc, 0), run(System::BLike, 0));
    assert!(10 * wlfc.device.erasures <= 4 * b_like.device.erasures, "{wlfc:?} {b_like:?}");
    let (wlfc, wlfc_c, b_like) = (run(System::Wlfc, 1), run(System::WlfcC, 1), run(System::BLike, 1));
    assert!(wlfc_c.ram_hits > 0 && wlfc.ram_hits == 0);
    assert!(2 * wlfc.device.erasures < b_like.device.erasures, "{wlfc:?} {b_like:?}");
    let [write, write_of_b_like] =
        [wlfc, b_like].map(|counts| buckets(&counts).latencies).map(|all| all.writes_ns as f64 / all.writes as f64);
    assert!(write < write_of_b_like, "{write} {write_of_b_like}");
    let [read, read_of_b_like] =
        [wlfc_c, b_like].map(|counts| buckets(&counts).latencies).map(|all| all.reads_ns as f64 / all.reads as f64);
    assert!(read <= 1.1 * read_of_b_like, "{read} {read_of_b_like}");
}
