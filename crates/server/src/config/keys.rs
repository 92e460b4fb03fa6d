//! The keys of a configuration: one row each, with its default and what it sets. `docs/flashwise.toml` explains them to users.
// A row of the table is one line: what it sets.
#![allow(clippy::unit_arg)]

use flashwise_core::cache::Mode;
use flashwise_core::filter::Clients;
use flashwise_core::format::{BLOCK_BYTES, Geometry};

use tracing::level_filters::LevelFilter;

use super::value::{Problem, Value};
use super::{ServerConfig, TlsMode};
use flashwise_engine::record::LIMIT_BYTES_MIN;
use flashwise_engine::volume::VolumeConfig;

/// A key of a table of the configuration.
pub struct Key<T> {
    /// Its name.
    pub name: &'static str,
    /// The value that it has where none is given, as in TOML without quotes; none for a key that may be absent or must be given.
    pub default: Option<&'static str>,
    /// Sets it.
    pub set: fn(&mut T, &Value) -> Result<(), Problem>,
}

impl<T> std::fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("name", &self.name).field("default", &self.default).finish_non_exhaustive()
    }
}

const fn key<T>(
    name: &'static str,
    default: Option<&'static str>,
    set: fn(&mut T, &Value) -> Result<(), Problem>,
) -> Key<T> {
    Key { name, default, set }
}

/// Largest volume: its blocks have numbers of 32 bits.
pub const VOLUME_BYTES_MAX: u64 = 16 << 40;
/// Smallest and largest erase unit.
pub const ERASE_UNIT_BYTES: (u64, u64) =
    (Geometry::UNIT_PAGES_MIN as u64 * BLOCK, Geometry::UNIT_PAGES_MAX as u64 * BLOCK);
const BLOCK: u64 = BLOCK_BYTES as u64;
/// Most RAM of a volume: its frames have numbers of 32 bits.
const RAM_BYTES_MAX: u64 = 8 << 40;

/// Largest limit of a recording.
const RECORD_BYTES_MAX: u64 = 1 << 50;

/// Keys before the first table.
pub const SERVER_KEYS: &[Key<ServerConfig>] = &[
    key("listen", None, |server, value| {
        server.listen = value.texts()?;
        Ok(())
    }),
    key("record", None, |server, value| Ok(server.record = Some(value.path()?))),
    key("record-segment-size", Some("1GiB"), |server, value| {
        server.record_limits.segment_bytes_max = value.size(LIMIT_BYTES_MIN, RECORD_BYTES_MAX)?;
        Ok(())
    }),
    key("record-size-max", Some("10GiB"), |server, value| {
        server.record_limits.total_bytes_max = value.size(LIMIT_BYTES_MIN, RECORD_BYTES_MAX)?;
        Ok(())
    }),
    key("state-directory", None, |server, value| {
        server.state_directory = value.path()?;
        Ok(())
    }),
    key("log-level", Some("warn"), |server, value| {
        server.log_level = value.word(&LOG_LEVELS)?;
        Ok(())
    }),
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
    key("listen", Some("127.0.0.1:9470"), |server, value| {
        server.api.listen = value.text()?;
        Ok(())
    }),
    key("token-file", None, |server, value| Ok(server.api.token_file = Some(value.path()?))),
];

/// The words of the key `mode` of `[tls]`.
pub const TLS_MODES: [(&str, TlsMode); 3] =
    [("off", TlsMode::Off), ("allowed", TlsMode::Allowed), ("required", TlsMode::Required)];

/// Keys of `[tls]`.
pub const TLS_KEYS: &[Key<ServerConfig>] = &[
    key("mode", Some("off"), |server, value| {
        server.tls.mode = value.word(&TLS_MODES)?;
        Ok(())
    }),
    key("certificate", None, |server, value| Ok(server.tls.certificate = Some(value.path()?))),
    key("key", None, |server, value| Ok(server.tls.key = Some(value.path()?))),
    key("client-authorities", None, |server, value| Ok(server.tls.client_authorities = Some(value.path()?))),
];

/// Keys of `[limits]`.
pub const LIMITS_KEYS: &[Key<ServerConfig>] = &[
    key("connections-max", Some("4096"), |server, value| {
        server.limits.connections_max = value.count(1, 1 << 20)? as usize;
        Ok(())
    }),
    key("requests-in-flight-max", Some("128"), |server, value| {
        server.limits.requests_in_flight_max = value.count(1, 1 << 16)? as usize;
        Ok(())
    }),
    key("bytes-in-flight-max", Some("64MiB"), |server, value| {
        server.limits.bytes_in_flight_max = value.size(32 << 20, 1 << 40)? as usize;
        Ok(())
    }),
    key("memory-max", Some("512MiB"), |server, value| {
        server.limits.memory_max = value.size(64 << 20, 1 << 40)? as usize;
        Ok(())
    }),
    key("handshake-time-max", Some("60s"), |server, value| {
        server.limits.handshake_time_max_us = value.duration_us()?;
        Ok(())
    }),
];

