//! `flashwise simulate` with rules before a policy and an array of devices behind it.

use crate::common::{fail, succeed, table_i as folder};
use serde_json::Value;

#[test]
fn admission_rules_stand_before_the_policy_of_a_whole_cache_too() {
    let folder = folder();
    succeed(folder.path(), &["trace", "cut", "traces/netsfs.csv.zst", "begin.arrow", "--time", "0s..60s"]);
    let arguments = ["simulate", "begin.arrow", "--size", "64MiB", "--policy", "lru", "--write-mode", "write-back"];
    let rules = ["none", "probability:p=1", "probability:p=0", "probability:p=0.3", "size:max=8KiB", "hotness:min=2"];
    let adapting = ["adaptive:target=1ms,timeframe=2s", "auto:timeframe=2s"];
    let rules = rules.iter().chain(&adapting).map(|rule| ["--admission", rule]).collect::<Vec<_>>().concat();
    let run = |more: &[&str]| succeed(folder.path(), &[&arguments[..], &rules, more].concat());
    insta::assert_snapshot!("whole_cache_admission_table", run(&["--html", "report.html"]));
    assert!(std::fs::read_to_string(folder.path().join("report.html")).unwrap().contains("Hits, latency and lifetime"));
    let rows: Vec<Value> = serde_json::from_str(&run(&["--json"])).unwrap();
    let without_rule = |row: &Value| {
        let mut row = row.as_object().unwrap().clone();
        assert!(row.remove("admission").is_some() && row.remove("job").is_some());
        row
    };
    assert_eq!(without_rule(&rows[0]), without_rule(&rows[1]));
    assert_eq!(
        (&rows[2]["flash_client_blocks"], &rows[2]["flash_admission_blocks"]),
        (&Value::from(0), &Value::from(0))
    );
    for row in &rows[3..7] {
        assert!(row["flash_writes_blocks"].as_u64() < rows[0]["flash_writes_blocks"].as_u64(), "{row}");
        assert!(row["flash_writes_blocks"].as_u64() > rows[2]["flash_writes_blocks"].as_u64(), "{row}");
    }
    // The size of the storage determines its lifetime, and that determines the admissions.
    let adaptive = |size: &str| {
        let arguments = [&arguments[..], &["--admission", adapting[0], "--storage-size", size, "--json"]].concat();
        serde_json::from_str::<Value>(&succeed(folder.path(), &arguments)).unwrap()[0]["flash_writes_blocks"].clone()
    };
    assert_ne!(adaptive("3GiB"), adaptive("1TiB"));
}

