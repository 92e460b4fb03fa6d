//! A disk that fails: transfers take time and end in any order, and some fail before, in the middle of, or after their
//! effect. It never loses what it has taken.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flashwise_core::format::BLOCK_BYTES;
use flashwise_storage::disk::Disk;
use flashwise_storage::disk::memory::MemoryDisk;
use flashwise_testing::random::Random;
use flashwise_testing::virtual_time::pass;

/// Kinds of transfers that fail separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Read,
    Write,
    Flush,
}

/// The part of the effect that a transfer has had when it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    None,
    Half,
    All,
}

/// Transfers of a class fail, one in `odds`, until this is withdrawn.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    pub class: Class,
    pub effect: Effect,
    pub odds: u64,
}

struct State {
    random: Random,
    failures: Vec<Failure>,
}

pub struct Failing {
    name: &'static str,
    disk: MemoryDisk,
    state: Mutex<State>,
}

impl Failing {
    pub fn new(name: &'static str, bytes: usize, seed: u64) -> Arc<Failing> {
        let state = State { random: Random(seed), failures: Vec::new() };
        Arc::new(Failing { name, disk: MemoryDisk::new(bytes), state: Mutex::new(state) })
    }

    /// From now on transfers fail in this way too.
    pub fn fail(&self, failure: Failure) {
        self.state.lock().unwrap().failures.push(failure);
    }

    /// From now on no transfer fails.
    pub fn heal(&self) {
        self.state.lock().unwrap().failures.clear();
    }

    /// Returns a block as it is now.
    pub fn content(&self, offset: usize) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK_BYTES];
        self.disk.read_at(&mut bytes, offset as u64).expect("memory can be read");
        bytes
    }

    /// Changes a block at once.
    pub fn set_content(&self, offset: usize, bytes: &[u8]) {
        self.disk.write_at(bytes, offset as u64).expect("memory can be written");
    }

    /// Waits for as long as the transfer takes; returns the effect that it has if it fails.
    fn begin(&self, class: Class) -> Option<Effect> {
        let (service, effect) = {
            let state = &mut *self.state.lock().unwrap();
            let random = &mut state.random;
            let micros = if random.chance(20) { random.below(3_000) } else { random.below(150) };
            let mut failures = state.failures.iter().filter(|failure| failure.class == class);
            let effect = failures.find(|failure| random.chance(failure.odds)).map(|failure| failure.effect);
            (Duration::from_micros(micros), effect)
        };
        pass(service);
        effect
    }

    fn change(
        &self,
        class: Class,
        half: impl FnOnce() -> io::Result<()>,
        all: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        match self.begin(class) {
            None => return all(),
            Some(Effect::None) => {}
            Some(Effect::Half) => half()?,
            Some(Effect::All) => all()?,
        }
        Err(io::Error::other(format!("{class:?} fails")))
    }
}

impl Disk for Failing {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn description(&self) -> String {
        self.name.to_owned()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self.begin(Class::Read) {
            None => self.disk.read_at(buffer, offset),
            Some(_) => Err(io::Error::other("Read fails")),
        }
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        // A device writes whole blocks, or none.
        let half = buffer.len() / 2 / BLOCK_BYTES * BLOCK_BYTES;
        self.change(Class::Write, || self.disk.write_at(&buffer[..half], offset), || self.disk.write_at(buffer, offset))
    }

    fn sync(&self) -> io::Result<()> {
        self.change(Class::Flush, || Ok(()), || self.disk.sync())
    }

    fn zero(&self, offset: u64, length: u64, may_punch_holes: bool) -> io::Result<()> {
        let half = length / 2 / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        self.change(
            Class::Write,
            || self.disk.zero(offset, half, may_punch_holes),
            || self.disk.zero(offset, length, may_punch_holes),
        )
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.change(Class::Write, || Ok(()), || self.disk.discard(offset, length))
    }
}
