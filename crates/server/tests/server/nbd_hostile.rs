//! Clients that break the protocol, vanish, or never read. After each, a well-behaved client is served.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use flashwise_server::front::nbd::handshake::{Encryption, Handshake, OPTION_BYTES_MAX, Step};
use flashwise_server::front::nbd::protocol::{command::*, option};
use flashwise_server::front::nbd::transmission::{Command, DRAIN_BYTES_MAX, Terms, Verdict, judge};
use flashwise_server::front::{Address, Options};
use flashwise_testing::client::{Client, Socket, named, option_bytes, request_bytes};
use flashwise_testing::memory::{Memory, noise, random};
use flashwise_testing::waiting::wait_until;

use crate::support::Rig;

const SIZE: u64 = 1 << 20;

/// Returns all bytes of a client in a session that uses every option and command.
fn session() -> Vec<u8> {
    let query = named("disk", &[b"\0\0\0\x01", &named("base:allocation", b"")[..]].concat());
    let mut bytes = [
        vec![0, 0, 0, 3],
        option_bytes(option::NBD_OPT_LIST, b""),
        option_bytes(option::NBD_OPT_STRUCTURED_REPLY, b""),
        option_bytes(option::NBD_OPT_LIST_META_CONTEXT, &query),
        option_bytes(option::NBD_OPT_SET_META_CONTEXT, &query),
        option_bytes(99, b"what is this?"),
        option_bytes(option::NBD_OPT_INFO, &named("disk", b"\0\x03\0\x01\0\x02\0\x03")),
        option_bytes(option::NBD_OPT_GO, &named("disk", b"\0\0")),
    ]
    .concat();
    bytes.extend(request_bytes(NBD_CMD_WRITE, 1, 1, 0, 300));
    bytes.extend(noise(1, 300));
    bytes.extend(request_bytes(NBD_CMD_READ, 0, 2, 0, 300));
    bytes.extend(request_bytes(NBD_CMD_WRITE, 0, 3, SIZE, 40));
    bytes.extend(noise(2, 40));
    bytes.extend(request_bytes(NBD_CMD_BLOCK_STATUS, 0, 4, 0, 65536));
    bytes.extend(request_bytes(NBD_CMD_WRITE_ZEROES, 2, 5, 4096, 4096));
    bytes.extend(request_bytes(NBD_CMD_TRIM, 0, 6, 4096, 4096));
    bytes.extend(request_bytes(NBD_CMD_CACHE, 0, 7, 4096, 4096));
    bytes.extend(request_bytes(NBD_CMD_FLUSH, 0, 8, 0, 0));
    bytes.extend(request_bytes(NBD_CMD_DISC, 0, 9, 0, 0));
    bytes
}

