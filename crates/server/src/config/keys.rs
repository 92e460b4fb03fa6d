//! The keys of a configuration: one row each, with its default and the setting it assigns. `docs/flashwise.toml`
//! explains them to users.
// Each row of a table is one line.
#![allow(clippy::unit_arg)]

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use flashwise_core::cache::settings::{SETTINGS, Setting, Settings};
use flashwise_core::format::{BLOCK_BYTES, Layout};
use flashwise_core::options::{Given, Kind, OptionError};
use flashwise_core::quantity::Duration;
use flashwise_core::tiers::Tier;
use flashwise_device::{ArrayError, tier_of_option};

use tracing::level_filters::LevelFilter;

use super::Problem;
use super::{ServerConfig, TlsMode};
use crate::front::check_client;
use crate::front::iscsi::names;
use flashwise_storage::disk::zoned::zoning::Zoning;
use flashwise_storage::journal;
use flashwise_storage::layout::LAYOUTS;
use flashwise_storage::pool::PoolConfig;
use flashwise_storage::pool::metadata::check_name;
use flashwise_storage::record::{self, LIMIT_BYTES_MIN};
use flashwise_storage::volume::VolumeConfig;

/// A key of a table of the configuration.
pub struct Key<T> {
    /// Its name.
    pub name: &'static str,
    /// The default, as in TOML without quotes; `None` for a key that is optional or required.
    pub default: Option<Cow<'static, str>>,
    set: Set<T>,
}

/// How a key is set.
enum Set<T> {
    /// By a function, which also sets the default.
    By(fn(&mut T, &Given) -> Result<(), Problem>),
    /// As a setting of the cache, which has its own default.
    Setting(&'static Setting, fn(&mut T) -> &mut Settings),
    /// As a key of the volume inside a pool.
    Inside(fn(&mut VolumeConfig, &Given) -> Result<(), Problem>, fn(&mut T) -> &mut VolumeConfig),
}

impl<T> Key<T> {
    /// Assigns a value to the setting.
    pub fn set(&self, target: &mut T, value: &Given) -> Result<(), Problem> {
        match &self.set {
            Set::By(set) => set(target, value),
            Set::Setting(setting, settings) => {
                let value = setting.read(value).map_err(|error| error.problem)?;
                settings(target).set(setting, value);
                Ok(())
            }
            Set::Inside(set, inside) => set(inside(target), value),
        }
    }
}

impl<T> std::fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("name", &self.name).field("default", &self.default).finish_non_exhaustive()
    }
}

const fn key<T>(
    name: &'static str,
    default: Option<&'static str>,
    set: fn(&mut T, &Given) -> Result<(), Problem>,
) -> Key<T> {
    let default = match default {
        Some(default) => Some(Cow::Borrowed(default)),
        None => None,
    };
    Key { name, default, set: Set::By(set) }
}

/// A function that assigns a value to a field, as `read` reads it.
macro_rules! assign {
    ($($field:ident).+, |$value:ident| $read:expr) => {
        |target, $value| {
            target.$($field).+ = $read;
            Ok(())
        }
    };
}

/// A key of a field: its name, its default, the field, and how its value is read.
macro_rules! key {
    ($name:literal, $default:expr, $($field:ident).+, |$value:ident| $read:expr) => {
        key($name, $default, assign!($($field).+, |$value| $read))
    };
}

/// A key of a volume whose default comes from [`VolumeConfig::of`], formatted by `shown`.
fn made(
    name: &'static str,
    shown: fn(&VolumeConfig) -> String,
    set: fn(&mut VolumeConfig, &Given) -> Result<(), Problem>,
) -> Key<VolumeConfig> {
    let default = shown(&VolumeConfig::of("", Path::new(""), Path::new("")));
    Key { name, default: Some(Cow::Owned(default)), set: Set::By(set) }
}

/// Largest volume: its blocks have numbers of 32 bits.
pub const VOLUME_BYTES_MAX: u64 = 16 << 40;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// Largest limit of a recording.
const RECORD_BYTES_MAX: u64 = 1 << 50;

