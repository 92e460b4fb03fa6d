//! `flashwise advise`: its output, the configuration that it writes, its page, and refused options.

use std::sync::LazyLock;

use crate::common::{fail, project, run, succeed};
use serde_json::Value;
use tempfile::TempDir;

const TRACE: &str = "traces/netsfs.csv.zst";
/// Options that leave few caches to simulate.
const WAY: [&str; 8] =
    ["--policy", "larc:writes=admit", "--admission", "none", "--over-provision", "10%", "--write-mode", "write-back"];

/// The first requests of the trace, a sixtieth of its time; the tests that use it do not depend on the rest.
fn cut() -> &'static str {
    static CUT: LazyLock<(TempDir, String)> = LazyLock::new(|| {
        let folder = TempDir::new().unwrap();
        let trace = folder.path().join("cut.arrow").to_str().unwrap().to_owned();
        succeed(&project(), &["trace", "cut", TRACE, &trace, "--requests", "..20000"]);
        (folder, trace)
    });
    &CUT.1
}

/// The example catalogue with more disks, which can do the work of the trace.
fn many_disks() -> &'static str {
    static CATALOGUE: LazyLock<(TempDir, String)> = LazyLock::new(|| {
        let folder = TempDir::new().unwrap();
        let catalogue = folder.path().join("catalogue.toml").to_str().unwrap().to_owned();
        let example = succeed(&project(), &["advise", "--print-catalogue"]);
        std::fs::write(&catalogue, example.replace("\ndevices = 4\n", "\ndevices = 96\n")).unwrap();
        (folder, catalogue)
    });
    &CATALOGUE.1
}

fn ask(trace: &str, more: &[&str]) -> Value {
    let arguments = [&["advise", trace, "--json"], &WAY[..], more].concat();
    serde_json::from_str(&succeed(&project(), &arguments)).unwrap()
}

#[test]
fn the_configuration_is_one_that_serve_takes_and_the_job_one_that_simulate_runs() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (config, html, job) = (path("flashwise.toml"), path("advice.html"), path("job.json"));
    let (backend, flash) = (path("disk.img"), path("cache.img"));
    std::fs::File::create(&backend).unwrap().set_len(1 << 30).unwrap();
    let names = ["--write-config", &config, "--backend", &backend, "--flash", &flash, "--html", &html];
    let trace = cut();
    let question = ["--latency", "25ms", "--years", "3", "--devices", many_disks()];
    let advice = ask(trace, &[&question, &names[..]].concat());
    assert_eq!(advice["verdict"], "buy");
    let cache = &advice["cache"];
    assert!(
        cache["latency_mean_us"].as_f64().unwrap() <= 25_000.0
            && cache["cache_lifetime_years"].as_f64().unwrap() >= 3.0
    );
    let checked = succeed(&project(), &["serve", "--check-config", &config]);
    assert!(checked.contains("data"), "{checked}");
    let words = cache["job"].as_str().unwrap();
    let words: serde_json::Map<String, Value> = shlex::split(words)
        .unwrap()
        .iter()
        .map(|word| word.split_once('=').unwrap())
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    std::fs::write(&job, serde_json::to_string(&words).unwrap()).unwrap();
    let rows: Value =
        serde_json::from_str(&succeed(&project(), &["simulate", trace, "--job", &job, "--json"])).unwrap();
    for key in ["latency_mean_us", "hit_ratio"] {
        assert_eq!(rows[0][key], cache[key], "{key}");
    }
    let page = std::fs::read_to_string(&html).unwrap();
    for part in ["<title>Cache for ", "<h1>Which cache to buy", "Certainty: low", "Before you buy", "Alternatives"] {
        assert!(page.contains(part), "{part}");
    }
    // The first picture and the evidence are different ones, wide and narrow: latency and lifetime.
    let drawn = |label: &str| page.matches(&format!(">{label}<")).count();
    let labels = ["Mean wait of a request, in ms", "Lifetime of the flash, in years"];
    assert_eq!(labels.map(drawn), [2, 2]);
    // A point tells what it is when it is pointed at.
    let recommended = "<title>mixed-use 800 GB with 256 MiB of RAM for 193 USD: 18 ms, years: 6.65, hits: 5.45%; ";
    assert_eq!(page.matches(recommended).count(), 4, "{page}");
    assert!(page.contains("<title>The storage without a cache, for ") && !page.contains("<title>meets"));
    // Each picture has a line for its target; the first also shows the recommended cache at its cost.
    for (part, times) in
        [("<title>The target: 25 ms</title>", 2), ("<title>The target: 3 years</title>", 2), (">193 USD</text>", 2)]
    {
        assert_eq!(page.matches(part).count(), times, "{part}");
    }
}

