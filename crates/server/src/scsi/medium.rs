//! Commands that read and write blocks. Source: SBC-3, section 5.

use flashwise_storage::export::Operation;

use super::BLOCK_BYTES;
use super::call::{Call, GOOD, Handled, Work};
use super::cdb::number;
use super::inquiry::UNMAP_DESCRIPTORS_MAX;
use super::plan::{CommandPlan, Wish};
use super::status::{Sense, code};

const FORCE_UNIT_ACCESS: u8 = 0x08;
/// Longest piece of a read for verification.
const PIECE_BYTES: u64 = 1 << 20;

/// True if a writing command also reads: WRITE AND VERIFY and ORWRITE.
pub fn reads_back(code: u8) -> bool {
    matches!(code, 0x2e | 0x8b | 0x8e | 0xae)
}

/// True if a command has FUA set. Commands of 6 bytes have no such bit.
fn forces(call: &Call<'_>) -> bool {
    !matches!(call.cdb[0], 0x08 | 0x0a) && call.has(1, FORCE_UNIT_ACCESS)
}

fn plan(plan: CommandPlan) -> Handled {
    Ok(Work::Plan(plan))
}

pub fn read(call: Call<'_>) -> Handled {
    if call.blocks == 0 {
        return GOOD;
    }
    let read = Wish::of(Operation::Read, call.offset(), call.bytes());
    // FUA: the data must be on the medium before it is read.
    plan(if forces(&call) { CommandPlan::read([Wish::flush(), read]) } else { CommandPlan::read([read]) })
}

/// Writes the data. If it is shorter than the command says, only part is written.
pub fn write(call: Call<'_>) -> Handled {
    if call.data.is_empty() {
        return GOOD;
    }
    let durable = forces(&call);
    plan(CommandPlan::all([Wish::write(call.offset(), call.data, durable)]))
}

pub fn write_and_verify(call: Call<'_>) -> Handled {
    if call.data.is_empty() {
        return GOOD;
    }
    let (offset, bytes) = (call.offset(), call.data.len() as u64);
    let write = Wish::write(offset, call.data.clone(), true);
    plan(CommandPlan::compare([write, Wish::of(Operation::Read, offset, bytes)], call.data))
}

pub fn verify(call: Call<'_>) -> Handled {
    let (offset, bytes) = (call.offset(), call.bytes());
    let compares = call.cdb[1] >> 1 & 3;
    if compares == 2 {
        return Err(Sense::INVALID_FIELD.into());
    }
    if call.blocks == 0 {
        return GOOD;
    }
    let read = Wish::of(Operation::Read, offset, bytes);
    match compares {
        0 => {
            let piece = |at: u64| Wish::of(Operation::Read, offset + at, PIECE_BYTES.min(bytes - at));
            plan(CommandPlan::all((0..bytes).step_by(PIECE_BYTES as usize).map(piece).collect::<Vec<_>>()))
        }
        3 => plan(CommandPlan::compare([read], call.data.repeat(call.blocks as usize))),
        _ => plan(CommandPlan::compare([read], call.data)),
    }
}

/// A hint. The cache decides, so the reply is GOOD and not CONDITION MET.
pub fn prefetch(call: Call<'_>) -> Handled {
    let offset = call.offset();
    // 0 blocks means all blocks up to the end.
    let bytes = if call.blocks == 0 { call.unit.blocks() * BLOCK_BYTES - offset } else { call.bytes() };
    if bytes == 0 {
        return GOOD;
    }
    plan(CommandPlan::all([Wish::of(Operation::Cache, offset, bytes)]))
}

/// Flushes the whole cache, because parts of it cannot be flushed separately.
pub fn synchronize(_: Call<'_>) -> Handled {
    plan(CommandPlan::all([Wish::flush()]))
}

fn zeroes(offset: u64, length: u64, may_punch_holes: bool) -> Wish {
    Wish::of(Operation::WriteZeroes { may_punch_holes, only_if_fast: false }, offset, length)
}

pub fn write_same(call: Call<'_>) -> Handled {
    let offset = call.offset();
    // 0 blocks means all blocks up to the end.
    let end = if call.blocks == 0 { call.unit.blocks() * BLOCK_BYTES } else { offset + call.bytes() };
    if offset == end {
        return GOOD;
    }
    let unmaps = call.has(1, 0x08);
    if call.data.iter().all(|byte| *byte == 0) {
        return plan(CommandPlan::all([zeroes(offset, end - offset, unmaps)]));
    }
    plan(CommandPlan::fill(offset, end, &call.data))
}

pub fn unmap(call: Call<'_>) -> Handled {
    if call.data.is_empty() {
        return GOOD;
    }
    let list_length_error = || Sense::illegal(code::PARAMETER_LIST_LENGTH_ERROR);
    let header = call.data.first_chunk::<8>().ok_or_else(list_length_error)?;
    let length = usize::from(u16::from_be_bytes([header[2], header[3]])).min(call.data.len() - 8);
    let descriptors = call.data[8..8 + length].as_chunks::<16>().0;
    if descriptors.len() > UNMAP_DESCRIPTORS_MAX as usize {
        return Err(Sense::INVALID_PARAMETER.into());
    }
    let mut wishes = Vec::with_capacity(descriptors.len());
    for descriptor in descriptors {
        let (block, blocks) = (number(&descriptor[..8]), number(&descriptor[8..12]));
        if block.checked_add(blocks).is_none_or(|end| end > call.unit.blocks()) {
            return Err(Sense::illegal(code::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE).into());
        }
        if blocks > 0 {
            wishes.push(Wish::of(Operation::Trim, block * BLOCK_BYTES, blocks * BLOCK_BYTES));
        }
    }
    plan(CommandPlan::all(wishes))
}

/// Compares and writes. The data contains the blocks to compare with, then those to write.
pub fn compare_and_write(mut call: Call<'_>) -> Handled {
    if call.blocks == 0 {
        return GOOD;
    }
    let durable = forces(&call);
    let new = call.data.split_off(call.data.len() / 2);
    plan(CommandPlan::compare_and_write(call.offset(), call.data, new, durable))
}

pub fn or_write(call: Call<'_>) -> Handled {
    if call.data.is_empty() {
        return GOOD;
    }
    let durable = forces(&call);
    plan(CommandPlan::or(call.offset(), call.data, durable))
}
