//! A model of the legal contents of a volume, for concurrent requests and failing devices.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

pub const SECTOR: u64 = 512;

/// The effect of a change on a sector.
#[derive(Clone, Copy)]
struct Value {
    /// The number of a write, or 0 for none.
    content: u32,
    /// When the change was answered, if it was.
    ended: u64,
}

/// The possible contents of a sector, by the begin of the change that wrote them.
type Values = BTreeMap<u64, Value>;

/// A request in progress, with the state when it began.
pub enum Asked {
    Change {
        began: u64,
        sectors: Range<u64>,
    },
    /// With the numbers that each sector may be of.
    Read {
        number: usize,
    },
    Flush {
        /// The possible contents when it began.
        then: Vec<BTreeSet<u64>>,
        /// How many flushes had failed.
        failed: u32,
    },
}

/// A read that is under way: its sectors, and what it may find of each.
type Read = (Range<u64>, Vec<BTreeSet<u32>>);

/// The possible contents of each sector.
pub struct Model {
    live: Vec<Values>,
    /// The possible contents after a failed flush or a power failure.
    durable: Vec<Values>,
    now: u64,
    /// Reads under way.
    reads: Vec<Option<Read>>,
    /// Something was read that a flush that failed has lost: a flush has to fail before one succeeds.
    pub owed: bool,
    /// A flush that fails loses something.
    pub loses: bool,
    failed_flushes: u32,
}

/// The bytes of so many sectors of a write.
pub fn contents(number: u32, sectors: u64) -> Vec<u8> {
    number.to_le_bytes().repeat((SECTOR * sectors / 4) as usize)
}

fn indices(sectors: &Range<u64>) -> Range<usize> {
    sectors.start as usize..sectors.end as usize
}

fn numbers(values: &Values) -> BTreeSet<u32> {
    values.values().map(|value| value.content).collect()
}

impl Model {
    pub fn new(sectors: u64, loses: bool) -> Model {
        let zeroes = vec![Values::from([(0, Value { content: 0, ended: 0 })]); sectors as usize];
        let (live, durable) = (zeroes.clone(), zeroes);
        Model { live, durable, now: 0, reads: Vec::new(), owed: false, loses, failed_flushes: 0 }
    }

    /// A change of sectors begins: each may be of write `content` from now on.
    pub fn begin_change(&mut self, sectors: Range<u64>, content: u32) -> Asked {
        self.now += 1;
        for at in indices(&sectors) {
            let value = Value { content, ended: u64::MAX };
            self.live[at].insert(self.now, value);
            self.durable[at].insert(self.now, value);
        }
        for (read, found) in self.reads.iter_mut().flatten() {
            let both = read.start.max(sectors.start)..read.end.min(sectors.end);
            for at in both {
                found[(at - read.start) as usize].insert(content);
            }
        }
        Asked::Change { began: self.now, sectors }
    }

    /// It has ended. If it is `certain`, nothing is there any more that had ended before it began; if that is to be
    /// durable, nowhere.
    pub fn end_change(&mut self, began: u64, sectors: &Range<u64>, certain: bool, durable: bool) {
        self.now += 1;
        for at in indices(sectors) {
            for values in [&mut self.live[at], &mut self.durable[at]] {
                values.entry(began).and_modify(|value| value.ended = self.now);
            }
            if certain {
                self.live[at].retain(|_, value| value.ended > began);
            }
            if certain && durable {
                self.durable[at].retain(|_, value| value.ended > began);
            }
        }
    }

    pub fn begin_read(&mut self, sectors: Range<u64>) -> Asked {
        let found = self.live[indices(&sectors)].iter().map(numbers).collect();
        self.reads.push(Some((sectors, found)));
        Asked::Read { number: self.reads.len() - 1 }
    }

    /// It has ended, with what it has read if it did not fail.
    pub fn end_read(&mut self, number: usize, bytes: Option<&[u8]>) -> Result<(), String> {
        let (sectors, expected) = self.reads[number].take().expect("it is under way");
        while self.reads.last().is_some_and(Option::is_none) {
            self.reads.pop();
        }
        let Some(bytes) = bytes else { return Ok(()) };
        for ((at, expected), sector) in indices(&sectors).zip(expected).zip(bytes.chunks(SECTOR as usize)) {
            let found = u32::from_le_bytes(sector[..4].try_into().expect("it has four bytes"));
            if sector != contents(found, 1) {
                return Err(format!("sector {at} is mixed"));
            }
            if expected.contains(&found) || numbers(&self.live[at]).contains(&found) {
                continue;
            }
            let durable = numbers(&self.durable[at]);
            if !self.loses || !durable.contains(&found) {
                return Err(format!("sector {at} is of write {found}, expected one of {expected:?}, or {durable:?}"));
            }
            self.owed = true;
        }
        Ok(())
    }

    /// Sectors from `first` on are found to be these bytes while nothing is under way.
    pub fn read(&mut self, first: u64, bytes: &[u8]) -> Result<(), String> {
        let Asked::Read { number } = self.begin_read(first..first + bytes.len() as u64 / SECTOR) else {
            unreachable!("it is one")
        };
        self.end_read(number, Some(bytes))
    }

    pub fn begin_flush(&self) -> Asked {
        let then = self.live.iter().map(|values| values.keys().copied().collect()).collect();
        Asked::Flush { then, failed: self.failed_flushes }
    }

    /// It has ended; `failed` flushes had failed when it began.
    pub fn end_flush(&mut self, then: &[BTreeSet<u64>], failed: u32, succeeded: bool) -> Result<(), String> {
        if !succeeded {
            self.failed_flushes += 1;
            if self.loses {
                self.owed = false;
                for (live, durable) in self.live.iter_mut().zip(&self.durable) {
                    live.extend(durable.iter().map(|(began, value)| (*began, *value)));
                }
            }
            return Ok(());
        }
        // Of two concurrent flushes, one may report the failure of the other.
        if self.loses && failed < self.failed_flushes {
            return Ok(());
        }
        if self.owed {
            return Err("a flush succeeds, and what was answered before is gone".to_owned());
        }
        for (durable, then) in self.durable.iter_mut().zip(then) {
            let newest = then.last().copied().unwrap_or(0);
            durable.retain(|began, _| then.contains(began) || *began > newest);
        }
        Ok(())
    }

    /// The process died. A power failure loses part of the unflushed data. Without one, data is lost only if a failed
    /// flush was not reported yet.
    pub fn died(&mut self, is_cut: bool) {
        self.owed = false;
        for (live, durable) in self.live.iter_mut().zip(&self.durable) {
            if is_cut {
                live.clear();
            }
            live.extend(durable.iter().map(|(began, value)| (*began, *value)));
        }
    }
}
