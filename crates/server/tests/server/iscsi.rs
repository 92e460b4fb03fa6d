//! iSCSI over sockets: initiators that follow the protocol, in and out of order, and hostile ones.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flashwise_server::front::{Address, Assignment, Iscsi, Options, Server, iscsi, nbd};
use flashwise_storage::export::{Error, Exports};
use flashwise_testing::client::Client;
use flashwise_testing::initiator::{Initiator, NAME, TARGET, cdb_10, text};
use flashwise_testing::memory::{Memory, noise, random};
use flashwise_testing::waiting::wait_until;

const SIZE: u64 = 64 << 20;

fn start(disk: &Arc<Memory>, options: Options) -> (Server, String) {
    let exports = Exports::default();
    assert!(exports.add("disk", disk.clone()));
    let address = Address::Tcp { host: "127.0.0.1".into(), port: 0 };
    let server = Server::start(&[iscsi::PROTOCOL.at(address)], exports, options).unwrap();
    let address = server.endpoints()[0].address.to_string();
    (server, address)
}

fn served() -> (Arc<Memory>, Server, String) {
    let disk = Arc::new(Memory::new(SIZE));
    let (server, address) = start(&disk, Options::default());
    (disk, server, address)
}

fn ready(address: &str, isid: u8) -> Initiator {
    let mut initiator = Initiator::log_in(address, NAME, isid);
    initiator.clear_attentions();
    initiator
}

fn check_well_behaved(address: &str) {
    let mut initiator = ready(address, 99);
    let data = noise(5, 8192);
    assert!(initiator.write(&cdb_10(0x2a, 64, 16), &data).is_good());
    assert_eq!(initiator.read(8192, &cdb_10(0x28, 64, 16)).data, data);
}

#[test]
fn data_comes_with_the_command_without_being_asked_and_when_asked() {
    let (disk, _server, address) = served();
    let mut initiator = ready(&address, 1);
    let data = noise(1, 300 << 10);
    let header = initiator.command(0x20, 300 << 10, &cdb_10(0x2a, 8, 600));
    // 4 KiB immediate, 60 KiB unsolicited, the rest on request.
    initiator.send(header, &data[..4096]).unwrap();
    initiator.data_out(false, u32::MAX, 0, 4096, &data[4096..8192]);
    initiator.data_out(true, u32::MAX, 1, 8192, &data[8192..65536]);
    let asked = initiator.receive().unwrap();
    assert_eq!((asked.opcode(), asked.word(36), asked.word(40), asked.word(44)), (0x31, 0, 65536, (300 << 10) - 65536));
    let transfer = asked.word(20);
    for (number, from) in (65536..300 << 10).step_by(65536).enumerate() {
        let end = (from + 65536).min(300 << 10);
        initiator.data_out(end == 300 << 10, transfer, number as u32, from as u32, &data[from..end]);
    }
    let outcome = initiator.outcome();
    assert!(outcome.is_good() && outcome.residual == 0);
    assert!(disk.read(4096, 300 << 10) == data);
    // The initiator accepts segments of 8 KiB.
    assert!(initiator.read(300 << 10, &cdb_10(0x28, 8, 600)).data == data);
    assert!(initiator.read(0, &cdb_10(0x35, 0, 0)).is_good());
    assert_eq!(disk.seen.flushes.load(Ordering::SeqCst), 1);
}

