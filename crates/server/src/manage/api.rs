//! The running API: its listener, threads and history.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::address::{Address, Listener};
use super::clock::seconds;
use super::connections::{self, Accepting};
use super::guard::{self, Guard};
use super::history::Severity;
use super::live::Live;
use super::notify::Notifier;
use super::places::{PERFORMED_MAX, Places};
use super::routes::{self, Page};
use super::sessions::Sessions;
use super::{AlertOptions, ApiError, ApiOptions, Managed, Tokens};
use crate::secret::CHARACTERS_MIN;

/// Threads for calls of [`Managed`], which wait for locks and devices. Three are reserved for health checks, the status
/// of each second, and alerts.
const BLOCKING_THREADS_MAX: usize = PERFORMED_MAX + 3;
/// Time for unfinished answers when the API stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

impl Tokens {
    /// Checks the tokens of an API that listens on these TCP addresses.
    fn check(&self, addresses: &[SocketAddr]) -> Result<(), ApiError> {
        let is_for_others = addresses.iter().any(|address| !guard::is_loopback(address.ip()));
        let good = |token: &String| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        let tokens = [
            (&self.change, "the token of the management API"),
            (&self.read, "the read-only token of the management API"),
        ];
        for (token, whose) in tokens {
            if !token.iter().all(good) {
                return Err(ApiError::BadToken { whose });
            }
            if let Some(token) = token.as_ref().filter(|token| is_for_others && token.len() < CHARACTERS_MIN) {
                return Err(ApiError::ShortToken { whose, found: token.len() });
            }
        }
        if self.read.is_some() && (self.change.is_none() || self.read == self.change) {
            return Err(ApiError::NoOtherToken);
        }
        Ok(())
    }
}

/// The socket of an API that is not yet served: clients wait until it is.
#[derive(Debug)]
pub struct Listening {
    listener: Listener,
    address: Address,
    tokens: Tokens,
}

impl Listening {
    /// Listens on an address. A TCP address needs a token, as every user of the machine can connect to it; loopback
    /// too.
    pub fn at(address: &Address, tokens: Tokens) -> Result<Listening, ApiError> {
        let listen_error = |error: io::Error| match (error.kind(), address.to_string()) {
            (io::ErrorKind::AddrInUse, address) => ApiError::InUse { address },
            (_, address) => ApiError::Listen { address, error },
        };
        let resolved = address.resolved().map_err(listen_error)?;
        tokens.check(&resolved)?;
        if tokens.change.is_none() && matches!(address, Address::Tcp(..)) {
            return Err(ApiError::TokenNeeded { address: address.to_string() });
        }
        let listener = address.bind(&resolved).map_err(listen_error)?;
        let address = match &listener {
            Listener::Tcp(listener) => {
                let bound = listener.local_addr().map_err(listen_error)?;
                Address::Tcp(bound.ip().to_string(), bound.port())
            }
            Listener::Unix(..) => address.clone(),
        };
        Ok(Listening { listener, address, tokens })
    }
}

/// The API while it runs; dropping it stops it at once.
#[derive(Debug)]
pub struct Api {
    runtime: Option<Runtime>,
    serving: Option<JoinHandle<()>>,
    stopping: watch::Sender<bool>,
    address: Address,
    guard: Arc<Guard>,
    live: Arc<Live>,
}

impl Api {
    /// Listens on an address, as [`Listening::at`], and answers from then on.
    pub fn start(address: &Address, options: ApiOptions, server: Arc<dyn Managed>) -> Result<Api, ApiError> {
        Self::serve(Listening::at(address, options.tokens)?, options.history, options.alerts, server)
    }

    /// Serves present and future connections. The file `history` keeps the figures of the last 30 days; without it,
    /// they end with the process.
    pub fn serve(
        listening: Listening,
        history: Option<PathBuf>,
        alerts: AlertOptions,
        server: Arc<dyn Managed>,
    ) -> Result<Api, ApiError> {
        let Listening { listener, address, tokens } = listening;
        // A page without tokens has an address of this start.
        let file =
            history.as_deref().filter(|_| tokens.change.is_some()).map(|file| file.with_file_name("sessions.json"));
        let sessions = Sessions::new(tokens.clone(), file);
        let (token, read_token) = (tokens.change.map(RwLock::new), tokens.read.map(RwLock::new));
        let owner = rustix::process::geteuid().as_raw();
        let guard = Arc::new(Guard { token, read_token, owner, sessions, refused: Mutex::default() });
        let runtime = runtime().map_err(|error| ApiError::Threads { error })?;
        let (stopping, stopped) = watch::channel(false);
        let (notifier, alerts) = Notifier::new(alerts);
        runtime.spawn(Arc::clone(&notifier).run(alerts));
        let live = Arc::new(Live::new(history.as_deref(), notifier));
        let (listeners, mut pages) = mpsc::channel(1);
        let limits = server.limits();
        let page = Page::new(Arc::clone(&live), Arc::clone(&guard), stopped.clone(), listeners, Arc::clone(&limits));
        let router = routes::router(Arc::clone(&server), page);
        runtime.spawn(Arc::clone(&live).look(server));
        let context = runtime.enter();
        let accepting = Accepting::new(listener).map_err(|error| ApiError::Threads { error })?;
        drop(context);
        let places = Places::new(limits);
        let serving =
            runtime.spawn(connections::serve(accepting, router.clone(), stopped.clone(), Arc::clone(&places)));
        runtime.spawn(async move {
            if let Some(listener) = pages.recv().await {
                connections::serve(Accepting::Tcp(listener), router, stopped, places).await;
            }
        });
        Ok(Api { runtime: Some(runtime), serving: Some(serving), stopping, address, guard, live })
    }

    /// Returns the address, with the chosen port if port 0 was requested.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Replaces the tokens, and ends all sessions of browsers if they differ.
    pub fn set_tokens(&self, tokens: Tokens) -> Result<(), ApiError> {
        // The address is numeric, so no name server is needed.
        tokens.check(&self.address.resolved().unwrap_or_default())?;
        for (current, new) in [(&self.guard.token, &tokens.change), (&self.guard.read_token, &tokens.read)] {
            if let (Some(current), Some(new)) = (current, new) {
                current.write().clone_from(new);
            }
        }
        self.guard.sessions.change_tokens(tokens);
        Ok(())
    }

    /// Stops listening, and waits some seconds for unfinished answers. Must not be called by [`Managed`].
    pub fn stop(mut self) {
        self.stopping.send_replace(true);
        if let (Some(runtime), Some(serving)) = (&self.runtime, self.serving.take()) {
            // Connections that are still busy are closed.
            let _ = runtime.block_on(async { tokio::time::timeout(STOP_TIMEOUT, serving).await });
        }
        self.live.happened(None, Severity::Info, "The server was stopped");
        self.live.history.keep(seconds());
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn runtime() -> io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).max_blocking_threads(BLOCKING_THREADS_MAX).thread_name("flashwise-api");
    builder.enable_io().enable_time().build()
}