#[test]
fn admission_rules_stand_before_any_policy_and_an_array_behind_it() {
    let folder = folder();
    let arguments = ["simulate", "traces/netsfs.csv.zst", "--size", "10%", "--policy", "lru", "--policy", "larc"];
    let rules = ["none", "probability:p=1", "probability:p=0", "probability:p=0.3", "size:max=64KiB", "hotness:min=2"];
    let rules = rules.map(|rule| ["--admission", rule]).concat();
    let run = |more: &[&str]| succeed(folder.path(), &[&arguments[..], &rules, more].concat());
    insta::assert_snapshot!("admission_table", run(&[]));
    let rows: Vec<Value> = serde_json::from_str(&run(&["--json"])).unwrap();
    for rows in rows.chunks(6) {
        let [none, all, nothing, some, size, hotness] = rows else { panic!("six rules") };
        for row in rows {
            for key in
                ["latency_mean_us", "lifetime_years", "latency_over_lifetime", "cache_write_rate", "storage_write_rate"]
            {
                assert!(row[key].is_f64(), "{key}: {row}");
            }
        }
        let without_rule = |row: &Value| {
            row.as_object()
                .unwrap()
                .iter()
                .filter(|(key, _)| !["admission", "job"].contains(&key.as_str()))
                .map(|(_, value)| value.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(without_rule(none), without_rule(all));
        assert_eq!((&nothing["cache_write_rate"], &nothing["hits"]), (&Value::from(0.0), &Value::from(0)));
        assert_eq!(nothing["bypasses"], nothing["accesses"]);
        for row in [some, size, hotness] {
            assert!(row["admissions"].as_u64() < none["admissions"].as_u64(), "{row}");
        }
    }
    assert!(run(&["--csv"]).lines().next().unwrap().ends_with("cache_write_rate,storage_write_rate"));
    let refused = [
        &["--admission", "probability:p=2"][..],
        &["--admission", "larger"],
        &["--admission", "size", "--policy", "m+", "--erase-unit", "4KiB", "--size", "10"],
        &["--admission", "size", "--policy", "ripq+", "--erase-unit", "4KiB", "--size", "10"],
        &["--storage-size", "10PB"],
        &["--admission", "none", "--policy", "fif"],
        &["--admission", "probability:p=0.9..0.1:0.1"],
        &["--admission", "adaptive:timeframe=200%"],
        &["--cache-device", "floppy"],
    ]
    .map(|arguments| {
        let err = fail(folder.path(), &[&["simulate", "table1.csv"], arguments].concat(), 2);
        format!("{}\n{}", arguments.join(" "), err.lines().next().unwrap())
    });
    insta::assert_snapshot!("admission_misuse", refused.join("\n\n"));
}

#[test]
fn requests_wait_for_devices_as_arrivals_say() {
    let folder = folder();
    let arguments = ["simulate", "traces/netsfs.csv.zst", "--size", "10%", "--policy", "lru", "--admission", "none"];
    let arguments =
        [&arguments[..], &["--admission", "probability:p=0.3", "--storage-device", "mlc:devices=8"]].concat();
    let run = |more: &[&str]| succeed(folder.path(), &[&arguments[..], more].concat());
    let rows =
        |arrivals: &[&str]| -> Vec<Value> { serde_json::from_str(&run(&[arrivals, &["--json"]].concat())).unwrap() };
    let none = rows(&[]);
    assert_eq!(rows(&["--arrivals", "none"]), none);
    // To the last bit as it was before there were percentiles.
    let json = run(&["--json"]);
    for mean in ["199.87800060893176", "456.40224292826946"] {
        assert!(json.contains(&format!("\"latency_mean_us\": {mean},")), "{json}");
    }
    let shares = ["latency_p50_us", "latency_p95_us", "latency_p99_us", "latency_p999_us", "latency_max_us"];
    let percentiles = |row: &Value| shares.map(|key| row[key].as_f64().unwrap());
    assert_eq!(percentiles(&none[0]), [200.0; 5]);
    assert_eq!(percentiles(&none[1]), [200.0, 1000.0, 1000.0, 1000.0, 1000.0]);
    for arrivals in ["trace", "trace:speed=0.1", "closed:depth=1", "closed:depth=32"] {
        for (row, none) in rows(&["--arrivals", arrivals]).iter().zip(&none) {
            for key in [
                "hits",
                "admissions",
                "evictions",
                "bypasses",
                "lifetime_years",
                "cache_write_rate",
                "storage_write_rate",
            ] {
                assert_eq!(row[key], none[key], "{arrivals}: {key}");
            }
            assert!(percentiles(row).is_sorted() && percentiles(row)[0] > 0.0, "{row}");
            assert_eq!(row["requests_per_s"].is_f64(), arrivals.starts_with("closed"), "{row}");
            assert!(row["cache_utilisation"].is_f64() && row["storage_utilisation"].is_f64(), "{row}");
            let ratio = row["latency_mean_us"].as_f64().unwrap() / row["lifetime_years"].as_f64().unwrap();
            let found = row["latency_over_lifetime"].as_f64().unwrap();
            assert!((found / ratio - 1.0).abs() < 1e-12, "{arrivals}: {found}, {ratio}");
        }
    }
    let throughput = |depth: &str| {
        let rows = rows(&["--arrivals", &format!("closed:depth={depth}")]);
        rows.iter().map(|row| row["requests_per_s"].as_f64().unwrap()).collect::<Vec<_>>()
    };
    let (one, many) = (throughput("1"), throughput("32"));
    assert!(one.iter().zip(&many).all(|(one, many)| one < many), "{one:?} {many:?}");
    insta::assert_snapshot!("arrivals_table_of_a_closed_loop", run(&["--arrivals", "closed:depth=16"]));
    insta::assert_snapshot!("arrivals_table_of_devices_that_cannot_keep_up", run(&["--arrivals", "trace:speed=20"]));
    let csv = run(&["--arrivals", "trace", "--csv"]);
    let header: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    for name in [&shares[..], &["arrivals", "requests_per_s", "cache_utilisation", "latency_worst_us"]].concat() {
        assert!(header.contains(&name), "{name}: {header:?}");
    }
}

#[test]
fn arrivals_that_cannot_be_are_refused() {
    let folder = folder();
    std::fs::write(folder.path().join("blocks.txt"), "1\n2\n1\n").unwrap();
    let refused = [
        &["table1.csv", "--arrivals", "open"][..],
        &["table1.csv", "--arrivals", "closed:depth=0"],
        &["table1.csv", "--arrivals", "closed", "--cache-device", "slc:devices=2.5"],
        &["table1.csv", "--arrivals", "closed", "--storage-device", "mlc:channels=0"],
        &["table1.csv", "--arrivals", "trace", "--policy", "ripq+"],
        &["blocks.txt", "--format", "blocks", "--arrivals", "trace"],
    ]
    .map(|arguments| {
        let err = fail(folder.path(), &[&["simulate"], arguments].concat(), 2);
        format!("{}\n{}", arguments.join(" "), err.lines().next().unwrap())
    });
    insta::assert_snapshot!("arrivals_misuse", refused.join("\n\n"));
}

/// The bundled trace takes 180 s and has 1,126,563 accesses.
#[test]
fn epochs_of_an_array_add_up_and_have_decisions() {
    let folder = folder();
    let arguments = ["simulate", "traces/netsfs.csv.zst", "--size", "10%", "--policy", "lru", "--epoch", "100000"];
    let rules =
        ["none", "adaptive:timeframe=2s,target=1ms", "adaptive:kind=size,timeframe=2s,target=1ms", "auto:timeframe=2s"];
    let rules = rules.map(|rule| ["--admission", rule]).concat();
    let rows: Vec<Value> =
        serde_json::from_str(&succeed(folder.path(), &[&arguments[..], &rules, &["--json"]].concat())).unwrap();
    let [none, probability, size, auto] = &rows[..] else { panic!("four rules") };
    for row in &rows {
        let epochs = row["epochs"].as_array().unwrap();
        assert_eq!(epochs.len(), 12);
        let sum = |key: &str, weight: &str| {
            epochs.iter().map(|epoch| epoch[key].as_f64().unwrap() * epoch[weight].as_f64().unwrap()).sum::<f64>()
        };
        let whole = |key: &str| row[key].as_f64().unwrap();
        let near =
            |found: f64, expected: f64| assert!((found - expected).abs() < 1e-6 * expected, "{found}, {expected}");
        near(sum("miss_ratio", "accesses"), whole("accesses") - whole("hits"));
        near(sum("write_share", "accesses"), whole("writes"));
        near(sum("latency_mean_us", "accesses"), whole("latency_mean_us") * whole("accesses"));
        let seconds: f64 = epochs.iter().map(|epoch| epoch["seconds"].as_f64().unwrap()).sum();
        let last = &epochs[11];
        near(last["start_s"].as_f64().unwrap() + last["seconds"].as_f64().unwrap(), seconds);
        assert_eq!(seconds.round(), 180.0);
        near(sum("cache_write_rate", "seconds"), whole("cache_write_rate") * seconds);
        near(sum("storage_write_rate", "seconds"), whole("storage_write_rate") * seconds);
        assert!(epochs.iter().all(|epoch| epoch["cache_wear_rate"].as_f64() < epoch["cache_write_rate"].as_f64()));
    }
    let column = |row: &Value, key: &str| -> Vec<Value> {
        row["epochs"].as_array().unwrap().iter().map(|epoch| epoch[key].clone()).collect()
    };
    for key in ["threshold", "threshold_position", "chosen_policy"] {
        assert!(column(none, key).iter().all(Value::is_null), "{key}");
    }
    for (row, range) in [(probability, 0.01..1.0), (size, 1.0..1e6)] {
        let thresholds: Vec<_> = column(row, "threshold").iter().filter_map(Value::as_f64).collect();
        assert!(thresholds.iter().any(|threshold| range.contains(threshold)), "{thresholds:?}");
        let positions: Vec<_> = column(row, "threshold_position").iter().filter_map(Value::as_f64).collect();
        assert!(
            positions.iter().all(|position| (0.0..=1.0).contains(position)) && positions.len() > 10,
            "{positions:?}"
        );
    }
    let chosen = column(auto, "chosen_policy");
    let candidates = ["lru", "larc", "larc:writes=admit", "2q", "s3-fifo"];
    assert!(chosen.iter().skip(1).all(|policy| candidates.contains(&policy.as_str().unwrap())));
    assert!(column(auto, "threshold").iter().all(Value::is_null));
}

/// The report also has the policy without a rule, and auto's candidates. The printed rows are only the requested runs.
#[test]
fn a_report_of_an_array_has_sweeps_rules_and_the_candidates_of_auto() {
    let folder = folder();
    let trace = ["simulate", "traces/netsfs.csv.zst", "--size", "10%", "--policy", "lru", "--json"];
    let rules =
        ["--admission", "probability:p=0.2..0.8:0.3", "--admission", "auto:timeframe=1%", "--html", "report.html"];
    let rows: Vec<Value> = serde_json::from_str(&succeed(folder.path(), &[&trace[..], &rules].concat())).unwrap();
    let admissions: Vec<_> = rows.iter().map(|row| row["admission"].as_str().unwrap()).collect();
    assert_eq!(admissions, ["probability:p=0.2", "probability:p=0.5", "probability:p=0.8", "auto:timeframe=1%"]);
    let report = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    for expected in [
        "<caption>Portion of the misses admitted: probability before lru with 10%: as multiples of the policy without \
         a rule</caption>",
        "<caption>auto:timeframe=1% among its candidates with a cache of 10%: latency over lifetime, in us a \
         year</caption>",
        "<th scope=\"row\">s3-fifo</th>",
        "<h2 id=\"over-traces\">Latency and lifetime, by parameter</h2>",
        "larc:writes=admit has the least latency over lifetime with 241 MiB (61,719 blocks), 1.5 times better than \
         lru: 199 us and 0.0468 years",
    ] {
        assert!(report.contains(expected), "{expected}");
    }
    // A timeframe of a hundredth of 180.03 s.
    let absolute = [&trace[..], &["--admission", "auto:timeframe=1800308us"]].concat();
    let absolute: Vec<Value> = serde_json::from_str(&succeed(folder.path(), &absolute)).unwrap();
    assert_eq!(absolute[0]["hits"], rows[3]["hits"]);
}