/// Keys before the first table.
pub const SERVER_KEYS: &[Key<ServerConfig>] = &[
    key!("listen", None, listen, |value| value.texts()?),
    key!("insecure", Some("false"), insecure, |value| value.boolean()?),
    key!("record", None, record, |value| Some(value.path()?)),
    key!("record-segment-size", Some(record::SEGMENT_SIZE), record_limits.segment_bytes_max, |value| value
        .blocks(Kind::Size(LIMIT_BYTES_MIN, RECORD_BYTES_MAX))?),
    key!("record-size-max", Some(record::SIZE_MAX), record_limits.total_bytes_max, |value| value
        .blocks(Kind::Size(LIMIT_BYTES_MIN, RECORD_BYTES_MAX))?),
    key!("state-directory", None, state_directory, |value| value.path()?),
    key!("log-level", Some("info"), log_level, |value| value.word(&LOG_LEVELS)?),
];

/// The words of the key `log-level`.
const LOG_LEVELS: [(&str, LevelFilter); 5] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
];

/// Keys of `[api]`.
pub const API_KEYS: &[Key<ServerConfig>] = &[
    key!("listen", None, api.listen, |value| value.text()?.to_owned()),
    key!("token-file", None, api.token_file, |value| Some(value.path()?)),
    key!("read-token-file", None, api.read_token_file, |value| Some(value.path()?)),
    key!("directories", None, api.directories, |value| Some(value.texts()?.into_iter().map(PathBuf::from).collect())),
];

/// The words of the key `mode` of `[tls]`.
pub const TLS_MODES: [(&str, TlsMode); 3] =
    [("off", TlsMode::Off), ("allowed", TlsMode::Allowed), ("required", TlsMode::Required)];

/// Keys of `[tls]`.
pub const TLS_KEYS: &[Key<ServerConfig>] = &[
    key!("mode", Some(TLS_MODES[0].0), tls.mode, |value| value.word(&TLS_MODES)?),
    key!("certificate", None, tls.certificate, |value| Some(value.path()?)),
    key!("key", None, tls.key, |value| Some(value.path()?)),
    key!("client-authorities", None, tls.client_authorities, |value| Some(value.path()?)),
];

/// Keys of `[limits]`.
pub const LIMITS_KEYS: &[Key<ServerConfig>] = &[
    key!("connections-max", Some("4096"), limits.connections_max, |value| value.count(1, 1 << 20)? as usize),
    key!("requests-in-flight-max", Some("128"), limits.requests_in_flight_max, |value| value.count(1, 1 << 16)?
        as usize),
    key!("bytes-in-flight-max", Some("64MiB"), limits.bytes_in_flight_max, |value| value
        .blocks(Kind::Size(32 << 20, 1 << 40))?
        as usize),
    key!("memory-max", Some("512MiB"), limits.memory_max, |value| value.blocks(Kind::Size(64 << 20, 1 << 40))?
        as usize),
    key!("handshake-time-max", Some("60s"), limits.handshake_time_max_us, |value| value
        .duration_us(Kind::ANY_DURATION)?),
];

/// Keys of `[iscsi]`.
pub const ISCSI_KEYS: &[Key<ServerConfig>] = &[
    key!("initiators", None, iscsi.initiators, |value| Some(initiators(value)?)),
    key!("read-only-initiators", None, iscsi.read_only_initiators, |value| initiators(value)?),
    key("assign", None, |server, value| {
        let texts = value.texts()?;
        server.iscsi.assignments = texts.iter().map(|text| text.parse()).collect::<Result<_, String>>()?;
        server.iscsi.assignments.iter().try_for_each(|assignment| check_client(&assignment.initiator))
    }),
    key!("chap-name", None, iscsi.chap_name, |value| Some(value.text()?.to_owned())),
    key!("chap-secret-file", None, iscsi.chap_secret_file, |value| Some(value.path()?)),
    key!("mutual-chap-name", None, iscsi.mutual_chap_name, |value| Some(value.text()?.to_owned())),
    key!("mutual-chap-secret-file", None, iscsi.mutual_chap_secret_file, |value| Some(value.path()?)),
];