/// The cost follows the catalogue: 480 GB at 0.16 per GB and a quarter of a GiB of RAM at 5 per GiB.
#[test]
fn the_cheapest_purchase_of_the_example_has_the_catalogues_price() {
    let advice = ask(cut(), &["--latency", "25ms", "--years", "0", "--devices", many_disks()]);
    assert_eq!(advice["cache"]["cost"].as_f64().unwrap(), 480.0 * 0.16 + 0.25 * 5.0);
    let cautions = advice["cautions"].to_string();
    for told in ["The trace is short", "cheapest flash that the catalogue has", "write-back"] {
        assert!(cautions.contains(told), "{told}: {cautions}");
    }
    assert!(advice["certainty"]["verdict"] == "low");
}

#[test]
fn without_an_answer_the_nearest_cache_and_a_target_to_relax_are_named() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("flashwise.toml").to_str().unwrap().to_owned();
    let devices = many_disks();
    let question = ["advise", cut(), "--latency", "1ms", "--devices", devices, "--write-config", &config];
    let arguments = [&question, &WAY[..]].concat();
    let (told, err, code) = run(&project(), &arguments);
    for part in
        ["No cache here meets 1 ms and 5 years: with ", "That is the nearest of ", "Relax the latency: with --latency "]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    let expected = format!(
        "flashwise: {config}: no configuration was written, since no cache meets the targets\n\
         flashwise: no cache here meets 1 ms and 5 years\n"
    );
    assert_eq!((err, code), (expected, 1));
    assert!(!std::path::Path::new(&config).exists());
    let question = ["advise", cut(), "--latency", "1s", "--devices", devices];
    let enough = succeed(&project(), &[&question, &WAY[..]].concat());
    let expected = "Buy no cache: without one, a request waits 412 ms on average.";
    assert!(enough.starts_with(expected), "{enough}");
}

/// The four disks of the example catalogue cannot do the work of the trace: the first sentence has the factor.
#[test]
fn the_first_sentence_names_overloaded_disks() {
    let arguments = [&["advise", cut(), "--latency", "6ms", "--years", "0"], &WAY[..]].concat();
    let (told, err, code) = run(&project(), &arguments);
    assert_eq!((err.as_str(), code), ("flashwise: no cache here meets 6 ms\n", 1));
    let sentence = told.lines().next().unwrap();
    assert!(sentence.starts_with("No cache here meets 6 ms at this load: the storage gets at least "), "{told}");
    assert!(sentence.ends_with(" times the work it can do."), "{told}");
    for part in ["such storage devices in place of 4, a request would wait ", "Prices come from the example catalogue"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn invalid_questions_are_refused() {
    let folder = TempDir::new().unwrap();
    let catalogue = folder.path().join("ours.toml").to_str().unwrap().to_owned();
    std::fs::write(&catalogue, "[storage]\ndevice = \"hdd\"\n[ram]\nprice-per-gib = 1\nsizes = \"1GiB\"\n").unwrap();
    let refused = |arguments: &[&str]| fail(&project(), &[&["advise", TRACE], arguments].concat(), 2);
    let told = refused(&["--latency", "1ms", "--devices", &catalogue]);
    assert!(
        told.contains("ours.toml: [[cache]] is missing, expected at least one device that can be bought"),
        "{told}"
    );
    assert!(refused(&[]).contains("expected --latency"));
    assert!(refused(&["--latency", "fast"]).contains("'fast'"));
    assert!(refused(&["--latency", "1ms", "--years=-1"]).contains("expected a number of years from 0 to 100"));
    assert!(refused(&["--latency", "1ms", "--policy", "min"]).contains("knows the future"));
    assert!(refused(&["--latency", "1ms", "--write-mode", "back"]).contains("write-back"));
    let printed = succeed(&project(), &["advise", "--print-catalogue"]);
    std::fs::write(&catalogue, &printed).unwrap();
    let mixed = mixed(&folder);
    let advise = |more: &[&str]| {
        let question = ["advise", &mixed, "--latency", "6ms", "--years", "0", "--json"];
        let advice: Value = serde_json::from_str(&succeed(&project(), &[&question[..], &WAY, more].concat())).unwrap();
        advice["cache"].clone()
    };
    let bought = advise(&[]);
    assert!(bought["cost"].as_f64() > Some(0.0), "{bought}");
    assert_eq!(advise(&["--devices", &catalogue]), bought);
}

/// A short trace for which a cache is bought.
fn mixed(folder: &TempDir) -> String {
    succeed(folder.path(), &["trace", "generate", "--blocks", "5000", "--accesses", "20000", "mixed.arrow"]);
    folder.path().join("mixed.arrow").to_str().unwrap().to_owned()
}

#[test]
fn a_configuration_is_not_replaced_unasked() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("flashwise.toml");
    let [config_name, backend] = [config.to_str().unwrap(), "/dev/sdz"];
    std::fs::write(&config, "# mine\n").unwrap();
    let mixed = mixed(&folder);
    let write = ["advise", &mixed, "--latency", "6ms", "--write-config", config_name, "--backend", backend];
    let more = [&write[..], &["--flash", "/dev/sdy"], &WAY].concat();
    let error = fail(&project(), &more, 2);
    assert!(error.contains("found a file, expected none, or --force to replace it"), "{error}");
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "# mine\n");
    succeed(&project(), &[&more[..], &["--force"]].concat());
    assert!(std::fs::read_to_string(&config).unwrap().contains("write-mode = \"write-back\""));
}

