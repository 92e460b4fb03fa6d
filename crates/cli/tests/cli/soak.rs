//! A server under changing clients and settings: its use of resources stays constant.
//!
//! `FLASHWISE_SOAK_SECONDS` sets the duration, `FLASHWISE_SEED` the seed.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::serving::Setting;
use flashwise_server::front::nbd::protocol::command::{NBD_CMD_DISC, NBD_CMD_FLUSH, NBD_CMD_READ, NBD_CMD_WRITE};
use flashwise_server::front::nbd::protocol::command_flag::NBD_CMD_FLAG_FUA;
use flashwise_testing::client::Client;
use flashwise_testing::random::Random;
use flashwise_testing::setting;
use flashwise_testing::waiting::wait_until;
use serde_json::Value;

const BLOCK: u64 = 4096;
const CLIENTS: u64 = 3;
/// Blocks of each client.
const BLOCKS: u64 = 4_000;
/// Growth after the first third that counts as noise. The C library's allocator causes it. After the buffer of a long
/// read was freed, later buffers come from the arenas of threads instead of the system. Arenas keep freed memory. In
/// runs of 90 s the process used 14 MB (checked by the server's `allocations.rs`) and had 39 MB. It had 30 MB with
/// MALLOC_ARENA_MAX=1, and 28 MB with MALLOC_MMAP_THRESHOLD_=131072.
const GROWTH_BYTES_MAX: u64 = 8 << 20;
/// Of files and threads: closing connections, and threads for requests to the API.
const GROWTH_FILES_MAX: u64 = 2 * CLIENTS;
const GROWTH_THREADS_MAX: u64 = CLIENTS;

/// System resources of the server.
#[derive(Clone, Copy, Debug)]
struct Taken {
    memory_bytes: u64,
    files: u64,
    threads: u64,
}

impl Taken {
    fn of(pid: u32) -> Taken {
        let directory = format!("/proc/{pid}");
        let directory = Path::new(&directory);
        let pages = std::fs::read_to_string(directory.join("statm")).unwrap();
        let pages: u64 = pages.split_whitespace().nth(1).unwrap().parse().unwrap();
        // The kernel's own threads for io_uring come and go.
        let names = std::fs::read_dir(directory.join("task"))
            .unwrap()
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        Taken {
            memory_bytes: pages * 4096,
            files: std::fs::read_dir(directory.join("fd")).unwrap().count() as u64,
            threads: names.filter(|name| !name.starts_with("iou-")).count() as u64,
        }
    }

    /// Combines two measurements: the minimum of memory, because requests need some temporarily, and the maximum of the
    /// rest.
    fn and(self, other: Taken) -> Taken {
        Taken {
            memory_bytes: self.memory_bytes.min(other.memory_bytes),
            files: self.files.max(other.files),
            threads: self.threads.max(other.threads),
        }
    }
}

/// A client's blocks and their contents.
struct Work {
    number: u64,
    versions: Vec<u64>,
    random: Random,
}

impl Work {
    fn content(&self, block: u64) -> Vec<u8> {
        match self.versions[block as usize] {
            0 => vec![0; BLOCK as usize],
            version => (version * CLIENTS + self.number).to_le_bytes().repeat(BLOCK as usize / 8),
        }
    }

    /// One connection: requests one by one, and sometimes many unanswered ones at the end. Returns their number.
    fn connect_and_go(&mut self, setting: &Setting) -> u64 {
        let mut client = Client::open_unanswered(&setting.address(), "v").unwrap();
        let first = self.number * BLOCKS;
        let requests = self.random.below(200);
        for _ in 0..requests {
            let limit = self.random.pick(&[BLOCKS / 10, BLOCKS]);
            let block = self.random.below(limit);
            let offset = (first + block) * BLOCK;
            match self.random.below(20) {
                0..=8 => {
                    let read = client.read(offset, BLOCK as u32).unwrap();
                    assert!(read == self.content(block), "block {block} of client {} reads wrong", self.number);
                }
                9..=17 => {
                    self.versions[block as usize] += 1;
                    let flags = if self.random.chance(20) { NBD_CMD_FLAG_FUA } else { 0 };
                    client.request(NBD_CMD_WRITE, flags, 1, offset, BLOCK as u32).unwrap();
                    client.give(&self.content(block)).unwrap();
                    assert_eq!(client.reply(0).unwrap().error, 0);
                }
                18 => {
                    client.request(NBD_CMD_FLUSH, 0, 1, 0, 0).unwrap();
                    assert_eq!(client.reply(0).unwrap().error, 0);
                }
                // A long read past what the caches were asked for.
                _ => drop(client.read(first * BLOCK, 1 << 20).unwrap()),
            }
        }
        if self.random.chance(2) {
            client.request(NBD_CMD_DISC, 0, 0, 0, 0).unwrap();
            return requests;
        }
        // The server may have ended the connection for it by then.
        let unheard = (0..10)
            .take_while(|&block| client.request(NBD_CMD_READ, 0, block, (first + block) * BLOCK, 1 << 18).is_ok());
        requests + unheard.count() as u64
    }
}