#[test]
fn data_with_a_wrong_digest_ends_the_connection() {
    let (disk, server, address) = served();
    let mut initiator = Initiator::connect(&address);
    let pairs = [("InitiatorName", NAME), ("TargetName", TARGET), ("DataDigest", "CRC32C,None")];
    let answer = initiator.login(1, 0x87, &text(&pairs)).unwrap();
    assert!(String::from_utf8(answer.data).unwrap().contains("DataDigest=CRC32C\0"));
    // A new initiator gets a unit attention, whose sense data has a digest.
    let header = initiator.command(0x80, 0, &[0; 6]);
    initiator.send(header, &[]).unwrap();
    let answer = initiator.receive().unwrap();
    let mut digest = [0; 4];
    initiator.stream.read_exact(&mut digest).unwrap();
    assert_eq!(digest, crc32c::crc32c(&answer.data).to_le_bytes());
    let data = noise(4, 512);
    for (block, wrong) in [(3, 0), (4, 1)] {
        let header = initiator.command(0xa0, 512, &cdb_10(0x2a, block, 1));
        initiator.send(header, &data).unwrap();
        let digest = crc32c::crc32c(&data) ^ wrong;
        initiator.stream.write_all(&digest.to_le_bytes()).unwrap();
        if wrong == 0 {
            assert!(initiator.outcome().is_good());
        }
    }
    assert!(initiator.is_closed());
    assert!(disk.read(3 * 512, 512) == data && disk.read(4 * 512, 512) == [0; 512]);
    wait_until("it is counted", || server.counters().connections_broken.load(Ordering::SeqCst) == 1);
}

#[test]
fn residuals_are_exact() {
    let (disk, _server, address) = served();
    let mut initiator = ready(&address, 1);
    for (expected, blocks, residual) in [(512, 1, 0), (10_000, 1, -9488), (200, 1, 312), (512, 2, 512)] {
        let outcome = initiator.read(expected, &cdb_10(0x28, 0, blocks));
        assert!(outcome.is_good() && outcome.data.len() as u32 == expected.min(u32::from(blocks) * 512));
        assert_eq!(outcome.residual, residual, "{expected} bytes expected, {blocks} blocks read");
    }
    let outcome = initiator.write(&cdb_10(0x2a, 0, 2), &[7; 700]);
    assert!(outcome.is_good() && outcome.residual == 324, "{outcome:?}");
    assert!(disk.read(0, 700) == [7; 700] && disk.read(700, 324) == [0; 324]);
    // A rejected command has transferred nothing.
    let outcome = initiator.read(512, &cdb_10(0x28, u32::MAX, 1));
    assert_eq!((outcome.status, outcome.sense, outcome.residual), (2, Some((5, 0x21, 0)), -512));
}

#[test]
fn compare_and_write_is_atomic_among_sessions() {
    let disk = Arc::new(Memory::new(SIZE).answering_later(3));
    let (_server, address) = start(&disk, Options::default());
    // Each of four sessions increments a number in block 5 a hundred times.
    let count = |isid: u8| {
        let mut initiator = ready(&address, isid);
        let mut counted = 0;
        while counted < 100 {
            counted += u32::from(count_up(&mut initiator));
        }
    };
    std::thread::scope(|scope| (1..=4).for_each(|isid| drop(scope.spawn(move || count(isid)))));
    assert_eq!(disk.read(5 * 512, 8), 400_u64.to_be_bytes());
}

/// Increments the number at the start of block 5, if no other session changed it meanwhile. Returns true if it did.
fn count_up(initiator: &mut Initiator) -> bool {
    let found = initiator.read(512, &cdb_10(0x28, 5, 1)).data;
    let number = u64::from_be_bytes(found[..8].try_into().unwrap());
    let mut wanted = found.clone();
    wanted[..8].copy_from_slice(&(number + 1).to_be_bytes());
    let mut cdb = [0; 16];
    (cdb[0], cdb[9], cdb[13]) = (0x89, 5, 1);
    let outcome = initiator.write(&cdb, &[found, wanted].concat());
    match (outcome.status, outcome.sense) {
        (0, None) => true,
        (2, Some((0xe, 0x1d, 0))) => false,
        other => panic!("{other:?}"),
    }
}

