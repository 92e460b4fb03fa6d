//! `flashwise lifetime`: lifetime and latency of a cache and its storage under a workload given in numbers.

use std::io::Write;

use clap::Args;
use flashwise_core::human;
use flashwise_core::tiers::{Array, Tier};
use flashwise_device::flash::Profile as Flash;
use flashwise_device::{About, ArrayError, Profile, devices, tier_of_option};
use flashwise_sim::array::{Description, Lifetime as Figures, NamedWorkload};

use crate::failure::Misuse;
use crate::listing;
use crate::table;

/// Compute wear, lifetime and latency from rates, without a trace
///
/// Cache, storage and workloads come from a file (docs/lifetime.toml is an example) or from options, which override the
/// file.
#[derive(Debug, Args)]
pub struct Lifetime {
    /// TOML file with the tables cache and storage, and one or more tables workload
    #[arg(value_name = "FILE")]
    file: Option<String>,
    /// Cache: a device from --devices or a file, with changes: slc:devices=2,write-amplification=1.5
    #[arg(long, value_name = "DEVICE", value_parser = parse_cache)]
    cache: Option<Tier>,
    /// Storage, given like --cache: mlc:devices=3
    #[arg(long, value_name = "DEVICE", value_parser = parse_storage)]
    storage: Option<Tier>,
    /// Workload, such as read-mb-per-s=160,read-hit-ratio=90%; repeatable
    ///
    /// A complete one is read-mb-per-s=160,write-mb-per-s=200,read-hit-ratio=90%,write-hit-ratio=85%,dirty=65%. Further
    /// keys: name, admitted (share of the misses), read-length-kb and write-length-kb.
    #[arg(long = "workload", value_name = "WORKLOAD", value_parser = parse_workload)]
    workloads: Vec<NamedWorkload>,
    /// Print a JSON array, one object per workload; null means unlimited
    #[arg(long)]
    json: bool,
    /// List the known devices with their figures and sources
    #[arg(long, exclusive = true)]
    devices: bool,
}

fn parse_cache(text: &str) -> Result<Tier, ArrayError> {
    tier_of_option("cache", text)
}

fn parse_storage(text: &str) -> Result<Tier, ArrayError> {
    tier_of_option("storage", text)
}

fn parse_workload(text: &str) -> Result<NamedWorkload, ArrayError> {
    NamedWorkload::of_option("workload", text)
}

impl Lifetime {
    pub fn run(&self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if self.devices {
            let drives = Profile::all();
            for about in devices() {
                list(&mut out, &about, &drives)?;
            }
            return Ok(());
        }
        let figures = self.figures()?;
        if self.json {
            serde_json::to_writer_pretty(&mut out, &figures).map_err(std::io::Error::from)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{}", shown(&figures))?;
        }
        Ok(())
    }

    fn figures(&self) -> anyhow::Result<Vec<Figures>> {
        let described = self.file.as_deref().map(Description::read).transpose()?.unwrap_or_default();
        let missing = |what: &str, example: &str| {
            let file = self.file.as_deref().map(|file| format!("{file}: ")).unwrap_or_default();
            Misuse(format!("{file}found no {what}, expected one in the file or as an option: {example}"))
        };
        let cache = self.cache.or(described.cache).ok_or_else(|| missing("cache", "--cache slc"))?;
        let storage =
            self.storage.or(described.storage).ok_or_else(|| missing("storage", "--storage mlc:devices=3"))?;
        let workloads: Vec<_> = if self.workloads.is_empty() { described.workloads } else { self.workloads.clone() };
        if workloads.is_empty() {
            return Err(missing("workload", "--workload read-mb-per-s=160,...").into());
        }
        let array = Array { cache, storage };
        Ok(workloads.iter().map(|workload| Figures::of(&array, workload)).collect())
    }
}

/// Returns a table with a column per workload.
fn shown(figures: &[Figures]) -> String {
    let names = figures.iter().enumerate().map(|(number, figures)| match &figures.workload[..] {
        "" => (number + 1).to_string(),
        name => name.to_owned(),
    });
    let header: Vec<String> = std::iter::once("workload".to_owned()).chain(names).collect();
    let mut table = table::plain(&header.iter().map(String::as_str).collect::<Vec<_>>(), 1);
    let mut row = |name: &str, show: &dyn Fn(&Figures) -> String| {
        table.add_row(std::iter::once(name.to_owned()).chain(figures.iter().map(show)));
    };
    row("cache: writes per cell and second", &|figures| human::number(figures.cache_write_rate));
    row("storage: writes per cell and second", &|figures| human::number(figures.storage_write_rate));
    row("cache: endurance used per second", &|figures| human::number(figures.cache_wear_rate));
    row("storage: endurance used per second", &|figures| human::number(figures.storage_wear_rate));
    row("cache: lifetime in years", &|figures| human::years(figures.cache_lifetime_years));
    row("storage: lifetime in years", &|figures| human::years(figures.storage_lifetime_years));
    row("lifetime in years", &|figures| human::years(figures.lifetime_years));
    row("latency of a byte", &|figures| human::duration(figures.latency_mean_us));
    if figures.iter().any(|figures| figures.latency_request_mean_us.is_some()) {
        row("latency of a request", &|figures| figures.latency_request_mean_us.map_or("-".to_owned(), human::duration));
    }
    row("latency over lifetime, per year", &|figures| human::duration(figures.latency_over_lifetime));
    table.trim_fmt()
}

/// Lists the figures of a device under the keys of a file; `drives` are the devices that are known as whole drives.
fn list(mut out: impl Write, about: &About, drives: &[Profile]) -> std::io::Result<()> {
    let About { name, title, source } = about;
    listing::line(&mut out, 0, &format!("{name}  {title}"))?;
    let mut line = |text: &str| listing::line(&mut out, 4, text);
    line(source)?;
    if let Some(Profile { device, service, .. }) = drives.iter().find(|profile| profile.name == *name) {
        let capacity_gb = device.capacity_bytes / 1e9;
        let cycles = cycles(device.endurance_cycles);
        let [read_ms, write_ms] = [device.read_latency_us, device.write_latency_us].map(|us| us / 1e3);
        let channels = service.channels;
        let transfer = service.transfer_mb_per_s.map(|mb_per_s| format!(" transfer-mb-per-s={mb_per_s}"));
        line(&format!(
            "capacity-gb={capacity_gb} endurance-cycles={cycles} read-latency-ms={read_ms} write-latency-ms={write_ms} \
             channels={channels}{}",
            transfer.unwrap_or_default()
        ))?;
    }
    if let Ok(flash) = Flash::find(name, name) {
        let Flash { page_bytes, pages_per_block, channels, dies_per_channel, planes_per_die, .. } = flash;
        let Flash { read_us, program_us, erase_us, .. } = flash;
        let bus = flash.bus_mb_per_s.map(|mb_per_s| format!(" bus-mb-per-s={mb_per_s}")).unwrap_or_default();
        let cycles = flash.pe_cycles.map_or(f64::INFINITY, f64::from);
        line(&format!(
            "[flash] endurance-cycles={} page-bytes={page_bytes} pages-per-block={pages_per_block} channels={channels} \
             dies-per-channel={dies_per_channel} planes-per-die={planes_per_die} read-us={read_us} \
             program-us={program_us} \
             erase-us={erase_us}{bus}",
            self::cycles(cycles)
        ))?;
    }
    Ok(())
}

fn cycles(cycles: f64) -> String {
    if cycles.is_finite() { cycles.to_string() } else { "unlimited".to_owned() }
}
