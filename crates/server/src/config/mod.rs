//! The configuration of a server: a TOML file (TOML 1.1), or flags for one volume.
//!
//! | file | contents |
//! | --- | --- |
//! | `keys.rs` | every key, its default and its setting |
//! | `document.rs` | parsing of TOML into tables, keys and values with their lines |
//! | `changes.rs` | differences between two configurations |
//! | `made.rs` | volumes and pools that a running server created |
//! | `consistency.rs` | checks between keys |
//! | `files.rs` | checks of files and devices |

mod changes;
mod consistency;
mod document;
mod files;
pub mod keys;
mod kind;
pub mod made;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use flashwise_core::format::Layout;
use flashwise_core::options::{Given, nearest, suggestion};

use tracing::level_filters::LevelFilter;

use document::{Entry, Tables};
use flashwise_storage::attach::stores::default_state_directory;
use flashwise_storage::pool::PoolConfig;
use flashwise_storage::record;
use flashwise_storage::volume::VolumeConfig;
use keys::{ALERT_KEYS, API_KEYS, ISCSI_KEYS, Key, LIMITS_KEYS, POOL_KEYS, SERVER_KEYS, TLS_KEYS, VOLUME_KEYS};

use crate::front;
use crate::manage::{AlertOptions, default_socket};
use crate::secret::{self, CONFIGURATION_BYTES_MAX};

/// An error message: the value found and the value expected.
pub type Problem = String;

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where clients connect, as NBD or iSCSI URIs without an export.
    pub listen: Vec<String>,
    /// True if NBD without certificates may listen where other machines can connect.
    pub insecure: bool,
    /// The path that [names](flashwise_storage::record::segments::Names) the files of the recording, if requests are
    /// recorded.
    pub record: Option<PathBuf>,
    /// Directory for the records of backends that have no room for their own.
    pub state_directory: PathBuf,
    /// The least severe level that is logged on standard error.
    pub log_level: LevelFilter,
    /// Limits of the recording.
    pub record_limits: record::Limits,
    /// The management API.
    pub api: Api,
    /// Encryption of NBD connections.
    pub tls: Tls,
    /// Limits for clients.
    pub limits: Limits,
    /// Access over iSCSI.
    pub iscsi: Iscsi,
    /// Destinations and thresholds of alerts.
    pub alerts: AlertOptions,
    /// The volumes of the configuration, then those [created by a running server](made).
    pub volumes: Vec<VolumeConfig>,
    /// The pools of the configuration, then those [created by a running server](made).
    pub pools: Vec<PoolConfig>,
    /// All volumes in the file of the state directory, including those that a table of the configuration replaces.
    pub made_volumes: Vec<made::Made>,
    /// All pools in the file of the state directory, including those that a table of the configuration replaces.
    pub made_pools: Vec<made::Made>,
    /// The names of volumes whose backend or flash device does not exist, with the error. Empty unless there are other
    /// volumes or pools.
    pub missing: Vec<(String, String)>,
    /// The configuration file, or `None` for flags.
    pub path: Option<PathBuf>,
    /// The parsed tables, to compare them with a newer configuration.
    given: Tables,
}

/// The management API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Api {
    /// `HOST:PORT`, `unix:PATH`, or `off`.
    pub listen: String,
    /// The file with the token that clients must send.
    pub token_file: Option<PathBuf>,
    /// The file with the token for read-only access.
    pub read_token_file: Option<PathBuf>,
    /// The directories whose files requests may name. `None` means the directories of the files in the configuration.
    pub directories: Option<Vec<PathBuf>>,
}

impl Api {
    /// Returns the address, or `None` if the API is off.
    pub fn address(&self) -> Option<&str> {
        (self.listen != "off").then_some(self.listen.as_str())
    }
}

/// Encryption of NBD connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// Never.
    #[default]
    Off,
    /// If the client requests it.
    Allowed,
    /// Always.
    Required,
}

/// Encryption of NBD connections; files are in PEM format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// When connections are encrypted.
    pub mode: TlsMode,
    /// The server's certificate; set unless `mode` is off.
    pub certificate: Option<PathBuf>,
    /// Its private key; set unless `mode` is off.
    pub key: Option<PathBuf>,
    /// Authorities that must have signed the certificates of clients.
    pub client_authorities: Option<PathBuf>,
}

impl ServerConfig {
    /// Returns the addresses that other machines can reach without authentication.
    pub fn open_to_all(&self) -> impl Iterator<Item = &String> {
        let shows_who = self.tls.mode == TlsMode::Required && self.tls.client_authorities.is_some();
        let is_open =
            move |uri: &front::Uri| !(uri.endpoint.protocol.guarded || uri.endpoint.address.is_local() || shows_who);
        self.listen.iter().filter(move |text| text.parse().is_ok_and(|uri| is_open(&uri)))
    }
}

