//! The same requests give the same figures in the simulator and in the server's engine, for every policy, write mode
//! and RAM.
//!
//! The engine runs over disks in memory whose transfers end in random order. With one request at once, all of its work
//! ends before the next request, as the simulator assumes. With several, blocks being written back stay dirty for
//! longer. A replay that knows the end of each batch is equal again, so this is the only possible difference.

mod live;
mod workload;

use std::collections::HashMap;

use flashwise_core::access::{Access, NEVER, Op};
use flashwise_core::admission::Admission;
use flashwise_core::cache::{Cache, Config, CopyForward, Kind, Mode, WriteBackOrder, admission};
use flashwise_core::counters::Counters;
use flashwise_core::format::Geometry;
use flashwise_core::index::Dense;
use flashwise_core::policy::{POLICIES, Policy, Spec, Visitor};
use flashwise_device::paper;
use flashwise_sim::cache_run::{CacheCounts, CacheRun};
use flashwise_trace::normalised;
use flashwise_trace::progress::Silent;
use flashwise_trace::request_file::CacheRequest;

use live::{Event, Live};

const MODES: [Mode; 3] = [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround];

/// A cache of 1.5 MiB with thresholds and ages that a short run reaches; `ram` blocks of RAM.
fn config(policy: &str, mode: Mode, ram: u32) -> Config {
    Config {
        mode,
        read_buffer_blocks: ram / 2,
        write_buffer_blocks: ram - ram / 2,
        dirty_high: 0.3,
        dirty_low: 0.2,
        dirty_age_us: 3_000_000,
        commit_age_us: 2_000_000,
        sequential_blocks: 48,
        ..Config::new(Geometry { units: 24, unit_pages: 16 }, Spec::parse(policy).unwrap())
    }
}

/// Admission rules of every kind, those that adapt as quickly as a short run needs.
const RULES: [&str; 9] = [
    "size:max=16KiB",
    "probability:p=0.5",
    "hotness:min=2",
    "hotness:top=10%",
    "adaptive:kind=probability,timeframe=500ms,target=1h",
    "adaptive:kind=size,timeframe=500ms,target=1ms",
    "adaptive:kind=hotness,timeframe=500ms,target=1h,objective=lifetime",
    "auto:timeframe=500ms",
    "write-budget:writes-per-day=100000,interval=1s",
];

fn behind(rule: &str, config: Config) -> Config {
    let rule = admission(rule.parse().unwrap(), &paper(), &config.geometry, workload::VOLUME_BLOCKS * 4096);
    Config { admission: Some(rule), ..config }
}

/// Every online policy in every write mode without RAM and with some, every admission rule, and write-back in order.
fn configs() -> Vec<Config> {
    let policies: Vec<_> = POLICIES.iter().filter(|info| !info.offline).map(|info| info.name).collect();
    assert!(policies.len() >= 11, "{policies:?}");
    let mut configs = Vec::new();
    for policy in policies {
        for mode in MODES {
            configs.extend([0, 40].map(|ram| config(policy, mode, ram)));
        }
    }
    for (rule, policy) in RULES.into_iter().zip(["lru", "larc", "s3-fifo", "arc"].into_iter().cycle()) {
        configs.extend(
            [(Mode::WriteBack, 40), (Mode::WriteThrough, 0)].map(|(mode, ram)| behind(rule, config(policy, mode, ram))),
        );
    }
    for (policy, mode, ram) in
        [("larc", Mode::WriteBack, 40), ("lru", Mode::WriteBack, 0), ("lru", Mode::WriteThrough, 0)]
    {
        configs.push(Config { order: WriteBackOrder::Barriers, ..config(policy, mode, ram) });
    }
    configs
}

fn simulated(config: &Config, requests: &[CacheRequest]) -> CacheCounts {
    let mut run = CacheRun::new(config.clone());
    for request in requests {
        run.request(request);
    }
    run.cache().check();
    run.counts()
}

