//! Commands, from arrival to reply. Source: RFC 7143, sections 4.2 and 11.3 to 11.8.

use flashwise_storage::export::{Export, Operation, Request};

use super::super::pdu::{FINAL, Header, NO_TAG, reject};
use super::management::Aborts;
use super::task::{CommandState, OVERHEAD_BYTES, ReadyToTransfer, Task, first_need};
use super::{IMMEDIATE_MAX, Owner, Pause, Session, Turn, Use};
use crate::front::budget::Need;
use crate::front::completions::{Asked, Completed};
use crate::scsi::call::Work;
use crate::scsi::cdb::CDB_BYTES;
use crate::scsi::opcodes::{self, Begun};
use crate::scsi::plan::Progress;
use crate::scsi::status::{Answer, Sense, Status, code, key};

const READS: u8 = 0x40;
const WRITES: u8 = 0x20;
/// True for LUN 0 in any addressing method (SAM-5, section 4.7); the first two bits hold the method.
fn is_the_unit(lun: [u8; 8]) -> bool {
    lun[0] & 0x3f == 0 && lun[1..].iter().all(|byte| *byte == 0)
}

/// Decodes a command of this session; the error is its reply.
fn begin(used: &Use, header: &Header) -> Result<Begun, Answer> {
    let mut cdb = [0; CDB_BYTES];
    cdb.copy_from_slice(&header.0[32..48]);
    if !is_the_unit(header.lun()) {
        return Err(opcodes::absent(&cdb));
    }
    opcodes::begin(&used.unit, &used.nexus, &cdb)
}

/// Returns the number of bytes that an initiator sends with a command.
fn sent(header: &Header) -> u64 {
    if header.has(WRITES) { header.word(20).into() } else { 0 }
}

/// Returns the memory that a command needs to start, including its unsolicited data.
fn need_of(header: &Header, begun: &Result<Begun, Answer>, first_burst_bytes_max: usize) -> Need {
    let wanted = begun.as_ref().map(|begun| (begun, begun.wanted(sent(header))));
    let Ok((begun, Ok(wanted))) = wanted else { return Need::whole(OVERHEAD_BYTES) };
    let unasked = if header.has(FINAL) { header.data_bytes() } else { first_burst_bytes_max };
    first_need(begun, wanted as usize, unasked)
}

