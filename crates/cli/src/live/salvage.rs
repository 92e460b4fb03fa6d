//! `flashwise detach --salvage`: writes back the certain blocks of a damaged cache and lists the others.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use flashwise_core::format::{BLOCK_BYTES, Geometry};
use flashwise_core::human;
use flashwise_core::quantity::ByteSize;
use flashwise_storage::disk::Disk;
use flashwise_storage::flash::Progress;
use flashwise_storage::offline::detach::Pair;
use flashwise_storage::offline::salvage::{Listed, Outcome, Reason, SalvageOptions, salvage};
use flashwise_storage::volume::VolumeConfig;
use flashwise_trace::error::TraceError;
use flashwise_trace::output::{is_stream, name_of, write_whole};

use crate::failure::Misuse;

/// Options for a damaged cache.
#[derive(Debug, Args)]
#[command(next_help_heading = "Salvage of a damaged cache (offline)")]
pub struct SalvageFlags {
    /// Write back every block that is certainly the newest, and list all others
    #[arg(long)]
    pub salvage: bool,
    /// New file for the list of lost and uncertain blocks [default: FLASH.lost.csv in this directory]
    #[arg(long, value_name = "FILE", requires = "salvage")]
    lost_list: Option<PathBuf>,
    /// Write back uncertain blocks too: their newest known copy, although a newer one may have existed
    #[arg(long, requires = "salvage")]
    with_uncertain: bool,
    /// Give up everything that cannot be written back, and mark the cache as detached
    #[arg(long, requires = "salvage")]
    discard_rest: bool,
    /// Journal of the backend, if write-back used one [default: that of the configuration]
    #[arg(long, value_name = "FILE", requires = "salvage")]
    journal: Option<PathBuf>,
    /// Size of the flash in use, if the superblock is lost [default: all of it]
    #[arg(long, value_name = "SIZE", requires = "salvage")]
    flash_size: Option<ByteSize>,
    /// Size of an erase unit, if the superblock is lost [default: 2MiB]
    #[arg(long, value_name = "SIZE", requires = "salvage")]
    erase_unit: Option<ByteSize>,
}

impl SalvageFlags {
    /// Returns the path of the journal of a volume or a pool.
    pub fn journal<'a>(&'a self, volume: &'a VolumeConfig) -> anyhow::Result<Option<&'a Path>> {
        match self.journal.as_deref() {
            Some(path) if !path.exists() => Err(Misuse(format!("--journal: {} does not exist", path.display())).into()),
            given => Ok(given.or(volume.journal.as_deref())),
        }
    }

    /// True if the options fit one volume only, because its list has a name.
    pub fn is_for_one(&self) -> bool {
        self.lost_list.is_some()
    }

    fn geometry(&self, volume: &VolumeConfig, flash: &dyn Disk) -> anyhow::Result<Geometry> {
        if let Some(zoned) = flash.zoned().filter(|_| self.erase_unit.is_none() && self.flash_size.is_none()) {
            return Ok(zoned.geometry());
        }
        let unit = self.erase_unit.map_or_else(|| volume.cache.erase_unit_bytes(), ByteSize::bytes);
        let size = self.flash_size.map(ByteSize::bytes).or(volume.flash_size_bytes).unwrap_or(flash.size());
        let pages = unit / BLOCK_BYTES as u64;
        let possible = u64::from(Geometry::UNIT_PAGES_MIN)..=u64::from(Geometry::UNIT_PAGES_MAX);
        if !unit.is_multiple_of(BLOCK_BYTES as u64) || !possible.contains(&pages) {
            let unit = ByteSize::new(unit);
            return Err(
                Misuse(format!("--erase-unit is {unit}, expected a multiple of 4KiB from 64KiB to 2GiB")).into()
            );
        }
        let units = size / unit;
        if size > flash.size() || units < u64::from(Geometry::UNITS_MIN) || units * pages > u64::from(u32::MAX) {
            let (size, unit, found) = (ByteSize::new(size), ByteSize::new(unit), ByteSize::new(flash.size()));
            return Err(Misuse(format!(
                "--flash-size is {size} in erase units of {unit}, expected at least {} of them and at most the \
                 device's {found}",
                Geometry::UNITS_MIN
            ))
            .into());
        }
        Ok(Geometry { units: units as u32, unit_pages: pages as u32 })
    }

