//! The figures of a server's volumes and pools as metrics, in the text format that Prometheus reads.
//!
//! Source: OpenMetrics 1.0. Names end in their unit, counters in `_total`. Every figure of a volume is a row of
//! [`METRICS`].

mod pools;

use std::fmt;

use flashwise_core::filter::Caching;
use flashwise_core::tiers::YEAR_SECONDS;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, LabelSetEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};

use flashwise_storage::pool::status::{LogicalDiskStatus, PoolDiskStatus, PoolStatus};
use flashwise_storage::status::{
    CacheFigure, CacheStatus, LatencyStatus, RecordingState, ServerStatus, VolumeState, VolumeStatus,
};

const PREFIX: &str = "flashwise";
const BLOCK_BYTES: u64 = flashwise_core::format::BLOCK_BYTES as u64;

/// A metric that each volume has.
pub struct Metric {
    /// Its name, without the prefix `flashwise_`, unit and `_total`.
    name: &'static str,
    unit: Option<Unit>,
    help: &'static str,
    series: Series,
}

type Count = fn(&VolumeStatus) -> u64;

/// The values of a metric: one, or one for each value of a label. Gauges that are `None` are left out.
enum Series {
    Counter(Count),
    /// A counter of seconds.
    Seconds(fn(&VolumeStatus) -> f64),
    Counters(&'static str, &'static [(&'static str, Count)]),
    Gauge(fn(&VolumeStatus) -> Option<f64>),
}

macro_rules! counter {
    ($name:literal, $unit:expr, $help:literal, $value:expr) => {
        Metric { name: $name, unit: $unit, help: $help, series: Series::Counter($value) }
    };
}

macro_rules! gauge {
    ($name:literal, $unit:expr, $help:literal, $value:expr) => {
        Metric { name: $name, unit: $unit, help: $help, series: Series::Gauge($value) }
    };
}

/// Families of figures that running and simulated caches share. The figures whose names begin with this prefix become
/// the values of one metric's label. Each row has the prefix, the metric, the label and the help.
const FAMILIES: [(&str, &str, &str, &str); 2] = [
    ("flash_", "flash_written_by_cause", "cause", "Flash writes by what caused them"),
    ("refused_", "refused", "op", "Blocks that the policy wanted on flash, which had no space for them"),
];

/// The metrics of volumes; the latencies, and the figures that running and simulated caches share, are beside them.
const METRICS: &[Metric] = &[
    gauge!("volume_size", Some(Unit::Bytes), "Size of the volume", |v| Some(v.size_bytes as f64)),
    gauge!("uptime", Some(Unit::Seconds), "Time since the volume was opened", |v| Some(v.uptime_seconds)),
    counter!("client_read", Some(Unit::Bytes), "Blocks that clients read", |v| v.reads * BLOCK_BYTES),
    counter!("client_written", Some(Unit::Bytes), "Blocks that clients wrote", |v| v.writes * BLOCK_BYTES),
    Metric {
        name: "read_hit",
        unit: Some(Unit::Bytes),
        help: "Reads served from RAM and flash",
        series: Series::Counters(
            "tier",
            &[("ram", |v| v.ram_read_hits * BLOCK_BYTES), ("flash", |v| v.flash_read_hits * BLOCK_BYTES)],
        ),
    },
    gauge!("read_hit_ratio", None, "Reads served from RAM or flash since the volume was opened, 0 to 1", |v| {
        Some(v.read_hit_ratio)
    }),
    counter!("flash_written", Some(Unit::Bytes), "All flash writes", |v| v.flash_bytes_written),
    counter!("flash_write_requests", None, "Writes of neighbouring blocks to flash because clients wrote", |v| {
        v.flash_write_requests
    }),
    counter!("erasures", None, "Erase units reset", |v| v.erasures),
    gauge!("flash_bytes_per_day", None, "Flash writes per day at the rate so far", |v| { Some(v.flash_bytes_per_day) }),
    gauge!("drive_writes_per_day", None, "Writes of the whole flash per day at the rate so far", |v| {
        Some(v.drive_writes_per_day)
    }),
    gauge!("drive_writes_per_day_rated", None, "Writes of the whole flash per day that it is rated for", |v| {
        v.drive_writes_per_day_rated
    }),
    gauge!("write_budget_bytes_per_day", None, "Flash writes per day that the budget allows", |v| {
        v.write_budget.as_ref().map(|budget| budget.bytes_per_day)
    }),
    gauge!("write_budget_used_today_ratio", None, "Part of today's write budget (UTC) that is used", |v| {
        v.write_budget.as_ref().map(|budget| budget.today_used)
    }),
    gauge!("write_budget_used_life_ratio", None, "Share that was written of all that the budget allowed so far", |v| {
        v.write_budget.as_ref().map(|budget| budget.life_used)
    }),
    gauge!(
        "flash_life_written",
        Some(Unit::Bytes),
        "Flash writes over all starts, by the drive's counter if it has one",
        |v| { v.write_budget.as_ref().map(|budget| budget.life_bytes as f64) }
    ),
    gauge!("flash_lifetime", Some(Unit::Seconds), "Time until the rated writes are used up at the rate so far", |v| {
        v.lifetime_years_rated.map(|years| years * YEAR_SECONDS)
    }),
    gauge!("clients", None, "Clients that have the volume open", |v| Some(v.clients.len() as f64)),
    gauge!("uncached_clients", None, "Clients that the I/O filter excludes from the flash", |v| {
        Some(v.clients.iter().filter(|client| client.caching == Caching::Never.name()).count() as f64)
    }),
    counter!("bypassed", Some(Unit::Bytes), "Misses that the admission rule or the policy rejected", |v| {
        v.bypasses * BLOCK_BYTES
    }),
    Metric {
        name: "throttled",
        unit: Some(Unit::Seconds),
        help: "Time that answers to writes were held back for, all together",
        series: Series::Seconds(|v| v.throttled_seconds),
    },
    gauge!("queue_depth", None, "Requests that are under way", |v| Some(v.queue_depth as f64)),
    gauge!("destaging", Some(Unit::Bytes), "Blocks that are being written back", |v| in_bytes(v.destaging_blocks)),
    gauge!(
        "admission_threshold",
        None,
        "Threshold of an admission rule that adapts: a portion, blocks or references",
        |v| { v.admission_threshold }
    ),
    counter!("admission_decisions", None, "Decisions of an admission rule that adapts", |v| v.admission_decisions),
    counter!("flushes", None, "Flushes that clients asked for", |v| v.flushes),
    gauge!("flash_size", Some(Unit::Bytes), "Size of the flash", |v| Some(v.flash_bytes as f64)),
    gauge!("capacity", Some(Unit::Bytes), "Most blocks that the policy may keep on flash", |v| in_bytes(
        v.capacity_blocks
    )),
    gauge!("flash_room", Some(Unit::Bytes), "Most blocks that fit on flash", |v| in_bytes(v.flash_room_blocks)),
    gauge!("cached", Some(Unit::Bytes), "Blocks with a copy on flash, kept by the policy or not", |v| in_bytes(
        v.cached_blocks
    )),
    gauge!("flash_dirty", Some(Unit::Bytes), "Blocks on flash that are newer than the backend's", |v| {
        in_bytes(v.dirty_blocks)
    }),
    gauge!("dirty", Some(Unit::Bytes), "Data on flash and in RAM that is newer than the backend's", |v| {
        Some(v.dirty_bytes as f64)
    }),
    gauge!("write_buffer", Some(Unit::Bytes), "Blocks that wait in the write buffer", |v| in_bytes(v.buffered_blocks)),
    gauge!(
        "oldest_dirty",
        Some(Unit::Seconds),
        "Since when the block on flash that has been dirty for longest is dirty",
        |v| v.oldest_dirty_seconds
    ),
    gauge!("backend_consistent", None, "1 if the backend is consistent without its flash", |v| {
        v.backend_state.map(|backend| f64::from(u8::from(backend.is_consistent)))
    }),
    gauge!("backend_consistent_age", Some(Unit::Seconds), "Age of the consistent state of the backend", |v| {
        v.backend_state.and_then(|backend| backend.age_seconds)
    }),
    gauge!("backend_consistent_age_max", Some(Unit::Seconds), "Maximum of that age: dirty-age", |v| {
        v.backend_state.map(|backend| backend.age_seconds_max)
    }),
    gauge!("detach_remaining", Some(Unit::Seconds), "How long the detach that is under way still takes", |v| {
        v.detach_remaining_seconds
    }),
    gauge!("backend_queue_depth", None, "Transfers of the backend that are under way", |v| {
        Some(v.backend_load.under_way as f64)
    }),
    counter!("backend_transfers", None, "Transfers of the backend that ended", |v| v.backend_load.transfers),
    Metric {
        name: "backend_transfer",
        unit: Some(Unit::Seconds),
        help: "Time that all transfers of the backend took, together",
        series: Series::Seconds(|v| v.backend_load.transfer_seconds),
    },
    Metric {
        name: "backend_busy",
        unit: Some(Unit::Seconds),
        help: "Time with a transfer of the backend in progress",
        series: Series::Seconds(|v| v.backend_load.busy_seconds),
    },
    gauge!("lost_blocks", None, "Blocks whose only copy is lost", |v| Some(v.lost_blocks.len() as f64)),
    gauge!("unwritten_blocks", None, "Blocks that were answered and wait in memory for a place", |v| {
        Some(v.unwritten_blocks as f64)
    }),
    gauge!("changed_settings", None, "Settings that were changed since the server was started", |v| {
        Some(v.changed_settings.len() as f64)
    }),
    gauge!("memory", Some(Unit::Bytes), "Memory that the process takes", |v| Some(v.memory_bytes as f64)),
    Metric {
        name: "flash_errors",
        unit: None,
        help: "Failures of the flash",
        series: Series::Counters(
            "kind",
            &[
                ("read", |v| v.faults.flash_read_errors),
                ("checksum", |v| v.faults.flash_checksum_errors),
                ("write", |v| v.faults.flash_write_errors),
            ],
        ),
    },
    Metric {
        name: "backend_errors",
        unit: None,
        help: "Failures of the backend",
        series: Series::Counters(
            "kind",
            &[("read", |v| v.faults.backend_read_errors), ("write", |v| v.faults.backend_write_errors)],
        ),
    },
    counter!("failed_requests", None, "Requests that were answered with an error", |v| v.faults.failed_requests),
];

fn in_bytes(blocks: u64) -> Option<f64> {
    Some((blocks * BLOCK_BYTES) as f64)
}

/// Labels in order.
struct Labels<'a>(&'a [(&'a str, &'a str)]);

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder) -> fmt::Result {
        self.0.encode(encoder)
    }
}