/// Asks for everything that a manager may ask for, once.
fn manage(setting: &Setting, random: &mut Random) -> Value {
    let api = setting.api();
    let change = random.pick(&[
        "policy=lru",
        "policy=larc",
        "policy=s3-fifo",
        "admission=none",
        "admission=hotness:min=2",
        "admission=adaptive:timeframe=1s,target=1h",
        "admission=auto:timeframe=1s",
        "write-mode=write-back",
        "write-mode=write-through",
        "write-mode=write-around",
        "dirty-high=70%",
        "dirty-high=40%",
        "sequential-bypass=128KiB",
        "sequential-bypass=0",
    ]);
    setting.flashwise(&["set", "v", change, "--api", &api]);
    setting.flashwise(&["flush", "--api", &api]);
    status(setting)
}

fn status(setting: &Setting) -> Value {
    serde_json::from_str(&setting.flashwise(&["status", "--json", "--api", &setting.api()])).unwrap()
}

#[test]
fn memory_files_and_threads_stay_the_same_under_clients_that_come_and_go() {
    let seconds = setting("FLASHWISE_SOAK_SECONDS", 12);
    let seed = setting("FLASHWISE_SEED", 1);
    let keys = "flash-size = \"16MiB\"\nerase-unit = \"256KiB\"\nram = \"4MiB\"\ndirty-low = \"20%\"";
    let setting = Setting::new(CLIENTS * BLOCKS * BLOCK, keys);
    let server = setting.serve();
    let pid = server.child.id();
    status(&setting);
    let before = Taken::of(pid);
    let ended = AtomicBool::new(false);
    let (connections, requests, changes) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let third = Duration::from_millis(seconds * 1000 / 3);
    // The resources used in each third.
    let nothing = Taken { memory_bytes: u64::MAX, files: 0, threads: 0 };
    let mut thirds = [nothing; 3];
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (setting, ended, connections, requests) = (&setting, &ended, &connections, &requests);
            let mut work = Work { number, versions: vec![0; BLOCKS as usize], random: Random(seed + number) };
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    requests.fetch_add(work.connect_and_go(setting), Ordering::Relaxed);
                    connections.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut random = Random(!seed);
        for taken in &mut thirds {
            let started = Instant::now();
            while started.elapsed() < third {
                manage(&setting, &mut random);
                changes.fetch_add(1, Ordering::Relaxed);
                *taken = taken.and(Taken::of(pid));
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
    println!(
        "{seconds} s: {} connections, {} requests, {} changes of settings; before {before:?}, in thirds {thirds:?}",
        connections.into_inner(),
        requests.into_inner(),
        changes.into_inner()
    );
    let [_, warm, last] = thirds;
    assert!(last.memory_bytes <= warm.memory_bytes + GROWTH_BYTES_MAX, "memory grows: {thirds:?}");
    assert!(last.files <= warm.files + GROWTH_FILES_MAX, "open files grow: {thirds:?}");
    assert!(last.threads <= warm.threads + GROWTH_THREADS_MAX, "threads grow: {thirds:?}");
    // When all have gone, nothing is left of them: the one open connection of status is the API's, not a client's.
    wait_until("nothing is left of the clients", || {
        let (connections, after) = (status(&setting)["connections"].as_u64().unwrap(), Taken::of(pid));
        let is_left =
            connections > 0 || after.files > before.files || after.threads > before.threads + GROWTH_THREADS_MAX;
        if is_left {
            println!("{connections} connections, before {before:?}, after {after:?}");
        }
        !is_left
    });
    server.end();
}
