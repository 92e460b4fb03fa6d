//! `flashwise wipe`: clears a cache after naming what it holds.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use clap::Args;
use flashwise_engine::check::state_name;
use flashwise_engine::disk::Disk;
use flashwise_engine::disk::file::Options;
use flashwise_engine::disk::zoned::open_flash;
use flashwise_engine::wipe::{Holding, examine, wipe};
use uuid::Uuid;

use crate::failure::Misuse;
use crate::live::pair::{OpenBackend, PairFlags};
use crate::live::salvage::blocks;

/// Clear a cache that no server uses, after naming what it holds
///
/// What was not written back is lost then: `flashwise detach` writes it back.
#[derive(Debug, Args)]
pub struct Wipe {
    /// The cache: a regular file or a block device
    #[arg(long, value_name = "FILE")]
    flash: PathBuf,
    /// The backend that it belongs to, which from then on misses nothing and starts without it
    #[arg(long, value_name = "FILE")]
    backend: Option<PathBuf>,
    #[command(flatten)]
    pair: PairFlags,
    /// Wipe without asking
    #[arg(long)]
    yes: bool,
    /// Wipe even what the backend does not have
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
                "{}: it {may} {what}; write that back by 'flashwise detach', or lose it by --discard-dirty",
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
            println!("Its backend still misses its data: start it with --discard-cache once.");
        }
        Ok(())
    }

    fn description(&self, holding: &Holding) -> String {
        let flash = self.flash.display();
        let Some(superblock) = &holding.superblock else {
            return format!(
                "{flash} holds a cache whose superblock is damaged in both copies: which one is not known."
            );
        };
        let uuid = Uuid::from_bytes;
        let dirty = match holding.dirty_blocks {
            Some(dirty) => format!("{} were not written back", blocks(dirty)),
            None => "its log is damaged, and what was not written back cannot be counted".to_owned(),
        };
        format!(
            "{flash} holds cache {} of backend {}, {}; number of its starts: {}; {dirty}.",
            uuid(superblock.cache),
            uuid(superblock.backend),
            state_name(superblock.state),
            superblock.attach
        )
    }

    fn confirm(&self, holding: &Holding) -> anyhow::Result<()> {
        if self.yes {
            return Ok(());
        }
        let flash = self.flash.display();
        if !std::io::stdin().is_terminal() {
            return Err(Misuse(format!("{flash}: to wipe it, give --yes")).into());
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
