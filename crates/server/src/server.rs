//! A server: its volumes, its front end, its management API, and the recording of requests.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::config::made::Kind;
use crate::config::{ServerConfig, TlsMode};
use crate::files;
use crate::front::iscsi::chap::read_secret;
use crate::front::{
    self, Assignment, Credentials, Endpoint, ListenError, StartError, Tls, TlsError, TlsFiles, Uri, UriError,
};
use crate::manage::{self, Address, AddressError, Api, ApiError, Tokens};
use crate::reach::Reach;
use crate::secret;
use crate::state::clients::ServedClients;
use crate::state::kept;
use crate::state::making::{Making, finish_deletions};
use crate::state::managed::{Load, Volumes};
use crate::state::pools::ServedPools;
use crate::state::served::{Served, Unopened};
use crate::state::volumes::ServedVolumes;
use flashwise_storage::export::Exports;
use flashwise_storage::pool::{OpenError, Pool, PoolError};
use flashwise_storage::record::{RecordError, Recorder};
use flashwise_storage::status::Unserved;
use flashwise_storage::volume::{Opened, Volume, VolumeError};

/// The reason why a server cannot start, or cannot shut down in order.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ServerError {
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error("{0}")]
    Missing(String),
    #[error(transparent)]
    Pool(#[from] OpenError),
    #[error("pool '{pool}': its logical disk '{name}' has the name of another export; rename or leave out one of them")]
    NameTaken { pool: String, name: String },
    #[error(transparent)]
    Uri(#[from] UriError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Front(#[from] StartError),
    #[error("the management API")]
    ApiAddress(#[from] AddressError),
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("the token file {path}: {error}")]
    Token { path: PathBuf, error: io::Error },
    #[error("the secret of CHAP in {path}: {error}")]
    Secret { path: PathBuf, error: io::Error },
    #[error("the assignments of exports to clients: {0}")]
    Assignments(io::Error),
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl ServerError {
    /// True if a retry cannot succeed: the configuration or the contents of the devices must change.
    pub fn is_permanent(&self) -> bool {
        match self {
            ServerError::Volume(error) => error.is_permanent(),
            ServerError::Pool(error) => error.is_permanent(),
            ServerError::NameTaken { .. } | ServerError::Missing(_) => true,
            ServerError::Uri(_) | ServerError::Tls(_) | ServerError::ApiAddress(_) => true,
            ServerError::Token { .. } | ServerError::Secret { .. } | ServerError::Assignments(_) => true,
            ServerError::Front(StartError::Listen(error)) => match error {
                ListenError::InUse { .. } => false,
                ListenError::NotASocket { .. } => true,
                ListenError::Io { error, .. } => is_of_the_address(error),
            },
            ServerError::Front(StartError::Io(_)) => false,
            ServerError::Api(
                ApiError::TokenNeeded { .. }
                | ApiError::BadToken { .. }
                | ApiError::ShortToken { .. }
                | ApiError::NoOtherToken
                | ApiError::NotBuilt { .. },
            ) => true,
            ServerError::Api(ApiError::Listen { error, .. }) => is_of_the_address(error),
            ServerError::Api(ApiError::InUse { .. } | ApiError::Threads { .. }) => false,
            ServerError::Record(error) => error.is_permanent(),
        }
    }
}

/// True if no program can listen there: the socket's folder is missing, its path is too long, or the port is
/// privileged.
fn is_of_the_address(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, InvalidInput, NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), AlreadyExists | NotFound | NotADirectory | PermissionDenied | InvalidInput)
}

/// A running server.
pub struct Server {
    config: ServerConfig,
    api: Option<Api>,
    front: front::Server,
    /// By their names. Deleted volumes and pools are removed.
    volumes: Vec<(String, Opened)>,
    pools: Vec<(String, Opened)>,
    served: Arc<Served>,
    recorder: Option<Arc<Recorder>>,
}

