//! The management API: status, settings and metrics of a running server over HTTP, on threads of its own.
//!
//! What it manages is behind [`Managed`]; it knows neither volumes nor caches. `docs/api.md` lists the routes and metrics.

mod address;
mod changes;
pub mod clients;
mod connections;
mod exposition;
mod guard;
mod history;
mod live;
mod metrics;
mod news;
mod page;
pub mod plan;
mod pools;
mod routes;
mod sessions;
mod tag;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use flashwise_core::cache::settings::Settings;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use utoipa::ToSchema;

pub use address::{Address, AddressError, DEFAULT_ADDRESS, DEFAULT_PORT, Listener};
pub use changes::{Changes, parse as parse_changes};
pub use clients::Clients;
pub use exposition::Exposition;
pub use metrics::{encode as encode_metrics, names as metric_names};
pub use pools::{DiskAdded, DiskGivenUp, DiskWiped, LogicalDiskChange, NewLogicalDisk, PoolChange, Pools};
pub use routes::openapi;

use flashwise_engine::status::{ServerStatus, VolumeStatus};
use flashwise_engine::what_if::WhatIfStatus;
use guard::Guard;
use live::Live;
use routes::Page;
use sessions::Sessions;

/// Threads for calls of [`Managed`], which wait for locks and devices; more calls wait their turn.
const BLOCKING_THREADS_MAX: usize = 8;
/// What is being answered when the API stops has this long.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// What the API manages. Calls come from several threads, may wait, and must not stop the [`Api`].
pub trait Managed: Send + Sync + 'static {
    /// Everything there is to know.
    fn status(&self) -> ServerStatus;

    /// The status of one volume.
    fn volume(&self, name: &str) -> Result<VolumeStatus, ManageError> {
        let volumes = self.status().volumes;
        let names = || volumes.iter().map(|volume| volume.name.clone()).collect();
        match volumes.iter().find(|volume| volume.name == name) {
            Some(volume) => Ok(volume.clone()),
            None => Err(ManageError::NoSuchVolume { name: name.to_owned(), volumes: names() }),
        }
    }

    /// Makes what was written durable, of one volume or of all; returns when it is.
    fn flush(&self, volume: Option<&str>) -> Result<(), ManageError>;

    /// The pools, if it can have any.
    fn pools(&self) -> Option<&dyn Pools> {
        None
    }

    /// The clients, if it can have any.
    fn clients(&self) -> Option<&dyn Clients> {
        None
    }

    /// What another policy or size would do for a volume.
    fn what_if(&self, name: &str) -> Result<WhatIfStatus, ManageError>;

    /// Starts to detach a volume and returns at once.
    fn detach(&self, name: &str) -> Result<(), ManageError>;

    /// How far detaching a volume is; `attached` where nobody asked for it.
    fn detach_progress(&self, name: &str) -> Result<DetachProgress, ManageError>;

    /// What can be changed of a volume, and what it is now.
    fn settings(&self, name: &str) -> Result<Vec<SettingStatus>, ManageError>;

    /// Changes settings of a volume, all of them or, if that fails, none.
    fn set(&self, name: &str, changes: &Settings) -> Result<(), ManageError>;
}

/// A setting of a volume that can be changed while it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SettingStatus {
    /// What it is called.
    pub name: String,
    /// What it is now.
    pub value: String,
    /// What it is where nothing is said.
    pub default: String,
    /// What it does.
    pub meaning: String,
    /// All values that it takes, where these are few words; else empty.
    pub choices: Vec<String>,
    /// Whether it was changed since the server was started.
    pub changed: bool,
}

/// How far detaching a volume is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DetachProgress {
    /// Whether it began, and whether it is done.
    pub state: DetachState,
    /// Blocks that are still to be written back.
    pub dirty_blocks: u64,
    /// Blocks that were written back since detaching began.
    pub destaged_blocks: u64,
}

/// Whether a volume is being detached. Where that fails, the question how far it is fails with the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DetachState {
    /// Nobody asked for it.
    #[default]
    Attached,
    /// What is dirty is being written back.
    Detaching,
    /// The backend alone is whole.
    Detached,
}

/// Why something that was asked of a server was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ManageError {
    #[error("no volume '{name}', expected one of: {}", .volumes.join(", "))]
    NoSuchVolume { name: String, volumes: Vec<String> },
    /// There is no such thing.
    #[error("{0}")]
    NotFound(String),
    /// What was asked makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// It cannot be done now.
    #[error("{0}")]
    Conflict(String),
    /// It is not any more what the request was for.
    #[error("it was changed meanwhile; look at it again")]
    Changed,
    /// It went wrong.
    #[error("{0}")]
    Failed(String),
}

