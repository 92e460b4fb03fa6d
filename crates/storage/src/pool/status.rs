//! The status of a pool, for the API, the commands and the metrics.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::human;
use flashwise_core::words;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::owners::{CHUNK_BLOCKS, chunk_of, owned};
use super::record::Member;
use super::{CHUNK_BYTES, Pool};
use crate::attach::Owned;
use crate::export::Export;
use crate::status::VolumeState;

/// Usage of a pool, in percent, from which it warns.
pub const WARN_PERCENT: u64 = 80;

words! {
    /// The state of a pool.
    #[derive(Default, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum PoolState {
        /// All disks are present.
        #[default]
        Ok "ok",
        /// Disks are missing or have failed.
        Degraded "degraded",
    }
}

words! {
    /// The state of a disk of a pool.
    #[derive(Default, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum PoolDiskState {
        /// The disk is present and stays.
        #[default]
        Ok "ok",
        /// The disk is missing, until it returns or is given up.
        Missing "missing",
        /// The disk is being evacuated.
        Leaving "leaving",
        /// The disk failed to take a change of the map. It is updated once it takes writes again.
        Stale "stale",
        /// All reads, writes or flushes of the disk have failed for 5 s.
        Failed "failed",
    }
}

/// A disk of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolDiskStatus {
    /// The number in the pool.
    pub number: u32,
    /// The path; the last known one if the disk is missing.
    pub path: String,
    /// The UUID from the label.
    pub uuid: String,
    /// Bytes for data.
    pub size_bytes: u64,
    /// Bytes allocated to logical disks.
    pub used_bytes: u64,
    /// The state.
    pub state: PoolDiskState,
    /// Why all transfers fail, or why the evacuation does not progress; otherwise null.
    pub failed: Option<String>,
}

/// A logical disk of a pool. Counts begin when the pool is opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogicalDiskStatus {
    /// The name. It is the NBD export, and a part of the name of the iSCSI target.
    pub name: String,
    /// The UUID.
    pub uuid: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bytes allocated on disks.
    pub allocated_bytes: u64,
    /// Bytes on missing disks; requests for them fail.
    pub missing_bytes: u64,
    /// Bytes whose only copy was on flash or on a disk that was given up. Requests for them fail until they are
    /// rewritten.
    pub lost_bytes: u64,
    /// The blocks of 4,096 bytes among these whose only copy was on flash.
    #[serde(default)]
    pub lost_blocks: Vec<u64>,
    /// Acknowledged blocks of 4,096 bytes that wait in memory for a place. Flushes fail until they are written.
    #[serde(default)]
    pub unwritten_blocks: u64,
    /// True if all chunks are allocated at creation.
    pub thick: bool,
    /// True if adjacent chunks go to different disks.
    pub striped: bool,
    /// True if requests are cached.
    pub cached: bool,
    /// The write mode: `write-back`, `write-through` or `write-around`.
    pub mode: String,
    /// Bytes of the pool's read buffer in RAM that are reserved for the most recently read blocks of this disk.
    #[serde(default)]
    pub pinned_ram_bytes: u64,
    /// Clients that have it open.
    pub clients: u64,
    /// Read requests.
    pub read_requests: u64,
    /// Bytes of the read requests.
    pub read_bytes: u64,
    /// Write requests.
    pub write_requests: u64,
    /// Bytes of the write requests.
    pub written_bytes: u64,
    /// Flush requests.
    pub flushes: u64,
    /// Blocks of 4,096 bytes read from allocated chunks, through the cache.
    #[serde(default)]
    pub reads: u64,
    /// Of these, blocks read from RAM.
    #[serde(default)]
    pub ram_read_hits: u64,
    /// Of these, blocks with a copy on flash.
    #[serde(default)]
    pub flash_read_hits: u64,
    /// Of these, the share read from RAM or flash, 0 to 1.
    #[serde(default)]
    pub read_hit_ratio: f64,
    /// Requests that failed because of a full pool, a failed flash, or missing or lost data.
    pub refused_requests: u64,
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PoolStatus {
    /// The name. The cache is the volume of the same name.
    pub name: String,
    /// The UUID.
    pub uuid: String,
    /// The state.
    pub state: PoolState,
    /// Bytes for data on all disks that are not being evacuated.
    pub size_bytes: u64,
    /// Bytes allocated to logical disks, or not free again yet.
    pub used_bytes: u64,
    /// Bytes that can be allocated now.
    pub free_bytes: u64,
    /// Sum of the sizes of all logical disks.
    pub provisioned_bytes: u64,
    /// A condition that an administrator should act on, or null.
    pub warning: Option<String>,
    /// True if the pool was created on a running server, which keeps its list of disks itself. It needs no
    /// configuration.
    #[serde(default)]
    pub made: bool,
    /// Number of the current snapshot of the map.
    pub generation: u64,
    /// The disks, by number.
    pub disks: Vec<PoolDiskStatus>,
    /// The logical disks, by name.
    pub logical_disks: Vec<LogicalDiskStatus>,
}

