//! Previews of operations on a pool, in sentences. An operation that would be refused is refused here with the same
//! message.

use std::path::Path;

use flashwise_core::cache::Mode;
use flashwise_core::human::{self, counted};

use super::map::chunks_of;
use super::prepare::{check, room};
use super::status::WARN_PERCENT;
use super::{CHUNK_BYTES, LogicalDiskChange, NewLogical, Pool, PoolError};
use crate::disk::inventory::{DiskInfo, Role};
use crate::export::Export;

/// The effects of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The effects, one sentence each.
    pub does: Vec<String>,
    /// True if data would be lost.
    pub destroys: bool,
    /// The word that a user must type to confirm; `None` if no confirmation is needed.
    pub word: Option<String>,
    /// Identifiers of the disks that would be wiped.
    pub wipes: Vec<String>,
}

/// The sentence about reserved RAM of a logical disk.
fn pinned(name: &str, bytes: u64) -> String {
    format!("{} of the pool's RAM are reserved for recent reads of {name}.", human::bytes(bytes as f64))
}

/// The sentence about the contents of a disk that would be lost.
pub fn lost(disk: &DiskInfo) -> String {
    let holds = disk.refused.as_deref().unwrap_or("it is blank");
    let named = disk.signatures.iter().chain(disk.partitions.iter().flat_map(|part| &part.signatures));
    let named: Vec<String> = named
        .map(|signature| match &signature.label {
            Some(label) => format!("{} '{label}'", signature.kind),
            None => signature.kind.clone(),
        })
        .collect();
    let more = if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
    let dirty = if disk.role == Role::Cache { ", with its dirty blocks" } else { "" };
    format!("The data on {} is lost{dirty}: {holds}{more}.", disk.named())
}

/// Warnings about space, if the pool had this many more bytes in use.
fn fills(pool: &Pool, more_bytes: u64, provisioned_bytes: u64) -> Vec<String> {
    let status = pool.status();
    let percent = ((status.used_bytes + more_bytes) * 100).checked_div(status.size_bytes).unwrap_or(0);
    let mut does = Vec::new();
    if percent >= WARN_PERCENT {
        does.push(format!("{percent}% of the pool will be in use: add a disk before it is full."));
    }
    if provisioned_bytes > status.size_bytes {
        does.push(format!(
            "Logical disks will have {} in total, and the pool has {}: writes fail when it is full.",
            human::bytes(provisioned_bytes as f64),
            human::bytes(status.size_bytes as f64)
        ));
    }
    does
}

fn takes(pool: &Pool, thick: bool, chunks: usize) -> Result<(String, u64), PoolError> {
    let bytes = chunks as u64 * CHUNK_BYTES;
    if !thick {
        return Ok(("It allocates space when it is written.".to_owned(), 0));
    }
    pool.check_space(&pool.shared.state().metadata.map, chunks)?;
    Ok((format!("It reserves {} of the pool now.", human::bytes(bytes as f64)), bytes))
}

impl Plan {
    /// Describes the effects of [`create_logical`](Pool::create_logical).
    pub fn create(pool: &Pool, new: &NewLogical) -> Result<Plan, PoolError> {
        pool.check_new(new)?;
        pool.check_ready()?;
        pool.check_pin(None, new.pinned_ram_bytes)?;
        let (takes, more) = takes(pool, new.thick, chunks_of(new.size_bytes))?;
        let place = if new.striped { "on different disks" } else { "on one disk, then on the next" };
        let cache = match (new.cached, new.mode) {
            (false, _) => "Its requests are not cached.".to_owned(),
            (true, None | Some(Mode::WriteBack)) => {
                "Its requests are cached, in the write mode of the pool.".to_owned()
            }
            (true, Some(mode)) => format!("Its requests are cached, in write mode {}.", mode.name()),
        };
        let mut does = vec![
            format!(
                "A logical disk {} of {} is created in pool {}.",
                new.name,
                human::bytes(new.size_bytes as f64),
                pool.name()
            ),
            takes,
            format!("Its chunks lie {place}."),
            cache,
        ];
        if new.pinned_ram_bytes > 0 {
            does.push(pinned(&new.name, new.pinned_ram_bytes));
        }
        does.extend(fills(pool, more, pool.provisioned_bytes() + new.size_bytes));
        Ok(Plan { does, ..Plan::default() })
    }

