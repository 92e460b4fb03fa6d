//! A server: its listeners, its connections, and its shutdown.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flashwise_core::filter::Client;
use parking_lot::{Condvar, Mutex, RwLock};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::address::Address;
use super::budget::Budget;
use super::connection::{Connection, Control};
use super::counters::Counters;
use super::listener::{ListenError, Listener};
use super::options::Options;
use super::protocol::{Endpoint, Protocol, Service};
use super::tls::{Config, Tls};
use crate::files;
use crate::limits::Limit;
use flashwise_storage::export::Exports;

/// The reason why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It cannot listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The system provides no thread or no file descriptor.
    #[error("cannot start to serve")]
    Io(#[from] io::Error),
}

/// Stack size of a connection's thread. Exports that answer immediately do so on it.
const STACK_BYTES: usize = 256 << 10;
/// Pause in accepting when the system has no more file descriptors or memory.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

#[derive(Default)]
struct Registry {
    connections: HashMap<u64, (Arc<Control>, JoinHandle<()>)>,
    /// Threads that are about to end.
    finished: Vec<JoinHandle<()>>,
    next: u64,
}

struct Shared {
    endpoints: Vec<Endpoint>,
    exports: Exports,
    options: RwLock<Options>,
    counters: Arc<Counters>,
    budget: Arc<Budget>,
    registry: Mutex<Registry>,
    changed: Condvar,
    stopping: AtomicBool,
    bell: OwnedFd,
}

impl Shared {
    /// Returns the addresses of a protocol.
    fn addresses(&self, protocol: &str) -> Vec<Address> {
        let spoken = self.endpoints.iter().filter(|endpoint| endpoint.protocol.name == protocol);
        spoken.map(|endpoint| endpoint.address.clone()).collect()
    }

    /// Returns the current options.
    fn options(&self) -> Options {
        self.options.read().clone()
    }
}

/// Control over the connections of a running server.
#[derive(Clone)]
pub struct Connections(Weak<Shared>);

impl Connections {
    /// True if new connections can show certificates.
    pub fn ask_for_certificates(&self) -> bool {
        self.0.upgrade().is_some_and(|shared| shared.options().tls.asks_clients())
    }

    /// Ends the connections with these numbers. They receive nothing more; received requests are answered, within
    /// `patience`. Returns true if any of them existed.
    pub fn end(&self, numbers: &[u64], patience: Duration) -> bool {
        let Some(shared) = self.0.upgrade() else { return false };
        let deadline = Instant::now() + patience;
        let mut registry = shared.registry.lock();
        let mut are_there = false;
        for (control, _) in numbers.iter().filter_map(|number| registry.connections.get(number)) {
            control.stop();
            are_there = true;
        }
        while numbers.iter().any(|number| registry.connections.contains_key(number)) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let controls = numbers.iter().filter_map(|number| registry.connections.get(number));
                controls.for_each(|(control, _)| control.abandon());
                break;
            }
            shared.changed.wait_for(&mut registry, left);
        }
        are_there
    }
}

/// The sockets of a server that does not serve yet; clients that connect wait.
pub struct Listening {
    listeners: Vec<(&'static Protocol, Listener)>,
    endpoints: Vec<Endpoint>,
}

impl Listening {
    /// Listens at `endpoints`.
    pub fn at(endpoints: &[Endpoint]) -> Result<Self, StartError> {
        let mut listeners = Vec::new();
        for Endpoint { protocol, address } in endpoints {
            listeners.extend(Listener::bind(address)?.into_iter().map(|listener| (*protocol, listener)));
        }
        let endpoints = listeners
            .iter()
            .map(|(protocol, listener)| Ok(protocol.at(listener.address()?)))
            .collect::<io::Result<Vec<Endpoint>>>()?;
        Ok(Self { listeners, endpoints })
    }
}

/// A running server. It stops on drop.
pub struct Server {
    shared: Arc<Shared>,
    acceptors: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts to serve `exports` at `endpoints`; exports may be added later.
    pub fn start(endpoints: &[Endpoint], exports: Exports, options: Options) -> Result<Self, StartError> {
        Self::serve(Listening::at(endpoints)?, exports, options)
    }

