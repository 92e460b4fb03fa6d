//! Requests and replies byte for byte, over raw sockets.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use flashwise_server::front::Options;
use flashwise_server::front::nbd::protocol::{command::*, command_flag::*, error::*, option};
use flashwise_storage::export::Error;
use flashwise_testing::client::{Client, Reply, named};
use flashwise_testing::memory::{Memory, noise, random};
use flashwise_testing::waiting::wait_until;

use crate::support::Rig;

fn ok(cookie: u64) -> Reply {
    Reply { cookie, error: 0, data: vec![] }
}

/// Opens a client that may query extents.
fn open_with_contexts(rig: &Rig) -> Client {
    let mut client = Client::connect(rig.address()).unwrap();
    client.give(&[0, 0, 0, 3]).unwrap();
    client.option(option::NBD_OPT_STRUCTURED_REPLY, b"").unwrap();
    client.structured = true;
    let query = named("disk", &[b"\0\0\0\x01", &named("base:allocation", b"")[..]].concat());
    let replies = client.option(option::NBD_OPT_SET_META_CONTEXT, &query).unwrap();
    assert_eq!(replies[0].1, b"\0\0\0\x01base:allocation");
    client.go("disk").unwrap();
    client
}

#[test]
fn every_command_reaches_the_export_and_is_answered() {
    let (rig, disk) = Rig::with_disk(1 << 20);
    for structured in [false, true] {
        let mut client = rig.open(structured);
        let data = noise(3, 100_000);
        assert_eq!(client.write(1000, &data).unwrap(), 0);
        assert_eq!(client.read(1000, 100_000).unwrap(), data);
        assert_eq!(disk.read(1000, 100_000), data);
        for (cookie, kind, flags) in [
            (1, NBD_CMD_TRIM, NBD_CMD_FLAG_FUA),
            (2, NBD_CMD_CACHE, 0),
            (3, NBD_CMD_WRITE_ZEROES, NBD_CMD_FLAG_NO_HOLE | NBD_CMD_FLAG_FAST_ZERO),
        ] {
            client.request(kind, flags, cookie, 2000, 1000).unwrap();
            assert_eq!(client.reply(0).unwrap(), ok(cookie));
        }
        client.request(NBD_CMD_FLUSH, 0, 4, 0, 0).unwrap();
        assert_eq!(client.reply(0).unwrap(), ok(4));
        assert_eq!(client.read(1999, 1002).unwrap()[1..1001], [0; 1000]);
    }
    let seen = &disk.seen;
    for counter in [&seen.flushes, &seen.forced, &seen.trims, &seen.zeroes, &seen.caches] {
        assert_eq!(counter.load(Ordering::SeqCst), 2);
    }
}

#[test]
fn refused_requests_keep_the_connection_and_their_data_is_skipped() {
    let (rig, disk) = Rig::with_disk(1 << 20);
    for structured in [false, true] {
        let mut client = rig.open(structured);
        let mut ask = |kind, flags, offset, length: u32, expected: u32| {
            client.request(kind, flags, 9, offset, length).unwrap();
            if kind == NBD_CMD_WRITE {
                client.give(&vec![0xee; length as usize]).unwrap();
            }
            let reply = client.reply(0).unwrap();
            assert_eq!((reply.cookie, reply.error), (9, expected), "command {kind} flags {flags} length {length}");
        };
        ask(NBD_CMD_READ, 0, 1 << 20, 1, NBD_EINVAL);
        ask(NBD_CMD_WRITE, 0, (1 << 20) - 1, 2, NBD_ENOSPC);
        ask(NBD_CMD_WRITE, 0, 0, 40 << 20, NBD_EINVAL);
        ask(NBD_CMD_WRITE, NBD_CMD_FLAG_DF, 0, 5, NBD_EINVAL);
        ask(NBD_CMD_WRITE, 0, 0, 0, NBD_EINVAL);
        ask(NBD_CMD_WRITE_ZEROES, 0, u64::MAX, u32::MAX, NBD_ENOSPC);
        ask(NBD_CMD_READ, 0, 0, 33 << 20, NBD_EINVAL);
        ask(NBD_CMD_BLOCK_STATUS, 0, 0, 512, NBD_EINVAL);
        ask(1234, 0xffff, 0, 512, NBD_EINVAL);
        assert_eq!(client.read(0, 512).unwrap(), [0; 512]);
    }
    assert_eq!(disk.read(0, 1 << 20), vec![0; 1 << 20]);
    assert_eq!(rig.server.counters().requests_failed.load(Ordering::Relaxed), 18);
}

