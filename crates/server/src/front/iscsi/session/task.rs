//! The commands of a session, and their data.

use rustc_hash::FxHashMap;

use crate::front::budget::{Need, next_part};
use crate::scsi::opcodes::Begun;
use crate::scsi::plan::CommandPlan;
use crate::scsi::status::Answer;

/// Shortest part of a command's data that takes memory and is requested: a common burst.
const PART_BYTES_MIN: usize = 256 << 10;
/// Memory of a command that is rejected, or waits.
pub const OVERHEAD_BYTES: usize = 1024;

/// Returns the first memory need of a command with `wanted` bytes of data, `unasked` of them unsolicited.
pub fn first_need(begun: &Begun, wanted: usize, unasked: usize) -> Need {
    let rest_bytes = OVERHEAD_BYTES + begun.memory_bytes as usize;
    Need { bytes: rest_bytes - wanted.saturating_sub(unasked), rest_bytes }
}

/// A request for data (R2T).
#[derive(Clone, Copy, Debug)]
pub struct ReadyToTransfer {
    /// Its tag.
    pub tag: u32,
    /// The end of the requested data.
    pub end: usize,
}

/// The state of a command.
pub enum CommandState {
    /// Waits for memory: to start, or to request the next part of its data.
    Waiting,
    /// Waits for unsolicited data.
    Unsolicited,
    /// Waits for requested data.
    Solicited(ReadyToTransfer),
    /// All its data is being received, or it is about to be performed.
    Gathered,
    /// Being performed.
    Running(Box<CommandPlan>),
}

/// A command of a session.
pub struct Task {
    /// Its logical unit, as the initiator wrote it.
    pub lun: [u8; 8],
    /// Bytes that the initiator expects to send or read.
    pub expected: usize,
    /// True if the initiator expects to read.
    pub reads: bool,
    /// True if the initiator expects to send.
    pub writes: bool,
    /// The decoded command, or its rejection.
    pub begun: Result<Begun, Answer>,
    /// Bytes that the command takes from the initiator.
    pub out_bytes: u64,
    /// Bytes of its data that are wanted.
    pub wanted: usize,
    /// The part of these that has memory.
    pub granted: usize,
    /// The part of these that has arrived.
    pub data: Vec<u8>,
    /// Bytes that have arrived, wanted or not.
    pub received: usize,
    /// The number of the next data segment in its sequence.
    pub data_number: u32,
    /// Number of requests for data.
    pub asked: u32,
    /// Its state. Once it is in the table, only [`Tasks::set_state`] changes it.
    pub state: CommandState,
    /// Memory reserved for it.
    pub reserved_bytes: usize,
    /// Its memory once all of its data has arrived; 0 until some is reserved.
    pub promised_bytes: usize,
    /// Value of its session's counter of aborts when it arrived.
    pub aborts: u64,
    /// True if it was aborted: it gets no reply.
    pub aborted: bool,
    /// True if a request to the export is in flight.
    pub submitted: bool,
}

impl Task {
    /// Returns the bytes to send or read beyond those that the initiator expects (above 0), or the shortfall (below 0).
    pub fn residual(&self, answered_bytes: usize) -> i64 {
        let (moves, moved) = match self.out_bytes {
            0 => (self.reads, answered_bytes as i64),
            out_bytes => (self.writes, out_bytes as i64),
        };
        // Bytes in the unexpected direction all exceed the expectation.
        if moves || moved == 0 { moved - self.expected as i64 } else { moved }
    }

    /// Returns the memory for its next step: to start, or to request the next part of its data.
    pub fn need(&self) -> Need {
        match &self.begun {
            Ok(begun) if self.reserved_bytes == 0 => first_need(begun, self.wanted, 0),
            Ok(_) => {
                let bytes = next_part(self.granted, self.wanted, PART_BYTES_MIN) - self.granted;
                Need { bytes, rest_bytes: self.wanted - self.granted }
            }
            Err(_) => Need::whole(OVERHEAD_BYTES),
        }
    }

    /// Records memory that was reserved for it.
    pub fn reserve(&mut self, need: Need, taken: usize) {
        if self.reserved_bytes == 0 {
            self.promised_bytes = need.rest_bytes;
        }
        self.reserved_bytes += taken;
        self.granted = self.wanted.saturating_sub(need.rest_bytes - taken);
    }

    /// True if it awaits data from the initiator.
    pub fn awaits_data(&self) -> bool {
        matches!(self.state, CommandState::Unsolicited | CommandState::Solicited(_))
    }
}

/// The commands of a session, by their tags.
#[derive(Default)]
pub struct Tasks {
    tasks: FxHashMap<u32, Task>,
    /// Number of commands that await data; every command checks it.
    awaiting_data: usize,
}

impl Tasks {
    /// Returns their number.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Returns all of them.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Task)> {
        self.tasks.iter().map(|(tag, task)| (*tag, task))
    }

    /// True if there is one with this tag.
    pub fn contains(&self, tag: u32) -> bool {
        self.tasks.contains_key(&tag)
    }

    /// Returns the one with this tag.
    pub fn get(&self, tag: u32) -> Option<&Task> {
        self.tasks.get(&tag)
    }

    /// Returns the one with this tag.
    pub fn get_mut(&mut self, tag: u32) -> Option<&mut Task> {
        self.tasks.get_mut(&tag)
    }

    /// True if any of them awaits data from the initiator.
    pub fn await_data(&self) -> bool {
        self.awaiting_data > 0
    }

    /// Adds one with an unused tag.
    pub fn insert(&mut self, tag: u32, task: Task) {
        self.awaiting_data += usize::from(task.awaits_data());
        let before = self.tasks.insert(tag, task);
        debug_assert!(before.is_none(), "a tag names one command");
    }

    /// Sets the state of one.
    pub fn set_state(&mut self, tag: u32, state: CommandState) {
        let Some(task) = self.tasks.get_mut(&tag) else { return };
        self.awaiting_data -= usize::from(task.awaits_data());
        task.state = state;
        self.awaiting_data += usize::from(task.awaits_data());
    }

    /// Removes one.
    pub fn remove(&mut self, tag: u32) -> Option<Task> {
        let task = self.tasks.remove(&tag)?;
        self.awaiting_data -= usize::from(task.awaits_data());
        Some(task)
    }
}