/// An NBD client writes the number's upper half, and sessions that increment its lower half must not undo that.
#[test]
fn compare_and_write_does_not_undo_writes_over_nbd() {
    let disk = Arc::new(Memory::new(SIZE).answering_later(3));
    let exports = Exports::default();
    assert!(exports.add("disk", disk));
    let folder = tempfile::tempdir().unwrap();
    let nbd = Address::Unix(folder.path().join("nbd.sock"));
    let endpoints = [iscsi::PROTOCOL.at(crate::support::tcp_address("127.0.0.1")), nbd::PROTOCOL.at(nbd.clone())];
    let server = Server::start(&endpoints, exports, Options::default()).unwrap();
    let address = server.endpoints()[0].address.to_string();
    let ended = AtomicBool::new(false);
    let counted = std::thread::scope(|scope| {
        let count = |isid: u8| {
            let mut initiator = ready(&address, isid);
            let mut counted = 0;
            while !ended.load(Ordering::SeqCst) {
                counted += u32::from(count_up(&mut initiator));
            }
            counted
        };
        let sessions: Vec<_> = (1..=3).map(|isid| scope.spawn(move || count(isid))).collect();
        let mut client = Client::open(&nbd, "disk", false).unwrap();
        for round in 1..=300_u64 {
            assert_eq!(client.write(5 * 512, &(round << 32).to_be_bytes()).unwrap(), 0);
            for _ in 0..3 {
                let found = client.read(5 * 512, 8).unwrap();
                assert_eq!(u64::from_be_bytes(found.try_into().unwrap()) >> 32, round, "another's write was undone");
            }
        }
        ended.store(true, Ordering::SeqCst);
        sessions.into_iter().map(|session| session.join().unwrap()).sum::<u32>()
    });
    assert!(counted > 0, "the sessions counted");
}

fn persistent(initiator: &mut Initiator, action: u8, kind: u8, key: u64, new: u64, lasts: bool) -> u8 {
    let mut cdb = cdb_10(0x5f, 0, 24);
    (cdb[1], cdb[2]) = (action, kind);
    let mut data = [0; 24];
    data[..8].copy_from_slice(&key.to_be_bytes());
    data[8..16].copy_from_slice(&new.to_be_bytes());
    data[20] = u8::from(lasts);
    initiator.write(&cdb, &data).status
}

#[test]
fn reservations_keep_others_out_also_after_a_restart_where_that_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let iscsi = Iscsi { state_directory: Some(folder.path().to_owned()), ..Iscsi::default() };
    let options = Options { iscsi, ..Options::default() };
    let disk = Arc::new(Memory::new(SIZE));
    for lasts in [true, false] {
        let (server, address) = start(&disk, options.clone());
        let (mut one, mut other) = (ready(&address, 1), ready(&address, 2));
        assert_eq!(persistent(&mut one, 0, 0, 0, 77, lasts), 0);
        assert_eq!(persistent(&mut one, 1, 1, 77, 0, false), 0);
        assert_eq!(other.write(&cdb_10(0x2a, 0, 1), &[1; 512]).status, 0x18);
        assert!(other.read(512, &cdb_10(0x28, 0, 1)).is_good() && one.write(&cdb_10(0x2a, 0, 1), &[1; 512]).is_good());
        assert!(server.stop(Duration::from_secs(60)));
        let (server, address) = start(&disk, options.clone());
        let (mut one, mut other) = (ready(&address, 1), ready(&address, 2));
        assert_eq!(other.write(&cdb_10(0x2a, 0, 1), &[1; 512]).status, if lasts { 0x18 } else { 0 });
        if lasts {
            assert_eq!(persistent(&mut one, 3, 0, 77, 0, false), 0);
            assert!(!Path::exists(&folder.path().join("reservations-disk.json")));
        }
        drop(server);
    }
}

#[test]
fn a_session_that_comes_again_ends_its_older_self() {
    let (_disk, server, address) = served();
    let (mut older, mut other) = (ready(&address, 1), ready(&address, 2));
    assert!(older.read(0, &[0x16, 0, 0, 0, 0, 0]).is_good());
    assert_eq!(other.read(0, &[0; 6]).status, 0x18);
    let mut newer = Initiator::log_in(&address, NAME, 1);
    assert!(older.is_closed());
    // RESERVE ends with its session.
    for initiator in [&mut newer, &mut other] {
        let outcome = initiator.read(0, &[0; 6]);
        assert!(outcome.is_good(), "{outcome:?}");
    }
    wait_until("two sessions are left", || server.counters().connections.load(Ordering::SeqCst) == 2);
}