fn connect(rig: &Rig) -> UnixStream {
    let Address::Unix(path) = rig.address() else { panic!("the rig listens at a Unix socket") };
    let socket = UnixStream::connect(path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

/// Sends `bytes` and returns the server's output until it closes the connection.
fn say(rig: &Rig, bytes: &[u8]) -> Vec<u8> {
    let mut socket = connect(rig);
    // The server may close the connection before everything is sent.
    let _ = socket.write_all(bytes).and_then(|()| socket.shutdown(Shutdown::Write));
    let mut heard = Vec::new();
    match socket.read_to_end(&mut heard) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("the connection hangs: {error}"),
        _ => heard,
    }
}

fn wait_for_no_connection(rig: &Rig) {
    let counters = rig.server.counters();
    wait_until("connections end", || counters.connections.load(Ordering::Relaxed) == 0);
}

/// Changes, removes and duplicates some bytes.
fn mutate(bytes: &mut Vec<u8>, state: &mut u64) {
    for _ in 0..=random(state) % 3 {
        let at = random(state) as usize % bytes.len();
        let end = (at + random(state) as usize % 40).min(bytes.len());
        match random(state) % 6 {
            0 => bytes[at] ^= 1 << (random(state) % 8),
            1 => bytes[at] = random(state) as u8,
            2 => bytes[at..end].fill(0xff),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            _ => {
                let number = [0_u32, 1, 0x7fff_ffff, 0xffff_ffff, 4097, 1 << 20, 32 << 20][random(state) as usize % 7];
                let end = (at + 4).min(bytes.len());
                bytes[at..end].copy_from_slice(&number.to_be_bytes()[..end - at]);
            }
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
}

#[test]
fn mutated_sessions_end_and_harm_no_other() {
    let (rig, _disk) = Rig::with_disk(SIZE);
    let valid = session();
    let mut state = 20_261_121;
    for _ in 0..4000 {
        let mut bytes = valid.clone();
        mutate(&mut bytes, &mut state);
        say(&rig, &bytes);
    }
    wait_for_no_connection(&rig);
    assert_eq!(rig.server.counters().connections_accepted.load(Ordering::Relaxed), 4000);
    rig.check_well_behaved();
}

#[test]
fn a_session_that_ends_at_any_byte_is_answered_so_far() {
    let (rig, _disk) = Rig::with_disk(SIZE);
    let valid = session();
    let whole = say(&rig, &valid);
    let mut last = 0;
    for end in 0..=valid.len() {
        let heard = say(&rig, &valid[..end]);
        assert!(whole.starts_with(&heard), "said {end} bytes");
        assert!(heard.len() >= last, "said {end} bytes");
        last = heard.len();
    }
    assert_eq!(last, whole.len());
    for end in 0..valid.len() {
        connect(&rig).write_all(&valid[..end]).unwrap();
    }
    wait_for_no_connection(&rig);
    rig.check_well_behaved();
}

#[test]
fn haggling_makes_sense_of_any_bytes_in_any_pieces() {
    let exports = flashwise_storage::export::Exports::default();
    exports.add("disk", Arc::new(Memory::new(SIZE)));
    let valid = session();
    let mut state = 8;
    for round in 0..20_000 {
        let mut bytes = valid.clone();
        mutate(&mut bytes, &mut state);
        if round % 4 == 0 {
            let length = bytes.len();
            bytes[4..].copy_from_slice(&noise(random(&mut state), length - 4));
        }
        let encryption = [Encryption::Off, Encryption::Allowed, Encryption::Required][round % 3];
        let mut handshake = Handshake::new(exports.clone().into(), encryption);
        let (mut start, mut end) = (0, 0);
        loop {
            let mut output = Vec::new();
            let (taken, step) = handshake.advance(&bytes[start..end], &mut output);
            start += taken;
            assert!(start <= end);
            assert!(output.len() < 2000, "an answer is short");
            match step {
                Step::Continue if taken > 0 => {}
                Step::Continue if end == bytes.len() => break,
                Step::Continue => {
                    assert!(end - start < OPTION_BYTES_MAX + 16, "no message is longer");
                    end = (end + 1 + random(&mut state) as usize % 60).min(bytes.len());
                }
                Step::StartTls => handshake.encrypted(),
                Step::Transmit(_) | Step::End => break,
            }
        }
    }
}

#[test]
fn no_request_reaches_past_the_end_of_an_export() {
    let mut state = 9;
    for _ in 0..200_000 {
        let bits = random(&mut state);
        let size = random(&mut state) >> (bits % 64);
        let command = Command {
            flags: random(&mut state) as u16 & 0x1f & (bits >> 8) as u16,
            kind: (bits >> 16) as u16 % 9,
            cookie: 1,
            offset: random(&mut state) >> ((bits >> 24) % 64),
            length: (random(&mut state) >> (32 + (bits >> 32) % 32)) as u32,
        };
        let terms = Terms {
            size,
            read_only: bits & 1 << 40 != 0,
            block_bytes_min: 1 << ((bits >> 41) % 13),
            payload_bytes_max: 32 << 20,
            structured: bits & 1 << 50 != 0,
            allocation: bits & 1 << 51 != 0,
        };
        if let Verdict::Perform(_) | Verdict::Extents(_) = judge(&command, &terms) {
            let end = command.offset.checked_add(command.length.into()).expect("no overflow");
            assert!(end <= size || command.kind == NBD_CMD_FLUSH, "{command:?} {terms:?}");
            assert!(!terms.read_only || ![1, 4, 6].contains(&command.kind), "{command:?} {terms:?}");
            assert!(command.data_bytes() <= 32 << 20, "{command:?} {terms:?}");
        }
    }
}

#[test]
fn wrong_magic_and_endless_writes_end_the_connection() {
    let (rig, _disk) = Rig::with_disk(SIZE);
    let mut client = rig.open(true);
    let mut request = request_bytes(NBD_CMD_READ, 0, 1, 0, 512);
    request[0] ^= 0x80;
    client.give(&request).unwrap();
    assert!(client.is_closed());
    let mut client = rig.open(true);
    client.request(NBD_CMD_WRITE, 0, 1, 0, DRAIN_BYTES_MAX + 1).unwrap();
    assert!(client.is_closed());
    assert_eq!(rig.server.counters().connections_broken.load(Ordering::Relaxed), 2);
    rig.check_well_behaved();
}

#[test]
fn names_that_are_not_text_or_too_long_are_refused() {
    let (rig, _disk) = Rig::with_disk(SIZE);
    let mut client = Client::connect(rig.address()).unwrap();
    client.give(&[0, 0, 0, 3]).unwrap();
    for (name, expected) in [(&b"\xc3\x28"[..], 0x8000_0003), (&[b'a'; 5000], 0x8000_0009), (b"other", 0x8000_0006)] {
        let data = [&(name.len() as u32).to_be_bytes(), name, b"\0\0"].concat();
        let replies = client.option(option::NBD_OPT_GO, &data).unwrap();
        assert_eq!((replies.len(), replies[0].0), (1, expected));
    }
    client.go("disk").unwrap();
    assert_eq!(client.read(0, 512).unwrap(), [0; 512]);
    for name in [&b"\xc3\x28"[..], &[b'a'; 5000], b"other"] {
        let mut client = Client::connect(rig.address()).unwrap();
        client.give(&[0, 0, 0, 3]).unwrap();
        client.give(&option_bytes(option::NBD_OPT_EXPORT_NAME, name)).unwrap();
        assert!(client.is_closed());
    }
    rig.check_well_behaved();
}

#[test]
fn clients_that_vanish_in_the_middle_of_a_reply_harm_no_other() {
    let (rig, _disk) = Rig::with_disk(64 << 20);
    for round in 0..40 {
        let mut client = rig.open(round % 2 == 0);
        for cookie in 0..3 {
            client.request(NBD_CMD_READ, 0, cookie, 0, 32 << 20).unwrap();
        }
        client.take(100 + round * 1000).unwrap();
    }
    wait_for_no_connection(&rig);
    rig.check_well_behaved();
}

#[test]
fn clients_that_vanish_while_requests_are_in_flight_are_counted_until_these_end() {
    let (rig, disk) = Rig::with_disk(SIZE);
    disk.stall();
    for held in 1..=10 {
        let mut client = rig.open(true);
        client.request(NBD_CMD_READ, 0, 1, 0, 4096).unwrap();
        wait_until("the request is held", || disk.held() == held);
    }
    assert_eq!(rig.server.counters().connections.load(Ordering::Relaxed), 10);
    disk.release();
    wait_for_no_connection(&rig);
    rig.check_well_behaved();
}

/// Sends `bytes` until `is_full` is true and the server accepts no more, while another client is served. Returns the
/// number of bytes sent.
fn fill_up(rig: &Rig, client: &mut Client, bytes: &[u8], is_full: impl Fn() -> bool) -> usize {
    let Socket::Unix(socket) = &mut client.socket else { panic!("the rig listens at a Unix socket") };
    socket.set_nonblocking(true).unwrap();
    let mut other = Client::open(rig.address(), "other", true).unwrap();
    let (mut sent, mut refusals) = (0, 0);
    while (refusals < 50 || !is_full()) && sent < bytes.len() {
        match socket.write(&bytes[sent..]) {
            Ok(count) => (sent, refusals) = (sent + count, 0),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                refusals += 1;
                assert_eq!(other.read(0, 4096).unwrap(), [0; 4096]);
            }
        }
    }
    socket.set_nonblocking(false).unwrap();
    sent
}

#[test]
fn requests_in_flight_are_limited_in_number_and_bytes() {
    for (length, held_max, count) in [(4096, 128, 500), (1 << 20, 64, 70), (30 << 20, 2, 4)] {
        let disk = Arc::new(Memory::new(64 << 20));
        let exports = [("disk", disk.clone()), ("other", Arc::new(Memory::new(SIZE)))];
        let rig = Rig::start(&exports, Options::default());
        disk.stall();
        let mut bytes = Vec::new();
        for cookie in 0..count {
            bytes.extend(request_bytes(NBD_CMD_WRITE, 0, cookie as u64, 0, length as u32));
            bytes.resize(bytes.len() + length, 0x11);
        }
        let mut client = rig.open(true);
        let sent = fill_up(&rig, &mut client, &bytes, || disk.held() >= held_max);
        assert!(sent < bytes.len(), "requests of {length} bytes are held up");
        assert_eq!(disk.held(), held_max, "requests of {length} bytes");
        disk.release();
        std::thread::scope(|scope| {
            let Socket::Unix(socket) = &client.socket else { panic!("the rig listens at a Unix socket") };
            let mut writer = socket.try_clone().unwrap();
            scope.spawn(move || writer.write_all(&bytes[sent..]).unwrap());
            for _ in 0..count {
                assert_eq!(client.reply(0).unwrap().error, 0);
            }
        });
        rig.check_well_behaved();
    }
}

#[test]
fn a_client_that_never_reads_blocks_only_itself() {
    for later in [false, true] {
        let mut disk = Memory::new(4 << 20);
        if later {
            disk = disk.answering_later(3);
        }
        let exports = [("disk", Arc::new(disk)), ("other", Arc::new(Memory::new(SIZE)))];
        let rig = Rig::start(&exports, Options::default());
        for length in [16_u32, 4096, 4 << 20] {
            let mut client = rig.open(true);
            let count: u64 = if length == 4 << 20 { 40_000 } else { 1_000_000 };
            let bytes: Vec<u8> =
                (0..count).flat_map(|cookie| request_bytes(NBD_CMD_READ, 0, cookie, 0, length)).collect();
            let before = rig.server.counters().requests.load(Ordering::Relaxed);
            let sent = fill_up(&rig, &mut client, &bytes, || true);
            assert!(sent < bytes.len(), "requests for {length} bytes are held up");
            // The unsent replies in the server, and as much again in the sockets.
            let accepted = rig.server.counters().requests.load(Ordering::Relaxed) - before;
            let unsent = accepted.saturating_sub(60) * (u64::from(length) + 28);
            assert!(unsent <= 2 * (65 << 20), "{accepted} requests for {length} bytes were accepted");
            // It was slow, but valid.
            for _ in 0..sent / 28 {
                assert_eq!(client.reply(0).unwrap().error, 0);
                if length == 4 << 20 {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_thousand_clients_are_served_at_once() {
    let (rig, disk) = Rig::with_disk(SIZE);
    disk.write(0, &noise(4, 65536));
    let mut clients: Vec<Client> = (0..1200).map(|_| rig.open(true)).collect();
    for round in 0..2 {
        for (number, client) in clients.iter_mut().enumerate() {
            client.request(NBD_CMD_READ, 0, number as u64, number as u64 * 50, 1000 + round).unwrap();
        }
        for (number, client) in clients.iter_mut().enumerate() {
            let reply = client.reply(0).unwrap();
            assert_eq!(reply.cookie, number as u64);
            assert!(reply.data == disk.read(number as u64 * 50, u64::from(1000 + round)));
        }
    }
    assert_eq!(rig.server.counters().connections.load(Ordering::Relaxed), 1200);
    drop(clients);
    wait_for_no_connection(&rig);
    rig.check_well_behaved();
}

#[test]
fn clients_beyond_the_limit_are_turned_away_until_others_leave() {
    let options = Options { connections_max: 3, ..Options::default() };
    let rig = Rig::start(&[("disk", Arc::new(Memory::new(SIZE)))], options);
    let mut clients: Vec<Client> = (0..3).map(|_| rig.open(true)).collect();
    let mut refused = connect(&rig);
    assert_eq!(refused.read(&mut [0; 1]).unwrap(), 0);
    assert_eq!(rig.server.counters().connections_refused.load(Ordering::Relaxed), 1);
    assert_eq!(clients[0].read(0, 512).unwrap(), [0; 512]);
    clients.clear();
    wait_for_no_connection(&rig);
    rig.check_well_behaved();
}

#[test]
fn a_client_that_does_not_come_to_the_point_is_cut_off() {
    let options = Options { handshake_time_max: Duration::from_millis(50), ..Options::default() };
    let rig = Rig::start(&[("disk", Arc::new(Memory::new(SIZE)))], options);
    let mut silent = Client::connect(rig.address()).unwrap();
    assert!(silent.is_closed());
    let mut client = rig.open(true);
    wait_until("the silent one is counted", || rig.server.counters().handshakes_failed.load(Ordering::Relaxed) == 1);
    assert_eq!(client.read(0, 512).unwrap(), [0; 512], "once it has opened an export, a client has all the time");
}
