//! READ CAPACITY, GET LBA STATUS, READ DEFECT DATA and START STOP UNIT. Source: SBC-3, sections 5.5, 5.15 to 5.18 and
//! 5.25.

use std::sync::atomic::Ordering;

use flashwise_storage::export::Export;

use super::call::{Call, GOOD, Handled, Work, data};
use super::cdb::Field;
use super::plan::CommandPlan;
use super::status::{Answer, Sense, code, sense_of};
use super::{BLOCK_BYTES, PHYSICAL_BLOCK_BYTES};

/// Maximum number of extents in a reply of GET LBA STATUS.
const EXTENTS_MAX: usize = 256;

pub fn capacity_10(call: Call<'_>) -> Handled {
    if Field(2, 4).of(call.cdb) != 0 {
        return Err(Sense::INVALID_FIELD.into());
    }
    let last = call.unit.blocks().saturating_sub(1);
    let mut bytes = u32::try_from(last).unwrap_or(u32::MAX).to_be_bytes().to_vec();
    bytes.extend((BLOCK_BYTES as u32).to_be_bytes());
    data(bytes, 8)
}

pub fn capacity_16(call: Call<'_>) -> Handled {
    let mut bytes = vec![0; 32];
    bytes[..8].copy_from_slice(&call.unit.blocks().saturating_sub(1).to_be_bytes());
    bytes[8..12].copy_from_slice(&(BLOCK_BYTES as u32).to_be_bytes());
    // The exponent of the number of logical blocks in a physical one.
    bytes[13] = (PHYSICAL_BLOCK_BYTES / BLOCK_BYTES).ilog2() as u8;
    // LBPME: blocks can be unmapped. LBPRZ is 0: the content of unmapped blocks is undefined.
    bytes[14] = 0x80;
    data(bytes, Field(10, 4).of(call.cdb))
}

pub fn lba_status(call: Call<'_>) -> Handled {
    let (block, allocated) = (Field(2, 8).of(call.cdb), Field(10, 4).of(call.cdb));
    let blocks = call.unit.blocks();
    if block >= blocks {
        return Err(Sense::illegal(code::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE).into());
    }
    if allocated < 24 {
        return Err(Sense::INVALID_FIELD.into());
    }
    let extents_max = ((allocated - 8) / 16).min(EXTENTS_MAX as u64) as usize;
    // Numbers of blocks have 32 bits.
    let length = ((blocks - block) * BLOCK_BYTES).min(u64::from(u32::MAX) / BLOCK_BYTES * BLOCK_BYTES);
    let extents = call.unit.export().extents(block * BLOCK_BYTES, length, extents_max);
    let extents = extents.map_err(|error| sense_of(error, false))?;
    let mut ranges: Vec<(u64, u64, bool)> = Vec::new();
    let mut at = block * BLOCK_BYTES;
    for extent in extents {
        let end = at + extent.length;
        // A block that is partly allocated is allocated.
        let (first, after) = if extent.hole {
            (at.div_ceil(BLOCK_BYTES), end / BLOCK_BYTES)
        } else {
            (at / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES))
        };
        let first = ranges.last().map_or(first, |(last, count, _)| first.max(last + count));
        match ranges.last_mut() {
            Some((_, count, hole)) if *hole == extent.hole => *count += after.saturating_sub(first),
            _ if after > first => ranges.push((first, after - first, extent.hole)),
            _ => {}
        }
        at = end;
    }
    let mut bytes = vec![0; 8];
    for (first, count, hole) in ranges {
        bytes.extend(first.to_be_bytes());
        bytes.extend(u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend([u8::from(hole), 0, 0, 0]);
    }
    let length = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    data(bytes, allocated)
}

/// Reports no defects.
pub fn defects_10(call: Call<'_>) -> Handled {
    data(vec![0, call.cdb[2] & 0x1f, 0, 0], Field(7, 2).of(call.cdb))
}

pub fn defects_12(call: Call<'_>) -> Handled {
    data(vec![0, call.cdb[1] & 0x1f, 0, 0, 0, 0, 0, 0], Field(6, 4).of(call.cdb))
}

pub fn start_stop(call: Call<'_>) -> Handled {
    if call.has(4, 0x02) {
        // The medium cannot be ejected.
        return Err(Sense::INVALID_FIELD.into());
    }
    if call.cdb[4] >> 4 != 0 {
        // Power conditions are accepted without effect.
        return GOOD;
    }
    let starts = call.has(4, 0x01);
    call.unit.stopped().store(!starts, Ordering::Relaxed);
    let flushes = !starts && !call.has(4, 0x04);
    Ok(if flushes { Work::Plan(CommandPlan::stop()) } else { Work::Answer(Answer::GOOD) })
}
