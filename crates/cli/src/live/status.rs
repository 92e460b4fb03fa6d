//! `flashwise status`: the status of a running server, as text.

use std::fmt::Write as _;
use std::io::Write;

use anyhow::Context;
use clap::Args;
use flashwise_core::filter::Caching;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::human;
use flashwise_sim::results::caveat;
use flashwise_storage::status::{
    BackendLoad, BackendStatus, LatencyStatus, RATE_KNOWN_SECONDS, RecordingStatus, ServerStatus, Unserved,
    VolumeState, VolumeStatus, WriteBudgetStatus,
};

use crate::fit;
use crate::live::api::ApiOptions;
use crate::log;
use crate::table;

/// Show a running server's hits, wear, dirty data and latencies
///
/// The status also has flash writes, backend load, clients and failures of each volume.
#[derive(Debug, Args)]
pub struct Status {
    #[command(flatten)]
    api: ApiOptions,
    /// Print all figures as JSON
    #[arg(long)]
    json: bool,
}

impl Status {
    /// The command for the server of `api`, with text output.
    pub fn of(api: ApiOptions) -> Status {
        Status { api, json: false }
    }

    pub fn run(&self) -> anyhow::Result<()> {
        let json = self.api.client()?.get("/v1/status")?;
        let mut out = std::io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &json).map_err(std::io::Error::from)?;
            writeln!(out)?;
            return Ok(());
        }
        let status: ServerStatus = serde_json::from_value(json)
            .context("the server is of another version; use flashwise of its version, or --json")?;
        write!(out, "{}", log::visible(&page(&status)))?;
        Ok(())
    }
}

/// Lost blocks that are listed, at most.
const LOST_MAX: usize = 10;

fn page(status: &ServerStatus) -> String {
    let connections = human::counted(status.connections, "connection");
    let (held, held_max) = (status.request_memory_bytes as f64, status.request_memory_bytes_max as f64);
    let memory = format!("{} of {} for requests", human::bytes(held), human::bytes(held_max));
    let mut page = format!("flashwise {}, process {}, {connections}, {memory}\n", status.version, status.pid);
    for uri in &status.listening {
        let _ = writeln!(page, "listening at {uri}");
    }
    for uri in &status.insecure {
        let text = format!("INSECURE: every machine that can connect to {uri} can read and write every volume");
        let _ = writeln!(page, "{}", fit::sentences(&text, 2, fit::width()));
    }
    if let Some(recording) = &status.recording {
        let _ = writeln!(page, "{}", recorded(recording));
    }
    page.extend(status.unserved_volumes.iter().map(|volume| not_served("volume", volume)));
    page.extend(status.unserved_pools.iter().map(|pool| not_served("pool", pool)));
    for volume in &status.volumes {
        let _ = write!(page, "\n{}", volume_page(volume));
    }
    page
}

/// Returns a line about a volume or a pool that the server could not open.
pub fn not_served(kind: &str, unserved: &Unserved) -> String {
    let text = format!("{kind} {} is NOT SERVED: {}", unserved.name, unserved.reason);
    format!("{}\n", fit::sentences(&text, 2, fit::width()))
}

fn recorded(recording: &RecordingStatus) -> String {
    let requests = human::counted(recording.recorded_requests, "request");
    let [size, most] = [recording.size_bytes, recording.size_bytes_max].map(|bytes| human::bytes(bytes as f64));
    let path = recording.segment.as_ref().unwrap_or(&recording.path);
    let mut text = format!("recording to {path}: {requests}; {size} of {most} in all segments");
    if recording.dropped_requests > 0 {
        let _ = write!(text, ", {} MISSING", human::count(recording.dropped_requests));
    }
    if let Some(error) = &recording.error {
        let _ = write!(text, "; {}: {error}", recording.state.name().to_uppercase());
    }
    text
}

fn blocks(blocks: u64) -> String {
    human::bytes(blocks as f64 * BLOCK_BYTES as f64)
}

fn share(part: u64, whole: u64) -> String {
    human::percent(if whole == 0 { 0.0 } else { part as f64 / whole as f64 })
}

