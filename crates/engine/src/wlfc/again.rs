//! Finding the cache again while its user runs, where something failed that it relies on: as a start does after a crash of the process,
//! around what failed.

use std::collections::{BTreeMap, BTreeSet};

use flashwise_core::format::{FailedUnit, Superblock};
use flashwise_core::wlfc::Around;

use super::start::{self, Held, InUse};
use super::{Engine, Failures, OnFlash, Settings};
use crate::attach::Attachment;
use crate::disk::Disk;
use crate::disk::zoned::ZonedFlash;
use crate::engine::BACKEND;
use crate::flash::FlashError;

/// Backend buckets that may fail one by one; where more do, none is written before one of them could be.
const FAILING_APART_MAX: usize = 2;

/// The engine that goes on where `before` has stopped and nothing of it is under way. `backend_fails`: the last write of the backend failed.
///
/// What was answered and not done is made again. Buckets that failed are known to the superblock first. Where that cannot be written, or too few are left, the flash is [frozen](flashwise_core::wlfc::Wlfc::is_frozen).
///
/// # Errors
/// The flash cannot be read, which may pass; or what is on it is no cache any more.
pub fn find_again(
    before: &mut Engine,
    flash: &dyn Disk,
    attachment: &mut Attachment,
    backend_fails: bool,
) -> Result<Engine, FlashError> {
    let was_frozen = before.cache().is_frozen();
    let mut frozen = was_frozen || before.layout.failures.flushes;
    flash.zoned().map_or(Ok(()), ZonedFlash::look_again).map_err(FlashError::Io)?;
    let remembered = |bucket: u32| {
        let OnFlash { epoch, end, .. } = before.layout.on_flash[bucket as usize];
        before.cache().remembered(bucket, epoch, end)
    };
    let known = failed_units(attachment.superblock(), &before.layout.failures);
    // What this process knows to be durable is not torn, whatever became of it since.
    attachment.note_ends(&[before.end().run]);
    let superblock = Superblock { failed_units: listed(&known), ..attachment.superblock().clone() };
    let in_use = InUse { remembered: &remembered, read_pause: before.settings.read_pause };
    let mut held = match start::scan_again(flash, &superblock, &in_use) {
        Ok(held) => held,
        // Where nothing is on it alone, it can be done without.
        Err(error @ FlashError::Io(_)) => match Held::remembered(&superblock, &remembered) {
            Some(held) if !held.may_be_dirty() => {
                frozen = true;
                held
            }
            _ => return Err(error),
        },
        Err(error) => return Err(error),
    };
    for &bucket in &held.unread {
        held.headers.take_over(bucket, &before.layout.headers);
    }
    let unread = held.unread.iter().map(|bucket| (bucket + 1, !held.scans[*bucket as usize].found.is_empty()));
    let failed_units = listed(&known.into_iter().chain(unread).collect());
    if !frozen && failed_units != attachment.superblock().failed_units {
        let units: Vec<u32> = failed_units.iter().map(|failed| failed.unit).collect();
        let path = flash.description();
        tracing::error!(path, ?units, "erase units of the flash have failed, and are not written any more");
        frozen = attachment.set_failed_units(flash, failed_units).is_err();
    }
    let settled = held.settle(flash).is_ok() && !before.layout.failures.flushes;
    frozen |= !settled;
    if settled {
        attachment.note_ends(&held.ends);
    }
    let around = match frozen {
        true => Around { frozen, settled, ..Around::default() },
        false => around(before, &held, backend_fails),
    };
    let made = held.start_around(before.cache().config().clone(), around);
    let (mut wlfc, started) = made.map_err(FlashError::Config)?;
    wlfc.succeed(before.cache());
    if wlfc.is_frozen() && !was_frozen {
        let path = flash.description();
        tracing::error!(path, "the flash cannot be written any more: what is on it can be read, and writes fail");
    }
    if before.layout.waits {
        tracing::warn!(path = flash.description(), "the flash can be read again");
    }
    let is_frozen = wlfc.is_frozen();
    let holds_frozen = is_frozen && (!was_frozen || before.layout.holds_frozen);
    let settings = Settings { found_again: before.settings.found_again + 1, ..before.settings };
    let mut engine = Engine::new(wlfc, settings, started);
    engine.faults = before.faults;
    engine.layout.frozen = is_frozen;
    engine.layout.holds_frozen = holds_frozen && settings.holds_failed;
    // A flush that works later says nothing of what one that failed was to make durable.
    engine.layout.failures.flushes = !settled;
    engine.layout.unreadable.extend(&before.layout.unreadable);
    engine.make_again(before);
    Ok(engine)
}

/// What the cache has to go around, on a flash that can be written.
fn around(before: &Engine, held: &Held, backend_fails: bool) -> Around {
    let mut failing: BTreeSet<u32> = before.cache().failing().clone();
    // Where it cannot be flushed, what is written to it counts for nothing either.
    let all_fail = failing.len() > FAILING_APART_MAX || before.stopped() == Some(BACKEND);
    if all_fail && backend_fails {
        failing.extend(before.cache().dirty_backends());
    }
    failing.extend(held.unread_backends());
    Around { failing, unread: held.unread.clone(), ..Around::default() }
}

/// The units that failed by now, and whether what is on them counts.
fn failed_units(superblock: &Superblock, failures: &Failures) -> BTreeMap<u32, bool> {
    let known = superblock.failed_units.iter().map(|failed| (failed.unit, failed.counts));
    let mut all: BTreeMap<u32, bool> = known.collect();
    for bucket in &failures.buckets {
        all.entry(bucket + 1).or_insert(true);
    }
    all.extend(failures.dead.iter().map(|bucket| (bucket + 1, false)));
    all
}

fn listed(units: &BTreeMap<u32, bool>) -> Vec<FailedUnit> {
    units.iter().map(|(&unit, &counts)| FailedUnit { unit, counts }).collect()
}
