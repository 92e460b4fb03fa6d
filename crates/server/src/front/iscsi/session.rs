//! The full feature phase of one connection, which is its whole session. One thread receives, submits, and sends
//! replies, as for NBD.
//!
//! Reserved memory limits the memory in use. A command reserves it when it is accepted, for its reply and its
//! unsolicited data. Other data gets memory part by part, before it is requested. The memory comes from the
//! [budget](crate::front::budget) of all connections. While nothing is left of it, no command is accepted, and the
//! client's bytes stay in its socket.
//!
//! There is an exception if earlier commands wait for data behind those bytes. Then commands without data wait, and
//! commands with data fail with TASK SET FULL.

mod answers;
mod commands;
mod management;
mod segment;
mod task;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use flashwise_storage::export::{Exports, Guest};

use super::discovery::{self, SendTargets};
use super::login::{Agreed, Purpose};
use super::negotiation::Parameters;
use super::pdu::{self, CONTINUES, FINAL, Header, NO_TAG, reject, request, response};
use super::text::{self, TEXT_BYTES_MAX};
use crate::front::completions::Completed;
use crate::front::connection::Control;
use crate::front::counters::Counters;
use crate::front::link::{Awaited, Link};
use crate::front::options::{Iscsi, Options};
use crate::front::polling::Solitude;
use crate::scsi::nexus::Nexus;
use crate::scsi::opcodes::Begun;
use crate::scsi::status::Answer;
use crate::scsi::unit::Unit;
use management::Management;
use segment::Segment;
use task::Tasks;

/// Above this many bytes, unsent replies are sent before all received messages are processed.
const SENT_EARLY_BYTES: usize = 256 << 10;
/// Above this many bytes, unsent replies stop the acceptance of commands.
const UNSENT_BYTES_MAX: usize = 1 << 20;
/// The tag of text that continues; there is only one.
const TEXT_TAG: u32 = 1;
/// Maximum number of immediate commands, in addition to numbered ones.
const IMMEDIATE_MAX: usize = 16;

/// The logical unit of a session.
pub struct Use {
    /// The unit.
    pub unit: Arc<Unit>,
    /// The session, as seen by the unit.
    pub nexus: Arc<Nexus>,
    /// The session, as seen by the export.
    pub guest: Arc<Guest>,
    has_left: bool,
}

impl Use {
    /// Opens a session of a unit.
    pub fn new(unit: Arc<Unit>, nexus: Arc<Nexus>, guest: Arc<Guest>) -> Use {
        Use { unit, nexus, guest, has_left: false }
    }

    /// Ends the session for the unit, once. An initiator that was informed may have logged in again already.
    fn leave(&mut self) {
        if !std::mem::replace(&mut self.has_left, true) {
            self.unit.leave(&self.nexus);
        }
    }

    fn senses_in_descriptors(&self) -> bool {
        self.unit.sense_in_descriptors().load(Ordering::Relaxed)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The receiver of a data segment.
enum Owner {
    /// A command.
    Task(u32),
    /// A message that is processed when it is complete.
    Message(Header),
    /// None: the data is discarded.
    Nobody,
}

/// The next bytes that are expected from the client.
enum Expected {
    Header,
    Segment(Owner, Segment),
}

/// The reason why received bytes are not processed further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    /// All are processed.
    Starved,
    /// Too much is in flight or unsent.
    Full,
    /// The session is over.
    Over,
}

/// The handling of a message by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Now,
    Never,
    Broken,
}

/// Counts of this connection that are not in the server's counters yet.
#[derive(Default)]
struct Tally {
    requests: u64,
    requests_failed: u64,
    bytes_read: u64,
    bytes_written: u64,
}

