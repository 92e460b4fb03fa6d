//! A client that is served: its buffers, and waiting for it and for the answers of its export.

use std::io;
use std::time::{Duration, Instant};

use super::budget::Account;
use super::connection::Control;
use super::counters::Counters;
use super::input::Input;
use super::output::Output;
use super::polling::Polling;
use super::transport::{Patience, Transport};
use crate::limits::Limit;

/// Size of the buffer that messages are received into, at first and where the client fills it.
pub const INPUT_BYTES_MIN: usize = 4 << 10;
const INPUT_BYTES_MAX: usize = 128 << 10;
/// A client that is silent for this time needs no buffers.
const SILENCE: Duration = Duration::from_secs(1);
/// A client that moves fewer bytes of what it asked for in the time that it may stall, stalls.
const PROGRESS_BYTES_MIN: u64 = 16 << 10;
/// A client that holds the lane of the budget has this part of the time.
const LANE_HASTE: u32 = 5;
/// Data that is at least as long is received where it stays.
pub const DIRECT_BYTES_MIN: usize = 32 << 10;

/// Data that is received where it stays.
pub struct Direct<'a> {
    /// Where.
    pub data: &'a mut Vec<u8>,
    /// How long it is when all of it has come that there is memory for.
    pub length: usize,
}

/// What a session waits for.
#[derive(Clone, Copy, Debug)]
pub struct Awaited {
    /// Bytes from the client.
    pub bytes: bool,
    /// Number of requests that the export has not answered.
    pub answers: usize,
    /// Whether the client was asked for bytes.
    pub asked: bool,
}

/// A client that is served.
pub struct Link<'a> {
    control: &'a Control,
    transport: Transport,
    counters: &'a Counters,
    stall_time_max: Duration,
    /// Bytes that the client has sent and taken.
    moved_bytes: u64,
    /// How long the client was waited for since it moved enough of what it owes, and the bytes by then.
    stalled: (Duration, u64),
    polling: Polling,
    /// Its part of the memory that all share.
    pub account: Account,
    /// What it has sent.
    pub input: Input,
    /// What it is sent.
    pub output: Output,
    /// Whether its buffers are given up.
    resting: bool,
    /// Whether more is received.
    pub open: bool,
    /// Whether the client ended the connection, rather than the server.
    pub hung_up: bool,
    /// Whether it is gone, so that answers go nowhere.
    pub gone: bool,
}