impl Server {
    /// Opens the volumes and serves them. On failure the opened volumes are closed in order. `progress` gets the volume
    /// being opened, and the number of its erase units read and in total.
    pub fn start(config: &ServerConfig, progress: &(dyn Fn(&str, u64, u64) + Sync)) -> Result<Server, ServerError> {
        files::raise_limit(config.limits.connections_max);
        let options = options(config)?;
        // Before flash is created, opened and recovered, so that an unavailable address changes nothing.
        let listening = Listeners::at(config)?;
        let mut config = config.clone();
        finish_deletions(&mut config);
        let config = &config;
        let (mut volumes, mut pools) = (Vec::new(), Vec::new());
        let started = check_pools(config).and_then(|()| {
            let mut made = Unopened::default();
            let failed = open_volumes(config, &mut volumes, &mut made, progress);
            let failed_pools = open_pools(config, &mut pools, &mut made, progress);
            let unserved = unopened(volumes.len() + pools.len(), failed, made, failed_pools)?;
            serve(config, options, listening, &volumes, &pools, unserved)
        });
        match started {
            Ok(Started { front, api, recorder, served }) => {
                let pools = pools.into_iter().map(|(pool, opened)| (pool.name().to_owned(), opened)).collect();
                let volumes = volumes.into_iter().map(|(volume, opened)| (volume.config().name.clone(), opened));
                let volumes = volumes.collect();
                Ok(Server { config: config.clone(), api, front, volumes, pools, served, recorder })
            }
            Err(error) => {
                // Later errors are ignored: the first one is the cause.
                pools.iter().for_each(|(pool, _)| drop(pool.close()));
                volumes.iter().for_each(|(volume, _)| drop(volume.close()));
                Err(error)
            }
        }
    }

    /// Returns the configuration at its start.
    pub(crate) fn config(&self) -> &ServerConfig {
        &self.config
    }

    pub(crate) fn front(&self) -> &front::Server {
        &self.front
    }

    pub(crate) fn api_server(&self) -> Option<&Api> {
        self.api.as_ref()
    }

    /// Returns the names of the initial volumes, and how each was opened.
    pub fn volumes(&self) -> &[(String, Opened)] {
        &self.volumes
    }

    /// Returns everything that is served, including later additions.
    pub fn served(&self) -> Arc<Served> {
        self.served.clone()
    }

    /// Returns the names of the pools at its start, and how each was opened.
    pub fn pools(&self) -> &[(String, Opened)] {
        &self.pools
    }

    /// Returns the URIs of a volume.
    pub fn uris(&self, volume: &str) -> Vec<String> {
        self.front.uris(volume)
    }

    /// Returns the file names of the recording, if any, with NUMBER for the number.
    pub fn recording(&self) -> Option<String> {
        self.recorder.as_ref().map(|recorder| recorder.pattern())
    }

    /// Returns the address of the management API, if enabled.
    pub fn api(&self) -> Option<&Address> {
        self.api.as_ref().map(Api::address)
    }

    /// Ends connections within `grace`, then flushes and closes the volumes.
    pub fn stop(self, grace: Duration) -> Result<(), ServerError> {
        if let Some(api) = self.api {
            api.stop();
        }
        self.front.stop(grace);
        // Every volume is closed, even after a failure of an earlier one.
        let pools: Vec<_> = self.served.pools().iter().map(|pool| pool.close()).collect();
        let closed: Vec<_> = self.served.own_volumes().iter().map(|volume| volume.close()).collect();
        let recorded = self.recorder.map(|recorder| recorder.finish()).transpose();
        closed.into_iter().collect::<Result<(), VolumeError>>()?;
        pools.into_iter().collect::<Result<(), OpenError>>()?;
        recorded?;
        Ok(())
    }
}

/// Opens the volumes. A failure does not prevent the others from being served. Returns the configured ones that failed;
/// `made` gets those created by a running server.
fn open_volumes(
    config: &ServerConfig,
    volumes: &mut Vec<(Arc<Volume>, Opened)>,
    made: &mut Unopened,
    progress: &(dyn Fn(&str, u64, u64) + Sync),
) -> Vec<(String, ServerError)> {
    let mut failed = Vec::new();
    for volume in &config.volumes {
        let missing = config.missing.iter().find(|(name, _)| *name == volume.name);
        let opened = match missing {
            Some((_, problem)) => Err(ServerError::Missing(problem.clone())),
            None => Volume::open(volume.clone(), &|done, all| progress(&volume.name, done, all)).map_err(Into::into),
        };
        match opened {
            Ok(opened) => volumes.push(opened),
            Err(error) if config.is_made(&volume.name) => {
                let file = Kind::Volume.path(&config.state_directory);
                let reason = match missing {
                    Some((_, problem)) => problem.clone(),
                    None => format!("{error}; {} has it", file.display()),
                };
                tracing::error!(event = "not-served", volume = volume.name, error = reason, "the volume is not served");
                made.volumes.push(Unserved { name: volume.name.clone(), reason, made: true });
            }
            Err(error) => failed.push((volume.name.clone(), error)),
        }
    }
    failed
}