/// A client that has logged in.
pub struct Session<'a> {
    control: &'a Control,
    link: Link<'a>,
    counters: &'a Counters,
    exports: &'a Exports,
    portals: &'a [String],
    access: &'a Iscsi,
    initiator: String,
    own: Option<String>,
    /// `None` in a session for discovery.
    used: Option<Use>,
    parameters: Parameters,
    waker: Waker,
    depth: usize,
    bytes_in_flight_max: usize,
    /// Number of the next command.
    command_number: u32,
    /// Highest number of a command that the client may send.
    last_command_number: u32,
    status_number: u32,
    transfers: u32,
    expected: Expected,
    /// The result of decoding the next command, while it waits for memory.
    ahead: Option<Result<Begun, Answer>>,
    tasks: Tasks,
    /// Commands that wait for memory.
    waiting: VecDeque<u32>,
    /// Commands that wait for other commands on the same bytes.
    blocked: Vec<u32>,
    management: Management,
    /// Text that is still incomplete.
    text: Vec<u8>,
    /// The rest of a reply that the initiator has to request.
    unsaid: Vec<u8>,
    solitude: Solitude,
    completed: Vec<Completed>,
    requests_in_flight: usize,
    bytes_in_flight: usize,
    /// Memory of all commands once their data has arrived.
    bytes_promised: usize,
    tally: Tally,
}

impl<'a> Session<'a> {
    /// Starts the session after a login.
    #[allow(clippy::too_many_arguments)] // What a client is made of.
    pub fn new(
        control: &'a Arc<Control>,
        link: Link<'a>,
        agreed: &Agreed,
        used: Option<Use>,
        exports: &'a Exports,
        portals: &'a [String],
        options: &'a Options,
        counters: &'a Counters,
    ) -> Self {
        let depth = options.requests_in_flight_max.max(1);
        let own = match &agreed.purpose {
            Purpose::Normal(export) => Some(export.clone()),
            Purpose::Discovery => None,
        };
        Self {
            control,
            link,
            counters,
            exports,
            portals,
            access: &options.iscsi,
            initiator: agreed.initiator.clone(),
            own,
            used,
            parameters: agreed.parameters,
            waker: Waker::from(Arc::clone(control.completions())),
            depth,
            bytes_in_flight_max: options.bytes_in_flight_max.max(crate::scsi::COMMAND_BYTES_MAX),
            command_number: agreed.command_number,
            // Higher than in the reply to the login: an initiator that reinstates its session still knows the old
            // limit.
            last_command_number: agreed.command_number.wrapping_add(depth as u32 - 1),
            status_number: agreed.status_number,
            transfers: 0,
            expected: Expected::Header,
            ahead: None,
            tasks: Tasks::default(),
            waiting: VecDeque::new(),
            blocked: Vec::new(),
            management: Management::default(),
            text: Vec::new(),
            unsaid: Vec::new(),
            solitude: Solitude::default(),
            completed: Vec::new(),
            requests_in_flight: 0,
            bytes_in_flight: 0,
            bytes_promised: 0,
            tally: Tally::default(),
        }
    }

    /// Serves until the client disconnects and all its requests are answered. Commands that have not started by then
    /// never start.
    pub fn run(&mut self) {
        let mut pause = Pause::Starved;
        while !self.control.is_abandoned() {
            self.collect();
            if pause == Pause::Full {
                self.link.look_for_end();
            }
            if self.link.hung_up {
                self.abort_tasks(|_, _| true);
            }
            self.retry();
            pause = if self.link.open { self.process() } else { Pause::Over };
            if pause == Pause::Over || (pause == Pause::Starved && self.control.is_stopping()) {
                self.link.open = false;
            }
            let unsent = self.link.output.length();
            self.link.send();
            self.settle();
            self.tell();
            if !self.link.open && self.requests_in_flight == 0 && self.link.is_sent() {
                break;
            }
            // Sending may have made room.
            if pause == Pause::Full && self.link.output.length() < unsent {
                continue;
            }
            self.wait(pause == Pause::Starved);
        }
        self.tell();
        self.link.close();
    }

