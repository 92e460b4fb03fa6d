//! The scenarios and their bounds.

use std::time::Duration;

use flashwise_storage::export::Operation;
use flashwise_storage::layout::LAYOUTS;

use super::device::Speed;
use super::events::Event;
use super::longest as longest_of;
use super::{BLOCKS_PER_MIB, Client, Measured, Pattern, Scenario, ms, picture};
use crate::in_place::IN_PLACE;

const fn seconds(time: u64) -> Duration {
    Duration::from_secs(time)
}

/// Writers of random blocks, a reader of cached ones and a flush every 200 ms. The backend takes 8 ms, so dirty data
/// reaches its limit.
pub fn writers(policy: &'static str, ram: &'static str) -> Scenario {
    let mut clients = vec![Client::new("write", Operation::Write, 4..256, ms(3)); 8];
    clients.extend([Client::new("hit", Operation::Read, 0..4, ms(1)), Client::flushes(ms(200))]);
    Scenario {
        layout: LAYOUTS[0].1,
        settings: vec![("erase-unit", "256KiB"), ("policy", policy), ("ram", ram)],
        flash: Speed::FLASH,
        flash_mib: 64,
        backend: Speed::disk(8),
        more_disks: Vec::new(),
        backend_mib: 256,
        journal_mib: 0,
        drains: false,
        cached_mib: 4,
        clients,
        lasts: seconds(60),
        events: Vec::new(),
        is_drawn: false,
    }
}

/// The same with writers that think for so long.
pub fn writers_think(think_ms: u64, ram: &'static str) -> Scenario {
    let mut scenario = writers("lru", ram);
    let writers = scenario.clients.iter_mut().filter(|client| client.operation == Operation::Write);
    writers.for_each(|client| client.thinks = ms(think_ms));
    scenario
}

/// A read without access to the backend waits at most this long, for the flash.
const HIT_MAX: Duration = ms(2);

/// The longest wait that a scenario allows.
#[derive(Clone, Copy)]
struct Bound {
    kind: &'static str,
    most: Duration,
    /// Waits count from here on.
    after: Duration,
}

/// The longest wait of a kind of request, in milliseconds.
const fn longest(kind: &'static str, most_ms: u64) -> Bound {
    Bound { kind, most: ms(most_ms), after: Duration::ZERO }
}

/// The longest waits for a read of a cached block, a write, and a flush.
const fn bounds(hit: u64, write: u64, flush: u64) -> [Bound; 3] {
    [longest("hit", hit), longest("write", write), longest("flush", flush)]
}

impl Bound {
    /// Waits count from this time on.
    const fn after(mut self, seconds: u64) -> Bound {
        self.after = Duration::from_secs(seconds);
        self
    }
}

/// Runs a scenario with layout `log` and holds it to its bounds.
fn hold(name: &str, scenario: Scenario, bounds: &[Bound]) -> Measured {
    let measured = scenario.run(1);
    check(name, &measured, bounds);
    let hit = measured.hit("hit", 1.0);
    println!("{name}: a read of cached blocks waits for {hit:?}");
    assert!(hit <= HIT_MAX, "{name}: a hit waits for {hit:?}, expected at most {HIT_MAX:?}");
    measured
}

fn check(name: &str, measured: &Measured, bounds: &[Bound]) {
    for (kind, requests) in &measured.requests {
        let [half, most, all] = [0.5, 0.99, 1.0].map(|share| measured.wait(kind, share, Duration::ZERO));
        println!("{name}: {kind}: {} requests, 50% {half:?}, 99% {most:?}, longest {all:?}", requests.len());
    }
    for (device, log) in [("flash", &measured.flash), ("backend", &measured.backend)] {
        let (requests, most) = (log.requests, log.most_queued);
        println!("{name}: the {device} has {requests} requests, at most {most} at once, for at most {:?}", log.longest);
    }
    for &Bound { kind, most, after } in bounds {
        let wait = measured.wait(kind, 1.0, after);
        println!("{name}: after {after:?}, {kind} waits for {wait:?}");
        assert!(wait <= most, "{name}: after {after:?}, {kind} waits for {wait:?}, expected at most {most:?}");
    }
}

