//! Transfers that no client waits for. They are few and in the order of their device, so that clients do not wait for
//! them. Writes of the backend bring dirty blocks back, or are [past](flashwise_core::cache) the flash and already
//! answered. The two kinds take turns. While a flush waits for the second kind, that kind yields only to reads.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::order::StepId;

use super::depth::Depth;
use super::{BACKEND, Group, Part, TRANSFER_BLOCKS};
use crate::transfer::Operation;

/// A client that read from the backend within this time is expected to read from it again.
const READS_US: u64 = 1_000_000;
/// The most blocks that the background reads from flash concurrently, because a hit can wait for them.
const BLOCKS_FROM_FLASH: usize = 32;
/// Transfers of clients per transfer of the background.
const SHARE: usize = 4;
/// Transfers per transfer of write-back, while a flush waits for writes past the flash.
const SHARE_OF_BACK: usize = 8;

/// The waiting writes of one kind. The position is like that of a disk arm: it moves upwards, and starts again after
/// the last write.
#[derive(Debug, Default)]
struct Waiting {
    /// By offset.
    parts: BTreeMap<u64, Part>,
    position: u64,
}

impl Waiting {
    fn push(&mut self, part: Part) {
        let before = self.parts.insert(part.offset, part);
        assert!(before.is_none(), "a block has only one write-back in progress");
    }

    /// Takes the next writes that can be one transfer.
    fn next(&mut self) -> Group {
        let mut group = Group::new();
        let ahead = self.parts.range(self.position..).next().or_else(|| self.parts.first_key_value());
        let Some((&first, _)) = ahead else { return group };
        self.position = first;
        while group.len() < TRANSFER_BLOCKS
            && let Some(part) = self.parts.remove(&self.position)
        {
            self.position += part.length;
            group.push(part);
        }
        group
    }
}

/// The waiting writes of one disk of the backend, and the transfers in progress there.
#[derive(Debug, Default)]
struct Lane {
    /// Blocks of batches.
    back: Waiting,
    /// Writes past the flash.
    past: Waiting,
    /// Transfers handed out since the last turn of write-back.
    since_back: usize,
    under_way: usize,
    /// Reads of clients in progress.
    reads: usize,
    /// Other transfers of clients in progress.
    others: usize,
    depth: Depth,
    /// The time of the last read of a client.
    read_us: Option<u64>,
}

/// A backend that is measured, so that the background keeps each of its disks busy.
pub trait Backend: Send + Sync {
    /// Returns the number of the disk with this byte, from 0. These disks transfer in parallel.
    fn lane(&self, offset: u64) -> u16;

    /// Returns the time, in microseconds.
    fn now_us(&self) -> u64;
}

/// The backend, whose disks serve transfers in parallel; `None` without measurement.
#[derive(Default)]
struct Disks(Option<Arc<dyn Backend>>);

impl fmt::Debug for Disks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Disks")
    }
}

/// The transfers of the background: waiting and in progress.
#[derive(Debug, Default)]
pub(crate) struct Background {
    /// By disk of the backend.
    lanes: Vec<Lane>,
    disks: Disks,
    /// The number of flushes that wait for writes past the flash.
    flushes: usize,
    /// Waiting reads of the flash.
    from_flash: VecDeque<Part>,
    /// The number of blocks being read from flash.
    blocks_from_flash: usize,
}

/// True if `part` can join the transfer of the `count` parts before it.
pub(crate) fn continues(last: &Part, part: &Part, count: usize) -> bool {
    let alike = |part: &Part| (part.disk, part.operation, part.background, part.stream, part.length, part.alone);
    matches!(part.operation, Operation::Read | Operation::Write)
        && part.length == BLOCK_BYTES as u64
        && !part.alone
        && alike(last) == alike(part)
        && last.offset + last.length == part.offset
        && count < TRANSFER_BLOCKS
}

impl Background {
    /// Starts to measure the backend.
    pub(super) fn measure(&mut self, backend: Arc<dyn Backend>) {
        self.disks = Disks(Some(backend));
    }

    /// Returns the disk of the backend that has a byte; 0 for the flash.
    pub(crate) fn lane_of(&self, disk: usize, offset: u64) -> u16 {
        self.disks.0.as_ref().filter(|_| disk == BACKEND).map_or(0, |disks| disks.lane(offset))
    }

    /// Returns the time, if the backend is measured.
    fn now_us(&self) -> Option<u64> {
        self.disks.0.as_ref().map(|backend| backend.now_us())
    }

    fn lane(&mut self, part: &Part) -> &mut Lane {
        let lane = usize::from(part.lane);
        if lane >= self.lanes.len() {
            self.lanes.resize_with(lane + 1, Lane::default);
        }
        &mut self.lanes[lane]
    }

