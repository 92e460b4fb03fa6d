//! Transfers: few of them for all parts that steps read and write, and their ends.

use std::collections::HashMap;

use flashwise_core::order::StepId;
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;

use super::BACKEND;
use super::background::Background;
use super::clients::BLOCK;
use crate::memory::Memory;
use crate::transfer::{Buffer, Operation, Transfer};

/// A part of a transfer, which belongs to one step.
#[derive(Clone, Debug)]
pub struct Part {
    /// [`FLASH`](super::FLASH), [`BACKEND`] or [`JOURNAL`](super::JOURNAL).
    pub disk: usize,
    /// The operation.
    pub operation: Operation,
    /// The first byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// The memory.
    pub buffers: SmallVec<[Buffer; 1]>,
    /// The step.
    pub step: StepId,
    /// True if it yields to others.
    pub background: bool,
    /// The disk of the backend that has the bytes.
    pub lane: u16,
    /// As [`Transfer::stream`].
    pub stream: u8,
    /// True if it is not joined with others, because they failed together.
    pub alone: bool,
}

impl Part {
    /// Creates a part that a client may wait for.
    pub fn new(step: StepId, disk: usize, operation: Operation, offset: u64, length: u64) -> Part {
        let (buffers, background, lane, stream, alone) = (SmallVec::new(), false, 0, 0, false);
        Part { disk, operation, offset, length, buffers, step, background, lane, stream, alone }
    }
}

/// The parts of a transfer.
pub(super) type Group = SmallVec<[Part; 1]>;

/// The parts of a transfer that is being put together.
#[derive(Debug, Default)]
pub struct Joining {
    parts: Group,
    /// Bytes, gaps included.
    length: u64,
    buffers: Vec<Buffer>,
}

impl Joining {
    /// Returns its parts.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns the number of its buffers.
    pub fn buffers(&self) -> usize {
        self.buffers.len()
    }

    /// Returns the byte after it.
    pub fn end(&self) -> u64 {
        self.parts.first().map_or(0, |first| first.offset + self.length)
    }

    fn push(&mut self, part: Part) {
        self.length += part.length;
        part.buffers.iter().for_each(|&buffer| self.push_buffer(buffer));
        self.parts.push(part);
    }

    /// Adds memory, in as few pieces as possible.
    fn push_buffer(&mut self, buffer: Buffer) {
        match self.buffers.last_mut() {
            Some(last) if last.start.wrapping_add(last.length) == buffer.start => last.length += buffer.length,
            _ => self.buffers.push(buffer),
        }
    }
}

/// The parts to hand out, and the transfers in progress.
pub(crate) struct Transfers {
    outgoing: Vec<Part>,
    groups: HashMap<u64, Group, FxBuildHasher>,
    next_tag: u64,
    pub background: Background,
    /// Receives the pages between those of a combined read. Its contents are unused, so transfers share it.
    pub gap: Memory,
}

impl Transfers {
    /// Creates transfers that skip at most `gap_pages` between two parts.
    pub fn new(gap_pages: usize) -> Transfers {
        let (outgoing, groups, background) = (Vec::new(), HashMap::default(), Background::default());
        Transfers { outgoing, groups, next_tag: 1, background, gap: Memory::new(gap_pages) }
    }

    /// Hands out a part later, with its neighbours.
    pub fn push(&mut self, part: Part) {
        self.outgoing.push(part);
    }

    /// Hands out the waiting read of a step before the background, because a client now waits for it.
    pub fn hurry(&mut self, step: StepId) {
        self.outgoing.extend(self.background.take_from_flash(step));
    }

    /// Returns the first part of an unfinished transfer.
    pub fn first(&self, tag: u64) -> &Part {
        &self.groups[&tag][0]
    }

    /// Takes the parts of a transfer that has ended.
    pub fn end(&mut self, tag: u64) -> Group {
        let parts = self.groups.remove(&tag).expect("a transfer ends once");
        let first = &parts[0];
        if first.disk == BACKEND {
            self.background.ended(first);
        } else if first.background {
            self.background.ended_from_flash(parts.len());
        }
        parts
    }

    /// Hands out each part of a failed transfer by itself, to find the failed ones.
    pub fn split(&mut self, parts: Group) {
        self.outgoing.extend(parts.into_iter().map(|part| Part { alone: true, ..part }));
    }

    /// Hands out the parts, joined with those that they [continue](super::Layout::continues), and then those of the
    /// background.
    pub fn hand_out(
        &mut self,
        sorts: bool,
        continues: impl Fn(&Joining, &Part) -> Option<u64>,
        transfers: &mut Vec<Transfer>,
    ) {
        let mut outgoing = std::mem::take(&mut self.outgoing);
        if sorts && outgoing.len() > 1 {
            outgoing.sort_by_key(|part| (part.disk, part.offset));
        }
        let mut joining = Joining::default();
        for part in outgoing.drain(..) {
            match joining.parts.first().and_then(|_| continues(&joining, &part)) {
                Some(0) => {}
                Some(gap) => {
                    joining.push_buffer(self.gap.buffer(0, (gap / BLOCK) as u32));
                    joining.length += gap;
                }
                None => self.hand_out_joined(&mut joining, transfers),
            }
            joining.push(part);
        }
        self.hand_out_joined(&mut joining, transfers);
        self.outgoing = outgoing;
        self.hand_out_background(Background::next, transfers);
        self.hand_out_background(Background::next_from_flash, transfers);
    }

    /// Hands out transfers of the background, each of the next parts.
    fn hand_out_background(&mut self, next: impl Fn(&mut Background) -> Group, transfers: &mut Vec<Transfer>) {
        loop {
            let parts = next(&mut self.background);
            if parts.is_empty() {
                return;
            }
            let mut joining = Joining::default();
            parts.into_iter().for_each(|part| joining.push(part));
            self.hand_out_joined(&mut joining, transfers);
        }
    }

    fn hand_out_joined(&mut self, joining: &mut Joining, transfers: &mut Vec<Transfer>) {
        let Some(first) = joining.parts.first() else { return };
        if first.disk == BACKEND {
            self.background.started(first);
        } else if first.background {
            self.background.started_from_flash(joining.parts.len());
        }
        let tag = self.next_tag;
        self.next_tag += 1;
        let &Part { disk, operation, offset, stream, .. } = first;
        let Joining { parts, length, buffers } = std::mem::take(joining);
        transfers.push(Transfer { tag, disk, operation, offset, length, buffers, stream });
        self.groups.insert(tag, parts);
    }
}