/// Returns the volumes and pools that could not be opened, if others could. If none could, returns the first error.
fn unopened(
    opened: usize,
    volumes: Vec<(String, ServerError)>,
    mut pools: Unopened,
    failed_pools: Vec<(String, ServerError)>,
) -> Result<Unopened, ServerError> {
    if opened == 0 && pools.pools.is_empty() && pools.volumes.is_empty() {
        if let Some((_, error)) = volumes.into_iter().chain(failed_pools).next() {
            return Err(error);
        }
        return Ok(pools);
    }
    let unserved = |kind: &str, (name, error): (String, ServerError)| {
        let reason = format!("{error}; the server opens it when it starts again");
        match kind {
            "pool" => tracing::error!(event = "not-served", pool = name, error = reason, "the pool is not served"),
            _ => tracing::error!(event = "not-served", volume = name, error = reason, "the volume is not served"),
        }
        Unserved { name, reason, made: false }
    };
    pools.volumes.extend(volumes.into_iter().map(|failed| unserved("volume", failed)));
    pools.pools.extend(failed_pools.into_iter().map(|failed| unserved("pool", failed)));
    Ok(pools)
}

/// Rejects wrong disks of pools, and logical disks with names of other exports, before anything is written to a disk.
fn check_pools(config: &ServerConfig) -> Result<(), ServerError> {
    if config.pools.len() + config.volumes.len() < 2 {
        return Ok(());
    }
    let names = config.volumes.iter().flat_map(|volume| std::iter::once(&volume.name).chain(&volume.aliases));
    let mut names: BTreeSet<String> = names.cloned().collect();
    for pool in &config.pools {
        let of_pool = match Pool::names(pool) {
            Ok(names) => names,
            // It is not opened either.
            Err(_) => continue,
        };
        for name in of_pool {
            if !names.insert(name.clone()) {
                return Err(ServerError::NameTaken { pool: pool.cache.name.clone(), name });
            }
        }
    }
    Ok(())
}

/// Opens the pools. Returns the configured ones that failed; `made` gets those created by a running server.
fn open_pools(
    config: &ServerConfig,
    pools: &mut Vec<(Arc<Pool>, Opened)>,
    made: &mut Unopened,
    progress: &(dyn Fn(&str, u64, u64) + Sync),
) -> Vec<(String, ServerError)> {
    let mut failed = Vec::new();
    for pool in &config.pools {
        let name = &pool.cache.name;
        match Pool::open(pool.clone(), &|done, all| progress(name, done, all)) {
            Ok((pool, opened)) => pools.push((Arc::new(pool), opened)),
            // It may be the only one: an operator repairs it while the server runs.
            Err(error) if config.is_made(name) => {
                let file = Kind::Pool.path(&config.state_directory);
                let file = file.display();
                let lacks_disks = matches!(&error, OpenError::Pool(PoolError::Missing { .. } | PoolError::Gone { .. }));
                let hint = match (pool.degraded, &error) {
                    (false, _) if lacks_disks => ", and it may have \"degraded\": \"true\" among its settings there",
                    (true, OpenError::Pool(_)) => "; remove disks that do not belong to it from its disks there",
                    _ => "",
                };
                let reason = format!("{error}; {file} has it{hint}");
                tracing::error!(event = "not-served", pool = name, error = reason, "the pool is not served");
                made.pools.push(Unserved { name: name.clone(), reason, made: true });
            }
            Err(error) => failed.push((name.clone(), error.into())),
        }
    }
    failed
}

/// The sockets of a server that does not serve yet.
struct Listeners {
    front: front::Listening,
    api: Option<manage::Listening>,
}

