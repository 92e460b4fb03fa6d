//! A device with one queue: it serves its requests one after the other, each for a fixed time.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flashwise_engine::disk::Disk;
use flashwise_engine::disk::memory::MemoryDisk;
use flashwise_engine::time;
use flashwise_testing::virtual_time::pass;

pub struct Device {
    name: &'static str,
    disk: MemoryDisk,
    /// The time that a read or a write takes, and a flush.
    service: Duration,
    flush: Duration,
    free_at: Mutex<Instant>,
}

impl Device {
    pub fn new(name: &'static str, bytes: usize, service: Duration, flush: Duration) -> Arc<Device> {
        Arc::new(Device { name, disk: MemoryDisk::new(bytes), service, flush, free_at: Mutex::new(time::now()) })
    }

    /// The device serves nothing for this long.
    pub fn hang(&self, time: Duration) {
        *self.free_at.lock().unwrap() = time::now() + time;
    }

    /// A byte that it holds.
    pub fn byte_at(&self, offset: u64) -> u8 {
        let mut byte = [0];
        self.disk.read_at(&mut byte, offset).expect("memory can be read");
        byte[0]
    }

    fn serve(&self, takes: Duration) {
        let now = time::now();
        let ends = {
            let free_at = &mut *self.free_at.lock().unwrap();
            *free_at = (*free_at).max(now) + takes;
            *free_at
        };
        pass(ends - now);
    }
}

impl Disk for Device {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn description(&self) -> String {
        self.name.to_owned()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.serve(self.service);
        self.disk.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.serve(self.service);
        self.disk.write_at(buffer, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.serve(self.flush);
        self.disk.sync()
    }

    fn zero(&self, offset: u64, length: u64, may_punch_holes: bool) -> io::Result<()> {
        self.serve(self.service);
        self.disk.zero(offset, length, may_punch_holes)
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.disk.discard(offset, length)
    }
}
