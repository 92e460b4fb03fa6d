//! Random requests with power failures between any two steps: durable data survives, and data once read stays.

use super::Planted;
use super::device::{Devices, SECTOR, SECTORS};
use super::random::Random;
use crate::cache::{Cache, Event, Kind, Request};
use crate::wlfc::bucket::Bucket;
use crate::wlfc::recovery::{Counting, DropBy, recover_by};
use crate::wlfc::{Around, Config, Refresh, Step, Wlfc, recover};

struct World {
    config: Config,
    wlfc: Wlfc,
    devices: Devices,
    random: Random,
    planted: Option<Planted>,
    /// The result of a read, by sector.
    latest: Vec<u32>,
    /// The possible results after a power failure: the last durable write, and all later ones.
    allowed: Vec<Vec<u32>>,
    writes: u32,
    failures: u32,
}

fn config(random: &mut Random) -> Config {
    let page_blocks = 1 + random.below(2) as u32;
    let bucket_blocks = page_blocks * (2 + random.below(3) as u32);
    let (write_queue, read_queue) = (1 + random.below(3) as u32, 1 + random.below(3) as u32);
    let config = Config::new(4, bucket_blocks, page_blocks, 0.5).expect("it is large enough");
    Config {
        buckets: write_queue + read_queue + 2 + random.below(4) as u32,
        write_queue,
        read_queue,
        halving: 1 + random.below(3) as u32,
        large_write_bytes: u64::from(bucket_blocks) * 4096 / [1, 2, 4][random.below(3) as usize],
        refresh: if random.once_in(2) { Refresh::Read } else { Refresh::Evict },
        ram_blocks: [0, 0, 3][random.below(3) as usize],
        free_target: [1, 2, u32::MAX][random.below(3) as usize],
        erase_batch: [1, 1, 2, 5][random.below(4) as usize],
        volume_blocks: u64::from(bucket_blocks) * (2 + random.below(4)) - random.below(2),
        ..config
    }
}

impl World {
    fn new(seed: u64, planted: Option<Planted>) -> World {
        let mut random = Random(seed);
        let config = config(&mut random);
        let mut wlfc = Wlfc::new(config.clone()).expect("the configuration works");
        wlfc.planted = planted;
        let sectors = (config.volume_blocks * SECTORS) as usize;
        World {
            devices: Devices::new(&config),
            wlfc,
            config,
            random,
            planted,
            latest: vec![0; sectors],
            allowed: vec![vec![0]; sectors],
            writes: 0,
            failures: 0,
        }
    }

    fn request(&mut self) -> Request {
        let random = &mut self.random;
        let kind = match random.below(20) {
            0 => Kind::Flush,
            1 => Kind::Trim,
            2 => Kind::WriteZeroes { may_punch_holes: true },
            3..=8 => Kind::Read,
            _ => Kind::Write,
        };
        let sectors = self.config.volume_blocks * SECTORS;
        let (bucket, durable) = (u64::from(self.config.bucket_blocks) * SECTORS, random.once_in(6));
        // Most are small, most of whole blocks, and most near the start.
        let mut length = 1 + if random.once_in(5) { random.below(2 * bucket) } else { random.below(2 * SECTORS) };
        let mut first = if random.once_in(2) { random.below(sectors.min(bucket)) } else { random.below(sectors) };
        if !random.once_in(4) {
            (first, length) = (first / SECTORS * SECTORS, length.next_multiple_of(SECTORS));
        }
        length = length.min(sectors - first);
        if kind == Kind::Flush {
            (first, length) = (0, 0);
        }
        Request::whole(kind, first * SECTOR, length * SECTOR, durable)
    }

    /// Returns the sectors that a request changes, and their new value.
    fn change(&mut self, request: &Request) -> Option<(std::ops::Range<u64>, u32)> {
        let (mut first, mut end) = (request.offset / SECTOR, (request.offset + request.length) / SECTOR);
        let to = match request.kind {
            Kind::Write => {
                self.writes += 1;
                self.writes
            }
            Kind::WriteZeroes { .. } => 0,
            Kind::Trim => {
                (first, end) = (first.next_multiple_of(SECTORS), end / SECTORS * SECTORS);
                0
            }
            Kind::Read | Kind::Flush | Kind::Prefetch => return None,
        };
        (first < end).then_some((first..end, to))
    }

    /// Runs a request with power for a limited number of steps. Returns true if it was answered.
    fn run(&mut self, request: &Request, power: usize) -> Result<(), String> {
        let change = self.change(request);
        if let Some((sectors, to)) = change.clone() {
            for sector in sectors {
                self.allowed[sector as usize].push(to);
                self.latest[sector as usize] = to;
            }
        }
        let mut steps = Vec::new();
        self.wlfc.on(Event::Request { request, now_us: 0 }, &mut steps);
        if self.planted.is_none() {
            self.wlfc.check();
        }
        self.devices.begin();
        for step in steps.iter().take(power) {
            self.devices.perform(step, self.writes);
            if matches!(step, Step::Send { .. }) {
                for (sector, found) in std::mem::take(&mut self.devices.sent) {
                    let latest = self.latest[sector as usize];
                    if found != latest {
                        return Err(format!("{request:?}: sector {sector} read as {found}, is {latest}"));
                    }
                }
            }
            if *step != Step::Reply {
                continue;
            }
            if request.kind == Kind::Flush {
                for (allowed, latest) in self.allowed.iter_mut().zip(&self.latest) {
                    *allowed = vec![*latest];
                }
            } else if let (Some((sectors, to)), true) = (change.clone(), request.durable) {
                sectors.for_each(|sector| self.allowed[sector as usize] = vec![to]);
            }
        }
        Ok(())
    }