/// Why the API cannot start.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ApiError {
    #[error(
        "the management API would listen on {address}, which other machines reach: give it a token, or let it listen on \
         127.0.0.1 or unix:/path"
    )]
    TokenNeeded { address: SocketAddr },
    #[error("{whose} is empty or holds other than visible ASCII characters")]
    BadToken { whose: &'static str },
    #[error("the management API has a token for looking, and the same one or none for changes: expected one for each")]
    NoOtherToken,
    #[error("the management API cannot listen on {address}: {error}")]
    Listen { address: String, error: io::Error },
    #[error("the management API cannot start its threads: {error}")]
    Threads { error: io::Error },
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

/// What the management API asks for.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tokens {
    /// The token of those who may change something; without it, everybody may.
    pub change: Option<String>,
    /// The token of those who may look and change nothing.
    pub read: Option<String>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokens {{ change: {}, read: {} }}", self.change.is_some(), self.read.is_some())
    }
}

impl Tokens {
    fn check(&self) -> Result<(), ApiError> {
        let good = |token: &String| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        let tokens = [
            (&self.change, "the token of the management API"),
            (&self.read, "the token of the management API for those who only look"),
        ];
        for (token, whose) in tokens {
            if !token.iter().all(good) {
                return Err(ApiError::BadToken { whose });
            }
        }
        if self.read.is_some() && (self.change.is_none() || self.read == self.change) {
            return Err(ApiError::NoOtherToken);
        }
        Ok(())
    }
}

/// How the API is served.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What it asks for.
    pub tokens: Tokens,
    /// The file that keeps the figures of the last 30 days; where there is none, they are forgotten with the process.
    pub history: Option<PathBuf>,
}

impl Api {
    /// Listens on an address and serves from then on. Those who ask must bear a token, if there is one; without one the address
    /// must be a Unix socket or loopback.
    pub fn start(address: &Address, options: Options, server: Arc<dyn Managed>) -> Result<Api, ApiError> {
        let Options { tokens, history } = options;
        tokens.check()?;
        let listen_error = |error| ApiError::Listen { address: address.to_string(), error };
        let resolved = address.resolved().map_err(listen_error)?;
        if tokens.change.is_none()
            && let Some(&address) = resolved.iter().find(|address| !guard::is_loopback(address.ip()))
        {
            return Err(ApiError::TokenNeeded { address });
        }
        let listener = address.bind(&resolved).map_err(listen_error)?;
        let address = match &listener {
            Listener::Tcp(listener) => {
                let bound = listener.local_addr().map_err(listen_error)?;
                Address::Tcp(bound.ip().to_string(), bound.port())
            }
            Listener::Unix(..) => address.clone(),
        };
        let checks_host = tokens.change.is_none() && matches!(address, Address::Tcp(..));
        let (token, read_token) = (tokens.change.map(RwLock::new), tokens.read.map(RwLock::new));
        let guard = Arc::new(Guard { token, read_token, checks_host, sessions: Sessions::default() });
        let runtime = runtime().map_err(|error| ApiError::Threads { error })?;
        let (stopping, stopped) = watch::channel(false);
        let live = Arc::new(Live::new(history.as_deref()));
        let page = Page::new(Arc::clone(&live), Arc::clone(&guard), stopped.clone());
        let router = routes::router(Arc::clone(&server), page);
        runtime.spawn(Arc::clone(&live).look(server));
        let context = runtime.enter();
        let accepting = connections::Accepting::new(listener).map_err(|error| ApiError::Threads { error })?;
        drop(context);
        let serving = runtime.spawn(connections::serve(accepting, router, stopped));
        Ok(Api { runtime: Some(runtime), serving: Some(serving), stopping, address, guard, live })
    }

    /// Where it listens, with the port that was chosen where 0 was asked for.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Asks for other tokens from now on, each where one is asked for, and signs everybody out.
    pub fn set_tokens(&self, tokens: Tokens) -> Result<(), ApiError> {
        tokens.check()?;
        for (current, new) in [(&self.guard.token, tokens.change), (&self.guard.read_token, tokens.read)] {
            if let (Some(current), Some(new)) = (current, new) {
                *current.write().unwrap_or_else(PoisonError::into_inner) = new;
            }
        }
        self.guard.sessions.end_all();
        Ok(())
    }

    /// Stops listening, and waits some seconds for what is being answered. Not to be called by what it manages.
    pub fn stop(mut self) {
        self.stopping.send_replace(true);
        if let (Some(runtime), Some(serving)) = (&self.runtime, self.serving.take()) {
            // Who is not done by then is cut off.
            let _ = runtime.block_on(async { tokio::time::timeout(STOP_TIMEOUT, serving).await });
        }
        self.live.happened(None, "The server was stopped");
        self.live.history.keep(live::seconds());
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