    fn wait(&mut self, starved: bool) {
        let asked = matches!(self.expected, Expected::Segment(..)) || self.tasks.await_data();
        let awaited = Awaited { bytes: starved, answers: self.requests_in_flight + self.blocked.len(), asked };
        match &mut self.expected {
            Expected::Segment(_, segment) => {
                let before = segment.kept();
                self.link.wait(awaited, Some(segment.direct()));
                segment.received(before);
            }
            Expected::Header => self.link.wait(awaited, None),
        }
    }

    /// Processes received bytes until none are left or it must wait.
    fn process(&mut self) -> Pause {
        loop {
            if self.link.output.length() >= SENT_EARLY_BYTES {
                self.link.send();
            }
            let pause = match std::mem::replace(&mut self.expected, Expected::Header) {
                Expected::Header => self.header(),
                Expected::Segment(owner, mut segment) => {
                    let taken = segment.feed(self.link.input.available());
                    self.link.input.consume(taken);
                    if !segment.is_whole() {
                        self.expected = Expected::Segment(owner, segment);
                        return Pause::Starved;
                    }
                    if segment.is_intact() { self.segment(owner, segment.data) } else { Some(self.break_off()) }
                }
            };
            if let Some(pause) = pause {
                return pause;
            }
        }
    }

    fn break_off(&mut self) -> Pause {
        Counters::add(&self.counters.connections_broken, 1);
        Pause::Over
    }

    /// Processes one header from the received bytes.
    fn header(&mut self) -> Option<Pause> {
        let (header, length) = match pdu::take_header(self.link.input.available(), self.parameters.digests) {
            Ok(Some(found)) => found,
            Ok(None) => return Some(Pause::Starved),
            Err(_) => return Some(self.break_off()),
        };
        if header.data_bytes() > super::negotiation::SEGMENT_BYTES_MAX as usize {
            return Some(self.break_off());
        }
        if header.opcode() == request::DATA_OUT {
            self.link.input.consume(length);
            return self.data_out(&header);
        }
        if self.link.output.length() >= UNSENT_BYTES_MAX && !self.tasks.await_data() {
            return Some(Pause::Full);
        }
        if header.opcode() == request::SCSI_COMMAND && self.used.is_some() {
            return self.command(&header, length);
        }
        self.link.input.consume(length);
        match self.turn(&header) {
            Turn::Now => self.expect(Owner::Message(header), Vec::new(), &header, TEXT_BYTES_MAX),
            Turn::Never => self.expect(Owner::Nobody, Vec::new(), &header, 0),
            Turn::Broken => return Some(self.break_off()),
        }
        None
    }

    /// Expects the data segment of a message; its first `kept` bytes are appended to `data`.
    fn expect(&mut self, owner: Owner, data: Vec<u8>, header: &Header, kept: usize) {
        let length = header.data_bytes();
        let segment = Segment::new(data, length, kept.min(length), self.parameters.digests.data);
        self.expected = Expected::Segment(owner, segment);
    }

    /// Checks a message's number; if it is next, the following number becomes the next.
    fn turn(&mut self, header: &Header) -> Turn {
        if header.is_immediate() || header.opcode() == request::SNACK {
            return Turn::Now;
        }
        let number = header.word(24);
        let ahead = number.wrapping_sub(self.command_number);
        if ahead == 0 && self.last_command_number.wrapping_sub(number) as i32 >= 0 {
            self.command_number = self.command_number.wrapping_add(1);
            return Turn::Now;
        }
        let window = self.last_command_number.wrapping_sub(self.command_number) as i32;
        // One connection keeps the order, so a gap is an error.
        if (ahead as i32) > 0 && ahead as i32 <= window { Turn::Broken } else { Turn::Never }
    }

    /// Processes a complete data segment.
    fn segment(&mut self, owner: Owner, data: Vec<u8>) -> Option<Pause> {
        match owner {
            Owner::Nobody => None,
            Owner::Task(tag) => self.task_segment(tag, data),
            Owner::Message(header) => self.message(&header, data),
        }
    }

