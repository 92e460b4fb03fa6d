//! A device with one queue. It serves requests in order, one or several concurrently. Each takes a fixed time, and
//! additional time for each further block.

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flashwise_core::format::BLOCK_BYTES;
use flashwise_storage::disk::Disk;
use flashwise_storage::time;
use flashwise_testing::virtual_time::pass;

/// A read of a device: when it came and when it ended, and its blocks.
#[derive(Clone, Debug)]
pub struct DeviceRead {
    pub came: Instant,
    pub ended: Instant,
    pub blocks: Range<u64>,
}

/// The requests that a device has had.
#[derive(Debug, Default)]
pub struct Log {
    /// In the order in which they ended.
    pub reads: Vec<DeviceRead>,
    pub blocks_written: u64,
    /// All requests: reads, writes, flushes, and zeroes.
    pub requests: u64,
    /// Reads and writes that it has now, with the one that it serves.
    pub queued: usize,
    /// The most that it had at once.
    pub most_queued: usize,
    /// The longest time that a request took, with its wait for others.
    pub longest: Duration,
}

/// The times that requests take.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// A read or a write of a block.
    pub block: Duration,
    /// Each further block of it.
    pub further: Duration,
    /// To make a range zeroes, however long it is.
    pub zero: Duration,
    pub flush: Duration,
    /// Maximum number of concurrent requests.
    pub parallel: usize,
}

impl Speed {
    /// An SSD that takes 20 us for a block, and 1 GB/s.
    pub const FLASH: Speed = Speed::ssd(20);

    pub const fn ssd(block_us: u64) -> Speed {
        Speed::of(block_us, 4, 500)
    }

    /// A disk that takes so many milliseconds for a block, and 200 MB/s. It has a map of its blocks, so that zeroes are
    /// quick.
    pub const fn disk(block_ms: u64) -> Speed {
        Speed::of(1_000 * block_ms, 20, 1_000)
    }

    /// The same without a time for flushes, as the simulator models devices.
    pub const fn without_flushes(self) -> Speed {
        Speed { flush: Duration::ZERO, ..self }
    }

    const fn of(block_us: u64, further_us: u64, flush_us: u64) -> Speed {
        let us = Duration::from_micros;
        Speed { block: us(block_us), further: us(further_us), zero: us(20), flush: us(flush_us), parallel: 1 }
    }
}

/// A disk of a device.
#[derive(Debug)]
struct Member {
    speed: Speed,
    /// When each of those that serve a request is free.
    free_at: Vec<Instant>,
}

impl Member {
    fn new(speed: Speed) -> Member {
        Member { speed, free_at: vec![time::now(); speed.parallel] }
    }

    /// Serves a request; returns when it ends.
    fn serve(&mut self, now: Instant, takes: Duration) -> Instant {
        let free_at = self.free_at.iter_mut().min().expect("it serves one at least");
        *free_at = (*free_at).max(now) + takes;
        *free_at
    }
}

/// One disk, or several, which have equal parts one after the other.
#[derive(Debug)]
pub struct Device {
    name: &'static str,
    bytes: u64,
    /// The blocks that are not all zeroes.
    blocks: Mutex<HashMap<u64, Box<[u8]>>>,
    members: Mutex<Vec<Member>>,
    /// The size of the part of each disk.
    member_bytes: u64,
    log: Mutex<Log>,
    /// Bytes that hosts wrote to it, if it counts them.
    written_bytes: Mutex<Option<u64>>,
}

