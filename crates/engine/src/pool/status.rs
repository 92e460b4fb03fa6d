//! What a pool says of itself: one set of figures behind the API, the commands and the metrics.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::quantity::ByteSize;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::owners::{CHUNK_BLOCKS, chunk_of, owned};
use super::record::Member;
use super::{CHUNK_BYTES, Pool};
use crate::attach::Owned;
use crate::export::Export;
use crate::status::{VolumeState, states};

/// A pool of which this much is in use says so.
pub const WARN_PERCENT: u64 = 80;

states! {
    /// What state a pool is in.
    PoolState [2] {
        /// All of its disks are there.
        #[default]
        Ok "ok",
        /// Disks are missing or have failed.
        Degraded "degraded",
    }
}

states! {
    /// What state a disk of a pool is in.
    PoolDiskState [5] {
        /// It is there, and stays.
        #[default]
        Ok "ok",
        /// It is not there, until it is back or is given up.
        Missing "missing",
        /// It is emptied.
        Leaving "leaving",
        /// It failed to take a change of the map, and is brought up to date once it takes writes again.
        Stale "stale",
        /// All of its reads, writes or flushes have failed for five seconds.
        Failed "failed",
    }
}

/// A disk of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolDiskStatus {
    /// Its number in the pool.
    pub number: u32,
    /// Where it is; where it was, if it is missing.
    pub path: String,
    /// Its UUID, from its label.
    pub uuid: String,
    /// Bytes for data.
    pub size_bytes: u64,
    /// Bytes of them that logical disks have.
    pub used_bytes: u64,
    /// What state it is in.
    pub state: PoolDiskState,
    /// Why all that is asked of it fails, or why emptying it does not go on for now; null where neither is so.
    pub failed: Option<String>,
}

/// A logical disk of a pool. Counts are since the pool was opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogicalDiskStatus {
    /// Its name: its NBD export, and a part of its iSCSI target's.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bytes that have a place on a disk.
    pub allocated_bytes: u64,
    /// Bytes that are on disks that are missing, and answer with an error.
    pub missing_bytes: u64,
    /// Bytes whose only copy was on a disk that was given up, or on flash: they answer with an error until they are written anew.
    pub lost_bytes: u64,
    /// Of these, the blocks of 4,096 bytes whose only copy was on flash.
    #[serde(default)]
    pub lost_blocks: Vec<u64>,
    /// Blocks of 4,096 bytes that were answered and have found no place yet: they wait in memory, and no flush succeeds before.
    #[serde(default)]
    pub unwritten_blocks: u64,
    /// True if each chunk has its place from the beginning.
    pub thick: bool,
    /// True if neighbouring chunks go to different disks.
    pub striped: bool,
    /// True if its requests are cached.
    pub cached: bool,
    /// When what is written reaches the disks, at the latest: `write-back`, `write-through` or `write-around`.
    pub mode: String,
    /// RAM of the pool's read buffer that is kept for what was read of it last, whatever is read of others.
    #[serde(default)]
    pub pinned_ram_bytes: u64,
    /// Clients that have it open.
    pub clients: u64,
    /// Reads that were asked for.
    pub read_requests: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Writes that were asked for.
    pub write_requests: u64,
    /// Bytes of them.
    pub written_bytes: u64,
    /// Flushes that were asked for.
    pub flushes: u64,
    /// Blocks of 4,096 bytes that were read of chunks that have a place: what the cache was asked for.
    #[serde(default)]
    pub reads: u64,
    /// Of these, from RAM.
    #[serde(default)]
    pub ram_read_hits: u64,
    /// Of these, that had a copy on flash.
    #[serde(default)]
    pub flash_read_hits: u64,
    /// Of these, the share that was read from RAM or flash, 0 to 1.
    #[serde(default)]
    pub read_hit_ratio: f64,
    /// Requests that failed because the pool had no space or its flash has failed, or because what they ask for is missing or lost.
    pub refused_requests: u64,
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PoolStatus {
    /// Its name. Its cache is the volume of this name.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// What state it is in.
    pub state: PoolState,
    /// Bytes for data on all disks but those that are being emptied.
    pub size_bytes: u64,
    /// Bytes of them that logical disks have, or that are not free yet.
    pub used_bytes: u64,
    /// Bytes that can be given to logical disks now.
    pub free_bytes: u64,
    /// Sizes of all logical disks together.
    pub provisioned_bytes: u64,
    /// What an operator should do something about; null where nothing.
    pub warning: Option<String>,
    /// True if a running server made it and keeps itself which disks it has; no configuration has to.
    #[serde(default)]
    pub made: bool,
    /// Counts the snapshots of its map.
    pub generation: u64,
    /// Its disks, by number.
    pub disks: Vec<PoolDiskStatus>,
    /// Its logical disks, by name.
    pub logical_disks: Vec<LogicalDiskStatus>,
}