    /// Serves `exports` to waiting and future clients; exports may be added later.
    pub fn serve(listening: Listening, exports: Exports, options: Options) -> Result<Self, StartError> {
        let Listening { listeners, endpoints } = listening;
        let longest = endpoints.iter().map(|endpoint| endpoint.protocol.request_bytes_max).max().unwrap_or(0);
        let counters: Arc<Counters> = Arc::default();
        let memory_max = options.memory_max.max(2 * longest);
        let budget = Arc::new(Budget::new(memory_max, options.connections_max, longest, Arc::clone(&counters.limits)));
        let shared = Arc::new(Shared {
            endpoints,
            exports,
            options: RwLock::new(options),
            budget,
            counters,
            registry: Mutex::default(),
            changed: Condvar::new(),
            stopping: AtomicBool::new(false),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?,
        });
        let mut server = Self { shared, acceptors: Vec::new() };
        let mut services: Vec<(&'static str, Arc<dyn Service>)> = Vec::new();
        for (protocol, listener) in listeners {
            let shared = Arc::clone(&server.shared);
            let service = match services.iter().find(|(name, _)| *name == protocol.name) {
                Some((_, service)) => Arc::clone(service),
                None => {
                    let service: Arc<dyn Service> = Arc::from((protocol.start)(&shared.options()));
                    services.push((protocol.name, Arc::clone(&service)));
                    service
                }
            };
            let builder = std::thread::Builder::new().name(format!("{}-accept", protocol.name)).stack_size(STACK_BYTES);
            server.acceptors.push(builder.spawn(move || accept(protocol.name, &service, &listener, &shared))?);
        }
        Ok(server)
    }

    /// Returns the endpoints, with the ports that the system chose.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.shared.endpoints
    }

    /// Returns the URIs of an export, one for each endpoint.
    pub fn uris(&self, export: &str) -> Vec<String> {
        let encrypted = matches!(self.shared.options().tls, Tls::Required(_));
        self.shared.endpoints.iter().map(|endpoint| endpoint.uri(encrypted, export)).collect()
    }

    /// Replaces the certificates for new connections. The use of TLS does not change.
    pub fn set_tls(&self, config: Arc<Config>) {
        let mut options = self.shared.options.write();
        match &mut options.tls {
            Tls::Off => {}
            Tls::Allowed(current) | Tls::Required(current) => *current = config,
        }
    }

    /// Returns control over its connections.
    pub fn connections(&self) -> Connections {
        Connections(Arc::downgrade(&self.shared))
    }

    /// Returns its counters.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.shared.counters
    }

    /// Returns the memory that all connections share.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.shared.budget
    }

    /// Stops: accepts no more clients, answers received requests, and ends the connections. Requests that are
    /// unanswered after `grace` are abandoned. Returns true if all threads have ended; a thread that an export blocks
    /// is left behind.
    pub fn stop(mut self, grace: Duration) -> bool {
        self.end(grace)
    }

    fn end(&mut self, grace: Duration) -> bool {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Fails only after 2^64 - 1 rings.
        let _ = rustix::io::write(&self.shared.bell, &1_u64.to_ne_bytes());
        for acceptor in self.acceptors.drain(..) {
            acceptor.join().expect("accepting does not panic");
        }
        for (control, _) in self.shared.registry.lock().connections.values() {
            control.stop();
        }
        if self.wait_for_connections(grace) {
            return true;
        }
        for (control, _) in self.shared.registry.lock().connections.values() {
            control.abandon();
        }
        self.wait_for_connections(Duration::from_secs(1))
    }

    /// Waits until all connections have ended, and joins their threads; true if they have.
    fn wait_for_connections(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut registry = self.shared.registry.lock();
        while !registry.connections.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.shared.changed.wait_for(&mut registry, left);
        }
        let finished = std::mem::take(&mut registry.finished);
        let all = registry.connections.is_empty();
        drop(registry);
        join(finished);
        all
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.acceptors.is_empty() {
            self.end(Duration::from_secs(5));
        }
    }
}