    pub fn run(
        &self,
        volume: &VolumeConfig,
        pair: Pair<'_>,
        reading: Progress<'_>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> anyhow::Result<Salvaged> {
        let name = volume.flash.file_name().unwrap_or_default().to_string_lossy();
        let list = self.lost_list.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.lost.csv")));
        if !is_stream(&list)? && list.symlink_metadata().is_ok() {
            return Err(exists(&list).into());
        }
        // Without a superblock the geometry is needed; bad values are an error only if they were given.
        let geometry = match self.geometry(volume, pair.flash) {
            Err(error) if self.erase_unit.is_some() || self.flash_size.is_some() => return Err(error),
            geometry => geometry.ok(),
        };
        let options = SalvageOptions { with_uncertain: self.with_uncertain, discard_rest: self.discard_rest, geometry };
        let mut write = |listed: &[Listed]| {
            let io = |source| TraceError::Io { path: name_of(&list), source };
            write_whole(&list, &[], |file| write_list(file, listed).map_err(io)).map_err(|error| match error {
                TraceError::Io { path, source } => io::Error::new(source.kind(), format!("{path}: {source}")),
                error => io::Error::other(error),
            })
        };
        let outcome = salvage(pair, &options, &mut write, reading, progress)?;
        Ok(Salvaged { outcome, list })
    }
}

fn exists(list: &Path) -> Misuse {
    Misuse(format!(
        "{} exists and is not overwritten; move it away, or give another name with --lost-list",
        list.display()
    ))
}

fn write_list(file: &mut dyn Write, listed: &[Listed]) -> io::Result<()> {
    let of_pool = listed.iter().any(|listed| listed.disk.is_some());
    let first = if of_pool { "logical_disk," } else { "" };
    writeln!(file, "{first}first_block,last_block,offset_bytes,length_bytes,reason,written_back")?;
    for Listed { disk, blocks, reason, written_back } in listed {
        let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
        let (offset, length) = (bytes(blocks.start), bytes(blocks.end - blocks.start));
        let written = if *written_back { "yes" } else { "no" };
        if let Some(disk) = disk {
            write!(file, "{disk},")?;
        }
        writeln!(file, "{},{},{offset},{length},{},{written}", blocks.start, blocks.end - 1, reason.name())?;
    }
    Ok(())
}

/// Result of a salvage.
pub struct Salvaged {
    outcome: Outcome,
    list: PathBuf,
}

/// Formats a number of blocks and their size.
pub fn blocks(number: u64) -> String {
    format!("{} ({})", human::counted(number, "block"), human::bytes((number * BLOCK_BYTES as u64) as f64))
}

impl Salvaged {
    /// Prints the result; fails if a block is lost or uncertain.
    pub fn tell(&self, volume: &VolumeConfig) -> anyhow::Result<()> {
        let Salvaged { outcome, list } = self;
        let (flash, backend) = (volume.flash.display(), volume.backend.display());
        if outcome.was_detached {
            println!("{flash} was already detached; {backend} is complete without it.");
            return Ok(());
        }
        if outcome.was_empty {
            println!(
                "{flash} is damaged, but everything was written through: it is detached, and {backend} is complete \
                 without it."
            );
            return Ok(());
        }
        if outcome.journal_blocks > 0 {
            println!("{} were written back from the journal.", blocks(outcome.journal_blocks as u64));
        }
        println!("{} that are certainly the newest were written back.", blocks(outcome.certain_blocks));
        if outcome.listed.is_empty() {
            println!("{flash} is detached: nothing is lost, and {backend} is complete without it.");
            return Ok(());
        }
        self.tell_rest();
        println!("{} lists them.", list.display());
        if outcome.detached {
            println!("{flash} is detached; the rest is given up.");
        } else {
            println!(
                "{flash} is unchanged. Do not write to {backend} before --discard-rest gives it up: another salvage \
                 would \
                 overwrite that."
            );
        }
        bail!("{flash}: not everything could be salvaged; see {}", list.display())
    }

    fn tell_rest(&self) {
        let outcome = &self.outcome;
        let uncertain = outcome.blocks(Reason::Uncertain);
        if uncertain > 0 {
            let what = match outcome.uncertain_blocks_written {
                0 => "they were not written back; do that with --with-uncertain".to_owned(),
                written => format!("the copies of {written} were written back"),
            };
            println!("{} have a copy, but a newer one may be missing; {what}.", blocks(uncertain));
        }
        let lost = outcome.blocks(Reason::Damaged) + outcome.blocks(Reason::Lost);
        if lost > 0 {
            println!("{} are lost: their only copy is damaged, or was already lost.", blocks(lost));
        }
        if outcome.gap_pages() > 0 {
            println!(
                "The records of {} pages of flash are missing. At most that many of {} may have had newer data there \
                 than on the \
                 backend.",
                human::count(outcome.gap_pages()),
                blocks(outcome.blocks(Reason::Unknown) + uncertain)
            );
        } else if outcome.blocks(Reason::Unknown) > 0 {
            println!(
                "{} are unknown: the damaged parts may have had newer data of them than the backend.",
                blocks(outcome.blocks(Reason::Unknown))
            );
        }
    }
}
