//! The management API: status, settings and metrics of a running server over HTTP, on its own threads.
//!
//! The API sees the server only through [`Managed`], and knows neither volumes nor caches. `docs/api.md` lists the
//! routes and metrics. The feature `http` adds the HTTP server.

mod address;
#[cfg(feature = "http")]
mod alarms;
mod alert_options;
mod changes;
pub mod clients;
#[cfg(feature = "http")]
mod clock;
pub mod plan;
mod pools;

#[cfg(feature = "http")]
mod api;
#[cfg(feature = "http")]
mod connections;
#[cfg(feature = "http")]
mod guard;
#[cfg(feature = "http")]
mod history;
#[cfg(feature = "http")]
mod live;
#[cfg(feature = "http")]
mod metrics;
#[cfg(not(feature = "http"))]
mod missing;
#[cfg(feature = "http")]
mod news;
#[cfg(feature = "http")]
mod notify;
#[cfg(feature = "http")]
mod page;
#[cfg(feature = "http")]
mod places;
#[cfg(feature = "http")]
mod routes;
#[cfg(feature = "http")]
mod sessions;
#[cfg(feature = "http")]
mod tag;
mod volumes;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use flashwise_core::cache::settings::Settings;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use address::{
    Address, AddressError, DEFAULT_PORT, Listener, SOCKET_PATH_BYTES_MAX, default_socket, find_default_socket,
    is_runtime_directory,
};
pub use alert_options::AlertOptions;
#[cfg(feature = "http")]
pub use api::{Api, Listening};
pub use changes::{Changes, parse as parse_changes};
pub use clients::Clients;
#[cfg(feature = "http")]
pub use metrics::{encode as encode_metrics, names as metric_names};
#[cfg(not(feature = "http"))]
pub use missing::{Api, Listening};
pub use pools::{DiskWiped, NewPool, Pools};
#[cfg(feature = "http")]
pub use routes::openapi;
pub use volumes::NewVolume;

use flashwise_storage::status::{ServerStatus, VolumeStatus};
use flashwise_storage::what_if::WhatIfStatus;

use crate::limits::Limits;
use crate::secret::CHARACTERS_MIN;

/// The server behind the API. Calls come from several threads, can block, and must not stop the [`Api`].
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

    /// Flushes one volume or all; returns when the data is durable.
    fn flush(&self, volume: Option<&str>) -> Result<(), ManageError>;

    /// Describes the effect of creating a volume. Fails if the creation would.
    fn plan_volume(&self, _new: &NewVolume) -> Result<plan::Plan, ManageError> {
        Err(ManageError::NotFound("this server makes no volumes".to_owned()))
    }

    /// Makes a volume, and serves it.
    fn make_volume(&self, new: &NewVolume) -> Result<(), ManageError> {
        self.plan_volume(new).map(drop)
    }

    /// Describes the effect of removing a volume. Fails if the removal would.
    fn plan_end_volume(&self, _name: &str) -> Result<plan::Plan, ManageError> {
        Err(ManageError::NotFound("this server removes no volumes".to_owned()))
    }

    /// Removes a volume. Its backend must have all of its data.
    fn end_volume(&self, name: &str) -> Result<(), ManageError> {
        self.plan_end_volume(name).map(drop)
    }

    /// The pools, if it can have any.
    fn pools(&self) -> Option<&dyn Pools> {
        None
    }

    /// The clients, if it can have any.
    fn clients(&self) -> Option<&dyn Clients> {
        None
    }

    /// Counts how often the limits of the server are reached.
    fn limits(&self) -> Arc<Limits> {
        Arc::default()
    }

    /// Returns predictions for other policies and sizes of a volume.
    fn what_if(&self, name: &str) -> Result<WhatIfStatus, ManageError>;

    /// Fails if detaching this volume would fail or have no effect.
    fn check_detach(&self, name: &str) -> Result<(), ManageError>;

    /// Starts to detach a volume and returns at once.
    fn detach(&self, name: &str) -> Result<(), ManageError>;

    /// Returns the progress of detaching a volume; `attached` if no detach was requested.
    fn detach_progress(&self, name: &str) -> Result<DetachProgress, ManageError>;

    /// Refuses to attach a volume that is not detached.
    fn check_attach(&self, name: &str) -> Result<(), ManageError>;

    /// Ends a detach: the next start of the server uses the volume's flash again.
    fn attach(&self, name: &str) -> Result<(), ManageError>;

    /// Returns the settings of a volume that can change while it runs.
    fn settings(&self, name: &str) -> Result<Vec<SettingStatus>, ManageError>;

    /// Refuses changes of settings that [`set`](Self::set) would refuse.
    fn check_set(&self, name: &str, changes: &Settings) -> Result<(), ManageError>;

    /// Changes settings of a volume, all of them or, if that fails, none.
    fn set(&self, name: &str, changes: &Settings) -> Result<(), ManageError>;
}

