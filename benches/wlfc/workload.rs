//! Workloads of section V, as far as the paper describes them.

use flashwise_core::cache::Kind;
use flashwise_core::filter::Caching;
use flashwise_trace::error::TraceError;
use flashwise_trace::normalised::{Settings, open_with_requests};
use flashwise_trace::progress::Silent;
use flashwise_trace::request_file::CacheRequest;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;

const BLOCK: u64 = 4096;
/// Size of a region; popularity is counted per region.
const REGION: u64 = 4 << 20;

/// The requests of a run.
#[derive(Clone, Debug)]
pub enum Workload {
    /// Random writes: section V.A.
    Random(RandomWrites),
    /// A row of Table I: section V.B.
    Mixed(Mixed),
    /// A trace.
    Trace(String),
}

/// Random writes of one size over a range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomWrites {
    /// Size of a request in bytes.
    pub request_bytes: u64,
    /// Range of the writes in bytes. The paper names none.
    pub range_bytes: u64,
    /// Bytes written in total.
    pub total_bytes: u64,
}

/// A row of Table I. Sizes are in KiB and GiB; the seventh column is the share of requests that read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixed {
    /// The name.
    pub name: &'static str,
    /// Bytes read and written in total; the table's working sets are these sums.
    pub total_gib: f64,
    /// Mean size of a read.
    pub read_kib: f64,
    /// Mean size of a write.
    pub write_kib: f64,
    /// Share of requests that read.
    pub read_share: f64,
    /// Range of the requests. The table names none; chosen.
    pub range_gib: f64,
    /// Popularity of the 4 MiB regions: the r-th is requested in proportion to 1 / r^skew. Chosen.
    pub skew: f64,
    /// Share of requests that continue the one before them. Chosen.
    pub sequential: f64,
}

/// Table I. LevelDB's mean read and write sizes are swapped in the paper: as printed, its overall mean would be 29.29
/// and not 29.67.
pub const TABLE_1: [Mixed; 4] = [
    Mixed {
        name: "LevelDB",
        total_gib: 12.45,
        read_kib: 29.26,
        write_kib: 29.68,
        read_share: 0.0819,
        range_gib: 2.0,
        skew: 0.9,
        sequential: 0.9,
    },
    Mixed {
        name: "MySQL",
        total_gib: 10.68,
        read_kib: 15.51,
        write_kib: 29.67,
        read_share: 0.4232,
        range_gib: 2.0,
        skew: 0.9,
        sequential: 0.2,
    },
    Mixed {
        name: "Financial",
        total_gib: 2.75,
        read_kib: 3.51,
        write_kib: 5.67,
        read_share: 0.1754,
        range_gib: 1.0,
        skew: 1.0,
        sequential: 0.1,
    },
    Mixed {
        name: "WebSearch",
        total_gib: 15.99,
        read_kib: 15.59,
        write_kib: 4.0,
        read_share: 1.0,
        range_gib: 4.0,
        skew: 0.6,
        sequential: 0.1,
    },
];

fn request(kind: Kind, offset_bytes: u64, length_bytes: u64) -> CacheRequest {
    CacheRequest { time_us: 0, kind, offset_bytes, length_bytes, durable: false, caching: Caching::Usual }
}

impl Workload {
    /// Passes its requests to `consume`, in the same order each time.
    ///
    /// # Errors
    /// A trace that cannot be read.
    pub fn for_each(&self, consume: &mut dyn FnMut(&CacheRequest)) -> Result<(), TraceError> {
        match self {
            Workload::Random(random) => random.for_each(consume),
            Workload::Mixed(mixed) => mixed.for_each(consume),
            Workload::Trace(path) => {
                let (_, requests) = open_with_requests(path, &Settings::default(), &Silent)?;
                return requests.for_each(consume);
            }
        }
        Ok(())
    }

    /// Returns its name in tables.
    pub fn name(&self) -> String {
        match self {
            Workload::Random(random) => format!("{} KiB", random.request_bytes >> 10),
            Workload::Mixed(mixed) => mixed.name.to_owned(),
            Workload::Trace(path) => path.rsplit('/').next().unwrap_or(path).to_owned(),
        }
    }
}

impl RandomWrites {
    fn for_each(&self, consume: &mut dyn FnMut(&CacheRequest)) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let places = self.range_bytes / self.request_bytes;
        for _ in 0..self.total_bytes / self.request_bytes {
            consume(&request(Kind::Write, random.random_range(0..places) * self.request_bytes, self.request_bytes));
        }
    }
}

impl Mixed {
    /// Divides the amount of data and the range by `scale`.
    pub fn scaled(self, scale: f64) -> Mixed {
        Mixed { total_gib: self.total_gib / scale, range_gib: self.range_gib / scale, ..self }
    }

    fn for_each(&self, consume: &mut dyn FnMut(&CacheRequest)) {
        let gib = |gib: f64| (gib * f64::from(1 << 30)) as u64;
        let (range, total) = (gib(self.range_gib) / REGION * REGION, gib(self.total_gib));
        let regions = (range / REGION).max(1);
        let zipf = Zipf::new(regions as f64, self.skew).expect("there is a region");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
        let (mut moved, mut end) = (0, 0);
        while moved < total {
            let reads = random.random_bool(self.read_share);
            let mean_blocks = if reads { self.read_kib } else { self.write_kib } / 4.0;
            // Uniform from 1 to a maximum that gives this mean.
            let blocks = random.random_range(1..=((2.0 * mean_blocks - 1.0).round() as u64).max(1));
            let offset = if random.random_bool(self.sequential) {
                end
            } else {
                // A multiplication by an odd prime scatters the popular regions.
                let region = (zipf.sample(&mut random) as u64 - 1) * 2_654_435_761 % regions;
                region * REGION + random.random_range(0..REGION / BLOCK) * BLOCK
            };
            let offset = if offset + blocks * BLOCK > range { 0 } else { offset };
            end = offset + blocks * BLOCK;
            consume(&request(if reads { Kind::Read } else { Kind::Write }, offset, blocks * BLOCK));
            moved += blocks * BLOCK;
        }
    }
}