#[test]
fn errors_of_the_export_reach_the_client() {
    let (rig, disk) = Rig::with_disk(1 << 20);
    for structured in [false, true] {
        let mut client = rig.open(structured);
        for (failure, expected) in [
            (Error::NotPermitted, NBD_EPERM),
            (Error::Io, NBD_EIO),
            (Error::OutOfMemory, NBD_ENOMEM),
            (Error::Invalid, NBD_EINVAL),
            (Error::NoSpace, NBD_ENOSPC),
            (Error::NotSupported, NBD_ENOTSUP),
            (Error::ShuttingDown, NBD_ESHUTDOWN),
        ] {
            *disk.failure.lock().unwrap() = Some(failure);
            client.request(NBD_CMD_READ, 0, 5, 0, 512).unwrap();
            assert_eq!(client.reply(512).unwrap(), Reply { cookie: 5, error: expected, data: vec![] });
            assert_eq!(client.write(0, &[1; 512]).unwrap(), expected);
        }
        *disk.failure.lock().unwrap() = None;
        assert_eq!(client.read(0, 512).unwrap(), [0; 512]);
    }
}

#[test]
fn a_read_only_export_says_so_and_refuses_writes() {
    let mut disk = Memory::new(1 << 20);
    disk.read_only = true;
    let rig = Rig::start(&[("disk", Arc::new(disk))], Options::default());
    let mut client = rig.open(true);
    // Has flags, read-only, flush, DF, multi-conn, cache.
    assert_eq!(client.transmission_flags, 0x587);
    assert_eq!(client.write(0, &[1; 512]).unwrap(), NBD_EPERM);
    assert_eq!(client.read(0, 512).unwrap(), [0; 512]);
}

#[test]
fn extents_are_reported_to_clients_that_requested_them() {
    let (rig, disk) = Rig::with_disk(1 << 20);
    disk.write(65536, &[1; 65536]);
    let mut client = open_with_contexts(&rig);
    let extents = |client: &mut Client, flags, offset, length| {
        client.request(NBD_CMD_BLOCK_STATUS, flags, 6, offset, length).unwrap();
        let reply = client.reply(0).unwrap();
        assert_eq!((reply.cookie, reply.error), (6, 0));
        reply.data
    };
    // Context 1: 4 KiB of hole, 64 KiB of data, the rest hole.
    let all = extents(&mut client, 0, 61440, 200_000);
    assert_eq!(all, b"\0\0\0\x01\0\0\x10\0\0\0\0\x03\0\x01\0\0\0\0\0\0\0\x01\xfd\x40\0\0\0\x03");
    let one = extents(&mut client, NBD_CMD_FLAG_REQ_ONE, 61440, 200_000);
    assert_eq!(one, b"\0\0\0\x01\0\0\x10\0\0\0\0\x03");
    *disk.failure.lock().unwrap() = Some(Error::Io);
    client.request(NBD_CMD_BLOCK_STATUS, 0, 6, 0, 512).unwrap();
    assert_eq!(client.reply(0).unwrap().error, NBD_EIO);
}

#[test]
fn zeroing_that_is_not_fast_is_refused_when_it_must_be() {
    let mut disk = Memory::new(1 << 20);
    disk.slow_zeroes = true;
    let rig = Rig::start(&[("disk", Arc::new(disk))], Options::default());
    let mut client = rig.open(true);
    client.request(NBD_CMD_WRITE_ZEROES, NBD_CMD_FLAG_FAST_ZERO, 1, 0, 512).unwrap();
    assert_eq!(client.reply(0).unwrap().error, NBD_ENOTSUP);
    client.request(NBD_CMD_WRITE_ZEROES, 0, 1, 0, 512).unwrap();
    assert_eq!(client.reply(0).unwrap(), ok(1));
}

#[test]
fn the_size_of_an_export_is_looked_up_with_each_request() {
    let (rig, disk) = Rig::with_disk(4096);
    let mut client = rig.open(true);
    assert_eq!(client.write(4096, &[1; 512]).unwrap(), NBD_ENOSPC);
    disk.resize(8192);
    assert_eq!(client.write(4096, &[1; 512]).unwrap(), 0);
}

