//! Caches that evict whole buckets, simulated.

use std::path::Path;

use crate::common::{run, succeed};
use serde_json::Value;
use tempfile::TempDir;

/// 20,000 requests of 4 KiB on 2,000 blocks, four of five of them writes.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let mut text = String::from("time,op,offset,length\n");
    let mut state = 1_u64;
    for at in 0..20_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (draw, op) = ((state >> 33) % 2000, if at % 5 == 0 { "read" } else { "write" });
        text += &format!("{},{op},{},4096\n", at * 1000, draw * 4096);
    }
    std::fs::write(folder.path().join("trace.csv"), text).unwrap();
    folder
}

fn simulate(folder: &Path, options: &[&str]) -> Value {
    let trace = ["simulate", "trace.csv", "--size", "16MiB", "--bucket", "256KiB", "--json"];
    let rows: Value = serde_json::from_str(&succeed(folder, &[&trace[..], options].concat())).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 1);
    rows[0].clone()
}

#[test]
fn each_layout_tells_its_figures_and_they_add_up() {
    let folder = folder();
    let row = |layout, options: &[&str]| {
        let row = simulate(folder.path(), &[&["--layout", layout, "--device", "wlfc"], options].concat());
        let of = |figure: &str| row[figure].as_f64().unwrap_or_else(|| panic!("{figure} of {row}"));
        assert_eq!(row["policy"], layout);
        assert_eq!((of("accesses"), of("requests"), of("reads")), (20_000.0, 20_000.0, 4000.0));
        assert_eq!(of("hits"), of("ram_read_hits") + of("flash_read_hits") + of("write_hits"));
        let causes = ["client", "admission", "copy_forward", "metadata"];
        let written = causes.map(|cause| format!("flash_{cause}_blocks"));
        assert_eq!(of("flash_writes_blocks"), written.iter().map(|cause| of(cause)).sum::<f64>());
        assert_eq!(of("erase_ratio"), of("erasures") / 20_000.0);
        assert_eq!(of("backend_ratio"), of("backend_accesses") / 20_000.0);
        let mean = (4.0 * of("write_latency_mean_us") + of("read_latency_mean_us")) / 5.0;
        assert!((of("serial_latency_mean_us") - mean).abs() < 1e-6 * mean, "{row}");
        // One after the other: 4 KiB per mean latency.
        let throughput = 1e6 / of("serial_latency_mean_us") / 256.0;
        assert!((of("throughput_mib_s") - throughput).abs() < 1e-6 * throughput, "{row}");
        assert!(of("erasures") > 0.0 && of("hit_ratio") > 0.1, "{row}");
        row
    };
    let (wlfc, wlfc_c, b_like) = (row("wlfc", &[]), row("wlfc_c", &[]), row("b-like", &[]));
    assert!(wlfc["ram_read_hits"] == 0 && wlfc_c["ram_read_hits"].as_u64() > Some(0));
    assert_eq!(wlfc["flash_metadata_blocks"], wlfc["flash_padding_blocks"]);
    assert!(b_like["flash_metadata_blocks"].as_u64() > b_like["flash_padding_blocks"].as_u64());
    let evict = row("wlfc", &["--refresh", "evict"]);
    // A stale copy is not written again for a read that finds it.
    assert!(evict["flash_admission_blocks"].as_u64() < wlfc["flash_admission_blocks"].as_u64(), "{evict}");
    let small = row("wlfc", &["--write-queue", "20%"]);
    assert!(small["backend_accesses"] != wlfc["backend_accesses"], "{small}");
    let rare = row("b-like", &["--journal-logs", "100"]);
    assert!(rare["flash_metadata_blocks"].as_u64() < b_like["flash_metadata_blocks"].as_u64(), "{rare}");
    row("b-like", &["--spare", "28%", "--storage-device", "mlc"]);
}

/// One request after the other finds the same as without times. The mean number of requests in progress is their rate
/// times their mean latency, by Little's law.
#[test]
fn requests_wait_for_the_engine_of_wlfc() {
    let folder = folder();
    for layout in ["wlfc", "wlfc_c"] {
        let row = |more: &[&str]| simulate(folder.path(), &[&["--layout", layout, "--device", "femu"], more].concat());
        let waits = |arrivals| row(&["--arrivals", arrivals, "--storage-device", "hdd", "--cache-device", "slc"]);
        let (alone, one, four) = (row(&[]), waits("closed:depth=1"), waits("closed:depth=4"));
        for figure in ["accesses", "hits", "ram_read_hits", "erasures", "backend_accesses", "flash_writes_blocks"] {
            assert_eq!(one[figure], alone[figure], "{layout}: {figure}");
        }
        assert!(alone["latency_mean_us"].is_null() && alone["serial_latency_mean_us"].is_number(), "{alone}");
        assert!(one["latency_p99_us"].is_number() && one["serial_latency_mean_us"].is_null(), "{one}");
        let of = |row: &Value, figure| row[figure].as_f64().unwrap();
        for (row, depth) in [(&one, 1.0), (&four, 4.0)] {
            let in_progress = of(row, "requests_per_s") * of(row, "latency_mean_us") / 1e6;
            assert!((in_progress - depth).abs() < 0.01 * depth, "{layout}: {in_progress}: {row}");
        }
        assert_eq!((&one["arrivals"], &four["accesses"]), (&"closed:depth=1".into(), &20_000.into()));
    }
}