/// Without writes, no data is only on flash. So the write mode that never keeps any there is equally good.
#[test]
fn a_trace_of_reads_needs_no_write_back() {
    let folder = TempDir::new().unwrap();
    let generate = ["trace", "generate", "--read-share", "1", "--blocks", "5000", "--accesses", "20000", "reads.arrow"];
    succeed(folder.path(), &generate);
    // RAM that holds all costs more than flash here.
    let example = succeed(folder.path(), &["advise", "--print-catalogue"]);
    let dear = example.replace("price-per-gib = 5", "price-per-gib = 1000");
    let dear =
        dear.replace("sizes = \"256MiB,1GiB,4GiB\"", "sizes = \"2MiB\"").replace("devices = 4\n", "devices = 96\n");
    std::fs::write(folder.path().join("dear.toml"), dear).unwrap();
    let advise = ["advise", "reads.arrow", "--devices", "dear.toml", "--latency", "4ms", "--json"];
    let way = ["--policy", "lru", "--admission", "none"];
    let advice: Value = serde_json::from_str(&succeed(folder.path(), &[&advise[..], &way].concat())).unwrap();
    assert_eq!((&advice["verdict"], &advice["cache"]["write_mode"]), (&"buy".into(), &"write-through".into()));
    let alternatives = advice["alternatives"].as_array().unwrap();
    assert!(alternatives.iter().all(|other| other["kind"] != "safer"), "{alternatives:?}");
    assert!(!advice["cautions"].to_string().contains("only on this flash"), "{}", advice["cautions"]);
}

/// The price of flash for all data is that of the cheapest cache without its RAM. So no cache is bought, even if one
/// meets the targets.
#[test]
fn without_a_purchase_no_configuration_is_written() {
    let folder = TempDir::new().unwrap();
    let catalogue = "currency = \"USD\"\n[storage]\ndevice = \"hdd\"\ndevices = 4\ndata-gb = 1\n[ram]\nprice-per-gib = \
        5\nsizes = \"64MiB\"\n\
                     [[cache]]\nname = \"slice\"\ndevice = \"9200-max\"\ncapacity-gb = 4\nprice = 10\n";
    std::fs::write(folder.path().join("ours.toml"), catalogue).unwrap();
    succeed(folder.path(), &["trace", "generate", "--blocks", "5000", "--accesses", "20000", "mixed.arrow"]);
    let question = ["advise", "mixed.arrow", "--devices", "ours.toml", "--latency", "8ms", "--years", "0"];
    let files = ["--write-config", "flashwise.toml", "--html", "advice.html"];
    let (told, err, code) = run(folder.path(), &[&question[..], &files, &WAY].concat());
    assert!(told.starts_with("Buy no cache but 1 of slice for all 1 GB: that costs 10 USD"), "{told}");
    assert!(told.contains("\nbest cache  slice") && !told.contains("Configuration: "), "{told}");
    let expected = "flashwise: flashwise.toml: no configuration was written, since the advice is to buy no cache\n";
    assert_eq!((err.as_str(), code), (expected, 0));
    assert!(!folder.path().join("flashwise.toml").exists());
    let page = std::fs::read_to_string(folder.path().join("advice.html")).unwrap();
    assert!(page.contains("best cache") && !page.contains("recommended"));
}

/// In write-back, RAM answers writes. That is quick, but not free.
#[test]
fn a_trace_of_writes_has_a_latency_above_zero() {
    let folder = TempDir::new().unwrap();
    succeed(
        folder.path(),
        &["trace", "generate", "--read-share", "0", "--blocks", "5000", "--accesses", "20000", "writes.arrow"],
    );
    let told = succeed(folder.path(), &[&["advise", "writes.arrow", "--latency", "5ms"], &WAY[..]].concat());
    for part in [
        "a request waits less than 1 us on average, since RAM answers it.",
        "without a cache it waits 21.8 s on average",
        " < 1 us ",
        "a request waits less than 1 us in the worst 1 s",
        "A client that flushes waits for the flash; the latency does not include that.",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains(" 0 us") && !told.contains(" 0 s"), "{told}");
}