fn volume_page(volume: &VolumeStatus) -> String {
    let size = human::bytes(volume.size_bytes as f64);
    let uptime = human::seconds(volume.uptime_seconds.max(0.0));
    let has_flash = !volume.flash.is_empty();
    let policy = if has_flash { &volume.policy } else { "RAM only," };
    let mut page =
        format!("volume {}: {}, {size}, {policy} {}, up {uptime}\n", volume.name, volume.state, volume.write_mode);
    let width = fit::width();
    let mut line = |what: &str, text: String| {
        let _ = writeln!(page, "{}", fit::sentences(&format!("  {what:<14}{text}"), 16, width));
    };
    if let Some(reason) = &volume.state_reason {
        let is_planned = matches!(volume.state, VolumeState::Ok | VolumeState::Detaching | VolumeState::Detached);
        line(if is_planned { "note" } else { "failed" }, reason.clone());
    }
    line("backend", volume.backend.clone());
    if has_flash {
        let given_up = if volume.state.is_without_flash() { ", no longer used" } else { "" };
        line("flash", format!("{}, {}{given_up}", volume.flash, human::bytes(volume.flash_bytes as f64)));
        line("admission", admission(volume));
    } else {
        line("flash", "none".to_owned());
    }
    let read = |blocks| share(blocks, volume.reads);
    line(
        "reads",
        format!(
            "{}; {} hits: {} from RAM, {} from flash",
            blocks(volume.reads),
            human::percent(volume.read_hit_ratio),
            read(volume.ram_read_hits),
            read(volume.flash_read_hits)
        ),
    );
    let rewritten = share(volume.cache.ram_write_hits, volume.writes);
    line("writes", format!("{}; {rewritten} to blocks still in RAM", blocks(volume.writes)));
    if has_flash {
        line("flash writes", flash_writes(volume));
        line("wear", wear(volume));
        if let Some(budget) = &volume.write_budget {
            line("write budget", write_budget(budget));
        }
        let (room, kept) = (blocks(volume.flash_room_blocks), blocks(volume.capacity_blocks));
        line("cached", format!("{} of {room}; the policy keeps at most {kept}", blocks(volume.cached_blocks)));
    }
    line(
        "dirty",
        format!(
            "{}: {} in RAM, {} being written back; writes were delayed for {}",
            human::bytes(volume.dirty_bytes as f64),
            blocks(volume.buffered_blocks),
            blocks(volume.destaging_blocks),
            human::seconds(volume.throttled_seconds)
        ),
    );
    if let Some(seconds) = volume.detach_remaining_seconds {
        line("detaching", format!("about {} left", human::seconds(seconds)));
    }
    if let Some(backend) = &volume.backend_state {
        line("backend state", backend_state(backend));
    }
    if let Some(seconds) = volume.oldest_dirty_seconds {
        line("oldest dirty", human::seconds(seconds));
    }
    line(
        "backend I/O",
        format!(
            "{} read, {} written past the flash, {} written back; {} in sequential streams, {} filtered by client",
            blocks(volume.cache.backend_read_blocks),
            blocks(volume.cache.backend_written_blocks),
            blocks(volume.cache.destaged_blocks),
            blocks(volume.cache.sequential_blocks),
            blocks(volume.cache.filtered_blocks)
        ),
    );
    line("backend load", backend_load(volume));
    line("requests", format!("{} under way", human::count(volume.queue_depth)));
    line("clients", clients(volume));
    line("memory", human::bytes(volume.memory_bytes as f64));
    line("failures", failures(volume));
    if !volume.changed_settings.is_empty() {
        let changed = volume.changed_settings.join(", ");
        line("changed", format!("{changed}; the next start uses the configuration"));
    }
    if !volume.lost_blocks.is_empty() {
        let named: Vec<String> = volume.lost_blocks.iter().take(LOST_MAX).map(u64::to_string).collect();
        let more = if volume.lost_blocks.len() > LOST_MAX { ", ..." } else { "" };
        let count = human::counted(volume.lost_blocks.len() as u64, "block");
        line("LOST", format!("the only copy of {count}: {}{more}", named.join(", ")));
    }
    page + &latencies(volume)
}

/// Describes the backend without its flash.
fn backend_state(backend: &BackendStatus) -> String {
    let late = match backend.is_late() {
        true => format!(", LATER than dirty-age {}", human::seconds(backend.age_seconds_max)),
        false => String::new(),
    };
    let since = |_| backend.age_seconds.map(|age| format!(" ({} ago{late})", human::seconds(age))).unwrap_or_default();
    let newer = human::counted(backend.newer_blocks, "newer block");
    format!("{}; {newer} would be lost with the flash", backend.described(since))
}

/// Describes the rule, its current choice if it adapts, and the misses that were not cached.
fn admission(volume: &VolumeStatus) -> String {
    let mut text = volume.admission.clone();
    if let Some(choice) = &volume.admission_choice {
        let decisions = human::counted(volume.admission_decisions, "decision");
        let _ = write!(text, ", now {choice} after {decisions}");
    }
    let refused = volume.cache.refused_read_blocks + volume.cache.refused_write_blocks;
    format!("{text}; {} of misses bypassed (policy), {} (flash full)", blocks(volume.bypasses), blocks(refused))
}