/// The metrics of a server, as OpenMetrics.
pub fn encode(status: &ServerStatus, pools: &[PoolStatus]) -> String {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Collector(status.clone(), pools.to_vec())));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("writing to memory does not fail");
    text
}

#[derive(Debug)]
struct Collector(ServerStatus, Vec<PoolStatus>);

impl prometheus_client::collector::Collector for Collector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let volumes = &self.0.volumes;
        server(&mut encoder, &self.0)?;
        pools::encode(&mut encoder, &self.1)?;
        for metric in METRICS {
            encode_metric(&mut encoder, metric, volumes)?;
        }
        encode_shared(&mut encoder, volumes)?;
        let name = "request_duration";
        let help = "Time from the arrival of a request to its answer";
        let mut metric = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for volume in volumes {
            for latency in &volume.latencies {
                let labels = [("volume", volume.name.as_str()), ("operation", latency.operation.as_str())];
                histogram(&mut metric.encode_family(&Labels(&labels))?, latency)?;
            }
        }
        Ok(())
    }
}

fn server(encoder: &mut DescriptorEncoder, status: &ServerStatus) -> fmt::Result {
    let mut build = encoder.encode_descriptor("build", "The program", None, MetricType::Info)?;
    build.encode_info(&Labels(&[("version", status.version.as_str())]))?;
    let mut connections =
        encoder.encode_descriptor("connections", "Connections that are open", None, MetricType::Gauge)?;
    connections.encode_gauge(&status.connections)?;
    let memory = [
        ("request_memory", "Memory that requests and answers of all connections hold", status.request_memory_bytes),
        ("request_memory_limit", "Most of it that they may hold", status.request_memory_bytes_max),
    ];
    for (name, help, bytes) in memory {
        let unit = Some(&Unit::Bytes);
        encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?.encode_gauge(&bytes)?;
    }
    let help = "How often clients reached a limit of the server";
    let mut limits = encoder.encode_descriptor("limit_reached", help, None, MetricType::Counter)?;
    for (limit, times) in &status.limits_reached {
        counter(&mut limits.encode_family(&Labels(&[("limit", limit.as_str())]))?, *times)?;
    }
    if let Some(recording) = &status.recording {
        let counts = [
            ("recorded_requests", "Requests that were taken down in the recording", recording.recorded_requests),
            ("dropped_requests", "Requests that are missing in the recording", recording.dropped_requests),
        ];
        for (name, help, count) in counts {
            counter(&mut encoder.encode_descriptor(name, help, None, MetricType::Counter)?, count)?;
        }
        let is_writing = u64::from(recording.state == RecordingState::Recording);
        let (active, size) = ("1 while requests are recorded", "Size of all segments of the recording");
        encoder.encode_descriptor("recording_active", active, None, MetricType::Gauge)?.encode_gauge(&is_writing)?;
        let bytes = Some(&Unit::Bytes);
        let mut metric = encoder.encode_descriptor("recording_size", size, bytes, MetricType::Gauge)?;
        metric.encode_gauge(&recording.size_bytes)?;
        let most = "The most that they may take";
        let mut metric = encoder.encode_descriptor("recording_size_max", most, bytes, MetricType::Gauge)?;
        metric.encode_gauge(&recording.size_bytes_max)?;
    }
    let unserved = [
        ("unserved_volumes", "Volumes that could not be opened at the start", &status.unserved_volumes),
        ("unserved_pools", "Pools that could not be opened at the start", &status.unserved_pools),
    ];
    for (name, help, unserved) in unserved {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        metric.encode_gauge(&(unserved.len() as u64))?;
    }
    let mut about = encoder.encode_descriptor("volume", "Devices and layout of the volume", None, MetricType::Info)?;
    for volume in &status.volumes {
        let VolumeStatus { name, backend, flash, layout, policy, write_mode, .. } = volume;
        let labels = [
            ("backend", backend),
            ("flash", flash),
            ("layout", layout),
            ("policy", policy),
            ("write_mode", write_mode),
        ];
        let labels = labels.map(|(key, value)| (key, value.as_str()));
        about.encode_family(&Labels(&[("volume", name.as_str())]))?.encode_info(&Labels(&labels))?;
    }
    let mut admission = encoder.encode_descriptor(
        "admission",
        "The admission rule, and its current choice if it adapts",
        None,
        MetricType::Info,
    )?;
    for volume in &status.volumes {
        let choice = volume.admission_choice.as_deref().unwrap_or_default();
        let labels = [("rule", volume.admission.as_str()), ("choice", choice)];
        admission.encode_family(&Labels(&[("volume", volume.name.as_str())]))?.encode_info(&Labels(&labels))?;
    }
    let mut state =
        encoder.encode_descriptor("volume_state", "1 for the state that the volume is in", None, MetricType::Gauge)?;
    for volume in &status.volumes {
        for known in VolumeState::ALL {
            let labels = [("volume", volume.name.as_str()), ("state", known.name())];
            state.encode_family(&Labels(&labels))?.encode_gauge(&u64::from(volume.state == known))?;
        }
    }
    let mut failed =
        encoder.encode_descriptor("failed_device", "The device that has failed", None, MetricType::Info)?;
    for volume in status.volumes.iter().filter(|volume| volume.state_reason.is_some()) {
        // The reason changes with every request, so it must not be a label.
        let reason = volume.state_reason.as_deref().unwrap_or_default();
        for device in failed_devices(reason) {
            failed
                .encode_family(&Labels(&[("volume", volume.name.as_str())]))?
                .encode_info(&Labels(&[("device", device)]))?;
        }
    }
    Ok(())
}

