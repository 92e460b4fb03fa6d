//! The table of commands. It determines the valid bits of a command, the initiators that may issue it, and the reports
//! about it.
//!
//! Source: SPC-4 and SBC-3 for each command's layout; SPC-2 for RESERVE (6) and RELEASE (6).

mod supported;

use std::sync::Arc;

use flashwise_storage::export::Export;

use super::call::{Call, Handled, Work};
use super::cdb::{Cdb, Field};
use super::nexus::Nexus;
use super::reservations::Access;
use super::status::{Answer, Sense, Status, code, key};
use super::unit::Unit;
use super::{
    BLOCK_BYTES, COMPARE_BLOCKS_MAX, DATA_BYTES_MAX, PARAMETERS_BYTES_MAX, capacity, copy, inquiry, medium, mode,
    paths, reserve,
};

/// Memory of a command in addition to its data.
const OVERHEAD_BYTES: u64 = 4096;

/// The data that an initiator sends with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Out {
    Nothing,
    /// The blocks to write.
    Blocks,
    /// The blocks to compare with, then those to write.
    TwiceTheBlocks,
    /// The blocks to compare with, one for all, or none, depending on BYTCHK.
    Compared,
    /// One block, unless NDOB is set.
    OneBlock,
    /// Parameters; this field has their length.
    Parameters(Field),
}

