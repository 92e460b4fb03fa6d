//! `flashwise wipe`: erases a cache after a description of its contents.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use clap::Args;
use flashwise_core::human;
use flashwise_storage::disk::Disk;
use flashwise_storage::disk::file::Options;
use flashwise_storage::disk::zoned::open_flash;
use flashwise_storage::offline::check::state_name;
use flashwise_storage::offline::wipe::{Holding, examine, wipe};
use uuid::Uuid;

use crate::failure::Misuse;
use crate::live::pair::{OpenBackend, PairFlags};
use crate::live::salvage::blocks;

/// Erase a cache that no server uses, after showing its contents
///
/// Unwritten data is lost: write it back with `flashwise detach` first.
#[derive(Debug, Args)]
pub struct Wipe {
    /// Flash: a regular file or a block device
    #[arg(long, value_name = "FILE")]
    flash: PathBuf,
    /// Its backend, which can then start without the cache
    #[arg(long, value_name = "FILE")]
    backend: Option<PathBuf>,
    #[command(flatten)]
    pair: PairFlags,
    /// Erase without asking
    #[arg(long)]
    yes: bool,
    /// Erase dirty data too, which the backend does not have
    #[arg(long)]
    discard_dirty: bool,
}

impl Wipe {
    pub fn run(&self) -> anyhow::Result<()> {
        let flash = open_flash(&self.flash, Options::default())?;
        let open = |path| OpenBackend::of(&self.pair.volume(path, &self.flash)?, Options::default());
        let backend = self.backend.as_deref().map(open).transpose()?;
        let holding = examine(&*flash)?;
        println!("{}", self.description(&holding));
        if holding.may_be_dirty() && !self.discard_dirty {
            let what = match holding.dirty_blocks {
                Some(dirty) => format!("{} that the backend does not have", blocks(dirty)),
                None => "data that the backend does not have".to_owned(),
            };
            let may = if holding.dirty_blocks.is_some() { "holds" } else { "may hold" };
            return Err(Misuse(format!(
                "{} {may} {what}; write that back with 'flashwise detach', or lose it with --discard-dirty",
                self.flash.display()
            ))
            .into());
        }
        self.confirm(&holding)?;
        backend.iter().for_each(OpenBackend::warn_of_damaged_record);
        let pair = backend.as_ref().map(|backend| (&*backend.disk as &dyn Disk, &*backend.side, &backend.pairing));
        let (named, dirty) = (pair.is_some(), holding.may_be_dirty());
        wipe(&*flash, &holding, pair)?;
        println!("{} is blank.", self.flash.display());
        if dirty && !named {
            println!("Its backend still expects the lost data: start it once with --discard-cache.");
        }
        Ok(())
    }

    fn description(&self, holding: &Holding) -> String {
        let flash = self.flash.display();
        let Some(superblock) = &holding.superblock else {
            return format!("{flash} holds an unknown cache: both copies of its superblock are damaged.");
        };
        let uuid = Uuid::from_bytes;
        let dirty = match holding.dirty_blocks {
            Some(dirty) => format!("{} were not written back", blocks(dirty)),
            None => "its log is damaged, so unwritten data cannot be counted".to_owned(),
        };
        format!(
            "{flash} holds cache {} of backend {}, {}, after {}; {dirty}.",
            uuid(superblock.cache),
            uuid(superblock.backend),
            state_name(superblock.state),
            human::counted(superblock.attach, "start")
        )
    }

    fn confirm(&self, holding: &Holding) -> anyhow::Result<()> {
        if self.yes {
            return Ok(());
        }
        let flash = self.flash.display();
        if !std::io::stdin().is_terminal() {
            return Err(Misuse(format!("{flash}: there is no terminal to ask on; give --yes to wipe it")).into());
        }
        let word = match &holding.superblock {
            Some(superblock) => Uuid::from_bytes(superblock.cache).to_string()[..8].to_owned(),
            None => "wipe".to_owned(),
        };
        print!("To wipe it, type {word}: ");
        std::io::stdout().flush()?;
        let mut typed = String::new();
        std::io::stdin().read_line(&mut typed)?;
        if typed.trim() == word { Ok(()) } else { Err(Misuse(format!("{flash}: it was not wiped")).into()) }
    }
}
