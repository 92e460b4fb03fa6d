//! The memory that all connections share: clients that neither read nor send, many that want all of it, and
//! well-behaved ones meanwhile.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flashwise_server::front::Options;
use flashwise_server::front::nbd::protocol::command::{NBD_CMD_READ, NBD_CMD_WRITE};
use flashwise_server::limits::Limit;
use flashwise_testing::client::{Client, request_bytes};
use flashwise_testing::memory::{Memory, noise, random};
use flashwise_testing::waiting::wait_until;

use crate::support::Rig;

const SIZE: u64 = 64 << 20;
const MIB: u32 = 1 << 20;

/// Starts a server with the least possible memory, and a disk that replies immediately, or later in another order.
fn rig(later: bool, stall_time_max: Duration) -> (Rig, Arc<Memory>) {
    let disk = Memory::new(SIZE);
    let disk = Arc::new(if later { disk.answering_later(5) } else { disk });
    let options = Options { memory_max: 64 << 20, connections_max: 256, stall_time_max, ..Options::default() };
    (Rig::start(&[("disk", disk.clone())], options), disk)
}

const NEVER: Duration = Duration::from_secs(3600);

/// Connects clients that request much and read nothing, and others that announce much and send little.
fn greedy(rig: &Rig, count: usize, length: u32) -> Vec<Client> {
    let reads: Vec<u8> = (0..64).flat_map(|cookie| request_bytes(NBD_CMD_READ, 0, cookie, 0, length)).collect();
    let write = [&request_bytes(NBD_CMD_WRITE, 0, 1, 0, length)[..], &noise(3, length as usize / 2)].concat();
    let mut clients: Vec<Client> = (0..count).map(|_| rig.open(false)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.give_at_once(if number % 2 == 0 { &reads } else { &write });
    }
    clients
}

#[test]
fn small_requests_go_on_beside_clients_that_take_all_they_can() {
    for later in [false, true] {
        for length in [4096, MIB, 32 * MIB] {
            let (rig, disk) = rig(later, NEVER);
            let mut greedy = greedy(&rig, 200, length);
            let budget = rig.server.budget().clone();
            let mut modest = rig.open(true);
            for round in 0..300_u32 {
                let data = noise(round.into(), 4096);
                let offset = SIZE - u64::from(round % 64 + 1) * 4096;
                assert_eq!(modest.write(offset, &data).unwrap(), 0);
                assert!(modest.read(offset, 4096).unwrap() == data);
                assert!(budget.used_bytes() <= budget.bytes_max(), "{} bytes", budget.used_bytes());
            }
            // A client that finally reads its replies gets all of them.
            let expected = disk.read(0, u64::from(length));
            let mut late = greedy.swap_remove(0);
            drop(greedy);
            for cookie in 0..64 {
                let reply = late.reply(length as usize).unwrap();
                assert_eq!((reply.cookie, reply.error), (if later { reply.cookie } else { cookie }, 0));
                assert_eq!(reply.data.len(), expected.len());
                if length == 32 * MIB && cookie > 4 {
                    break;
                }
            }
            drop((late, modest));
            let connections = &rig.server.counters().connections;
            wait_until("connections end", || connections.load(Ordering::Relaxed) == 0);
            wait_until("all is given back", || budget.used_bytes() == 0);
            rig.check_well_behaved();
        }
    }
}

#[test]
fn a_stalled_client_is_disconnected_only_when_others_wait_for_its_memory() {
    let few = Duration::from_millis(100);
    let (rig, _disk) = rig(false, few);
    let mut slow = rig.open(false);
    slow.request(NBD_CMD_READ, 0, 1, 0, 32 * MIB).unwrap();
    let mut writer = rig.open(false);
    writer.give(&request_bytes(NBD_CMD_WRITE, 0, 2, 0, 4 * MIB)).unwrap();
    // Elsewhere, clients that stall later are disconnected meanwhile.
    (0..5).for_each(|_| some_are_cut_off(&self::rig(false, few).0));
    assert_eq!(slow.reply(32 << 20).unwrap().data.len(), 32 << 20, "nobody waited for it");
    writer.give(&vec![1; 4 << 20]).unwrap();
    assert_eq!(writer.reply(0).unwrap().error, 0);
    assert_eq!(rig.server.counters().connections_broken.load(Ordering::Relaxed), 0);
    some_are_cut_off(&rig);
}

/// Clients stall while others wait for their memory.
fn some_are_cut_off(rig: &Rig) {
    let stalled = greedy(rig, 6, 32 * MIB);
    let mut patient = rig.open(false);
    let cut_off = || rig.server.counters().connections_broken.load(Ordering::Relaxed);
    wait_until("one is cut off", || cut_off() > 0);
    assert_eq!(patient.read(0, 32 * MIB).unwrap().len(), 32 << 20, "a long request comes to its turn");
    drop(stalled);
    rig.check_well_behaved();
}

