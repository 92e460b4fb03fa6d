//! `flashwise demo --page`: the same requests on a volume with a cache and on one without, side by side on the
//! management page.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use flashwise_core::human;
use flashwise_server::server::Server;
use flashwise_storage::status::{Comparison, VolumeStatus};
use flashwise_storage::volume::Volume;
use serde_json::Value;

use super::client::{DemoClient, ZipfLoad};
use super::{DemoFolder, GRACE};
use crate::fit;
use crate::live::api::ApiOptions;
use crate::progress::Bar;

const CACHED: &str = "with-cache";
const UNCACHED: &str = "without-cache";
const BACKEND_MIB: u64 = 32;
const FLASH_MIB: u64 = 8;
/// Small, because the demo shows the flash cache.
const RAM_KIB: u64 = 256;
/// Time of each read and write of the disk, as of a hard disk with short seeks.
const DISK_MS: u64 = 4;
/// Interval of the figures in the progress bar.
const SHOWN_EVERY: Duration = Duration::from_secs(1);
/// Interval at which a demo without a load looks for its end.
const ENDING_EVERY: Duration = Duration::from_millis(100);

/// Runs the load for `time`, or until `ending` is set, and prints the result.
pub fn run(place: &DemoFolder, policy: &str, time: Duration, ending: &AtomicBool) -> anyhow::Result<()> {
    let api = ApiOptions::at(place.api()).client()?;
    let delay = || ("backend-delay", format!("{DISK_MS}ms"));
    let cache = vec![
        delay(),
        ("flash", place.file("flash")),
        ("flash-size", format!("{FLASH_MIB}MiB")),
        ("erase-unit", "256KiB".to_owned()),
        ("ram", format!("{RAM_KIB}KiB")),
        ("policy", policy.to_owned()),
        ("write-mode", "write-back".to_owned()),
    ];
    let no_cache = vec![delay(), ("ram", "0".to_owned()), ("write-mode", "write-through".to_owned())];
    let mut config = place.config(CACHED, BACKEND_MIB << 20, cache)?;
    config.volumes.extend(place.config(UNCACHED, BACKEND_MIB << 20, no_cache)?.volumes);
    let server = Server::start(&config, &|_, _, _| {})?;
    let compared = compare(place, &server, &api, policy, time, ending);
    let stopped = server.stop(GRACE);
    compared?;
    stopped?;
    writeln!(std::io::stdout(), "The temporary files are deleted.")?;
    Ok(())
}

fn compare(
    place: &DemoFolder,
    server: &Server,
    api: &crate::live::api::ApiClient,
    policy: &str,
    time: Duration,
    ending: &AtomicBool,
) -> anyhow::Result<()> {
    server.served().compare(Comparison { cached: CACHED.to_owned(), uncached: UNCACHED.to_owned() });
    let [cached, uncached] = &server.served().own_volumes()[..] else {
        anyhow::bail!("found {} volumes", server.volumes().len())
    };
    let volumes = [cached, uncached];
    let answer = api.post("/v1/page")?;
    let page = answer.get("url").and_then(Value::as_str).context("the answer has no url")?;
    let say = |text: &str| writeln!(std::io::stdout(), "{}", fit::sentences(text, 9, fit::width()));
    let duration = human::seconds(time.as_secs_f64());
    let api = place.api();
    let about = [
        format!("For {duration}, the same requests go to a volume with a cache and to one without."),
        format!("  disks  {BACKEND_MIB} MiB each, in files; each read and write takes {DISK_MS} ms, one at a time"),
        format!("  cache  {FLASH_MIB} MiB of flash, in a file, and {RAM_KIB} KiB of RAM; {policy}; empty at the start"),
        "  load   one client, requests of 4 KiB, 70% of them reads, blocks from a Zipf distribution".to_owned(),
        format!("  page   {page}"),
        format!("         The address works once. For another: flashwise page --api {api}"),
    ];
    say(&about.join("\n"))?;
    load(place, volumes, time, ending)?;
    let result = result(&cached.status(), &uncached.status());
    let result = result.as_deref().unwrap_or("The demo ended before both volumes answered a read.");
    writeln!(std::io::stdout(), "\n{}\n\n{}\n", fit::sentences(result, 0, fit::width()), NEXT.join("\n"))?;
    if std::io::stdout().is_terminal() && !ending.load(Ordering::Relaxed) {
        say("The page stays open. To end the demo, press Ctrl-C.")?;
        while !ending.load(Ordering::Relaxed) {
            std::thread::park_timeout(ENDING_EVERY);
        }
    }
    Ok(())
}

const NEXT: [&str; 4] = [
    "Next:",
    "  flashwise simulate --help   which policy and size suit a trace of your own workload",
    "  flashwise capture --help    record your disk as a trace",
    "  flashwise serve --help      put a cache in front of your own disk",
];

