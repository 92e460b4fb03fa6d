//! `flashwise detach`: writes everything back, so that the backend is complete without the flash.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::human;
use flashwise_server::config::ServerConfig;
use flashwise_server::manage::{DetachProgress, DetachState};
use flashwise_storage::disk::file::{FileDisk, Options};
use flashwise_storage::disk::zoned::open_flash;
use flashwise_storage::offline::detach::{Detached, Pair, detach};
use flashwise_storage::offline::journal::GivenJournal;
use flashwise_storage::pool::{Pool, PoolConfig};
use flashwise_storage::volume::VolumeConfig;
use serde_json::Value;

use crate::failure::Misuse;
use crate::live::api::{ApiClient, ApiOptions, volume_path};
use crate::live::pair::{OpenBackend, PairFlags, refuse_no_flash};
use crate::live::salvage::SalvageFlags;
use crate::progress::Bar;

/// Write back all dirty data, so the backend works without the flash
///
/// The volume is served without its cache, also after a restart, until `flashwise attach`. Offline, give --config, or
/// --backend and --flash.
#[derive(Debug, Args)]
pub struct Detach {
    /// Volume or pool [default: the only one; offline: all]
    #[arg(value_name = "VOLUME")]
    volume: Option<String>,
    /// Configuration with the volumes and pools
    #[arg(long, value_name = "FILE", conflicts_with_all = ["backend", "flash"], help_heading = OFFLINE)]
    config: Option<PathBuf>,
    /// Backend
    #[arg(long, value_name = "FILE", requires = "flash", conflicts_with = "volume", help_heading = OFFLINE)]
    backend: Option<PathBuf>,
    /// Flash
    #[arg(long, value_name = "FILE", requires = "backend", help_heading = OFFLINE)]
    flash: Option<PathBuf>,
    #[command(flatten)]
    api: ApiOptions,
    #[command(flatten)]
    pair: PairFlags,
    // Last, because its heading holds for all that follows.
    #[command(flatten)]
    salvage: SalvageFlags,
}

/// Heading of the options of commands that work without a server.
pub const OFFLINE: &str = "Offline";

/// Time between two progress requests to a server.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

impl Detach {
    pub fn run(&self) -> anyhow::Result<()> {
        match (&self.config, &self.backend, &self.flash) {
            (Some(path), _, _) => self.configured(&ServerConfig::read_alone(path)?),
            (None, Some(backend), Some(flash)) => {
                let volume = self.pair.volume(backend, flash)?;
                offline(&volume, OpenBackend::of(&volume, Options::default())?, &self.salvage)
            }
            _ if self.salvage.salvage => {
                Err(Misuse("--salvage works offline only; give --config, or --backend and --flash".to_owned()).into())
            }
            _ => self.running(&self.api.client()?),
        }
    }

    fn configured(&self, config: &ServerConfig) -> anyhow::Result<()> {
        let names = names_of(config, self.volume.as_deref())?;
        if self.salvage.is_for_one() && self.volume.is_none() && names.len() > 1 {
            return Err(
                Misuse(format!("--lost-list is for one volume or pool; name one of: {}", names.join(", "))).into()
            );
        }
        if names.is_empty() {
            return Err(Misuse("the configuration has no volume or pool to detach".to_owned()).into());
        }
        // A volume without flash has nothing to detach and does not stop the others.
        let wanted = |cache: &VolumeConfig| {
            let is_wanted = self.volume.as_deref().is_none_or(|wanted| wanted == cache.name);
            let has_flash = !cache.flash.as_os_str().is_empty();
            if is_wanted && !has_flash {
                println!("{} has no flash to detach.", cache.name);
            }
            is_wanted && has_flash
        };
        let mut detached: Vec<(&str, anyhow::Result<()>)> = Vec::new();
        for volume in config.volumes.iter().filter(|volume| wanted(volume)) {
            let opened = OpenBackend::of(volume, Options::default());
            detached.push((&volume.name, opened.and_then(|opened| offline(volume, opened, &self.salvage))));
        }
        for pool in config.pools.iter().filter(|pool| wanted(&pool.cache)) {
            detached.push((&pool.cache.name, self.detach_pool(pool)));
        }
        all_of(detached)
    }

    fn detach_pool(&self, pool: &PoolConfig) -> anyhow::Result<()> {
        let name = &pool.cache.name;
        let storage = Pool::storage(pool).with_context(|| format!("pool {name}"))?;
        let cache = VolumeConfig { backend: format!("pool {name}").into(), ..pool.cache.clone() };
        offline(&cache, OpenBackend::of_pool(storage), &self.salvage)
    }

    fn running(&self, client: &ApiClient) -> anyhow::Result<()> {
        let name = match &self.volume {
            Some(name) => name.clone(),
            None => only_volume(client)?,
        };
        client.post(&volume_path(&name, "/detach"))?;
        let mut bar: Option<Bar> = None;
        loop {
            let progress = client.get(&volume_path(&name, "/detach"))?;
            let progress: DetachProgress =
                serde_json::from_value(progress).with_context(|| format!("volume {name}: progress of detaching"))?;
            let bytes = |blocks| blocks * BLOCK_BYTES as u64;
            let all = progress.dirty_blocks + progress.destaged_blocks;
            let bar = bar.get_or_insert_with(|| Bar::bytes("writing back".to_owned(), bytes(all)));
            bar.set(bytes(progress.destaged_blocks), bytes(all));
            match progress.state {
                DetachState::Detached => break,
                DetachState::Detaching => std::thread::sleep(PROGRESS_INTERVAL),
                DetachState::Attached => bail!("volume {name} is attached, expected detached: see the server's log"),
            }
        }
        drop(bar);
        println!("Volume {name} is detached: {}", completeness(client, &name));
        Ok(())
    }
}

