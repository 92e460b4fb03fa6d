//! Messages before a client is served: each is received and answered in turn, within a deadline.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::connection::Control;
use super::input::Input;
use super::output::Output;
use super::tls::Config;
use super::transport::{Patience, Transport};

/// A client that is not served yet.
pub struct Exchange<'a> {
    control: &'a Control,
    /// Its socket.
    pub transport: Transport,
    /// Received bytes.
    pub input: Input,
    deadline: Option<Instant>,
}

impl<'a> Exchange<'a> {
    /// Starts an exchange with messages of at most `input_bytes`.
    pub fn new(control: &'a Control, input_bytes: usize, deadline: Option<Instant>) -> Exchange<'a> {
        let transport = Transport::new(Arc::clone(control.socket()));
        Exchange { control, transport, input: Input::new(input_bytes), deadline }
    }

    /// Switches to TLS.
    pub fn start_tls(&mut self, config: &Arc<Config>) -> io::Result<()> {
        self.transport.start_tls(config)
    }

    fn check_stop(&self) -> io::Result<()> {
        if self.control.is_stopping() || self.control.is_abandoned() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the server is stopping"));
        }
        Ok(())
    }

    /// Sends all of `output`.
    pub fn send_all(&mut self, output: &mut Output) -> io::Result<()> {
        loop {
            self.transport.send(output)?;
            if output.is_empty() {
                return Ok(());
            }
            self.check_stop()?;
            self.transport.wait(false, true, self.control.completions().bell(), self.deadline)?;
        }
    }

    /// Waits for more bytes and returns their number; 0 at the end.
    pub fn receive(&mut self) -> io::Result<usize> {
        loop {
            self.check_stop()?;
            match self.input.receive(&mut self.transport, Patience::Now) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return received,
            }
            let writes = self.transport.has_more(&Output::default());
            self.transport.wait(true, writes, self.control.completions().bell(), self.deadline)?;
            if writes {
                self.transport.send(&mut Output::default())?;
            }
        }
    }
}