    /// Adds a block of a batch.
    pub(crate) fn push_back(&mut self, part: Part) {
        self.lane(&part).back.push(part);
    }

    /// Adds an answered write past the flash.
    pub(crate) fn push_past(&mut self, part: Part) {
        self.lane(&part).past.push(part);
    }

    /// Adds a read of the flash.
    pub(crate) fn push_from_flash(&mut self, part: Part) {
        self.from_flash.push_back(part);
    }

    /// Takes the waiting read of a step, because a client now waits for it.
    pub(crate) fn take_from_flash(&mut self, step: StepId) -> Option<Part> {
        let at = self.from_flash.iter().position(|part| part.step == step)?;
        self.from_flash.remove(at).map(|part| Part { background: false, ..part })
    }

    /// Notes that blocks are being read from flash.
    pub(super) fn started_from_flash(&mut self, blocks: usize) {
        self.blocks_from_flash += blocks;
    }

    /// Notes that these reads have ended.
    pub(super) fn ended_from_flash(&mut self, blocks: usize) {
        self.blocks_from_flash -= blocks;
    }

    /// Takes the next reads of flash that can be one transfer; none if enough blocks are being read.
    pub(super) fn next_from_flash(&mut self) -> Group {
        let mut group = Group::new();
        while self.blocks_from_flash + group.len() < BLOCKS_FROM_FLASH
            && let Some(part) = self.from_flash.front()
            && group.last().is_none_or(|last| continues(last, part, group.len()))
        {
            group.extend(self.from_flash.pop_front());
        }
        group
    }

    /// Notes that a flush waits for writes past the flash.
    pub(crate) fn flush_waits(&mut self) {
        self.flushes += 1;
    }

    /// Notes that it waits no longer.
    pub(crate) fn flush_goes(&mut self) {
        self.flushes -= 1;
    }

    /// Notes a transfer that was handed out with this part.
    pub(super) fn started(&mut self, part: &Part) {
        let now_us = self.now_us();
        self.lane(part).started(part, now_us);
    }

    /// Notes that a transfer has ended.
    pub(super) fn ended(&mut self, part: &Part) {
        let now_us = self.now_us();
        self.lane(part).ended(part, now_us);
    }

    /// Takes the next writes of any disk that can be one transfer; none if enough are in progress everywhere.
    pub(super) fn next(&mut self) -> Group {
        let (flushes, now_us) = (self.flushes > 0, self.now_us());
        let waiting = self.lanes.iter_mut().filter(|lane| !lane.back.parts.is_empty() || !lane.past.parts.is_empty());
        let mut groups = waiting.map(|lane| lane.next(flushes, now_us));
        groups.find(|group| !group.is_empty()).unwrap_or_default()
    }
}

impl Lane {
    fn started(&mut self, part: &Part, now_us: Option<u64>) {
        *self.count(part) += 1;
        let all = self.under_way + self.reads + self.others;
        match (now_us, part.operation) {
            (Some(now_us), _) if part.background => self.depth.begin(part.offset, all, now_us),
            (Some(now_us), Operation::Read) => self.read_us = Some(now_us),
            _ => {}
        }
    }

    fn ended(&mut self, part: &Part, now_us: Option<u64>) {
        *self.count(part) -= 1;
        if part.background
            && let Some(now_us) = now_us
        {
            self.depth.end(part.offset, now_us);
        }
    }

    fn count(&mut self, part: &Part) -> &mut usize {
        match part.operation {
            _ if part.background => &mut self.under_way,
            Operation::Read => &mut self.reads,
            _ => &mut self.others,
        }
    }

    /// Takes the next writes that can be one transfer; none if enough are in progress. `flushes`: a flush waits for
    /// writes past the flash.
    fn next(&mut self, flushes: bool, now_us: Option<u64>) -> Group {
        let reads_us = self.read_us.zip(now_us).map(|(read_us, now_us)| now_us - read_us);
        let beside_reads = self.reads > 0 || reads_us.is_some_and(|reads_us| reads_us < READS_US);
        let most = self.depth.most(beside_reads).max((self.reads + self.others) / SHARE);
        let most_past = if flushes { most + self.others } else { most };
        if self.under_way >= most_past {
            return Group::new();
        }
        let hurried = self.under_way >= most;
        let turn = if flushes { SHARE_OF_BACK } else { 2 };
        let past_first = hurried || self.since_back + 1 < turn;
        let (first, second) =
            if past_first { (&mut self.past, &mut self.back) } else { (&mut self.back, &mut self.past) };
        let mut group = first.next();
        if group.is_empty() && !hurried {
            group = second.next();
        }
        self.since_back = if past_first { self.since_back + 1 } else { 0 };
        group
    }
}

