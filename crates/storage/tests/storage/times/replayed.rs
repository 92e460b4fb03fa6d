//! The simulator finds the waits and counts of a volume: it runs the requests of a scenario over devices of the same
//! speed.

use std::fmt::Write as _;

use flashwise_sim::job::{Input, Job, run};
use flashwise_sim::results::ResultRow;
use flashwise_storage::export::Operation;
use flashwise_storage::layout::LAYOUTS;
use flashwise_trace::normalised::Settings;
use flashwise_trace::progress::Silent;

use super::scenarios::writers_think;
use super::{Measured, Scenario, ms};

/// The speeds of the scenarios, for the simulator: microseconds of a block, and of each further one of 4 KiB.
const DEVICES: &str = "cache-device=capacity-gb=1,endurance-cycles=unlimited,read-latency-ms=0.02,\
                       write-latency-ms=0.02,channels=1,transfer-mb-per-s=1024 \
                       storage-device=capacity-gb=1,endurance-cycles=unlimited,read-latency-ms=8,write-latency-ms=8,\
                       channels=1,transfer-mb-per-s=204.8";
const SHARE: f64 = 0.02;

/// The requests of a scenario as a recording.
fn recording(measured: &Measured) -> String {
    let mut lines: Vec<_> = measured
        .requests
        .iter()
        .flat_map(|(kind, requests)| requests.iter().map(move |request| (request.asked, *kind, request.blocks.clone())))
        .collect();
    lines.sort_by_key(|(asked, ..)| *asked);
    let first = lines[0].0;
    let mut text = "time_us,volume,op,offset,length,flags\n".to_owned();
    for (asked, kind, blocks) in lines {
        let (operation, offset, length) = match kind {
            "flush" => ("flush", 0, 0),
            "write" => ("write", blocks.start * 4096, (blocks.end - blocks.start) * 4096),
            _ => ("read", blocks.start * 4096, (blocks.end - blocks.start) * 4096),
        };
        writeln!(text, "{},v,{operation},{offset},{length},", (asked - first).as_micros()).unwrap();
    }
    text
}

fn simulate(measured: &Measured, job: &str) -> ResultRow {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recorded.csv");
    std::fs::write(&path, recording(measured)).unwrap();
    let job: Job = format!("{job} arrivals=trace {DEVICES} warmup=0").parse().unwrap();
    let rows = run(&[Input::File(path, Settings::default())], &[job], &Silent).unwrap();
    rows.rows[0][0].clone()
}

fn replay(name: &str, scenario: Scenario, job: &str) {
    let measured = scenario.run(1);
    let row = simulate(&measured, job);
    let mut waits: Vec<f64> =
        measured.requests.values().flatten().map(|request| request.waited.as_nanos() as f64 / 1e3).collect();
    waits.sort_by(f64::total_cmp);
    let mean = waits.iter().sum::<f64>() / waits.len() as f64;
    let p99 = waits[(waits.len() as f64 * 0.99).ceil() as usize - 1];
    let status = &measured.status;
    let array = row.array.as_ref().unwrap();
    let log = row.cache.as_ref().map(|cache| cache.destaged_blocks);
    let destaged = log.or(row.buckets.as_ref().map(|buckets| buckets.destaged_blocks)).unwrap();
    println!("{name}: {} requests", waits.len());
    println!("{name}: mean {mean:.1} us, simulated {:.1}", array.latency_mean_us);
    println!("{name}: 99% {p99:.1} us, simulated {:.1}", array.latency_p99_us);
    println!(
        "{name}: reads {} {}, read hits {} {}, writes {} {}, destaged {} {}",
        status.reads,
        row.reads,
        status.ram_read_hits + status.flash_read_hits,
        row.read_hits,
        status.writes,
        row.writes,
        status.cache.destaged_blocks,
        destaged
    );
    assert_eq!((row.reads, row.writes), (status.reads, status.writes), "{name}");
    assert_eq!(row.read_hits, status.ram_read_hits + status.flash_read_hits, "{name}: read hits");
    for (what, found, expected) in [
        ("mean", array.latency_mean_us, mean),
        ("99 %", array.latency_p99_us, p99),
        ("written back", destaged as f64, status.cache.destaged_blocks as f64),
    ] {
        let near = expected * (1.0 - SHARE)..=expected * (1.0 + SHARE);
        assert!(near.contains(&found), "{name}: {what}: {found}, expected {expected} within 2 %");
    }
}

/// Nothing flushes or zeroes, which the simulator's devices do in no time.
fn without_flushes(scenario: Scenario) -> Scenario {
    let (flash, backend) = (scenario.flash.without_flushes(), scenario.backend.without_flushes());
    Scenario { flash, backend, cached_mib: 0, ..scenario }
}

/// Writers that think for 100 ms are slower than the backend, and those that think for 40 ms have blocks written back.
/// Writers who are slowed down ask later than a recording of them, so their waits would say little.
#[test]
fn requests_wait_as_long_in_a_simulation_of_their_recording() {
    // In order, all writes are written back at once: more than a disk of 8 ms could take at 40 ms.
    let runs = [("0", 100, "none"), ("8MiB", 100, "none"), ("8MiB", 40, "none"), ("8MiB", 100, "barriers")];
    for (ram, think_ms, order) in runs {
        let mut scenario = without_flushes(writers_think(think_ms, ram));
        scenario.settings.push(("write-back-order", order));
        let job = format!("policy=lru size=64MiB layout=log erase-unit=256KiB ram={ram} write-back-order={order}");
        replay(&format!("ram {ram}, order {order}, writers that think for {think_ms} ms"), scenario, &job);
    }
}

/// The same with buckets, and a reader of twice the blocks that fit. The server's first unit of 256 KiB holds
/// superblocks.
#[test]
fn requests_wait_for_buckets_as_long_in_a_simulation_of_their_recording() {
    for (ram, layout) in [("0", "wlfc"), ("8MiB", "wlfc_c ram=8MiB")] {
        let mut scenario = without_flushes(writers_think(400, ram));
        let readers = scenario.clients.iter_mut().filter(|client| client.operation == Operation::Read);
        readers.for_each(|client| (client.mib, client.thinks) = (0..64, ms(20)));
        let settings = vec![("erase-unit", "256KiB"), ("ram", ram)];
        let scenario = Scenario { layout: LAYOUTS[1].1, settings, ..scenario };
        let job = format!("size=65280KiB bucket=256KiB device=femu layout={layout}");
        replay(&format!("buckets, ram {ram}"), scenario, &job);
    }
}