/// Holds that clients wrote at least so many blocks a second in the second half.
fn hold_rate(name: &str, measured: &Measured, lasts: Duration, blocks_per_second: u64) {
    let half = measured.begun + lasts / 2;
    let written = measured.requests["write"].iter().filter(|request| request.asked >= half).count() as u64;
    let written = written / (lasts / 2).as_secs();
    println!("{name}: {written} blocks are written a second");
    assert!(written >= blocks_per_second, "{name}: {written} blocks are written a second");
}

/// Holds that 99% of the requests of a kind wait at most so many times as long as without something else.
fn compare(name: &str, with: Scenario, without: Scenario, kind: &str, times: f64) -> Measured {
    let [with, without] = [with, without].map(|scenario| scenario.run(1));
    let [slow, fast] = [&with, &without].map(|measured| measured.wait(kind, 0.99, Duration::ZERO));
    println!("{name}: 99% of {kind} within {slow:?}, without it {fast:?}");
    let most = fast.mul_f64(times);
    assert!(slow <= most, "{name}: 99% of {kind} within {slow:?}, expected at most {times} times {fast:?}");
    with
}

/// If writes in RAM did not count as pressure, a write waited for 20 s with 8 MiB of RAM. A flush waited for 156 s with
/// 128 MiB.
#[test]
fn writers_do_not_stop_when_dirty_data_reaches_its_limit() {
    for ram in ["0", "8MiB", "128MiB"] {
        let mut scenario = writers("lru", ram);
        scenario.is_drawn = ram == "8MiB";
        let (name, lasts) = (format!("lru, ram {ram}"), scenario.lasts);
        let measured = hold(&name, scenario, &bounds(50, 200, 180));
        hold_rate(&name, &measured, lasts, 119);
        if ram == "8MiB" {
            picture::draw(&measured);
        }
    }
}

/// The backend serves 16 concurrent transfers, so many blocks are written back concurrently. With at most 8, half as
/// much was written.
#[test]
fn writers_are_as_fast_as_a_backend_that_serves_many_at_a_time() {
    let mut scenario = writers("lru", "8MiB");
    scenario.clients.extend(vec![scenario.clients[0].clone(); 24]);
    scenario.backend.parallel = 16;
    let lasts = scenario.lasts;
    hold_rate("16 at a time", &hold("16 at a time", scenario, &bounds(50, 200, 180)), lasts, 1_850);
}

/// A pool of three disks. Where they shared their transfers of the background, one was busy while the others were idle,
/// and 139 were written.
#[test]
fn writers_are_as_fast_as_the_disks_of_a_pool() {
    let mut scenario = writers("lru", "8MiB");
    scenario.clients.extend(vec![scenario.clients[0].clone(); 8]);
    scenario.more_disks = vec![scenario.backend; 2];
    let lasts = scenario.lasts;
    hold_rate("three disks", &hold("three disks", scenario, &bounds(50, 200, 180)), lasts, 400);
}

/// Reads miss at two disks of a pool, while much is written back to the third, which takes ten times as long.
#[test]
fn a_slow_disk_of_a_pool_does_not_slow_the_others() {
    let mut with = writers("lru", "8MiB");
    (with.backend_mib, with.more_disks) = (1_536, vec![Speed::disk(8), Speed::disk(80)]);
    with.clients.retain(|client| client.kind == "write");
    with.clients.iter_mut().for_each(|client| client.mib = 1_024..1_536);
    with.clients.extend(vec![Client::new("miss", Operation::Read, 4..1_024, ms(100)); 2]);
    let mut without = with.clone();
    without.clients.retain(|client| client.kind == "miss");
    compare("beside a slow disk", with, without, "miss", 1.2);
}

