//! INQUIRY with the vital product data, REPORT LUNS and REQUEST SENSE. Source: SPC-4, sections 6.4, 6.33, 6.39 and 7.8;
//! SBC-3, section 6.6.

use super::call::{Call, Handled, data};
use super::cdb::{Cdb, Field};
use super::status::{Sense, key};
use super::unit::Unit;
use super::{BLOCK_BYTES, COMPARE_BLOCKS_MAX, PHYSICAL_BLOCK_BYTES, TRANSFER_BYTES_MAX, paths};
use flashwise_storage::export::Export;

const VENDOR: &[u8; 8] = b"flashws ";
const PRODUCT: &[u8; 16] = b"flashwise volume";
/// SAM-5, SPC-4, SBC-3 and iSCSI, without versions (SPC-4, table 149).
const VERSIONS: [u16; 4] = [0x00a0, 0x0460, 0x04c0, 0x0960];
/// Maximum number of blocks in a descriptor of UNMAP.
pub const UNMAP_BLOCKS_MAX: u32 = u32::MAX;
/// Maximum number of descriptors in an UNMAP.
pub const UNMAP_DESCRIPTORS_MAX: u32 = 256;

/// A page of the vital product data.
type Page = (u8, fn(&Unit) -> Vec<u8>);

/// The pages, in order of their numbers.
const PAGES: [Page; 6] = [
    (0x00, |_| PAGES.iter().map(|(number, _)| *number).collect()),
    (0x80, |unit| serial_number(unit).into_bytes()),
    (0x83, identification),
    (0xb0, block_limits),
    (0xb1, characteristics),
    (0xb2, provisioning),
];

pub fn inquiry(call: Call<'_>) -> Handled {
    let allocated = Field(3, 2).of(call.cdb);
    let (is_page, number) = (call.has(1, 1), call.cdb[2]);
    if !is_page {
        return if number == 0 { data(standard(0), allocated) } else { Err(Sense::INVALID_FIELD.into()) };
    }
    let Some((_, page)) = PAGES.iter().find(|(own, _)| *own == number) else { return Err(Sense::INVALID_FIELD.into()) };
    let content = page(call.unit);
    let mut bytes = vec![0, number];
    bytes.extend((content.len() as u16).to_be_bytes());
    bytes.extend(content);
    data(bytes, allocated)
}

/// Replies for a missing logical unit: no device is connected, and none can be.
pub fn inquiry_of_none(cdb: &Cdb) -> Handled {
    if cdb[1] & 1 != 0 || cdb[2] != 0 {
        return Err(Sense::INVALID_FIELD.into());
    }
    data(standard(0x7f), Field(3, 2).of(cdb))
}

fn standard(kind: u8) -> Vec<u8> {
    let mut bytes = vec![0; 96];
    bytes[0] = kind;
    // SPC-4; sense data and hierarchical LUNs of that version; command queuing.
    bytes[2] = 0x06;
    bytes[3] = 0x12;
    bytes[4] = 96 - 5;
    // 3PC: third-party copy.
    bytes[5] = paths::IMPLICIT | 0x08;
    bytes[7] = 0x02;
    bytes[8..16].copy_from_slice(VENDOR);
    bytes[16..32].copy_from_slice(PRODUCT);
    let version = format!("{:<4.4}", env!("CARGO_PKG_VERSION"));
    bytes[32..36].copy_from_slice(version.as_bytes());
    for (at, version) in VERSIONS.iter().enumerate() {
        bytes[58 + 2 * at..60 + 2 * at].copy_from_slice(&version.to_be_bytes());
    }
    bytes
}

/// Returns an identifier of the unit that differs from those of all other servers and survives restarts. It is the
/// 64-bit FNV-1a of the export's identity, or of its name if it has none.
fn hash(unit: &Unit) -> u64 {
    let identity = unit.export().identity();
    let of = identity.as_ref().map_or(unit.name().as_bytes(), |identity| &identity[..]);
    of.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn serial_number(unit: &Unit) -> String {
    format!("{:016x}", hash(unit))
}

fn identification(unit: &Unit) -> Vec<u8> {
    let mut page = Vec::new();
    let mut designator = |code_set: u8, kind: u8, bytes: &[u8]| {
        page.extend([code_set, kind, 0, bytes.len() as u8]);
        page.extend(bytes);
    };
    // NAA 3h, locally assigned: its first 4 bits are the 3.
    let assigned = hash(unit) & 0x0fff_ffff_ffff_ffff | 0x3000_0000_0000_0000;
    designator(1, 3, &assigned.to_be_bytes());
    let vendor = [&VENDOR[..], serial_number(unit).as_bytes()].concat();
    designator(2, 1, &vendor);
    for (code_set, kind, bytes) in paths::designators() {
        designator(code_set, kind, &bytes);
    }
    page
}

/// True if a designator, given by code set, type and bytes, is one of the unit's.
pub fn is_designated(unit: &Unit, code_set: u8, kind: u8, designator: &[u8]) -> bool {
    let page = identification(unit);
    let mut rest = &page[..];
    while let [own_set, own_kind, _, length, after @ ..] = rest {
        let (own, next) = after.split_at(usize::from(*length));
        if (*own_set, *own_kind, own) == (code_set, kind, designator) {
            return true;
        }
        rest = next;
    }
    false
}

fn block_limits(unit: &Unit) -> Vec<u8> {
    let mut page = vec![0; 60];
    let physical = (PHYSICAL_BLOCK_BYTES / BLOCK_BYTES) as u32;
    // Positions count from the start of the page, which has a header of 4 bytes.
    let mut put = |at: usize, value: u32| page[at - 4..at].copy_from_slice(&value.to_be_bytes());
    put(8, (TRANSFER_BYTES_MAX / BLOCK_BYTES) as u32);
    put(12, (1 << 20) / BLOCK_BYTES as u32);
    put(20, UNMAP_BLOCKS_MAX);
    put(24, UNMAP_DESCRIPTORS_MAX);
    put(28, unit.export().trim_granularity() / BLOCK_BYTES as u32);
    // The alignment starts at block 0, and that field is valid.
    put(32, 0x8000_0000);
    page[5 - 4] = COMPARE_BLOCKS_MAX as u8;
    page[6 - 4..8 - 4].copy_from_slice(&(physical as u16).to_be_bytes());
    page
}

fn characteristics(_: &Unit) -> Vec<u8> {
    let mut page = vec![0; 60];
    // A medium that does not rotate.
    page[1] = 1;
    page
}

fn provisioning(_: &Unit) -> Vec<u8> {
    // UNMAP, and WRITE SAME (16) and (10) with UNMAP; thin.
    vec![0, 0xe0, 0x02, 0]
}

/// Source: SPC-4, section 6.33: one unit, which is LUN 0.
pub fn report_luns(cdb: &Cdb) -> Handled {
    let allocated = Field(6, 4).of(cdb);
    let mut list = match cdb[2] {
        0x00 | 0x02 => vec![0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        // There are no well known logical units.
        0x01 => vec![0; 8],
        _ => return Err(Sense::INVALID_FIELD.into()),
    };
    if allocated < 16 {
        return Err(Sense::INVALID_FIELD.into());
    }
    list.truncate(allocated as usize);
    data(list, allocated)
}

pub fn request_sense(call: Call<'_>) -> Handled {
    let sense = match call.nexus.take_attention() {
        Some(code) => Sense::new(key::UNIT_ATTENTION, code),
        None => Sense::new(key::NO_SENSE, 0),
    };
    data(sense.encode(call.has(1, 1)), call.cdb[4].into())
}