/// Sends each request to both volumes, and the next one when both have answered.
fn load(place: &DemoFolder, volumes: [&Arc<Volume>; 2], time: Duration, ending: &AtomicBool) -> anyhow::Result<()> {
    let open = |name| DemoClient::open(&place.socket(), name).context("the demo's client");
    let mut clients = [open(CACHED)?, open(UNCACHED)?];
    let bar = Bar::seconds("demo".to_owned(), time.as_secs());
    let begun = Instant::now();
    let mut shown = begun;
    for request in ZipfLoad::on(BACKEND_MIB << 20)? {
        let now = Instant::now();
        if now - begun >= time || ending.load(Ordering::Relaxed) {
            break;
        }
        if now - shown >= SHOWN_EVERY {
            shown = now;
            let [cached, uncached] = volumes.map(|volume| mean_us(&volume.status(), "read").map(human::duration));
            if let (Some(cached), Some(uncached)) = (cached, uncached) {
                bar.rename(format!("a read takes {cached} with the cache, {uncached} without"));
            }
            bar.set((now - begun).as_secs(), time.as_secs());
        }
        let sent = clients.iter_mut().try_for_each(|client| client.send(request));
        let answered = sent.and_then(|()| clients.iter_mut().try_for_each(|client| client.receive(request)));
        answered.context("the demo's client")?;
    }
    Ok(())
}

/// Mean latency of the requests of a kind, if there were any.
fn mean_us(volume: &VolumeStatus, operation: &str) -> Option<f64> {
    let found = volume.latencies.iter().find(|latency| latency.operation == operation && latency.count > 0);
    found.map(|latency| latency.mean_us)
}

/// The result in at most three sentences, or `None` if a volume has answered no read.
fn result(cached: &VolumeStatus, uncached: &VolumeStatus) -> Option<String> {
    let (with, without) = (mean_us(cached, "read")?, mean_us(uncached, "read")?);
    let faster = without / with;
    let reads = if faster >= 1.05 {
        format!(
            "Reads were {} times as fast with the cache: {} on average instead of {}.",
            human::number(faster),
            human::duration(with),
            human::duration(without)
        )
    } else {
        format!(
            "Reads were no faster with the cache: {} on average, and {} without it.",
            human::duration(with),
            human::duration(without)
        )
    };
    let [of_cached, of_uncached] = [cached, uncached].map(|volume| volume.cache.backend_read_blocks);
    let avoided = of_uncached.saturating_sub(of_cached);
    let hits = human::percent(cached.read_hit_ratio);
    let disk = format!(
        "{hits} of the reads were hits, which avoided {} of {}.",
        human::count(avoided),
        human::counted(of_uncached, "disk read")
    );
    let flash = human::bytes(cached.flash_bytes_written as f64);
    let writes = match (mean_us(cached, "write"), mean_us(uncached, "write")) {
        (Some(with), Some(without)) => {
            format!(
                " Writes, answered from RAM as by the write cache of a disk, took {} instead of {}; the flash was \
                 written with {flash}.",
                human::duration(with),
                human::duration(without)
            )
        }
        _ => String::new(),
    };
    Some(format!("{reads} {disk}{writes}"))
}

#[cfg(test)]
mod tests {
    use flashwise_storage::status::{CacheStatus, LatencyStatus};

    use super::*;

    fn volume(read_us: f64, write_us: Option<f64>, backend_read_blocks: u64) -> VolumeStatus {
        let of = |operation: &str, mean_us| LatencyStatus {
            operation: operation.to_owned(),
            count: 10,
            mean_us,
            ..LatencyStatus::default()
        };
        let latencies = [of("read", read_us)].into_iter().chain(write_us.map(|us| of("write", us))).collect();
        let cache = CacheStatus { backend_read_blocks, ..CacheStatus::default() };
        VolumeStatus { latencies, cache, ..VolumeStatus::default() }
    }

    #[test]
    fn the_result_states_what_was_measured() {
        let cached =
            VolumeStatus { read_hit_ratio: 0.75, flash_bytes_written: 3 << 20, ..volume(1000.0, Some(200.0), 2_500) };
        let said = result(&cached, &volume(4000.0, Some(4000.0), 10_000)).unwrap();
        assert_eq!(
            said,
            format!(
                "Reads were 4 times as fast with the cache: {} on average instead of {}. 75% of the reads were hits, \
                 which avoided \
                 7,500 of 10,000 disk reads. Writes, answered from RAM as by the write cache of a disk, took {} \
                 instead of {}; the flash was written with {}.",
                human::duration(1000.0),
                human::duration(4000.0),
                human::duration(200.0),
                human::duration(4000.0),
                human::bytes((3 << 20) as f64)
            )
        );
    }

    #[test]
    fn a_cache_that_gains_nothing_is_not_praised() {
        let said = result(&volume(4100.0, None, 100), &volume(4100.0, None, 100)).unwrap();
        assert!(
            said.starts_with("Reads were no faster with the cache") && said.contains("avoided 0 of 100 disk reads"),
            "{said}"
        );
        assert!(!said.contains("Writes"), "{said}");
        assert_eq!(result(&VolumeStatus::default(), &volume(1.0, None, 1)), None);
    }
}