/// Five flushes a second end as many epochs, each with a flush of the backend. It takes 8 ms.
#[test]
fn writers_do_not_stop_with_write_back_in_order() {
    for (ram, write, flush) in [("0", 200, 180), ("8MiB", 200, 180)] {
        let mut scenario = writers("lru", ram);
        scenario.settings.push(("write-back-order", "barriers"));
        let (name, lasts) = (format!("in order, ram {ram}"), scenario.lasts);
        hold_rate(&name, &hold(&name, scenario.clone(), &bounds(50, write, flush)), lasts, 110);
        // It hangs before there is much dirty data: nothing waits for it.
        scenario.clients.iter_mut().filter(|client| client.kind == "write").for_each(|client| client.thinks = ms(200));
        scenario.events = vec![(seconds(10), Event::Hangs(seconds(60)))];
        scenario.lasts = seconds(75);
        hold(&format!("{name}, the backend hangs"), scenario, &bounds(50, 250, 10));
    }
}

/// LARC does not admit most of the blocks: they go past the flash, and a flush waits for the backend to take them.
/// Writers are slower than the backend at first, until it has taken the dirty blocks of the first seconds.
#[test]
fn writers_do_not_stop_where_most_writes_go_past_the_flash() {
    let mut scenario = writers("larc", "8MiB");
    scenario.lasts = seconds(240);
    let lasts = scenario.lasts;
    hold_rate("larc", &hold("larc, ram 8MiB", scenario, &bounds(50, 250, 650)), lasts, 119);
}

/// WLFC, with the bounds of today, which are no promise. It reads from the backend what it has evicted, so that few
/// reads of these 4 MiB are hits. It evicts a bucket of 256 KiB at once, and a read, a write or a flush waits for the
/// writes of several.
#[test]
fn writers_go_on_with_buckets() {
    let mut scenario = writers("lru", "8MiB");
    scenario.layout = LAYOUTS[1].1;
    let lasts = scenario.lasts;
    let measured = scenario.run(1);
    check("wlfc", &measured, &bounds(4_600, 1_150, 5_700));
    hold_rate("wlfc", &measured, lasts, 40);
}

/// Of a cache in place, each write waits for the backend, and seven others write, too. Some take the slots of cached
/// blocks, whose next reads are misses.
#[test]
fn writers_are_as_fast_as_the_backend_with_a_cache_in_place() {
    let mut scenario = writers("lru", "0");
    (scenario.layout, scenario.settings) = (&IN_PLACE, vec![("erase-unit", "256KiB"), ("write-mode", "write-through")]);
    scenario.lasts = seconds(20);
    let lasts = scenario.lasts;
    hold_rate("in place", &hold("in place", scenario, &bounds(200, 200, 180)), lasts, 100);
}

/// The flash has space for all writes in this time. A flush waits for a segment that needs a block from the backend;
/// after half a second, the segment goes without it. When it waited for the block, the flush took a minute.
#[test]
fn hits_writes_and_flushes_go_on_while_the_backend_hangs() {
    for (ram, misses, flush) in [("0", 0, 10), ("8MiB", 0, 10), ("0", 4, 600), ("8MiB", 4, 600)] {
        let mut scenario = writers_think(200, ram);
        scenario.clients.extend(vec![Client::new("miss", Operation::Read, 4..256, ms(20)); misses]);
        scenario.events = vec![(seconds(10), Event::Hangs(seconds(60)))];
        scenario.lasts = seconds(75);
        let (name, lasts) = (format!("the backend hangs, ram {ram}, {misses} misses"), scenario.lasts);
        hold_rate(&name, &hold(&name, scenario, &bounds(50, 250, flush)), lasts, 30);
    }
}

/// The flash has no more room for dirty data when the backend stops. Writes wait until it goes on. The aim is that no
/// request waits for more than 250 ms from then on. A flush finds in RAM what the backend takes in half a second, and
/// the writes that have waited meanwhile.
#[test]
fn hits_go_on_while_the_backend_hangs_with_the_dirty_limit_reached() {
    for (ram, write, flush) in [("0", 200, 180), ("8MiB", 200, 780)] {
        let mut scenario = writers("lru", ram);
        scenario.events = vec![(seconds(40), Event::Hangs(seconds(60)))];
        scenario.lasts = seconds(120);
        let bounds = [longest("hit", 50), longest("write", write).after(100), longest("flush", flush).after(100)];
        hold(&format!("the backend hangs at the limit, ram {ram}"), scenario, &bounds);
    }
}

