//! An accepted client, and the server's control over it.

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
use flashwise_storage::export::Exports;

/// The context of a protocol that serves one client, on its own thread.
pub struct Connection<'a> {
    /// The client's socket, and the state of its shutdown.
    pub control: &'a Arc<Control>,
    /// The client's identity, as far as the socket shows it.
    pub client: Client,
    /// The available exports.
    pub exports: &'a Exports,
    /// The server's options when the client connected.
    pub options: &'a Options,
    /// The server's addresses with the same protocol.
    pub addresses: &'a [Address],
    /// The memory that all connections share.
    pub budget: &'a Arc<Budget>,
    /// The server's counters.
    pub counters: &'a Counters,
}

/// Control over a connection from other threads.
#[derive(Debug)]
pub struct Control {
    socket: Arc<OwnedFd>,
    completions: Arc<Completions>,
    stopping: AtomicBool,
    abandoned: AtomicBool,
}

impl Control {
    /// Takes control of the connection on `socket`.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            socket: Arc::new(socket),
            completions: Arc::new(Completions::new()?),
            stopping: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
        })
    }

    /// Returns the client's socket.
    pub fn socket(&self) -> &Arc<OwnedFd> {
        &self.socket
    }

    /// Ends the connection once all received requests are answered.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        // Wakes a thread that waits for bytes. Fails if the client is gone, which has the same effect.
        let _ = shutdown(&self.socket, Shutdown::Read);
        self.completions.ring();
    }

    /// Ends the connection, even with unanswered requests.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::SeqCst);
        let _ = shutdown(&self.socket, Shutdown::Both);
        self.completions.ring();
    }

    /// True if the connection is ending.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// True if the connection must end immediately.
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::SeqCst)
    }

    /// Returns the queue of completed requests.
    pub fn completions(&self) -> &Arc<Completions> {
        &self.completions
    }
}
