//! `flashwise attach`: ends a detach, so the next start of the server uses the flash again.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use flashwise_server::config::ServerConfig;
use flashwise_storage::attach::{BackendSide, attach_again};
use flashwise_storage::disk::file::Options;
use flashwise_storage::pool::Pool;
use flashwise_storage::volume::VolumeConfig;

use crate::live::api::{ApiClient, ApiOptions, volume_path};
use crate::live::detach::{OFFLINE, names_of, only_volume};
use crate::live::pair::{OpenBackend, PairFlags};

/// End a detach: the next start of the server uses the flash again
///
/// A running server continues without the flash until it is restarted. Offline, give --config or --backend.
#[derive(Debug, Args)]
pub struct Attach {
    /// Volume or pool [default: the only one; offline: all that are detached]
    #[arg(value_name = "VOLUME")]
    volume: Option<String>,
    /// Configuration with the volumes and pools
    #[arg(long, value_name = "FILE", conflicts_with = "backend", help_heading = OFFLINE)]
    config: Option<PathBuf>,
    /// Backend
    #[arg(long, value_name = "FILE", conflicts_with = "volume", help_heading = OFFLINE)]
    backend: Option<PathBuf>,
    #[command(flatten)]
    api: ApiOptions,
    #[command(flatten)]
    pair: PairFlags,
}

impl Attach {
    pub fn run(&self) -> anyhow::Result<()> {
        match (&self.config, &self.backend) {
            (Some(path), _) => self.configured(&ServerConfig::read_alone(path)?),
            (None, Some(backend)) => {
                let volume = self.pair.volume(backend, Path::new(""))?;
                attach(&backend.display().to_string(), &*OpenBackend::of(&volume, Options::default())?.side)
            }
            _ => self.running(&self.api.client()?),
        }
    }

    fn configured(&self, config: &ServerConfig) -> anyhow::Result<()> {
        names_of(config, self.volume.as_deref())?;
        let is_wanted = |cache: &VolumeConfig| {
            self.volume.as_deref().is_none_or(|wanted| wanted == cache.name) && !cache.flash.as_os_str().is_empty()
        };
        for volume in config.volumes.iter().filter(|volume| is_wanted(volume)) {
            attach(&volume.name, &*OpenBackend::of(volume, Options::default())?.side)?;
        }
        for pool in config.pools.iter().filter(|pool| is_wanted(&pool.cache)) {
            let name = &pool.cache.name;
            attach(name, &*Pool::storage(pool).with_context(|| format!("pool {name}"))?.side)?;
        }
        Ok(())
    }

    fn running(&self, client: &ApiClient) -> anyhow::Result<()> {
        let name = match &self.volume {
            Some(name) => name.clone(),
            None => only_volume(client)?,
        };
        client.post(&volume_path(&name, "/attach"))?;
        println!("{name} is attached: the next start of the server uses its flash.");
        Ok(())
    }
}

fn attach(name: &str, side: &dyn BackendSide) -> anyhow::Result<()> {
    match attach_again(side)? {
        true => println!("{name} is attached: the next start of the server uses its flash."),
        false => println!("{name} is not detached."),
    }
    Ok(())
}