    /// Describes the effects of [`grow_logical`](Pool::grow_logical).
    pub fn grow(pool: &Pool, name: &str, size_bytes: u64) -> Result<Plan, PoolError> {
        let disk = pool.logical(name)?;
        let before = disk.size();
        pool.check_growth(name, before, size_bytes)?;
        pool.check_ready()?;
        let (takes, more) = takes(pool, disk.thick, chunks_of(size_bytes) - chunks_of(before))?;
        let clients = match disk.clients() {
            0 => "No client has it open.".to_owned(),
            many => format!(
                "{} have it open: iSCSI clients see the new size now, NBD clients when they reconnect.",
                counted(many as u64, "client")
            ),
        };
        let grows =
            format!("{name} grows from {} to {}.", human::bytes(before as f64), human::bytes(size_bytes as f64));
        let mut does = vec![
            grows,
            "The new space reads as zeroes.".to_owned(),
            takes,
            clients,
            "It cannot shrink later.".to_owned(),
        ];
        does.extend(fills(pool, more, pool.provisioned_bytes() - before + size_bytes));
        Ok(Plan { does, ..Plan::default() })
    }

    /// Describes the effects of a change of a logical disk.
    pub fn alter(pool: &Pool, name: &str, change: &LogicalDiskChange) -> Result<Plan, PoolError> {
        let LogicalDiskChange { size_bytes, cached, mode, pinned_ram_bytes } = *change;
        let pinned = pinned_ram_bytes.map(|bytes| Plan::pin(pool, name, bytes)).transpose()?;
        let disk = pool.logical(name)?;
        pool.check_ready()?;
        let mut plan = size_bytes.map(|bytes| Plan::grow(pool, name, bytes)).transpose()?.unwrap_or_default();
        let shape = disk.logical.shape();
        plan.does.extend(cached.map(|cached| match (cached == shape.cached, cached) {
            (true, true) => format!("{name} stays cached."),
            (true, false) => format!("{name} stays uncached."),
            (false, true) => format!("Requests of {name} will go through the pool's cache."),
            (false, false) => format!("Requests of {name} will not be cached."),
        }));
        plan.does.extend(mode.map(|mode| match mode == shape.mode {
            true => format!("The mode of {name} stays {}.", mode.name()),
            false => format!("The mode of {name} changes from {} to {}.", shape.mode.name(), mode.name()),
        }));
        plan.does.extend(pinned);
        Ok(plan)
    }

    /// Describes the effect of [`set_pinned`](Pool::set_pinned).
    pub fn pin(pool: &Pool, name: &str, bytes: u64) -> Result<String, PoolError> {
        let disk = pool.logical(name)?;
        pool.check_pin(Some(&disk), bytes)?;
        let before = disk.logical.shape().pinned_ram_bytes;
        let size = human::bytes(bytes as f64);
        Ok(match (bytes == before, bytes) {
            (true, _) => format!("The reserved RAM of {name} stays {size}."),
            (false, 0) => format!("No RAM will be reserved for {name}."),
            (false, _) => pinned(name, bytes),
        })
    }

    /// Describes the effects of [`delete_logical`](Pool::delete_logical).
    pub fn delete(pool: &Pool, name: &str) -> Result<Plan, PoolError> {
        let disk = pool.logical(name)?;
        pool.check_deletion(&disk)?;
        pool.check_ready()?;
        let chunks = disk.logical.entries().counts().placed;
        let does = vec![
            format!("The data on {name}, {}, is lost.", human::bytes(chunks as f64 * CHUNK_BYTES as f64)),
            "Its space is free for other logical disks.".to_owned(),
            "Clients cannot open it any more.".to_owned(),
        ];
        Ok(Plan { does, destroys: true, word: Some(name.to_owned()), ..Plan::default() })
    }

