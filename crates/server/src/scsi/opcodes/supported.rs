//! REPORT SUPPORTED OPERATION CODES, from the table. Source: SPC-4, section 6.35.

use super::{OPCODES, Opcode};
use crate::scsi::call::{Call, Handled, data};
use crate::scsi::cdb::Field;
use crate::scsi::status::Sense;

/// A timeouts descriptor without timeouts.
const TIMEOUTS: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

pub fn report(call: Call<'_>) -> Handled {
    let with_timeouts = call.has(2, 0x80);
    let (code, action) = (call.cdb[3], Field(4, 2).of(call.cdb));
    let mut of_code = OPCODES.iter().filter(|opcode| opcode.code == code);
    let by_action = |opcode: &&Opcode| opcode.action.is_some_and(|own| u64::from(own) == action);
    let report = match call.cdb[2] & 7 {
        0 => all(with_timeouts),
        1 => match of_code.next() {
            Some(opcode) if opcode.action.is_some() => return Err(Sense::wrong_byte(2).into()),
            found => one(found, with_timeouts),
        },
        2 => match of_code.clone().next() {
            Some(opcode) if opcode.action.is_none() => return Err(Sense::wrong_byte(2).into()),
            _ => one(of_code.find(by_action), with_timeouts),
        },
        3 => one(of_code.find(|opcode| opcode.action.is_none() && action == 0 || by_action(opcode)), with_timeouts),
        _ => return Err(Sense::wrong_byte(2).into()),
    };
    data(report, Field(6, 4).of(call.cdb))
}

fn all(with_timeouts: bool) -> Vec<u8> {
    let mut list = vec![0; 4];
    for opcode in OPCODES {
        list.extend([opcode.code, 0, 0, opcode.action.unwrap_or(0), 0]);
        list.push(u8::from(with_timeouts) << 1 | u8::from(opcode.action.is_some()));
        list.extend((opcode.length() as u16).to_be_bytes());
        if with_timeouts {
            list.extend(TIMEOUTS);
        }
    }
    let length = (list.len() - 4) as u32;
    list[..4].copy_from_slice(&length.to_be_bytes());
    list
}

fn one(opcode: Option<&Opcode>, with_timeouts: bool) -> Vec<u8> {
    // Supported as in the standard, or not at all.
    let Some(opcode) = opcode else { return vec![0, 1, 0, 0] };
    let mut one = vec![0, 3 | u8::from(with_timeouts) << 7];
    one.extend((opcode.length() as u16).to_be_bytes());
    one.extend(opcode.usage_data());
    if with_timeouts {
        one.extend(TIMEOUTS);
    }
    one
}
