//! The sequence of a command's requests, and the reply at its end.
//!
//! A command that reads before it writes claims its bytes until its write is submitted. The export performs overlapping
//! requests in the order of submission.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use flashwise_core::filter::Caching;
use flashwise_storage::export::{Claim, Error, Export, Operation, Request};

use super::nexus::CopyState;
use super::status::{Answer, Sense, code, key, sense_of};
use super::unit::Unit;

/// Longest write of a WRITE SAME, in bytes.
pub const FILL_BYTES: u64 = 256 << 10;

/// Longest piece of a copy, in bytes.
pub const COPY_BYTES: u64 = 1 << 20;

/// A request to the export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The operation.
    pub operation: Operation,
    /// Offset of its first byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// True if its changes must be durable before the reply.
    pub durable: bool,
    /// The bytes to write.
    pub data: Vec<u8>,
}

impl Wish {
    /// Creates a read, or a hint about bytes.
    pub fn of(operation: Operation, offset: u64, length: u64) -> Wish {
        Wish { operation, offset, length, durable: false, data: Vec::new() }
    }

    /// Creates a write.
    pub fn write(offset: u64, data: Vec<u8>, durable: bool) -> Wish {
        Wish { operation: Operation::Write, offset, length: data.len() as u64, durable, data }
    }

    /// Creates a flush.
    pub fn flush() -> Wish {
        Wish::of(Operation::Flush, 0, 0)
    }

    fn changes(&self) -> bool {
        matches!(self.operation, Operation::Write | Operation::Trim | Operation::WriteZeroes { .. })
    }
}

/// The use of the bytes read by a request.
#[derive(Debug)]
enum After {
    /// They are the reply.
    Answer,
    /// None.
    Nothing,
    /// None; and on an error, the unit that was stopped starts again.
    Stopped,
    /// They are compared with these bytes.
    Compare(Vec<u8>),
    /// They are compared with these bytes; if they are equal, the others are written.
    CompareAndWrite(Vec<u8>, Vec<u8>, bool),
    /// These bytes are written after an OR with those read.
    Or(Vec<u8>, bool),
}

/// A block that is written repeatedly.
#[derive(Debug)]
struct Fill {
    pattern: Vec<u8>,
    at: u64,
    end: u64,
}

/// Bytes to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset of the source.
    pub from: u64,
    /// Offset of the destination.
    pub to: u64,
    /// Number of bytes.
    pub length: u64,
}

/// Segments that are copied piece by piece.
#[derive(Debug)]
struct Copying {
    segments: VecDeque<Segment>,
    state: Arc<CopyState>,
    /// Length of the piece being written.
    writing: u64,
}

/// The requests of a command.
pub struct CommandPlan {
    wishes: VecDeque<Wish>,
    fill: Option<Fill>,
    copying: Option<Copying>,
    after: After,
    /// True if its bytes are claimed until it writes.
    exclusive: bool,
    claim: Option<Claim>,
    /// The last submitted request, without its data.
    changed: bool,
}

/// The result of advancing a plan.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// A request was submitted.
    Submitted,
    /// Another command has claimed the bytes. The waker signals when to try again.
    Blocked,
    /// The command has its reply.
    Done(Answer),
}

impl CommandPlan {
    fn new(wishes: impl Into<VecDeque<Wish>>, after: After) -> CommandPlan {
        CommandPlan {
            wishes: wishes.into(),
            fill: None,
            copying: None,
            after,
            exclusive: false,
            claim: None,
            changed: false,
        }
    }

    /// Performs requests one after the other; their results are ignored.
    pub fn all(wishes: impl Into<VecDeque<Wish>>) -> CommandPlan {
        CommandPlan::new(wishes, After::Nothing)
    }

    /// Flushes a stopped unit. If that fails, the unit is not stopped.
    pub fn stop() -> CommandPlan {
        CommandPlan::new([Wish::flush()], After::Stopped)
    }