impl Session<'_> {
    /// True if a command with this much memory in total exceeds the limit, given the other commands.
    fn is_full(&self, bytes: usize) -> bool {
        self.bytes_promised > 0 && self.bytes_promised + self.link.output.length() + bytes > self.bytes_in_flight_max
    }

    /// Takes memory and returns the amount taken.
    fn take(&mut self, need: Need) -> usize {
        self.settle();
        let is_idle = self.requests_in_flight == 0 && !self.tasks.await_data() && self.link.output.held_bytes() == 0;
        let taken = self.link.account.take(need, is_idle);
        self.bytes_in_flight += taken;
        taken
    }

    /// Records the memory that a command has taken.
    fn reserve(&mut self, tag: u32, need: Need, taken: usize) {
        let Some(task) = self.tasks.get_mut(tag) else { return };
        let before = task.promised_bytes;
        task.reserve(need, taken);
        self.bytes_promised += task.promised_bytes - before;
    }

    /// Accepts a command whose header takes the next `length` bytes.
    pub(super) fn command(&mut self, header: &Header, length: usize) -> Option<Pause> {
        let Some(used) = &self.used else { return Some(self.break_off()) };
        let tag = header.tag();
        let number = header.word(24);
        let is_allowed = self.last_command_number.wrapping_sub(number) as i32 >= 0;
        let is_next = header.is_immediate() || (number == self.command_number && is_allowed);
        if self.tasks.contains(tag) && is_next {
            return Some(self.break_off());
        }
        if !is_next {
            self.link.input.consume(length);
            if self.turn(header) == Turn::Broken {
                return Some(self.break_off());
            }
            self.expect(Owner::Nobody, Vec::new(), header, 0);
            return None;
        }
        if self.tasks.len() >= self.depth + IMMEDIATE_MAX {
            // The window limits the number of numbered commands.
            self.link.input.consume(length);
            self.reject(reject::TOO_MANY_IMMEDIATE_COMMANDS, header);
            self.expect(Owner::Nobody, Vec::new(), header, 0);
            return None;
        }
        let aborts = used.nexus.aborts();
        let mut begun = self.ahead.take().unwrap_or_else(|| begin(used, header));
        let brings_data = header.data_bytes() > 0 || !header.has(FINAL);
        let need = need_of(header, &begun, self.parameters.first_burst_bytes_max as usize);
        let gathers = self.tasks.await_data();
        let may_take = (self.waiting.is_empty() || gathers && brings_data) && !self.is_full(need.rest_bytes);
        let taken = if may_take { self.take(need) } else { 0 };
        let has_memory = taken > 0;
        if !has_memory && !gathers {
            self.ahead = Some(begun);
            return Some(Pause::Full);
        }
        if !has_memory && brings_data {
            begun = Err(Answer::status(Status::TaskSetFull));
        }
        self.link.input.consume(length);
        let turn = self.turn(header);
        debug_assert_eq!(turn, Turn::Now, "it is the next");
        self.tally.requests += 1;
        self.accept(header, begun, aborts);
        if has_memory {
            self.reserve(tag, need, taken);
        } else if !brings_data {
            self.tasks.set_state(tag, CommandState::Waiting);
            self.waiting.push_back(tag);
            return None;
        }
        let task = self.tasks.get_mut(tag)?;
        let (received, kept) = (header.data_bytes(), task.wanted.min(header.data_bytes()));
        let most = self.parameters.first_burst_bytes_max as usize;
        if received > most || (received > 0 && !self.parameters.immediate_data) || received > task.expected {
            return Some(self.break_off());
        }
        task.received = received;
        let data = std::mem::take(&mut task.data);
        self.expect(Owner::Task(tag), data, header, kept);
        None
    }

    fn accept(&mut self, header: &Header, begun: Result<Begun, Answer>, aborts: u64) {
        let (reads, writes) = (header.has(READS), header.has(WRITES));
        let expected = header.word(20) as usize;
        let sent = sent(header);
        let out_bytes = begun.as_ref().map_or(0, |begun| begun.out_bytes);
        let (begun, wanted) = match begun.and_then(|begun| begun.wanted(sent).map(|wanted| (begun, wanted))) {
            Ok((begun, wanted)) => (Ok(begun), wanted as usize),
            Err(answer) => (Err(answer), 0),
        };
        let unsolicited = writes && !header.has(FINAL);
        let task = Task {
            lun: header.lun(),
            expected,
            reads,
            writes,
            begun,
            out_bytes,
            wanted,
            granted: 0,
            data: Vec::new(),
            received: 0,
            data_number: 0,
            asked: 0,
            state: if unsolicited { CommandState::Unsolicited } else { CommandState::Gathered },
            reserved_bytes: 0,
            promised_bytes: 0,
            aborts,
            aborted: false,
            submitted: false,
        };
        self.tasks.insert(header.tag(), task);
    }

    /// Handles the start of a command's data segment.
    pub(super) fn data_out(&mut self, header: &Header) -> Option<Pause> {
        let tag = header.tag();
        let length = header.data_bytes();
        let first_burst_bytes_max = self.parameters.first_burst_bytes_max as usize;
        let Some(task) = self.tasks.get_mut(tag).filter(|task| task.awaits_data()) else {
            // The command was aborted, or has failed.
            self.expect(Owner::Nobody, Vec::new(), header, 0);
            return None;
        };
        let end = task.received + length;
        let (transfer, most) = match task.state {
            CommandState::Solicited(ready) => (ready.tag, ready.end),
            _ => (NO_TAG, first_burst_bytes_max.min(task.expected)),
        };
        let is_in_order = header.word(40) as usize == task.received;
        let is_last = header.has(FINAL);
        let is_short = matches!(task.state, CommandState::Solicited(ready) if is_last && end < ready.end);
        if header.word(20) != transfer || !is_in_order || end > most || is_short {
            return Some(self.break_off());
        }
        if header.word(36) != task.data_number && task.begun.is_ok() {
            // A segment is missing: the command fails once all its data has arrived.
            task.begun = Err(Sense::new(key::ABORTED_COMMAND, code::DATA_PHASE_ERROR).into());
            task.wanted = 0;
        }
        let kept = task.wanted.saturating_sub(task.received).min(length);
        task.received = end;
        task.data_number = task.data_number.wrapping_add(1);
        let data = std::mem::take(&mut task.data);
        if is_last {
            task.data_number = 0;
            self.tasks.set_state(tag, CommandState::Gathered);
        }
        self.expect(Owner::Task(tag), data, header, kept);
        None
    }

    /// Handles a complete data segment of a command.
    pub(super) fn task_segment(&mut self, tag: u32, data: Vec<u8>) -> Option<Pause> {
        let task = self.tasks.get_mut(tag)?;
        task.data = data;
        if task.aborted {
            self.forget(tag);
            return None;
        }
        if matches!(task.state, CommandState::Gathered) {
            self.gathered(tag);
        }
        None
    }

    /// Handles the end of the awaited data: requests more, or performs the command.
    fn gathered(&mut self, tag: u32) {
        let Some(task) = self.tasks.get_mut(tag) else { return };
        if task.received < task.wanted {
            if task.granted <= task.received {
                let need = task.need();
                let taken = if self.waiting.is_empty() { self.take(need) } else { 0 };
                if taken == 0 {
                    self.tasks.set_state(tag, CommandState::Waiting);
                    return self.waiting.push_back(tag);
                }
                self.reserve(tag, need, taken);
            }
            let Some(task) = self.tasks.get_mut(tag) else { return };
            let length = (task.granted - task.received).min(self.parameters.burst_bytes_max as usize);
            self.transfers = if self.transfers == NO_TAG - 1 { 0 } else { self.transfers + 1 };
            let (transfer, from, lun, number) = (self.transfers, task.received, task.lun, task.asked);
            task.asked += 1;
            self.tasks.set_state(tag, CommandState::Solicited(ReadyToTransfer { tag: transfer, end: from + length }));
            return self.put_ready(tag, lun, transfer, number, from, length);
        }
        self.perform(tag);
    }

    fn perform(&mut self, tag: u32) {
        let Some(used) = &self.used else { return };
        let Some(task) = self.tasks.get_mut(tag) else { return };
        if used.nexus.aborts() != task.aborts {
            // Another session reset the unit meanwhile.
            self.forget(tag);
            return;
        }
        let work = match &task.begun {
            Err(answer) => Work::Answer(answer.clone()),
            Ok(_) if self.control.is_stopping() => Work::Answer(Answer::status(Status::Busy)),
            Ok(begun) => {
                self.tally.bytes_written += if begun.opcode().changes { task.data.len() as u64 } else { 0 };
                begun.perform(&used.unit, &used.nexus, std::mem::take(&mut task.data))
            }
        };
        match work {
            Work::Answer(answer) => self.respond(tag, answer),
            Work::Plan(plan) => {
                self.tasks.set_state(tag, CommandState::Running(Box::new(plan)));
                self.advance(tag, None);
            }
        }
    }

    /// Continues a command, with the result of its request.
    fn advance(&mut self, tag: u32, completed: Option<Completed>) {
        let Some(used) = &self.used else { return };
        let Some(task) = self.tasks.get_mut(tag) else { return };
        let CommandState::Running(plan) = &mut task.state else { return };
        let alone = self.requests_in_flight == 0 && self.link.input.available().is_empty();
        let (completions, solitude) = (self.control.completions(), &mut self.solitude);
        let mut waited = false;
        let submit = |request: Request, export: &dyn Export| {
            used.guest.count(&request);
            let reads = request.operation == Operation::Read;
            let (offset, length) = (request.offset, request.length as u32);
            let asked = Asked { cookie: u64::from(tag), offset, length, reads, reserved_bytes: 0 };
            let done = completions.done(asked);
            solitude.comes(alone);
            // Bytes that arrived while the thread waited show that the client does not wait.
            if solitude.is_likely() {
                waited = export.submit_and_wait(request, done);
            } else {
                export.submit(request, done);
            }
        };
        let result = completed.map(|completed| completed.result);
        match plan.advance(&used.unit, result, used.guest.caching(), &self.waker, submit) {
            Progress::Submitted => {
                task.submitted = true;
                self.requests_in_flight += 1;
            }
            Progress::Blocked => self.blocked.push(tag),
            Progress::Done(answer) => return self.respond(tag, answer),
        }
        if waited && matches!(self.expected, super::Expected::Header) && self.link.look(None) {
            self.solitude.comes(false);
        }
    }

    /// Continues commands whose requests are completed.
    pub(super) fn collect(&mut self) {
        let mut completed = std::mem::take(&mut self.completed);
        loop {
            self.control.completions().take(&mut completed);
            if completed.is_empty() {
                break;
            }
            for answer in completed.drain(..) {
                self.requests_in_flight -= 1;
                let tag = answer.asked.cookie as u32;
                let Some(task) = self.tasks.get_mut(tag) else { continue };
                task.submitted = false;
                if let Ok(data) = &answer.result
                    && answer.asked.reads
                {
                    assert_eq!(
                        data.len(),
                        answer.asked.length as usize,
                        "an export answers a read with all of its bytes"
                    );
                }
                let is_aborted =
                    task.aborted || self.used.as_ref().is_some_and(|used| used.nexus.aborts() != task.aborts);
                if is_aborted {
                    self.forget(tag);
                } else {
                    self.advance(tag, Some(answer));
                }
            }
        }
        self.completed = completed;
        self.finish_management();
    }

    /// Aborts the commands for which `which` is true. Those without a request in flight are removed immediately.
    pub(super) fn abort_tasks(&mut self, which: impl Fn(u32, &Task) -> bool) {
        let chosen: Vec<u32> = self.tasks.iter().filter(|(tag, task)| which(*tag, task)).map(|(tag, _)| tag).collect();
        // A segment being received belongs to its command until it is complete.
        let receiving = match &self.expected {
            super::Expected::Segment(super::Owner::Task(tag), _) => Some(*tag),
            _ => None,
        };
        for tag in chosen {
            let Some(task) = self.tasks.get_mut(tag) else { continue };
            task.aborted = true;
            self.blocked.retain(|other| *other != tag);
            self.waiting.retain(|other| *other != tag);
            if !task.submitted && receiving != Some(tag) {
                self.forget(tag);
            }
        }
    }

    /// Performs a task management function.
    pub(super) fn manage(&mut self, header: &Header) {
        let Some(used) = &self.used else { return };
        match self.management.perform(header, used, &self.tasks) {
            Aborts::None => {}
            Aborts::One(tag) => self.abort_tasks(|other, _| other == tag),
            Aborts::All => self.abort_tasks(|_, _| true),
        }
        self.finish_management();
    }

    /// Replies to task management once no aborted command has a request in flight.
    fn finish_management(&mut self) {
        self.management.replies(&self.tasks).into_iter().for_each(|reply| self.put(reply, &[], true));
    }

    /// Retries commands that wait for memory or for others.
    pub(super) fn retry(&mut self) {
        if let Some(used) = &self.used
            && !self.tasks.is_empty()
        {
            let aborts = used.nexus.aborts();
            self.abort_tasks(|_, task| task.aborts != aborts);
        }
        for tag in std::mem::take(&mut self.blocked) {
            self.advance(tag, None);
        }
        while let Some(tag) = self.waiting.front().copied() {
            let need = self.tasks.get(tag).map_or(Need::whole(OVERHEAD_BYTES), Task::need);
            let begins = self.tasks.get(tag).is_some_and(|task| task.reserved_bytes == 0);
            let taken = if begins && self.is_full(need.rest_bytes) { 0 } else { self.take(need) };
            if taken == 0 {
                return;
            }
            self.waiting.pop_front();
            self.reserve(tag, need, taken);
            self.tasks.set_state(tag, CommandState::Gathered);
            self.gathered(tag);
        }
    }

    /// Removes a command from the table, and frees its memory.
    pub(super) fn forget(&mut self, tag: u32) -> Option<Task> {
        let task = self.tasks.remove(tag)?;
        self.bytes_in_flight -= task.reserved_bytes;
        self.bytes_promised -= task.promised_bytes;
        Some(task)
    }

    fn respond(&mut self, tag: u32, answer: Answer) {
        let Some(task) = self.forget(tag) else { return };
        if matches!(answer.status, Status::CheckCondition | Status::Busy | Status::TaskSetFull) {
            self.tally.requests_failed += 1;
        }
        if !self.link.gone {
            self.put_answer(tag, &task, answer);
        }
    }
}
