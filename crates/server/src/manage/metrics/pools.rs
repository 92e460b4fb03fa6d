//! The metrics of pools, their disks and their logical disks.

use std::fmt;

use flashwise_core::format::BLOCK_BYTES;
use flashwise_storage::pool::status::{LogicalDiskStatus, PoolDiskState, PoolDiskStatus, PoolState, PoolStatus};
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::{Labels, counter};

/// A metric of one kind of object: a gauge in bytes or without a unit, or a counter.
struct Metric<T> {
    /// Its name, without the prefix `flashwise_`, unit and `_total`.
    name: &'static str,
    unit: Option<Unit>,
    kind: MetricType,
    help: &'static str,
    value: fn(&T) -> u64,
}

const fn bytes<T>(name: &'static str, help: &'static str, value: fn(&T) -> u64) -> Metric<T> {
    Metric { name, unit: Some(Unit::Bytes), kind: MetricType::Gauge, help, value }
}

const fn count<T>(name: &'static str, unit: Option<Unit>, help: &'static str, value: fn(&T) -> u64) -> Metric<T> {
    Metric { name, unit, kind: MetricType::Counter, help, value }
}

const POOL: &[Metric<PoolStatus>] = &[
    bytes("pool_size", "Room for data on all disks of the pool", |pool| pool.size_bytes),
    bytes("pool_used", "Space allocated to logical disks, or not yet freed", |pool| pool.used_bytes),
    bytes("pool_free", "Space that can be allocated now", |pool| pool.free_bytes),
    bytes("pool_provisioned", "Sizes of all logical disks of the pool together", |pool| pool.provisioned_bytes),
];

const DISK: &[Metric<PoolDiskStatus>] = &[
    bytes("pool_disk_size", "Room for data on a disk of the pool", |disk| disk.size_bytes),
    bytes("pool_disk_used", "Space on the disk allocated to logical disks", |disk| disk.used_bytes),
];

const LOGICAL: &[Metric<LogicalDiskStatus>] = &[
    bytes("logical_disk_size", "Size of the logical disk", |disk| disk.size_bytes),
    bytes("logical_disk_allocated", "Allocated space of the logical disk", |disk| disk.allocated_bytes),
    bytes("logical_disk_missing", "Data of the logical disk on missing disks", |disk| disk.missing_bytes),
    bytes("logical_disk_lost", "Data lost with removed disks or flash, until new data is written there", |disk| {
        disk.lost_bytes
    }),
    Metric {
        name: "logical_disk_clients",
        unit: None,
        kind: MetricType::Gauge,
        help: "Clients that have the logical disk open",
        value: |disk| disk.clients,
    },
    count("logical_disk_read_requests", None, "Reads requested", |disk| disk.read_requests),
    count("logical_disk_read", Some(Unit::Bytes), "Bytes of them", |disk| disk.read_bytes),
    count("logical_disk_write_requests", None, "Writes that were asked for", |disk| disk.write_requests),
    count("logical_disk_written", Some(Unit::Bytes), "Bytes of them", |disk| disk.written_bytes),
    count("logical_disk_flushes", None, "Flushes that were asked for", |disk| disk.flushes),
    count("logical_disk_refused_requests", None, "Requests that failed for want of space or of a disk", |disk| {
        disk.refused_requests
    }),
];

/// Writes the metrics of all pools.
pub fn encode(encoder: &mut DescriptorEncoder<'_>, pools: &[PoolStatus]) -> fmt::Result {
    let disks: Vec<_> = pools.iter().flat_map(|pool| pool.disks.iter().map(move |disk| (pool, disk))).collect();
    let logical = pools.iter().flat_map(|pool| pool.logical_disks.iter().map(move |disk| (pool, disk)));
    let of_pools: Vec<_> = pools.iter().map(|pool| ([("pool", pool.name.as_str()); 1], pool)).collect();
    let of_disks: Vec<_> = disks.iter().map(|(pool, disk)| (labels(pool, "disk", &disk.path), *disk)).collect();
    let of_logical: Vec<_> = logical.map(|(pool, disk)| (labels(pool, "logical_disk", &disk.name), disk)).collect();
    all(encoder, POOL, &of_pools)?;
    let states = of_pools.iter().map(|(labels, pool)| (&labels[..], pool.state.name()));
    state(encoder, "pool_state", "1 for the state that the pool is in", &PoolState::ALL.map(PoolState::name), states)?;
    all(encoder, DISK, &of_disks)?;
    let states = of_disks.iter().map(|(labels, disk)| (&labels[..], disk.state.name()));
    state(
        encoder,
        "pool_disk_state",
        "1 for the state that the disk is in",
        &PoolDiskState::ALL.map(PoolDiskState::name),
        states,
    )?;
    all(encoder, LOGICAL, &of_logical)?;
    reads(encoder, &of_logical)
}

/// Encodes the reads by their source.
fn reads(encoder: &mut DescriptorEncoder<'_>, of: &[([(&str, &str); 2], &LogicalDiskStatus)]) -> fmt::Result {
    if of.is_empty() {
        return Ok(());
    }
    let (name, help) = ("logical_disk_read_hit", "Reads of a logical disk that were served from RAM and flash");
    let mut family = encoder.encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Counter)?;
    for (labels, disk) in of {
        for (tier, blocks) in [("ram", disk.ram_read_hits), ("flash", disk.flash_read_hits)] {
            let labels = [&labels[..], &[("tier", tier)]].concat();
            counter(&mut family.encode_family(&Labels(&labels))?, blocks * BLOCK_BYTES as u64)?;
        }
    }
    let (name, help) =
        ("logical_disk_read_hit_ratio", "Reads of written chunks that were served from RAM or flash, 0 to 1");
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, disk) in of {
        family.encode_family(&Labels(labels))?.encode_gauge(&disk.read_hit_ratio)?;
    }
    Ok(())
}

fn labels<'a>(pool: &'a PoolStatus, kind: &'static str, name: &'a str) -> [(&'static str, &'a str); 2] {
    [("pool", &pool.name), (kind, name)]
}

fn all<T, const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    metrics: &[Metric<T>],
    of: &[([(&str, &str); N], &T)],
) -> fmt::Result {
    for metric in metrics.iter().filter(|_| !of.is_empty()) {
        let mut family = encoder.encode_descriptor(metric.name, metric.help, metric.unit.as_ref(), metric.kind)?;
        for (labels, thing) in of {
            let (labels, value) = (Labels(labels), (metric.value)(thing));
            let mut one = family.encode_family(&labels)?;
            match metric.kind {
                MetricType::Counter => counter(&mut one, value)?,
                _ => one.encode_gauge(&value)?,
            }
        }
    }
    Ok(())
}

fn state<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    known: &[&'static str],
    of: impl Iterator<Item = (&'a [(&'a str, &'a str)], &'a str)>,
) -> fmt::Result {
    let mut of = of.peekable();
    if of.peek().is_none() {
        return Ok(());
    }
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, now) in of {
        for known in known {
            let labels = [labels, &[("state", *known)]].concat();
            family.encode_family(&Labels(&labels))?.encode_gauge(&u64::from(now == *known))?;
        }
    }
    Ok(())
}