#[test]
fn tables_csv_and_warm_ups_report_progress() {
    let folder = folder();
    let size = ["simulate", "trace.csv", "--layout", "wlfc", "--size", "64MiB", "--warmup", "50%"];
    let table = succeed(folder.path(), &size);
    assert!(table.contains("erased each") && table.lines().nth(1).unwrap().contains("wlfc"), "{table}");
    let csv = succeed(folder.path(), &[&size[..], &["--csv"]].concat());
    let columns: Vec<_> = csv.lines().next().unwrap().split(',').collect();
    assert!(columns.contains(&"erase_ratio") && columns.contains(&"backend_ratio"), "{csv}");
    assert!(csv.contains(",10000,"), "half is counted: {csv}");
}

/// Every error names the option and the reason.
#[test]
fn meaningless_settings_are_refused_with_a_reason() {
    let folder = folder();
    let cases: [(&[&str], &str); 20] = [
        (&["--layout", "wlfc", "--policy", "lru"], "--layout wlfc and --policy: it decides itself what it keeps"),
        (
            &["--layout", "wlfc", "--admission", "size"],
            "--layout wlfc and --admission: it decides itself what to admit",
        ),
        (
            &["--layout", "b-like", "--arrivals", "trace"],
            "--layout b-like and --arrivals: its requests come one after another",
        ),
        (
            &["--layout", "wlfc", "--ram", "1MiB"],
            "--ram is of --layout none, in-place, containers, log, wlfc_c, found --layout wlfc",
        ),
        (
            &["--layout", "b-like", "--write-queue", "40%"],
            "--write-queue is of --layout wlfc, wlfc_c, found --layout b-like",
        ),
        (&["--layout", "wlfc", "--journal-logs", "4"], "--journal-logs is of --layout b-like, found --layout wlfc"),
        (
            &["--layout", "wlfc", "--spare", "7%"],
            "--spare is of --layout in-place, containers, log, b-like, found --layout wlfc",
        ),
        (
            &["--layout", "wlfc", "--gc-victim", "fifo"],
            "--gc-victim is of --layout in-place, containers, log, found --layout wlfc",
        ),
        (&["--layout", "wlfc", "--write-mode", "write-back"], "--write-mode is of --layout log, found --layout wlfc"),
        (&["--layout", "in-place", "--bucket", "4MiB"], "--bucket is of --layout wlfc, wlfc_c, b-like"),
        (&["--layout", "wlfc", "--bucket", "20KiB"], "bucket: found 20KiB, expected a multiple of 16KiB"),
        (
            &["--layout", "wlfc", "--size", "12MiB"],
            "size: 12MiB of flash has room for 3 buckets of 4MiB, expected at least 4",
        ),
        (
            &["--layout", "b-like", "--size", "12MiB"],
            "size: 12MiB of flash has room for 2 buckets of 4MiB, expected at least 7",
        ),
        (&["--layout", "wlfc", "--bucket", "0"], "bucket: found 0B, expected at least a page of the flash, 16KiB"),
        (
            &["--layout", "wlfc", "--bucket", "5MiB"],
            "bucket: found 5MiB, expected a multiple of 4MiB, the erase blocks of device 'wlfc'",
        ),
        (
            &["--layout", "b-like", "--bucket", "17KiB"],
            "bucket: found 17KiB, expected a multiple of 16KiB, the pages of device 'wlfc'",
        ),
        (
            &["--layout", "wlfc", "--device", "femu", "--bucket", "4KiB"],
            "bucket: found 4KiB, expected at least 8KiB: one page of the flash is its header",
        ),
        (&["--layout", "b-like", "--bucket", "4KiB"], "bucket: found 4KiB, expected at least a page of the flash"),
        (&["--layout", "wlfc", "--write-queue", "0%"], "found '0%', expected a share above 0% and below 100%"),
        (&["--layout", "wlfc", "--write-queue", "100%"], "found '100%', expected a share above 0% and below"),
    ];
    for (options, expected) in cases {
        let (_, err, code) = run(folder.path(), &[&["simulate", "trace.csv"], options].concat());
        assert!(code == 2 && err.contains(expected), "{options:?}: {code}: {err}");
    }
}