/// Once an initiator is informed of its session's end, its reservations are gone for all.
#[test]
fn reservations_of_a_session_are_gone_once_its_logout_is_answered() {
    let (_disk, _server, address) = served();
    let mut other = ready(&address, 2);
    let (reserve, release) = ([0x16, 0, 0, 0, 0, 0], [0x17, 0, 0, 0, 0, 0]);
    for round in 0..200 {
        let mut one = ready(&address, 1);
        assert!(one.read(0, &reserve).is_good(), "round {round}");
        let mut logout = one.command(0x80, 0, &[]);
        logout[0] = 0x46;
        one.send(logout, &[]).unwrap();
        assert_eq!(one.receive().unwrap().opcode(), 0x26);
        // The same initiator logs in again immediately, and reserves the unit anew.
        let mut again = (round % 2 == 0).then(|| ready(&address, 1));
        let next = again.as_mut().unwrap_or(&mut other);
        assert!(next.read(0, &reserve).is_good(), "round {round}");
        assert!(one.is_closed());
        if let Some(again) = &mut again {
            assert_eq!(other.read(0, &reserve).status, 0x18, "round {round}");
            assert!(again.read(0, &release).is_good());
        } else {
            assert!(other.read(0, &release).is_good());
        }
    }
}

/// After a session is reinstated, Linux immediately sends all commands that were in flight: it assumes that the old
/// window is still open.
#[test]
fn commands_that_come_at_once_behind_a_login_are_all_answered() {
    let (_disk, _server, address) = served();
    for session in 0..2 {
        let mut initiator = Initiator::log_in(&address, NAME, 1);
        let commands: Vec<[u8; 48]> = (0..16).map(|_| initiator.command(0x80, 0, &[0; 6])).collect();
        commands.iter().for_each(|command| initiator.send(*command, &[]).unwrap());
        for (number, command) in commands.iter().enumerate() {
            let answer = initiator.receive().unwrap();
            assert_eq!((answer.opcode(), &answer.header[16..20]), (0x21, &command[16..20]), "command {number}");
            // The first one reports that the unit was switched on.
            assert_eq!(answer.header[3], if (session, number) == (0, 0) { 2 } else { 0 });
        }
    }
}

#[test]
fn aborted_commands_are_not_answered() {
    let (disk, _server, address) = served();
    let mut initiator = ready(&address, 1);
    disk.stall();
    let read = initiator.command(0xc0, 512, &cdb_10(0x28, 0, 1));
    initiator.send(read, &[]).unwrap();
    wait_until("the read is held", || disk.held() == 1);
    let mut abort = initiator.command(0, 0, &[]);
    (abort[0], abort[1]) = (0x42, 0x81);
    let tag: [u8; 4] = read[16..20].try_into().unwrap();
    abort[20..24].copy_from_slice(&tag);
    initiator.command_number -= 1;
    initiator.send(abort, &[]).unwrap();
    // The abort waits for the read; later commands do not.
    let mut ping = initiator.command(0, 0, &[]);
    (ping[0], ping[1]) = (0x40, 0x80);
    ping[20..24].fill(0xff);
    initiator.command_number -= 1;
    initiator.send(ping, b"ping").unwrap();
    let answer = initiator.receive().unwrap();
    assert_eq!((answer.opcode(), &answer.data[..]), (0x20, &b"ping"[..]));
    disk.release();
    let answer = initiator.receive().unwrap();
    assert_eq!((answer.opcode(), answer.header[2], answer.header[16..20].to_vec()), (0x22, 0, abort[16..20].to_vec()));
    initiator.send(abort, &[]).unwrap();
    assert_eq!(initiator.receive().unwrap().header[2], 1, "there is no such task any more");
    assert!(initiator.read(512, &cdb_10(0x28, 0, 1)).is_good());
}

