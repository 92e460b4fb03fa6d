//! Memory of a server, counted by its allocator: everything is freed when the clients that used it have gone.

use std::path::Path;
use std::time::Duration;

use flashwise_server::config::ServerConfig;
use flashwise_server::front::Address;
use flashwise_server::front::nbd::Uri;
use flashwise_server::front::nbd::protocol::command::{NBD_CMD_FLUSH, NBD_CMD_READ};
use flashwise_server::manage;
use flashwise_server::server::Server;
use flashwise_testing::alone::alone;
use flashwise_testing::cache_memory::measure;
use flashwise_testing::client::Client;
use flashwise_testing::memory::random;
use flashwise_testing::waiting::wait_until;

use crate::api::client::ask_at;

/// The system's allocator with a counter of the bytes in use. It counts the whole process, so each test here has its
/// own.
#[allow(unsafe_code)]
mod counting {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::sync::atomic::{AtomicUsize, Ordering};

    static IN_USE_BYTES: AtomicUsize = AtomicUsize::new(0);

    pub fn in_use_bytes() -> usize {
        IN_USE_BYTES.load(Ordering::Relaxed)
    }

    struct Counting;

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    // SAFETY: memory comes from the system's allocator and goes back to it as it came.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            IN_USE_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
            // SAFETY: the caller keeps the rules of `alloc`.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
            IN_USE_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
            // SAFETY: the caller keeps the rules of `dealloc`.
            unsafe { System.dealloc(start, layout) }
        }
    }
}

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 12_000;
/// Rounds until everything with a natural size has reached it: tables, lists of free steps, ghosts of policies.
const ROUNDS_BEFORE: usize = 8;
const ROUNDS: usize = 5;
/// In these, 80 clients make 16,000 requests and settings change 40 times. So a leak of 9 bytes per request, 2 KiB per
/// client or 4 KiB per change is found.
const GROWTH_BYTES_MAX: usize = 128 << 10;

/// Connects a client that finally leaves many replies unread.
fn connect_and_go(address: &Address, structured: bool, state: &mut u64) {
    let mut client = Client::open(address, "v", structured).unwrap();
    for _ in 0..200 {
        let offset = random(state) % BLOCKS * BLOCK;
        match random(state) % 20 {
            0..9 => drop(client.read(offset, BLOCK as u32).unwrap()),
            9..18 => assert_eq!(client.write(offset, &[1; BLOCK as usize]).unwrap(), 0),
            18 => {
                client.request(NBD_CMD_FLUSH, 0, 1, 0, 0).unwrap();
                assert_eq!(client.reply(0).unwrap().error, 0);
            }
            _ => drop(client.read(0, 1 << 20).unwrap()),
        }
    }
    // The server may have closed the connection by then.
    let _unheard =
        (0..10).take_while(|&block| client.request(NBD_CMD_READ, 0, block, block * BLOCK, 1 << 18).is_ok()).count();
}

fn ask(api: &manage::Address, method: &str, path: &str, body: &str) -> String {
    let answer = ask_at(api, method, path, body);
    assert!((200..300).contains(&answer.status), "{method} {path} {body}: {}", answer.body);
    answer.body
}

/// Runs clients under each setting, and all calls of the API. Returns the bytes in use once all clients have gone.
fn round(address: &Address, api: &manage::Address, state: &mut u64) -> usize {
    for setting in [
        r#"{"policy": "lru"}"#,
        r#"{"policy": "larc"}"#,
        r#"{"policy": "s3-fifo"}"#,
        r#"{"write-mode": "write-through"}"#,
        r#"{"write-mode": "write-around"}"#,
        r#"{"write-mode": "write-back"}"#,
        r#"{"dirty-high": 0.4, "dirty-low": 0.2}"#,
        r#"{"sequential-bypass": "128KiB"}"#,
    ] {
        ask(api, "PATCH", "/v1/volumes/v", setting);
        connect_and_go(address, false, state);
        connect_and_go(address, true, state);
        ask(api, "POST", "/v1/flush", "");
        ask(api, "GET", "/metrics", "");
    }
    wait_until("connections end", || ask(api, "GET", "/v1/status", "").contains("\"connections\":0"));
    counting::in_use_bytes()
}

#[test]
fn nothing_that_was_allocated_for_clients_or_settings_stays() {
    alone(|| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        std::fs::File::create(path.join("disk.img")).unwrap().set_len(BLOCKS * BLOCK).unwrap();
        let text = format!(
            "listen = [\"nbd+unix:///?socket={0}/nbd.sock\"]\n[api]\nlisten = \"unix:{0}/api.sock\"\n[[volume]]\nname \
             = \"v\"\n\
             backend = \"{0}/disk.img\"\nflash = \"{0}/cache.img\"\nflash-size = \"16MiB\"\nerase-unit = \
             \"256KiB\"\nram = \"4MiB\"\n",
            path.display()
        );
        let server =
            Server::start(&ServerConfig::parse(Path::new("flashwise.toml"), &text).unwrap(), &|_, _, _| ()).unwrap();
        let address = server.uris("v")[0].parse::<Uri>().unwrap().address;
        // The tables of blocks know all blocks before they are measured.
        let mut client = Client::open(&address, "v", true).unwrap();
        for _ in 0..2 {
            (0..BLOCKS * BLOCK).step_by(1 << 20).for_each(|offset| {
                let length = (BLOCKS * BLOCK - offset).min(1 << 20);
                client.read(offset, length as u32).unwrap();
            });
        }
        drop(client);
        let mut state = 1;
        let in_use: Vec<usize> =
            (0..ROUNDS_BEFORE + ROUNDS).map(|_| round(&address, server.api().unwrap(), &mut state)).collect();
        println!("in use after each round: {in_use:?}");
        // A flush of the history takes memory only for a moment.
        let (before, last) = (in_use[ROUNDS_BEFORE - 1], &in_use[ROUNDS_BEFORE + ROUNDS - 2..]);
        let after = *last.iter().min().unwrap();
        assert!(after <= before + GROWTH_BYTES_MAX, "bytes in use after each round: {in_use:?}");
        server.stop(Duration::from_secs(10)).unwrap();
    });
}