/// Keys of each `[[volume]]`.
pub const VOLUME_KEYS: &[Key<VolumeConfig>] = &[
    key("name", None, |volume, value| {
        volume.name = export_name(&value.text()?)?;
        Ok(())
    }),
    key("aliases", None, |volume, value| {
        volume.aliases = value.texts()?.iter().map(|name| export_name(name)).collect::<Result<_, _>>()?;
        Ok(())
    }),
    key("backend", None, |volume, value| {
        volume.backend = value.path()?;
        Ok(())
    }),
    key("backend-id", None, |volume, value| Ok(volume.backend_id = Some(value.text()?))),
    key("size", None, |volume, value| Ok(volume.size_bytes = Some(value.size(BLOCK, VOLUME_BYTES_MAX)?))),
    key("flash", None, |volume, value| {
        volume.flash = value.path()?;
        Ok(())
    }),
    key("flash-size", None, |volume, value| Ok(volume.flash_size_bytes = Some(value.size(BLOCK, VOLUME_BYTES_MAX)?))),
    key("erase-unit", Some("2MiB"), |volume, value| {
        volume.erase_unit_bytes = erase_unit(value)?;
        Ok(())
    }),
    key("ram", Some("128MiB"), |volume, value| {
        volume.ram_bytes = value.size(0, RAM_BYTES_MAX)?;
        Ok(())
    }),
    key("write-buffer-share", Some("50%"), |volume, value| {
        volume.write_buffer_share = value.share(1.0)?;
        Ok(())
    }),
    key("policy", Some("larc"), |volume, value| {
        volume.policy = value.policy()?;
        Ok(())
    }),
    key("admission", Some("none"), |volume, value| {
        volume.admission = value.admission()?;
        Ok(())
    }),
    key("cache-device", Some(flashwise_device::CACHE_DEVICE), |volume, value| {
        volume.array.cache = value.device()?;
        Ok(())
    }),
    key("storage-device", Some(flashwise_device::STORAGE_DEVICE), |volume, value| {
        volume.array.storage = value.device()?;
        Ok(())
    }),
    key("write-mode", Some("write-back"), |volume, value| {
        volume.write_mode = value.word(&Mode::NAMES)?;
        Ok(())
    }),
    key("over-provision", Some("10%"), |volume, value| {
        volume.over_provision = value.share(0.9)?;
        Ok(())
    }),
    key("copy-forward", Some("used"), |volume, value| {
        volume.copy_forward = value.text()?.parse()?;
        Ok(())
    }),
    key("dirty-high", Some("50%"), |volume, value| {
        volume.dirty_high = value.share(1.0)?;
        Ok(())
    }),
    key("dirty-low", Some("40%"), |volume, value| {
        volume.dirty_low = value.share(1.0)?;
        Ok(())
    }),
    key("dirty-age", Some("15min"), |volume, value| {
        volume.dirty_age_us = value.duration_us()?;
        Ok(())
    }),
    key("commit-age", Some("5s"), |volume, value| {
        volume.commit_age_us = value.duration_us()?;
        Ok(())
    }),
    key("sequential-bypass", Some("4MiB"), |volume, value| {
        volume.sequential_bytes = value.size(0, 1 << 40)?;
        Ok(())
    }),
    key("cache-clients", Some("all"), |volume, value| {
        volume.filter.clients = value.word(&Clients::NAMES)?;
        Ok(())
    }),
    key("allow-clients", Some("none"), |volume, value| {
        volume.filter.allow = value.rules()?;
        Ok(())
    }),
    key("deny-clients", Some("none"), |volume, value| {
        volume.filter.deny = value.rules()?;
        Ok(())
    }),
    key("discard", None, |volume, value| {
        volume.discard = value.boolean()?;
        Ok(())
    }),
    key("direct-io", Some("true"), |volume, value| {
        volume.direct_io = value.boolean()?;
        Ok(())
    }),
    key("drive-writes-per-day", None, |volume, value| Ok(volume.drive_writes_per_day = Some(value.positive(1000.0)?))),
    key("warranty-years", Some("5"), |volume, value| {
        volume.warranty_years = value.positive(100.0)?;
        Ok(())
    }),
    key("unsafe-ignore-flushes", Some("false"), |volume, value| {
        volume.unsafe_ignore_flushes = value.boolean()?;
        Ok(())
    }),
    key("backend-delay", Some("0s"), |volume, value| {
        volume.backend_delay_us = value.duration_us()?;
        Ok(())
    }),
];

fn export_name(name: &str) -> Result<String, Problem> {
    if name.len() > 255 || name.chars().any(|letter| letter.is_control() || letter == '/') {
        return Err(format!("found '{name}', expected a name of at most 255 bytes without '/' and control characters"));
    }
    Ok(name.to_owned())
}

fn erase_unit(value: &Value) -> Result<u64, Problem> {
    let bytes = value.size(ERASE_UNIT_BYTES.0, ERASE_UNIT_BYTES.1)?;
    if !bytes.is_power_of_two() {
        return Err(format!("found {value}, expected a power of two from 64KiB to 256MiB"));
    }
    Ok(bytes)
}