    /// Performs requests; the last one reads the reply.
    pub fn read(wishes: impl Into<VecDeque<Wish>>) -> CommandPlan {
        CommandPlan::new(wishes, After::Answer)
    }

    /// Performs requests; the last one's bytes are compared with `expected`.
    pub fn compare(wishes: impl Into<VecDeque<Wish>>, expected: Vec<u8>) -> CommandPlan {
        CommandPlan::new(wishes, After::Compare(expected))
    }

    /// Writes `data` if `expected` is found.
    pub fn compare_and_write(offset: u64, expected: Vec<u8>, data: Vec<u8>, durable: bool) -> CommandPlan {
        let read = Wish::of(Operation::Read, offset, expected.len() as u64);
        let plan = CommandPlan::new([read], After::CompareAndWrite(expected, data, durable));
        CommandPlan { exclusive: true, ..plan }
    }

    /// Sets the bits of `data`.
    pub fn or(offset: u64, data: Vec<u8>, durable: bool) -> CommandPlan {
        let read = Wish::of(Operation::Read, offset, data.len() as u64);
        CommandPlan { exclusive: true, ..CommandPlan::new([read], After::Or(data, durable)) }
    }

    /// Writes a block repeatedly from `offset` up to `end`.
    pub fn fill(offset: u64, end: u64, block: &[u8]) -> CommandPlan {
        let count = (end - offset).min(FILL_BYTES) as usize / block.len();
        let fill = Fill { pattern: block.repeat(count), at: offset, end };
        CommandPlan { fill: Some(fill), ..CommandPlan::new([], After::Nothing) }
    }

    /// Copies segments in order; `state` has its progress.
    pub fn copy(segments: Vec<Segment>, state: Arc<CopyState>) -> CommandPlan {
        let copying = Copying { segments: segments.into(), state, writing: 0 };
        let mut plan = CommandPlan { copying: Some(copying), ..CommandPlan::new([], After::Nothing) };
        plan.next_copy();
        plan
    }

    /// Creates the next read of a copy, if any is left.
    fn next_copy(&mut self) {
        let Some(copying) = &mut self.copying else { return };
        while copying.segments.front().is_some_and(|segment| segment.length == 0) {
            copying.segments.pop_front();
            copying.state.copied(0, true);
        }
        match copying.segments.front() {
            Some(next) => {
                self.wishes.push_back(Wish::of(Operation::Read, next.from, next.length.min(COPY_BYTES)));
            }
            None => copying.state.end(true),
        }
    }

    /// Writes the bytes of a copy's read, or continues after its write with the next read. Returns true if there is
    /// more.
    fn copied(&mut self, found: Vec<u8>) -> bool {
        let Some(copying) = &mut self.copying else { return false };
        if copying.writing > 0 {
            let written = std::mem::take(&mut copying.writing);
            if let Some(segment) = copying.segments.front_mut() {
                segment.from += written;
                segment.to += written;
                segment.length -= written;
            }
            copying.state.copied(written, false);
            self.next_copy();
        } else if let Some(segment) = copying.segments.front() {
            copying.writing = found.len() as u64;
            self.wishes.push_back(Wish::write(segment.to, found, false));
        }
        !self.wishes.is_empty()
    }

    /// Creates the next write of a repeated block.
    fn next_fill(&mut self) {
        let Some(fill) = &mut self.fill else { return };
        if !self.wishes.is_empty() || fill.at == fill.end {
            return;
        }
        let length = (fill.end - fill.at).min(fill.pattern.len() as u64);
        self.wishes.push_back(Wish::write(fill.at, fill.pattern[..length as usize].to_vec(), false));
        fill.at += length;
    }

