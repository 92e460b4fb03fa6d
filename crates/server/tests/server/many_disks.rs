//! A pool of a thousand logical disks is found on its disks, served, and opened by 64 sessions simultaneously. The
//! times are printed.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flashwise_core::cache::settings::Settings;
use flashwise_server::front::{Address, Options, Server, iscsi};
use flashwise_storage::disk::Disk;
use flashwise_storage::disk::memory::MemoryDisk;
use flashwise_storage::export::Exports;
use flashwise_storage::pool::{Metadata, NewLogical, Pool, PoolConfig};
use flashwise_storage::volume::VolumeConfig;
use flashwise_testing::initiator::{Initiator, NAME, cdb_10, text};

const DISKS: usize = 1000;
const SESSIONS: usize = 64;

fn config() -> PoolConfig {
    let mut cache = VolumeConfig::of("tank", Path::new(""), Path::new(""));
    cache.cache = Settings::of(&[("ram", "16MiB")]).unwrap();
    PoolConfig { disks: Vec::new(), degraded: false, cache }
}

fn open(disks: &[Arc<dyn Disk>]) -> Pool {
    Pool::open_on(config(), disks.to_vec(), &|_, _| ()).unwrap().0
}

/// Opens a session with a logical disk, and reads and writes a block.
fn use_disk(address: &str, number: usize) {
    let target = format!("iqn.2026-11.org.flashwise:disk-{number}");
    let mut initiator = Initiator::connect(address);
    let pairs = [("InitiatorName", NAME), ("SessionType", "Normal"), ("TargetName", &target), ("InitialR2T", "No")];
    let answer = initiator.login(number as u8, 0x87, &text(&pairs)).unwrap();
    assert_eq!((answer.opcode(), answer.header[36]), (0x23, 0), "{answer:?}");
    initiator.clear_attentions();
    assert!(initiator.read(512, &cdb_10(0x28, 8, 1)).data.iter().all(|byte| *byte == 0));
    let data = [(number % 250) as u8 + 1; 4096];
    assert!(initiator.write(&cdb_10(0x2a, 16, 8), &data).is_good());
    assert_eq!(initiator.read(4096, &cdb_10(0x28, 16, 8)).data, data);
}

#[test]
fn a_thousand_logical_disks_are_found_and_64_sessions_open_them_at_once() {
    let disks: Vec<Arc<dyn Disk>> = (0..3).map(|_| Arc::new(MemoryDisk::new(256 << 20)) as Arc<dyn Disk>).collect();
    drop(Metadata::create("tank", disks.clone()).unwrap());
    let pool = open(&disks);
    for number in 0..DISKS {
        let (name, size_bytes) = (format!("disk-{number}"), 1 << 30);
        let (mode, pinned_ram_bytes) = (None, 0);
        let new = NewLogical { name, size_bytes, thick: false, striped: true, cached: true, mode, pinned_ram_bytes };
        pool.create_logical(&new).unwrap();
    }
    pool.close().unwrap();
    drop(pool);

    let begun = Instant::now();
    let pool = open(&disks);
    let exports = Exports::default();
    for (name, disk) in pool.logical_disks() {
        assert!(exports.add(&name, disk));
    }
    let address = Address::Tcp { host: "127.0.0.1".into(), port: 0 };
    let server = Server::start(&[iscsi::PROTOCOL.at(address)], exports, Options::default()).unwrap();
    let address = server.endpoints()[0].address.to_string();
    let started = begun.elapsed();
    std::thread::scope(|scope| {
        for session in 0..SESSIONS {
            let address = &address;
            scope.spawn(move || use_disk(address, session * (DISKS / SESSIONS)));
        }
    });
    let used = begun.elapsed();
    let status = pool.status();
    println!("started after {started:?}, 64 sessions served after {used:?}; the status takes {:?}", {
        let asked = Instant::now();
        pool.status();
        asked.elapsed()
    });
    assert_eq!((status.logical_disks.len(), crate::support::targets(&address, NAME, 8192).len()), (DISKS, DISKS));
    let written =
        status.logical_disks.iter().filter(|disk| disk.write_requests == 1 && disk.allocated_bytes == 64 << 10).count();
    assert_eq!(written, SESSIONS, "each has written one chunk of its own");
    assert!(server.stop(Duration::from_secs(60)));
    pool.close().unwrap();
}
