//! Random devices, settings and clients, and a backend that hangs or becomes slower or faster. The bounds hold for all
//! of them.

use std::ops::Range;
use std::sync::Mutex;
use std::time::Duration;

use flashwise_core::cache::settings::Settings;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_storage::export::Operation;
use flashwise_storage::layout::LAYOUTS;
use flashwise_testing::budget::{Budget, on_all_cores};
use flashwise_testing::random::Random;
use flashwise_testing::setting;

use super::device::Speed;
use super::events::Event;
use super::{Client, Measured, Pattern, Scenario, ms};

const CACHED_MIB: u64 = 2;
const BACKEND_MIB: u64 = 256;

/// No answer to a write is held back for longer.
const PAUSE_MAX: Duration = ms(200);
/// Blocks that the cleaner reads from flash at once.
const CLEANED_AT_ONCE: u32 = 32;
/// A segment waits for no read or flush of the backend for longer.
const SEGMENT_WAITS_MAX: Duration = ms(550);
/// Writes past the flash that can be on their way besides those that the write buffer has room for.
const PAST_BESIDE_BUFFER: u64 = 128;
/// Transfers of the background that are under way at once while no flush waits.
const BACKGROUND_MAX: usize = 16;

fn client(
    random: &mut Random,
    kind: &'static str,
    operation: Operation,
    mib: Range<u64>,
    thinks: Range<u64>,
) -> Client {
    Client {
        pattern: random.pick(&[Pattern::Anywhere, Pattern::Anywhere, Pattern::Skewed, Pattern::Onwards]),
        kib: random.pick(&[4, 4, 4, 16, 64]),
        ..Client::new(kind, operation, mib, ms(thinks.start + random.below(thinks.end - thinks.start)))
    }
}

fn clients(random: &mut Random) -> Vec<Client> {
    let (cached, others) = (0..CACHED_MIB, CACHED_MIB..BACKEND_MIB);
    let mut clients = Vec::new();
    for _ in 0..1 + random.below(3) {
        clients.push(client(random, "hit", Operation::Read, cached.clone(), 2..20));
    }
    for _ in 0..random.below(4) {
        clients.push(client(random, "read", Operation::Read, others.clone(), 5..100));
    }
    for _ in 0..1 + random.below(6) {
        clients.push(client(random, "write", Operation::Write, others.clone(), 2..50));
    }
    for _ in 0..random.below(3) {
        clients.push(Client::flushes(ms(50 + random.below(500))));
    }
    clients
}

fn scenario(seed: u64) -> Scenario {
    let random = &mut Random(seed);
    let (high, low) = random.pick(&[("50%", "40%"), ("20%", "10%"), ("80%", "30%")]);
    let settings = vec![
        ("erase-unit", random.pick(&["256KiB", "1MiB"])),
        ("policy", random.pick(&["lru", "larc", "fifo", "arc", "s3-fifo"])),
        ("ram", random.pick(&["0", "1MiB", "8MiB", "32MiB"])),
        ("dirty-high", high),
        ("dirty-low", low),
        ("dirty-age", random.pick(&["10s", "15min"])),
        ("commit-age", random.pick(&["1s", "5s"])),
        ("copy-forward", random.pick(&["used", "all", "none"])),
    ];
    let clients = clients(random);
    let backend = Speed::disk(1 + random.below(12));
    let mut events = Vec::new();
    for _ in 0..random.below(4) {
        let event = match random.below(2) {
            0 => Event::Hangs(ms(200 + random.below(15_000))),
            _ => Event::BackendIs(Speed::disk(1 + random.below(12))),
        };
        events.push((ms(2_000 + random.below(10_000)), event));
    }
    Scenario {
        layout: LAYOUTS[0].1,
        settings,
        flash: Speed::ssd(random.pick(&[20, 50, 100])),
        flash_mib: random.pick(&[32, 64]),
        backend,
        more_disks: Vec::new(),
        backend_mib: BACKEND_MIB,
        journal_mib: 0,
        drains: false,
        cached_mib: CACHED_MIB,
        clients,
        lasts: Duration::from_secs(10 + random.below(40)),
        events,
        is_drawn: false,
    }
}

/// Returns the bounds of a scenario: the name of each, and the time found and allowed.
fn bounds(scenario: &Scenario, measured: &Measured) -> Vec<(&'static str, Duration, Duration)> {
    let slower = scenario.events.iter().filter_map(|(_, event)| match event {
        Event::BackendIs(speed) => Some(speed.block),
        _ => None,
    });
    let slowest = slower.fold(scenario.backend.block, Duration::max);
    let write_buffer = Settings::of(&scenario.settings).unwrap().ram_bytes() / 2 / BLOCK_BYTES as u64;
    // A write past the flash can have all others ahead of it, and as many of write-back, since the two take turns.
    let past = slowest * 2 * (write_buffer + PAST_BESIDE_BUFFER) as u32;
    let flash = ms(20) + (scenario.flash.block + scenario.flash.further) * CLEANED_AT_ONCE;
    // With the wait for requests that are ahead there. A request can need two in a row: it reads a block and writes it.
    let at_backend = measured.backend.longest;
    let of = |kind, share| match measured.requests.contains_key(kind) {
        true => measured.wait(kind, share, Duration::ZERO),
        false => Duration::ZERO,
    };
    let read = of("read", 1.0).max(of("hit", 1.0));
    vec![
        // Of the many reads of cached blocks: among the others can be so few hits that one wait is more than 1%.
        ("99% of hits", measured.hit("hit", 0.99), flash),
        // A hit waits for the backend only where its segment does.
        ("longest hit", measured.hit("hit", 1.0).max(measured.hit("read", 1.0)), flash + SEGMENT_WAITS_MAX),
        ("longest read", read, flash + at_backend * 2 + past),
        ("longest write", of("write", 1.0), PAUSE_MAX + flash + at_backend * 2 + past),
        ("longest flush", of("flush", 1.0), flash + at_backend * 2 + past),
    ]
}

/// Runs a scenario. Returns the bounds that it does not keep.
fn run(seed: u64) -> Vec<String> {
    let scenario = scenario(seed);
    let measured = scenario.clone().run(seed);
    let bounds = bounds(&scenario, &measured);
    let broken = bounds.iter().filter(|(_, found, most)| found > most);
    let mut broken: Vec<_> = broken.map(|bound| format!("seed {seed}: {bound:?}")).collect();
    let flushes = scenario.clients.iter().any(|client| client.operation == Operation::Flush);
    let blocks: u64 = scenario.clients.iter().map(|client| client.kib / super::BLOCK_KIB).sum();
    let (found, most) = (measured.backend.most_queued, blocks as usize + BACKGROUND_MAX);
    if !flushes && found > most {
        broken.push(format!("seed {seed}: the backend has {found} transfers at once, expected at most {most}"));
    }
    broken
}

#[test]
fn random_volumes_keep_their_bounds() {
    let (first, budget) = (setting("FLASHWISE_SEED", 1), Budget::new("FLASHWISE_TIMES", 6..60, 3.0));
    let broken = Mutex::new(Vec::new());
    let scenarios = on_all_cores(
        |begun| budget.goes_on(begun),
        |number| {
            let found = run(first + number);
            broken.lock().unwrap().extend(found);
        },
    );
    println!("{scenarios} scenarios");
    let broken = broken.into_inner().unwrap();
    assert!(broken.is_empty(), "{} bounds are broken:\n{}", broken.len(), broken.join("\n"));
}
