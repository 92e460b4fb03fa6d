//! `flashwise serve` as users start it, before a disk that takes 8 ms for each transfer, one at a time.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::{Experiment, Problem};

/// Timeout, far longer than any wait.
const PATIENCE: Duration = Duration::from_secs(60);
/// Size of an erase unit, small because the scaled cache is small.
const ERASE_UNIT: &str = "256KiB";

/// A running server, killed on drop.
pub struct Server {
    child: Child,
    program: PathBuf,
    directory: PathBuf,
}

/// The figures of `flashwise status` for its volume that are used here.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Status {
    /// Blocks that clients read.
    pub reads: u64,
    /// Blocks that clients wrote.
    pub writes: u64,
    /// Blocks read from flash.
    pub flash_read_hits: u64,
    /// Blocks written to flash for clients' writes.
    pub flash_client_blocks: u64,
    /// Blocks written to flash because they were admitted after a read.
    pub flash_admission_blocks: u64,
    /// Blocks moved within the flash.
    pub flash_copy_forward_blocks: u64,
    /// Blocks of metadata written to flash.
    pub flash_metadata_blocks: u64,
    /// All bytes written to flash.
    pub flash_bytes_written: u64,
    /// Blocks read from the backend.
    pub backend_read_blocks: u64,
    /// Blocks written to the backend.
    pub backend_written_blocks: u64,
    /// Blocks that bypassed the flash as part of a sequential stream.
    pub sequential_blocks: u64,
}

impl Server {
    /// Starts a server in an empty directory, with an empty cache.
    pub fn start(program: &Path, directory: &Path, experiment: &Experiment, disk_blocks: u32) -> Result<Self, Problem> {
        let Experiment { policy, flash_bytes, filter, scale, .. } = experiment;
        let file = |name: &str| directory.join(name);
        File::create(file("disk.img"))?.set_len(u64::from(disk_blocks) * super::guest::PAGE_BYTES)?;
        // The server's times are scaled as well.
        let config = format!(
            "listen = \"nbd+unix:///?socket={socket}\"\nstate-directory = \"{state}\"\n[api]\nlisten = \"unix:{api}\"\n\
             [[volume]]\nname = \"v\"\nbackend = \"{backend}\"\nflash = \"{flash}\"\nflash-size = \"{flash_bytes}B\"\n\
             erase-unit = \"{ERASE_UNIT}\"\nram = \"0B\"\npolicy = \"{policy}\"\nwrite-mode = \"write-back\"\n\
             sequential-bypass = \"{filter}\"\ndirty-age = \"{dirty_age}ms\"\ncommit-age = \"{commit_age}ms\"\n\
             direct-io = false\nbackend-delay = \"8ms\"\n",
            socket = file("nbd.sock").display(),
            state = directory.display(),
            api = file("api.sock").display(),
            backend = file("disk.img").display(),
            flash = file("flash.img").display(),
            dirty_age = 15 * 60_000 / scale,
            commit_age = (5_000 / scale).max(1),
        );
        std::fs::write(file("flashwise.toml"), config)?;
        let child = Command::new(program)
            .arg("serve")
            .arg(file("flashwise.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(file("log"))?)
            .spawn()
            .map_err(|error| Problem::Server(format!("{}: {error}", program.display())))?;
        let mut server = Self { child, program: program.to_owned(), directory: directory.to_owned() };
        let started = Instant::now();
        while !server.told().contains("is served at") {
            if server.child.try_wait()?.is_some() || started.elapsed() > PATIENCE {
                return Err(Problem::Server(server.told()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    /// Returns its output so far.
    fn told(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Returns the path of the NBD socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("nbd.sock")
    }

    /// Returns the figures of `flashwise status`.
    pub fn status(&self) -> Result<Status, Problem> {
        #[derive(Deserialize)]
        struct All {
            volumes: [Status; 1],
        }
        let api = format!("unix:{}", self.directory.join("api.sock").display());
        let output = Command::new(&self.program).args(["status", "--json", "--api", &api]).output()?;
        let All { volumes: [status] } = serde_json::from_slice(&output.stdout).map_err(|error| {
            Problem::Server(format!("flashwise status: {error}: {}", String::from_utf8_lossy(&output.stderr)))
        })?;
        Ok(status)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its files are deleted too, so no orderly shutdown is needed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