/// Chunks of a logical disk that follow one another on a disk of its pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MapRun {
    /// Where they begin in the logical disk, in bytes.
    pub offset_bytes: u64,
    /// How far each is from the one before in the logical disk, in bytes.
    pub step_bytes: u64,
    /// How much they are, in bytes.
    pub length_bytes: u64,
    /// The number of the disk; 0 where they are lost.
    pub disk: u32,
    /// Where it is; empty where they are lost.
    pub path: String,
    /// Where they begin on the disk, in bytes; 0 where they are lost.
    pub disk_offset_bytes: u64,
    /// True if they were written; else they read as zeroes.
    pub written: bool,
    /// True if the disk is missing.
    pub missing: bool,
    /// True if they are lost, and answer with an error until they are written anew.
    pub lost: bool,
}

impl Pool {
    /// Where the disks were last that are missing.
    pub fn missing_disks(&self) -> Vec<String> {
        let state = self.shared.state();
        let map = &state.metadata.map;
        state.metadata.missing().into_iter().filter_map(|id| Some(map.disks.get(&id)?.path.clone())).collect()
    }

    /// The disks of which all reads, writes or flushes fail, and why.
    pub fn failed_disks(&self) -> Vec<String> {
        let state = self.shared.state();
        let failed = |member: &Member| Some(format!("{}: {}", member.path, self.shared.disk.failure(member.base)?));
        state.metadata.map.disks.values().filter_map(failed).collect()
    }

    /// Bytes for data on all disks but those that are being emptied.
    pub fn size_bytes(&self) -> u64 {
        u64::from(self.shared.state().metadata.map.space.usage().0) * CHUNK_BYTES
    }

    /// Flushes that clients asked for. Its cache is asked for more: the pool makes its map durable by some.
    pub fn flushes(&self) -> u64 {
        self.shared.flushes.load(Ordering::Relaxed)
    }

    /// Requests that were answered with an error for want of a disk or of space, and never reached the cache.
    pub fn refused_requests(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }

    /// What there is to know of it.
    pub fn status(&self) -> PoolStatus {
        // Never while the state is held.
        let flash = match self.volume().state() {
            (VolumeState::FlashFailed, reason) => Some(format!(
                "the flash has failed, and writes are refused; detach it: 'flashwise detach {}' ({})",
                self.name(),
                reason.unwrap_or_default()
            )),
            _ => None,
        };
        let lost = self.volume().lost_blocks();
        let mut waiting = self.volume().not_durable_blocks();
        waiting.retain(|block| lost.binary_search(block).is_err());
        let lacks_disks = !self.shared.state().metadata.missing().is_empty();
        let disks = self.logical_disks();
        let mut logical_disks: Vec<_> = disks.values().map(|disk| self.logical_status(disk, lacks_disks)).collect();
        let places: HashMap<u32, usize> = disks.values().enumerate().map(|(place, disk)| (disk.id, place)).collect();
        let mut state = self.shared.state();
        let owners = state.owners_of(&lost.iter().chain(&waiting).map(|block| chunk_of(*block)).collect());
        let owner = |block: u64| {
            let owner = owners.get(&chunk_of(block))?;
            Some((*places.get(&owner.disk)?, u64::from(owner.at) * CHUNK_BLOCKS + block % CHUNK_BLOCKS))
        };
        for (place, block) in lost.into_iter().filter_map(owner) {
            logical_disks[place].lost_bytes += BLOCK_BYTES as u64;
            logical_disks[place].lost_blocks.push(block);
        }
        logical_disks.iter_mut().for_each(|disk| disk.lost_blocks.sort_unstable());
        let mut refusing = BTreeSet::new();
        for block in waiting {
            let Some((place, _)) = owner(block) else { continue };
            logical_disks[place].unwritten_blocks += 1;
            refusing.extend(state.metadata.map.disk_of(chunk_of(block)));
        }
        let state = &*state;
        let (metadata, missing) = (&state.metadata, state.metadata.missing());
        let counts = metadata.map.space.counts();
        let mut any_failed = false;
        let disks: Vec<_> = metadata
            .map
            .disks
            .iter()
            .map(|(id, member)| {
                let count = counts.get(id).copied().unwrap_or_default();
                let stale = metadata.present.iter().any(|present| present.id == *id && present.stale);
                let failure = self.shared.disk.failure(member.base);
                any_failed |= failure.is_some();
                let disk_state = match (missing.contains(id), member.leaving) {
                    (true, _) => PoolDiskState::Missing,
                    (_, true) => PoolDiskState::Leaving,
                    _ if failure.is_some() => PoolDiskState::Failed,
                    _ if stale => PoolDiskState::Stale,
                    _ => PoolDiskState::Ok,
                };
                let leaving = state.leaving.get(id).and_then(|leaving| leaving.failed.clone());
                let troubles: Vec<String> = failure.into_iter().chain(leaving).collect();
                PoolDiskStatus {
                    number: *id,
                    path: member.path.clone(),
                    uuid: member.disk.to_string(),
                    size_bytes: u64::from(count.chunks) * CHUNK_BYTES,
                    used_bytes: u64::from(count.chunks - count.free) * CHUNK_BYTES,
                    state: disk_state,
                    failed: (!troubles.is_empty()).then(|| troubles.join("; ")),
                }
            })
            .collect();
        let [size_bytes, used_bytes] = <[u32; 2]>::from(metadata.map.space.usage()).map(|n| u64::from(n) * CHUNK_BYTES);
        let is_whole = missing.is_empty() && !any_failed;
        let status = PoolStatus {
            name: self.name().to_owned(),
            uuid: metadata.pool.to_string(),
            state: if is_whole { PoolState::Ok } else { PoolState::Degraded },
            size_bytes,
            used_bytes,
            free_bytes: u64::from(metadata.map.space.to_give()) * CHUNK_BYTES,
            provisioned_bytes: logical_disks.iter().map(|disk| disk.size_bytes).sum(),
            warning: None,
            made: self.shared.on_disks.get().is_some(),
            generation: metadata.generation(),
            disks,
            logical_disks,
        };
        let refusing = |disk: &&PoolDiskStatus| refusing.contains(&disk.number);
        let refusing: Vec<&str> = status.disks.iter().filter(refusing).map(|disk| disk.path.as_str()).collect();
        // What waits for a flash that has failed is not written to a disk before the flash is detached.
        let refusing = if flash.is_some() { "the flash".to_owned() } else { refusing.join(" or ") };
        PoolStatus { warning: warning(&status, flash, &refusing), ..status }
    }

    fn logical_status(&self, disk: &super::LogicalDisk, lacks_disks: bool) -> LogicalDiskStatus {
        let shape = disk.logical.shape();
        let entries = disk.logical.entries();
        let counts = entries.counts();
        // Only a pool that lacks a disk is asked about each of its chunks.
        let is_missing = |chunk: u32| self.shared.is_missing(u64::from(chunk) * CHUNK_BYTES);
        let missing = match lacks_disks {
            true => entries.there().filter(|(_, entry)| entry.chunk().is_some_and(is_missing)).count(),
            false => 0,
        };
        drop(entries);
        let reads = disk.figures.cache.reads.now();
        let figure = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        LogicalDiskStatus {
            name: shape.name,
            uuid: shape.uuid.to_string(),
            size_bytes: disk.size(),
            allocated_bytes: counts.placed as u64 * CHUNK_BYTES,
            missing_bytes: missing as u64 * CHUNK_BYTES,
            lost_bytes: counts.lost as u64 * CHUNK_BYTES,
            lost_blocks: Vec::new(),
            unwritten_blocks: 0,
            thick: shape.thick,
            striped: shape.striped,
            cached: shape.cached,
            mode: shape.mode.name().to_owned(),
            pinned_ram_bytes: shape.pinned_ram_bytes,
            clients: disk.clients() as u64,
            read_requests: figure(&disk.figures.reads),
            read_bytes: figure(&disk.figures.read_bytes),
            write_requests: figure(&disk.figures.writes),
            written_bytes: figure(&disk.figures.written_bytes),
            flushes: figure(&disk.figures.flushes),
            reads: reads.blocks,
            ram_read_hits: reads.ram_hits,
            flash_read_hits: reads.flash_hits,
            read_hit_ratio: reads.hit_ratio(),
            refused_requests: figure(&disk.figures.refused),
        }
    }

