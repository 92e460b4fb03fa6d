//! Disks of a virtual machine: served to it over NBD, with a volatile cache that a power cut empties.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flashwise_core::format::BLOCK_BYTES;
use flashwise_server::front::{Address, Options, Server, nbd};
use flashwise_storage::disk::Disk;
use flashwise_storage::export::{Done, Error, Export, Exports, Extent, Operation, Request};
use flashwise_testing::fake_disk::{FakeDisk, Loss};
use flashwise_testing::random::Random;
use flashwise_testing::waiting::wait_until;

/// The possible effect of a power cut on writes that were not flushed.
const LOSSES: [Loss; 4] = [Loss::Nothing, Loss::Everything, Loss::Sectors, Loss::Writes];

pub struct CutDisk {
    pub name: &'static str,
    disk: FakeDisk,
    /// True if it answers flushes without performing them.
    lies: bool,
}

impl CutDisk {
    /// A zeroed disk that tears writes at `sector` bytes.
    pub fn new(name: &'static str, bytes: u64, sector: usize, lies: bool) -> CutDisk {
        CutDisk { name, disk: FakeDisk::new(bytes as usize / BLOCK_BYTES, sector), lies }
    }

    /// Fills the disk, durably.
    pub fn load(&self, image: &[u8]) {
        self.disk.write_at(image, 0).unwrap();
        self.disk.sync().unwrap();
    }

    fn perform(&self, request: &Request) -> std::io::Result<Vec<u8>> {
        let Request { offset, length, ref data, .. } = *request;
        let mut answer = Vec::new();
        match request.operation {
            Operation::Read => {
                answer = vec![0; length as usize];
                self.disk.read_at(&mut answer, offset)?;
            }
            Operation::Write => self.disk.write_at(data, offset)?,
            Operation::Trim => self.disk.discard(offset, length)?,
            Operation::WriteZeroes { .. } => self.disk.zero(offset, length, false)?,
            Operation::Flush | Operation::Cache => {}
        }
        let must_be_durable = request.operation == Operation::Flush || request.force_unit_access;
        if must_be_durable && !self.lies {
            self.disk.sync()?;
        }
        Ok(answer)
    }
}

impl Export for CutDisk {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn block_sizes(&self) -> (u32, u32, u32) {
        (BLOCK_BYTES as u32, BLOCK_BYTES as u32, 32 << 20)
    }

    fn submit(&self, request: Request, done: Done) {
        done(self.perform(&request).map_err(|error| Error::from(&error)));
    }

    fn extents(&self, _offset: u64, length: u64, _extents_max: usize) -> Result<Vec<Extent>, Error> {
        Ok(vec![Extent { length, hole: false, zero: false }])
    }
}

/// The disks of one machine, which survive it.
pub struct Disks {
    disks: Vec<Arc<CutDisk>>,
    server: Server,
}

impl Disks {
    /// Serves them at a Unix socket.
    pub fn serve(disks: Vec<CutDisk>, socket: &Path) -> Disks {
        let disks: Vec<Arc<CutDisk>> = disks.into_iter().map(Arc::new).collect();
        let exports = Exports::default();
        for disk in &disks {
            assert!(exports.add(disk.name, disk.clone()));
        }
        let server =
            Server::start(&[nbd::PROTOCOL.at(Address::Unix(socket.to_owned()))], exports, Options::default()).unwrap();
        Disks { disks, server }
    }

    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.disks.iter().map(|disk| disk.name)
    }

    /// Fails the power, after the machine has been killed. Returns the losses of each disk.
    pub fn cut(&self, random: &mut Random) -> String {
        let connections = &self.server.counters().connections;
        wait_until("the machine's connections end", || connections.load(Ordering::SeqCst) == 0);
        let lose = |disk: &Arc<CutDisk>| {
            let loss = random.pick(&LOSSES);
            disk.disk.crash(loss, random);
            format!("{}: {loss:?}", disk.name)
        };
        self.disks.iter().map(lose).collect::<Vec<_>>().join(", ")
    }
}