    /// Advances the plan: first without a result, then with that of the submitted request, and without one after it was
    /// blocked. `submit` gets the next request and its export.
    pub fn advance(
        &mut self,
        unit: &Arc<Unit>,
        result: Option<Result<Vec<u8>, Error>>,
        caching: Caching,
        waker: &Waker,
        submit: impl FnOnce(Request, &dyn Export),
    ) -> Progress {
        if let Some(result) = result {
            let ended = self.ended(unit, result);
            if let Some(answer) = ended {
                self.claim = None;
                return Progress::Done(answer);
            }
        }
        self.next_fill();
        let Some(wish) = self.wishes.pop_front() else { return Progress::Done(Answer::GOOD) };
        self.submit(unit, wish, caching, waker, submit)
    }

    fn submit(
        &mut self,
        unit: &Arc<Unit>,
        wish: Wish,
        caching: Caching,
        waker: &Waker,
        submit: impl FnOnce(Request, &dyn Export),
    ) -> Progress {
        let (offset, length, changes) = (wish.offset, wish.length, wish.changes());
        let request = |wish: Wish| Request {
            operation: wish.operation,
            offset,
            length,
            force_unit_access: wish.durable,
            data: wish.data,
            caching,
        };
        // A flush counts as a write if it fails.
        self.changed = changes || wish.operation == Operation::Flush;
        if self.exclusive && self.claim.is_none() {
            self.claim = unit.export().claim(offset, length, waker);
            if self.claim.is_none() {
                self.wishes.push_front(wish);
                return Progress::Blocked;
            }
        }
        match &self.claim {
            Some(claim) => submit(request(wish), &**claim.export()),
            None => submit(request(wish), &**unit.export()),
        }
        if changes {
            (self.exclusive, self.claim) = (false, None);
        }
        Progress::Submitted
    }

    /// Returns the reply, if the last submitted request was the last of all, or failed.
    fn ended(&mut self, unit: &Unit, result: Result<Vec<u8>, Error>) -> Option<Answer> {
        let found = match result {
            Ok(found) => found,
            Err(error) => {
                if let Some(copying) = &self.copying {
                    copying.state.end(false);
                }
                if matches!(self.after, After::Stopped) {
                    unit.stopped().store(false, Ordering::Relaxed);
                }
                return Some(sense_of(error, self.changed));
            }
        };
        if self.copying.is_some() {
            return if self.copied(found) { None } else { Some(Answer::GOOD) };
        }
        let more = !self.wishes.is_empty() || self.fill.as_ref().is_some_and(|fill| fill.at < fill.end);
        if more {
            return None;
        }
        match std::mem::replace(&mut self.after, After::Nothing) {
            After::Nothing | After::Stopped => Some(Answer::GOOD),
            After::Answer => Some(Answer::data(found)),
            After::Compare(expected) => Some(compared(&expected, &found)),
            After::CompareAndWrite(expected, data, durable) => {
                let compared = compared(&expected, &found);
                if compared != Answer::GOOD {
                    return Some(compared);
                }
                self.write(data, durable)
            }
            After::Or(mut data, durable) => {
                data.iter_mut().zip(&found).for_each(|(new, old)| *new |= old);
                self.write(data, durable)
            }
        }
    }

    fn write(&mut self, data: Vec<u8>, durable: bool) -> Option<Answer> {
        let offset = self.claim.as_ref().map_or(0, Claim::offset);
        self.wishes.push_back(Wish::write(offset, data, durable));
        None
    }
}

/// Returns success, or the position of the first difference. Source: SBC-3, section 5.3.
fn compared(expected: &[u8], found: &[u8]) -> Answer {
    match expected.iter().zip(found).position(|(expected, found)| expected != found) {
        None if expected.len() == found.len() => Answer::GOOD,
        different => {
            let at = different.unwrap_or(expected.len().min(found.len()));
            let sense = Sense::new(key::MISCOMPARE, code::MISCOMPARE_DURING_VERIFY);
            Sense { information: u32::try_from(at).ok(), ..sense }.into()
        }
    }
}