/// Keys of `[alerts]`.
pub const ALERT_KEYS: &[Key<ServerConfig>] = &[
    key("webhook", None, |server, value| {
        let url = value.text()?.to_owned();
        let is_encrypted = url.starts_with("https://");
        if !is_encrypted && !url.starts_with("http://") {
            return Err(format!("found '{}', expected a URL that begins with https:// or http://", url.escape_debug()));
        }
        if is_encrypted && cfg!(not(feature = "tls")) {
            return Err(
                "found an https:// URL, expected http://: this server was built without the feature tls".to_owned()
            );
        }
        Ok(server.alerts.webhook = Some(url))
    }),
    key("mail", None, |server, value| {
        let addresses = value.texts()?;
        let is_address = |text: &String| {
            text.contains('@')
                && !text.starts_with('-')
                && text.chars().all(|letter| letter.is_ascii_graphic() && letter != ',')
        };
        if let Some(other) = addresses.iter().find(|text| !is_address(text)) {
            return Err(format!("found '{}', expected addresses such as ops@example.com", other.escape_debug()));
        }
        Ok(server.alerts.mail = addresses)
    }),
    key!("mail-command", Some("/usr/sbin/sendmail"), alerts.mail_command, |value| value.path()?),
    key!("detach-time", Some("1h"), alerts.detach_us_max, |value| value.duration_us(Kind::ANY_DURATION)?),
    key!("miss-latency", None, alerts.miss_p99_us_max, |value| Some(value.duration_us(Kind::ANY_DURATION)?)),
];

/// A cache or storage device: a name, the path of a TOML file, which is read, or either with changes.
fn device(value: &Given) -> Result<Tier, Problem> {
    tier_of_option(&value.to_string(), value.text()?).map_err(|error| match error {
        ArrayError::Io { path, source } => format!("found '{path}', which cannot be read: {source}"),
        error => error.to_string(),
    })
}

fn initiators(value: &Given) -> Result<Vec<String>, Problem> {
    let names = value.texts()?;
    check_initiators(names.iter())?;
    Ok(names)
}

fn check_initiators<'a>(mut names: impl Iterator<Item = &'a String>) -> Result<(), Problem> {
    match names.find(|name| !names::is_initiator(name)) {
        Some(name) => {
            Err(format!("found '{name}', expected names of initiators such as iqn.1993-08.org.debian:01:abc"))
        }
        None => Ok(()),
    }
}

/// Keys of each `[[volume]]`: devices, settings of the cache, and others.
pub static VOLUME_KEYS: LazyLock<Vec<Key<VolumeConfig>>> = LazyLock::new(|| {
    let of_setting = |setting: &'static Setting| Key {
        name: setting.name(),
        default: Some(Cow::Borrowed(setting.parameter.default)),
        set: Set::Setting(setting, |volume: &mut VolumeConfig| &mut volume.cache),
    };
    device_keys().into_iter().chain(SETTINGS.iter().map(of_setting)).chain(other_keys()).collect()
});

/// Keys of a volume that a pool does not have.
const NOT_OF_POOLS: [&str; 6] = ["name", "aliases", "backend", "backend-id", "backend-size", "layout"];

/// Keys of each `[[pool]]`: its disks, and the keys of a volume for its cache.
pub static POOL_KEYS: LazyLock<Vec<Key<PoolConfig>>> = LazyLock::new(|| {
    let own = [
        key("name", None, |pool: &mut PoolConfig, value| {
            let name = value.text()?.to_owned();
            check_name(&name).map_err(|error| error.to_string())?;
            Ok(pool.cache.name = name)
        }),
        key!("disks", None, disks, |value| value.texts()?.into_iter().map(PathBuf::from).collect()),
        key!("degraded", Some("false"), degraded, |value| value.boolean()?),
        key("layout", Some("log"), |_, value| {
            let layout = value.word(&LAYOUTS)?;
            let name = layout.number().name();
            let fixed = || {
                format!("found {name}, expected log: a pool grows with its disks, and layout {name} has a fixed size")
            };
            if layout.grows() { Ok(()) } else { Err(fixed()) }
        }),
    ];
    let is_of_pools = |key: &&Key<VolumeConfig>| match &key.set {
        Set::Setting(setting, _) => setting.is_of(Layout::Log),
        _ => !NOT_OF_POOLS.contains(&key.name),
    };
    let of_cache = VOLUME_KEYS.iter().filter(is_of_pools).map(|key| Key {
        name: key.name,
        default: key.default.clone(),
        set: match &key.set {
            Set::By(set) => Set::Inside(*set, |pool: &mut PoolConfig| &mut pool.cache),
            Set::Setting(setting, _) => Set::Setting(setting, |pool: &mut PoolConfig| &mut pool.cache.cache),
            Set::Inside(..) => unreachable!("a volume is inside nothing"),
        },
    });
    own.into_iter().chain(of_cache).collect()
});