/// More misses wait for the backend than a disk has threads, while it hangs.
#[test]
fn hits_go_on_while_many_misses_wait_for_a_backend_that_hangs() {
    for ram in ["0", "8MiB"] {
        let mut scenario = writers_think(200, ram);
        scenario.clients.extend(vec![Client::new("miss", Operation::Read, 4..256, ms(20)); 40]);
        scenario.events = vec![(seconds(10), Event::Hangs(seconds(30)))];
        scenario.lasts = seconds(50);
        hold(&format!("many misses wait, ram {ram}"), scenario, &[]);
    }
}

/// Clients that read cached blocks, miss, and write, before and while 24 MiB of dirty data are written back.
#[test]
fn clients_go_on_while_a_volume_is_detached() {
    for unit in ["256KiB", "2MiB"] {
        let mut scenario = writers_think(100, "8MiB");
        scenario.settings[0] = ("erase-unit", unit);
        scenario.backend = Speed::disk(4);
        scenario.events = vec![(seconds(60), Event::Detach)];
        let (name, lasts) = (format!("detach, erase units of {unit}"), scenario.lasts);
        let measured = hold(&name, scenario, &bounds(50, 250, 500));
        hold_rate(&name, &measured, lasts, 145);
        // The last second's writes go to the backend.
        let detached = measured.begun + seconds(60);
        let writes = measured.requests["write"].iter().filter(|write| write.asked >= detached);
        let waited = longest_of(writes.map(|write| write.waited).collect(), 0.9);
        println!("{name}: 90% of the writes during the detach wait for at most {waited:?}");
        assert!(waited <= ms(1), "{name}: 90% of the writes during the detach wait for at most {waited:?}");
    }
}

/// The cleaner has no pause: clients overwrite a quarter of the flash faster than it is written back.
#[test]
fn a_block_that_is_written_once_reaches_the_backend_within_its_time() {
    let mut scenario = writers("lru", "8MiB");
    scenario.settings.push(("dirty-age", "60s"));
    scenario.clients.iter_mut().filter(|client| client.kind == "write").for_each(|client| client.mib = 240..256);
    let first = scenario.cached_mib * BLOCKS_PER_MIB;
    scenario.events = vec![(seconds(10), Event::WriteOnce { blocks: first..first + 20 })];
    hold("written once", scenario, &[longest("once", 66_000)]);
}

/// A block that was overwritten again and again was never old enough for the cleaner.
#[test]
fn a_block_that_is_overwritten_reaches_the_backend_within_its_time() {
    let mut scenario = writers("lru", "8MiB");
    scenario.settings.push(("dirty-age", "10s"));
    scenario.clients = vec![Client::flushes(ms(200))];
    scenario.events = vec![(seconds(1), Event::Overwrite { block: scenario.cached_mib * BLOCKS_PER_MIB })];
    hold("overwritten", scenario, &[longest("overwrite", 11_000)]);
}

/// Clients read and write by Zipf's law while the log wraps, so units are cleaned and reset. Without a bound on
/// acknowledged writes that bypass the flash, a read waited for 3.2 s. With LARC it waited 1 s, when a whole write
/// buffer bypassed the flash for its age.
#[test]
fn misses_go_on_while_units_are_cleaned_and_reset() {
    for (policy, readers, writers_think_ms, read, write) in
        [("lru", 4, 10, 60, 50), ("lru", 8, 20, 60, 60), ("larc", 4, 10, 60, 50), ("larc", 8, 20, 60, 120)]
    {
        let mut scenario = writers(policy, "8MiB");
        scenario.settings.remove(0);
        (scenario.backend_mib, scenario.backend) = (512, Speed::disk(4));
        let client = |kind, operation, thinks| {
            let pattern = Pattern::Skewed;
            Client { pattern, ..Client::new(kind, operation, 12..512, thinks) }
        };
        scenario.clients = vec![client("read", Operation::Read, ms(20)); readers];
        scenario.clients.extend(vec![client("write", Operation::Write, ms(writers_think_ms)); readers]);
        scenario.lasts = seconds(120);
        let name = format!("{policy}, {readers} readers and writers");
        hold(&name, scenario, &[longest("read", read), longest("write", write)]);
    }
}