/// A write that waited for memory when its session was lost would take effect after newer writes of others.
#[test]
fn commands_that_were_not_begun_end_with_their_session() {
    let disk = Arc::new(Memory::new(SIZE));
    let (server, address) = start(&disk, Options { bytes_in_flight_max: 1, ..Options::default() });
    let (mut first, mut second) = (ready(&address, 1), ready(&address, 2));
    disk.stall();
    // The maximum in flight. Their replies are short, so there is memory for the write as soon as they arrive.
    *disk.failure.lock().unwrap() = Some(Error::Io);
    let reads = [(); 2].map(|()| first.command(0xc0, 16 << 20, &cdb_10(0x28, 0, 32_768)));
    let mut write = first.command(0xa0, 64 << 10, &cdb_10(0x2a, 8, 128));
    write[5] = 1;
    first.stream.write_all(&[&reads[0][..], &reads[1], &write, &[1; 64 << 10]].concat()).unwrap();
    wait_until("the reads are held", || disk.held() == 2);
    *disk.failure.lock().unwrap() = None;
    drop(first);
    let write = second.command(0xa0, 512, &cdb_10(0x2a, 8, 1));
    second.send(write, &[2; 512]).unwrap();
    wait_until("the other write is held", || disk.read(4096, 1) == [2]);
    disk.release();
    assert!(second.outcome().is_good());
    wait_until("the first has gone", || server.counters().connections.load(Ordering::SeqCst) == 1);
    assert_eq!(disk.read(4096, 1), [2]);
}

#[test]
fn initiators_that_are_not_listed_or_send_no_name_are_rejected() {
    let iscsi = Iscsi {
        initiators: Some(vec![NAME.into(), "iqn.2026-11.org.example:reader".into()]),
        read_only_initiators: vec!["iqn.2026-11.org.example:reader".into()],
        ..Iscsi::default()
    };
    let disk = Arc::new(Memory::new(SIZE));
    let (server, address) = start(&disk, Options { iscsi, ..Options::default() });
    let login = |pairs: &[(&str, &str)]| {
        let answer = Initiator::connect(&address).login(1, 0x87, &text(pairs)).unwrap();
        answer.word(36) >> 16
    };
    assert_eq!(login(&[("InitiatorName", NAME), ("TargetName", TARGET)]), 0);
    assert_eq!(login(&[("InitiatorName", "iqn.2026-11.org.example:thief"), ("TargetName", TARGET)]), 0x0202);
    assert_eq!(login(&[("InitiatorName", NAME), ("TargetName", "iqn.2026-11.org.flashwise:none")]), 0x0203);
    assert_eq!(login(&[("TargetName", TARGET)]), 0x0207);
    assert_eq!(login(&[("InitiatorName", NAME), ("TargetName", TARGET), ("MaxBurstLength", "1")]), 0x0200);
    let mut reader = Initiator::log_in(&address, "iqn.2026-11.org.example:reader", 1);
    reader.clear_attentions();
    assert_eq!(reader.write(&cdb_10(0x2a, 0, 1), &[1; 512]).sense, Some((7, 0x27, 0)));
    assert!(reader.read(512, &cdb_10(0x28, 0, 1)).is_good());
    wait_until("failures are counted", || server.counters().handshakes_failed.load(Ordering::SeqCst) == 4);
}

#[test]
fn an_assigned_export_is_only_for_its_initiators_under_any_name() {
    let exports = Exports::default();
    let disk: Arc<Memory> = Arc::new(Memory::new(SIZE));
    assert!(exports.add("disk", disk.clone()) && exports.add_alias("same", disk));
    assert!(exports.add("other", Arc::new(Memory::new(SIZE))));
    let assign = |text: &str| text.parse().unwrap();
    let assignments = vec![assign(&format!("disk {NAME}")), assign("disk iqn.2026-11.org.example:reader read-only")];
    let options = Options {
        iscsi: Iscsi { assignments: Arc::new(assignments.into()), ..Iscsi::default() },
        ..Options::default()
    };
    let address = Address::Tcp { host: "127.0.0.1".into(), port: 0 };
    let server = Server::start(&[iscsi::PROTOCOL.at(address)], exports, options).unwrap();
    let address = server.endpoints()[0].address.to_string();
    let login = |name: &str, target: &str| {
        let target = format!("iqn.2026-11.org.flashwise:{target}");
        let answer =
            Initiator::connect(&address).login(1, 0x87, &text(&[("InitiatorName", name), ("TargetName", &target)]));
        answer.unwrap().word(36) >> 16
    };
    let thief = "iqn.2026-11.org.example:thief";
    assert_eq!([login(thief, "disk"), login(thief, "same"), login(thief, "other")], [0x0202, 0x0202, 0]);
    assert_eq!([login(NAME, "disk"), login(NAME, "same"), login(NAME, "other")], [0, 0, 0]);
    let mut reader = Initiator::log_in(&address, "iqn.2026-11.org.example:reader", 1);
    reader.clear_attentions();
    assert_eq!(reader.write(&cdb_10(0x2a, 0, 1), &[1; 512]).sense, Some((7, 0x27, 0)));
    let targets = |name: &str| crate::support::targets(&address, name, 8192);
    assert_eq!(targets(thief), ["iqn.2026-11.org.flashwise:other"]);
    assert_eq!(targets(NAME), ["disk", "other", "same"].map(|name| format!("iqn.2026-11.org.flashwise:{name}")));
    for wrong in ["disk", "disk iqn.2026-11.org.example:a read-write"] {
        assert!(wrong.parse::<Assignment>().unwrap_err().starts_with(&format!("found '{wrong}', expected an export")));
    }
}