/// Joins threads that are about to end. A thread that panicked has printed its message.
fn join(finished: Vec<JoinHandle<()>>) {
    for thread in finished {
        let _ = thread.join();
    }
}

/// Accepts clients until the server stops.
fn accept(name: &'static str, service: &Arc<dyn Service>, listener: &Listener, shared: &Arc<Shared>) {
    let mut exhausted = false;
    while !shared.stopping.load(Ordering::SeqCst) {
        let mut polled = [
            PollFd::from_borrowed_fd(shared.bell.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
        ];
        let (count, timeout) = if exhausted { (1, Some(&PAUSE)) } else { (2, None) };
        // Errors are ignored: the state is checked next in any case.
        let _ = poll(&mut polled[..count], timeout);
        let finished = std::mem::take(&mut shared.registry.lock().finished);
        join(finished);
        exhausted = match listener.accept() {
            Ok((socket, client)) => {
                let admitted = admit(name, service, socket, client, shared);
                if admitted.is_err() {
                    shared.counters.limits.reached(Limit::Threads);
                }
                admitted.is_err()
            }
            Err(error) => {
                let exhausted = is_exhausted(&error);
                if exhausted {
                    shared.counters.limits.reached(Limit::Files);
                }
                exhausted
            }
        };
    }
}

/// True if an error of `accept(2)` will recur immediately, rather than belong to a client that left.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM].map(|errno| errno.raw_os_error());
    error.raw_os_error().is_some_and(|errno| exhausted.contains(&errno))
}

/// Gives a client its thread, unless there are too many.
fn admit(
    name: &'static str,
    service: &Arc<dyn Service>,
    socket: OwnedFd,
    client: Client,
    shared: &Arc<Shared>,
) -> io::Result<()> {
    if files::is_for_others(&socket) {
        return refuse(shared, Limit::Files);
    }
    let options = shared.options();
    let mut registry = shared.registry.lock();
    if registry.connections.len() >= options.connections_max {
        return refuse(shared, Limit::Connections);
    }
    let control = Arc::new(Control::new(socket)?);
    registry.next += 1;
    let id = registry.next;
    let client = Client { connection: Some(id), ..client };
    let thread = {
        let (shared, control, service) = (Arc::clone(shared), Arc::clone(&control), Arc::clone(service));
        let builder = std::thread::Builder::new().name(name.into()).stack_size(STACK_BYTES);
        builder.spawn(move || {
            let _leave = Leave { shared: &shared, id };
            service.serve(Connection {
                control: &control,
                client,
                exports: &shared.exports,
                options: &options,
                addresses: &shared.addresses(name),
                budget: &shared.budget,
                counters: &shared.counters,
            });
        })?
    };
    registry.connections.insert(id, (control, thread));
    Counters::add(&shared.counters.connections_accepted, 1);
    Counters::add(&shared.counters.connections, 1);
    Ok(())
}

/// Counts a client that is rejected, and the limit that was reached.
fn refuse(shared: &Shared, limit: Limit) -> io::Result<()> {
    Counters::add(&shared.counters.connections_refused, 1);
    shared.counters.limits.reached(limit);
    Ok(())
}

/// Removes a connection from the table when its thread ends for any reason.
struct Leave<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let mut registry = self.shared.registry.lock();
        // The table is locked from before the thread starts until it is in there.
        let (_, thread) =
            registry.connections.remove(&self.id).expect("a connection is on the table while it is served");
        registry.finished.push(thread);
        self.shared.counters.connections.fetch_sub(1, Ordering::Relaxed);
        self.shared.changed.notify_all();
    }
}
