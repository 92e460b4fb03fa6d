//! The memory of a server with clients that take as much as possible: it stays within its bound, and other clients are
//! served.

use crate::serving::{Server, Setting};
use flashwise_server::front::nbd::protocol::command::{NBD_CMD_READ, NBD_CMD_WRITE};
use flashwise_testing::client::{Client, request_bytes};

const MIB: usize = 1 << 20;
/// `memory-max`.
const BOUND_BYTES: usize = 64 * MIB;
/// Further memory of connections, for threads and sockets, and freed memory that the allocator keeps.
const OVERHEAD_BYTES: usize = 64 * MIB;
const GREEDY: usize = 200;

/// A figure of `/proc/PID/status`, in bytes.
fn figure(server: &Server, name: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// Freed memory is reused, even from another thread.
#[test]
fn clients_that_write_much_at_a_time_take_no_more_than_the_bound() {
    let keys = "flash-size = \"64MiB\"\nram = \"16MiB\"\ndirect-io = false\n[limits]\nmemory-max = \"64MiB\"\n";
    let setting = Setting::new(256 << 20, keys);
    let server = setting.serve();
    let before = figure(&server, "VmRSS");
    std::thread::scope(|scope| {
        for number in 0..20_u64 {
            let setting = &setting;
            scope.spawn(move || {
                let mut client = Client::open(&setting.address(), "v", true).unwrap();
                for round in 0..8 {
                    let offset = ((number + round) % 16) * 16 * MIB as u64;
                    assert_eq!(client.write(offset, &vec![number as u8; 16 * MIB]).unwrap(), 0);
                }
            });
        }
    });
    let grown = figure(&server, "VmHWM") - before;
    println!("grown by {} KiB", grown >> 10);
    assert!(grown <= BOUND_BYTES + OVERHEAD_BYTES, "memory has grown by {grown} bytes");
    server.end();
}

#[test]
fn stalled_clients_neither_fill_memory_nor_starve_others() {
    let keys = "flash-size = \"64MiB\"\nram = \"16MiB\"\ndirect-io = false\n[limits]\nmemory-max = \"64MiB\"\n";
    let setting = Setting::new(256 << 20, keys);
    let server = setting.serve();
    let mut modest = Client::open(&setting.address(), "v", true).unwrap();
    for block in 0..2048_u64 {
        assert_eq!(modest.write(block << 14, &[block as u8; 4096]).unwrap(), 0);
    }
    let before = figure(&server, "VmHWM");
    let mut greedy: Vec<Client> = (0..GREEDY).map(|_| Client::open(&setting.address(), "v", false).unwrap()).collect();
    for length in [MIB as u32, 32 * MIB as u32] {
        let reads: Vec<u8> = (0..64).flat_map(|cookie| request_bytes(NBD_CMD_READ, 0, cookie, 0, length)).collect();
        let write = [&request_bytes(NBD_CMD_WRITE, 0, 1, 64 << 20, length)[..], &vec![9; length as usize - 1]].concat();
        for (number, client) in greedy.iter_mut().enumerate() {
            if (number < GREEDY / 2) == (length == MIB as u32) {
                client.give_at_once(if number % 2 == 0 { &reads } else { &write });
            }
        }
        for round in 0..1000_u64 {
            let block = round % 2048;
            assert_eq!(modest.read(block << 14, 4096).unwrap(), [block as u8; 4096]);
            assert_eq!(modest.write((128 << 20) + (block << 14), &[round as u8; 4096]).unwrap(), 0);
        }
    }
    let grown = figure(&server, "VmHWM") - before;
    println!("grown by {} KiB with {GREEDY} connections", grown >> 10);
    assert!(grown <= BOUND_BYTES + OVERHEAD_BYTES, "memory has grown by {grown} bytes");
    drop(greedy);
    // Longer than the memory that belongs to one connection.
    assert_eq!(modest.read(0, 32 << 20).unwrap().len(), 32 << 20);
    drop(modest);
    server.end();
}
