//! Recovery of the cache while its volume is in use, after a failure of a device. It works like a start after a crash
//! of the process, but avoids what failed.

use std::collections::{BTreeMap, BTreeSet};

use flashwise_core::format::{FailedUnit, Superblock};
use flashwise_core::wlfc::Around;
use flashwise_engine::engine::BACKEND;
use flashwise_engine::wlfc::{Buckets, Engine, Failures};

use super::start::{self, Held, InUse};
use crate::attach::Attachment;
use crate::disk::Disk;
use crate::disk::zoned::ZonedFlash;
use crate::driver::FindsAgain;
use crate::flash::FlashError;

/// Maximum number of failing backend buckets that are tracked individually. If more fail, nothing is written back until
/// a trial succeeds.
const FAILING_APART_MAX: usize = 2;

impl FindsAgain for Buckets {
    /// Failed buckets are recorded in the superblock first. If it cannot be written, or too few buckets remain, the
    /// flash is [frozen](flashwise_core::wlfc::Wlfc::is_frozen).
    fn find_again(
        before: &Engine,
        flash: &dyn Disk,
        attachment: &mut Attachment,
        backend_fails: bool,
    ) -> Result<Engine, FlashError> {
        let mut frozen = before.cache().is_frozen() || before.failures().flushes;
        flash.zoned().map_or(Ok(()), ZonedFlash::look_again).map_err(FlashError::Io)?;
        let remembered = |bucket: u32| before.remembered(bucket);
        let known = failed_units(attachment.superblock(), before.failures());
        // Data that this process knows to be durable cannot be torn.
        attachment.note_ends(&[before.end().run]);
        let superblock = Superblock { failed_units: listed(&known), ..attachment.superblock().clone() };
        let in_use = InUse { remembered: &remembered, read_pause: before.settings().read_pause };
        let mut held = match start::scan_again(flash, &superblock, &in_use) {
            Ok(held) => held,
            // Not needed if the flash holds no dirty blocks.
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
            held.headers.take_over(bucket, before.headers());
        }
        let unread = held.unread.iter().map(|bucket| (bucket + 1, !held.scans[*bucket as usize].found.is_empty()));
        let failed_units = listed(&known.into_iter().chain(unread).collect());
        if !frozen && failed_units != attachment.superblock().failed_units {
            let units: Vec<u32> = failed_units.iter().map(|failed| failed.unit).collect();
            let path = flash.description();
            tracing::error!(
                event = "erase-units-failed",
                path,
                ?units,
                "erase units of the flash failed and are no longer written"
            );
            frozen = attachment.set_failed_units(flash, failed_units).is_err();
        }
        let settled = held.settle(flash).is_ok() && !before.failures().flushes;
        frozen |= !settled;
        if settled {
            attachment.note_ends(&held.ends);
        }
        let around = match frozen {
            true => Around { frozen, settled, ..Around::default() },
            false => around(before, &held, backend_fails),
        };
        let made = held.start_around(before.cache().config().clone(), around);
        let (wlfc, started) = made.map_err(FlashError::Config)?;
        Ok(Engine::after(before, wlfc, started, settled))
    }
}

/// Returns the failures that the cache must avoid, on a writable flash.
fn around(before: &Engine, held: &Held, backend_fails: bool) -> Around {
    let mut failing: BTreeSet<u32> = before.cache().failing().clone();
    // If the backend cannot be flushed, writes to it are useless, too.
    let all_fail = failing.len() > FAILING_APART_MAX || before.recovery().stopped() == Some(BACKEND);
    if all_fail && backend_fails {
        failing.extend(before.cache().dirty_backends());
    }
    failing.extend(held.unread_backends());
    Around { failing, unread: held.unread.clone(), ..Around::default() }
}

/// Returns the units that have failed, and whether their contents still count.
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
