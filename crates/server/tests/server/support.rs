//! Shared parts of the server's tests.

use std::sync::Arc;

use flashwise_server::front::nbd::{self, Uri};
use flashwise_server::front::{Address, Options, Server};
use flashwise_storage::export::Exports;
use flashwise_testing::client::Client;
use flashwise_testing::initiator;
use flashwise_testing::memory::{Memory, noise};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;

/// A running server on a Unix socket in a directory of its own.
pub struct Rig {
    pub directory: TempDir,
    pub exports: Exports,
    pub server: Server,
}

impl Rig {
    pub fn start(exports: &[(&str, Arc<Memory>)], options: Options) -> Self {
        // Both ends of each connection are in this process, together with those of parallel tests.
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
        let directory = TempDir::new().unwrap();
        let table = Exports::default();
        for (name, export) in exports {
            assert!(table.add(name, export.clone()));
        }
        let address = Address::Unix(directory.path().join("nbd.sock"));
        let server = Server::start(&[nbd::PROTOCOL.at(address)], table.clone(), options).unwrap();
        Self { directory, exports: table, server }
    }

    /// Starts a server of one export, `disk`, of `size` bytes.
    pub fn with_disk(size: u64) -> (Self, Arc<Memory>) {
        let disk = Arc::new(Memory::new(size));
        (Self::start(&[("disk", disk.clone())], Options::default()), disk)
    }

    pub fn address(&self) -> &Address {
        &self.server.endpoints()[0].address
    }

    pub fn uri(&self, export: &str) -> String {
        self.server.uris(export)[0].clone()
    }

    pub fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    pub fn open(&self, structured: bool) -> Client {
        Client::open(self.address(), "disk", structured).unwrap()
    }

    /// Checks that a well-behaved client is served normally.
    pub fn check_well_behaved(&self) {
        let mut client = self.open(true);
        let data = noise(client.size, 10_000);
        assert_eq!(client.write(4096, &data).unwrap(), 0);
        assert_eq!(client.read(4096, 10_000).unwrap(), data);
        client.request(2, 0, 0, 0, 0).unwrap();
        assert!(client.is_closed());
    }
}

/// Returns the targets that an initiator with segments of this length discovers.
pub fn targets(address: &str, name: &str, segment_bytes: u32) -> Vec<String> {
    let mut initiator = initiator::Initiator::connect(address);
    let segment = segment_bytes.to_string();
    let pairs = [("InitiatorName", name), ("SessionType", "Discovery"), ("MaxRecvDataSegmentLength", &segment)];
    assert_eq!(initiator.login(1, 0x87, &initiator::text(&pairs)).unwrap().header[36], 0);
    let (mut told, mut tag, mut data) = (Vec::new(), [0xff; 4], initiator::text(&[("SendTargets", "All")]));
    loop {
        let mut header = [0; 48];
        (header[0], header[1]) = (0x04, 0x80);
        header[16..20].copy_from_slice(&[0, 0, 0, 7]);
        header[20..24].copy_from_slice(&tag);
        header[24..28].copy_from_slice(&initiator.command_number.to_be_bytes());
        header[28..32].copy_from_slice(&initiator.status_number.to_be_bytes());
        initiator.command_number += 1;
        initiator.send(header, &data).unwrap();
        let answer = initiator.receive().unwrap();
        assert_eq!((answer.opcode(), answer.data.len() <= segment_bytes as usize), (0x24, true));
        told.extend(&answer.data);
        let is_last = answer.header[1] & 0x80 != 0;
        assert_eq!((answer.header[1] & 0x40 == 0, answer.header[20..24] == [0xff; 4]), (is_last, is_last));
        if is_last {
            break;
        }
        (tag, data) = (answer.header[20..24].try_into().unwrap(), Vec::new());
    }
    let told = String::from_utf8(told).unwrap();
    told.split('\0').filter_map(|pair| Some(pair.strip_prefix("TargetName=")?.to_owned())).collect()
}

pub fn tcp_address(host: &str) -> Address {
    Address::Tcp { host: host.into(), port: 0 }
}

pub fn parse_uri(uri: &str) -> Uri {
    uri.parse().unwrap()
}
