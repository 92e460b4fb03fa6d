//! The transmission phase of one connection. One thread receives, submits, and sends replies.
//!
//! An export that replies immediately needs no other thread: while requests are buffered, their replies are gathered,
//! and sent together. An export that replies later does so through
//! [`Completions`](crate::front::completions::Completions), which wakes this thread up if it sleeps.
//!
//! Reserved memory limits the memory in use. A read reserves memory for its reply when it is accepted; a write for its
//! data, part by part as it arrives. The memory comes from the [budget](crate::front::budget) of all connections. While
//! too much is reserved or unsent, no request is accepted, and the client's bytes stay in its socket. Buffers grow when
//! they are full, and are freed when the client is silent.

use std::sync::Arc;

use super::access::is_read_only;
use super::handshake::Session;
use super::protocol::{Descriptor, REQUEST_BYTES, error, put_block_status_chunk};
use super::transmission::{
    Command, PAYLOAD_BYTES_MAX, Terms, Verdict, descriptors, error_number, judge, put_done, put_error, put_read,
};
use crate::front::budget::{Need, next_part};
use crate::front::completions::{Asked, Completed};
use crate::front::connection::Control;
use crate::front::counters::Counters;
use crate::front::link::{Awaited, DIRECT_BYTES_MIN, Direct, Link};
use crate::front::options::Options;
use crate::front::polling::Solitude;
use flashwise_storage::export::{Export, Guest, Operation, Request};

/// Memory of a request in addition to its data: its state, and the header of its reply.
const REQUEST_OVERHEAD_BYTES: usize = 512;
/// Shortest part of a write's data that takes memory.
const PART_BYTES_MIN: usize = 128 << 10;
/// Above this many bytes, unsent replies are sent before all received requests are processed.
const SENT_EARLY_BYTES: usize = 256 << 10;
/// Above this many bytes, unsent replies stop the acceptance of requests.
const UNSENT_BYTES_MAX: usize = 1 << 20;

/// The next bytes that are expected from the client.
enum Expected {
    Request,
    /// The rest of a write's data.
    Data {
        command: Command,
        data: Vec<u8>,
        /// Bytes of the data that have memory.
        granted: usize,
    },
    /// The rest of a rejected write's data.
    Refused {
        left: usize,
        cookie: u64,
        error: u32,
        reason: &'static str,
    },
}

/// Returns the buffer for the rest of a write's data.
fn direct(expected: &mut Expected) -> Option<Direct<'_>> {
    match expected {
        Expected::Data { data, granted, .. } => Some(Direct { data, length: *granted }),
        Expected::Request | Expected::Refused { .. } => None,
    }
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

/// Returns the memory of a request until its reply is sent. The data of a rejected write is never kept.
fn memory_bytes(command: &Command, verdict: Verdict) -> usize {
    match verdict {
        Verdict::Perform(Operation::Read | Operation::Write) => command.length as usize + REQUEST_OVERHEAD_BYTES,
        Verdict::Extents(extents_max) => extents_max * size_of::<Descriptor>() + REQUEST_OVERHEAD_BYTES,
        Verdict::Perform(_) | Verdict::Refuse(..) => REQUEST_OVERHEAD_BYTES,
        Verdict::Disconnect | Verdict::End => 0,
    }
}

/// Counts of this connection that are not in the server's counters yet.
#[derive(Default)]
struct Tally {
    requests: u64,
    requests_failed: u64,
    bytes_read: u64,
    bytes_written: u64,
}

/// A client that has opened an export.
pub struct Transmission<'a> {
    control: &'a Control,
    link: Link<'a>,
    session: Session,
    guest: Arc<Guest>,
    terms: Terms,
    requests_in_flight_max: usize,
    bytes_in_flight_max: usize,
    counters: &'a Counters,
    tally: Tally,
    expected: Expected,
    solitude: Solitude,
    completed: Vec<Completed>,
    requests_in_flight: usize,
    bytes_in_flight: usize,
}

impl<'a> Transmission<'a> {
    /// Starts the transmission phase.
    pub fn new(
        control: &'a Control,
        link: Link<'a>,
        session: Session,
        guest: Arc<Guest>,
        options: &Options,
        counters: &'a Counters,
    ) -> Self {
        let (block_bytes_min, _, block_bytes_max) = session.export.block_sizes();
        assert!(block_bytes_min.is_power_of_two(), "the smallest block of an export is a power of two");
        let terms = Terms {
            size: session.export.size(),
            read_only: is_read_only(&session.export, session.right),
            block_bytes_min,
            payload_bytes_max: block_bytes_max.min(PAYLOAD_BYTES_MAX),
            structured: session.structured,
            allocation: session.allocation,
        };
        let requests_in_flight_max = options.requests_in_flight_max.max(1);
        let bytes_in_flight_max = options.bytes_in_flight_max.max(PAYLOAD_BYTES_MAX as usize);
        Self {
            control,
            link,
            session,
            guest,
            terms,
            requests_in_flight_max,
            bytes_in_flight_max: bytes_in_flight_max + requests_in_flight_max * REQUEST_OVERHEAD_BYTES,
            counters,
            tally: Tally::default(),
            expected: Expected::Request,
            solitude: Solitude::default(),
            completed: Vec::new(),
            requests_in_flight: 0,
            bytes_in_flight: 0,
        }
    }