/// The list of targets exceeds the initiator's segments: it requests the rest.
#[test]
fn a_thousand_targets_are_listed_piece_by_piece() {
    let exports = Exports::default();
    let names: Vec<String> = (0..1000).map(|number| format!("disk-{number:04}")).collect();
    names.iter().for_each(|name| assert!(exports.add(name, Arc::new(Memory::new(4096)))));
    let address = Address::Tcp { host: "127.0.0.1".into(), port: 0 };
    let server = Server::start(&[iscsi::PROTOCOL.at(address)], exports, Options::default()).unwrap();
    let address = server.endpoints()[0].address.to_string();
    for segment_bytes in [512, 8192, 1 << 20] {
        let told = crate::support::targets(&address, NAME, segment_bytes);
        let expected: Vec<_> = names.iter().map(|name| format!("iqn.2026-11.org.flashwise:{name}")).collect();
        assert_eq!(told, expected, "{segment_bytes}");
    }
}

#[test]
fn many_commands_at_a_time_fit_into_little_memory() {
    let disk = Arc::new(Memory::new(SIZE).answering_later(9));
    let options = Options { memory_max: 80 << 20, bytes_in_flight_max: 33 << 20, ..Options::default() };
    let (server, address) = start(&disk, options);
    let write = |isid: u8| {
        let mut initiator = ready(&address, isid);
        // No data of the 4 MiB writes is sent before it is requested.
        let data = noise(isid.into(), 4 << 20);
        for round in 0..4 {
            let outcome = initiator.write_solicited(&cdb_10(0x2a, u32::from(isid) * 8192, 8192), &data);
            assert!(outcome.is_good(), "round {round}");
        }
        assert!(initiator.read(4 << 20, &cdb_10(0x28, u32::from(isid) * 8192, 8192)).data == data);
    };
    std::thread::scope(|scope| (1..=12).for_each(|isid| drop(scope.spawn(move || write(isid)))));
    assert!(server.budget().used_bytes() <= server.budget().bytes_max());
}

/// Sessions announce 16 MiB each, are asked for the first part, and send nothing.
#[test]
fn sessions_that_announce_much_and_send_nothing_keep_no_command_from_its_turn() {
    let disk = Arc::new(Memory::new(SIZE));
    let stall_time_max = Duration::from_millis(100);
    let options = Options { memory_max: 1, connections_max: 256, stall_time_max, ..Options::default() };
    let (server, address) = start(&disk, options);
    let stalled: Vec<Initiator> = (1..=200)
        .map(|isid| {
            let mut initiator = ready(&address, isid);
            let header = initiator.command(0xa0, 16 << 20, &cdb_10(0x2a, 0, 32_768));
            initiator.send(header, &[]).unwrap();
            initiator
        })
        .collect();
    let mut writer = ready(&address, 201);
    for blocks in [128_u16, 2048, 16_384, 32_768] {
        let data = noise(blocks.into(), usize::from(blocks) * 512);
        assert!(writer.write_solicited(&cdb_10(0x2a, 0, blocks), &data).is_good(), "{blocks} blocks");
    }
    drop(stalled);
    assert!(server.budget().used_bytes() <= server.budget().bytes_max());
}

