//! Generates weeks that resemble known servers: MSR-Cambridge's thirteen.
//!
//! Source: Narayanan, Donnelly, Rowstron: Write off-loading: practical power management for enterprise storage. FAST
//! 2008, for the servers, their week and their days. Moon, Reddy: Adaptive policies for balancing performance and
//! lifetime of mixed SSD arrays through workload sampling. MSST 2016, section VI.D, for the locality: weak for mds,
//! stg, web, prn, usr, proj and src1, strong for hm, prxy, rsrch and wdev.
//!
//! A server is modelled as a mixture:
//!
//! - Most writes, and reads of data in use, go to hot blocks by Zipf's law.
//! - The other reads go to cold blocks, in runs that begin anywhere. So such a block is read a few times per week, and
//!   seldom while it is cached.
//! - A quarter of the writes go to cold blocks, as if files were written once.
//!
//! Days have working hours, and at night one hour with a burst of writes. The model does not reproduce the server.
//! Sizes are scaled to the number of accesses. The shares and exponents below are our choice and not measured: they
//! give each server the dominant operation and the locality of the sources.
//!
//! Servers with weak locality read 72 to 80 % of their blocks. With 85 to 93 %, rules gained 3.4 to 5.2 times on
//! average; the paper has 1.41 to 2.36. If nine of ten accesses read, a cache that admits reads wears out 18 times as
//! fast as a storage that takes every write. The paper does not print the servers' shares; it calls the web server
//! read-intensive.

use std::ops::RangeInclusive;

use flashwise_core::access::Op;
use flashwise_core::options::{OptionError, Options, named};
use rand::RngExt;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_distr::{Distribution, Exp1, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::error::GenerateError;
use crate::request::Request;

/// A server whose week can be generated.
#[derive(Debug)]
pub struct Server {
    /// The name on the command line.
    pub name: &'static str,
    /// A short title.
    pub title: &'static str,
    /// The share of reads among the block accesses.
    pub read_share: f64,
    /// The share of cold blocks among the reads.
    cold_share: f64,
    /// The exponent of the popularity of hot blocks.
    skew: f64,
    /// The number of blocks in a read of cold blocks; other requests have a quarter of it.
    run_blocks: RangeInclusive<u64>,
}

/// Creates a server of the table.
const fn server(
    name: &'static str,
    title: &'static str,
    [read_share, cold_share, skew]: [f64; 3],
    run_blocks: RangeInclusive<u64>,
) -> Server {
    Server { name, title, read_share, cold_share, skew, run_blocks }
}

/// All servers, in the order in which they are listed.
pub static SERVERS: &[Server] = &[
    server("msr-hm", "hardware monitoring: strong locality", [0.45, 0.25, 1.1], 1..=8),
    server("msr-mds", "media server: reads, weak locality", [0.78, 0.97, 0.9], 4..=32),
    server("msr-prn", "print server: reads, weak locality", [0.72, 0.95, 0.9], 2..=16),
    server("msr-proj", "project directories: reads, weak locality", [0.75, 0.96, 0.9], 4..=32),
    server("msr-prxy", "firewall and web proxy: strong locality", [0.65, 0.05, 1.1], 1..=4),
    server("msr-rsrch", "research projects: writes, strong locality", [0.15, 0.2, 1.1], 1..=4),
    server("msr-src1", "source control: reads, weak locality", [0.72, 0.95, 0.8], 4..=32),
    server("msr-src2", "source control", [0.6, 0.6, 1.0], 2..=16),
    server("msr-stg", "web staging: reads, weak locality", [0.74, 0.96, 0.9], 4..=32),
    server("msr-ts", "terminal server", [0.27, 0.4, 1.0], 1..=8),
    server("msr-usr", "user home directories: reads, weak locality", [0.8, 0.96, 0.9], 4..=32),
    server("msr-wdev", "test web server: writes, strong locality", [0.25, 0.15, 1.1], 1..=4),
    server("msr-web", "web and SQL server: reads, weak locality", [0.78, 0.97, 0.9], 4..=32),
];

impl Server {
    /// Returns the server of that name.
    pub fn named(name: &str) -> Result<&'static Server, OptionError> {
        let (server, options) = named("server", name, SERVERS.iter(), |server| server.name)?;
        Options::parse(server.name, &[], options).map(|_| server)
    }
}

