//! `flashwise serve`: runs the cache until it is told to end.

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
use flashwise_engine::volume::Opened;
use flashwise_server::config::keys::{API_KEYS, Key, SERVER_KEYS, VOLUME_KEYS};
use flashwise_server::config::{Flags, ServerConfig};
use flashwise_server::served::Served;
use flashwise_server::server::Server;
use flashwise_trace::human;
use sd_notify::NotifyState;
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;

use crate::failure::Misuse;
use crate::live::api::DEFAULT_CONFIG;
use crate::log::{self, note, warning};
use crate::progress::Bar;
use crate::settings::ServeSettings;

/// Serve volumes over NBD and iSCSI through a flash cache
///
/// Volumes come from a configuration file, or one volume from flags. SIGTERM and SIGINT flush everything and end the server; a
/// second signal ends it at once, which is as safe as a power failure. SIGHUP reloads TLS files, token and log level.
#[derive(Debug, Args)]
pub struct Serve {
    /// A configuration in TOML; docs/flashwise.toml shows every key [default: /etc/flashwise/flashwise.toml, unless flags describe a volume]
    #[arg(value_name = "CONFIG")]
    config: Option<PathBuf>,
    /// Read the configuration, say what is wrong with it or what it would serve, and end; no device is opened
    #[arg(long)]
    check_config: bool,
    #[command(flatten)]
    volume: VolumeFlags,
    /// Start this volume although the flash with its cache is missing, older or another's: what was not written back is lost. Can be
    /// given many times
    #[arg(long, value_name = "VOLUME")]
    discard_cache: Vec<String>,
}

/// One volume by flags, and where it is served. All are read like the keys of a configuration, and have their defaults.
#[derive(Debug, Args)]
#[command(mut_args(with_default))]
pub struct VolumeFlags {
    /// The slow storage: a regular file or a block device
    #[arg(long, value_name = "FILE")]
    backend: Option<String>,
    /// A name for the backend, where nothing else tells it from another; or its UUID, where a copy takes the place of it
    #[arg(long, value_name = "NAME")]
    backend_id: Option<String>,
    /// Where the records of backends are kept that have no room for their own [default: $STATE_DIRECTORY or /var/lib/flashwise]
    #[arg(long, value_name = "DIRECTORY")]
    state_directory: Option<String>,
    /// Size of the volume [default: the backend's]
    #[arg(long, value_name = "SIZE")]
    size: Option<String>,
    /// The flash: a block device, or a regular file, which is made if it is missing
    #[arg(long, value_name = "FILE")]
    flash: Option<String>,
    /// How much of the flash is used [default: all of it]
    #[arg(long, value_name = "SIZE")]
    flash_size: Option<String>,
    /// Divide a new file of the flash into zones that are written in order: size=4MiB,capacity=3MiB,max-active=14,max-open=14
    #[arg(long, value_name = "ZONES")]
    flash_zones: Option<String>,
    /// How the cache is laid out on the flash: log, or wlfc, whose buckets are written in the order in which writes come
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<String>,
    /// Share of wlfc's buckets that is for writing
    #[arg(long, value_name = "SHARE")]
    write_queue: Option<String>,
    /// Write buckets that wlfc allocates between two halvings of all priorities; write-queue: as many as that has [default: write-queue]
    #[arg(long, value_name = "N")]
    halving: Option<String>,
    /// Writes of more than this go past wlfc, to the backend; bucket: what one holds [default: bucket]
    #[arg(long, value_name = "SIZE")]
    large_write: Option<String>,
    /// When wlfc brings read copies up to date: read, at each read, or evict, when logs are evicted
    #[arg(long, value_name = "WHEN")]
    refresh: Option<String>,
    #[command(flatten)]
    settings: ServeSettings,
    /// What a rule that adapts takes the flash for: a name of `flashwise lifetime --devices` or a TOML file
    #[arg(long, value_name = "DEVICE")]
    cache_device: Option<String>,
    /// What it takes the backend for
    #[arg(long, value_name = "DEVICE")]
    storage_device: Option<String>,
    /// The same as --write-mode write-back
    #[arg(long, conflicts_with_all = ["write_through", "write_around", "write-mode"])]
    write_back: bool,
    /// The same as --write-mode write-through
    #[arg(long, conflicts_with_all = ["write_around", "write-mode"])]
    write_through: bool,
    /// The same as --write-mode write-around
    #[arg(long, conflicts_with = "write-mode")]
    write_around: bool,
    /// A further name that clients can open the volume by, for rules about it
    #[arg(long, value_name = "NAME")]
    aliases: Option<String>,
    /// The volume's name, which clients can open it by [default: the backend's file name without its extension]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Drive writes per day that the flash is rated for
    #[arg(long, value_name = "NUMBER")]
    drive_writes_per_day: Option<String>,
    /// The years of that warranty
    #[arg(long, value_name = "YEARS")]
    warranty_years: Option<String>,
    /// Where clients connect: nbd+unix:///?socket=PATH, nbd://HOST:PORT or iscsi://HOST:PORT; can be given many times
    #[arg(long, value_name = "URI")]
    listen: Vec<String>,
    /// Let nbd:// and nbds:// listen where other machines can connect: they may read and write every volume
    #[arg(long, requires = "listen")]
    insecure: bool,
    /// Where the management API listens: unix:PATH, off, or HOST:PORT, which needs a token [default: a socket in the runtime directory]
    #[arg(long, value_name = "ADDRESS")]
    api: Option<String>,
    /// The file that holds the token that clients of the API must show
    #[arg(long, value_name = "FILE")]
    api_token_file: Option<String>,
    /// Record every request for `flashwise simulate`: FILE.csv.zst stands for FILE.000001.csv.zst and so on, a new one for each start
    #[arg(long, value_name = "FILE")]
    record: Option<String>,
    /// A file of the recording that would become larger than this is followed by another
    #[arg(long, value_name = "SIZE")]
    record_segment_size: Option<String>,
    /// Recording stops when its files, those of earlier starts included, take this
    #[arg(long, value_name = "SIZE")]
    record_size_max: Option<String>,
}