    fn message(&mut self, header: &Header, data: Vec<u8>) -> Option<Pause> {
        match header.opcode() {
            request::NOP_OUT => self.ping(header, &data),
            request::TEXT => return self.take_text(header, &data),
            request::LOGOUT => return Some(self.log_out(header)),
            request::TASK_MANAGEMENT if self.used.is_some() => self.manage(header),
            request::LOGIN => return Some(self.break_off()),
            _ => self.reject(reject::COMMAND_NOT_SUPPORTED, header),
        }
        None
    }

    fn ping(&mut self, header: &Header, data: &[u8]) {
        if header.tag() == NO_TAG {
            return;
        }
        let data = &data[..data.len().min(self.parameters.segment_bytes_max as usize)];
        let mut answer = Header::new(response::NOP_IN, FINAL).with_lun(header.lun()).with_tag(header.tag());
        answer.set_word(20, NO_TAG);
        self.put(answer, data, true);
    }

    fn take_text(&mut self, header: &Header, data: &[u8]) -> Option<Pause> {
        if self.text.len() + data.len() > TEXT_BYTES_MAX || header.data_bytes() > TEXT_BYTES_MAX {
            return Some(self.break_off());
        }
        let goes_on = header.word(20) != NO_TAG && data.is_empty() && self.text.is_empty();
        if goes_on && !self.unsaid.is_empty() {
            self.say(header);
            return None;
        }
        self.text.extend_from_slice(data);
        let mut reply = Vec::new();
        if header.has(CONTINUES) {
            let mut answer = Header::new(response::TEXT, 0).with_lun(header.lun()).with_tag(header.tag());
            answer.set_word(20, TEXT_TAG);
            self.put(answer, &[], true);
            return None;
        }
        let text = std::mem::take(&mut self.text);
        let mut names = self.exports.names();
        names.retain(|name| self.may_open(name));
        let asked = SendTargets { exports: &names, portals: self.portals, own: self.own.as_deref() };
        let answered =
            text::parse(&text).and_then(|pairs| discovery::answer(&pairs, &asked, &mut self.parameters, &mut reply));
        if answered.is_err() {
            self.reject(reject::PROTOCOL_ERROR, header);
            return None;
        }
        self.unsaid = reply;
        self.say(header);
        None
    }

    /// True if the initiator may open an export of this name, which may be an alias.
    fn may_open(&self, name: &str) -> bool {
        let own = self.exports.find(name).and_then(|(_, export)| self.exports.name_of(&export));
        self.access.right(&self.initiator, own.as_deref().unwrap_or(name)).is_some()
    }

    /// Sends as much of a reply as fits into one segment of the initiator's.
    fn say(&mut self, header: &Header) {
        let length = self.unsaid.len().min(self.parameters.segment_bytes_max as usize);
        let rest = self.unsaid.split_off(length);
        let said = std::mem::replace(&mut self.unsaid, rest);
        let (flags, tag) = if self.unsaid.is_empty() { (FINAL, NO_TAG) } else { (CONTINUES, TEXT_TAG) };
        let mut answer = Header::new(response::TEXT, flags).with_lun(header.lun()).with_tag(header.tag());
        answer.set_word(20, tag);
        self.put(answer, &said, true);
    }

    /// Ends the session. Unanswered commands stay unanswered, and its reservations are released before the reply.
    fn log_out(&mut self, header: &Header) -> Pause {
        self.abort_tasks(|_, _| true);
        self.used.iter_mut().for_each(Use::leave);
        let answer = Header::new(response::LOGOUT, FINAL).with_tag(header.tag());
        self.put(answer, &[], true);
        Pause::Over
    }

    /// Frees the memory of replies that were sent.
    fn settle(&mut self) {
        self.link.account.keep(self.bytes_in_flight + self.link.output.held_bytes());
    }

    fn tell(&mut self) {
        let tally = std::mem::take(&mut self.tally);
        Counters::add(&self.counters.requests, tally.requests);
        Counters::add(&self.counters.requests_failed, tally.requests_failed);
        Counters::add(&self.counters.bytes_read, tally.bytes_read);
        Counters::add(&self.counters.bytes_written, tally.bytes_written);
    }
}