impl Device {
    pub fn new(name: &'static str, bytes: u64, speeds: impl IntoIterator<Item = Speed>) -> Arc<Device> {
        let members: Vec<_> = speeds.into_iter().map(Member::new).collect();
        let (member_bytes, members) = (bytes / members.len() as u64, Mutex::new(members));
        let (blocks, log, written_bytes) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Device { name, bytes, blocks, members, member_bytes, log, written_bytes })
    }

    /// Counts bytes that other hosts wrote; from the first time on it counts all writes.
    pub fn count_writes(&self, bytes: u64) {
        *self.written_bytes.lock().unwrap().get_or_insert_default() += bytes;
    }

    /// The device serves nothing for this long.
    pub fn hang(&self, time: Duration) {
        self.members.lock().unwrap().iter_mut().for_each(|member| member.free_at.fill(time::now() + time));
    }

    /// From now on it is this fast.
    pub fn change_speed(&self, speed: Speed) {
        self.members.lock().unwrap().iter_mut().for_each(|member| member.speed = speed);
    }

    /// A byte that it holds.
    pub fn byte_at(&self, offset: u64) -> u8 {
        let (block, at) = (offset / BLOCK_BYTES as u64, (offset % BLOCK_BYTES as u64) as usize);
        self.blocks.lock().unwrap().get(&block).map_or(0, |block| block[at])
    }

    /// Returns the requests since it was asked before.
    pub fn take_log(&self) -> Log {
        let log = &mut *self.log.lock().unwrap();
        let queued = log.queued;
        std::mem::replace(log, Log { queued, most_queued: queued, ..Log::default() })
    }

    /// Blocks that were written since the requests were taken.
    pub fn blocks_written(&self) -> u64 {
        self.log.lock().unwrap().blocks_written
    }

    /// Serves a request of the disk that has this byte.
    fn serve(&self, offset: u64, takes: impl Fn(Speed) -> Duration) {
        let now = time::now();
        let ends = {
            let member = &mut self.members.lock().unwrap()[usize::from(self.lane(offset))];
            member.serve(now, takes(member.speed))
        };
        self.end(now, ends);
    }

    fn end(&self, now: Instant, ends: Instant) {
        pass(ends - now);
        let log = &mut *self.log.lock().unwrap();
        log.requests += 1;
        log.longest = log.longest.max(ends - now);
    }

    /// The time for a read or a write of some blocks.
    fn serve_blocks(&self, blocks: &Range<u64>) {
        {
            let log = &mut *self.log.lock().unwrap();
            log.queued += 1;
            log.most_queued = log.most_queued.max(log.queued);
        }
        let further = (blocks.end - blocks.start - 1) as u32;
        self.serve(blocks.start * BLOCK_BYTES as u64, |speed| speed.block + speed.further * further);
        self.log.lock().unwrap().queued -= 1;
    }
}

/// A part of a device, as a partition is one.
pub struct Window {
    pub of: Arc<Device>,
    pub offset: u64,
    pub size: u64,
}

impl Disk for Window {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.of.read_at(buffer, self.offset + offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.of.write_at(buffer, self.offset + offset)
    }

    fn write_vectored_at(&self, buffers: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.of.write_vectored_at(buffers, self.offset + offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.of.sync()
    }

    fn zero(&self, offset: u64, length: u64, may_punch_holes: bool) -> io::Result<()> {
        self.of.zero(self.offset + offset, length, may_punch_holes)
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.of.discard(self.offset + offset, length)
    }
}

fn blocks_of(offset: u64, length: u64) -> Range<u64> {
    assert!(offset.is_multiple_of(BLOCK_BYTES as u64) && length.is_multiple_of(BLOCK_BYTES as u64), "whole blocks");
    offset / BLOCK_BYTES as u64..(offset + length) / BLOCK_BYTES as u64
}

impl Disk for Device {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn description(&self) -> String {
        self.name.to_owned()
    }

    fn drive_written_bytes(&self) -> Option<u64> {
        *self.written_bytes.lock().unwrap()
    }

    fn lane(&self, offset: u64) -> u16 {
        (offset / self.member_bytes) as u16
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_vectored_at(&mut [IoSliceMut::new(buffer)], offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.write_vectored_at(&mut [IoSlice::new(buffer)], offset)
    }

    fn read_vectored_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<()> {
        let blocks = blocks_of(offset, buffers.iter().map(|buffer| buffer.len() as u64).sum());
        let came = time::now();
        self.serve_blocks(&blocks);
        self.log.lock().unwrap().reads.push(DeviceRead { came, ended: time::now(), blocks: blocks.clone() });
        let stored = self.blocks.lock().unwrap();
        for (block, part) in blocks.zip(buffers.iter_mut().flat_map(|buffer| buffer.chunks_mut(BLOCK_BYTES))) {
            match stored.get(&block) {
                Some(bytes) => part.copy_from_slice(bytes),
                None => part.fill(0),
            }
        }
        Ok(())
    }

    fn write_vectored_at(&self, buffers: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        let blocks = blocks_of(offset, buffers.iter().map(|buffer| buffer.len() as u64).sum());
        self.serve_blocks(&blocks);
        self.log.lock().unwrap().blocks_written += blocks.end - blocks.start;
        if let Some(bytes) = &mut *self.written_bytes.lock().unwrap() {
            *bytes += (blocks.end - blocks.start) * BLOCK_BYTES as u64;
        }
        let stored = &mut *self.blocks.lock().unwrap();
        for (block, part) in blocks.zip(buffers.iter().flat_map(|buffer| buffer.chunks(BLOCK_BYTES))) {
            stored.insert(block, part.into());
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let now = time::now();
        let serve = |member: &mut Member| member.serve(now, member.speed.flush);
        let ends = self.members.lock().unwrap().iter_mut().map(serve).max().expect("it has a disk");
        self.end(now, ends);
        Ok(())
    }

    fn zero(&self, offset: u64, length: u64, _may_punch_holes: bool) -> io::Result<()> {
        let blocks = blocks_of(offset, length);
        self.serve(offset, |speed| speed.zero);
        self.blocks.lock().unwrap().retain(|block, _| !blocks.contains(block));
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        blocks_of(offset, length);
        Ok(())
    }
}