/// Clients announce 32 MiB each, send a little of it, and are never disconnected.
#[test]
fn a_client_that_announces_much_and_sends_little_takes_little() {
    let (rig, _disk) = rig(false, NEVER);
    let announced = [&request_bytes(NBD_CMD_WRITE, 0, 1, 0, 32 * MIB)[..], &noise(3, 10_000)].concat();
    let stalled: Vec<Client> = (0..150)
        .map(|number| {
            let mut client = rig.open(false);
            client.give(if number % 2 == 0 { &announced } else { &announced[..28] }).unwrap();
            client
        })
        .collect();
    let mut writer = rig.open(false);
    for length in [64 << 10, MIB, 8 * MIB, 32 * MIB] {
        assert_eq!(writer.write(0, &noise(7, length as usize)).unwrap(), 0, "{length} bytes");
    }
    assert_eq!(rig.server.counters().connections_broken.load(Ordering::Relaxed), 0);
    drop(stalled);
}

/// Clients announce 32 MiB, send 1 MiB, and reconnect when they are disconnected. Together they want far more than
/// there is.
#[test]
fn stalled_clients_that_come_again_and_again_keep_no_request_from_its_turn() {
    let (rig, _disk) = rig(false, Duration::from_millis(500));
    let stops = AtomicBool::new(false);
    let announced = [&request_bytes(NBD_CMD_WRITE, 0, 1, 0, 32 * MIB)[..], &noise(3, 1 << 20)].concat();
    std::thread::scope(|scope| {
        for _ in 0..24 {
            let (rig, stops, announced) = (&rig, &stops, &announced);
            scope.spawn(move || {
                while !stops.load(Ordering::Relaxed) {
                    let mut client = rig.open(false);
                    let _ = client.give(announced);
                    // It sends nothing more until it is disconnected.
                    let mut rest = Vec::new();
                    let _ = client.socket.read_to_end(&mut rest);
                }
            });
        }
        let limits = &rig.server.counters().limits;
        wait_until("some are cut off", || limits.times(Limit::StallTime) > 0);
        for length in [MIB, 8 * MIB, 32 * MIB] {
            // On a busy machine, this client stalls as well.
            wait_until("a write and a read", || {
                let mut client = rig.open(false);
                let written = client.write(0, &noise(7, length as usize)).is_ok_and(|error| error == 0);
                written && client.read(0, length).is_ok_and(|data| data.len() == length as usize)
            });
        }
        stops.store(true, Ordering::Relaxed);
        // Clients whose memory is not needed stay connected.
        rig.server.connections().end(&(0..10_000).collect::<Vec<_>>(), Duration::ZERO);
    });
    assert!(rig.server.counters().limits.times(Limit::RequestMemory) > 0);
}

/// Requests of all lengths, several in flight. A lost wake-up leaves a client waiting until its timeout.
#[test]
fn clients_that_together_want_far_more_than_there_is_are_all_served() {
    let (rig, _disk) = rig(true, NEVER);
    let budget = rig.server.budget().clone();
    std::thread::scope(|scope| {
        for number in 0..24_u64 {
            let (rig, budget) = (&rig, &budget);
            scope.spawn(move || {
                let mut state = number + 1;
                let mut client = rig.open(number % 2 == 0);
                for _ in 0..30 {
                    let count = 1 + random(&mut state) % 4;
                    let lengths: Vec<u32> = (0..count)
                        .map(|_| match random(&mut state) % 4 {
                            0 => 1 + random(&mut state) as u32 % (32 * MIB),
                            1 => 1 + random(&mut state) as u32 % MIB,
                            _ => 4096,
                        })
                        .collect();
                    // The first is a write or a read, the others are reads: requests are sent before replies must be
                    // read.
                    let writes = random(&mut state).is_multiple_of(2);
                    if writes {
                        client.request(NBD_CMD_WRITE, 0, 0, 0, lengths[0]).unwrap();
                        client.give(&vec![7; lengths[0] as usize]).unwrap();
                    }
                    for (cookie, &length) in lengths.iter().enumerate().skip(usize::from(writes)) {
                        client.request(NBD_CMD_READ, 0, cookie as u64, 0, length).unwrap();
                    }
                    let mut answered = vec![false; lengths.len()];
                    if client.structured {
                        for _ in &lengths {
                            let reply = client.reply(0).unwrap();
                            assert_eq!(reply.error, 0);
                            assert!(!std::mem::replace(&mut answered[reply.cookie as usize], true));
                        }
                    } else {
                        take_simple(&mut client, &lengths, writes);
                    }
                    assert!(budget.used_bytes() <= budget.bytes_max());
                }
            });
        }
    });
    rig.check_well_behaved();
}

/// Reads simple replies; only their cookies identify their lengths.
fn take_simple(client: &mut Client, lengths: &[u32], writes: bool) {
    for _ in lengths {
        let header = client.take(16).unwrap();
        assert_eq!(header[..8], *b"\x67\x44\x66\x98\0\0\0\0");
        let cookie = u64::from_be_bytes(header[8..].try_into().unwrap()) as usize;
        if cookie > 0 || !writes {
            client.take(lengths[cookie] as usize).unwrap();
        }
    }
}
