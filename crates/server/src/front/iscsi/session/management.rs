//! Task management. Source: RFC 7143, sections 11.5 and 11.6; SAM-5, section 7.

use super::super::pdu::{FINAL, Header, response};
use super::Session;
use super::task::Task;
use crate::scsi::status::code;

mod function {
    pub const ABORT_TASK: u8 = 1;
    pub const ABORT_TASK_SET: u8 = 2;
    pub const CLEAR_ACA: u8 = 3;
    pub const CLEAR_TASK_SET: u8 = 4;
    pub const LOGICAL_UNIT_RESET: u8 = 5;
    pub const TARGET_WARM_RESET: u8 = 6;
    pub const TARGET_COLD_RESET: u8 = 7;
    pub const TASK_REASSIGN: u8 = 8;
}

mod outcome {
    pub const COMPLETE: u8 = 0;
    pub const NO_SUCH_TASK: u8 = 1;
    pub const NO_SUCH_UNIT: u8 = 2;
    pub const NO_REASSIGNMENT: u8 = 4;
    pub const NOT_SUPPORTED: u8 = 5;
}

/// A reply that waits for the requests of aborted commands.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    tag: u32,
    outcome: u8,
}

impl Session<'_> {
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
        let (unit, nexus) = (used.unit.clone(), used.nexus.clone());
        let is_the_unit = header.lun() == [0; 8];
        let outcome = match header.flags() & 0x7f {
            function::ABORT_TASK => {
                let tag = header.word(20);
                if self.tasks.get(tag).is_some_and(|task| !task.aborted) {
                    self.abort_tasks(|other, _| other == tag);
                    outcome::COMPLETE
                } else {
                    outcome::NO_SUCH_TASK
                }
            }
            function::ABORT_TASK_SET | function::CLEAR_TASK_SET | function::LOGICAL_UNIT_RESET if !is_the_unit => {
                outcome::NO_SUCH_UNIT
            }
            function::ABORT_TASK_SET => {
                self.abort_tasks(|_, _| true);
                outcome::COMPLETE
            }
            function::CLEAR_TASK_SET => {
                unit.abort(|_| true);
                unit.attend(code::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR, |other| !std::ptr::eq(other, &*nexus));
                self.abort_tasks(|_, _| true);
                outcome::COMPLETE
            }
            function::LOGICAL_UNIT_RESET | function::TARGET_WARM_RESET | function::TARGET_COLD_RESET => {
                unit.reset();
                self.abort_tasks(|_, _| true);
                outcome::COMPLETE
            }
            function::TASK_REASSIGN => outcome::NO_REASSIGNMENT,
            function::CLEAR_ACA => outcome::NOT_SUPPORTED,
            _ => outcome::NOT_SUPPORTED,
        };
        self.pending.push(Pending { tag: header.tag(), outcome });
        self.finish_management();
    }

    /// Replies to task management once no aborted command has a request in flight.
    pub(super) fn finish_management(&mut self) {
        if self.pending.is_empty() || self.tasks.iter().any(|(_, task)| task.aborted) {
            return;
        }
        for Pending { tag, outcome } in std::mem::take(&mut self.pending) {
            let mut answer = Header::new(response::TASK_MANAGEMENT, FINAL).with_tag(tag);
            answer.0[2] = outcome;
            self.put(answer, &[], true);
        }
    }
}