impl Tls {
    /// True if clients can authenticate with certificates.
    pub fn asks_clients(&self) -> bool {
        self.mode != TlsMode::Off && self.client_authorities.is_some()
    }
}

/// Limits for clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of connections.
    pub connections_max: usize,
    /// Maximum number of unanswered requests per connection.
    pub requests_in_flight_max: usize,
    /// Maximum number of bytes that the requests and answers of one connection hold.
    pub bytes_in_flight_max: usize,
    /// Maximum number of bytes that the requests and answers of all connections hold.
    pub memory_max: usize,
    /// Time in which a client must open an export.
    pub handshake_time_max_us: u64,
}

/// Access over iSCSI, and authentication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Iscsi {
    /// Names of the initiators that may log in; `None` admits all.
    pub initiators: Option<Vec<String>>,
    /// Names of read-only initiators.
    pub read_only_initiators: Vec<String>,
    /// Exports that only their assigned clients can open.
    pub assignments: Vec<crate::front::Assignment>,
    /// The CHAP name of initiators.
    pub chap_name: Option<String>,
    /// The file with the CHAP secret of initiators.
    pub chap_secret_file: Option<PathBuf>,
    /// The CHAP name of the target.
    pub mutual_chap_name: Option<String>,
    /// The file with the CHAP secret of the target.
    pub mutual_chap_secret_file: Option<PathBuf>,
}

impl Iscsi {
    /// True if access is limited to named or authenticated initiators.
    pub fn guards(&self) -> bool {
        self.initiators.is_some() || self.chap_secret_file.is_some()
    }
}

/// An error in a configuration.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ConfigError {
    #[error("{path}: the configuration cannot be read")]
    Read { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Kept(io::Error),
    #[error("{path}:{line}: {message}")]
    Syntax { path: PathBuf, line: usize, message: String },
    #[error("{place}: unknown key{}; expected one of: {}", suggestion(.near), .expected.join(", "))]
    UnknownKey { place: Place, near: Option<&'static str>, expected: Vec<&'static str> },
    #[error("{place}: is missing; expected {expected}")]
    Missing { place: Place, expected: &'static str },
    #[error("{place}: {problem}")]
    Value { place: Place, problem: Problem },
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<ConfigError>),
}

impl ConfigError {
    /// Returns an error if there is any.
    fn refuse_if_any(mut wrong: Vec<ConfigError>) -> Result<(), ConfigError> {
        match wrong.len() {
            0 => Ok(()),
            1 => Err(wrong.remove(0)),
            _ => Err(ConfigError::Several(wrong)),
        }
    }
}

/// A position in a configuration, for error messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A key in a file.
    Key {
        /// The file.
        path: PathBuf,
        /// Its line, if the file has the key.
        line: Option<usize>,
        /// The table in brackets; empty for the keys before the first table.
        table: String,
        /// The key.
        key: String,
    },
    /// A flag.
    Flag(String),
    /// A key of a volume or a pool that a running server created.
    Made {
        /// Its file, if it exists yet.
        path: Option<PathBuf>,
        /// Volume or pool.
        kind: made::Kind,
        /// Its name.
        name: String,
        /// The key.
        key: String,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Flag(flag) => write!(f, "--{flag}"),
            Place::Made { path: Some(path), kind, name, key } => {
                write!(f, "{}: {kind} '{name}' {key}", path.display())
            }
            Place::Made { path: None, kind, name, key } => write!(f, "{kind} '{name}' {key}"),
            Place::Key { path, line, table, key } => {
                write!(f, "{}:", path.display())?;
                if let Some(line) = line {
                    write!(f, "{line}:")?;
                }
                let table = if table.is_empty() { String::new() } else { format!("{table} ") };
                write!(f, " {table}{key}")
            }
        }
    }
}

/// A table of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Server,
    Api,
    Tls,
    Limits,
    Iscsi,
    Alerts,
    Volume(usize),
    Pool(usize),
}

/// The source of a configuration, for the positions in error messages.
struct Origin<'a> {
    path: Option<&'a Path>,
    tables: &'a Tables,
}

