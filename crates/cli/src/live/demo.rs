//! `flashwise demo`: serves a volume on temporary files, puts a load on it, shows its status and cleans up.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use flashwise_core::cache::settings::Setting;
use flashwise_server::config::{Flags, ServerConfig};
use flashwise_server::front::nbd::protocol::{
    NBD_OPTS_MAGIC, NBD_REQUEST_MAGIC, NBD_SIMPLE_REPLY_MAGIC, command, option,
};
use flashwise_server::server::Server;
use flashwise_trace::human;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::fit;
use crate::live::api::ApiOptions;
use crate::live::status::Status;
use crate::progress::Bar;

/// Try a cache on temporary files: serve, load, show status, clean up
///
/// The load goes over NBD: requests of 4 KiB, 70 % of them reads, with blocks drawn from a Zipf distribution. Storage is 256 MiB, flash 64 MiB.
/// The demo needs no root and no device. Ctrl-C ends it early.
#[derive(Debug, Args)]
pub struct Demo {
    /// Number of requests
    #[arg(long, value_name = "N", default_value = "50000", value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,
    /// Replacement policy from `flashwise policies`, except offline ones
    #[arg(long, value_name = "POLICY", default_value = Setting::named("policy").parameter.default)]
    policy: String,
}

const BACKEND_BYTES: u64 = 256 << 20;
const BLOCK_BYTES: u64 = 4096;
/// Seed of the load, which is always the same.
const SEED: u64 = 1;
/// Time to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for clients' requests to finish when the server stops.
const GRACE: Duration = Duration::from_secs(5);

impl Demo {
    pub fn run(&self) -> anyhow::Result<()> {
        // An interrupted demo cleans up too.
        let ending = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::flag::register(signal, ending.clone()).context("signals")?;
        }
        let folder = tempfile::Builder::new().prefix("flashwise-demo-").tempdir().context("a temporary folder")?;
        let file = |name: &str| folder.path().join(name).display().to_string();
        let backend = std::fs::File::create(file("storage")).context("the storage")?;
        backend.set_len(BACKEND_BYTES).context("the storage")?;
        let (socket, api) = (file("socket"), format!("unix:{}", file("api")));
        let volume = [
            ("name", "demo".to_owned()),
            ("backend", file("storage")),
            ("flash", file("flash")),
            ("flash-size", "64MiB".to_owned()),
            ("ram", "8MiB".to_owned()),
            ("policy", self.policy.clone()),
            ("write-mode", "write-back".to_owned()),
        ];
        let config = ServerConfig::from_flags(Flags {
            listen: vec![format!("nbd+unix:///?socket={socket}")],
            server: vec![("state-directory", folder.path().display().to_string())],
            api: vec![("listen", api.clone())],
            volume: volume.into(),
        })?;
        let server = Server::start(&config, &|_, _, _| {})?;
        let mut out = std::io::stdout();
        let served = format!("A volume of 256 MiB behind 64 MiB of flash, at nbd+unix:///demo?socket={socket}");
        writeln!(out, "{}", fit::sentences(&served, 0, fit::width()))?;
        let begun = Instant::now();
        let loaded = self.load(Path::new(&socket), &ending);
        let took = human::duration(begun.elapsed().as_micros() as u64);
        let shown = loaded.and_then(|done| {
            writeln!(out, "{} over NBD in {took}. Its status:\n", human::counted(done, "request"))?;
            Status::of(ApiOptions::at(api)).run()
        });
        let stopped = server.stop(GRACE);
        shown?;
        stopped?;
        writeln!(out, "\nThe temporary files are deleted. Try it on your own disk: flashwise serve --help")?;
        Ok(())
    }

    /// Sends requests one after another until all are done or `ending` is set. Returns their number.
    fn load(&self, socket: &Path, ending: &AtomicBool) -> anyhow::Result<u64> {
        let mut client = Client::open(socket, "demo").context("the demo's client")?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let blocks = BACKEND_BYTES / BLOCK_BYTES;
        let ranks = Zipf::new(blocks as f64, 0.9).context("the demo's load")?;
        let bar = Bar::requests("demo".to_owned(), self.requests);
        for done in 0..self.requests {
            if ending.load(Ordering::Relaxed) {
                return Ok(done);
            }
            // Spread ranks over the volume; the factor is odd, so each rank has a block of its own.
            let rank = ranks.sample(&mut random) as u64 - 1;
            let block = rank.wrapping_mul(0x9E37_79B1) % blocks;
            client.request(random.random_bool(0.3), block).context("the demo's client")?;
            bar.set(done + 1, self.requests);
        }
        Ok(self.requests)
    }
}

/// A minimal NBD client. Source: the NBD protocol, fixed newstyle negotiation, NBD_OPT_EXPORT_NAME.
struct Client {
    socket: UnixStream,
    data: Vec<u8>,
}

impl Client {
    fn open(socket: &Path, export: &str) -> anyhow::Result<Client> {
        let mut socket = UnixStream::connect(socket)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut greeting = [0; 18];
        socket.read_exact(&mut greeting)?;
        // Client flags: fixed newstyle, no zeroes after the answer.
        let mut hello = 3_u32.to_be_bytes().to_vec();
        hello.extend(NBD_OPTS_MAGIC.to_be_bytes());
        hello.extend(option::NBD_OPT_EXPORT_NAME.to_be_bytes());
        hello.extend((export.len() as u32).to_be_bytes());
        hello.extend(export.as_bytes());
        socket.write_all(&hello)?;
        socket.read_exact(&mut [0; 10])?;
        Ok(Client { socket, data: vec![0; BLOCK_BYTES as usize] })
    }

    fn request(&mut self, write: bool, block: u64) -> anyhow::Result<()> {
        let kind = if write { command::NBD_CMD_WRITE } else { command::NBD_CMD_READ };
        let mut request = NBD_REQUEST_MAGIC.to_be_bytes().to_vec();
        request.extend(0_u16.to_be_bytes());
        request.extend(kind.to_be_bytes());
        request.extend(block.to_be_bytes());
        request.extend((block * BLOCK_BYTES).to_be_bytes());
        request.extend((BLOCK_BYTES as u32).to_be_bytes());
        if write {
            request.extend(&self.data);
        }
        self.socket.write_all(&request)?;
        let mut reply = [0; 16];
        self.socket.read_exact(&mut reply)?;
        let (magic, error) = (&reply[..4], &reply[4..8]);
        ensure!(magic == NBD_SIMPLE_REPLY_MAGIC.to_be_bytes() && error == [0; 4], "found the reply {reply:x?}");
        if !write {
            self.socket.read_exact(&mut self.data)?;
        }
        Ok(())
    }
}
