//! A disk with a volatile cache that fails in every way that is asked for.

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;

use flashwise_server::disk::Disk;

use crate::random::Random;

/// What a power failure leaves of the writes that were not flushed.
#[derive(Clone, Copy, Debug)]
pub enum Loss {
    /// All of them.
    Nothing,
    /// None of them.
    Everything,
    /// A random state of each sector, of those that it had since the last flush.
    Sectors,
    /// Each write whole or not at all.
    Writes,
}

#[derive(Clone)]
struct Inner {
    sector: usize,
    stable: Vec<u8>,
    visible: Vec<u8>,
    /// By first byte of the sector: what was written to it since the last flush, with the number of the write.
    volatile: BTreeMap<usize, Vec<(u64, Vec<u8>)>>,
    writes: u64,
}

pub struct FakeDisk {
    inner: Mutex<Inner>,
}

impl FakeDisk {
    /// A zeroed disk that tears writes at `sector` bytes.
    pub fn new(size: usize, sector: usize) -> FakeDisk {
        let inner =
            Inner { sector, stable: vec![0; size], visible: vec![0; size], volatile: BTreeMap::new(), writes: 0 };
        FakeDisk { inner: Mutex::new(inner) }
    }

    pub fn fork(&self) -> FakeDisk {
        FakeDisk { inner: Mutex::new(self.inner.lock().unwrap().clone()) }
    }

    /// The number of the last write: a flush that is asked for now covers no later one.
    pub fn writes(&self) -> u64 {
        self.inner.lock().unwrap().writes
    }

    pub fn sync_until(&self, write: u64) {
        let inner = &mut *self.inner.lock().unwrap();
        inner.volatile.retain(|&at, versions| {
            let covered = versions.iter().rposition(|(number, _)| *number <= write);
            if let Some(covered) = covered {
                inner.stable[at..at + inner.sector].copy_from_slice(&versions[covered].1);
                versions.drain(..=covered);
            }
            !versions.is_empty()
        });
    }

    /// The power fails: what is visible from now on is what was kept.
    pub fn crash(&self, loss: Loss, random: &mut Random) {
        let inner = &mut *self.inner.lock().unwrap();
        let mut kept_writes: BTreeMap<u64, bool> = BTreeMap::new();
        for (&at, versions) in &inner.volatile {
            let kept = match loss {
                Loss::Nothing => versions.last(),
                Loss::Everything => None,
                Loss::Sectors => versions.get(random.below(versions.len() as u64 + 1) as usize),
                Loss::Writes => {
                    let mut kept = |number: &u64, random: &mut Random| {
                        *kept_writes.entry(*number).or_insert_with(|| random.chance(2))
                    };
                    let mut last = None;
                    for version in versions {
                        if kept(&version.0, random) {
                            last = Some(version);
                        }
                    }
                    last
                }
            };
            if let Some((_, bytes)) = kept {
                inner.stable[at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
        inner.volatile.clear();
        inner.visible.copy_from_slice(&inner.stable);
    }

    /// Changes what reads return, now and after a crash.
    pub fn damage(&self, change: impl FnOnce(&mut [u8])) {
        let inner = &mut *self.inner.lock().unwrap();
        change(&mut inner.visible);
        inner.stable.copy_from_slice(&inner.visible);
    }

    pub fn read(&self, at: usize, length: usize) -> Vec<u8> {
        self.inner.lock().unwrap().visible[at..at + length].to_vec()
    }
}

impl Disk for FakeDisk {
    fn size(&self) -> u64 {
        self.inner.lock().unwrap().visible.len() as u64
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let inner = self.inner.lock().unwrap();
        buffer.copy_from_slice(&inner.visible[offset as usize..offset as usize + buffer.len()]);
        Ok(())
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        let inner = &mut *self.inner.lock().unwrap();
        inner.writes += 1;
        let at = offset as usize;
        inner.visible[at..at + buffer.len()].copy_from_slice(buffer);
        for (sector, bytes) in (at..).step_by(inner.sector).zip(buffer.chunks(inner.sector)) {
            inner.volatile.entry(sector).or_default().push((inner.writes, bytes.to_vec()));
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_until(u64::MAX);
        Ok(())
    }

    fn zero(&self, offset: u64, length: u64, _may_punch_holes: bool) -> io::Result<()> {
        self.write_at(&vec![0; length as usize], offset)
    }

    /// The worst that a device may do: what was discarded reads as noise.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.write_at(&vec![0xDB; length as usize], offset)
    }
}