    /// Writes everything back, with power for a limited number of steps.
    fn destage(&mut self, power: usize) {
        let mut steps = Vec::new();
        self.wlfc.on(Event::DestageAll { now_us: 0 }, &mut steps);
        self.devices.begin();
        steps.iter().take(power).for_each(|step| self.devices.perform(step, self.writes));
        if self.planted.is_some() {
            return;
        }
        self.wlfc.check();
        assert_eq!(self.wlfc.blocks_to_write_back(), 0);
        if power >= steps.len() {
            for (sector, latest) in self.latest.iter().enumerate() {
                assert_eq!(self.devices.durable_sector(sector as u64), *latest, "sector {sector} of the backend");
                self.allowed[sector] = vec![*latest];
            }
        }
    }

    /// Simulates a power failure and the recovery, in which the power may fail as well.
    fn fail(&mut self) -> Result<(), String> {
        loop {
            self.failures += 1;
            self.devices.fail(&mut self.random);
            let scans = self.devices.scan();
            let (mut wlfc, steps) = match self.planted {
                Some(planted @ (Planted::HighestEpoch | Planted::NewestOfEach)) => {
                    let drop_by: DropBy = &mut |buckets, found| drop(planted, buckets, found);
                    recover_by(self.config.clone(), &scans, Around::default(), drop_by)
                }
                _ => recover(self.config.clone(), &scans),
            }
            .expect("the configuration worked before");
            wlfc.planted = self.planted;
            if self.planted.is_none() {
                wlfc.check();
            }
            self.devices.begin();
            let all = steps.len();
            let power = if self.random.once_in(4) { self.random.below(all as u64 + 1) as usize } else { all };
            steps.iter().take(power).for_each(|step| self.devices.perform(step, u32::MAX));
            self.wlfc = wlfc;
            if power == all {
                return self.look();
            }
        }
    }

    /// Reads everything without changes, and fixes the results for later checks.
    fn look(&mut self) -> Result<(), String> {
        for backend in 0..self.config.volume_blocks.div_ceil(self.config.bucket_blocks.into()) as u32 {
            let (copies, extent) = (self.wlfc.contents.of(backend), self.config.extent(backend));
            let mut steps = Vec::new();
            self.wlfc.clone().load(backend, &copies, 0, extent, &mut steps);
            self.devices.begin();
            steps.iter().for_each(|step| self.devices.perform(step, u32::MAX));
            let first = u64::from(backend) * u64::from(self.config.bucket_blocks) * SECTORS;
            for sector in first..first + u64::from(extent) * SECTORS {
                let (found, allowed) = (self.devices.sector(sector), &mut self.allowed[sector as usize]);
                if !allowed.contains(&found) {
                    return Err(format!(
                        "sector {sector} is {found} after a power failure, expected one of {allowed:?}"
                    ));
                }
                *allowed = vec![found];
                self.latest[sector as usize] = found;
            }
        }
        Ok(())
    }

    fn live(&mut self, failures: u32) -> Result<(), String> {
        while self.failures < failures {
            for _ in 0..self.random.below(16) {
                let request = self.request();
                self.run(&request, usize::MAX)?;
                if self.random.once_in(50) {
                    self.destage(usize::MAX);
                }
            }
            let power = self.random.below(30) as usize;
            if self.random.once_in(10) {
                self.destage(power);
            } else {
                let request = self.request();
                self.run(&request, power)?;
            }
            self.fail()?;
        }
        Ok(())
    }
}

/// Drops buckets according to a planted rule of recovery.
fn drop(planted: Planted, buckets: &[Bucket], Counting { dropped, base, writes }: &mut Counting) {
    let epoch = |bucket: &u32| buckets[*bucket as usize].epoch;
    let highest = match planted {
        Planted::HighestEpoch => base.iter().chain(&*writes).map(epoch).max(),
        _ => None,
    };
    let newest = writes.iter().map(epoch).max();
    dropped.extend(base.extract_if(.., |bucket| highest.is_some_and(|highest| epoch(bucket) < highest)));
    dropped.extend(writes.extract_if(.., |bucket| Some(epoch(bucket)) < highest.or(newest)));
}

/// Failures in each world.
const FAILURES: u32 = 50;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// `FLASHWISE_CRASH_POINTS` sets a larger number, and `FLASHWISE_SEED` a different seed.
#[test]
fn durable_data_survives_20_000_power_failures() {
    let worlds = number("FLASHWISE_CRASH_POINTS").unwrap_or(20_000).max(20_000) / u64::from(FAILURES);
    let first = number("FLASHWISE_SEED").unwrap_or(0) << 32;
    for seed in first..first + worlds {
        let mut world = World::new(seed, None);
        let lived = world.live(FAILURES);
        assert_eq!(lived, Ok(()), "world {seed}: {:?}", world.config);
    }
}

/// The rarest needs about 40,000 failures.
const WORLDS: u64 = 4000;

#[test]
fn each_planted_bug_is_found() {
    for planted in Planted::ALL {
        let lived = |seed| World::new(seed, Some(planted)).live(FAILURES).err().map(|error| (seed, error));
        let (seed, error) = (0..WORLDS).find_map(lived).unwrap_or_else(|| panic!("{planted:?} was not found"));
        // A clean copy that differs from the backend is detected at its eviction.
        let seen_at_once = [Planted::NoTombstone, Planted::OverPassed, Planted::VolatileCopy].contains(&planted);
        assert!(seen_at_once || error.contains("after a power failure"), "{planted:?} in world {seed}: {error}");
        println!("{planted:?}: world {seed}: {error}");
    }
}