fn device_keys() -> [Key<VolumeConfig>; 13] {
    [
        key!("name", None, name, |value| export_name(value.text()?)?),
        key!("aliases", None, aliases, |value| value
            .texts()?
            .iter()
            .map(|name| export_name(name))
            .collect::<Result<_, _>>()?),
        key!("backend", None, backend, |value| value.path()?),
        key!("backend-id", None, backend_id, |value| Some(value.text()?.to_owned())),
        key!("backend-size", None, size_bytes, |value| Some(value.blocks(Kind::Size(BLOCK, VOLUME_BYTES_MAX))?)),
        key!("flash", None, flash, |value| value.path()?),
        key!("flash-size", None, flash_size_bytes, |value| Some(value.blocks(Kind::Size(BLOCK, VOLUME_BYTES_MAX))?)),
        key("flash-zones", None, |volume, value| {
            let zoning = Zoning::parse("zones", value.text()?).map_err(|error| match error {
                OptionError::NotAnOption { found, .. } => {
                    format!("found '{found}', expected such as size=4MiB,capacity=3MiB")
                }
                OptionError::BadValue { name, problem, .. } => format!("{name}: {problem}"),
                error => error.to_string(),
            })?;
            Ok(volume.flash_zones = Some(zoning))
        }),
        key("journal", None, |volume, value| Ok(volume.journal = Some(value.path()?))),
        key("journal-size", None, |volume, value| {
            Ok(volume.journal_size_bytes = Some(value.blocks(Kind::Size(journal::BYTES_MIN, journal::BYTES_MAX))?))
        }),
        made(
            "layout",
            |volume| volume.layout.number().name().to_owned(),
            assign!(layout, |value| value.word(&LAYOUTS)?),
        ),
        key!("cache-device", Some(flashwise_device::CACHE_DEVICE), array.cache, |value| device(value)?),
        key!("storage-device", Some(flashwise_device::STORAGE_DEVICE), array.storage, |value| device(value)?),
    ]
}

fn other_keys() -> [Key<VolumeConfig>; 6] {
    [
        key!("discard", None, discard, |value| value.boolean()?),
        made("direct-io", |volume| volume.direct_io.to_string(), assign!(direct_io, |value| value.boolean()?)),
        key!("drive-writes-per-day", None, drive_writes_per_day, |value| Some(value.number(Kind::Positive(1000.0))?)),
        made(
            "warranty-years",
            |volume| volume.warranty_years.to_string(),
            assign!(warranty_years, |value| value.number(Kind::Positive(100.0))?),
        ),
        made(
            "unsafe-ignore-flushes",
            |volume| volume.unsafe_ignore_flushes.to_string(),
            assign!(unsafe_ignore_flushes, |value| value.boolean()?),
        ),
        made(
            "backend-delay",
            |volume| Duration::from_us(volume.backend_delay_us).to_string(),
            assign!(backend_delay_us, |value| value.duration_us(Kind::ANY_DURATION)?),
        ),
    ]
}

fn export_name(name: &str) -> Result<String, Problem> {
    if name.len() > 255 || name.chars().any(|letter| letter.is_control() || letter == '/') {
        let name = name.escape_debug();
        return Err(format!("found '{name}', expected a name of at most 255 bytes without '/' and control characters"));
    }
    // Browsers and others resolve these in the path of a URL.
    if name == "." || name == ".." {
        return Err(format!("found '{name}', expected another name: in the API it would stand for another path"));
    }
    Ok(name.to_owned())
}
