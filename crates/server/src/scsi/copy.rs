//! EXTENDED COPY within the unit, and its status.
//!
//! Source: SPC-4, sections 6.4.3 to 6.4.6 (EXTENDED COPY (LID1) and its descriptors) and 6.21 to 6.24 (RECEIVE COPY
//! STATUS (LID1), RECEIVE COPY OPERATING PARAMETERS).

use std::sync::Arc;

use super::BLOCK_BYTES;
use super::call::{Call, GOOD, Handled, Work, data};
use super::cdb::{Field, number};
use super::inquiry::is_designated;
use super::nexus::CopyState;
use super::plan::{CommandPlan, Segment};
use super::status::{Sense, code, key};

/// Bytes of the parameters' header.
const HEADER_BYTES: usize = 16;
/// The type of an identification descriptor, and its length.
const IDENTIFICATION: u8 = 0xe4;
const IDENTIFICATION_BYTES: usize = 32;
/// The type of a descriptor of a copy between block devices, and its length.
const BLOCKS_TO_BLOCKS: u8 = 0x02;
const BLOCKS_TO_BLOCKS_BYTES: usize = 28;
const TARGETS_MAX: usize = 2;
const SEGMENTS_MAX: usize = 8;
const LIST_BYTES_MAX: usize = TARGETS_MAX * IDENTIFICATION_BYTES + SEGMENTS_MAX * BLOCKS_TO_BLOCKS_BYTES;
/// The list identifier is not used, so the status is not kept.
const DISCARD: u8 = 3;

/// Returns the sense of a copy that cannot start.
const fn aborted(code: u16) -> Sense {
    Sense::new(key::COPY_ABORTED, code)
}

pub fn extended_copy(call: Call<'_>) -> Handled {
    if call.data.is_empty() {
        return GOOD;
    }
    let length_error = || Sense::illegal(code::PARAMETER_LIST_LENGTH_ERROR);
    let (header, lists) = call.data.split_at_checked(HEADER_BYTES).ok_or_else(length_error)?;
    let targets_bytes = number(&header[2..4]) as usize;
    let segments_bytes = number(&header[8..12]) as usize;
    if number(&header[12..16]) > 0 {
        return Err(Sense::illegal(code::INLINE_DATA_LENGTH_EXCEEDED).into());
    }
    if targets_bytes + segments_bytes > LIST_BYTES_MAX || targets_bytes + segments_bytes != lists.len() {
        return Err(length_error().into());
    }
    let (targets, segments) = lists.split_at(targets_bytes);
    let targets = self::targets(&call, targets)?;
    let segments = self::segments(&call, segments, targets)?;
    let state = Arc::new(CopyState::default());
    if header[1] >> 3 & 3 != DISCARD {
        call.nexus.keep_copy(header[0], &state);
    }
    Ok(Work::Plan(CommandPlan::copy(segments, state)))
}

/// Returns the number of targets. Each must be this unit.
fn targets(call: &Call<'_>, list: &[u8]) -> Result<usize, Sense> {
    if list.len() > TARGETS_MAX * IDENTIFICATION_BYTES {
        return Err(Sense::illegal(code::TOO_MANY_TARGET_DESCRIPTORS));
    }
    if list.iter().step_by(IDENTIFICATION_BYTES).any(|kind| *kind != IDENTIFICATION) {
        return Err(Sense::illegal(code::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE));
    }
    let (targets, rest) = list.as_chunks::<IDENTIFICATION_BYTES>();
    if !rest.is_empty() {
        return Err(Sense::illegal(code::PARAMETER_LIST_LENGTH_ERROR));
    }
    for target in targets {
        let designator = target.get(8..8 + usize::from(target[7])).ok_or(Sense::INVALID_PARAMETER)?;
        if !is_designated(call.unit, target[4] & 0x0f, target[5] & 0x0f, designator) {
            return Err(aborted(code::COPY_TARGET_DEVICE_NOT_REACHABLE));
        }
    }
    Ok(targets.len())
}

fn segments(call: &Call<'_>, list: &[u8], targets: usize) -> Result<Vec<Segment>, Sense> {
    let mut segments = Vec::new();
    let mut rest = list;
    while let Some(kind) = rest.first() {
        if segments.len() == SEGMENTS_MAX {
            return Err(Sense::illegal(code::TOO_MANY_SEGMENT_DESCRIPTORS));
        }
        if *kind != BLOCKS_TO_BLOCKS {
            return Err(Sense::illegal(code::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE));
        }
        let (segment, after) = rest
            .split_first_chunk::<BLOCKS_TO_BLOCKS_BYTES>()
            .ok_or(Sense::illegal(code::PARAMETER_LIST_LENGTH_ERROR))?;
        let field = |at: usize, bytes: usize| number(&segment[at..at + bytes]);
        if field(2, 2) as usize != BLOCKS_TO_BLOCKS_BYTES - 4 {
            return Err(Sense::INVALID_PARAMETER);
        }
        let (blocks, from, to) = (field(10, 2), field(12, 8), field(20, 8));
        let is_inside = |first: u64| first.checked_add(blocks).is_some_and(|end| end <= call.unit.blocks());
        if field(4, 2) as usize >= targets || field(6, 2) as usize >= targets {
            return Err(aborted(code::COPY_TARGET_DEVICE_NOT_REACHABLE));
        }
        if !is_inside(from) || !is_inside(to) {
            return Err(aborted(code::NONE));
        }
        segments.push(Segment { from: from * BLOCK_BYTES, to: to * BLOCK_BYTES, length: blocks * BLOCK_BYTES });
        rest = after;
    }
    Ok(segments)
}

/// Reports the status of the copy with a list identifier.
pub fn copy_status(call: Call<'_>) -> Handled {
    let state = call.nexus.copy(call.cdb[2]).ok_or(Sense::wrong_byte(2))?;
    let (status, segments, bytes) = state.get();
    let mut report = vec![0, 0, 0, 8, status];
    report.extend(segments.to_be_bytes());
    // Bytes are counted in units of 1 KiB.
    report.push(1);
    report.extend(u32::try_from(bytes >> 10).unwrap_or(u32::MAX).to_be_bytes());
    data(report, Field(10, 4).of(call.cdb))
}

/// Reports the limits of copies.
pub fn operating_parameters(call: Call<'_>) -> Handled {
    let mut report = vec![0; 46];
    let mut put = |at: usize, value: u32| report[at..at + 4].copy_from_slice(&value.to_be_bytes());
    put(0, 42);
    put(8, (TARGETS_MAX << 16 | SEGMENTS_MAX) as u32);
    put(12, LIST_BYTES_MAX as u32);
    put(16, u32::from(u16::MAX) * BLOCK_BYTES as u32);
    // Number of concurrent copies, in total and per initiator, and the exponent of their granularity.
    put(34, 0x00ff_ff09);
    report[43] = 2;
    (report[44], report[45]) = (BLOCKS_TO_BLOCKS, IDENTIFICATION);
    data(report, Field(10, 4).of(call.cdb))
}
