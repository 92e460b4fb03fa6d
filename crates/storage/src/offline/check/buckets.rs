//! Check of a cache of buckets.

use std::io;

use flashwise_core::checksum;
use flashwise_core::format::{BLOCK_BYTES, State, Superblock};
use flashwise_core::wlfc::header::Missing;
use flashwise_core::wlfc::{Log, Scan, State as BucketState};
use flashwise_engine::memory::Memory;
use flashwise_engine::wlfc::checksums::{Says, header_at, says};

use super::Report;
use crate::disk::Disk;
use crate::disk::zoned::ZonedFlash;
use crate::flash::{FlashError, SCAN_THREADS, cache_tag};
use crate::wlfc::start::{self, Held};

/// Reads all buckets, and with `data` their contents.
pub(crate) fn check_buckets(
    flash: &dyn Disk,
    superblock: &Superblock,
    data: bool,
    report: &mut Report,
    progress: &(dyn Fn(u64) + Sync),
) -> io::Result<()> {
    let bucket_bytes = u64::from(superblock.geometry.unit_pages) * BLOCK_BYTES as u64;
    let held = match start::scan(flash, superblock, SCAN_THREADS, &|_, _| progress(bucket_bytes)) {
        Ok(held) => held,
        Err(FlashError::Io(error)) => return Err(error),
        Err(error) => {
            report.damage(format!("The cache cannot be opened: {error}."));
            return Ok(());
        }
    };
    report.opens = true;
    let (mut used, mut torn) = (0, 0);
    for (bucket, scan) in (0..).zip(&held.scans) {
        used += u64::from(!scan.found.is_empty());
        torn += u64::from(scan.torn && !held.worn.contains(&bucket));
        for (_, oob) in &scan.found {
            let blocks = if oob.log == Log::Data { u64::from(oob.blocks) } else { 0 };
            match (oob.log, oob.state) {
                (Log::Passed, _) => report.counts.forget_records += 1,
                (_, BucketState::Read) => report.counts.clean_records += blocks,
                _ => report.counts.dirty_records += blocks,
            }
        }
    }
    (report.counts.log_units, report.counts.unused_units) = (used, held.scans.len() as u64 - used);
    (report.counts.cached_blocks, report.counts.dirty_blocks) = held.blocks();
    if superblock.state == State::Detached {
        // A detached cache was written back completely.
        report.counts.dirty_blocks = 0;
    }
    if !superblock.failed_units.is_empty() {
        let units: Vec<String> = superblock.failed_units.iter().map(|failed| failed.unit.to_string()).collect();
        report.note(format!("Erase units that have failed and are no longer written: {}.", units.join(", ")));
    }
    if torn > 0 {
        report.note(format!("{torn} buckets were torn by a crash: their last writes were never flushed."));
    }
    if superblock.state == State::Detached {
        return Ok(());
    }
    if let Some(zoned) = flash.zoned()
        && superblock.state == State::Clean
    {
        let elsewhere = check_write_pointers(zoned, superblock.geometry.unit_pages, &held);
        elsewhere.into_iter().for_each(|text| report.note(text));
    }
    if data {
        check_data(flash, superblock, &held, report, progress)?;
    }
    report.note(format!(
        "A start reads {} buckets and finds {} blocks in them, {} of them possibly newer than the backend's.",
        held.scans.len(),
        report.counts.cached_blocks,
        report.counts.dirty_blocks
    ));
    Ok(())
}

/// Compares the device's write pointers with the headers after a clean shutdown. A pointer may also be at the end of a
/// zone that was finished.
fn check_write_pointers(zoned: &ZonedFlash, unit_pages: u32, held: &Held) -> Vec<String> {
    let wrong = |(bucket, scan): (u32, &Scan)| {
        let expected = match scan.found.first() {
            None => 0,
            Some((_, oob)) if oob.state == BucketState::Write => scan.end,
            Some(_) => unit_pages,
        };
        let found = zoned.written_pages(bucket + 1);
        let is_finished = expected > 0 && found == unit_pages;
        (found != expected && !is_finished).then(|| {
            format!(
                "Bucket {bucket}: the device's write pointer is at page {found}, its valid data ends at page \
                {expected}."
            )
        })
    };
    (0..).zip(&held.scans).filter_map(wrong).collect()
}

/// Compares all data with its checksums.
fn check_data(
    flash: &dyn Disk,
    superblock: &Superblock,
    held: &Held,
    report: &mut Report,
    progress: &(dyn Fn(u64) + Sync),
) -> io::Result<()> {
    let unit_pages = superblock.geometry.unit_pages;
    let bucket_blocks = u64::from(held.bucket_blocks());
    let (mut page, mut header) = (Memory::new(1), Memory::new(1));
    let mut damage = Vec::new();
    let offset = |bucket: u32, page: u32| u64::from((bucket + 1) * unit_pages + page) * BLOCK_BYTES as u64;
    for (bucket, scan) in (0..).zip(&held.scans) {
        // The header page in memory.
        let mut at = None;
        for &(first, oob) in scan.found.iter().filter(|(_, oob)| oob.log == Log::Data) {
            for number in 0..oob.blocks {
                let mut expected = Err(Missing::Lost);
                let mut next = held.headers.of(bucket, oob.state, first + number);
                while let Some(found) = next.take() {
                    if at != Some(found) {
                        at = flash.read_at(header.bytes_mut(), offset(bucket, found)).is_ok().then_some(found);
                    }
                    let of = at.and_then(|at| header_at(header.page(0), cache_tag(superblock), oob.epoch, at));
                    match says(of.as_ref(), header.page(0), first + number) {
                        Says::Checksum(crc) => expected = crc,
                        Says::Elsewhere(other) if other < found => next = Some(other),
                        Says::Elsewhere(_) | Says::Nothing => {}
                    }
                }
                let read = flash.read_at(page.bytes_mut(), offset(bucket, first + number));
                // The data is only on the backend.
                let is_below = expected == Err(Missing::OfBackend);
                let right = is_below || read.is_ok() && expected == Ok(checksum::crc32c(page.page(0)));
                report.counts.verified_blocks += 1;
                progress(BLOCK_BYTES as u64);
                if right {
                    continue;
                }
                let block = u64::from(oob.backend) * bucket_blocks + u64::from(oob.at + number);
                let place = format!(
                    "Block {block}, at page {} of bucket {bucket}, cannot be read or has a wrong checksum.",
                    first + number
                );
                damage.push(match oob.state {
                    BucketState::Read => format!("{place} It is read from the backend, which has it too."),
                    _ => format!("{place} It may be the only copy: then reads fail until new data is written there."),
                });
            }
        }
    }
    report.damages(damage);
    Ok(())
}