/// A flag with the default of its key in its help. Those of settings have it there.
fn with_default(flag: Arg) -> Arg {
    let (Some(name), Some(help)) = (flag.get_long(), flag.get_help().map(ToString::to_string)) else { return flag };
    match default_of(name) {
        Some(default) if !help.contains("[default: ") => flag.help(format!("{help} [default: {default}]")),
        _ => flag,
    }
}

/// The default of the key that a flag stands for.
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
    /// The first flag that is given, if any is, so that no file is read.
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
            ("size", &self.size),
            ("flash", &self.flash),
            ("flash-size", &self.flash_size),
            ("flash-zones", &self.flash_zones),
            ("layout", &self.layout),
            ("write-queue", &self.write_queue),
            ("halving", &self.halving),
            ("large-write", &self.large_write),
            ("refresh", &self.refresh),
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

/// Signals that would end the process, and with it what waits in memory, and that have no meaning for the server.
const IGNORED: [c_int; 4] = [SIGUSR1, SIGUSR2, SIGALRM, SIGXFSZ];

/// How long clients' requests may take to be answered when the server ends.
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
        // Before anything is opened, so that no signal goes unheard.
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
            warning!("every machine that can connect to {uri} may read and write every volume, as insecure is true");
        }
        let count = server.served().volumes().len() as u64;
        let watchdog = Watchdog::start(server.served());
        notify(&[NotifyState::Ready, NotifyState::Status(&format!("serving {}", human::counted(count, "volume")))]);
        for signal in signals.forever() {
            match signal {
                SIGTERM | SIGINT => break,
                SIGHUP => self.reload(&server),
                _ => note!("{} means nothing here, ignored", signal_name(signal).unwrap_or("a signal")),
            }
        }
        notify(&[NotifyState::Stopping, NotifyState::Status("flushing")]);
        note!("flushing");
        let stopped = server.stop(GRACE);
        drop(watchdog);
        stopped?;
        note!("everything is flushed, ended");
        Ok(())
    }

    fn config(&self) -> anyhow::Result<ServerConfig> {
        let flag = self.volume.first_given();
        let mut config = match &self.config {
            Some(path) => match flag {
                None => ServerConfig::read(path)?,
                Some(flag) => {
                    let path = path.display();
                    let what =
                        format!("{flag}: found the configuration {path} as well, expected a volume by flags or a file");
                    return Err(Misuse(what).into());
                }
            },
            None if self.volume.backend.is_none() && self.volume.flash.is_none() && flag.is_some() => {
                let what =
                    "expected a configuration file, or --backend, --flash and --listen; see flashwise serve --help";
                return Err(Misuse(what.to_owned()).into());
            }
            None if flag.is_none() => {
                let path = Path::new(DEFAULT_CONFIG);
                if !path.exists() {
                    let what = format!(
                        "found no {DEFAULT_CONFIG}, expected it, another configuration file, or --backend, --flash and --listen; see \
                         flashwise serve --help"
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

    /// Takes over what can change while the server runs. Where the configuration is wrong, all stays as it was.
    fn reload(&self, server: &Server) {
        let now = NotifyState::monotonic_usec_now().into_iter();
        notify(&[NotifyState::Reloading].into_iter().chain(now).collect::<Vec<_>>());
        match self.config() {
            Ok(config) => {
                log::set_level(config.log_level);
                note!("SIGHUP: the log level is {}", config.log_level);
                server.reload(&config).iter().for_each(|line| note!("SIGHUP: {line}"));
            }
            Err(error) => warning!("SIGHUP: nothing is reloaded: {error:#}"),
        }
        notify(&[NotifyState::Ready]);
    }
}

/// What a configuration would serve, a line each.
fn summary(config: &ServerConfig) -> String {
    let volume = |volume: &flashwise_engine::volume::VolumeConfig| {
        let behind = match volume.flash.as_os_str().is_empty() {
            true => "RAM alone".to_owned(),
            false => volume.flash.display().to_string(),
        };
        format!("volume {}: {} behind {behind}\n", volume.name, volume.backend.display())
    };
    let pool = |pool: &flashwise_engine::pool::PoolConfig| {
        let disks = human::counted(pool.disks.len() as u64, "disk");
        format!("pool {}: {disks}\n", pool.cache.name)
    };
    let listen = config.listen.iter().map(|uri| format!("listening at {uri}\n"));
    let api = config.api.address().map(|address| format!("the management API at {address}\n"));
    config.volumes.iter().map(volume).chain(config.pools.iter().map(pool)).chain(listen).chain(api).collect()
}

/// Says what was opened, and where it is.
fn tell(server: &Server) {
    for (volume, opened) in server.volumes() {
        let (name, exports) = (&volume.config().name, volume.config().export_names());
        opened.notes.iter().for_each(|note| note!("{note}"));
        note!("volume {name}: {}", found(opened));
        let uris = exports.iter().flat_map(|export| server.uris(export));
        uris.for_each(|uri| note!("volume {name} is served at {uri}"));
    }
    for (name, opened) in server.pools() {
        opened.notes.iter().for_each(|note| note!("{note}"));
        let disks = server.served().pool(name).map(|pool| pool.logical_disks()).unwrap_or_default();
        let counted = human::counted(disks.len() as u64, "logical disk");
        note!("pool {name} has {counted}: {}", found(opened));
        server.uris("").iter().for_each(|uri| note!("pool {name} is served at {uri}, each logical disk by its name"));
        let uris = disks.keys().flat_map(|disk| server.uris(disk).into_iter().map(move |uri| (disk, uri)));
        uris.for_each(|(disk, uri)| note!("logical disk {disk} is served at {uri}"));
    }
    if server.volumes().is_empty() && server.pools().is_empty() {
        note!("nothing is served yet; flashwise pool create --serve, or the page of the management API, makes a pool");
    }
    if let Some(recording) = server.recording() {
        note!("requests are recorded to {recording}");
    }
    if let Some(address) = server.api() {
        note!("the management API is at {address}");
    }
}

fn found(opened: &Opened) -> String {
    if opened.without_flash {
        return "its cache is in RAM alone".to_owned();
    }
    if opened.formatted {
        return "its cache is new".to_owned();
    }
    let recovery = human::duration(opened.recovery.as_micros() as u64);
    let after = if opened.crashed { "recovered after a crash" } else { "closed in order" };
    let (cached, dirty) = (human::count(opened.cached_blocks), human::count(opened.dirty_blocks));
    let lost = if opened.lost_blocks > 0 { format!(", {} lost", opened.lost_blocks) } else { String::new() };
    format!("its cache, {after}, has {cached} blocks, {dirty} of them dirty{lost}; read in {recovery}")
}

/// Tells the service manager, where there is one that listens; what it makes of that is its affair.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warning!("the service manager cannot be told: {error}");
    }
}

/// Tells the service manager that the volumes are alive, as often as it wants to hear it.
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
                // Takes each volume's lock: a volume that hangs with it is not alive.
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

    /// The flags that stand for values of one key.
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
        // Those that a volume from flags has to do without are few and known.
        let without = VOLUME_KEYS.iter().map(|key| key.name).filter(|name| !flags.contains(name));
        let expected = ["discard", "direct-io", "unsafe-ignore-flushes", "backend-delay"];
        assert_eq!(without.collect::<Vec<_>>(), expected);
    }
}