/// Returns the devices that a reason names; not every reason is a failure.
fn failed_devices(reason: &str) -> impl Iterator<Item = &'static str> {
    let is_about =
        |device: &&str| reason.split("; ").any(|why| why.split_once(": ").is_some_and(|(of, _)| of == *device));
    ["flash", "backend"].into_iter().filter(is_about)
}

fn encode_metric(encoder: &mut DescriptorEncoder, metric: &Metric, volumes: &[VolumeStatus]) -> fmt::Result {
    let kind = match metric.series {
        Series::Counter(_) | Series::Counters(..) | Series::Seconds(_) => MetricType::Counter,
        Series::Gauge(_) => MetricType::Gauge,
    };
    let mut encoder = encoder.encode_descriptor(metric.name, metric.help, metric.unit.as_ref(), kind)?;
    for volume in volumes {
        let name = ("volume", volume.name.as_str());
        match metric.series {
            Series::Counter(value) => counter(&mut encoder.encode_family(&Labels(&[name]))?, value(volume))?,
            Series::Seconds(value) => {
                encoder
                    .encode_family(&Labels(&[name]))?
                    .encode_counter(&value(volume), None::<&Exemplar<[(&str, &str); 0], f64>>)?;
            }
            Series::Counters(label, values) => {
                for (of, value) in values {
                    counter(&mut encoder.encode_family(&Labels(&[name, (label, of)]))?, value(volume))?;
                }
            }
            Series::Gauge(value) => {
                if let Some(value) = value(volume) {
                    encoder.encode_family(&Labels(&[name]))?.encode_gauge(&value)?;
                }
            }
        }
    }
    Ok(())
}