/// The flush waits only for earlier writes: a write buffer of 4 MiB, which the flash takes in 7 ms. If the flash is
/// saturated, more blocks have left the buffer and are being written, and the flush waits for them, too.
#[test]
fn a_flush_waits_for_no_more_than_the_write_buffer_while_another_client_writes_at_full_speed() {
    let mut scenario = writers("lru", "8MiB");
    let writer = Client::new("write", Operation::Write, 4..4_096, Duration::from_micros(10));
    scenario.clients = vec![writer, Client::flushes(ms(20))];
    (scenario.flash_mib, scenario.backend_mib, scenario.lasts) = (2_048, 4_096, seconds(1));
    scenario.settings[0] = ("erase-unit", "2MiB");
    for (thinks_us, bound) in [(10, 8), (2, 26)] {
        scenario.clients[0].thinks = Duration::from_micros(thinks_us);
        let name = format!("a flush beside a write every {thinks_us} us");
        hold(&name, scenario.clone(), &[longest("flush", bound)]);
    }
}

/// Streams with requests of 64 KiB next to reads of single blocks that miss.
#[test]
fn small_reads_wait_at_most_twice_as_long_next_to_streams() {
    let small = Client::new("small", Operation::Read, 4..8_000, ms(10));
    let mut without = writers("lru", "8MiB");
    (without.backend_mib, without.clients) = (16_384, vec![small; 4]);
    for operation in [Operation::Read, Operation::Write] {
        let mut with = without.clone();
        let stream = Client::new("stream", operation, 8_000..16_000, Duration::ZERO);
        with.clients.push(Client { pattern: Pattern::Onwards, kib: 64, ..stream });
        with.lasts = seconds(60);
        compare(&format!("streams that {operation:?}"), with, without.clone(), "small", 2.0);
    }
}

/// Reads that miss next to writers that keep the cleaner busy. A miss finds a write of the cleaner at the disk,
/// sometimes two, which the disk serves first. Where it found 8 of them, it waited 9 times as long as without. The aim
/// is 1.5 times.
#[test]
fn misses_go_on_while_the_cleaner_runs_at_full_speed() {
    let mut with = writers_think(100, "8MiB");
    with.settings.extend([("dirty-high", "5%"), ("dirty-low", "1%")]);
    with.backend_mib = 16_384;
    with.clients.extend(vec![Client::new("miss", Operation::Read, 256..16_384, ms(100)); 2]);
    let mut without = with.clone();
    without.clients.retain(|client| client.kind == "miss");
    compare("misses beside the cleaner", with, without, "miss", 3.0);
}

/// A trim of 2 TiB that no client has written. The backend has a request of 20 us for each 64 MiB, one after the other.
#[test]
fn hits_go_on_while_2_tib_are_trimmed() {
    let mut without = writers("lru", "8MiB");
    without.clients.retain(|client| client.kind == "hit");
    (without.backend_mib, without.lasts) = (4 << 20, seconds(2));
    let mut with = without.clone();
    with.events = vec![(seconds(1), Event::Trim { blocks: 1 << 29..1 << 30 })];
    let measured = compare("a trim of 2 TiB", with, without, "hit", 1.2);
    let trim = measured.wait("trim", 1.0, Duration::ZERO);
    println!("the trim takes {trim:?}");
    assert!(trim <= ms(656), "{trim:?}");
    assert!(measured.backend.requests <= (2 << 20) / 64 + 1, "{} requests", measured.backend.requests);
}

/// A volume that no client uses, with nothing to write back: its only event is a tick a second.
#[test]
fn a_volume_at_rest_has_no_event_but_ticks() {
    let mut scenario = writers("lru", "8MiB");
    scenario.cached_mib = 0;
    scenario.clients.clear();
    scenario.lasts = seconds(3_600);
    let measured = scenario.run(1);
    assert_eq!((measured.flash.requests, measured.backend.requests), (0, 0));
    assert!(measured.turns <= 3_600 + 1, "threads ran {} times", measured.turns);
}
