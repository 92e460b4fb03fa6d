//! A client that was accepted, and what a server can do to it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flashwise_core::filter::Client;
use rustix::net::{Shutdown, shutdown};

use super::address::Address;
use super::budget::Budget;
use super::completions::Completions;
use super::counters::Counters;
use super::options::Options;
use flashwise_engine::export::Exports;

/// What a protocol is given to serve one client, on a thread of its own.
pub struct Connection<'a> {
    /// The client's socket, and whether the connection has to end.
    pub control: &'a Arc<Control>,
    /// Who the client is, as far as the socket tells.
    pub client: Client,
    /// What there is to serve.
    pub exports: &'a Exports,
    /// What the server allowed when the client came.
    pub options: &'a Options,
    /// Where the server speaks the same protocol.
    pub addresses: &'a [Address],
    /// The memory that all connections share.
    pub budget: &'a Arc<Budget>,
    /// What the server has done so far.
    pub counters: &'a Counters,
}

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

    /// The client's socket.
    pub fn socket(&self) -> &Arc<OwnedFd> {
        &self.socket
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