/// The number of hours in a week.
const HOURS: usize = 7 * 24;
const HOUR_US: f64 = 3600e6;
/// The hour of the day with a burst of writes, and the factor of their share in that hour.
const BURST_HOUR: usize = 2;
const BURST_WRITES: f64 = 4.0;
/// The mean number of accesses to a block: the working set is the number of accesses divided by this.
const ACCESSES_PER_BLOCK: u64 = 4;
/// The share of cold blocks among the writes.
const COLD_WRITES: f64 = 0.25;
/// The share of hot blocks among all blocks.
const HOT_SHARE: f64 = 0.1;

/// Returns the rate of requests in an hour, relative to the night.
fn busy(hour: usize) -> f64 {
    let (day, hour) = (hour / 24, hour % 24);
    let weekend = day >= 5;
    match hour {
        9..18 if !weekend => 4.0,
        7..21 if !weekend => 2.0,
        9..18 => 1.5,
        BURST_HOUR => 1.5,
        _ => 1.0,
    }
}

/// An iterator over the requests of a server's week.
pub struct Week {
    server: &'static Server,
    accesses: u64,
    block_size_bytes: u64,
    hot_blocks: u64,
    blocks: u64,
    hot: Zipf<f64>,
    /// The hot blocks by rank, so that popular ones are not neighbours.
    block_of: Vec<u32>,
    random: Xoshiro256PlusPlus,
    made: u64,
    /// The progress of the week in accesses, with random arrivals.
    progress: f64,
    /// The share of the week's requests before each hour.
    before_hour: [f64; HOURS + 1],
}

impl Week {
    /// Creates the week of `server` with this many block accesses, at least 10,000.
    pub fn new(
        server: &'static Server,
        accesses: u64,
        block_size_bytes: u64,
        seed: u64,
    ) -> Result<Week, GenerateError> {
        let most = 1 << 32;
        if !(ACCESSES_MIN..=most).contains(&accesses) {
            return Err(GenerateError::Accesses { found: accesses, least: ACCESSES_MIN, most });
        }
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let blocks = accesses / ACCESSES_PER_BLOCK;
        let hot_blocks = (blocks as f64 * HOT_SHARE) as u64;
        let mut block_of: Vec<u32> = (0..hot_blocks as u32).collect();
        block_of.shuffle(&mut random);
        let mut before_hour = [0.0; HOURS + 1];
        let all: f64 = (0..HOURS).map(busy).sum();
        for hour in 0..HOURS {
            before_hour[hour + 1] = before_hour[hour] + busy(hour) / all;
        }
        Ok(Week {
            server,
            accesses,
            block_size_bytes,
            hot_blocks,
            blocks,
            hot: Zipf::new(hot_blocks as f64, server.skew).expect("there are hot blocks"),
            block_of,
            random,
            made: 0,
            progress: 0.0,
            before_hour,
        })
    }

    /// Returns the length of a block, in bytes.
    pub fn block_size_bytes(&self) -> u64 {
        self.block_size_bytes
    }

    /// Returns the hour, with its fraction, at which this share of the requests has passed.
    fn hour_at(&self, share: f64) -> f64 {
        let share = share.clamp(0.0, 1.0);
        let hour = self.before_hour[1..HOURS].partition_point(|before| *before <= share);
        let (from, to) = (self.before_hour[hour], self.before_hour[hour + 1]);
        hour as f64 + ((share - from) / (to - from)).min(1.0)
    }

    /// Returns the next request's operation at this hour, and true if it is to cold blocks. Reads of cold blocks are
    /// longer, so fewer of them make their share of the accesses.
    fn next_op(&mut self, hour: f64) -> (Op, bool) {
        let Server { read_share, cold_share, .. } = *self.server;
        let writes = (1.0 - read_share) * if hour as usize % 24 == BURST_HOUR { BURST_WRITES } else { 1.0 };
        let hot_reads = read_share * (1.0 - cold_share);
        let cold_reads = read_share * cold_share / COLD_LENGTH;
        let draw = self.random.random::<f64>() * (writes + hot_reads + cold_reads);
        if draw < writes {
            return (Op::Write, draw < writes * COLD_WRITES);
        }
        (Op::Read, draw >= writes + hot_reads)
    }
}

