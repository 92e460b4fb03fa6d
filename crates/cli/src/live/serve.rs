//! `flashwise serve`: runs the cache until a signal stops it.

use std::ffi::c_int;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use clap::{Arg, Args};
use flashwise_core::human;
use flashwise_server::config::keys::{API_KEYS, Key, SERVER_KEYS, VOLUME_KEYS};
use flashwise_server::config::{Flags, ServerConfig};
use flashwise_server::server::Server;
use flashwise_server::state::served::Served;
use flashwise_storage::volume::Opened;
use sd_notify::NotifyState;
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;

use crate::failure::Misuse;
use crate::live::api::DEFAULT_CONFIG;
use crate::log::{self, event};
use crate::progress::Bar;
use crate::settings::ServeSettings;

/// Serve volumes over NBD and iSCSI through a flash cache
///
/// Volumes come from a configuration file; flags can describe a single volume. SIGTERM and SIGINT flush everything and
/// stop the server. A second signal stops it at once, which is as safe as a power failure. SIGHUP reloads TLS files,
/// token and log level.
#[derive(Debug, Args)]
pub struct Serve {
    /// Configuration in TOML; docs/flashwise.toml has every key [default: /etc/flashwise/flashwise.toml]
    #[arg(value_name = "CONFIG")]
    config: Option<PathBuf>,
    /// Check the configuration, list its contents, and exit
    #[arg(long)]
    check_config: bool,
    #[command(flatten)]
    volume: VolumeFlags,
    /// Start this volume without its missing, outdated or swapped cache; unwritten data is lost; repeatable
    #[arg(long, value_name = "VOLUME", hide_short_help = true)]
    discard_cache: Vec<String>,
}

const VOLUME: &str = "Volume";
const CACHE: &str = "Cache";
const CLIENTS: &str = "Clients, API and recording";