#[test]
fn answers_come_in_any_order_and_each_finds_its_request() {
    for later in [false, true] {
        let mut disk = Memory::new(64 << 20);
        if later {
            disk = disk.answering_later(11);
        }
        let disk = Arc::new(disk);
        disk.write(0, &noise(1, 64 << 20));
        let rig = Rig::start(&[("disk", disk.clone())], Options::default());
        for structured in [false, true] {
            let mut client = rig.open(structured);
            let mut state = 5;
            let mut out_of_order = false;
            for _ in 0..30 {
                let asked: Vec<(u64, u32)> = (0..64)
                    .map(|_| (random(&mut state) % (60 << 20), (random(&mut state) % 60_000) as u32 + 1))
                    .collect();
                for (cookie, &(offset, length)) in asked.iter().enumerate() {
                    client.request(NBD_CMD_READ, 0, cookie as u64, offset, length).unwrap();
                }
                // A simple reply has no length, so all lengths must be equal if the order is unknown.
                if !structured {
                    for &(offset, length) in asked.iter().filter(|_| !later) {
                        let reply = client.reply(length as usize).unwrap();
                        assert!(reply.error == 0 && reply.data == disk.read(offset, length.into()));
                    }
                    if later {
                        break;
                    }
                    continue;
                }
                let mut left: Vec<u64> = (0..64).collect();
                while !left.is_empty() {
                    let reply = client.reply(0).unwrap();
                    let (offset, length) = asked[reply.cookie as usize];
                    assert!(reply.error == 0 && reply.data == disk.read(offset, length.into()));
                    let position = left.iter().position(|&cookie| cookie == reply.cookie).expect("answered once");
                    out_of_order |= position > 0;
                    left.remove(position);
                }
            }
            assert!(!structured || out_of_order == later);
        }
    }
}

#[test]
fn large_and_small_writes_in_one_stream_arrive_whole() {
    let (rig, disk) = Rig::with_disk(64 << 20);
    let mut client = rig.open(true);
    let mut expected = vec![0; 64 << 20];
    let mut state = 77;
    for cookie in 0..60 {
        let length = [1, 28, 4096, 32_767, 32_768, 131_072, 131_100, 1 << 20, 5_000_000][cookie as usize % 9];
        let offset = (random(&mut state) % (59 << 20)) as usize;
        let data = noise(cookie + 1, length);
        client.request(NBD_CMD_WRITE, 0, cookie, offset as u64, length as u32).unwrap();
        client.give(&data).unwrap();
        expected[offset..offset + length].copy_from_slice(&data);
    }
    for cookie in 0..60 {
        assert_eq!(client.reply(0).unwrap(), ok(cookie));
    }
    assert!(disk.read(0, 64 << 20) == expected);
    let counters = rig.server.counters();
    wait_until("bytes are counted", || counters.requests.load(Ordering::Relaxed) == 60);
}

#[test]
fn disconnecting_waits_for_requests_in_flight() {
    let (rig, disk) = Rig::with_disk(1 << 20);
    let mut client = rig.open(true);
    disk.stall();
    client.request(NBD_CMD_WRITE, 0, 1, 0, 512).unwrap();
    client.give(&[7; 512]).unwrap();
    client.request(NBD_CMD_DISC, 0, 0, 0, 0).unwrap();
    wait_until("the write is held", || disk.held() == 1);
    disk.release();
    assert_eq!(client.reply(0).unwrap(), ok(1));
    assert!(client.is_closed());
}

#[test]
fn requests_go_on_when_sent_answers_have_made_room() {
    let (rig, disk) = Rig::with_disk(32 << 20);
    let mut client = rig.open(true);
    disk.stall_writes();
    client.request(NBD_CMD_WRITE, 0, 1, 0, 30 << 20).unwrap();
    client.give(&vec![1; 30 << 20]).unwrap();
    // 30 MiB are held, and 30 MiB more are unsent. Another 30 MiB must wait for the latter, but not for the former.
    client.request(NBD_CMD_READ, 0, 2, 0, 30 << 20).unwrap();
    client.request(NBD_CMD_READ, 0, 3, 0, 30 << 20).unwrap();
    for cookie in [2, 3] {
        let reply = client.reply(0).unwrap();
        assert_eq!((reply.cookie, reply.error, reply.data.len()), (cookie, 0, 30 << 20));
    }
    assert_eq!(disk.held(), 1);
    disk.release();
    assert_eq!(client.reply(0).unwrap(), ok(1));
}

#[test]
fn answers_that_are_unsent_when_a_client_says_goodbye_still_come() {
    let (rig, disk) = Rig::with_disk(32 << 20);
    disk.write(0, &noise(8, 32 << 20));
    let mut client = rig.open(false);
    // More than the socket accepts, and less than the limit for accepting requests.
    client.request(NBD_CMD_READ, 0, 1, 0, 1_000_000).unwrap();
    client.request(NBD_CMD_DISC, 0, 0, 0, 0).unwrap();
    wait_until("both are received", || rig.server.counters().requests.load(Ordering::Relaxed) == 2);
    assert!(client.reply(1_000_000).unwrap().data == disk.read(0, 1_000_000));
    assert!(client.is_closed());
}
