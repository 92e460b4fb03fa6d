//! Figures 10 and 11 of the paper on LARC (Huang et al., MSST 2013), section V.C, with `flashwise serve` instead of
//! Flashcache. Filebench's webserver and netsfs run over NBD, before a slow disk, from an empty cache.
//!
//! Sizes are scaled, and so are times: the run, and the ages in the guest and the server. The time of a transfer is
//! not, so the disk has as many transfers for each file as in the paper. The paper's runs take 30 minutes. Its disk
//! reorders the requests of a hundred threads and reaches about 250 transfers per second. Without concurrent transfers,
//! as many need 60 minutes.

mod files;
mod guest;
mod nbd;
mod pages;
mod report;
mod server;
mod space;
mod workload;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use self::guest::{Guest, PAGE_BYTES, WriteBack};
use self::nbd::Connection;
pub use self::report::{chart, table};
use self::server::Server;
pub use self::server::Status;
pub use self::workload::Kind;

/// Default duration of a run in the paper's terms.
pub const MINUTES: u64 = 60;
/// Largest page cache of the guest in the paper.
const PAGE_CACHE_BYTES: u64 = 1 << 30;
/// Age of dirty pages that the guest writes back, and the interval of its checks.
const WRITE_BACK: WriteBack = WriteBack { age: Duration::from_secs(30), period: Duration::from_secs(5) };

/// One run.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The workload.
    pub kind: Kind,
    /// Policy of the flash, with its options.
    pub policy: String,
    /// Size of the flash in the paper's terms, in GB.
    pub paper_gb: u64,
    /// Size of the flash.
    pub flash_bytes: u64,
    /// Sequential streams longer than this bypass the flash (`sequential-bypass`).
    pub filter: String,
    /// Factor by which everything is smaller and shorter than the paper's.
    pub scale: u64,
    /// Duration in the paper's terms, in minutes.
    pub minutes: u64,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Experiment {
    /// Returns a run with a flash of `paper_gb` GB, scaled.
    pub fn new(kind: Kind, policy: &str, paper_gb: u64, filter: &str, scale: u64, seed: u64) -> Self {
        // Whole blocks. The rest of an erase unit is not used.
        let flash_bytes = (paper_gb << 30) / scale / PAGE_BYTES * PAGE_BYTES;
        Self {
            kind,
            policy: policy.to_owned(),
            paper_gb,
            flash_bytes,
            filter: filter.to_owned(),
            scale,
            minutes: MINUTES,
            seed,
        }
    }
}

/// Results of a run.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Duration.
    pub seconds: f64,
    /// Filebench's count of operations in that time.
    pub operations: u64,
    /// Blocks that the guest read and wrote, including the requests in flight at the end.
    pub guest_blocks: [u64; 2],
    /// The server's figures at the end of the measured time.
    pub status: Status,
    /// The server's figures after the last reply.
    pub status_at_end: Status,
}

impl Outcome {
    /// Returns the operations per second.
    pub fn operations_per_second(&self) -> f64 {
        self.operations as f64 / self.seconds
    }

    /// Returns the blocks written to flash per operation, for any reason.
    pub fn written_per_operation(&self) -> f64 {
        self.status.flash_bytes_written as f64 / PAGE_BYTES as f64 / self.operations as f64
    }

    /// Returns the blocks written to flash per operation, without those that the log copied.
    pub fn written_without_copies_per_operation(&self) -> f64 {
        self.written_per_operation() - self.status.flash_copy_forward_blocks as f64 / self.operations as f64
    }

    /// Returns the share of the guest's reads that hit flash.
    pub fn read_hit_ratio(&self) -> f64 {
        self.status.flash_read_hits as f64 / self.status.reads as f64
    }
}

/// The reason of a failed run.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The server did not start, or printed something unreadable.
    #[error("flashwise serve: {0}")]
    Server(String),
    /// An error of a file, a process or the connection.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Runs an experiment with the program at `program`. Its files are in a temporary directory within `directory`.
pub fn run(experiment: &Experiment, program: &Path, directory: &Path) -> Result<Outcome, Problem> {
    let Experiment { kind, scale, minutes, seed, .. } = *experiment;
    let directory = tempfile::tempdir_in(directory)?;
    let disk_blocks = kind.disk_blocks(scale);
    let server = Server::start(program, directory.path(), experiment, disk_blocks)?;
    let (connection, ended) = Connection::open(&server.socket(), "v")?;
    let to_scale = |time: Duration| time / scale as u32;
    let write_back = WriteBack { age: to_scale(WRITE_BACK.age), period: to_scale(WRITE_BACK.period) };
    let cache_pages = (PAGE_CACHE_BYTES / scale / PAGE_BYTES) as usize;
    let mut guest = Guest::new(connection, disk_blocks, cache_pages, kind.clients(), write_back);
    let mut workload = kind.set_up(&mut guest, scale, seed);

    let (start, time) = (Instant::now(), to_scale(Duration::from_secs(60 * minutes)));
    let mut operations = 0;
    // Operations for which each client's step counts.
    let mut counts = vec![0; kind.clients()];
    let mut ready: VecDeque<(usize, bool)> = (0..kind.clients()).map(|client| (client, false)).collect();
    while start.elapsed() < time {
        guest.look(start.elapsed());
        let reply = if let Some((client, has_begun)) = ready.pop_front() {
            let step_ended = if has_begun {
                guest.go_on(client, start.elapsed())
            } else {
                let (step, count) = workload.next(client, &mut guest);
                counts[client] = count;
                guest.begin(client, step, start.elapsed())
            };
            if step_ended {
                operations += counts[client];
                ready.push_back((client, false));
            }
            match ended.try_recv() {
                Err(TryRecvError::Empty) => continue,
                reply => reply.map_err(|_| RecvTimeoutError::Disconnected),
            }
        } else {
            ended.recv_timeout(write_back.period)
        };
        match reply {
            Ok(reply) => ready.extend(guest.ended(reply?).into_iter().map(|client| (client, true))),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(Problem::Server("the connection was closed".to_owned())),
        }
        guest.disk().problem()?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let status = server.status()?;
    guest.stop();
    while guest.in_flight() > 0 {
        let reply = ended.recv().map_err(|_| Problem::Server("the connection was closed".to_owned()))?;
        guest.ended(reply?);
    }
    let status_at_end = server.status()?;
    Ok(Outcome { seconds, operations, guest_blocks: guest.transferred_blocks(), status, status_at_end })
}
