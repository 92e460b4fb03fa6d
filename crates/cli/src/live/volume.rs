//! `flashwise volume`: creates and deletes volumes of a running server.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use flashwise_core::human;
use flashwise_server::manage::NewVolume;

use crate::live::api::ApiOptions;
use crate::live::pool::{absolute, delete, settings};

/// Create and delete volumes while the server runs
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Put a cache before a disk that keeps its data, and serve it now and after each restart
    Create(Create),
    /// Delete a volume that a running server created; its disk keeps all data
    Delete(Delete),
}

impl VolumeCommand {
    pub fn run(&self) -> anyhow::Result<()> {
        match self {
            VolumeCommand::Create(create) => create.run(),
            VolumeCommand::Delete(delete) => delete.run(),
        }
    }
}

#[derive(Debug, Args)]
pub struct Create {
    /// Name of the volume: 1 to 64 lower-case letters, digits, hyphens and dots
    #[arg(value_name = "NAME")]
    name: String,
    /// Slow storage: a block device or a regular file
    #[arg(value_name = "BACKEND")]
    backend: PathBuf,
    /// Configuration of the volume, such as flash=/dev/nvme0n1 or ram=1GiB; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    api: ApiOptions,
}

impl Create {
    fn run(&self) -> anyhow::Result<()> {
        let (name, backend, settings) = (self.name.clone(), absolute(&self.backend)?, settings(&self.set)?);
        let new = NewVolume { name, backend, settings };
        let made = self.api.client()?.send("POST", "/v1/volumes", &serde_json::to_value(&new)?)?;
        let size = made["size_bytes"].as_u64().unwrap_or_default();
        println!("Volume {} has {} and is served.", self.name, human::bytes(size as f64));
        Ok(())
    }
}

#[derive(Debug, Args)]
pub struct Delete {
    /// Volume
    #[arg(value_name = "NAME")]
    name: String,
    /// The same name, to confirm
    #[arg(long, value_name = "NAME")]
    confirm: String,
    #[command(flatten)]
    api: ApiOptions,
}

impl Delete {
    fn run(&self) -> anyhow::Result<()> {
        match delete(&self.api, "volume", &self.name, &self.confirm)? {
            true => println!("Volume {} is deleted. Its backend has all data.", self.name),
            false => {
                println!("Volume {} was not served and is forgotten. Its devices are unchanged.", self.name)
            }
        }
        Ok(())
    }
}
