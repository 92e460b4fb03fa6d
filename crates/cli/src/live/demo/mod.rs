//! `flashwise demo`: serves a volume on temporary files, puts a load on it, shows its status and cleans up. With
//! `--page`, it compares two volumes on the management page.

mod client;
mod compare;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use flashwise_core::cache::settings::Setting;
use flashwise_core::human;
use flashwise_server::config::{Flags, ServerConfig};
use flashwise_server::server::Server;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::fit;
use crate::live::api::ApiOptions;
use crate::live::status::Status;
use crate::progress::Bar;
use client::{DemoClient, ZipfLoad};

/// Try a cache on temporary files, with a load and its results
///
/// The load goes over NBD: requests of 4 KiB, 70 % of them reads, with blocks drawn from a Zipf distribution. Storage
/// is 256 MiB, flash 64 MiB. The demo needs no root and no device. Ctrl-C ends it early.
///
/// With --page, the same requests go to two volumes of 32 MiB for a minute. One has a cache of 8 MiB, the other none.
/// The disk of each is a file, slowed down to 4 ms for each read and write. The management page compares latency, hits
/// and disk reads, and the demo prints the result. On a terminal, the page stays until Ctrl-C.
#[derive(Debug, Args)]
pub struct Demo {
    /// Compare with and without a cache on the management page, for a minute
    #[arg(long, conflicts_with = "requests")]
    page: bool,
    /// Seconds of load with --page
    #[arg(long, value_name = "SECONDS", default_value = "60", requires = "page", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Number of requests
    #[arg(long, value_name = "N", default_value = "50000", value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,
    /// Replacement policy from `flashwise policies`, except offline ones
    #[arg(long, value_name = "POLICY", default_value = Setting::named("policy").parameter.default)]
    policy: String,
}

const BACKEND_BYTES: u64 = 256 << 20;
/// Time for clients' requests to finish when the server stops.
const GRACE: Duration = Duration::from_secs(5);

impl Demo {
    pub fn run(&self) -> anyhow::Result<()> {
        // An interrupted demo cleans up too.
        let ending = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::flag::register(signal, ending.clone()).context("signals")?;
        }
        let place = DemoFolder::new()?;
        if self.page {
            compare::run(&place, &self.policy, Duration::from_secs(self.seconds), &ending)?;
        } else {
            self.show_status(&place, &ending)?;
        }
        Ok(())
    }

    fn show_status(&self, place: &DemoFolder, ending: &AtomicBool) -> anyhow::Result<()> {
        let flash = [("flash", place.file("flash")), ("flash-size", "64MiB".to_owned())];
        let settings = [("ram", "8MiB"), ("policy", &self.policy), ("write-mode", "write-back")];
        let settings = settings.map(|(key, value)| (key, value.to_owned()));
        let config = place.config("demo", BACKEND_BYTES, flash.into_iter().chain(settings).collect())?;
        let server = Server::start(&config, &|_, _, _| {})?;
        let mut out = std::io::stdout();
        let served =
            format!("A volume of 256 MiB behind 64 MiB of flash, at nbd+unix:///demo?socket={}", place.file("socket"));
        writeln!(out, "{}", fit::sentences(&served, 0, fit::width()))?;
        let begun = Instant::now();
        let loaded = self.load(&place.socket(), ending);
        let took = human::seconds(begun.elapsed().as_secs_f64());
        let shown = loaded.and_then(|done| {
            writeln!(out, "{} over NBD in {took}. Its status:\n", human::counted(done, "request"))?;
            Status::of(ApiOptions::at(place.api())).run()
        });
        let stopped = server.stop(GRACE);
        shown?;
        stopped?;
        writeln!(out, "\nThe temporary files are deleted. Try it on your own disk: flashwise serve --help")?;
        Ok(())
    }

    /// Sends requests one after another until all are done or `ending` is set. Returns their number.
    fn load(&self, socket: &Path, ending: &AtomicBool) -> anyhow::Result<u64> {
        let mut client = DemoClient::open(socket, "demo").context("the demo's client")?;
        let bar = Bar::requests("demo".to_owned(), self.requests);
        let mut done = 0;
        for request in ZipfLoad::on(BACKEND_BYTES)? {
            if done == self.requests || ending.load(Ordering::Relaxed) {
                break;
            }
            client.send(request).and_then(|()| client.receive(request)).context("the demo's client")?;
            done += 1;
            bar.set(done, self.requests);
        }
        Ok(done)
    }
}

/// The temporary folder of a demo, deleted with its files when dropped.
struct DemoFolder(tempfile::TempDir);

impl DemoFolder {
    fn new() -> anyhow::Result<DemoFolder> {
        Ok(DemoFolder(tempfile::Builder::new().prefix("flashwise-demo-").tempdir().context("a temporary folder")?))
    }

    fn file(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Path of the socket for NBD.
    fn socket(&self) -> PathBuf {
        self.0.path().join("socket")
    }

    /// Address of the management API.
    fn api(&self) -> String {
        format!("unix:{}", self.file("api"))
    }

    /// Creates the backend of a volume. Returns a server's configuration with the volume and these keys.
    fn config(&self, name: &str, bytes: u64, keys: Vec<(&'static str, String)>) -> anyhow::Result<ServerConfig> {
        let backend = self.file(&format!("{name}-storage"));
        std::fs::File::create(&backend).and_then(|file| file.set_len(bytes)).context("the storage")?;
        Ok(ServerConfig::from_flags(Flags {
            listen: vec![format!("nbd+unix:///?socket={}", self.file("socket"))],
            server: vec![("state-directory", self.0.path().display().to_string())],
            api: vec![("listen", self.api())],
            volume: [("name", name.to_owned()), ("backend", backend)].into_iter().chain(keys).collect(),
        })?)
    }
}