/// The figures that running and simulated caches share, in bytes: named, and described, as these name and describe
/// them.
fn encode_shared(encoder: &mut DescriptorEncoder, volumes: &[VolumeStatus]) -> fmt::Result {
    let bytes = Some(&Unit::Bytes);
    let family_of = |figure: &CacheFigure| FAMILIES.iter().find(|family| figure.name.starts_with(family.0));
    for (prefix, name, label, help) in FAMILIES {
        let mut metric = encoder.encode_descriptor(name, help, bytes, MetricType::Counter)?;
        for volume in volumes {
            for figure in CacheStatus::FIGURES.iter().filter(|figure| figure.name.starts_with(prefix)) {
                let value = without_blocks(figure.name)[prefix.len()..].replace('_', "-");
                let labels = [("volume", volume.name.as_str()), (label, value.as_str())];
                counter(&mut metric.encode_family(&Labels(&labels))?, (figure.value)(&volume.cache) * BLOCK_BYTES)?;
            }
        }
    }
    for figure in CacheStatus::FIGURES.iter().filter(|figure| family_of(figure).is_none()) {
        let meaning = figure.meaning.concat();
        let help = meaning.trim().trim_end_matches('.');
        let mut metric = encoder.encode_descriptor(without_blocks(figure.name), help, bytes, MetricType::Counter)?;
        for volume in volumes {
            let labels = [("volume", volume.name.as_str())];
            counter(&mut metric.encode_family(&Labels(&labels))?, (figure.value)(&volume.cache) * BLOCK_BYTES)?;
        }
    }
    Ok(())
}