impl<'a> Link<'a> {
    /// A client over `transport`; `input` has what it has sent already.
    pub fn new(
        control: &'a Control,
        transport: Transport,
        input: Input,
        account: Account,
        counters: &'a Counters,
        stall_time_max: Duration,
    ) -> Link<'a> {
        let mut link = Link {
            control,
            transport,
            counters,
            stall_time_max,
            moved_bytes: 0,
            stalled: (Duration::ZERO, 0),
            polling: Polling::default(),
            account,
            input,
            output: Output::default(),
            resting: false,
            open: true,
            hung_up: false,
            gone: false,
        };
        if !link.transport.encrypted() && link.transport.set_patience(SILENCE).is_err() {
            link.lose();
        }
        link
    }

    /// Whether all is sent, or nobody is there to take it.
    pub fn is_sent(&self) -> bool {
        self.gone || !self.transport.has_more(&self.output)
    }

    /// Sends what the client takes at once.
    pub fn send(&mut self) {
        let unsent = self.output.length();
        if !self.gone && self.transport.send(&mut self.output).is_err() {
            self.lose();
        }
        self.moved_bytes += unsent.saturating_sub(self.output.length()) as u64;
    }

    /// Notes that the client is gone. Its requests go on in the export, so the connection lasts, and counts, until they end.
    pub fn lose(&mut self) {
        self.gone = true;
        self.end();
        self.output.discard();
    }

    /// Receives no more.
    fn end(&mut self) {
        self.open = false;
        // A server that stops closes this side itself.
        self.hung_up |= !self.control.is_stopping();
    }

    /// Receives no more if the client has closed its side. A session that let requests wait for room asks this before it begins them: another
    /// client may have changed the same bytes since.
    pub fn look_for_end(&mut self) {
        if self.open && !self.control.is_stopping() && self.transport.has_hung_up() {
            self.end();
        }
    }

    /// Whether the client is silent, so that its buffers are given up.
    pub fn is_resting(&self) -> bool {
        self.resting
    }

    /// Says goodbye.
    pub fn close(&mut self) {
        self.transport.close();
    }

    /// Waits for what is awaited, and for the client to take what is unsent.
    pub fn wait(&mut self, awaited: Awaited, direct: Option<Direct<'_>>) {
        if let Err(error) = self.try_wait(awaited, direct)
            && error.kind() != io::ErrorKind::WouldBlock
        {
            self.lose();
        }
    }

    fn try_wait(&mut self, awaited: Awaited, mut direct: Option<Direct<'_>>) -> io::Result<()> {
        let read = awaited.bytes && self.open;
        let write = !self.is_sent();
        if write {
            // What waits for a slow client is all that it holds.
            self.output.trim();
        }
        let since = Instant::now();
        if read && !write && self.poll(awaited, &mut direct)? {
            return Ok(());
        }
        let slept = self.sleep(read, write, awaited, &mut direct);
        self.polling.slept(since.elapsed());
        slept
    }

    /// Looks for bytes and answers for a moment; whether any came.
    fn poll(&mut self, awaited: Awaited, direct: &mut Option<Direct<'_>>) -> io::Result<bool> {
        let Some(turn) = self.polling.begin() else { return Ok(false) };
        while turn.lasts() {
            match self.receive(Patience::Now, direct) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return received.map(|()| true),
            }
            if awaited.answers > 0 && self.control.completions().has_any() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn sleep(&mut self, read: bool, write: bool, awaited: Awaited, direct: &mut Option<Direct<'_>>) -> io::Result<()> {
        let alone = read && !write && awaited.answers == 0;
        if alone && !self.resting && !self.transport.encrypted() {
            let received = self.receive(Patience::Wait, direct);
            if received.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                self.rest();
            }
            return received;
        }
        if read && self.transport.encrypted() {
            // Bytes may have come out of the socket already.
            match self.receive(Patience::Now, direct) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return received,
            }
        }
        let completions = self.control.completions();
        if !completions.fall_asleep() {
            return Ok(());
        }
        let awaits_client = write || awaited.asked;
        if !awaits_client || self.moved_bytes - self.stalled.1 >= PROGRESS_BYTES_MIN {
            self.stalled = (Duration::ZERO, self.moved_bytes);
        }
        let stall_time_max = self.stall_time_max / if self.account.has_lane() { LANE_HASTE } else { 1 };
        let patience = match (awaits_client, alone && !self.resting) {
            (true, _) => Some(stall_time_max.saturating_sub(self.stalled.0)),
            (false, true) => Some(SILENCE),
            (false, false) => None,
        };
        let since = Instant::now();
        let deadline = patience.map(|patience| since + patience);
        let ready = self.transport.wait(read, write, completions.bell(), deadline);
        completions.wake_up(ready.as_ref().is_ok_and(|ready| ready.rung));
        self.stalled.0 += since.elapsed();
        if ready.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            return self.stalled(awaits_client);
        }
        if ready?.readable { self.receive(Patience::Now, direct) } else { Ok(()) }
    }

    /// What to do when the client was silent, or stalled what it asked for.
    fn stalled(&mut self, asked: bool) -> io::Result<()> {
        self.stalled = (Duration::ZERO, self.moved_bytes);
        if asked && self.account.is_in_the_way() {
            self.counters.limits.reached(Limit::StallTime);
            Counters::add(&self.counters.connections_broken, 1);
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.rest();
        Ok(())
    }

    /// Gives up the buffers, until the client says something.
    fn rest(&mut self) {
        self.resting = true;
        self.input.resize(INPUT_BYTES_MIN);
        self.account.drop_buffers();
        self.output.trim();
    }

    /// Makes the buffer larger that the client has filled, if there is memory for that.
    fn grow_input(&mut self) {
        let capacity = (2 * self.input.capacity()).min(INPUT_BYTES_MAX);
        if capacity > self.input.capacity() && self.account.grow_buffers(capacity) {
            self.input.resize(capacity);
        }
    }

    /// Looks for bytes that have come; where there are none, that is no error.
    pub fn look(&mut self, direct: Option<Direct<'_>>) -> bool {
        let mut direct = direct;
        self.receive(Patience::Now, &mut direct).is_ok()
    }

    fn receive(&mut self, patience: Patience, direct: &mut Option<Direct<'_>>) -> io::Result<()> {
        let count = match direct {
            Some(Direct { data, length })
                if *length >= data.len() + DIRECT_BYTES_MIN && self.input.available().is_empty() =>
            {
                data.reserve_exact(*length - data.len());
                let count = self.transport.receive(data, patience)?;
                // The allocator may have given more room than was asked for.
                if data.len() > *length {
                    self.input.extend(&data.split_off(*length));
                }
                count
            }
            _ => {
                // The next part of the data goes where it stays, once there is memory for it.
                let begins_part = direct.as_ref().is_some_and(|direct| direct.data.len() == direct.length);
                if self.input.is_too_small() && !begins_part {
                    self.grow_input();
                }
                self.input.receive(&mut self.transport, patience)?
            }
        };
        self.resting = false;
        self.moved_bytes += count as u64;
        if count == 0 {
            self.end();
        }
        Ok(())
    }
}