/// A command: one row of [`OPCODES`].
#[derive(Clone, Copy)]
pub struct Opcode {
    /// Its name in the standard.
    pub name: &'static str,
    /// Its first byte.
    pub code: u8,
    /// The service action in the lower bits of the second byte, if commands share the first.
    pub action: Option<u8>,
    /// The valid bits after the first byte; as long as the command.
    usage: &'static [u8],
    /// Its effect, as reservations see it.
    pub access: Access,
    /// The fields of its first block and its number of blocks.
    range: Option<(Field, Field)>,
    /// True if it transfers its blocks, so that their number is limited.
    moves: bool,
    /// True if it changes the medium.
    pub changes: bool,
    /// True if it needs a unit that is not stopped.
    needs_medium: bool,
    out: Out,
    perform: fn(Call<'_>) -> Handled,
}

impl Opcode {
    const fn new(
        name: &'static str,
        code: u8,
        usage: &'static [u8],
        access: Access,
        perform: fn(Call<'_>) -> Handled,
    ) -> Opcode {
        Opcode {
            name,
            code,
            action: None,
            usage,
            access,
            range: None,
            moves: false,
            changes: false,
            needs_medium: false,
            out: Out::Nothing,
            perform,
        }
    }

    const fn action(self, action: u8) -> Opcode {
        Opcode { action: Some(action), ..self }
    }

    const fn out(self, out: Out) -> Opcode {
        Opcode { out, ..self }
    }

    const fn on(self, block: Field, blocks: Field) -> Opcode {
        Opcode { range: Some((block, blocks)), needs_medium: true, ..self }
    }

    const fn on_medium(self) -> Opcode {
        Opcode { needs_medium: true, ..self }
    }

    const fn changing(self) -> Opcode {
        Opcode { changes: true, needs_medium: true, ..self }
    }

    const fn moving(self) -> Opcode {
        Opcode { moves: true, ..self }
    }

    /// Returns its length in bytes.
    pub fn length(&self) -> usize {
        1 + self.usage.len()
    }

    /// Returns its bytes with all valid bits set.
    fn usage_data(&self) -> Vec<u8> {
        let mut usage = vec![self.code];
        usage.extend(self.usage);
        if let Some(action) = self.action {
            usage[1] = usage[1] & 0xe0 | action;
        }
        usage
    }

    /// Returns the first byte with an invalid bit.
    fn wrong_byte(&self, cdb: &Cdb) -> Option<usize> {
        let service = if self.action.is_some() { 0x1f } else { 0 };
        let is_wrong = |at: &usize| {
            let mask = self.usage[at - 1] | if *at == 1 { service } else { 0 };
            cdb[*at] & !mask != 0
        };
        // Bytes behind the command are not part of it.
        (1..self.length()).find(is_wrong)
    }

    /// Returns its first block and number of blocks.
    fn range_of(&self, cdb: &Cdb) -> Option<(u64, u64)> {
        let (block, blocks) = self.range?;
        if self.length() == 6 {
            // READ (6) and WRITE (6): an address of 21 bits, and 0 means 256 blocks.
            let blocks = if blocks.of(cdb) == 0 { 256 } else { blocks.of(cdb) };
            return Some((block.of(cdb) & 0x1f_ffff, blocks));
        }
        Some((block.of(cdb), blocks.of(cdb)))
    }

    /// Returns the number of bytes that an initiator sends with it.
    fn out_bytes(&self, cdb: &Cdb, blocks: u64) -> u64 {
        let bytes = blocks * BLOCK_BYTES;
        match self.out {
            Out::Nothing => 0,
            Out::Blocks => bytes,
            Out::TwiceTheBlocks => 2 * bytes,
            Out::Compared => match cdb[1] >> 1 & 3 {
                1 => bytes,
                3 => BLOCK_BYTES,
                _ => 0,
            },
            Out::OneBlock if self.length() == 16 && cdb[1] & 1 != 0 => 0,
            Out::OneBlock => BLOCK_BYTES,
            Out::Parameters(length) => length.of(cdb),
        }
    }
}

/// The valid bits of a command of 10, 12 or 16 bytes with an address and a number of blocks. `$flags` are the bits of
/// the second byte.
macro_rules! usage {
    (10, $flags:literal) => {
        &[$flags, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0]
    };
    (12, $flags:literal) => {
        &[$flags, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0]
    };
    (16, $flags:literal) => {
        &[$flags, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0]
    };
}

const fn on6(opcode: Opcode) -> Opcode {
    opcode.on(Field(1, 3), Field(4, 1))
}

const fn on10(opcode: Opcode) -> Opcode {
    opcode.on(Field(2, 4), Field(7, 2))
}

const fn on12(opcode: Opcode) -> Opcode {
    opcode.on(Field(2, 4), Field(6, 4))
}

const fn on16(opcode: Opcode) -> Opcode {
    opcode.on(Field(2, 8), Field(10, 4))
}

const fn reads(name: &'static str, code: u8, usage: &'static [u8], perform: fn(Call<'_>) -> Handled) -> Opcode {
    Opcode::new(name, code, usage, Access::Reads, perform)
}

const fn writes(name: &'static str, code: u8, usage: &'static [u8], perform: fn(Call<'_>) -> Handled) -> Opcode {
    Opcode::new(name, code, usage, Access::Writes, perform)
}

const SIX: &[u8] = &[0x1f, 0xff, 0xff, 0xff, 0];
const PERSISTENT_IN: &[u8] = &[0, 0, 0, 0, 0, 0, 0xff, 0xff, 0];
const PERSISTENT_OUT: &[u8] = &[0, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0];

const fn persistent_in(name: &'static str, action: u8, perform: fn(Call<'_>) -> Handled) -> Opcode {
    Opcode::new(name, 0x5e, PERSISTENT_IN, Access::Informs, perform).action(action)
}

const fn persistent_out(name: &'static str, action: u8) -> Opcode {
    let opcode = Opcode::new(name, 0x5f, PERSISTENT_OUT, Access::Persistent, reserve::persistent_out);
    opcode.action(action).out(Out::Parameters(Field(5, 4)))
}

/// All commands.
pub static OPCODES: &[Opcode] = &[
    Opcode::new("TEST UNIT READY", 0x00, &[0, 0, 0, 0, 0], Access::Informs, |_| super::call::GOOD).on_medium(),
    Opcode::new("REQUEST SENSE", 0x03, &[0x01, 0, 0, 0xff, 0], Access::Free, inquiry::request_sense),
    on6(reads("READ (6)", 0x08, SIX, medium::read)).moving(),
    on6(writes("WRITE (6)", 0x0a, SIX, medium::write)).moving().changing().out(Out::Blocks),
    Opcode::new("INQUIRY", 0x12, &[0x01, 0xff, 0xff, 0xff, 0], Access::Free, inquiry::inquiry),
    writes("MODE SELECT (6)", 0x15, &[0x11, 0, 0, 0xff, 0], mode::select).out(Out::Parameters(Field(4, 1))),
    Opcode::new("RESERVE (6)", 0x16, &[0, 0, 0, 0, 0], Access::Reserves, reserve::reserve),
    Opcode::new("RELEASE (6)", 0x17, &[0, 0, 0, 0, 0], Access::Free, reserve::release),
    reads("MODE SENSE (6)", 0x1a, &[0x08, 0xff, 0xff, 0xff, 0], mode::sense),
    writes("START STOP UNIT", 0x1b, &[0x01, 0, 0x0f, 0xf7, 0], capacity::start_stop),
    Opcode::new("READ CAPACITY (10)", 0x25, usage!(10, 0), Access::Informs, capacity::capacity_10).on_medium(),
    on10(reads("READ (10)", 0x28, usage!(10, 0x18), medium::read)).moving(),
    on10(writes("WRITE (10)", 0x2a, usage!(10, 0x18), medium::write)).moving().changing().out(Out::Blocks),
    on10(writes("WRITE AND VERIFY (10)", 0x2e, usage!(10, 0x12), medium::write_and_verify))
        .moving()
        .changing()
        .out(Out::Blocks),
    on10(reads("VERIFY (10)", 0x2f, usage!(10, 0x16), medium::verify)).moving().out(Out::Compared),
    on10(reads("PRE-FETCH (10)", 0x34, usage!(10, 0x02), medium::prefetch)),
    on10(writes("SYNCHRONIZE CACHE (10)", 0x35, usage!(10, 0x06), medium::synchronize)),
    reads("READ DEFECT DATA (10)", 0x37, &[0, 0x1f, 0, 0, 0, 0, 0xff, 0xff, 0], capacity::defects_10).on_medium(),
    on10(writes("WRITE SAME (10)", 0x41, usage!(10, 0x08), medium::write_same)).changing().out(Out::OneBlock),
    writes("UNMAP", 0x42, &[0, 0, 0, 0, 0, 0x3f, 0xff, 0xff, 0], medium::unmap)
        .changing()
        .out(Out::Parameters(Field(7, 2))),
    writes("MODE SELECT (10)", 0x55, &[0x11, 0, 0, 0, 0, 0, 0xff, 0xff, 0], mode::select)
        .out(Out::Parameters(Field(7, 2))),
    reads("MODE SENSE (10)", 0x5a, &[0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0], mode::sense),
    persistent_in("PERSISTENT RESERVE IN, READ KEYS", 0, reserve::read_keys),
    persistent_in("PERSISTENT RESERVE IN, READ RESERVATION", 1, reserve::read_reservation),
    persistent_in("PERSISTENT RESERVE IN, REPORT CAPABILITIES", 2, reserve::report_capabilities),
    persistent_in("PERSISTENT RESERVE IN, READ FULL STATUS", 3, reserve::read_full_status),
    persistent_out("PERSISTENT RESERVE OUT, REGISTER", reserve::action::REGISTER),
    persistent_out("PERSISTENT RESERVE OUT, RESERVE", reserve::action::RESERVE),
    persistent_out("PERSISTENT RESERVE OUT, RELEASE", reserve::action::RELEASE),
    persistent_out("PERSISTENT RESERVE OUT, CLEAR", reserve::action::CLEAR),
    persistent_out("PERSISTENT RESERVE OUT, PREEMPT", reserve::action::PREEMPT),
    persistent_out("PERSISTENT RESERVE OUT, PREEMPT AND ABORT", reserve::action::PREEMPT_AND_ABORT),
    persistent_out("PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY", reserve::action::REGISTER_AND_IGNORE),
    writes("EXTENDED COPY", EXTENDED_COPY_CODE, EXTENDED_COPY, copy::extended_copy)
        .changing()
        .out(Out::Parameters(Field(10, 4))),
    reads("RECEIVE COPY RESULTS, COPY STATUS", 0x84, COPY_RESULTS, copy::copy_status).action(0x00),
    reads("RECEIVE COPY RESULTS, OPERATING PARAMETERS", 0x84, COPY_RESULTS, copy::operating_parameters).action(0x03),
    on16(reads("READ (16)", 0x88, usage!(16, 0x18), medium::read)).moving(),
    writes("COMPARE AND WRITE", 0x89, COMPARE, medium::compare_and_write)
        .on(Field(2, 8), Field(13, 1))
        .moving()
        .changing()
        .out(Out::TwiceTheBlocks),
    on16(writes("WRITE (16)", 0x8a, usage!(16, 0x18), medium::write)).moving().changing().out(Out::Blocks),
    on16(writes("ORWRITE (16)", 0x8b, usage!(16, 0x18), medium::or_write)).moving().changing().out(Out::Blocks),
    on16(writes("WRITE AND VERIFY (16)", 0x8e, usage!(16, 0x12), medium::write_and_verify))
        .moving()
        .changing()
        .out(Out::Blocks),
    on16(reads("VERIFY (16)", 0x8f, usage!(16, 0x16), medium::verify)).moving().out(Out::Compared),
    on16(reads("PRE-FETCH (16)", 0x90, usage!(16, 0x02), medium::prefetch)),
    on16(writes("SYNCHRONIZE CACHE (16)", 0x91, usage!(16, 0x06), medium::synchronize)),
    on16(writes("WRITE SAME (16)", 0x93, usage!(16, 0x09), medium::write_same)).changing().out(Out::OneBlock),
    Opcode::new("READ CAPACITY (16)", 0x9e, usage!(16, 0), Access::Informs, capacity::capacity_16)
        .action(0x10)
        .on_medium(),
    reads("GET LBA STATUS", 0x9e, usage!(16, 0), capacity::lba_status).action(0x12).on_medium(),
    Opcode::new("REPORT LUNS", 0xa0, &[0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0], Access::Free, |call| {
        inquiry::report_luns(call.cdb)
    }),
    Opcode::new("REPORT TARGET PORT GROUPS", 0xa3, GROUPS, Access::Free, paths::report_groups).action(0x0a),
    Opcode::new("REPORT SUPPORTED OPERATION CODES", 0xa3, SUPPORTED, Access::Informs, supported::report).action(0x0c),
    on12(reads("READ (12)", 0xa8, usage!(12, 0x18), medium::read)).moving(),
    on12(writes("WRITE (12)", 0xaa, usage!(12, 0x18), medium::write)).moving().changing().out(Out::Blocks),
    on12(writes("WRITE AND VERIFY (12)", 0xae, usage!(12, 0x12), medium::write_and_verify))
        .moving()
        .changing()
        .out(Out::Blocks),
    on12(reads("VERIFY (12)", 0xaf, usage!(12, 0x16), medium::verify)).moving().out(Out::Compared),
    reads("READ DEFECT DATA (12)", 0xb7, DEFECTS_12, capacity::defects_12).on_medium(),
];

const EXTENDED_COPY_CODE: u8 = 0x83;
const EXTENDED_COPY: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0];
const COPY_RESULTS: &[u8] = &[0, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0];
const COMPARE: &[u8] = &[0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0xff, 0x3f, 0];
const SUPPORTED: &[u8] = &[0, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0];
const GROUPS: &[u8] = &[0xe0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0];
const DEFECTS_12: &[u8] = &[0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0];

/// Returns the row of a command, or an error if there is none.
fn find(cdb: &Cdb) -> Result<&'static Opcode, Sense> {
    let action = cdb[1] & 0x1f;
    let mut of_code = OPCODES.iter().filter(|opcode| opcode.code == cdb[0]).peekable();
    if of_code.peek().is_none() {
        return Err(Sense::illegal(code::INVALID_COMMAND_OPERATION_CODE));
    }
    of_code.find(|opcode| opcode.action.is_none_or(|own| own == action)).ok_or(Sense::wrong_byte(1))
}

/// A valid command whose data has not arrived yet.
pub struct Begun {
    opcode: &'static Opcode,
    cdb: Cdb,
    block: u64,
    blocks: u64,
    /// Number of bytes that the initiator sends with it.
    pub out_bytes: u64,
    /// Its memory, including its data.
    pub memory_bytes: u64,
    /// Handling of a different number of bytes than `out_bytes`.
    pub fit: Fit,
}

/// Handling of a command with less data than it needs, or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Less is an error; excess data is ignored.
    Whole,
    /// Both are errors.
    Exact,
    /// Less is written in part; excess data is ignored.
    Part,
}