/// Returns the bytes in use once they stay the same. Buffers of transfers to devices go within these looks.
fn settled_in_use_bytes() -> usize {
    let (mut last, mut times) = (0, 0);
    wait_until("memory stays the same", || {
        let now = counting::in_use_bytes();
        times = if now == last { times + 1 } else { 0 };
        last = now;
        times == 20
    });
    last
}

/// Returns the bytes in use of a bucket server, with its caches and threads, after a client has come and gone.
fn in_use_of_buckets(flash_mib: u64) -> usize {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    std::fs::File::create(path.join("disk.img")).unwrap().set_len(BLOCKS * BLOCK).unwrap();
    // An existing sparse file takes no more space than is written.
    std::fs::File::create(path.join("cache.img")).unwrap().set_len(flash_mib << 20).unwrap();
    let text = format!(
        "listen = [\"nbd+unix:///?socket={0}/nbd.sock\"]\n[[volume]]\nname = \"v\"\nbackend = \"{0}/disk.img\"\n\
         flash = \"{0}/cache.img\"\nlayout = \"wlfc\"\n",
        path.display()
    );
    let before = counting::in_use_bytes();
    let server =
        Server::start(&ServerConfig::parse(Path::new("flashwise.toml"), &text).unwrap(), &|_, _, _| ()).unwrap();
    let address = server.uris("v")[0].parse::<Uri>().unwrap().address;
    let mut client = Client::open(&address, "v", true).unwrap();
    for block in (0..BLOCKS).step_by(97) {
        assert_eq!(client.write(block * BLOCK, &[1; BLOCK as usize]).unwrap(), 0);
        client.read((BLOCKS - 1 - block) * BLOCK, BLOCK as u32).unwrap();
    }
    client.request(NBD_CMD_FLUSH, 0, 1, 0, 0).unwrap();
    assert_eq!(client.reply(0).unwrap().error, 0);
    drop(client);
    let in_use = settled_in_use_bytes() - before;
    server.stop(Duration::from_secs(10)).unwrap();
    in_use
}

/// 8 GiB more of flash are 2,097,152 more pages, in 4,096 buckets: temporary buffers take 0.02 bytes per page. The
/// tables of buckets take 0.08, and usually 0.92: one that has just grown has room for as many again.
#[test]
fn buckets_take_less_than_a_byte_for_each_page_of_flash() {
    alone(|| {
        let _ = in_use_of_buckets(64);
        let (small, large) = (in_use_of_buckets(64), in_use_of_buckets(8256));
        let a_page = (large as f64 - small as f64) / 2_097_152.0;
        println!("{small} and {large} bytes in use, {a_page:.3} a page");
        assert!((0.05..1.0).contains(&a_page), "{small} and {large} bytes in use, {a_page:.3} a page");
    });
}

/// The documentation lists the RAM for a page of flash by policy: initially, and with all that a policy remembers of
/// evicted blocks.
#[test]
fn a_page_of_flash_takes_the_memory_that_the_documentation_says() {
    alone(|| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/serve.md");
        let text = std::fs::read_to_string(path).unwrap();
        let table = text.split_once("| policy | bytes per page").unwrap().1.split_once("\n\n").unwrap().0;
        let mut documented = Vec::new();
        for row in table.lines().skip(2) {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let (first, most): (f64, f64) = (cells[1].parse().unwrap(), cells[2].parse().unwrap());
            documented.extend(cells[0].split(", ").map(|name| (name.trim_matches('`'), first, most)));
        }
        let mut names: Vec<&str> = documented.iter().map(|(name, ..)| *name).collect();
        let mut expected: Vec<&str> = flashwise_core::policy::online().map(|info| info.name).collect();
        names.sort_unstable();
        expected.sort_unstable();
        assert_eq!(names, expected);
        let wrong = documented.into_iter().filter(|(name, first, most)| {
            let bytes = measure(name, 128, &counting::in_use_bytes);
            println!("{name} {bytes:?}");
            let is_near = |documented: f64, measured: f64| measured <= documented && measured > documented - 2.5;
            !is_near(*first, bytes.filled.max(bytes.restarted)) || !is_near(*most, bytes.overwritten)
        });
        assert_eq!(wrong.collect::<Vec<_>>(), []);
    });
}