impl Listeners {
    fn at(config: &ServerConfig) -> Result<Listeners, ServerError> {
        let endpoints = config.listen.iter().map(|uri| Ok(uri.parse::<Uri>()?.endpoint));
        let front = front::Listening::at(&endpoints.collect::<Result<Vec<Endpoint>, UriError>>()?)?;
        let tokens = tokens(config)?;
        let api = |address: &str| Ok::<_, ServerError>(manage::Listening::at(&address.parse()?, tokens)?);
        let api = config.api.address().map(api).transpose()?;
        Ok(Listeners { front, api })
    }
}

/// The parts of a running server.
struct Started {
    front: front::Server,
    api: Option<Api>,
    recorder: Option<Arc<Recorder>>,
    served: Arc<Served>,
}

fn serve(
    config: &ServerConfig,
    options: front::Options,
    listening: Listeners,
    volumes: &[(Arc<Volume>, Opened)],
    pools: &[(Arc<Pool>, Opened)],
    unserved: Unopened,
) -> Result<Started, ServerError> {
    let recorder = match &config.record {
        Some(path) => {
            let of_pools = pools.iter().map(|(pool, _)| pool.volume());
            let recorded: Vec<&Arc<Volume>> = volumes.iter().map(|(volume, _)| volume).chain(of_pools).collect();
            let names: Vec<String> = recorded.iter().map(|volume| volume.config().name.clone()).collect();
            let recorder = Arc::new(Recorder::start(path, config.record_limits, &names)?);
            recorded.iter().zip(0..).for_each(|(volume, number)| volume.record(recorder.clone(), number));
            Some(recorder)
        }
        None => None,
    };
    let exports = Exports::default();
    for (volume, _) in volumes {
        assert!(exports.add(&volume.config().name, volume.clone()), "names of volumes were checked");
        for alias in &volume.config().aliases {
            assert!(exports.add_alias(alias, volume.clone()), "aliases were checked");
        }
    }
    for (pool, _) in pools {
        for (name, disk) in pool.logical_disks() {
            if !exports.add(&name, disk) {
                return Err(ServerError::NameTaken { pool: pool.name().to_owned(), name });
            }
        }
    }
    for Assignment { export, .. } in &config.iscsi.assignments {
        if exports.find(export).is_none() {
            tracing::warn!(
                event = "export-missing",
                export,
                "[iscsi] assign: no such export exists yet; the assignment applies once it does"
            );
        }
    }
    let assignments = &options.iscsi.assignments;
    for config in volumes.iter().map(|(volume, _)| volume.config()) {
        let mut aliases = config.aliases.iter();
        aliases.try_for_each(|alias| assignments.follow(alias, &config.name)).map_err(ServerError::Assignments)?;
    }
    for export in assignments.given().iter().filter(|export| exports.find(export).is_none()) {
        tracing::warn!(event = "export-missing", export, "clients were assigned to an export that does not exist");
    }
    for export in assignments.given().iter().filter(|_| !config.tls.asks_clients()) {
        if assignments.of(export).is_some_and(|assigned| front::names_certificates(&assigned)) {
            tracing::warn!(
                event = "export-unreachable",
                export,
                "no NBD client can open the export: it is assigned to clients with certificates, and [tls] has no \
                 client-authorities"
            );
        }
    }
    // The cache of a pool is a volume like others, except that it has no clients.
    let own = volumes.iter().map(|(volume, _)| volume.clone()).collect();
    let served = Arc::new(Served::new(own, pools.iter().map(|(pool, _)| pool.clone()).collect(), unserved));
    let access = options.iscsi.clone();
    let front = front::Server::serve(listening.front, exports.clone(), options)?;
    let api = match listening.api {
        Some(api) => {
            let load = Load { counters: front.counters().clone(), budget: front.budget().clone() };
            let listening = front.uris("");
            let insecure = config.open_to_all().cloned().collect();
            let portals = front.endpoints().iter().filter(|endpoint| endpoint.protocol.guarded);
            let portals = portals.map(|endpoint| endpoint.uri(false, "")).collect();
            let assignments = Arc::clone(&access.assignments);
            let clients = ServedClients::new(served.clone(), exports.clone(), front.connections(), access, portals);
            let making = Arc::new(Making::new(config.clone()));
            let reach = || Reach::of(config);
            let own = ServedVolumes::new(served.clone(), making.clone(), exports.clone(), assignments.clone(), reach());
            let pools = ServedPools::new(served.clone(), making, exports, assignments, reach());
            let volumes =
                Volumes::new(served.clone(), listening, insecure, load, recorder.clone(), (own, pools), clients);
            // Without a state directory, there is no history.
            let history = config.state_directory.is_dir().then(|| config.state_directory.join("history.redb"));
            Some(Api::serve(api, history, config.alerts.clone(), Arc::new(volumes))?)
        }
        None => None,
    };
    Ok(Started { front, api, recorder, served })
}

