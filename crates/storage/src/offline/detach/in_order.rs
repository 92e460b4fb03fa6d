//! Offline write-back in the order of epochs.

use std::collections::BTreeMap;
use std::io;

use flashwise_core::epochs::Epochs;
use flashwise_core::recovery::Recovered;
use flashwise_core::salvage::BlockCopy;

use super::destage;
use crate::disk::Disk;

/// Returns the copies that the backend lacks, by epoch, oldest first. Those of each are ordered by block.
fn copies_in_order(recovered: &mut Recovered, mut epochs: Epochs) -> Vec<Vec<BlockCopy>> {
    let (mut from, mut ends) = (epochs.done(), Vec::new());
    while let Some(epoch) = epochs.oldest() {
        ends.push(epoch.end);
        epochs.finish_oldest();
    }
    // The run ended in the last one.
    ends.push(recovered.log.end());
    let mut all = Vec::new();
    for end in ends {
        let versions = recovered.log.versions(from, end);
        // Of several versions in an epoch, the newest is last.
        let newest: BTreeMap<u32, u32> = versions.into_iter().collect();
        let copy = |(block, slot)| BlockCopy { block, slot, crc: recovered.checksums[slot as usize] };
        all.push(newest.into_iter().map(copy).collect());
        from = end;
    }
    all.retain(|copies: &Vec<BlockCopy>| !copies.is_empty());
    all
}

/// Writes back epochs in turn, durably, so that an interrupted run leaves a state of the volume. The flash does not
/// record how far it came, so `note_ahead` is called before the second one. Returns the number of blocks, and those
/// whose newest data was damaged.
pub(crate) fn destage_in_order(
    flash: &dyn Disk,
    backend: &dyn Disk,
    recovered: &mut Recovered,
    epochs: Epochs,
    note_ahead: &dyn Fn() -> io::Result<()>,
    progress: &mut dyn FnMut(u64, u64),
) -> io::Result<(u64, Vec<u32>)> {
    let epochs = copies_in_order(recovered, epochs);
    let all = epochs.iter().map(|copies| copies.len() as u64).sum();
    let (mut destaged, mut damaged) = (0, Vec::new());
    for (number, copies) in epochs.iter().enumerate() {
        if number == 1 {
            note_ahead()?;
        }
        let (count, unreadable) = destage(flash, backend, copies, &mut |done, _| progress(destaged + done, all))?;
        backend.sync()?;
        destaged += count;
        let is_newest = |copy: &&BlockCopy| recovered.log.find(copy.block) == Some(copy.slot);
        let newest = copies.iter().filter(|copy| unreadable.contains(&copy.block)).filter(is_newest);
        damaged.extend(newest.map(|copy| copy.block));
    }
    progress(all, all);
    Ok((destaged, damaged))
}