/// A setting of a volume that can be changed while it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SettingStatus {
    /// Its name.
    pub name: String,
    /// Its current value.
    pub value: String,
    /// Its default.
    pub default: String,
    /// Its meaning.
    pub meaning: String,
    /// All values that it takes, where these are few words; else empty.
    pub choices: Vec<String>,
    /// All names that it takes, if it takes names that can have options behind a colon, such as `probability:p=0.3`;
    /// else empty.
    #[serde(default)]
    pub names: Vec<String>,
    /// True if it was changed since the server started.
    pub changed: bool,
}

/// How far detaching a volume is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DetachProgress {
    /// The current state.
    pub state: DetachState,
    /// Blocks that are still to be written back.
    pub dirty_blocks: u64,
    /// Blocks that were written back since detaching began.
    pub destaged_blocks: u64,
    /// How long the rest takes in seconds, at the rate of the last seconds; `null` until that is known.
    pub remaining_seconds: Option<f64>,
}

/// The state of a detach. After a failure, this endpoint returns the error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DetachState {
    /// No detach was requested.
    #[default]
    Attached,
    /// Dirty blocks are being written back.
    Detaching,
    /// The flash is no longer used.
    Detached,
}

/// Why something that was asked of a server was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ManageError {
    #[error("no volume '{name}', {}", if .volumes.is_empty() { "there is none".to_owned() } else { format!("expected one of: {}", .volumes.join(", ")) })]
    NoSuchVolume { name: String, volumes: Vec<String> },
    /// There is no such thing.
    #[error("{0}")]
    NotFound(String),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// It cannot be done now.
    #[error("{0}")]
    Conflict(String),
    /// The object changed since the client read it.
    #[error("it has changed since you read it; read it again")]
    Changed,
    /// It went wrong.
    #[error("{0}")]
    Failed(String),
}

impl ManageError {
    /// The error that no pool has this name; `there` lists the existing names.
    pub fn no_pool(name: &str, there: &[String]) -> ManageError {
        ManageError::NotFound(match there {
            [] => format!("no pool '{name}': this server serves none"),
            there => format!("no pool '{name}', expected one of: {}", there.join(", ")),
        })
    }
}

/// Why the API cannot start.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ApiError {
    #[error(
        "the management API cannot listen on {address} without a token, because every user of this machine could \
         change everything. Set a token-file, or listen on unix:PATH"
    )]
    TokenNeeded { address: String },
    #[error("{whose} is empty or holds other than visible ASCII characters")]
    BadToken { whose: &'static str },
    #[error(
        "{whose} has {found} characters, expected at least {}, as other machines reach the management API",
        CHARACTERS_MIN
    )]
    ShortToken { whose: &'static str, found: usize },
    #[error(
        "the management API has a read-only token, but none for changes, or the same one; expected two different tokens"
    )]
    NoOtherToken,
    #[error("the management API cannot listen on {address}: {error}; --api or [api] listen chooses another address")]
    Listen { address: String, error: io::Error },
    #[error(
        "the management API cannot listen on {address}: another program listens there; stop it or choose another \
         address"
    )]
    InUse { address: String },
    #[error("the management API cannot start its threads: {error}")]
    Threads { error: io::Error },
    #[error(
        "the management API at {address}: this server was built without HTTP, expected the address off, or a server \
         that was built with the feature http"
    )]
    NotBuilt { address: String },
}

/// The tokens of the management API.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tokens {
    /// The token for changes. Without it, only users of the Unix socket may change something.
    pub change: Option<String>,
    /// The token for read-only access.
    pub read: Option<String>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokens {{ change: {}, read: {} }}", self.change.is_some(), self.read.is_some())
    }
}

/// How the API is served.
#[derive(Clone, Debug, Default)]
pub struct ApiOptions {
    /// The tokens.
    pub tokens: Tokens,
    /// The file with the figures of the last 30 days; without it, they end with the process.
    pub history: Option<PathBuf>,
    /// Destinations and thresholds of alerts.
    pub alerts: AlertOptions,
}