impl Origin<'_> {
    fn place(&self, section: Section, key: &str) -> Place {
        if let Some((kind, path)) = self.made(section) {
            let entries = self.tables.entries(section);
            let name = entries.iter().find(|entry| entry.key == "name").and_then(|entry| entry.value.text().ok());
            return Place::Made {
                path: path.clone(),
                kind,
                name: name.unwrap_or_default().to_owned(),
                key: key.to_owned(),
            };
        }
        let Some(path) = self.path else {
            let flag = match (section, key) {
                (Section::Api, "listen") => "api".to_owned(),
                (Section::Api, key) => format!("api-{key}"),
                (_, key) => key.to_owned(),
            };
            return Place::Flag(flag);
        };
        let table = match section {
            Section::Server => String::new(),
            Section::Api => "[api]".to_owned(),
            Section::Tls => "[tls]".to_owned(),
            Section::Limits => "[limits]".to_owned(),
            Section::Iscsi => "[iscsi]".to_owned(),
            Section::Alerts => "[alerts]".to_owned(),
            Section::Volume(number) => self.one_of("volume", section, number),
            Section::Pool(number) => self.one_of("pool", section, number),
        };
        let line = match (self.tables.entries(section).iter().find(|entry| entry.key == key), section) {
            (Some(entry), _) => entry.line,
            (None, Section::Volume(number)) => self.tables.volume_lines.get(number).copied(),
            (None, Section::Pool(number)) => self.tables.pool_lines.get(number).copied(),
            (None, _) => None,
        };
        Place::Key { path: path.to_owned(), line, table, key: key.to_owned() }
    }

    /// Returns the kind and the file of a volume or pool that is not in the document.
    fn made(&self, section: Section) -> Option<(made::Kind, &Option<PathBuf>)> {
        let (kind, number) = match section {
            Section::Volume(number) => (made::Kind::Volume, number),
            Section::Pool(number) => (made::Kind::Pool, number),
            _ => return None,
        };
        self.tables.made.get(&(kind, number)).map(|path| (kind, path))
    }

    /// True if an earlier run created this, so that its failure must not prevent others from being served.
    fn was_made(&self, section: Section) -> bool {
        self.made(section).is_some_and(|(_, path)| path.is_some())
    }

    /// Formats one of several tables: by its name, or else by its number.
    fn one_of(&self, table: &str, section: Section, number: usize) -> String {
        let entries = self.tables.entries(section);
        match entries.iter().find(|entry| entry.key == "name").and_then(|entry| entry.value.text().ok()) {
            Some(name) => format!("[[{table}]] '{}'", name.escape_debug()),
            None => format!("[[{table}]] number {}", number + 1),
        }
    }

    fn refuse(&self, section: Section, key: &str, problem: Problem) -> ConfigError {
        ConfigError::Value { place: self.place(section, key), problem }
    }

    fn missing(&self, section: Section, key: &str, expected: &'static str) -> ConfigError {
        ConfigError::Missing { place: self.place(section, key), expected }
    }

    /// Sets the defaults of `keys`, then the values of the table. Adds errors to `wrong`.
    fn apply<T>(&self, section: Section, keys: &[Key<T>], target: &mut T, wrong: &mut Vec<ConfigError>) {
        for key in keys {
            if let Some(default) = &key.default {
                let result = key.set(target, &Given::from(&**default));
                assert_eq!(result, Ok(()), "the default of {} is valid", key.name);
            }
        }
        for Entry { key, value, .. } in self.tables.entries(section) {
            let Some(known) = keys.iter().find(|known| known.name == key) else {
                let expected: Vec<_> = keys.iter().map(|key| key.name).collect();
                let near = nearest(key, &expected);
                wrong.push(ConfigError::UnknownKey { place: self.place(section, key), near, expected });
                continue;
            };
            wrong.extend(known.set(target, value).err().map(|problem| self.refuse(section, key, problem)));
        }
    }
}

impl ServerConfig {
    /// Reads and checks a configuration file. Adds the volumes and pools that a running server created, from the state
    /// directory.
    pub fn read(path: &Path) -> Result<ServerConfig, ConfigError> {
        ServerConfig::read_with(path, ServerConfig::checked)
    }

    /// Like [`read`](Self::read), without checks of the named files: a command that uses some files must not fail
    /// because of others.
    pub fn read_alone(path: &Path) -> Result<ServerConfig, ConfigError> {
        ServerConfig::read_with(path, ServerConfig::consistent)
    }