/// A volume described by flags, and its listeners. Flags are parsed like the keys of a configuration, and have the same
/// defaults.
#[derive(Debug, Args)]
#[command(mut_args(with_default))]
pub struct VolumeFlags {
    /// Slow storage: a regular file or a block device
    #[arg(long, value_name = "FILE", help_heading = VOLUME)]
    backend: Option<String>,
    /// Name for a backend without an identity of its own, or its UUID if a copy replaces it
    #[arg(long, value_name = "NAME", help_heading = VOLUME, hide_short_help = true)]
    backend_id: Option<String>,
    /// Directory for records of backends without room for their own [default: $STATE_DIRECTORY or /var/lib/flashwise]
    #[arg(long, value_name = "DIRECTORY", help_heading = VOLUME, hide_short_help = true)]
    state_directory: Option<String>,
    /// Size of the backend to use, which is that of the volume [default: all of it]
    #[arg(long, value_name = "SIZE", help_heading = VOLUME, hide_short_help = true)]
    backend_size: Option<String>,
    /// Flash: a block device or a file, created if missing
    #[arg(long, value_name = "FILE", help_heading = VOLUME)]
    flash: Option<String>,
    /// Size of the flash to use [default: all of it]
    #[arg(long, value_name = "SIZE", help_heading = VOLUME)]
    flash_size: Option<String>,
    /// Divide a new flash file into zones that are written in order: size=4MiB,capacity=3MiB,max-active=14,max-open=14
    #[arg(long, value_name = "ZONES", help_heading = VOLUME, hide_short_help = true)]
    flash_zones: Option<String>,
    /// Journal of --write-back-order journal: a file or a partition beside the backend
    #[arg(long, value_name = "PATH", help_heading = VOLUME, hide_short_help = true)]
    journal: Option<String>,
    /// Size of a new journal, and the most that is used of an old one, 64MiB to 1GiB [default: 256MiB]
    #[arg(long, value_name = "SIZE", help_heading = VOLUME, hide_short_help = true)]
    journal_size: Option<String>,
    /// Layout of the cache on flash: log, or wlfc, whose buckets take writes in order of arrival
    #[arg(long, value_name = "LAYOUT", help_heading = CACHE, hide_short_help = true)]
    layout: Option<String>,
    #[command(flatten)]
    settings: ServeSettings,
    /// Device model that adaptive admission assumes for the flash: a name from `flashwise lifetime --devices` or a TOML
    /// file
    #[arg(long, value_name = "DEVICE", help_heading = CACHE, hide_short_help = true)]
    cache_device: Option<String>,
    /// Device model that adaptive admission assumes for the backend
    #[arg(long, value_name = "DEVICE", help_heading = CACHE, hide_short_help = true)]
    storage_device: Option<String>,
    /// Short for --write-mode write-back
    #[arg(long, conflicts_with_all = ["write_through", "write_around", "write-mode"], help_heading = CACHE, hide_short_help = true)]
    write_back: bool,
    /// Short for --write-mode write-through
    #[arg(long, conflicts_with_all = ["write_around", "write-mode"], help_heading = CACHE, hide_short_help = true)]
    write_through: bool,
    /// Short for --write-mode write-around
    #[arg(long, conflicts_with = "write-mode", help_heading = CACHE, hide_short_help = true)]
    write_around: bool,
    /// Alias of the volume, for rules about clients
    #[arg(long, value_name = "NAME", help_heading = VOLUME, hide_short_help = true)]
    aliases: Option<String>,
    /// Name of the volume [default: the backend's file name without extension]
    #[arg(long, value_name = "NAME", help_heading = VOLUME, hide_short_help = true)]
    name: Option<String>,
    /// Rated drive writes per day of the flash
    #[arg(long, value_name = "NUMBER", help_heading = VOLUME, hide_short_help = true)]
    drive_writes_per_day: Option<String>,
    /// Warranty of the flash in years
    #[arg(long, value_name = "YEARS", help_heading = VOLUME, hide_short_help = true)]
    warranty_years: Option<String>,
    /// Address for clients: nbd+unix:///?socket=PATH, nbd://HOST:PORT or iscsi://HOST:PORT; repeatable
    #[arg(long, value_name = "URI", help_heading = CLIENTS)]
    listen: Vec<String>,
    /// Allow nbd:// and nbds:// for other machines, which can then read and write every volume
    #[arg(long, requires = "listen", help_heading = CLIENTS, hide_short_help = true)]
    insecure: bool,
    /// Management API: unix:PATH, HOST:PORT or off [default: a socket in the runtime directory]
    ///
    /// A HOST:PORT needs a token.
    #[arg(long, value_name = "ADDRESS", help_heading = CLIENTS)]
    api: Option<String>,
    /// File with the token for clients of the API
    #[arg(long, value_name = "FILE", help_heading = CLIENTS, hide_short_help = true)]
    api_token_file: Option<String>,
    /// Record every request for `flashwise simulate`; FILE.csv.zst becomes FILE.000001.csv.zst and so on
    #[arg(long, value_name = "FILE", help_heading = CLIENTS)]
    record: Option<String>,
    /// Start a new recording file at this size
    #[arg(long, value_name = "SIZE", help_heading = CLIENTS, hide_short_help = true)]
    record_segment_size: Option<String>,
    /// Stop recording when all its files, also of earlier starts, reach this size
    #[arg(long, value_name = "SIZE", help_heading = CLIENTS, hide_short_help = true)]
    record_size_max: Option<String>,
}

/// Adds the default of its key to the help of a flag. The flags of settings have it already.
fn with_default(flag: Arg) -> Arg {
    let (Some(name), Some(help)) = (flag.get_long(), flag.get_help().map(ToString::to_string)) else { return flag };
    match default_of(name) {
        Some(default) if !help.contains("[default: ") => flag.help(format!("{help} [default: {default}]")),
        _ => flag,
    }
}

/// Returns the default of the key of a flag.
fn default_of(flag: &str) -> Option<&'static str> {
    fn find<T>(keys: &'static [Key<T>], name: &str) -> Option<&'static str> {
        keys.iter().find(|key| key.name == name)?.default.as_deref()
    }
    let of_api = if flag == "api" { Some("listen") } else { flag.strip_prefix("api-") };
    match of_api {
        Some(name) => find(API_KEYS, name),
        None => find(SERVER_KEYS, flag).or_else(|| find(&VOLUME_KEYS, flag)),
    }
}

impl VolumeFlags {
    /// The first given flag, if any.
    fn first_given(&self) -> Option<String> {
        let Flags { listen, server, api, volume } = self.flags();
        let of_api = api.first().map(|(key, _)| if *key == "listen" { "api".to_owned() } else { format!("api-{key}") });
        let others = volume.first().or(server.first()).map(|(key, _)| (*key).to_owned());
        let first = others.or_else(|| listen.first().map(|_| "listen".to_owned())).or(of_api)?;
        Some(format!("--{first}"))
    }

