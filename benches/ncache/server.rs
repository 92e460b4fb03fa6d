//! A pool as users create and serve it, on three files that represent slow disks.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use flashwise_server::front::Address;
use flashwise_testing::client::Client;
use serde::Deserialize;

use super::{Experiment, Problem, database_bytes};

/// The disks of the pool.
const DISKS: [&str; 3] = ["disk0.img", "disk1.img", "disk2.img"];
/// Size of an erase unit, small because the scaled cache is small.
const ERASE_UNIT: &str = "256KiB";
/// Size of a chunk of a logical disk.
const CHUNK_BYTES: u64 = 64 << 10;
/// Timeout, far longer than any wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// The figures of `flashwise status` for its cache that are used here.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Status {
    /// Blocks that clients read.
    pub reads: u64,
    /// Blocks that clients wrote.
    pub writes: u64,
    /// Blocks read from RAM.
    pub ram_read_hits: u64,
    /// Blocks read from flash.
    pub flash_read_hits: u64,
    /// Writes to blocks that waited in the write buffer.
    pub ram_write_hits: u64,
    /// Write requests to the flash for clients' writes.
    pub flash_write_requests: u64,
    /// Blocks written to flash for clients' writes.
    pub flash_client_blocks: u64,
    /// All bytes written to flash.
    pub flash_bytes_written: u64,
    /// Blocks read from the disks.
    pub backend_read_blocks: u64,
    /// Blocks written to the disks, bypassing the flash.
    pub backend_written_blocks: u64,
    /// Blocks written back to the disks.
    pub destaged_blocks: u64,
}

impl Status {
    /// Returns the difference from `before`.
    pub fn since(self, before: Status) -> Status {
        Status {
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            ram_read_hits: self.ram_read_hits - before.ram_read_hits,
            flash_read_hits: self.flash_read_hits - before.flash_read_hits,
            ram_write_hits: self.ram_write_hits - before.ram_write_hits,
            flash_write_requests: self.flash_write_requests - before.flash_write_requests,
            flash_client_blocks: self.flash_client_blocks - before.flash_client_blocks,
            flash_bytes_written: self.flash_bytes_written - before.flash_bytes_written,
            backend_read_blocks: self.backend_read_blocks - before.backend_read_blocks,
            backend_written_blocks: self.backend_written_blocks - before.backend_written_blocks,
            destaged_blocks: self.destaged_blocks - before.destaged_blocks,
        }
    }
}

/// A pool of three disks with a striped logical disk `db`, all of whose chunks are allocated. Each run starts with a
/// copy.
pub struct Template {
    folder: tempfile::TempDir,
}

impl Template {
    /// Creates it, in a temporary folder within `folder`.
    pub fn make(program: &Path, scale: u64, folder: &Path) -> Result<Template, Problem> {
        let folder = tempfile::tempdir_in(folder)?;
        let path = folder.path();
        let size = database_bytes(scale);
        for disk in DISKS {
            File::create(path.join(disk))?.set_len((size / 2).max(4 << 20))?;
        }
        let run = |arguments: &[&str]| -> Result<(), Problem> {
            let output = Command::new(program).args(arguments).current_dir(path).output();
            let output = output.map_err(|error| Problem::Server(format!("{}: {error}", program.display())))?;
            if output.status.success() {
                return Ok(());
            }
            Err(Problem::Server(String::from_utf8_lossy(&output.stderr).into_owned()))
        };
        run(&[&["pool", "create", "tank"][..], &DISKS].concat())?;
        let mut server = Server::begin(program, path, "ram = \"64MiB\"\n")?;
        let size_text = size.to_string();
        run(&["disk", "create", "db", "--striped", "--size", &size_text, "--api", "unix:api.sock"])?;
        // Writing one block of each chunk allocates the chunk.
        let mut client = Client::open(&Address::Unix(path.join("nbd.sock")), "db", false)?;
        for chunk in 0..size / CHUNK_BYTES {
            let error = client.write(chunk * CHUNK_BYTES, &[1; 4096])?;
            if error != 0 {
                return Err(Problem::Server(format!("writing chunk {chunk}: error {error}")));
            }
        }
        drop(client);
        server.end()?;
        Ok(Template { folder })
    }