    fn read_with(
        path: &Path,
        check: impl FnOnce(&Origin<'_>) -> Result<ServerConfig, ConfigError>,
    ) -> Result<ServerConfig, ConfigError> {
        let text = secret::read_public(path, CONFIGURATION_BYTES_MAX)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let mut tables = Tables::parse(path, &text)?;
        let folder = tables.entries(Section::Server).iter().find(|entry| entry.key == "state-directory");
        let folder = folder.and_then(|entry| entry.value.text().ok());
        let folder = folder.map_or_else(default_state_directory, PathBuf::from);
        let mut kept = Vec::new();
        for kind in made::Kind::ALL {
            let all = match made::read(&folder, kind) {
                // A later check of the state directory reports this file with its key.
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => Vec::new(),
                all => all.map_err(ConfigError::Kept)?,
            };
            all.iter().for_each(|made| tables.add_made(kind, made, Some(kind.path(&folder))));
            kept.push(all);
        }
        let config = check(&Origin { path: Some(path), tables: &tables })?;
        let mut kept = kept.into_iter();
        let mut next = || kept.next().unwrap_or_default();
        Ok(ServerConfig { made_volumes: next(), made_pools: next(), ..config })
    }

    /// Parses a configuration in TOML. Reads no files except descriptions of devices. Error messages name `path`.
    pub fn parse(path: &Path, text: &str) -> Result<ServerConfig, ConfigError> {
        let tables = Tables::parse(path, text)?;
        ServerConfig::consistent(&Origin { path: Some(path), tables: &tables })
    }

    /// Creates the configuration of a server with one volume from flags: keys without dashes, with values.
    pub fn from_flags(flags: Flags) -> Result<ServerConfig, ConfigError> {
        let tables = Tables::from_flags(flags);
        ServerConfig::checked(&Origin { path: None, tables: &tables })
    }

    fn checked(origin: &Origin<'_>) -> Result<ServerConfig, ConfigError> {
        let mut config = ServerConfig::consistent(origin)?;
        files::check(&mut config, origin)?;
        Ok(config)
    }

    fn consistent(origin: &Origin<'_>) -> Result<ServerConfig, ConfigError> {
        let mut config = ServerConfig {
            listen: Vec::new(),
            insecure: false,
            record: None,
            state_directory: default_state_directory(),
            log_level: LevelFilter::OFF,
            record_limits: record::Limits { segment_bytes_max: 0, total_bytes_max: 0 },
            api: Api::default(),
            tls: Tls::default(),
            limits: Limits::default(),
            iscsi: Iscsi::default(),
            alerts: AlertOptions::default(),
            volumes: Vec::new(),
            pools: Vec::new(),
            made_volumes: Vec::new(),
            made_pools: Vec::new(),
            missing: Vec::new(),
            path: origin.path.map(Path::to_owned),
            given: origin.tables.clone(),
        };
        let mut wrong = Vec::new();
        origin.apply(Section::Server, SERVER_KEYS, &mut config, &mut wrong);
        origin.apply(Section::Api, API_KEYS, &mut config, &mut wrong);
        origin.apply(Section::Tls, TLS_KEYS, &mut config, &mut wrong);
        origin.apply(Section::Limits, LIMITS_KEYS, &mut config, &mut wrong);
        origin.apply(Section::Iscsi, ISCSI_KEYS, &mut config, &mut wrong);
        origin.apply(Section::Alerts, ALERT_KEYS, &mut config, &mut wrong);
        for number in 0..origin.tables.volumes.len() {
            let mut volume = VolumeConfig::of("", Path::new(""), Path::new(""));
            origin.apply(Section::Volume(number), &VOLUME_KEYS, &mut volume, &mut wrong);
            // Buckets have RAM only if it is configured.
            let has_ram = origin.tables.entries(Section::Volume(number)).iter().any(|entry| entry.key == "ram");
            if volume.layout.number() == Layout::Wlfc && !has_ram {
                volume.cache.read("ram", "0").expect("a volume may have no RAM");
            }
            volume.state_directory.clone_from(&config.state_directory);
            config.volumes.push(volume);
        }
        for number in 0..origin.tables.pools.len() {
            let cache = VolumeConfig::of("", Path::new(""), Path::new(""));
            let mut pool = PoolConfig { disks: Vec::new(), degraded: false, cache };
            origin.apply(Section::Pool(number), &POOL_KEYS, &mut pool, &mut wrong);
            pool.cache.state_directory.clone_from(&config.state_directory);
            config.pools.push(pool);
        }
        if config.api.listen.is_empty() {
            let socket = || format!("unix:{}", default_socket(&config.state_directory).display());
            config.api.listen = if cfg!(feature = "http") { socket() } else { "off".to_owned() };
        }
        // Checks between keys need valid values of each key.
        ConfigError::refuse_if_any(wrong)?;
        ConfigError::refuse_if_any(consistency::check(&config, origin))?;
        Ok(config)
    }
}

/// A configuration by flags.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// Where clients connect.
    pub listen: Vec<String>,
    /// Keys of the server itself.
    pub server: Vec<(&'static str, String)>,
    /// Keys of the API.
    pub api: Vec<(&'static str, String)>,
    /// Keys of the volume.
    pub volume: Vec<(&'static str, String)>,
}

#[cfg(test)]
mod tests;