    fn flags(&self) -> Flags {
        let given = |keys: &[(&'static str, &Option<String>)]| -> Vec<(&'static str, String)> {
            keys.iter().filter_map(|(key, value)| Some((*key, value.as_ref()?.clone()))).collect()
        };
        let mut volume = given(&[
            ("backend", &self.backend),
            ("backend-id", &self.backend_id),
            ("backend-size", &self.backend_size),
            ("flash", &self.flash),
            ("flash-size", &self.flash_size),
            ("flash-zones", &self.flash_zones),
            ("journal", &self.journal),
            ("journal-size", &self.journal_size),
            ("layout", &self.layout),
            ("cache-device", &self.cache_device),
            ("storage-device", &self.storage_device),
            ("aliases", &self.aliases),
            ("drive-writes-per-day", &self.drive_writes_per_day),
            ("warranty-years", &self.warranty_years),
        ]);
        volume.extend(self.settings.given());
        let modes = [
            (self.write_back, "write-back"),
            (self.write_through, "write-through"),
            (self.write_around, "write-around"),
        ];
        volume.extend(modes.iter().filter(|(given, _)| *given).map(|(_, mode)| ("write-mode", (*mode).to_owned())));
        let stem = self.backend.as_ref().and_then(|path| std::path::Path::new(path).file_stem());
        let name = self.name.clone().or_else(|| Some(stem?.to_string_lossy().into_owned()));
        volume.extend(name.map(|name| ("name", name)));
        let insecure = self.insecure.then(|| "true".to_owned());
        Flags {
            listen: self.listen.clone(),
            server: given(&[
                ("insecure", &insecure),
                ("record", &self.record),
                ("record-segment-size", &self.record_segment_size),
                ("record-size-max", &self.record_size_max),
                ("state-directory", &self.state_directory),
            ]),
            api: given(&[("listen", &self.api), ("token-file", &self.api_token_file)]),
            volume,
        }
    }
}

/// Signals without a meaning here, whose default action would kill the process and lose buffered data.
const IGNORED: [c_int; 4] = [SIGUSR1, SIGUSR2, SIGALRM, SIGXFSZ];

/// Time for clients' requests to finish when the server stops.
const GRACE: Duration = Duration::from_secs(30);

impl Serve {
    pub fn run(&self) -> anyhow::Result<()> {
        let config = self.config()?;
        if self.check_config {
            if let Some((_, problem)) = config.missing.first() {
                return Err(Misuse(problem.clone()).into());
            }
            return Ok(std::io::stdout().write_all(log::visible(&summary(&config)).as_bytes())?);
        }
        flashwise_server::allocator::bound_freed_memory();
        log::set_level(config.log_level);
        // Before anything is opened, so no signal is missed.
        let ending = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register_conditional_shutdown(signal, 1, ending.clone()).context("signals")?;
            signal_hook::flag::register(signal, ending.clone()).context("signals")?;
        }
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP].iter().chain(&IGNORED)).context("signals")?;
        let bar = Bar::erase_units(String::new());
        let server = Server::start(&config, &|volume, done, all| {
            bar.set(done, all);
            if done <= 1 {
                bar.rename(format!("reading the cache of volume {volume}"));
            }
        })?;
        drop(bar);
        tell(&server);
        for uri in config.open_to_all() {
            event!(
                WARN,
                "insecure",
                [uri = uri],
                "insecure is true: every machine that can connect to {uri} can read and write every volume"
            );
        }
        let count = server.served().volumes().len() as u64;
        let watchdog = Watchdog::start(server.served());
        notify(&[NotifyState::Ready, NotifyState::Status(&format!("serving {}", human::counted(count, "volume")))]);
        for signal in signals.forever() {
            match signal {
                SIGTERM | SIGINT => break,
                SIGHUP => self.reload(&server),
                _ => {
                    let name = signal_name(signal).unwrap_or("a signal");
                    event!(INFO, "signal-ignored", [signal = name], "{name} is ignored");
                }
            }
        }
        notify(&[NotifyState::Stopping, NotifyState::Status("flushing")]);
        event!(INFO, "stopping", [], "flushing");
        let stopped = server.stop(GRACE);
        drop(watchdog);
        stopped?;
        event!(INFO, "stopped", [], "everything is flushed, stopped");
        Ok(())
    }

    fn config(&self) -> anyhow::Result<ServerConfig> {
        let flag = self.volume.first_given();
        let mut config = match &self.config {
            Some(path) => match flag {
                None => ServerConfig::read(path)?,
                Some(flag) => {
                    let path = path.display();
                    let what = format!("{flag} does not go with the configuration {path}; give either flags or a file");
                    return Err(Misuse(what).into());
                }
            },
            None if self.volume.backend.is_none() && self.volume.flash.is_none() && flag.is_some() => {
                let what = "no volume given; give a configuration file, or --backend, --flash and --listen";
                return Err(Misuse(what.to_owned()).into());
            }
            None if flag.is_none() => {
                let path = Path::new(DEFAULT_CONFIG);
                if !path.exists() {
                    let what = format!(
                        "{DEFAULT_CONFIG} does not exist; give a configuration file, or --backend, --flash and --listen"
                    );
                    return Err(Misuse(what).into());
                }
                ServerConfig::read(path)?
            }
            None => ServerConfig::from_flags(self.volume.flags())?,
        };
        for name in &self.discard_cache {
            let of_pools = config.pools.iter_mut().map(|pool| &mut pool.cache);
            let mut volumes: Vec<_> = config.volumes.iter_mut().chain(of_pools).collect();
            let names: Vec<String> = volumes.iter().map(|volume| volume.name.clone()).collect();
            let Some(volume) = volumes.iter_mut().find(|volume| volume.name == *name) else {
                let what = format!("--discard-cache: no volume '{name}', expected one of: {}", names.join(", "));
                return Err(Misuse(what).into());
            };
            volume.discard_cache = true;
        }
        Ok(config)
    }

    /// Applies the settings that can change while the server runs. A bad configuration changes nothing.
    fn reload(&self, server: &Server) {
        let now = NotifyState::monotonic_usec_now().into_iter();
        notify(&[NotifyState::Reloading].into_iter().chain(now).collect::<Vec<_>>());
        match self.config() {
            Ok(config) => {
                log::set_level(config.log_level);
                let level = config.log_level;
                event!(INFO, "reloaded", [log_level = level.to_string()], "SIGHUP: the log level is {level}");
                server.reload(&config).iter().for_each(|line| event!(INFO, "reloaded", [], "SIGHUP: {line}"));
            }
            Err(error) => {
                let error = format!("{error:#}");
                event!(WARN, "not-reloaded", [error = error], "SIGHUP: nothing is reloaded: {error}");
            }
        }
        notify(&[NotifyState::Ready]);
    }
}

