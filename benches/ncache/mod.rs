//! The experiments of the paper on NCache (Yang, 2016), section 4, with `flashwise serve` in the place of its storage server: a pool of three
//! slow disks, RAM of 512 MB and 1 GB, an SSD from none to more than the hot data, and transactions as in TPC-B over NBD.
//!
//! Everything that has a size is to scale, and so is everything that has an age. What a transfer of a disk takes is not. The paper tells
//! neither its benchmark nor how large its database is; `docs/ncache.md` has what is assumed.

mod load;
mod report;
mod server;

use std::path::Path;
use std::time::Duration;

pub use self::load::{HOT_SHARE, HOT_TRANSACTIONS, Totals};
pub use self::report::{chart, table};
pub use self::server::{Status, Template};

use self::server::Server;

/// The hot data in the paper's terms, in MB: what nine of ten transactions are about.
pub const HOT_MB: u64 = 3 << 10;
/// How long a run is measured in the paper's terms.
const MEASURED: Duration = Duration::from_secs(3600);
/// One run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experiment {
    /// RAM in the paper's terms, in MB.
    pub ram_mb: u64,
    /// Size of the SSD in the paper's terms, in MB; 0 is none.
    pub flash_mb: u64,
    /// The share of the RAM for the write buffer, in percent.
    pub write_buffer_percent: u64,
    /// What is kept on flash: a policy with its options.
    pub policy: String,
    /// How many times smaller and shorter than the paper's everything is.
    pub scale: u64,
    /// How many times as long as it is measured it runs before that.
    pub warm_up: u32,
    /// How many clients make transactions at a time.
    pub clients: usize,
    /// Which random numbers.
    pub seed: u64,
}

impl Experiment {
    fn bytes(&self, paper_mb: u64) -> u64 {
        // Whole blocks.
        (paper_mb << 20) / self.scale / 4096 * 4096
    }

    /// How long it is measured.
    pub fn measured(&self) -> Duration {
        MEASURED / self.scale as u32
    }
}

/// Bytes of the database, to scale.
pub fn database_bytes(scale: u64) -> u64 {
    (HOT_MB << 20) * HOT_SHARE / scale / (64 << 10) * (64 << 10)
}

/// What a run found in the time in which it was measured.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// How long that was.
    pub seconds: f64,
    /// What the clients did.
    pub totals: Totals,
    /// What the server did.
    pub status: Status,
}

impl Outcome {
    /// Transactions per second.
    pub fn tps(&self) -> f64 {
        self.totals.transactions as f64 / self.seconds
    }

    /// Write requests of the cache to the flash per transaction.
    pub fn write_requests(&self) -> f64 {
        self.status.flash_write_requests as f64 / self.totals.transactions as f64
    }

    /// Blocks written to the flash because clients wrote, per transaction.
    pub fn written_blocks(&self) -> f64 {
        self.status.flash_client_blocks as f64 / self.totals.transactions as f64
    }

    /// The share of the blocks read that RAM or flash had.
    pub fn read_hit_ratio(&self) -> f64 {
        (self.status.ram_read_hits + self.status.flash_read_hits) as f64 / self.status.reads as f64
    }
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The server does not start, or says nothing that can be read.
    #[error("flashwise: {0}")]
    Server(String),
    /// A file, a process or a connection.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Runs an experiment with the program at `program` on a copy of the pool in `template`, in a folder of its own within `folder`.
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