/// Chunks of a logical disk that are contiguous on a disk of the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MapRun {
    /// Offset of the first chunk in the logical disk, in bytes.
    pub offset_bytes: u64,
    /// Distance between two chunks in the logical disk, in bytes.
    pub step_bytes: u64,
    /// Total length in bytes.
    pub length_bytes: u64,
    /// The number of the disk; 0 if lost.
    pub disk: u32,
    /// The path of the disk; empty if lost.
    pub path: String,
    /// Offset on the disk, in bytes; 0 if lost.
    pub disk_offset_bytes: u64,
    /// False if the chunks read as zeroes.
    pub written: bool,
    /// True if the disk is missing.
    pub missing: bool,
    /// True if the data is lost. Requests fail until it is rewritten.
    pub lost: bool,
}

impl Pool {
    /// Returns the last known paths of the missing disks.
    pub fn missing_disks(&self) -> Vec<String> {
        let state = self.shared.state();
        let map = &state.metadata.map;
        state.metadata.missing().into_iter().filter_map(|id| Some(map.disks.get(&id)?.path.clone())).collect()
    }

    /// Returns the disks whose reads, writes or flushes all fail, each with the reason.
    pub fn failed_disks(&self) -> Vec<String> {
        let state = self.shared.state();
        let failed = |member: &Member| Some(format!("{}: {}", member.path, self.shared.disk.failure(member.base)?));
        state.metadata.map.disks.values().filter_map(failed).collect()
    }

    /// Bytes for data on all disks that are not being evacuated.
    pub fn size_bytes(&self) -> u64 {
        u64::from(self.shared.state().metadata.map.space.usage().0) * CHUNK_BYTES
    }

    /// Number of flushes of clients. The cache gets more, because the pool flushes for its map, too.
    pub fn flushes(&self) -> u64 {
        self.shared.flushes.load(Ordering::Relaxed)
    }

    /// Number of requests that failed before the cache, because of a missing disk or lack of space.
    pub fn refused_requests(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }

    /// Returns the status.
    pub fn status(&self) -> PoolStatus {
        // Must not be called with the state locked.
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
        // Data that waits for a failed flash is written to a disk only once the flash is detached.
        let refusing = if flash.is_some() { "the flash".to_owned() } else { refusing.join(" or ") };
        PoolStatus { warning: warning(&status, flash, &refusing), ..status }
    }

    fn logical_status(&self, disk: &super::LogicalDisk, lacks_disks: bool) -> LogicalDiskStatus {
        let shape = disk.logical.shape();
        let entries = disk.logical.entries();
        let counts = entries.counts();
        // Individual chunks are checked only if a disk is missing.
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

    /// Returns the places of the chunks of a logical disk, in order. Blocks lost by the flash are listed in addition to
    /// their chunks.
    pub fn map_of(&self, name: &str) -> Result<Vec<MapRun>, super::PoolError> {
        let disk = self.logical(name)?;
        // Must not be called with the state locked.
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

/// Returns the warning for an administrator, if any.
///
/// `flash` is the message about a failed flash, if any. `refusing` names the devices that data in memory waits for.
fn warning(pool: &PoolStatus, flash: Option<String>, refusing: &str) -> Option<String> {
    let of = |state: PoolDiskState| pool.disks.iter().filter(move |disk| disk.state == state);
    let missing = match of(PoolDiskState::Missing).count() {
        0 => None,
        1 => Some("a disk is missing: requests for its data fail".to_owned()),
        many => Some(format!("{many} disks are missing: requests for their data fail")),
    };
    let failed = of(PoolDiskState::Failed).chain(of(PoolDiskState::Leaving));
    let failed = failed.filter_map(|disk| Some(format!("{}: {}", disk.path, disk.failed.as_ref()?)));
    let stale = of(PoolDiskState::Stale)
        .map(|disk| format!("{} missed a change of the map; it is updated when it accepts writes again", disk.path));
    let lost_bytes: u64 = pool.logical_disks.iter().map(|disk| disk.lost_bytes).sum();
    let lost = (lost_bytes > 0).then(|| {
        let with = pool.logical_disks.iter().filter(|disk| disk.lost_bytes > 0).map(|disk| disk.name.as_str());
        format!(
            "{} of logical disks are lost: reads fail until new data is written there ({})",
            human::bytes(lost_bytes as f64),
            with.collect::<Vec<_>>().join(", ")
        )
    });
    let waiting = pool.logical_disks.iter().filter(|disk| disk.unwritten_blocks > 0);
    let waiting = waiting.map(|disk| {
        let (blocks, of) = (disk.unwritten_blocks, &disk.name);
        format!(
            "{blocks} acknowledged blocks of {of} wait in memory, because {refusing} rejects them: its flushes \
            fail"
        )
    });
    let percent = (pool.used_bytes * 100).checked_div(pool.size_bytes).unwrap_or(0);
    let full = percent >= WARN_PERCENT;
    let full = full.then(|| match pool.free_bytes {
        0 => "the pool is full: writes that need more space fail; add a disk".to_owned(),
        _ => format!("{percent}% of the pool is in use; add a disk before it is full"),
    });
    let all: Vec<String> =
        missing.into_iter().chain(failed).chain(stale).chain(flash).chain(waiting).chain(lost).chain(full).collect();
    (!all.is_empty()).then(|| all.join("; "))
}
