//! One client, from greeting to goodbye, on a thread of its own.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use flashwise_core::filter::Client;
use rustix::net::{Shutdown, shutdown};

use super::budget::{Account, Budget};
use super::completions::Completions;
use super::counters::Counters;
use super::handshake::{Handshake, OPTION_BYTES_MAX, Session, Step};
use super::output::Output;
use super::protocol::greeting;
use super::server::Options;
use super::session::{INPUT_BYTES_MIN, Transmission};
use super::tls::Tls;
use super::transport::{Patience, Transport};
use flashwise_engine::export::Exports;

/// What others can do to a connection.
#[derive(Debug)]
pub struct Control {
    socket: Arc<OwnedFd>,
    completions: Arc<Completions>,
    stopping: AtomicBool,
    abandoned: AtomicBool,
}

impl Control {
    /// Control over the connection behind `socket`.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            socket: Arc::new(socket),
            completions: Arc::new(Completions::new()?),
            stopping: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
        })
    }

    /// Ends the connection when what was received is answered.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        // Wakes up a thread that waits for bytes. Fails where the client is gone, which is as good.
        let _ = shutdown(&self.socket, Shutdown::Read);
        self.completions.ring();
    }

    /// Ends the connection, even if requests are not answered.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::SeqCst);
        let _ = shutdown(&self.socket, Shutdown::Both);
        self.completions.ring();
    }

    /// Whether the connection has to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Whether the connection has to end now.
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::SeqCst)
    }

    /// The answers of the connection's requests.
    pub fn completions(&self) -> &Arc<Completions> {
        &self.completions
    }
}

/// Bytes that came and were not looked at yet.
#[derive(Debug)]
pub struct Input {
    bytes: Vec<u8>,
    start: usize,
    /// Whether the last bytes that came filled the buffer: there may be more.
    filled: bool,
}

impl Input {
    /// Room for `capacity` bytes.
    pub fn new(capacity: usize) -> Self {
        Self { bytes: Vec::with_capacity(capacity), start: 0, filled: false }
    }

    /// What was not looked at yet.
    pub fn available(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// How much there is room for.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether a larger buffer would have taken more.
    pub fn is_too_small(&self) -> bool {
        self.filled
    }

    /// Makes room for `capacity` bytes, or for those that are there, if they are more.
    pub fn resize(&mut self, capacity: usize) {
        let mut bytes = Vec::with_capacity(capacity.max(self.available().len()));
        bytes.extend_from_slice(self.available());
        *self = Self { bytes, start: 0, filled: false };
    }

    /// Forgets the first `length` bytes.
    pub fn consume(&mut self, length: usize) {
        self.start += length;
        assert!(self.start <= self.bytes.len(), "no more is taken than there is");
    }

    /// Appends bytes that came some other way.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Receives more; returns how many bytes, 0 for the end.
    pub fn receive(&mut self, transport: &mut Transport, patience: Patience) -> io::Result<usize> {
        if self.start > 0 {
            // What is kept is less than one request, unless reading was held up.
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        assert!(self.bytes.len() < self.bytes.capacity(), "a message fits into the buffer");
        let received = transport.receive(&mut self.bytes, patience);
        self.filled = self.bytes.len() == self.bytes.capacity();
        received
    }
}

/// Size of the buffer while options are haggled over.
const HANDSHAKE_INPUT_BYTES: usize = OPTION_BYTES_MAX + 64;

/// Serves one client until it goes.
pub fn serve(
    control: &Control,
    client: Client,
    exports: &Exports,
    options: &Options,
    budget: &Arc<Budget>,
    counters: &Counters,
) {
    let mut transport = Transport::new(Arc::clone(&control.socket));
    let mut input = Input::new(HANDSHAKE_INPUT_BYTES);
    match haggle(control, &mut transport, &mut input, exports, options) {
        Ok(Some(session)) => {
            input.resize(INPUT_BYTES_MIN);
            let account = Account::new(budget, control.completions());
            let client = Client { export: session.name.clone(), tls_names: transport.tls_names(), ..client };
            let guest = session.export.enter(client);
            Transmission::new(control, transport, session, guest, options, account, counters, input).run();
        }
        Ok(None) => transport.close(),
        Err(_) => {
            Counters::add(&counters.handshakes_failed, 1);
            transport.close();
        }
    }
}

/// Agrees with the client on an export; `None` if it wants none, or none that there is.
fn haggle(
    control: &Control,
    transport: &mut Transport,
    input: &mut Input,
    exports: &Exports,
    options: &Options,
) -> io::Result<Option<Session>> {
    let deadline = Instant::now().checked_add(options.handshake_time_max);
    let mut handshake = Handshake::new(exports.clone(), options.tls.encryption());
    let mut output = Output::default();
    output.put(|output| output.extend_from_slice(&greeting()));
    loop {
        let mut step = Step::Continue;
        let mut taken = 0;
        output.put(|output| (taken, step) = handshake.advance(input.available(), output));
        input.consume(taken);
        send_all(control, transport, &mut output, deadline)?;
        match step {
            Step::Continue if taken > 0 => {}
            Step::Continue => {
                if receive(control, transport, input, deadline)? == 0 {
                    return Ok(None);
                }
            }
            Step::StartTls => {
                // Bytes that came along were not protected; who sends any is not the client.
                if !input.available().is_empty() {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "bytes between STARTTLS and TLS"));
                }
                start_tls(transport, &options.tls)?;
                handshake.encrypted();
            }
            Step::Transmit(session) => return Ok(Some(session)),
            Step::End => return Ok(None),
        }
    }
}

fn start_tls(transport: &mut Transport, tls: &Tls) -> io::Result<()> {
    let config = tls.config().expect("TLS is started only where it is on");
    transport.start_tls(Arc::clone(config))
}

fn check_stop(control: &Control) -> io::Result<()> {
    if control.is_stopping() || control.is_abandoned() {
        return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the server is stopping"));
    }
    Ok(())
}

fn send_all(
    control: &Control,
    transport: &mut Transport,
    output: &mut Output,
    deadline: Option<Instant>,
) -> io::Result<()> {
    loop {
        transport.send(output)?;
        if output.is_empty() {
            return Ok(());
        }
        check_stop(control)?;
        transport.wait(false, true, control.completions.bell(), deadline)?;
    }
}

fn receive(
    control: &Control,
    transport: &mut Transport,
    input: &mut Input,
    deadline: Option<Instant>,
) -> io::Result<usize> {
    loop {
        check_stop(control)?;
        match input.receive(transport, Patience::Now) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            received => return received,
        }
        let writes = transport.has_more(&Output::default());
        transport.wait(true, writes, control.completions.bell(), deadline)?;
        if writes {
            transport.send(&mut Output::default())?;
        }
    }
}
