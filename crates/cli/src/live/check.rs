//! `flashwise check`: verifies a cache device and describes its contents.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use flashwise_core::format::{BLOCK_BYTES, Layout};
use flashwise_core::human;
use flashwise_storage::attach::{AttachError, Refusal, paired_superblock};
use flashwise_storage::disk::Disk;
use flashwise_storage::disk::file::Options;
use flashwise_storage::disk::identity::IdentityError;
use flashwise_storage::disk::zoned::open_flash;
use flashwise_storage::flash::read_superblock;
use flashwise_storage::offline::check::{Report, Severity, check, total_bytes};
use flashwise_storage::pool::POOL_BYTES;
use flashwise_trace::progress::Progress;

use crate::failure::Misuse;
use crate::live::pair::{OpenBackend, PairFlags, refuse_no_flash};
use crate::progress::Bar;

/// Verify a cache device that no server uses
///
/// Explains every finding and writes nothing. Exits with 1 if the cache is damaged.
#[derive(Debug, Args)]
pub struct Check {
    /// Flash: a regular file or a block device
    #[arg(long, value_name = "FILE")]
    flash: PathBuf,
    /// Backend that the cache should belong to
    #[arg(long, value_name = "FILE")]
    backend: Option<PathBuf>,
    #[command(flatten)]
    pair: PairFlags,
    /// Read all data and verify its checksums
    #[arg(long)]
    data: bool,
    /// Print the findings and counts as JSON
    #[arg(long)]
    json: bool,
}

impl Check {
    pub fn run(&self) -> anyhow::Result<()> {
        let options = Options { read_only: true, ..Options::default() };
        let flash = open_flash(&self.flash, options)?;
        if let Some(backend) = &self.backend {
            self.refuse_other_way_round(backend, &*flash, options)?;
        }
        refuse_no_flash(&*flash, "check")?;
        let open = |path| OpenBackend::of(&self.pair.volume(path, &self.flash)?, options);
        let (backend, never) = match self.backend.as_deref().map(open).transpose() {
            Err(error) if matches!(error.downcast_ref(), Some(IdentityError::Never { .. })) => (None, true),
            backend => (backend?, false),
        };
        let bar = Bar::bytes(format!("checking {}", self.flash.display()), total_bytes(&*flash, self.data));
        let pair = backend.as_ref().map(|backend| (&backend.identity, backend.disk.size()));
        let mut report = check(&*flash, pair, self.data, &|bytes| bar.advance(bytes))?;
        drop(bar);
        if let (true, Some(path)) = (never, &self.backend) {
            report.mismatch(format!("{} was never the backend of a cache; give this cache's backend.", path.display()));
        }
        if let Some(backend) = &backend {
            // Other problems were found above.
            let paired = paired_superblock(&*flash, &*backend.side, &backend.pairing);
            if let Some(error) = backend.damaged_record() {
                report.add_damaged_record(&error, paired.is_ok());
            }
            if matches!(backend.side.read(), Ok(Some(record)) if record.detached) {
                report.add_detached();
            }
            match paired {
                Err(AttachError::Refused(Refusal::OtherBackend { .. })) => self.report_owner(backend, &mut report),
                Err(AttachError::Refused(refusal)) => report.add_refusal(&refusal),
                _ => {}
            }
        }
        let mut out = std::io::stdout().lock();
        if self.json {
            let mut json = serde_json::to_value(&report)?;
            json["sound"] = report.is_sound().into();
            serde_json::to_writer_pretty(&mut out, &json).map_err(std::io::Error::from)?;
            writeln!(out)?;
        } else {
            write!(out, "{}", self.page(&report))?;
        }
        match report.is_sound() {
            true => Ok(()),
            false if report.is_damaged() => bail!("{}: damage was found", self.flash.display()),
            false => bail!("{}: the backend does not belong to it", self.flash.display()),
        }
    }

    /// Refuses swapped arguments: a backend with a cache and a flash without one.
    fn refuse_other_way_round(&self, backend: &Path, flash: &dyn Disk, options: Options) -> Result<(), Misuse> {
        let holds_cache = |disk: &dyn Disk| read_superblock(disk).is_ok();
        if holds_cache(flash) || !open_flash(backend, options).is_ok_and(|disk| holds_cache(&*disk)) {
            return Ok(());
        }
        let [flash, backend] = [&self.flash, backend].map(|path| path.display());
        Err(Misuse(format!("--flash {flash} holds no cache, but --backend {backend} holds one; swap them")))
    }

    /// Reports which cache the backend belongs to instead of this one.
    fn report_owner(&self, backend: &OpenBackend, report: &mut Report) {
        // An unreadable record counts as none.
        let own = backend.side.read().ok().flatten().map(|record| record.cache);
        let shown = self.backend.as_deref().unwrap_or(Path::new("the backend")).display();
        report.mismatch(match own {
            Some(cache) => {
                format!("{shown} belongs to cache {cache}; give the flash of that cache, or the backend of this one.")
            }
            None => format!("{shown} has no record of a cache; give the backend of this cache."),
        });
    }

    fn page(&self, report: &Report) -> String {
        let mut page = String::new();
        let mut line = |text: String| page += &format!("{text}\n");
        if let Some(description) = &report.description {
            let bytes = |bytes: u64| human::bytes(bytes as f64);
            line(format!("cache {} of backend {}, {}", description.cache, description.backend, description.state));
            line(format!(
                "{} of flash in erase units of {}, in front of {}",
                bytes(description.flash_bytes),
                bytes(description.erase_unit_bytes),
                match description.volume_bytes {
                    POOL_BYTES => "a pool".to_owned(),
                    size => format!("a volume of {}", bytes(size)),
                }
            ));
            let counts = &report.counts;
            let blocks =
                |blocks: u64| format!("{} blocks ({})", human::count(blocks), bytes(blocks * BLOCK_BYTES as u64));
            if description.layout == Layout::Log.name() {
                line(format!("log: {} erase units, {} unused", counts.log_units, counts.unused_units));
                line(format!(
                    "records: {} clean, {} dirty, {} destaged, {} forgotten, {} lost, {} of regions, {} void",
                    counts.clean_records,
                    counts.dirty_records,
                    counts.destaged_records,
                    counts.forget_records,
                    counts.lost_records,
                    counts.region_records,
                    counts.void_records
                ));
                if counts.epoch_records > 0 {
                    line(format!("records of epochs: {}", counts.epoch_records));
                }
            } else if report.opens {
                line(format!("buckets: {} written, {} unused", counts.log_units, counts.unused_units));
                line(format!(
                    "contents: {} blocks in read copies, {} in logs, old versions included; {} writes past the cache",
                    human::count(counts.clean_records),
                    human::count(counts.dirty_records),
                    human::count(counts.forget_records)
                ));
            }
            if report.opens {
                line(format!(
                    "cached: {}; dirty: {}; {} lost",
                    blocks(counts.cached_blocks),
                    blocks(counts.dirty_blocks),
                    counts.lost_blocks
                ));
            }
            if self.data && report.opens {
                line(format!("checksums verified: {}", blocks(counts.verified_blocks)));
            }
        }
        for finding in &report.findings {
            let kind = match finding.severity {
                Severity::Note => "note",
                Severity::Mismatch => "no pair",
                Severity::Damage => "damage",
            };
            line(format!("{kind}: {}", finding.text));
        }
        let verdict = match report.is_sound() {
            true => "The cache is sound.",
            false if report.is_damaged() => "The cache is damaged.",
            false => "The cache is sound, but this is not its backend.",
        };
        line(verdict.to_owned());
        page
    }
}
