//! Addresses of a server, and its shutdown.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use flashwise_server::front::nbd::protocol::command::*;
use flashwise_server::front::{Address, Options, Server, nbd};
use flashwise_storage::export::Exports;
use flashwise_testing::client::{Client, request_bytes};
use flashwise_testing::memory::Memory;
use flashwise_testing::waiting::wait_until;

use crate::support::{Rig, tcp_address};

const SIZE: u64 = 1 << 20;
const LONG: Duration = Duration::from_secs(60);

fn exports() -> Exports {
    let exports = Exports::default();
    assert!(exports.add("disk", Arc::new(Memory::new(SIZE))));
    exports
}

fn start_error(address: Address) -> String {
    match Server::start(&[nbd::PROTOCOL.at(address)], exports(), Options::default()) {
        Ok(_) => panic!("the server starts"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn one_server_listens_at_several_addresses() {
    let directory = tempfile::TempDir::new().unwrap();
    let unix = Address::Unix(directory.path().join("a socket"));
    let addresses = [tcp_address("127.0.0.1"), tcp_address("::1"), tcp_address(""), unix];
    let server =
        Server::start(&addresses.map(|address| nbd::PROTOCOL.at(address)), exports(), Options::default()).unwrap();
    assert_eq!(server.endpoints().len(), 4);
    for uri in server.uris("disk") {
        let uri = crate::support::parse_uri(&uri.to_string());
        let mut client = Client::open(&uri.address, &uri.export, true).unwrap();
        assert_eq!(client.read(0, 512).unwrap(), [0; 512], "{uri}");
    }
    let Address::Tcp { port, .. } = server.endpoints()[2].address else { panic!("the third is TCP") };
    Client::open(&Address::Tcp { host: "127.0.0.1".into(), port }, "disk", true).unwrap();
    assert!(server.stop(LONG));
}

#[test]
fn the_socket_of_a_dead_server_is_replaced_and_that_of_a_live_one_is_not() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("nbd.sock");
    let address = Address::Unix(path.clone());
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "the dead server left its socket");
    let server = Server::start(&[nbd::PROTOCOL.at(address.clone())], exports(), Options::default()).unwrap();
    let error = start_error(address.clone());
    assert!(error.starts_with(&format!("{}: address in use", path.display())), "{error}");
    Client::open(&address, "disk", true).unwrap();
    assert!(server.stop(LONG));
    assert!(!path.exists(), "a server takes its socket with it");
    std::fs::write(&path, "precious").unwrap();
    let error = start_error(address);
    assert!(error.contains("not a socket"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn a_server_does_not_take_along_the_socket_of_another() {
    let (rig, _disk) = Rig::with_disk(SIZE);
    let path = rig.directory.path().join("nbd.sock");
    std::fs::rename(&path, rig.directory.path().join("moved")).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    assert!(rig.server.stop(LONG));
    assert!(path.exists());
    drop(other);
}

#[test]
fn addresses_that_cannot_be_listened_at_are_named() {
    let server = Server::start(&[nbd::PROTOCOL.at(tcp_address("127.0.0.1"))], exports(), Options::default()).unwrap();
    let Address::Tcp { port, .. } = server.endpoints()[0].address else { panic!("it is TCP") };
    let error = start_error(Address::Tcp { host: "127.0.0.1".into(), port });
    assert!(error.starts_with(&format!("127.0.0.1:{port}: address in use")), "{error}");
    // 203.0.113.0/24 is for documentation (RFC 5737): no machine has it.
    let error = start_error(Address::Tcp { host: "203.0.113.1".into(), port: 10809 });
    assert!(error.starts_with("203.0.113.1:10809: cannot listen"), "{error}");
    let error = start_error(Address::Unix("/nowhere/at/all".into()));
    assert!(error.starts_with("/nowhere/at/all: cannot listen"), "{error}");
}

#[test]
fn stopping_waits_for_requests_in_flight_and_cuts_idle_clients_off() {
    let disk = Arc::new(Memory::new(SIZE));
    let Rig { server, directory: _directory, .. } = Rig::start(&[("disk", disk.clone())], Options::default());
    let address = server.endpoints()[0].address.clone();
    let mut idle = Client::open(&address, "disk", true).unwrap();
    let mut haggling = Client::connect(&address).unwrap();
    let mut busy = Client::open(&address, "disk", true).unwrap();
    disk.stall();
    busy.request(NBD_CMD_READ, 0, 5, 0, 512).unwrap();
    wait_until("the read is held", || disk.held() == 1);
    let stopping = std::thread::spawn(move || server.stop(LONG));
    assert!(idle.is_closed());
    assert!(haggling.is_closed());
    assert!(Client::connect(&address).is_err());
    assert!(!stopping.is_finished());
    disk.release();
    let reply = busy.reply(512).unwrap();
    assert_eq!((reply.cookie, reply.error, reply.data), (5, 0, vec![0; 512]));
    assert!(busy.is_closed());
    assert!(stopping.join().unwrap());
}

/// Connections are ended together: one that waits for its export does not delay the others.
#[test]
fn connections_that_are_ended_together_take_nothing_more() {
    let disk = Arc::new(Memory::new(SIZE));
    let Rig { server, directory: _directory, .. } = Rig::start(&[("disk", disk.clone())], Options::default());
    let address = server.endpoints()[0].address.clone();
    let mut busy = Client::open(&address, "disk", true).unwrap();
    let mut others = [(); 3].map(|()| Client::open(&address, "disk", true).unwrap());
    disk.stall();
    busy.request(NBD_CMD_READ, 0, 5, 0, 512).unwrap();
    wait_until("the read is held", || disk.held() == 1);
    let connections = server.connections();
    let all: Vec<u64> = (0..10).collect();
    let ending = std::thread::spawn(move || connections.end(&all, LONG));
    assert!(others.iter_mut().all(Client::is_closed));
    assert!(!ending.is_finished());
    disk.release();
    assert_eq!(busy.reply(512).unwrap().cookie, 5);
    assert!(busy.is_closed() && ending.join().unwrap());
    assert!(!server.connections().end(&[1], LONG), "it is gone");
    assert!(server.stop(LONG));
}

#[test]
fn stopping_gives_up_requests_that_are_never_answered() {
    let disk = Arc::new(Memory::new(SIZE));
    let Rig { server, directory: _directory, .. } = Rig::start(&[("disk", disk.clone())], Options::default());
    let mut client = Client::open(&server.endpoints()[0].address, "disk", true).unwrap();
    disk.stall();
    client.request(NBD_CMD_READ, 0, 5, 0, 512).unwrap();
    wait_until("the read is held", || disk.held() == 1);
    assert!(server.stop(Duration::from_millis(20)), "the threads end");
    assert!(client.is_closed());
    disk.release();
}

#[test]
fn exports_can_be_added_while_the_server_runs() {
    let (rig, _disk) = Rig::with_disk(SIZE);
    assert!(Client::open(rig.address(), "new", true).is_err());
    assert!(rig.exports.add("new", Arc::new(Memory::new(4096))));
    assert_eq!(Client::open(rig.address(), "new", true).unwrap().size, 4096);
}

/// A write that waited for memory when its client died would take effect after newer writes of others.
#[test]
fn requests_that_were_not_begun_end_with_their_client() {
    let disk = Arc::new(Memory::new(SIZE));
    for options in [Options { requests_in_flight_max: 1, ..Options::default() }, Options::default()] {
        let begun = options.requests_in_flight_max as u64;
        let rig = Rig::start(&[("disk", disk.clone())], options);
        let (mut first, mut second) = (rig.open(true), rig.open(true));
        disk.stall();
        let mut bytes: Vec<u8> = (0..begun).flat_map(|cookie| request_bytes(NBD_CMD_READ, 0, cookie, 0, 512)).collect();
        bytes.extend(request_bytes(NBD_CMD_WRITE, 0, begun, 4096, 512));
        bytes.extend([1; 512]);
        first.give(&bytes).unwrap();
        wait_until("all are held that may be", || disk.held() as u64 == begun);
        drop(first);
        second.request(NBD_CMD_WRITE, 0, 7, 4096, 512).unwrap();
        second.give(&[2; 512]).unwrap();
        wait_until("the other write is held", || disk.read(4096, 1) == [2]);
        disk.release();
        assert_eq!(second.reply(0).unwrap().error, 0);
        wait_until("the first has gone", || rig.server.counters().connections.load(Ordering::SeqCst) == 1);
        assert_eq!(disk.read(4096, 1), [2]);
        assert!(rig.server.stop(LONG));
        disk.write(4096, &[0]);
    }
}