    /// Where the chunks of a logical disk are, in order; and, beside the chunks that they are in, which of its blocks flash has lost.
    pub fn map_of(&self, name: &str) -> Result<Vec<MapRun>, super::PoolError> {
        let disk = self.logical(name)?;
        // Never while the state is held.
        let lost_blocks: Vec<_> = self.volume().lost_blocks().into_iter().map(|block| block..block + 1).collect();
        let state = self.shared.state();
        let map = &state.metadata.map;
        let missing = state.metadata.missing();
        let entries = disk.logical.entries();
        let lost = super::map::lost_runs(entries.there()).into_iter().map(|(first, count)| MapRun {
            offset_bytes: u64::from(first) * CHUNK_BYTES,
            step_bytes: CHUNK_BYTES,
            length_bytes: u64::from(count) * CHUNK_BYTES,
            lost: true,
            ..MapRun::default()
        });
        let is_its = |owned: &Owned| owned.disk.as_deref() == Some(name);
        let blocks = owned(map, &lost_blocks).into_iter().filter(is_its).map(|owned| MapRun {
            offset_bytes: owned.blocks.start * BLOCK_BYTES as u64,
            step_bytes: BLOCK_BYTES as u64,
            length_bytes: (owned.blocks.end - owned.blocks.start) * BLOCK_BYTES as u64,
            lost: true,
            ..MapRun::default()
        });
        let mut runs: Vec<MapRun> = map
            .runs(entries.there())
            .into_iter()
            .filter_map(|run| {
                let id = map.disk_of(run.chunk)?;
                let member = &map.disks[&id];
                Some(MapRun {
                    offset_bytes: u64::from(run.first) * CHUNK_BYTES,
                    step_bytes: u64::from(run.step) * CHUNK_BYTES,
                    length_bytes: u64::from(run.count) * CHUNK_BYTES,
                    disk: id,
                    path: member.path.clone(),
                    disk_offset_bytes: u64::from(run.chunk - member.base) * CHUNK_BYTES,
                    written: run.written,
                    missing: missing.contains(&id),
                    lost: false,
                })
            })
            .chain(lost)
            .chain(blocks)
            .collect();
        runs.sort_by_key(|run| run.offset_bytes);
        Ok(runs)
    }
}

/// What an operator should do something about.
///
/// `flash`: that the flash has failed, if it has; `refusing`: the devices that what waits in memory is for.
fn warning(pool: &PoolStatus, flash: Option<String>, refusing: &str) -> Option<String> {
    let of = |state: PoolDiskState| pool.disks.iter().filter(move |disk| disk.state == state);
    let missing = match of(PoolDiskState::Missing).count() {
        0 => None,
        1 => Some("a disk is missing: what is there answers with an error".to_owned()),
        many => Some(format!("{many} disks are missing: what is there answers with an error")),
    };
    let failed = of(PoolDiskState::Failed).chain(of(PoolDiskState::Leaving));
    let failed = failed.filter_map(|disk| Some(format!("{}: {}", disk.path, disk.failed.as_ref()?)));
    let stale = of(PoolDiskState::Stale)
        .map(|disk| format!("{} did not take a change of the map; it is brought up to date once it does", disk.path));
    let lost_bytes: u64 = pool.logical_disks.iter().map(|disk| disk.lost_bytes).sum();
    let lost = (lost_bytes > 0).then(|| {
        let with = pool.logical_disks.iter().filter(|disk| disk.lost_bytes > 0).map(|disk| disk.name.as_str());
        format!(
            "{} of logical disks are lost: they answer with an error until they are written anew ({})",
            ByteSize::new(lost_bytes),
            with.collect::<Vec<_>>().join(", ")
        )
    });
    let waiting = pool.logical_disks.iter().filter(|disk| disk.unwritten_blocks > 0);
    let waiting = waiting.map(|disk| {
        let (blocks, of) = (disk.unwritten_blocks, &disk.name);
        format!("{blocks} blocks of {of} that were answered wait in memory, as {refusing} does not take them: its flushes fail")
    });
    let percent = (pool.used_bytes * 100).checked_div(pool.size_bytes).unwrap_or(0);
    let full = percent >= WARN_PERCENT;
    let full = full.then(|| match pool.free_bytes {
        0 => "the pool is full: what needs more room is refused; add a disk".to_owned(),
        _ => format!("{percent} % of the pool is in use; add a disk before it is full"),
    });
    let all: Vec<String> =
        missing.into_iter().chain(failed).chain(stale).chain(flash).chain(waiting).chain(lost).chain(full).collect();
    (!all.is_empty()).then(|| all.join("; "))
}
