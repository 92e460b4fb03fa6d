//! A client being served: its buffers, and waiting for the client and for the export.

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

/// Initial size of the receive buffer; it grows if the client fills it.
pub const INPUT_BYTES_MIN: usize = 4 << 10;
const INPUT_BYTES_MAX: usize = 128 << 10;
/// After this silence a client's buffers are freed.
const SILENCE: Duration = Duration::from_secs(1);
/// A client stalls if it moves fewer of the expected bytes than this within the time limit.
const PROGRESS_BYTES_MIN: u64 = 16 << 10;
/// Divisor of the time limit for a client that holds the lane of the budget.
const LANE_HASTE: u32 = 5;
/// Data of at least this length is received directly into its final buffer.
pub const DIRECT_BYTES_MIN: usize = 32 << 10;

/// Data that is received directly into its final buffer.
pub struct Direct<'a> {
    /// The buffer.
    pub data: &'a mut Vec<u8>,
    /// Its length once all data that there is memory for has arrived.
    pub length: usize,
}

/// The events that a session waits for.
#[derive(Clone, Copy, Debug)]
pub struct Awaited {
    /// True for bytes from the client.
    pub bytes: bool,
    /// Number of requests that the export has not completed.
    pub answers: usize,
    /// True if the client was asked for bytes.
    pub asked: bool,
}

/// A client being served.
pub struct Link<'a> {
    control: &'a Control,
    transport: Transport,
    counters: &'a Counters,
    stall_time_max: Duration,
    /// Bytes sent and received.
    moved_bytes: u64,
    /// The time since the client last made enough progress, and the bytes moved by then.
    stalled: (Duration, u64),
    polling: Polling,
    /// Its share of the common memory.
    pub account: Account,
    /// Received bytes.
    pub input: Input,
    /// Bytes to send.
    pub output: Output,
    /// True if the last request has long data. The client takes longer for it than a thread takes to wake.
    pub has_long: bool,
    /// True if data was last received directly into its final buffer.
    follows_direct: bool,
    /// True if its buffers are freed.
    resting: bool,
    /// True while bytes are received.
    pub open: bool,
    /// True if the client ended the connection, rather than the server.
    pub hung_up: bool,
    /// True if it is gone; replies are discarded.
    pub gone: bool,
}

impl<'a> Link<'a> {
    /// Serves a client over `transport`; `input` holds the bytes received so far.
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
            has_long: false,
            follows_direct: false,
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

    /// True if everything is sent, or the client is gone.
    pub fn is_sent(&self) -> bool {
        self.gone || !self.transport.has_more(&self.output)
    }

    /// Sends as many bytes as the socket accepts immediately.
    pub fn send(&mut self) {
        let unsent = self.output.length();
        if !self.gone && self.transport.send(&mut self.output).is_err() {
            self.lose();
        }
        self.moved_bytes += unsent.saturating_sub(self.output.length()) as u64;
    }

    /// Records that the client is gone. Its requests continue in the export; the connection exists, and counts, until
    /// they end.
    pub fn lose(&mut self) {
        self.gone = true;
        self.end();
        self.output.discard();
    }

    /// Stops receiving.
    fn end(&mut self) {
        self.open = false;
        // A server that stops closes this side itself.
        self.hung_up |= !self.control.is_stopping();
    }

    /// Stops receiving if the client has closed its side. A session calls this before it starts requests that waited
    /// for memory: another client may have changed the same bytes since.
    pub fn look_for_end(&mut self) {
        if self.open && !self.control.is_stopping() && self.transport.has_hung_up() {
            self.end();
        }
    }

    /// True if the client is silent, so that its buffers are freed.
    pub fn is_resting(&self) -> bool {
        self.resting
    }

    /// Closes the connection in order.
    pub fn close(&mut self) {
        self.transport.close();
    }

    /// Waits for the awaited events, and for the client to read the output.
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
            // The output for a slow client should hold only unsent bytes.
            self.output.trim();
        }
        let since = Instant::now();
        if read && !write && !self.has_long && self.poll(awaited, &mut direct)? {
            return Ok(());
        }
        let slept = self.sleep(read, write, awaited, &mut direct);
        self.polling.slept(since.elapsed());
        slept
    }

    /// Polls for bytes and completions; true if there were any.
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
        if read && (self.transport.encrypted() || direct.is_some()) {
            // TLS may have received bytes before, and the rest of a request is probably there.
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

    /// Handles a client that was silent, or stalled.
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

    /// Frees the buffers until the client sends something.
    fn rest(&mut self) {
        self.resting = true;
        self.input.resize(INPUT_BYTES_MIN);
        self.account.drop_buffers();
        self.output.trim();
    }

    /// Enlarges the buffer if the client has filled it and memory is available.
    fn grow_input(&mut self) {
        let capacity = (2 * self.input.capacity()).min(INPUT_BYTES_MAX);
        if capacity > self.input.capacity() && self.account.grow_buffers(capacity) {
            self.input.resize(capacity);
        }
    }

    /// Receives bytes that have arrived; none is no error.
    pub fn look(&mut self, direct: Option<Direct<'_>>) -> bool {
        let mut direct = direct;
        self.receive(Patience::Now, &mut direct).is_ok()
    }

    fn receive(&mut self, patience: Patience, direct: &mut Option<Direct<'_>>) -> io::Result<()> {
        let count = match direct {
            Some(Direct { data, length })
                if *length >= data.len() + DIRECT_BYTES_MIN && self.input.available().is_empty() =>
            {
                self.follows_direct = true;
                data.reserve_exact(*length - data.len());
                let count = self.transport.receive(data, patience)?;
                // The allocator may have provided more room than requested.
                if data.len() > *length {
                    self.input.extend(&data.split_off(*length));
                }
                count
            }
            _ => {
                // The next part of the data goes to its final buffer once there is memory for it. So do probably the
                // data of the next request.
                let begins_part = direct.as_ref().is_some_and(|direct| direct.data.len() == direct.length);
                if begins_part || std::mem::take(&mut self.follows_direct) {
                    let mut first = Vec::with_capacity(INPUT_BYTES_MIN);
                    let count = self.transport.receive(&mut first, patience)?;
                    self.input.extend(&first);
                    count
                } else {
                    if self.input.is_too_small() {
                        self.grow_input();
                    }
                    self.input.receive(&mut self.transport, patience)?
                }
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