/// The minimum number of accesses of a week.
const ACCESSES_MIN: u64 = 10_000;
/// The length of reads of cold blocks, relative to other requests.
const COLD_LENGTH: f64 = 4.0;

impl Iterator for Week {
    type Item = Result<Request, GenerateError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.made >= self.accesses {
            return None;
        }
        let hour = self.hour_at(self.progress / self.accesses as f64);
        let (op, is_cold) = self.next_op(hour);
        let wanted = self.random.random_range(self.server.run_blocks.clone());
        let wanted = if is_cold && op == Op::Read { wanted } else { (wanted as f64 / COLD_LENGTH).ceil() as u64 };
        let len = wanted.min(self.accesses - self.made).max(1);
        let first = if is_cold {
            self.random.random_range(self.hot_blocks..self.blocks - len)
        } else {
            let rank = (self.hot.sample(&mut self.random) as u64).clamp(1, self.hot_blocks) - 1;
            u64::from(self.block_of[rank as usize]).min(self.hot_blocks - len)
        };
        self.made += len;
        // Arrivals are independent, with higher rates in busy hours.
        let gap: f64 = Exp1.sample(&mut self.random);
        self.progress += gap * len as f64;
        Some(Ok(Request {
            time_us: (hour * HOUR_US) as i64,
            op,
            volume: 0,
            offset_bytes: first * self.block_size_bytes,
            length_bytes: len * self.block_size_bytes,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn week(name: &str) -> Vec<Request> {
        let week = Week::new(Server::named(name).unwrap(), 200_000, 4096, 1).unwrap();
        week.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn a_week_has_seven_days_in_order_and_the_shares_of_its_server() {
        for server in SERVERS {
            let requests = week(server.name);
            assert!(requests.windows(2).all(|pair| pair[0].time_us <= pair[1].time_us), "{}", server.name);
            let days = requests.last().unwrap().time_us as f64 / 24.0 / HOUR_US;
            assert!((6.5..=7.0).contains(&days), "{}: {days} days", server.name);
            let blocks =
                |requests: &[&Request]| requests.iter().map(|request| request.length_bytes / 4096).sum::<u64>();
            let reads: Vec<_> = requests.iter().filter(|request| request.op == Op::Read).collect();
            let all: Vec<_> = requests.iter().collect();
            assert_eq!(blocks(&all), 200_000, "{}", server.name);
            // The nightly bursts of writes reduce it slightly.
            let share = blocks(&reads) as f64 / 200_000.0;
            assert!((share - server.read_share).abs() < 0.08, "{}: {share} reads", server.name);
        }
        assert_eq!(week("msr-web"), week("msr-web"));
    }

    #[test]
    fn seven_of_thirteen_read_seven_of_ten_blocks_and_most_of_them_seldom() {
        let weak: Vec<_> = SERVERS.iter().filter(|server| server.read_share >= 0.7).collect();
        assert_eq!((SERVERS.len(), weak.len()), (13, 7));
        assert!(weak.iter().all(|server| server.title.ends_with("weak locality") && server.cold_share >= 0.95));
    }

    #[test]
    fn working_hours_are_busier_than_nights_and_writes_come_in_bursts() {
        let requests = week("msr-web");
        let hour = |request: &Request| (request.time_us as f64 / HOUR_US) as usize;
        let within =
            |hours: std::ops::Range<usize>| requests.iter().filter(|request| hours.contains(&hour(request))).count();
        assert!(within(9..18) > 3 * within(21..30), "{} and {}", within(9..18), within(21..30));
        let writes = |at: usize| {
            let own: Vec<_> = requests.iter().filter(|request| hour(request) % 24 == at).collect();
            own.iter().filter(|request| request.op == Op::Write).count() as f64 / own.len() as f64
        };
        assert!(writes(BURST_HOUR) > 1.5 * writes(12), "{} and {}", writes(BURST_HOUR), writes(12));
    }

    #[test]
    fn invalid_servers_and_weeks_are_refused() {
        let error = Server::named("msr-wbe").unwrap_err().to_string();
        assert!(error.contains("unknown server 'msr-wbe' (did you mean 'msr-web'?)"), "{error}");
        assert!(Week::new(&SERVERS[0], 100, 4096, 1).is_err());
    }
}
