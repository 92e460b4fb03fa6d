//! `flashwise check`: what a cache device holds, and whether it is sound.

use std::io::Write;
use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_engine::attach::{AttachError, Refusal, paired_superblock};
use flashwise_engine::check::{Report, Severity, check, total_bytes};
use flashwise_engine::disk::Disk;
use flashwise_engine::disk::file::Options;
use flashwise_engine::disk::zoned::open_flash;
use flashwise_trace::human;
use flashwise_trace::progress::Progress;

use crate::live::pair::{OpenBackend, PairFlags};
use crate::progress::Bar;

/// Verify a cache device that no server uses, and explain what is found; ends with 1 if it is damaged. It writes nothing
#[derive(Debug, Args)]
pub struct Check {
    /// The cache: a regular file or a block device
    #[arg(long, value_name = "FILE")]
    flash: PathBuf,
    /// The backend that it should belong to
    #[arg(long, value_name = "FILE")]
    backend: Option<PathBuf>,
    #[command(flatten)]
    pair: PairFlags,
    /// Read all data, and compare it with its checksums
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
        let open = |path| OpenBackend::of(&self.pair.volume(path, &self.flash)?, options);
        let backend = self.backend.as_deref().map(open).transpose()?;
        let bar = Bar::bytes(format!("checking {}", self.flash.display()), total_bytes(&*flash, self.data));
        let pair = backend.as_ref().map(|backend| (&backend.identity, backend.disk.size()));
        let mut report = check(&*flash, pair, self.data, &|bytes| bar.advance(bytes))?;
        drop(bar);
        if let Some(OpenBackend { side, pairing, .. }) = &backend {
            // Whatever else is wrong with them was found above.
            if let Err(AttachError::Refused(refusal)) = paired_superblock(&*flash, &**side, pairing)
                && !matches!(refusal, Refusal::OtherBackend { .. })
            {
                report.add_refusal(&refusal);
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
        if !report.is_sound() {
            bail!("{}: damage was found", self.flash.display());
        }
        Ok(())
    }

    fn page(&self, report: &Report) -> String {
        let mut page = String::new();
        let mut line = |text: String| page += &format!("{text}\n");
        if let Some(description) = &report.description {
            let bytes = |bytes: u64| human::bytes(bytes as f64);
            line(format!("cache {} of backend {}, {}", description.cache, description.backend, description.state));
            line(format!(
                "{} of flash in erase units of {}, in front of a volume of {}",
                bytes(description.flash_bytes),
                bytes(description.erase_unit_bytes),
                bytes(description.volume_bytes)
            ));
            let counts = &report.counts;
            let blocks =
                |blocks: u64| format!("{} blocks ({})", human::count(blocks), bytes(blocks * BLOCK_BYTES as u64));
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
            line(format!(
                "cached: {}, of which {} are dirty; {} lost",
                blocks(counts.cached_blocks),
                blocks(counts.dirty_blocks),
                counts.lost_blocks
            ));
            if self.data {
                line(format!("data of {} compared with checksums", blocks(counts.verified_blocks)));
            }
        }
        for finding in &report.findings {
            let kind = if finding.severity == Severity::Damage { "damage" } else { "note" };
            line(format!("{kind}: {}", finding.text));
        }
        line(if report.is_sound() { "The cache is sound." } else { "The cache is damaged." }.to_owned());
        page
    }
}