/// MODE SELECT, RESERVE, START STOP UNIT and PERSISTENT RESERVE OUT: a read-only initiator must not stop others from
/// writing.
const KEEP_OTHERS_OUT: [u8; 5] = [0x15, 0x16, 0x1b, 0x55, 0x5f];

/// Checks a command. An error is its reply.
pub fn begin(unit: &Unit, nexus: &Nexus, cdb: &Cdb) -> Result<Begun, Answer> {
    let opcode = find(cdb)?;
    if unit.is_reserved() && !unit.lock_reservations().allow(nexus.port(), opcode.access) {
        return Err(Answer::status(Status::ReservationConflict));
    }
    if nexus.notice_size(unit.export().size()) {
        nexus.attend(code::CAPACITY_DATA_HAS_CHANGED);
    }
    if !matches!(opcode.code, 0x03 | 0x12 | 0xa0)
        && let Some(attention) = nexus.take_attention()
    {
        return Err(Sense::new(key::UNIT_ATTENTION, attention).into());
    }
    if let Some(byte) = opcode.wrong_byte(cdb) {
        return Err(Sense::wrong_byte(byte as u16).into());
    }
    if opcode.needs_medium && unit.stopped().load(std::sync::atomic::Ordering::Relaxed) {
        return Err(Sense::new(key::NOT_READY, code::NOT_READY_MANUAL_INTERVENTION_REQUIRED).into());
    }
    let (block, blocks) = opcode.range_of(cdb).unwrap_or((0, 0));
    if block.checked_add(blocks).is_none_or(|end| end > unit.blocks()) {
        return Err(Sense::illegal(code::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE).into());
    }
    // The number of bytes cannot overflow for any number of blocks in a command.
    let out_bytes = opcode.out_bytes(cdb, blocks);
    let read_bytes = match opcode.out {
        Out::Nothing if !opcode.moves => 0,
        Out::OneBlock => 2 * super::plan::FILL_BYTES,
        Out::Parameters(_) if opcode.code == EXTENDED_COPY_CODE => super::plan::COPY_BYTES,
        Out::Blocks if !medium::reads_back(opcode.code) => 0,
        _ => blocks * BLOCK_BYTES,
    };
    if opcode.moves && out_bytes + read_bytes > DATA_BYTES_MAX
        || opcode.out == Out::TwiceTheBlocks && blocks > COMPARE_BLOCKS_MAX
    {
        return Err(Sense::INVALID_FIELD.into());
    }
    let protects = opcode.changes && (unit.read_only() || nexus.read_only());
    if protects || nexus.read_only() && KEEP_OTHERS_OUT.contains(&opcode.code) {
        return Err(Sense::new(key::DATA_PROTECT, code::WRITE_PROTECTED).into());
    }
    if matches!(opcode.out, Out::Parameters(_)) && out_bytes > PARAMETERS_BYTES_MAX {
        return Err(Sense::illegal(code::PARAMETER_LIST_LENGTH_ERROR).into());
    }
    let fit = match opcode.out {
        Out::OneBlock | Out::TwiceTheBlocks => Fit::Exact,
        Out::Blocks => Fit::Part,
        Out::Nothing | Out::Compared | Out::Parameters(_) => Fit::Whole,
    };
    let memory_bytes = out_bytes + read_bytes + OVERHEAD_BYTES;
    Ok(Begun { opcode, cdb: *cdb, block, blocks, out_bytes, memory_bytes, fit })
}