/// Reads the token files, if any.
pub(crate) fn tokens(config: &ServerConfig) -> Result<Tokens, ServerError> {
    let read = |path: &PathBuf| {
        let text = secret::read(path).map_err(|error| ServerError::Token { path: path.clone(), error })?;
        Ok::<_, ServerError>(text.trim().to_owned())
    };
    let of = |path: &Option<PathBuf>| path.as_ref().map(read).transpose();
    Ok(Tokens { change: of(&config.api.token_file)?, read: of(&config.api.read_token_file)? })
}

/// Returns the files of TLS, unless it is off.
pub(crate) fn tls_files(config: &ServerConfig) -> Option<TlsFiles> {
    let tls = &config.tls;
    let (certificate, key) = (tls.certificate.clone()?, tls.key.clone()?);
    let client_authorities = tls.client_authorities.clone();
    (tls.mode != TlsMode::Off).then_some(TlsFiles { certificate, key, client_authorities })
}

/// Reads the options of iSCSI, with the secrets, and the assignments of exports.
fn iscsi(config: &ServerConfig) -> Result<front::Iscsi, ServerError> {
    let iscsi = &config.iscsi;
    let credentials = |name: &Option<String>, path: &Option<PathBuf>| -> Result<_, ServerError> {
        let (Some(name), Some(path)) = (name, path) else { return Ok(None) };
        let refuse = |error| ServerError::Secret { path: path.clone(), error };
        Ok(Some(Credentials { name: name.clone(), secret: read_secret(path).map_err(refuse)? }))
    };
    let assigned = iscsi.assignments.clone();
    // If the directory is not readable, nothing was saved there. Nothing needs to be, if no client can be named.
    let are_named = |uri: &String| uri.parse().is_ok_and(|uri: Uri| uri.endpoint.protocol.guarded);
    let are_named = config.tls.asks_clients() || config.listen.iter().any(are_named);
    let assignments = match are_named || kept::can_look_into(&config.state_directory) {
        true => front::Assignments::open(assigned, config.state_directory.join("assignments.json")),
        false => Ok(assigned.into()),
    };
    let assignments = assignments.map_err(ServerError::Assignments)?;
    Ok(front::Iscsi {
        initiators: iscsi.initiators.clone(),
        read_only_initiators: iscsi.read_only_initiators.clone(),
        assignments: Arc::new(assignments),
        chap: credentials(&iscsi.chap_name, &iscsi.chap_secret_file)?,
        mutual_chap: credentials(&iscsi.mutual_chap_name, &iscsi.mutual_chap_secret_file)?,
        state_directory: Some(config.state_directory.clone()),
    })
}

fn options(config: &ServerConfig) -> Result<front::Options, ServerError> {
    let tls = match (config.tls.mode, tls_files(config)) {
        (TlsMode::Off, _) => Tls::Off,
        (TlsMode::Required, Some(files)) => Tls::Required(files.load()?),
        (TlsMode::Allowed, Some(files)) => Tls::Allowed(files.load()?),
        (_, None) => unreachable!("a configuration with TLS has a certificate and a key"),
    };
    Ok(front::Options {
        tls,
        iscsi: iscsi(config)?,
        connections_max: config.limits.connections_max,
        handshake_time_max: Duration::from_micros(config.limits.handshake_time_max_us),
        requests_in_flight_max: config.limits.requests_in_flight_max,
        bytes_in_flight_max: config.limits.bytes_in_flight_max,
        memory_max: config.limits.memory_max,
        ..front::Options::default()
    })
}