/// The name of a figure without its unit.
fn without_blocks(name: &str) -> &str {
    name.strip_suffix("_blocks").unwrap_or(name)
}

fn counter(encoder: &mut MetricEncoder, value: u64) -> fmt::Result {
    encoder.encode_counter(&value, None::<&Exemplar<[(&str, &str); 0], u64>>)
}

fn histogram(encoder: &mut MetricEncoder, latency: &LatencyStatus) -> fmt::Result {
    let seconds = |us: u64| us as f64 / 1e6;
    let mut buckets: Vec<_> = latency.buckets.iter().map(|bucket| (seconds(bucket.us_max), bucket.count)).collect();
    let counted: u64 = buckets.iter().map(|(_, count)| count).sum();
    buckets.push((f64::INFINITY, latency.count.saturating_sub(counted)));
    encoder.encode_histogram::<[(&str, &str); 0]>(seconds(latency.sum_us), latency.count, &buckets, None)
}

/// The names of all metrics as they are written, for the documentation.
pub fn names() -> Vec<String> {
    let recording = Some(flashwise_storage::status::RecordingStatus::default());
    let limits_reached = crate::limits::Limits::default().counts();
    let volumes = vec![VolumeStatus::default()];
    let status = ServerStatus { recording, limits_reached, volumes, ..ServerStatus::default() };
    let disks = vec![PoolDiskStatus::default()];
    let pool = PoolStatus { disks, logical_disks: vec![LogicalDiskStatus::default()], ..PoolStatus::default() };
    let text = encode(&status, &[pool]);
    let described = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let name = |(name, kind): (&str, &str)| {
        let mut name = name.to_owned();
        match kind {
            "counter" => name.push_str("_total"),
            "info" => name.push_str("_info"),
            _ => {}
        }
        name
    };
    described.map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::failed_devices;

    #[test]
    fn a_reason_that_is_no_failure_of_a_device_names_none() {
        for (reason, expected) in [
            ("flash: it is gone; backend: input/output error (2 times)", &["flash", "backend"][..]),
            ("backend: no space left", &["backend"]),
            ("the flash was not detached: when that was asked for last, volume 'v': the backend refuses", &[]),
            ("", &[]),
        ] {
            assert_eq!(failed_devices(reason).collect::<Vec<_>>(), expected, "{reason}");
        }
    }
}