impl Begun {
    /// Returns its row.
    pub fn opcode(&self) -> &'static Opcode {
        self.opcode
    }

    /// Returns the number of usable bytes if the initiator sends `sent` bytes. An error is the reply.
    pub fn wanted(&self, sent: u64) -> Result<u64, Answer> {
        match self.fit {
            Fit::Exact if sent != self.out_bytes => Err(Sense::INVALID_FIELD.into()),
            Fit::Whole if sent < self.out_bytes => Err(Sense::illegal(code::INVALID_FIELD_IN_INFORMATION_UNIT).into()),
            _ => Ok(sent.min(self.out_bytes)),
        }
    }

    /// Returns the work to do. `data` is the command's data, as much as is [wanted](Self::wanted).
    pub fn perform(&self, unit: &Arc<Unit>, nexus: &Nexus, data: Vec<u8>) -> Work {
        let call = Call { unit, nexus, cdb: &self.cdb, block: self.block, blocks: self.blocks, data };
        (self.opcode.perform)(call).unwrap_or_else(Work::Answer)
    }
}

/// Returns the reply for a missing logical unit. Source: SPC-4, section 6.4.2 (INQUIRY) and SAM-5, section 4.7.
pub fn absent(cdb: &Cdb) -> Answer {
    let answer = match cdb[0] {
        0x12 => inquiry::inquiry_of_none(cdb),
        0xa0 => inquiry::report_luns(cdb),
        _ => Err(Sense::illegal(code::LOGICAL_UNIT_NOT_SUPPORTED).into()),
    };
    match answer {
        Ok(Work::Answer(answer)) | Err(answer) => answer,
        Ok(Work::Plan(_)) => unreachable!("there is nothing to ask"),
    }
}

#[cfg(test)]
mod tests;