#[test]
fn only_an_initiator_that_violates_the_protocol_is_disconnected() {
    let (_disk, server, address) = served();
    type Crime = fn(&mut Initiator);
    let crimes: [Crime; 6] = [
        // A command instead of data.
        |one| {
            let mut header = one.command(0xc0, 512, &cdb_10(0x28, 0, 1));
            header[24..28].copy_from_slice(&(one.command_number + 3).to_be_bytes());
            one.send(header, &[]).unwrap();
        },
        // More data than announced.
        |one| {
            let header = one.command(0xa0, 512, &cdb_10(0x2a, 0, 1));
            one.send(header, &[0; 1024]).unwrap();
        },
        // Data of another offset.
        |one| {
            let header = one.command(0x20, 1024, &cdb_10(0x2a, 0, 2));
            one.send(header, &[0; 512]).unwrap();
            one.data_out(true, u32::MAX, 0, 0, &[0; 512]);
        },
        // A tag in use.
        |one| {
            let header = one.command(0x20, 1024, &cdb_10(0x2a, 0, 2));
            one.send(header, &[0; 512]).unwrap();
            let mut again = one.command(0x20, 1024, &cdb_10(0x2a, 0, 2));
            again[16..20].copy_from_slice(&header[16..20]);
            one.send(again, &[0; 512]).unwrap();
        },
        // A segment longer than negotiated.
        |one| {
            let mut header = one.command(0xa0, 1 << 20, &cdb_10(0x2a, 0, 2048));
            header[5..8].copy_from_slice(&[0x10, 0, 0]);
            one.stream.write_all(&header).unwrap();
        },
        // A login in a session.
        |one| {
            let mut header = [0; 48];
            (header[0], header[1]) = (0x43, 0x87);
            one.send(header, &text(&[("InitiatorName", NAME)])).unwrap();
        },
    ];
    for (number, crime) in crimes.iter().enumerate() {
        let mut initiator = ready(&address, 1);
        // Some replies open the window.
        crime(&mut initiator);
        while let Ok(answer) = initiator.receive() {
            assert_ne!(answer.opcode(), 0x21, "crime {number} succeeds");
        }
        wait_until("it is counted", || {
            server.counters().connections_broken.load(Ordering::SeqCst) == number as u64 + 1
        });
    }
    check_well_behaved(&address);
}

#[test]
fn bytes_of_any_kind_end_connections_and_nothing_else() {
    let (_disk, server, address) = served();
    let mut state = 11;
    for round in 0..200 {
        let mut initiator = if round % 2 == 0 { Initiator::connect(&address) } else { ready(&address, 1) };
        for _ in 0..4 {
            let mut header = [0; 48];
            header.fill_with(|| random(&mut state) as u8);
            // Requests of all kinds, some with the expected number.
            header[0] = [0x40, 0x41, 0x42, 0x43, 0x44, 5, 0x46, 0x50, 1][random(&mut state) as usize % 9];
            header[4..7].fill(0);
            if random(&mut state).is_multiple_of(2) {
                header[8..16].fill(0);
            }
            let data = noise(random(&mut state), header[7].into());
            if initiator.send(header, &data).is_err() {
                break;
            }
        }
        let _ = initiator.stream.shutdown(std::net::Shutdown::Write);
        while initiator.receive().is_ok() {}
    }
    check_well_behaved(&address);
    wait_until("all are gone", || server.counters().connections.load(Ordering::SeqCst) <= 1);
}

#[test]
fn an_initiator_that_does_not_log_in_in_time_is_disconnected() {
    let disk = Arc::new(Memory::new(SIZE));
    let options = Options { handshake_time_max: Duration::from_millis(50), ..Options::default() };
    let (server, address) = start(&disk, options);
    let mut silent = Initiator::connect(&address);
    silent.stream.write_all(&[0x43, 0x87, 0]).unwrap();
    assert!(silent.is_closed());
    wait_until("it is counted", || server.counters().handshakes_failed.load(Ordering::SeqCst) == 1);
}