/// A replay with the times of ticks, and the ends of write-back, of writes past the flash, and of flushes of the
/// backend.
fn replayed(config: &Config, events: &[Event]) -> CacheCounts {
    let mut run = CacheRun::new(config.clone());
    run.leave_open();
    for event in events {
        match event {
            Event::Tick(tick_us) => run.tick(*tick_us),
            Event::Request(request) => run.plan(request),
            Event::Ended(batch) => run.end_batch(*batch),
            Event::WentPast(frame) => run.end_past(*frame),
            Event::Flushed => run.end_flush(),
        }
    }
    run.counts()
}

fn described(config: &Config) -> String {
    let Config { policy, mode, order, read_buffer_blocks, .. } = config;
    let rule = config.admission.as_ref().map_or("no rule".to_owned(), |admission| admission.rule.to_string());
    format!("{policy}, {rule}, {mode:?}, order {}, {read_buffer_blocks} blocks of read buffer", order.name())
}

/// Requests of a random run, one at a time.
const REQUESTS: usize = 1000;

#[test]
fn a_random_run_with_one_request_at_a_time_has_the_same_figures_in_the_simulator() {
    for (seed, config) in (1..).zip(configs()) {
        let requests = workload::random(seed, REQUESTS);
        let mut live = Live::new(&config, seed, 1);
        live.run(&requests);
        assert_eq!(live.counts(), simulated(&config, &requests), "{}", described(&config));
        live.verify();
        workload::assert_exercised(&config, &live.counts());
    }
}

#[test]
fn concurrent_random_runs_differ_only_in_times_of_write_back() {
    let mut differing = 0;
    for (seed, config) in (1..).zip(configs()) {
        let requests = workload::random(seed, 500);
        let mut live = Live::new(&config, seed, 16);
        live.run(&requests);
        assert_eq!(live.counts(), replayed(&config, live.events()), "{}", described(&config));
        live.verify();
        differing += usize::from(live.counts() != simulated(&config, &requests));
    }
    assert!(differing > 0, "transfers that take their time make a difference, or nothing was tested");
}

/// Where no rule refuses anything or decides, the tests above show nothing of rules.
#[test]
fn rules_refuse_and_decide_in_random_runs() {
    for (seed, config) in (1..).zip(configs()).filter(|(_, config)| config.admission.is_some()) {
        let mut run = CacheRun::new(config.clone());
        workload::random(seed, REQUESTS).iter().for_each(|request| run.request(request));
        let rule = described(&config);
        assert!(run.counts().counters.bypasses() > 0 || rule.contains("auto"), "{rule}: nothing is refused");
        let decisions = run.cache().decision().map_or(0, |decision| decision.number);
        assert!(decisions > 10 || !rule.contains("timeframe"), "{rule}: {decisions} decisions");
    }
}

/// Figures that do not depend on the time of write-back: nothing is dirty on flash. In order, changes wait for flushes,
/// and reads pass them.
#[test]
fn without_dirty_blocks_many_requests_at_a_time_make_no_difference() {
    let is_any = |config: &Config| config.mode != Mode::WriteBack && config.order == WriteBackOrder::None;
    for (seed, config) in (1..).zip(configs()).filter(|(_, config)| is_any(config)) {
        let requests = workload::random(seed, 500);
        let mut live = Live::new(&config, seed, 16);
        live.run(&requests);
        assert_eq!(live.counts(), simulated(&config, &requests), "{}", described(&config));
    }
}

/// The first requests of the bundled trace. Their addresses span 12 GiB, too much for a disk in memory, so regions of 1
/// MiB are placed in the order of first use.
fn netsfs(count: usize) -> Vec<CacheRequest> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/netsfs.csv.zst");
    let path = path.to_str().unwrap();
    let (_, file) = normalised::open_with_requests(path, &normalised::Settings::default(), &Silent).unwrap();
    let mut requests = Vec::new();
    let mut regions = HashMap::new();
    file.for_each(|request| {
        let next = regions.len() as u64;
        let region = *regions.entry(request.offset_bytes >> 20).or_insert(next);
        let offset_bytes = (region << 20) + request.offset_bytes % (1 << 20);
        let end_bytes = offset_bytes + request.length_bytes;
        if requests.len() < count && end_bytes <= workload::BACKEND_BLOCKS * 4096 {
            requests.push(CacheRequest { offset_bytes, ..*request });
        }
    })
    .unwrap();
    assert_eq!(requests.len(), count);
    requests
}

