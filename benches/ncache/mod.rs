//! The experiments of the paper on NCache (Yang, 2016), section 4, with `flashwise serve` instead of its storage
//! server.
//!
//! A pool of three slow disks has RAM of 512 MB and 1 GB. Its SSD has sizes from 0 to more than the hot data.
//! Transactions after TPC-B run over NBD.
//!
//! Sizes and times are scaled, except the time of a disk transfer. The paper names neither its benchmark nor the size
//! of its database; `docs/ncache.md` lists our assumptions.

mod load;
mod report;
mod server;

use std::path::Path;
use std::time::Duration;

pub use self::load::{HOT_SHARE, HOT_TRANSACTIONS, Totals};
pub use self::report::{chart, table};
pub use self::server::{Status, Template};

use self::server::Server;

/// The hot data of nine in ten transactions, in the paper's terms, in MB.
pub const HOT_MB: u64 = 3 << 10;
/// Measured time in the paper's terms.
const MEASURED: Duration = Duration::from_secs(3600);
/// One run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experiment {
    /// RAM in the paper's terms, in MB.
    pub ram_mb: u64,
    /// Size of the SSD in the paper's terms, in MB; 0 is none.
    pub flash_mb: u64,
    /// Share of the RAM for the write buffer, in percent.
    pub write_buffer_percent: u64,
    /// Policy of the flash, with its options.
    pub policy: String,
    /// Factor by which everything is smaller and shorter than the paper's.
    pub scale: u64,
    /// Duration of the warm-up, as a multiple of the measured time.
    pub warm_up: u32,
    /// Clients that run transactions in parallel.
    pub clients: usize,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Experiment {
    fn bytes(&self, paper_mb: u64) -> u64 {
        // Whole blocks.
        (paper_mb << 20) / self.scale / 4096 * 4096
    }

    /// Returns the measured time.
    pub fn measured(&self) -> Duration {
        MEASURED / self.scale as u32
    }
}

/// Returns the size of the database, scaled.
pub fn database_bytes(scale: u64) -> u64 {
    (HOT_MB << 20) * HOT_SHARE / scale / (64 << 10) * (64 << 10)
}

/// Results of the measured time of a run.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Duration.
    pub seconds: f64,
    /// The clients' counters.
    pub totals: Totals,
    /// The server's counters.
    pub status: Status,
}

impl Outcome {
    /// Returns the transactions per second.
    pub fn tps(&self) -> f64 {
        self.totals.transactions as f64 / self.seconds
    }

    /// Returns the cache's write requests to the flash per transaction.
    pub fn write_requests(&self) -> f64 {
        self.status.flash_write_requests as f64 / self.totals.transactions as f64
    }

    /// Returns the blocks written to the flash for clients' writes, per transaction.
    pub fn written_blocks(&self) -> f64 {
        self.status.flash_client_blocks as f64 / self.totals.transactions as f64
    }

    /// Returns the share of blocks read from RAM or flash.
    pub fn read_hit_ratio(&self) -> f64 {
        (self.status.ram_read_hits + self.status.flash_read_hits) as f64 / self.status.reads as f64
    }
}

/// The reason of a failed run.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The server did not start, or printed something unreadable.
    #[error("flashwise: {0}")]
    Server(String),
    /// An error of a file, a process or a connection.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Runs an experiment with the program at `program` on a copy of the pool in `template`. Its files are in a temporary
/// folder within `folder`.
pub fn run(experiment: &Experiment, program: &Path, template: &Template, folder: &Path) -> Result<Outcome, Problem> {
    let folder = tempfile::tempdir_in(folder)?;
    let server = Server::start(program, template, folder.path(), experiment)?;
    let measured = experiment.measured();
    let load = load::Load::start(&server.socket(), experiment)?;
    std::thread::sleep(measured * experiment.warm_up);
    let (before, status_before, began) = (load.totals(), server.status()?, std::time::Instant::now());
    std::thread::sleep(measured);
    let seconds = began.elapsed().as_secs_f64();
    let (after, status_after) = (load.totals(), server.status()?);
    load.end()?;
    Ok(Outcome { seconds, totals: after.since(before), status: status_after.since(status_before) })
}
