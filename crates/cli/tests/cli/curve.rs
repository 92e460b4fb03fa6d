//! Whole curves and samples, as a user runs them.

use crate::common::{fail, project, run, succeed};
use serde_json::Value;

fn rows(arguments: &[&str]) -> Vec<Value> {
    let rows: Value = serde_json::from_str(&succeed(&project(), arguments)).unwrap();
    rows.as_array().unwrap().clone()
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key} in {row}"))
}

const TRACE: &str = "traces/netsfs.csv.zst";

#[test]
fn the_lru_curve_matches_simulate_at_every_size() {
    for warmup in ["0", "10%"] {
        let sizes = ["--size", "0.01%,1%..100%:9%,100%,64MiB,77", "--warmup", warmup, "--json"];
        let curve = rows(&[&["curve", TRACE], &sizes[..]].concat());
        let runs = rows(&[&["simulate", TRACE, "--policy", "lru"], &sizes[..]].concat());
        assert_eq!(curve.len(), 15);
        for point in &curve {
            let run = runs.iter().find(|run| run["size"] == point["size"]).unwrap();
            for key in ["capacity_blocks", "read_hits", "write_hits", "hit_ratio", "read_hit_ratio"] {
                assert_eq!(point[key], run[key], "{key} at {}", point["size"]);
            }
            let writes = number(run, "write_hits") / number(run, "writes");
            assert!((number(point, "write_hit_ratio") - writes).abs() < 1e-12);
        }
        let ratios: Vec<f64> = curve.iter().map(|point| number(point, "hit_ratio")).collect();
        assert!(ratios.is_sorted() && ratios[0] < ratios[14]);
    }
}

/// Two samples of a tenth of the blocks. The intervals contain the true values, and all counts are of the whole trace
/// and add up.
#[test]
fn a_sample_tells_of_the_whole_trace() {
    let all =
        ["simulate", TRACE, "--policy", "lru", "--policy", "s3-fifo", "--size", "20%,50%", "--warmup", "5%", "--json"];
    let exact = rows(&all);
    for seed in ["1", "2"] {
        let sampled = rows(&[&all[..], &["--sample", "10%", "--sample-seed", seed]].concat());
        assert_eq!(sampled.len(), exact.len());
        for (sampled, exact) in sampled.iter().zip(&exact) {
            for key in
                ["policy", "size", "capacity_blocks", "unique_blocks", "warmup_accesses", "accesses", "reads", "writes"]
            {
                // Raw traces are not counted block by block: their number is an estimate.
                if ["unique_blocks", "capacity_blocks"].contains(&key) {
                    assert!((number(sampled, key) / number(exact, key) - 1.0).abs() < 0.1, "{key}: {sampled}");
                } else if key == "reads" || key == "writes" {
                    // The end of the warm-up lies between two marks.
                    assert!((number(sampled, key) / number(exact, key) - 1.0).abs() < 0.01, "{key}: {sampled}");
                } else {
                    assert_eq!(sampled[key], exact[key], "{key}");
                }
            }
            let sum = number(sampled, "hits") + number(sampled, "admissions") + number(sampled, "bypasses");
            assert_eq!(sum, number(sampled, "accesses"));
            let truth = number(exact, "hit_ratio");
            let (low, high) = (number(sampled, "hit_ratio_low"), number(sampled, "hit_ratio_high"));
            assert!(low - 0.01 < truth && truth < high + 0.01 && high - low < 0.1, "{truth} of {sampled}");
            let writes = number(sampled, "flash_writes_blocks") / number(exact, "flash_writes_blocks");
            assert!((writes - 1.0).abs() < 0.1, "{writes}");
        }
    }
    // Without a warm-up, a sample of everything equals the trace.
    let all = ["simulate", TRACE, "--policy", "lru", "--size", "20%", "--json"];
    assert_eq!(rows(&[&all[..], &["--sample", "100%"]].concat())[0]["hits"], rows(&all)[0]["hits"]);
}

