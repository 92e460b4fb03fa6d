//! Jobs: parsing inverts formatting in both forms, meanings survive it, and bad jobs are refused by name.

use flashwise_sim::endurance::Algorithm;
use flashwise_sim::job::{Admission, Job, Many, Placement};
use flashwise_sim::size::Size;
use proptest::prelude::*;
use proptest::sample::{Index, subsequence};

/// Words with values that are allowed, of all stages; the first value of each is the default of some layout.
const WORDS: [(&str, &[&str]); 41] = [
    ("policy", &["lru", "larc:fill=ghost", "fif", "m+", "c:buffers=2", "h_t:share=50%", "ripq+:sections=2"]),
    ("warmup", &["0", "10%", "33.3%", "17"]),
    ("epoch", &["1000", "1"]),
    ("layout", &["none", "in-place", "slots", "log", "containers", "wlfc", "wlfc-c", "b-like"]),
    ("ram", &["0", "5%", "12.5%", "64KiB", "1MiB"]),
    ("erase-unit", &["2MiB", "64KiB", "4MiB"]),
    ("spare", &["7%", "10%", "0.28", "0.12345678901234"]),
    ("over-provision", &["10%", "25%"]),
    ("gc-victim", &["greedy", "fifo", "d-choices:d=4"]),
    ("gc-placement", &["own", "mixed"]),
    ("gc-reserve", &["1", "3"]),
    ("wear-levelling", &["5"]),
    ("trim", &["off", "on"]),
    ("device", &["samsung-slc", "femu"]),
    ("drive-writes-per-day", &["1.5"]),
    ("write-buffers", &["4", "2"]),
    ("wfue-alpha", &["50%", "0.3"]),
    ("cache-device", &["slc", "slc:write-amplification=1.5"]),
    ("storage-device", &["mlc", "hdd"]),
    ("storage-size", &["1GiB"]),
    ("admission", &["none", "size:max=64KiB", "adaptive:kind=probability,timeframe=1%", "auto:timeframe=100ms"]),
    ("arrivals", &["none", "trace", "trace:speed=2", "closed:depth=4"]),
    ("sample", &["1%", "0.25", "100%"]),
    ("sample-by", &["blocks", "groups"]),
    ("sample-seed", &["0", "7"]),
    ("bucket", &["4MiB", "256KiB"]),
    ("write-queue", &["50%", "20%"]),
    ("halving", &["7"]),
    ("large-write", &["64KiB"]),
    ("refresh", &["read", "evict"]),
    ("journal-logs", &["1", "100"]),
    ("write-mode", &["write-back", "write-around"]),
    ("write-back-order", &["none", "barriers", "journal"]),
    ("copy-forward", &["used", "young:30%", "none"]),
    ("write-buffer-half-life", &["16", "0"]),
    ("dirty-high", &["50%", "30%"]),
    ("dirty-low", &["40%", "10%"]),
    ("dirty-age", &["15min", "1s"]),
    ("sequential-bypass", &["4MiB", "0"]),
    ("cache-clients", &["all", "none"]),
    ("deny-clients", &["none", "pid:7,program:two words"]),
];

/// Some words with values, in some order.
fn words() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    let of = |(name, values): (&'static str, &'static [&'static str])| {
        any::<Index>().prop_map(move |at| (name, *at.get(values)))
    };
    let some = prop_oneof![subsequence(WORDS.to_vec(), 0..4), subsequence(WORDS.to_vec(), 0..12)];
    some.prop_flat_map(move |some| some.into_iter().map(of).collect::<Vec<_>>()).prop_shuffle()
}