    fn copy_to(&self, folder: &Path) -> io::Result<()> {
        let disks = DISKS.map(|disk| self.folder.path().join(disk));
        let status = Command::new("cp").arg("--sparse=always").args(disks).arg(folder).status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other("the pool cannot be copied")) }
    }
}

/// A running server, killed on drop.
pub struct Server {
    child: Child,
    program: PathBuf,
    folder: PathBuf,
}

impl Server {
    /// Serves a copy of a pool, with an empty cache.
    pub fn start(
        program: &Path,
        template: &Template,
        folder: &Path,
        experiment: &Experiment,
    ) -> Result<Server, Problem> {
        template.copy_to(folder)?;
        let Experiment { ram_mb, flash_mb, write_buffer_percent, policy, .. } = experiment;
        let flash = match flash_mb {
            0 => String::new(),
            _ => format!("flash = \"flash.img\"\nflash-size = \"{}B\"\n", experiment.bytes(*flash_mb)),
        };
        // The paper's write buffer and SSD keep writes until they need the space, regardless of their age.
        let cache = format!(
            "{flash}erase-unit = \"{ERASE_UNIT}\"\nram = \"{}B\"\nwrite-buffer-share = \"{write_buffer_percent}%\"\n\
             policy = \"{policy}\"\nwrite-mode = \"write-back\"\ndirty-age = \"1h\"\ncommit-age = \"1h\"\n\
             direct-io = false\nbackend-delay = \"8ms\"\n",
            experiment.bytes(*ram_mb),
        );
        Server::begin(program, folder, &cache)
    }

    fn begin(program: &Path, folder: &Path, cache: &str) -> Result<Server, Problem> {
        let disks = DISKS.map(|disk| format!("\"{disk}\"")).join(", ");
        let config = format!(
            "listen = \"nbd+unix:///?socket=nbd.sock\"\nstate-directory = \".\"\n[api]\nlisten = \"unix:api.sock\"\n\
             [[pool]]\nname = \"tank\"\ndisks = [{disks}]\n{cache}"
        );
        std::fs::write(folder.join("tank.toml"), config)?;
        let child = Command::new(program)
            .args(["serve", "tank.toml"])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(folder.join("log"))?)
            .spawn()
            .map_err(|error| Problem::Server(format!("{}: {error}", program.display())))?;
        let mut server = Server { child, program: program.to_owned(), folder: folder.to_owned() };
        let started = Instant::now();
        while server.status().is_err() {
            if server.child.try_wait()?.is_some() || started.elapsed() > PATIENCE {
                return Err(Problem::Server(std::fs::read_to_string(folder.join("log")).unwrap_or_default()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Returns the path of the NBD socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("nbd.sock")
    }

    /// Returns the figures of `flashwise status` for the pool's cache.
    pub fn status(&self) -> Result<Status, Problem> {
        #[derive(Deserialize)]
        struct All {
            volumes: [Status; 1],
        }
        let arguments = ["status", "--json", "--api", "unix:api.sock"];
        let output = Command::new(&self.program).args(arguments).current_dir(&self.folder).output()?;
        let All { volumes: [status] } = serde_json::from_slice(&output.stdout).map_err(|error| {
            Problem::Server(format!("flashwise status: {error}: {}", String::from_utf8_lossy(&output.stderr)))
        })?;
        Ok(status)
    }

    /// Shuts it down in order.
    fn end(&mut self) -> Result<(), Problem> {
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status()?;
        let ended = self.child.wait()?;
        if ended.success() {
            return Ok(());
        }
        Err(Problem::Server(std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its files are deleted too, so no orderly shutdown is needed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