#[test]
fn an_accuracy_is_reached_and_reported() {
    let options = ["--accuracy", "2%", "--sample-by", "groups", "--sample-seed", "3", "--json"];
    let rows = rows(&[&["simulate", TRACE, "--policy", "lru", "--size", "50%"], &options[..]].concat());
    assert!(number(&rows[0], "hit_ratio_margin") <= 0.02);
    assert!(number(&rows[0], "sample_rate") <= 1.0);
}

#[test]
fn a_report_of_a_sample_has_errors_and_no_reuse_distances() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, page) = (project().join(TRACE), folder.path().join("report.html"));
    let all =
        ["simulate", trace.to_str().unwrap(), "--policy", "lru", "--size", "10%,20%", "--html", page.to_str().unwrap()];
    let html = |more: &[&str]| {
        succeed(folder.path(), &[&all[..], more].concat());
        std::fs::read_to_string(&page).unwrap()
    };
    let (sampled, whole) = (html(&["--sample", "10%", "--epoch", "100000"]), html(&[]));
    let said = "hold the truth in 95 of 100 samples";
    assert!(sampled.contains(said) && !whole.contains(said));
    assert!(!sampled.contains("trace-1-reuse") && whole.contains("trace-1-reuse"));
    assert!(sampled.contains("1,126,563"), "accesses are those of the whole trace");
}

/// RAM, a rule before devices, flash that wears, and an algorithm that knows the future: 10 % and everything differ by
/// less than a fifth.
#[test]
fn all_parts_scale_with_the_sample() {
    let cases: [(&[&str], &[&str]); 3] = [
        (&["--policy", "lru", "--ram", "64MiB"], &["hit_ratio", "flash_writes_blocks", "ram_bytes"]),
        (
            &["--policy", "lru", "--admission", "probability:p=0.3"],
            &["hit_ratio", "flash_writes_blocks", "latency_mean_us", "lifetime_years"],
        ),
        (
            &["--policy", "lru", "--policy", "m", "--layout", "in-place", "--ram", "0", "--erase-unit", "64KiB"],
            &["hit_ratio", "flash_writes_blocks", "erasures", "epbpd"],
        ),
    ];
    for (arguments, keys) in cases {
        let all = [&["simulate", TRACE, "--size", "20%", "--json"], arguments].concat();
        let (exact, sampled) = (rows(&all), rows(&[&all[..], &["--sample", "20%"]].concat()));
        for (sampled, exact) in sampled.iter().zip(&exact) {
            assert_eq!(sampled["accesses"], exact["accesses"]);
            for key in keys {
                let ratio = number(sampled, key) / number(exact, key);
                assert!((ratio - 1.0).abs() < 0.2, "{key} of {}: {ratio}: {sampled} {exact}", sampled["policy"]);
            }
        }
    }
}

/// A sample is used if its accuracy is known; otherwise, as on flash, the whole trace.
#[test]
fn an_accuracy_is_reached_with_ram_admission_and_flash_too() {
    let of = |more: &[&str]| {
        let trace = ["simulate", TRACE, "--policy", "lru", "--size", "50%", "--json"];
        rows(&[&trace[..], more].concat()).remove(0)
    };
    let asked = ["--accuracy", "2%"];
    for stages in [&["--ram", "1MiB"][..], &["--admission", "size:max=64KiB"]] {
        let (found, whole) = (of(&[stages, &asked].concat()), of(stages));
        let hits = |row: &Value| row["hit_ratio"].as_f64().unwrap();
        assert!(found["hit_ratio_margin"].as_f64().unwrap() <= 0.02, "{stages:?}: {found}");
        assert!((hits(&found) - hits(&whole)).abs() < 0.04, "{stages:?}: {found} {whole}");
    }
    let flash = ["--layout", "in-place", "--ram", "0", "--erase-unit", "64KiB"];
    let found = of(&[&flash[..], &asked].concat());
    assert_eq!((&found["sample_rate"], &found["hits"]), (&Value::from(1.0), &of(&flash)["hits"]), "{found}");
    // Those that are asked whole requests have no sample at all, which is said.
    let folder = tempfile::tempdir().unwrap();
    let begin = folder.path().join("begin.arrow").display().to_string();
    succeed(&project(), &["trace", "cut", TRACE, &begin, "--requests", "..40000"]);
    let trace = ["simulate", &begin, "--policy", "lru", "--size", "50%", "--json"];
    let log = [&trace[..], &["--layout", "log", "--erase-unit", "64KiB"]].concat();
    let wlfc = ["simulate", &begin, "--layout", "wlfc", "--size", "64MiB", "--bucket", "256KiB", "--json"];
    for (whole, more) in [(&log[..], &["--sample-by", "groups"][..]), (&wlfc, &[])] {
        let (found, said, code) = run(&project(), &[whole, &asked, more].concat());
        assert_eq!((found, code), (succeed(&project(), whole), 0));
        assert!(said.contains("cannot be sampled; the whole trace is run"), "{said}");
    }
}