    /// Serves until the client disconnects and all its requests are answered. Requests that still wait for memory by
    /// then never start.
    pub fn run(&mut self) {
        let mut pause = Pause::Starved;
        while !self.control.is_abandoned() {
            self.collect();
            if pause == Pause::Full {
                self.link.look_for_end();
            }
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

    /// Waits for bytes, if they are wanted, for completions, and for the client to read the output.
    fn wait(&mut self, starved: bool) {
        let awaited = Awaited {
            bytes: starved,
            answers: self.requests_in_flight,
            asked: starved && matches!(self.expected, Expected::Data { .. }),
        };
        self.link.wait(awaited, direct(&mut self.expected));
        if self.link.is_resting() {
            self.completed = Vec::new();
        }
    }

    /// Processes received bytes until none are left or it must wait.
    fn process(&mut self) -> Pause {
        loop {
            if self.link.output.length() >= SENT_EARLY_BYTES {
                self.link.send();
            }
            let pause = match &mut self.expected {
                Expected::Request => self.request(),
                Expected::Data { .. } => self.data(),
                Expected::Refused { left, cookie, error, reason } => {
                    let count = (*left).min(self.link.input.available().len());
                    self.link.input.consume(count);
                    *left -= count;
                    if *left > 0 {
                        return Pause::Starved;
                    }
                    let (cookie, error, reason) = (*cookie, *error, *reason);
                    self.expected = Expected::Request;
                    self.refuse(cookie, error, reason);
                    None
                }
            };
            if let Some(pause) = pause {
                return pause;
            }
        }
    }

    fn is_full(&self, reserved_bytes: usize) -> bool {
        self.requests_in_flight >= self.requests_in_flight_max
            || self.link.output.length() >= UNSENT_BYTES_MAX
            || (self.requests_in_flight > 0
                && self.bytes_in_flight + self.link.output.length() + reserved_bytes > self.bytes_in_flight_max)
    }

    /// Takes memory for a request, after freeing that of sent replies if necessary. Returns the amount taken.
    fn take(&mut self, need: Need) -> usize {
        self.settle();
        let is_idle = self.requests_in_flight == 0 && self.link.output.held_bytes() == 0;
        self.link.account.take(need, is_idle)
    }

    /// Receives the data of a write. Each part takes its memory when its first bytes have arrived.
    fn data(&mut self) -> Option<Pause> {
        let Expected::Data { command, data, granted } = &mut self.expected else { return None };
        let length = command.length as usize;
        let available = self.link.input.available();
        let count = (*granted - data.len()).min(available.len());
        data.extend_from_slice(&available[..count]);
        self.link.input.consume(count);
        if data.len() == length {
            let (command, data) = (*command, std::mem::take(data));
            self.expected = Expected::Request;
            self.submit(&command, Operation::Write, data);
            return None;
        }
        if data.len() < *granted || self.link.input.available().is_empty() {
            return Some(Pause::Starved);
        }
        let need =
            Need { bytes: next_part(data.len(), length, PART_BYTES_MIN) - *granted, rest_bytes: length - *granted };
        let taken = self.take(need);
        self.bytes_in_flight += taken;
        let Expected::Data { granted, .. } = &mut self.expected else { return None };
        *granted += taken;
        if taken == 0 { Some(Pause::Full) } else { None }
    }

    /// Frees the memory of replies that were sent.
    fn settle(&mut self) {
        self.link.account.keep(self.bytes_in_flight + self.link.output.held_bytes());
    }

    /// Processes one request from the received bytes.
    fn request(&mut self) -> Option<Pause> {
        let Some(header) = self.link.input.available().first_chunk::<REQUEST_BYTES>() else {
            return Some(Pause::Starved);
        };
        let Some(command) = Command::decode(header) else { return Some(self.break_off()) };
        self.terms.size = self.session.export.size();
        let verdict = match judge(&command, &self.terms) {
            verdict @ (Verdict::Disconnect | Verdict::End) => verdict,
            _ if self.control.is_stopping() => Verdict::Refuse(error::NBD_ESHUTDOWN, "the server is shutting down"),
            verdict => verdict,
        };
        let memory_bytes = memory_bytes(&command, verdict);
        let is_write = matches!(verdict, Verdict::Perform(Operation::Write));
        let first_bytes = if is_write { REQUEST_OVERHEAD_BYTES } else { memory_bytes };
        let need = Need { bytes: first_bytes, rest_bytes: memory_bytes };
        if self.is_full(memory_bytes) {
            return Some(Pause::Full);
        }
        let taken = if first_bytes > 0 { self.take(need) } else { 0 };
        if taken < first_bytes {
            return Some(Pause::Full);
        }
        self.link.input.consume(REQUEST_BYTES);
        self.link.has_long = command.length as usize >= DIRECT_BYTES_MIN;
        self.tally.requests += 1;
        match verdict {
            Verdict::Perform(Operation::Write) => {
                self.bytes_in_flight += taken;
                self.expected = Expected::Data { command, data: Vec::new(), granted: taken - first_bytes };
            }
            Verdict::Perform(operation) => {
                self.bytes_in_flight += taken;
                self.submit(&command, operation, Vec::new());
            }
            Verdict::Extents(extents_max) => self.extents(&command, extents_max),
            Verdict::Refuse(error, reason) if command.data_bytes() > 0 => {
                let left = command.data_bytes() as usize;
                self.expected = Expected::Refused { left, cookie: command.cookie, error, reason };
            }
            Verdict::Refuse(error, reason) => self.refuse(command.cookie, error, reason),
            Verdict::Disconnect => return Some(Pause::Over),
            Verdict::End => return Some(self.break_off()),
        }
        None
    }

    fn break_off(&mut self) -> Pause {
        Counters::add(&self.counters.connections_broken, 1);
        Pause::Over
    }

    fn submit(&mut self, command: &Command, operation: Operation, data: Vec<u8>) {
        let reads = operation == Operation::Read;
        let reserved_bytes = memory_bytes(command, Verdict::Perform(operation));
        let asked =
            Asked { cookie: command.cookie, offset: command.offset, length: command.length, reads, reserved_bytes };
        let force_unit_access =
            command.flags & super::protocol::command_flag::NBD_CMD_FLAG_FUA != 0 && operation != Operation::Flush;
        let (offset, length) = (command.offset, u64::from(command.length));
        self.tally.bytes_written += data.len() as u64;
        self.solitude.comes(self.requests_in_flight == 0 && self.link.input.available().is_empty());
        self.requests_in_flight += 1;
        let caching = self.guest.caching();
        let request = Request { operation, offset, length, force_unit_access, data, caching };
        self.guest.count(&request);
        let done = self.control.completions().done(asked);
        // Bytes that arrived while the thread waited show that the client does not wait. The next use of the socket
        // reports its errors.
        if !self.solitude.is_likely() {
            self.session.export.submit(request, done);
        } else if self.session.export.submit_and_wait(request, done) && self.link.look(direct(&mut self.expected)) {
            self.solitude.comes(false);
        }
        self.collect();
    }

    fn extents(&mut self, command: &Command, extents_max: usize) {
        let length = u64::from(command.length);
        match self.session.export.extents(command.offset, length, extents_max) {
            Ok(extents) => match descriptors(&extents, command.length, extents_max) {
                Some(descriptors) => {
                    self.link.output.put(|output| put_block_status_chunk(output, command.cookie, &descriptors));
                }
                None => self.refuse(command.cookie, error::NBD_EIO, "the export does not know how it is stored"),
            },
            Err(error) => self.refuse(command.cookie, error_number(error), &error.to_string()),
        }
    }

    fn refuse(&mut self, cookie: u64, error: u32, reason: &str) {
        self.tally.requests_failed += 1;
        let structured = self.terms.structured;
        self.link.output.put(|output| put_error(output, structured, cookie, error, reason));
    }

    /// Formats the export's results as replies.
    fn collect(&mut self) {
        let mut completed = std::mem::take(&mut self.completed);
        self.control.completions().take(&mut completed);
        for answer in completed.drain(..) {
            self.requests_in_flight -= 1;
            self.bytes_in_flight -= answer.asked.reserved_bytes;
            if !self.link.gone {
                self.reply(answer);
            }
        }
        self.completed = completed;
    }

    fn reply(&mut self, answer: Completed) {
        let Asked { cookie, offset, length, reads, .. } = answer.asked;
        let structured = self.terms.structured;
        match answer.result {
            Ok(data) if reads => {
                assert_eq!(data.len(), length as usize, "an export answers a read with all of its bytes");
                self.tally.bytes_read += data.len() as u64;
                self.link.output.put(|output| put_read(output, structured, cookie, offset, length));
                self.link.output.put_data(data);
            }
            Ok(_) => self.link.output.put(|output| put_done(output, structured, cookie)),
            Err(error) => self.refuse(cookie, error_number(error), &error.to_string()),
        }
    }

    fn tell(&mut self) {
        let tally = std::mem::take(&mut self.tally);
        Counters::add(&self.counters.requests, tally.requests);
        Counters::add(&self.counters.requests_failed, tally.requests_failed);
        Counters::add(&self.counters.bytes_read, tally.bytes_read);
        Counters::add(&self.counters.bytes_written, tally.bytes_written);
    }
}