/// Describes the clients of the volume: how many, how many of them not cached, and the rules.
fn clients(volume: &VolumeStatus) -> String {
    let uncached = volume.clients.iter().filter(|client| client.caching == Caching::Never.name()).count();
    let mut text = format!("{}, {uncached} not cached; cached: {}", volume.clients.len(), volume.cache_clients);
    for (what, rules) in [("allowed", &volume.allow_clients), ("denied", &volume.deny_clients)] {
        if rules != "none" {
            let _ = write!(text, ", {what} {rules}");
        }
    }
    text
}

fn flash_writes(volume: &VolumeStatus) -> String {
    format!(
        "{}: {} clients, {} admissions, {} copied forward, {} metadata; {} erasures, {} dropped with them",
        human::bytes(volume.flash_bytes_written as f64),
        blocks(volume.cache.flash_client_blocks),
        blocks(volume.cache.flash_admission_blocks),
        blocks(volume.cache.flash_copy_forward_blocks),
        blocks(volume.cache.flash_metadata_blocks),
        human::count(volume.erasures),
        blocks(volume.cache.dropped_blocks)
    )
}

fn wear(volume: &VolumeStatus) -> String {
    let rate = human::bytes(volume.flash_bytes_per_day);
    let mut text = format!("{rate} a day, {} drive writes a day", human::number(volume.drive_writes_per_day));
    match volume.drive_writes_per_day_rated {
        Some(rated) => {
            let _ = write!(text, ", rated for {rated}");
        }
        None => text += "; its rating is not configured (drive-writes-per-day)",
    }
    if let Some(years) = volume.lifetime_years_rated {
        let left = human::lifetime(years);
        let _ = write!(text, "; {left} until the rated writes are used up");
    } else if volume.drive_writes_per_day_rated.is_some() && volume.uptime_seconds < RATE_KNOWN_SECONDS {
        text += "; too early for a lifetime, which is known after an hour";
    }
    if let Some(caveat) = caveat::of_rates(volume.uptime_seconds) {
        let _ = write!(text, "; {caveat}");
    }
    text
}

fn write_budget(budget: &WriteBudgetStatus) -> String {
    let of_day = human::bytes(budget.bytes_per_day);
    let today = format!("{} of {of_day} used today", human::percent(budget.today_used));
    let life = format!(
        "{} of what was allowed in {}",
        human::percent(budget.life_used),
        human::seconds(budget.life_days * 86_400.0)
    );
    let by = match budget.source.as_str() {
        "drive" => "the drive's own counter",
        _ => "the count of flashwise",
    };
    format!("{today}, {life}: {} by {by}", human::bytes(budget.life_bytes as f64))
}

fn backend_load(volume: &VolumeStatus) -> String {
    let BackendLoad { under_way, transfers, transfer_seconds, busy_seconds } = volume.backend_load;
    let under_way = format!("{} under way", human::counted(under_way, "transfer"));
    if transfers == 0 {
        return under_way;
    }
    let took = human::seconds(transfer_seconds / transfers as f64);
    let busy = human::percent(busy_seconds / volume.uptime_seconds.max(busy_seconds));
    format!("{under_way}; each took {took} on average; the backend was busy for {busy} of the time")
}

fn failures(volume: &VolumeStatus) -> String {
    let faults = &volume.faults;
    let named = [
        ("flash read", faults.flash_read_errors),
        ("flash checksum", faults.flash_checksum_errors),
        ("flash write", faults.flash_write_errors),
        ("backend read", faults.backend_read_errors),
        ("backend write", faults.backend_write_errors),
        ("request", faults.failed_requests),
    ];
    let some: Vec<String> =
        named.iter().filter(|(_, count)| *count > 0).map(|(what, count)| human::counted(*count, what)).collect();
    if some.is_empty() { "none".to_owned() } else { some.join(", ") }
}

fn latencies(volume: &VolumeStatus) -> String {
    let answered: Vec<_> = volume.latencies.iter().filter(|latency| latency.count > 0).collect();
    if answered.is_empty() {
        return String::new();
    }
    let header = vec!["  requests", "count", "mean", "median", "99%", "99.9%", "longest"];
    let row = |latency: &LatencyStatus| {
        let times = [latency.p50_us, latency.p99_us, latency.p999_us, latency.max_us].map(|us| us as f64);
        let mut row = vec![format!("  {}", latency.operation), human::count(latency.count)];
        row.extend([latency.mean_us].into_iter().chain(times).map(human::duration));
        row
    };
    format!("{}\n", table::fitting(header, 1, answered.into_iter().map(row).collect()))
}