#[cfg(test)]
mod tests {
    use super::super::FLASH;
    use super::*;

    fn part(offset: u64) -> Part {
        let (disk, operation, buffers) = (BACKEND, Operation::Write, smallvec::SmallVec::new());
        Part { background: true, buffers, ..Part::new(0, disk, operation, offset, 4096) }
    }

    fn next(background: &mut Background) -> Vec<u64> {
        let group = background.next();
        group.first().into_iter().for_each(|part| background.started(part));
        group.iter().map(|part| part.offset / 4096).collect()
    }

    #[test]
    fn neighbours_go_together_upwards_and_then_from_the_start() {
        let mut background = Background::default();
        [9, 2, 3, 7, 4].into_iter().for_each(|block| background.push_back(part(4096 * block)));
        assert_eq!(next(&mut background), [2, 3, 4]);
        background.push_back(part(0));
        assert_eq!([next(&mut background), next(&mut background), next(&mut background)], [vec![7], vec![9], vec![0]]);
        assert_eq!(next(&mut background), [0; 0]);
    }

    fn other(operation: Operation) -> Part {
        Part { background: false, operation, ..part(0) }
    }

    #[test]
    fn both_kinds_take_turns_and_a_flush_hurries_bypassing_writes() {
        let mut background = Background::default();
        (0..20).for_each(|block| background.push_back(part(2 * 4096 * block)));
        (0..20).for_each(|block| background.push_past(part(2 * 4096 * (100 + block))));
        assert_eq!([0; 6].map(|_| next(&mut background)[0]), [200, 0, 202, 2, 204, 4]);
        assert_eq!(next(&mut background), [0; 0]);
        background.flush_waits();
        assert_eq!(next(&mut background), [0; 0]);
        [Operation::Write; 2].into_iter().for_each(|write| background.started(&other(write)));
        assert_eq!([0; 3].map(|_| next(&mut background)), [vec![206], vec![208], vec![]]);
        (0..8).for_each(|_| background.ended(&part(0)));
        let turns = [0; 8].map(|_| next(&mut background)[0]);
        assert_eq!(turns, [210, 212, 214, 216, 218, 6, 220, 222]);
    }

    #[test]
    fn few_are_under_way_at_a_time_and_fewer_beside_reads() {
        let mut background = Background::default();
        (0..20).for_each(|block| background.push_back(part(2 * 4096 * block)));
        (0..6).for_each(|block| assert_eq!(next(&mut background), [2 * block]));
        assert_eq!(next(&mut background), [0; 0]);
        background.ended(&part(0));
        assert_eq!(next(&mut background), [12]);
        background.started(&other(Operation::Read));
        background.ended(&part(0));
        assert_eq!(next(&mut background), [0; 0]);
        background.ended(&other(Operation::Read));
        assert_eq!(next(&mut background), [14]);
        // A part of the transfers that clients wait for.
        (0..32).for_each(|_| background.started(&other(Operation::Read)));
        assert_eq!([0; 3].map(|_| next(&mut background)), [vec![16], vec![18], vec![]]);
    }

    #[test]
    fn each_disk_of_a_pool_has_its_own() {
        let mut background = Background::default();
        let of = |lane, block: u64| Part { lane, ..part(2 * 4096 * block) };
        (0..20).for_each(|block| background.push_back(of(0, block)));
        (0..6).for_each(|block| assert_eq!(next(&mut background), [2 * block]));
        assert_eq!(next(&mut background), [0; 0]);
        background.push_back(of(2, 50));
        assert_eq!(next(&mut background), [100]);
    }

    #[test]
    fn few_blocks_are_read_from_the_flash_at_once_but_for_those_that_clients_wait_for() {
        let mut background = Background::default();
        let read =
            |block: u64| Part { disk: FLASH, operation: Operation::Read, step: block as u32, ..part(4096 * block) };
        (0..40).for_each(|block| background.push_from_flash(read(2 * block)));
        let handed_out = |background: &mut Background| {
            let group = background.next_from_flash();
            background.started_from_flash(group.len());
            group.iter().map(|part| part.offset / 4096).collect::<Vec<_>>()
        };
        (0..BLOCKS_FROM_FLASH as u64).for_each(|block| assert_eq!(handed_out(&mut background), [2 * block]));
        assert_eq!(handed_out(&mut background), [0; 0]);
        let hurried = background.take_from_flash(70).expect("it waits");
        assert_eq!((hurried.offset, hurried.background), (70 * 4096, false));
        background.ended_from_flash(1);
        assert_eq!(handed_out(&mut background), [64]);
    }
}
