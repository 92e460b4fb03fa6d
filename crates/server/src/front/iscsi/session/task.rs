//! The commands of a session, and the data that comes with them.

use rustc_hash::FxHashMap;

use crate::front::budget::{Need, next_part};
use crate::scsi::opcodes::Begun;
use crate::scsi::plan::Plan;
use crate::scsi::status::Answer;

/// The shortest part of a command's data for which memory is taken and the initiator is asked: a common burst.
const PART_BYTES_MIN: usize = 256 << 10;
/// Memory of a command that is refused, or waits.
pub const OVERHEAD_BYTES: usize = 1024;

/// The memory of a command that wants `wanted` bytes of data, of which `unasked` come without being asked for.
pub fn first_need(begun: &Begun, wanted: usize, unasked: usize) -> Need {
    let rest_bytes = OVERHEAD_BYTES + begun.memory_bytes as usize;
    Need { bytes: rest_bytes - wanted.saturating_sub(unasked), rest_bytes }
}

/// What was asked of the initiator.
#[derive(Clone, Copy, Debug)]
pub struct ReadyToTransfer {
    /// Names it.
    pub tag: u32,
    /// Where the data ends that was asked for.
    pub end: usize,
}

/// How far a command has come.
pub enum State {
    /// It waits for memory: to begin, or to ask for the next part of its data.
    Waiting,
    /// Data that was not asked for is to come.
    Unsolicited,
    /// Data that was asked for is to come.
    Solicited(ReadyToTransfer),
    /// Its data is on its way through the reader, or it is to be performed.
    Gathered,
    /// It is performed.
    Running(Box<Plan>),
}

/// A command of a session.
pub struct Task {
    /// Its logical unit, as the initiator wrote it.
    pub lun: [u8; 8],
    /// How much the initiator expects to send or to read.
    pub expected: usize,
    /// Whether it expects to read.
    pub reads: bool,
    /// Whether it expects to send.
    pub writes: bool,
    /// What it is, or why it is refused.
    pub begun: Result<Begun, Answer>,
    /// How much it asks the initiator for.
    pub out_bytes: u64,
    /// How much of its data is wanted.
    pub wanted: usize,
    /// How much of that has memory.
    pub granted: usize,
    /// What has come of that.
    pub data: Vec<u8>,
    /// How much has come, wanted or not.
    pub received: usize,
    /// The number of the next data segment in its sequence.
    pub data_number: u32,
    /// How often the initiator was asked for data.
    pub asked: u32,
    /// How far it has come. Once it is among the others, [`Tasks::set_state`] alone changes it.
    pub state: State,
    /// Memory that is set aside for it.
    pub reserved_bytes: usize,
    /// Memory that it takes once all of its data has come; 0 until some is set aside.
    pub promised_bytes: usize,
    /// How often commands of its session had been aborted when it came.
    pub aborts: u64,
    /// Whether it was aborted: it is not answered.
    pub aborted: bool,
    /// Whether a request to the export is under way.
    pub submitted: bool,
}

impl Task {
    /// How much more it was to send or to read than the initiator expects (above 0), or less (below 0).
    pub fn residual(&self, answered_bytes: usize) -> i64 {
        let (moves, moved) = match self.out_bytes {
            0 => (self.reads, answered_bytes as i64),
            out_bytes => (self.writes, out_bytes as i64),
        };
        // What goes the other way than expected is beyond what is expected.
        if moves || moved == 0 { moved - self.expected as i64 } else { moved }
    }

    /// The memory that it needs for its next step: to begin, or to ask for the next part of its data.
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

    /// Takes note of memory that was set aside for a need of it.
    pub fn reserve(&mut self, need: Need, taken: usize) {
        if self.reserved_bytes == 0 {
            self.promised_bytes = need.rest_bytes;
        }
        self.reserved_bytes += taken;
        self.granted = self.wanted.saturating_sub(need.rest_bytes - taken);
    }

    /// Whether data from the initiator is to come.
    pub fn awaits_data(&self) -> bool {
        matches!(self.state, State::Unsolicited | State::Solicited(_))
    }
}

/// The commands of a session, by their tags.
#[derive(Default)]
pub struct Tasks {
    tasks: FxHashMap<u32, Task>,
    /// Those that data is to come for: each command asks whether there are any.
    awaiting_data: usize,
}

impl Tasks {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Task)> {
        self.tasks.iter().map(|(tag, task)| (*tag, task))
    }

    /// Whether there is one with this tag.
    pub fn contains(&self, tag: u32) -> bool {
        self.tasks.contains_key(&tag)
    }

    /// The one with this tag.
    pub fn get(&self, tag: u32) -> Option<&Task> {
        self.tasks.get(&tag)
    }

    /// The one with this tag.
    pub fn get_mut(&mut self, tag: u32) -> Option<&mut Task> {
        self.tasks.get_mut(&tag)
    }

    /// Whether data from the initiator is to come for any.
    pub fn await_data(&self) -> bool {
        self.awaiting_data > 0
    }

    /// One more, of a tag that none has.
    pub fn insert(&mut self, tag: u32, task: Task) {
        self.awaiting_data += usize::from(task.awaits_data());
        let before = self.tasks.insert(tag, task);
        debug_assert!(before.is_none(), "a tag names one command");
    }

    /// How far one has come now.
    pub fn set_state(&mut self, tag: u32, state: State) {
        let Some(task) = self.tasks.get_mut(&tag) else { return };
        self.awaiting_data -= usize::from(task.awaits_data());
        task.state = state;
        self.awaiting_data += usize::from(task.awaits_data());
    }

    /// One less.
    pub fn remove(&mut self, tag: u32) -> Option<Task> {
        let task = self.tasks.remove(&tag)?;
        self.awaiting_data -= usize::from(task.awaits_data());
        Some(task)
    }
}