/// Lists what a configuration would serve, one line each.
fn summary(config: &ServerConfig) -> String {
    let volume = |volume: &flashwise_storage::volume::VolumeConfig| {
        let behind = match volume.flash.as_os_str().is_empty() {
            true => "RAM only".to_owned(),
            false => volume.flash.display().to_string(),
        };
        format!("volume {}: {} behind {behind}\n", volume.name, volume.backend.display())
    };
    let pool = |pool: &flashwise_storage::pool::PoolConfig| {
        let disks = human::counted(pool.disks.len() as u64, "disk");
        format!("pool {}: {disks}\n", pool.cache.name)
    };
    let listen = config.listen.iter().map(|uri| format!("listening at {uri}\n"));
    let api = config.api.address().map(|address| format!("the management API at {address}\n"));
    config.volumes.iter().map(volume).chain(config.pools.iter().map(pool)).chain(listen).chain(api).collect()
}

/// Prints notes about the opened volumes and pools, and their addresses.
fn tell(server: &Server) {
    for (name, opened) in server.volumes() {
        let exports = server.served().own_volume(name).map(|volume| volume.config().export_names()).unwrap_or_default();
        opened.notes.iter().for_each(|note| event!(INFO, "opened", [volume = name], "{note}"));
        tell_found("volume", name, opened);
        let uris = exports.iter().flat_map(|export| server.uris(export));
        uris.for_each(|uri| event!(INFO, "served", [volume = name, uri = uri], "volume {name} is served at {uri}"));
    }
    for (name, opened) in server.pools() {
        opened.notes.iter().for_each(|note| event!(INFO, "opened", [pool = name], "{note}"));
        let disks = server.served().pool(name).map(|pool| pool.logical_disks()).unwrap_or_default();
        let counted = human::counted(disks.len() as u64, "logical disk");
        event!(INFO, "opened", [pool = name, logical_disks = disks.len()], "pool {name} has {counted}");
        tell_found("pool", name, opened);
        for uri in server.uris("") {
            event!(
                INFO,
                "served",
                [pool = name, uri = uri],
                "pool {name} is served at {uri}, each logical disk by its name"
            );
        }
        let uris = disks.keys().flat_map(|disk| server.uris(disk).into_iter().map(move |uri| (disk, uri)));
        uris.for_each(|(disk, uri)| {
            event!(INFO, "served", [pool = name, disk = disk, uri = uri], "logical disk {disk} is served at {uri}");
        });
    }
    if server.volumes().is_empty() && server.pools().is_empty() {
        event!(
            INFO,
            "nothing-served",
            [],
            "nothing is served yet; create a pool with flashwise pool create --serve or on the page of flashwise page"
        );
    }
    if let Some(recording) = server.recording() {
        event!(INFO, "recording", [path = recording], "requests are recorded to {recording}");
    }
    if let Some(address) = server.api() {
        event!(INFO, "api", [address = address.to_string()], "the management API is at {address}");
    }
}