fn quoted(words: &[(&str, &str)]) -> String {
    let word = |(name, value): &(&str, &str)| shlex::try_quote(&format!("{name}={value}")).unwrap().into_owned();
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn read(words: &[(&str, &str)]) -> Result<Job, String> {
    quoted(&[words, &[("size", "10%")]].concat()).parse::<Job>().map_err(|error| error.to_string())
}

fn is_said(words: &[(&str, &str)], name: &str) -> bool {
    words.iter().any(|(said, _)| *said == name)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// A valid job has one canonical spelling, which can be parsed again, as text and as JSON.
    #[test]
    fn jobs_are_read_as_they_are_written(words in words()) {
        let Ok(job) = read(&words) else { return Ok(()) };
        let text = job.to_string();
        let again: Job = text.parse().unwrap();
        prop_assert_eq!(again.to_string(), text.clone());
        prop_assert_eq!(again.meaning().unwrap(), job.meaning().unwrap());
        let json = serde_json::to_string(&job).unwrap();
        let again: Job = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(again.to_string(), text);
        prop_assert_eq!(serde_json::to_string(&again).unwrap(), json);
    }

    /// The canonical spelling has the meaning of the original, independent of the order of words.
    #[test]
    fn written_jobs_keep_their_meaning(words in words()) {
        let Ok(job) = read(&words) else { return Ok(()) };
        let mut backwards = words.clone();
        backwards.reverse();
        prop_assert_eq!(read(&backwards).unwrap().to_string(), job.to_string());
        for (name, value) in &words {
            let shown = job.words().find(|(shown, _)| shown == name);
            if let Some((_, shown)) = shown.filter(|_| !["layout", "spare", "wfue-alpha", "sample"].contains(name)) {
                // Without a unit, a size is shown in bytes; a count stays as it is.
                let size = ["ram", "sequential-bypass"].contains(name);
                prop_assert_eq!(&shown, if *value == "0" && size { "0B" } else { *value });
            }
        }
        for (name, rule) in words.iter().filter(|(name, rule)| *name == "admission" && *rule != "none") {
            prop_assert!(job.words().any(|(shown, text)| shown == *name && text == *rule), "{}", job);
        }
        prop_assert_eq!(job.clone().plain().unwrap().to_string(), job.to_string());
    }

    /// To say a default is to say nothing, where a word does not name a stage that nothing else names.
    #[test]
    fn an_explicit_default_changes_nothing(words in words()) {
        let Ok(job) = read(&words) else { return Ok(()) };
        let (meaning, text) = (job.meaning().unwrap(), job.to_string());
        let mut defaults = vec![("warmup", "0")];
        match &meaning.place {
            Placement::None(_) => defaults.extend([("ram", "0"), ("layout", "none")]),
            Placement::Flash(_) if !is_said(&words, "device") => {
                defaults.extend([("ram", "5%"), ("spare", "7%"), ("erase-unit", "2MiB"), ("trim", "off"), ("gc-victim", "greedy")]);
            }
            Placement::Flash(_) => defaults.extend([("ram", "5%"), ("gc-reserve", "1"), ("wfue-alpha", "50%")]),
            Placement::Log(_, ssd) => {
                defaults.extend([("ram", "0"), ("over-provision", "10%"), ("write-mode", "write-back"), ("dirty-age", "15min")]);
                defaults.extend(ssd.is_some().then_some(("gc-victim", "greedy")));
            }
            Placement::Buckets(..) => defaults.push(("refresh", "read")),
        }
        if meaning.devices.is_some() {
            let storage = if matches!(meaning.place, Placement::Buckets(..)) { "hdd" } else { "mlc" };
            defaults.extend([("cache-device", "slc"), ("storage-device", storage)]);
            defaults.extend([("arrivals", "none"), ("admission", "none")]);
        }
        for default in defaults.into_iter().filter(|(name, _)| !is_said(&words, name)) {
            if let Ok(said) = read(&[&words[..], &[default]].concat()) {
                prop_assert_eq!(said.to_string(), text.clone(), "{:?}", default);
            }
        }
    }
}

/// The words of the properties can be run in all places, and each word in one of them.
#[test]
fn every_word_is_used_by_a_job() {
    let mut places = [0; 4];
    for (name, values) in WORDS {
        for value in values {
            let others: [&[(&str, &str)]; 7] = [
                &[("policy", "lru")],
                &[("policy", "lru"), ("sample", "10%")],
                &[("policy", "lru"), ("layout", "in-place")],
                &[("policy", "c")],
                &[("policy", "lru"), ("layout", "log")],
                &[("layout", "wlfc")],
                &[("layout", "b-like")],
            ];
            let jobs = others.map(|others| {
                let others = others.iter().copied().filter(|(other, _)| *other != name);
                read(&others.chain([(name, *value)]).collect::<Vec<_>>())
            });
            let jobs: Vec<&Job> = jobs.iter().flatten().collect();
            assert!(!jobs.is_empty(), "{name}={value}: {:?}", read(&[("policy", "lru"), (name, value)]));
            for job in jobs {
                places[match job.meaning().unwrap().place {
                    Placement::None(_) => 0,
                    Placement::Flash(_) => 1,
                    Placement::Log(..) => 2,
                    Placement::Buckets(..) => 3,
                }] += 1;
            }
        }
    }
    assert!(places.iter().all(|jobs| *jobs > 5), "{places:?}");
}

#[test]
fn invalid_jobs_are_refused_by_name() {
    let text = |text: &str| text.parse::<Job>().unwrap_err().to_string();
    let json = |text: &str| serde_json::from_str::<Job>(text).unwrap_err().to_string();
    for (found, expected) in [
        (text("policy=lru"), "size is missing, expected one such as 10%"),
        (text("size=10%"), "policy is missing, expected one of `flashwise policies`"),
        (text("policy=lru size=10% size=10%"), "size: found it twice, expected it once"),
        (text("policy=lru size"), "found 'size', expected words such as policy=lru size=10%"),
        (text("policy=lru 'size=10%"), "found 'policy=lru 'size=10%', expected words"),
        (text("policy=lru size=0%"), "size: size '0%': a cache holds at least one block"),
        (text("policy=lru size=1%,2%"), "size: size '1%,2%': expected a share such as 10%"),
        (text("policy=lrc size=1%"), "policy: unknown policy 'lrc' (did you mean 'lru'?)"),
        (
            text("policy=size:max=64KiB size=1%"),
            "policy: 'size' is an admission rule, not a value of --policy; use --admission size",
        ),
        (
            text("policy=none size=1%"),
            "policy: 'none' is an admission rule, not a value of --policy; use --admission none",
        ),
        (text("policy=wlfc size=1%"), "policy: 'wlfc' is a layout, not a value of --policy; use --layout wlfc"),
        (
            text("policy=lru admission=larc size=1%"),
            "admission: 'larc' is a policy, not a value of --admission; use --policy larc",
        ),
        (
            text("policy=lru size=1% rem=0"),
            "rem: found an unknown word (did you mean 'ram'?); expected one of: policy, size",
        ),
        (text("policy=lru size=1% admission=size:max=4KiB..8KiB:x2"), "admission: found 2 rules, expected one"),
        (text("policy=lru size=1% epoch=0"), "epoch: found '0', expected a whole number of at least 1"),
        (text("policy=lru size=1% layout=shelves"), "layout: found 'shelves', expected none, in-place, log"),
        (
            text("policy=lru size=1% layout=log ram=6KiB"),
            "--ram: found '6KiB', expected a multiple of 4KiB, such as 4KiB",
        ),
        (text("policy=m+ size=1% write-mode=write-back"), "--write-mode is of --layout log"),
        (
            text("policy=fif size=1% layout=in-place"),
            "fif and --layout in-place: it maximises hits only; with simulated flash, m is the best",
        ),
        (text("policy=m+ size=1% admission=size"), "m+ and "),
        (text("policy=lru size=1% layout=wlfc"), "--layout wlfc and --policy: it decides itself what it keeps"),
        (json("[]"), "invalid type: sequence, expected a job such as {\"policy\": \"lru\", \"size\": \"10%\"}"),
        (json(r#"{"policy": "lru", "size": null}"#), "invalid type: null, expected text or a number as size at line 1"),
        (json(r#"{"policy": "lru", "sise": 1}"#), "sise: found an unknown word (did you mean 'size'?)"),
        (
            json(r#"{"policy": "lru", "size": 100, "epoch": 1.5}"#),
            "epoch: found '1.5', expected a whole number of at least 1 at line 1",
        ),
    ] {
        assert!(found.starts_with(expected), "{found}");
    }
}

/// A list is every combination; what cannot be run is left out of what was not named.
#[test]
fn many_jobs_are_every_combination() {
    let texts = |many: &Many| many.jobs().unwrap().iter().map(Job::to_string).collect::<Vec<_>>();
    let choices = |names: &[&str]| names.iter().map(|name| name.parse::<Algorithm>().unwrap()).collect::<Vec<_>>();
    let sizes = Size::parse_list("1%,400").unwrap();
    let two = Many { policies: choices(&["lru", "m+"]), sizes, ..Many::default() };
    // Said twice, in words that mean the same, it is there once.
    let again = Many {
        policies: choices(&["belady", "OPT", "fif", "LRU"]),
        sizes: Size::parse_list("1%,400,1%").unwrap(),
        ..Many::default()
    };
    assert_eq!(
        texts(&again),
        ["policy=fif size=1%", "policy=fif size=400", "policy=lru size=1%", "policy=lru size=400"]
    );
    // An algorithm names a layout, for all of them.
    let flash = [
        "policy=lru size=1% layout=in-place",
        "policy=lru size=400 layout=in-place",
        "policy=m+ size=1%",
        "policy=m+ size=400",
    ];
    assert_eq!(texts(&two), flash);
    // With and without a rule, the devices are the same.
    let admissions: Vec<Admission> = vec![Admission::None, "size".parse().unwrap()];
    let base = Job { layout: "log".parse().ok(), ..Job::default() };
    let rules = Many {
        base,
        policies: choices(&["lru"]),
        sizes: Size::parse_list("1GiB").unwrap(),
        admissions,
        ..Many::default()
    };
    assert_eq!(
        texts(&rules),
        ["policy=lru size=1GiB layout=log cache-device=slc", "policy=lru size=1GiB layout=log admission=size"]
    );
    // Those that know the future are left out behind a rule, and named they are refused.
    let arrivals = Job { arrivals: "trace".parse().ok(), ..Job::default() };
    let all = Many { base: arrivals.clone(), sizes: Size::parse_list("1%").unwrap(), ..Many::default() };
    let online = texts(&all);
    assert!(online.len() > 15 && online.iter().all(|job| job.ends_with(" size=1% arrivals=trace")), "{online:?}");
    assert!(!online.iter().any(|job| job.starts_with("policy=fif ") || job.starts_with("policy=min ")), "{online:?}");
    let named = Many { base: arrivals, policies: choices(&["min"]), ..Many::default() };
    assert!(named.jobs().unwrap_err().to_string().starts_with("min and --"));
}