#[test]
fn unknown_figures_of_a_sample_are_refused() {
    let folder = project();
    let refused = |arguments: &[&str], what: &str| {
        let error = fail(&folder, &[&["simulate", TRACE, "--size", "10%"], arguments].concat(), 2);
        assert!(error.contains(what), "{error}");
    };
    refused(&["--sample", "0%"], "found '0%', expected a share above 0% and up to 100%, such as 1% or 0.01");
    refused(&["--accuracy", "1"], "expected a share between 0% and 100%, such as 0.005 or 0.5%");
    refused(&["--sample", "1%", "--accuracy", "1%"], "cannot be used with");
    refused(&["--sample", "1%", "--layout", "log"], "a sample has parts of requests");
    refused(&["--sample", "1%", "--layout", "wlfc"], "a sample has parts of requests");
    refused(&["--sample", "50%", "--policy", "lru", "--arrivals", "trace"], "leaves devices idle");
    let error = fail(&folder, &["simulate", "-", "--accuracy", "1%"], 2);
    assert!(error.contains("standard input can be read once"), "{error}");
    let error = fail(&folder, &["simulate", TRACE, "--sample", "0.0000001%"], 1);
    assert!(error.contains("is in a sample of 0.0000001%; expected a larger share"), "{error}");
}

#[test]
fn a_page_of_curves_has_charts_with_explanations() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, page) = (project().join(TRACE), folder.path().join("curve.html"));
    let arguments = ["--policy", "lru,larc", "--sample", "10%", "--size", "10%..100%:10%", "--html"];
    let all = [&["curve", trace.to_str().unwrap()], &arguments[..], &[page.to_str().unwrap()]].concat();
    let shown = succeed(folder.path(), &all);
    assert!(shown.contains("standard error of hits") && shown.contains("Page: "), "{shown}");
    let html = std::fs::read_to_string(&page).unwrap();
    assert_eq!(html.matches("<figure>").count(), 3);
    for said in ["Working set over time", "Read and write hits by cache size", "lru, reads", "95 of 100 samples"] {
        assert!(html.contains(said), "{said}");
    }
    assert!(!html.contains("http://") || html.matches("http://").count() == html.matches("http://www.w3.org").count());
}

/// The curve and the simulation have the same caveats about a sample, and those about unscaled policies at every size.
#[test]
fn a_sample_names_its_unknown_figures() {
    let small = ["curve", TRACE, "--policy", "lru", "--size", "10%", "--sample", "0.1%"];
    let out = succeed(&project(), &small);
    assert!(
        out.contains("lru, size 10%: the sample is small: ") && out.contains("fill the cache, expected --sample"),
        "{out}"
    );
    assert!(succeed(&project(), &[&small[..], &["--csv"]].concat()).contains(",sample_caveat\n"));
    let both = ["--policy", "lru,lecar", "--size", "20%", "--sample", "20%"];
    let said = "what lecar learns from does not become smaller with a sample";
    for command in ["curve", "simulate"] {
        let out = succeed(&project(), &[&[command, TRACE], &both[..]].concat());
        assert!(out.replace('\n', " ").contains(said) && !out.contains("the sample is small"), "{command}: {out}");
    }
    for row in rows(&[&["simulate", TRACE, "--json"], &both[..]].concat()) {
        assert_eq!(row["sample_caveat"].is_string(), row["policy"] == "lecar", "{row}");
    }
}
