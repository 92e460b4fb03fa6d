//! Task management. Source: RFC 7143, sections 11.5 and 11.6; SAM-5, section 7.

use super::super::pdu::{FINAL, Header, response};
use super::Use;
use super::task::Tasks;
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

/// The commands of the session that a function aborts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aborts {
    None,
    /// The one with this tag.
    One(u32),
    All,
}

/// Replies that wait for the requests of aborted commands, each with its tag and outcome.
#[derive(Debug, Default)]
pub struct Management(Vec<(u32, u8)>);

impl Management {
    /// Performs a task management function, except on the session's own commands. Returns those to abort.
    pub fn perform(&mut self, header: &Header, used: &Use, tasks: &Tasks) -> Aborts {
        let (unit, nexus) = (&used.unit, &used.nexus);
        let is_the_unit = header.lun() == [0; 8];
        let (outcome, aborts) = match header.flags() & 0x7f {
            function::ABORT_TASK => {
                let tag = header.word(20);
                if tasks.get(tag).is_some_and(|task| !task.aborted) {
                    (outcome::COMPLETE, Aborts::One(tag))
                } else {
                    (outcome::NO_SUCH_TASK, Aborts::None)
                }
            }
            function::ABORT_TASK_SET | function::CLEAR_TASK_SET | function::LOGICAL_UNIT_RESET if !is_the_unit => {
                (outcome::NO_SUCH_UNIT, Aborts::None)
            }
            function::ABORT_TASK_SET => (outcome::COMPLETE, Aborts::All),
            function::CLEAR_TASK_SET => {
                unit.abort(|_| true);
                unit.attend(code::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR, |other| !std::ptr::eq(other, &**nexus));
                (outcome::COMPLETE, Aborts::All)
            }
            function::LOGICAL_UNIT_RESET | function::TARGET_WARM_RESET | function::TARGET_COLD_RESET => {
                unit.reset();
                (outcome::COMPLETE, Aborts::All)
            }
            function::TASK_REASSIGN => (outcome::NO_REASSIGNMENT, Aborts::None),
            function::CLEAR_ACA => (outcome::NOT_SUPPORTED, Aborts::None),
            _ => (outcome::NOT_SUPPORTED, Aborts::None),
        };
        self.0.push((header.tag(), outcome));
        aborts
    }

    /// Takes the replies, if no aborted command has a request in flight.
    pub fn replies(&mut self, tasks: &Tasks) -> Vec<Header> {
        if self.0.is_empty() || tasks.iter().any(|(_, task)| task.aborted) {
            return Vec::new();
        }
        let reply = |(tag, outcome): (u32, u8)| {
            let mut reply = Header::new(response::TASK_MANAGEMENT, FINAL).with_tag(tag);
            reply.0[2] = outcome;
            reply
        };
        std::mem::take(&mut self.0).into_iter().map(reply).collect()
    }
}