/// Prints how the cache of a volume or pool was opened.
fn tell_found(kind: &str, name: &str, opened: &Opened) {
    match opened.detached {
        true => event!(
            WARN,
            "served-detached",
            [volume = name],
            "{kind} {name}: its cache is detached, so it is served without one; to use its flash again, run 'flashwise \
             attach {name}' and \
             restart the server"
        ),
        false => event!(
            INFO,
            "opened",
            [
                volume = name,
                cached_blocks = opened.cached_blocks,
                dirty_blocks = opened.dirty_blocks,
                lost_blocks = opened.lost_blocks,
                crashed = opened.crashed
            ],
            "{kind} {name}: {}",
            found(opened)
        ),
    }
}

fn found(opened: &Opened) -> String {
    if opened.without_flash {
        return "its cache is in RAM only".to_owned();
    }
    if opened.formatted {
        return "its cache is new".to_owned();
    }
    let recovery = human::seconds(opened.recovery.as_secs_f64());
    let after = if opened.crashed { "recovered after a crash" } else { "closed cleanly" };
    let (cached, dirty) = (human::count(opened.cached_blocks), human::count(opened.dirty_blocks));
    let lost = if opened.lost_blocks > 0 { format!(", {} lost", opened.lost_blocks) } else { String::new() };
    format!("its cache, {after}, has {cached} blocks, {dirty} of them dirty{lost}; read in {recovery}")
}

/// Notifies the service manager, if there is one.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        event!(WARN, "service-manager", [error = error.to_string()], "notifying the service manager: {error}");
    }
}

/// Tells the service manager at its interval that the volumes are alive.
struct Watchdog {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    fn start(served: Arc<Served>) -> Watchdog {
        let Some(patience) = sd_notify::watchdog_enabled() else { return Watchdog { stop: None, thread: None } };
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(patience / 3) {
                // Takes each volume's lock, so a volume that hangs with it held counts as dead.
                for volume in served.volumes() {
                    volume.dirty_blocks();
                }
                notify(&[NotifyState::Watchdog]);
            }
        });
        Watchdog { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the watchdog does not panic");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flags that are values of one key.
    const WRITE_MODES: [&str; 3] = ["write-back", "write-through", "write-around"];

    #[test]
    fn every_flag_is_a_key_and_shows_its_default() {
        let command = VolumeFlags::augment_args(clap::Command::new("serve"));
        let flags: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        let of_server = SERVER_KEYS.iter().map(|key| key.name.to_owned());
        let of_volume = VOLUME_KEYS.iter().map(|key| key.name.to_owned());
        let of_api = API_KEYS.iter().map(|key| format!("api-{}", key.name).replace("api-listen", "api"));
        let keys: Vec<String> = of_server.chain(of_volume).chain(of_api).collect();
        for argument in command.get_arguments() {
            let flag = argument.get_long().unwrap();
            if WRITE_MODES.contains(&flag) {
                continue;
            }
            assert!(keys.iter().any(|key| key == flag), "--{flag} is no key");
            let help = argument.get_help().unwrap().to_string();
            let shown = help.split_once("[default: ").map(|(_, rest)| rest.trim_end_matches(']'));
            if let Some(default) = default_of(flag) {
                assert_eq!(shown, Some(default), "--{flag}");
            }
        }
        // The keys without a flag are few and known.
        let without = VOLUME_KEYS.iter().map(|key| key.name).filter(|name| !flags.contains(name));
        let expected = ["discard", "direct-io", "unsafe-ignore-flushes", "backend-delay"];
        assert_eq!(without.collect::<Vec<_>>(), expected);
    }
}