    /// Describes the effects of [`add_disk`](Pool::add_disk). `wipe` allows to erase the contents of the disk.
    pub fn add(pool: &Pool, path: &Path, wipe: bool) -> Result<Plan, PoolError> {
        pool.refuse_own(path)?;
        let info = check(path, wipe)?;
        let data = room(&info, pool.name())?;
        let mut does = Vec::new();
        if info.refused.is_some() {
            does.push(lost(&info));
        }
        does.push(format!(
            "{} becomes a disk of pool {} with room for {}.",
            info.path,
            pool.name(),
            human::bytes(data as f64)
        ));
        does.push(match pool.shared.on_disks.get() {
            Some(_) => "It stays in the pool until you remove it.".to_owned(),
            None => "It stays in the pool until you remove it. Add it to the configuration before the next start."
                .to_owned(),
        });
        let destroys = info.refused.is_some();
        let wipes = destroys.then(|| info.identity()).into_iter().collect();
        Ok(Plan { does, destroys, word: destroys.then_some(info.path), wipes })
    }

    /// Describes the effects of [`end`](Pool::end).
    pub fn end(pool: &Pool) -> Result<Plan, PoolError> {
        pool.check_end()?;
        let mut does = vec![format!("Pool {} has no logical disks, and will not be served any more.", pool.name())];
        does.extend(
            pool.status().disks.iter().map(|disk| format!("{} will be blank, and can be used again.", disk.path)),
        );
        if pool.volume().has_flash() {
            let flash = pool.config.cache.flash.display();
            does.push(format!("The cache on {flash} is deleted; it holds no dirty blocks."));
        }
        Ok(Plan { does, destroys: true, word: Some(pool.name().to_owned()), ..Plan::default() })
    }

    /// Describes the effects of [`remove_disk`](Pool::remove_disk).
    pub fn remove(pool: &Pool, id: u32) -> Result<Plan, PoolError> {
        let (member, bytes) = pool.shared.state().check_removal(id)?;
        let moves = match bytes {
            0 => format!("{} is empty.", member.path),
            bytes => format!(
                "{} move from {} to the other disks; clients are not interrupted.",
                human::bytes(bytes as f64),
                member.path
            ),
        };
        let mut does = vec![moves, format!("Then {} leaves pool {}, and is blank.", member.path, pool.name())];
        if pool.shared.on_disks.get().is_none() {
            does.push("Then you can remove it from the configuration.".to_owned());
        }
        Ok(Plan { does, ..Plan::default() })
    }

    /// Describes the effects of [`keep_disk`](Pool::keep_disk).
    pub fn keep(pool: &Pool, id: u32) -> Result<Plan, PoolError> {
        let member = pool.shared.state().check_keeping(id)?;
        let does = vec![
            format!("{} is no longer being emptied, and stays in pool {}.", member.path, pool.name()),
            "Chunks that have moved to other disks stay there.".to_owned(),
        ];
        Ok(Plan { does, ..Plan::default() })
    }

    /// Describes the effects of [`give_up_disk`](Pool::give_up_disk). `word` may be absent.
    pub fn give_up(pool: &Pool, id: u32, word: Option<&str>) -> Result<Plan, PoolError> {
        let member = pool.check_giving_up(&pool.shared.state(), id, word)?;
        let mut does = vec![format!("{} is removed from the pool for good.", member.path)];
        let chunks = member.base..member.base + member.chunks;
        for (name, disk) in pool.logical_disks() {
            let was_there = |chunk: u32| chunks.contains(&chunk);
            let lost = disk
                .logical
                .entries()
                .there()
                .filter_map(|(_, entry)| entry.written())
                .filter(|at| was_there(*at))
                .count();
            if lost > 0 {
                let bytes = human::bytes(lost as f64 * CHUNK_BYTES as f64);
                does.push(format!("{bytes} of {name} are lost: reads fail until new data is written there."));
            }
            let taken = disk
                .logical
                .entries()
                .there()
                .filter_map(|(_, entry)| entry.chunk())
                .filter(|at| was_there(*at))
                .count();
            if disk.thick && taken > lost {
                let bytes = human::bytes((taken - lost) as f64 * CHUNK_BYTES as f64);
                does.push(format!(
                    "{bytes} of {name}, which is thick, were never written: they lose their reserved space, and \
                     allocate \
                     it again when they are written."
                ));
            }
        }
        if does.len() > 1 && pool.volume().dirty_blocks() > 0 {
            does.push(
                "Dirty blocks of the disk in the cache are lost too. If the disk returned instead, they would be \
                 written back."
                    .to_owned(),
            );
        }
        Ok(Plan { does, destroys: true, word: Some(member.path), ..Plan::default() })
    }
}