/// Returns the names of the volumes and pools, and refuses a `wanted` one that is missing.
pub fn names_of<'a>(config: &'a ServerConfig, wanted: Option<&str>) -> Result<Vec<&'a str>, Misuse> {
    let caches = config.volumes.iter().chain(config.pools.iter().map(|pool| &pool.cache));
    let names: Vec<&str> = caches.map(|cache| cache.name.as_str()).collect();
    if let Some(wanted) = wanted
        && !names.contains(&wanted)
    {
        let expected = match names[..] {
            [] => "the configuration names none".to_owned(),
            _ => format!("expected one of: {}", names.join(", ")),
        };
        return Err(Misuse(format!("no volume or pool '{wanted}', {expected}")));
    }
    Ok(names)
}

/// Returns an error if any volume was not detached. If there are several volumes, it prints the error of each.
fn all_of(detached: Vec<(&str, anyhow::Result<()>)>) -> anyhow::Result<()> {
    let all = detached.len();
    let failed: Vec<(&str, anyhow::Error)> =
        detached.into_iter().filter_map(|(name, result)| Some((name, result.err()?))).collect();
    if all == 1 || failed.is_empty() {
        return failed.into_iter().next().map_or(Ok(()), |(_, error)| Err(error));
    }
    for (name, error) in &failed {
        crate::log::tell(tracing::Level::ERROR, &format!("{name}: {error:#}"));
    }
    let names: Vec<&str> = failed.iter().map(|(name, _)| *name).collect();
    bail!("{} of {all} were not detached: {}", names.len(), names.join(", "))
}

/// Describes how complete the storage is without the flash. A pool may have lost data with a disk.
fn completeness(client: &ApiClient, name: &str) -> String {
    let lost = client.get("/v1/pools").ok().and_then(|pools| {
        let pool = pools.as_array()?.iter().find(|pool| pool["name"] == name)?;
        let bytes = |disk: &Value| Some(disk["lost_bytes"].as_u64()? + disk["missing_bytes"].as_u64()?);
        pool["logical_disks"].as_array()?.iter().map(bytes).sum::<Option<u64>>()
    });
    match lost {
        None | Some(0) => "the backend is complete without it.".to_owned(),
        Some(bytes) => format!(
            "its disks have everything except {} that are lost or missing; see flashwise pool status.",
            human::bytes(bytes as f64)
        ),
    }
}

/// Returns the name of a server's only volume.
pub fn only_volume(client: &ApiClient) -> anyhow::Result<String> {
    let status = client.get("/v1/status")?;
    let volumes = status.get("volumes").and_then(Value::as_array).context("the server's status has no volumes")?;
    let names: Vec<&str> = volumes.iter().filter_map(|volume| volume.get("name")?.as_str()).collect();
    match names[..] {
        [name] => Ok(name.to_owned()),
        _ => Err(Misuse(format!("no volume given; name one of: {}", names.join(", "))).into()),
    }
}

fn offline(volume: &VolumeConfig, opened: OpenBackend, salvage: &SalvageFlags) -> anyhow::Result<()> {
    let VolumeConfig { flash, backend, .. } = volume;
    let flash_disk = open_flash(flash, Options::default())?;
    opened.warn_of_damaged_record();
    let OpenBackend { disk: backend_disk, side, pairing, .. } = opened;
    if !salvage.salvage {
        refuse_no_flash(&*flash_disk, "detach")?;
    }
    let path = salvage.journal(volume)?;
    let disk = path.filter(|path| path.exists()).map(|path| FileDisk::open(path, Options::default())).transpose()?;
    let journal = match (path, &disk) {
        (_, Some(disk)) => GivenJournal::Disk(disk),
        (Some(path), None) => GivenJournal::Absent(path),
        (None, None) => GivenJournal::Nothing,
    };
    let read = Bar::erase_units(format!("reading {}", flash.display()));
    let reading = |done, all| read.set(done, all);
    let bar = Bar::bytes(format!("writing back {}", flash.display()), 0);
    let bytes = |blocks| blocks * BLOCK_BYTES as u64;
    let mut progress = |done, all| bar.set(bytes(done), bytes(all));
    let pair = Pair { flash: &*flash_disk, backend: &*backend_disk, journal, side: &*side, pairing: &pairing };
    if salvage.salvage {
        let salvaged = salvage.run(volume, pair, &reading, &mut progress)?;
        drop((read, bar));
        return salvaged.tell(volume);
    }
    let detached = detach(pair, &reading, &mut progress)?;
    drop((read, bar));
    match detached {
        Detached::Now { destaged_blocks } => println!(
            "{} is detached: {} were written back, and {} is complete without it.",
            flash.display(),
            human::bytes(bytes(destaged_blocks) as f64),
            backend.display()
        ),
        Detached::Empty => println!(
            "{} is damaged, but everything was written through: it is detached, and {} is complete without it.",
            flash.display(),
            backend.display()
        ),
        Detached::Before => {
            println!("{} was already detached; {} is complete without it.", flash.display(), backend.display())
        }
    }
    Ok(())
}