#[test]
fn a_real_trace_has_the_same_figures_in_the_simulator() {
    let requests = netsfs(10_000);
    for mode in MODES {
        for (policy, ram) in [("larc", 0), ("lru", 512), ("s3-fifo", 64)] {
            let config = Config {
                geometry: Geometry { units: 40, unit_pages: 64 },
                sequential_blocks: 1024,
                dirty_age_us: 60_000_000,
                ..config(policy, mode, ram)
            };
            let mut live = Live::new(&config, 1, 1);
            live.run(&requests);
            assert_eq!(live.counts(), simulated(&config, &requests), "{}", described(&config));
            let figures = live.counts().figures;
            // Where writes go around the flash, less is written than it has room for.
            let is_busy =
                if mode == Mode::WriteAround { figures.flash_admission_blocks > 100 } else { figures.erasures > 0 };
            assert!(is_busy, "{}: {figures:?}", described(&config));
        }
    }
}

/// A policy by itself, or behind a rule, as `simulate` runs it over a trace's blocks.
struct Alone<'a>(&'a [CacheRequest]);

impl Visitor<u32> for Alone<'_> {
    type Output = Counters;

    fn visit<P: Policy<Key = u32>>(self, mut policy: P) -> Counters {
        let mut counters = Counters::default();
        for request in self.0 {
            let op = if request.kind == Kind::Read { Op::Read } else { Op::Write };
            let request_blocks = (request.length_bytes / 4096) as u32;
            let first = (request.offset_bytes / 4096) as u32;
            policy.tick(request.time_us);
            for block in first..first + request_blocks {
                let outcome = policy.access(Access { block, op, request_blocks, next_use: NEVER });
                counters.record(op, &outcome);
            }
        }
        counters
    }
}

#[test]
fn a_policy_is_asked_the_same_in_the_whole_cache_as_by_itself() {
    let policies = POLICIES.iter().filter(|info| !info.offline).map(|info| (info.name, None));
    // A budget also pays for headers and copies, which a policy by itself does not have.
    let rules = RULES.into_iter().filter(|rule| !rule.contains("writes-per-day"));
    for (name, rule) in policies.chain(rules.map(|rule| ("lru", Some(rule)))) {
        let mut requests = workload::random(7, 6000);
        requests.retain(|request| matches!(request.kind, Kind::Read | Kind::Write));
        for request in &mut requests {
            request.offset_bytes -= request.offset_bytes % 4096;
            request.length_bytes = request.length_bytes.next_multiple_of(4096).min(8 * 4096);
            request.durable = false;
            // For clients that are kept out, the policy of the whole cache is not asked.
            request.caching = Default::default();
        }
        // With so much space to spare, no block that the policy wants is dropped for lack of it.
        let geometry = Geometry { units: 64, unit_pages: 16 };
        let copy_forward = CopyForward::All;
        let plain = Config {
            geometry,
            copy_forward,
            sequential_blocks: 0,
            over_provision: 0.5,
            ..config(name, Mode::WriteBack, 0)
        };
        let config = rule.map_or(plain.clone(), |rule| behind(rule, plain));
        let (index, capacity) = (Dense::new(workload::VOLUME_BLOCKS as usize + 8), config.capacity_blocks());
        let alone = match &config.admission {
            Some(Admission { rule, setting }) => {
                Alone(&requests).visit(rule.build(&config.policy, index, capacity, setting))
            }
            None => config.policy.build(index, capacity, Alone(&requests)),
        };
        let whole = simulated(&config, &requests);
        assert_eq!(whole.counters, alone, "{}", described(&config));
        // SMQ replaces what it has only where something else was hotter for long.
        let busy = if name == "smq" {
            alone.hits() > 1000
        } else if rule.is_none() {
            alone.replacements() > 1000 && whole.figures.erasures > 10
        } else {
            alone.admissions() > 100 && alone.hits() > 1000
        };
        assert!(busy, "{}: {alone:?}", described(&config));
    }
}
