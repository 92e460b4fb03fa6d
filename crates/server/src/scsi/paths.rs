//! Ports of a logical unit: implicit asymmetric access, with one group of ports, always active and optimised.
//!
//! Source: SPC-4, sections 5.15, 6.37 (REPORT TARGET PORT GROUPS), 7.8.5.6 and 7.8.5.7 (its designators).

use super::call::{Call, Handled, data};
use super::cdb::Field;
use super::status::Sense;

/// The bits TPGS of INQUIRY: the target selects the active ports.
pub const IMPLICIT: u8 = 0x10;
/// The only group of ports, and its only port.
const GROUP: u16 = 1;
const PORT: u16 = 1;
/// Active and optimised, the only supported state.
const ACTIVE_OPTIMISED: [u8; 2] = [0x00, 0x01];

/// Returns designators of the port and of its group, each with code set, type and bytes. They belong to the port
/// (association 1) of iSCSI (protocol 5).
pub fn designators() -> [(u8, u8, [u8; 4]); 2] {
    let number = |number: u16| u32::from(number).to_be_bytes();
    [(0x51, 0x94, number(PORT)), (0x51, 0x95, number(GROUP))]
}

/// REPORT TARGET PORT GROUPS, with an extended header on request.
pub fn report_groups(call: Call<'_>) -> Handled {
    let header: &[u8] = match call.cdb[1] >> 5 {
        0 => &[],
        // No time for transitions, because there are none.
        1 => &[0x10, 0, 0, 0],
        _ => return Err(Sense::wrong_byte(1).into()),
    };
    let mut list = vec![0; 4];
    list.extend(header);
    list.extend(ACTIVE_OPTIMISED);
    list.extend(GROUP.to_be_bytes());
    // No reason for the state, and one port.
    list.extend([0, 0, 0, 1, 0, 0]);
    list.extend(PORT.to_be_bytes());
    let length = (list.len() - 4) as u32;
    list[..4].copy_from_slice(&length.to_be_bytes());
    data(list, Field(6, 4).of(call.cdb))
}
