//! MODE SENSE and MODE SELECT: the caching page, the control page and the page of informational exceptions. Source:
//! SPC-4, sections 6.9 to 6.12 and 7.5; SBC-3, section 6.5.

use std::sync::atomic::Ordering;

use super::BLOCK_BYTES;
use super::call::{Call, GOOD, Handled, data};
use super::cdb::Field;
use super::status::{Sense, code};
use super::unit::Unit;

const CONTROL: u8 = 0x0a;
const SENSE_IN_DESCRIPTORS: u8 = 0x04;
const WRITE_PROTECTED: u8 = 0x08;

/// A page: its number, its current content, and its changeable bits.
struct ModePage {
    number: u8,
    current: fn(&Unit) -> Vec<u8>,
    changeable: &'static [u8],
}

const PAGES: [ModePage; 3] = [
    // The write cache is enabled.
    ModePage {
        number: 0x08,
        current: |_| {
            let mut page = vec![0; 18];
            page[0] = 0x04;
            page
        },
        changeable: &[0; 18],
    },
    ModePage {
        number: CONTROL,
        current: |unit| {
            let d_sense = if unit.sense_in_descriptors().load(Ordering::Relaxed) { SENSE_IN_DESCRIPTORS } else { 0 };
            let swp = if unit.write_protected().load(Ordering::Relaxed) { WRITE_PROTECTED } else { 0 };
            // Commands may be reordered; each task is aborted separately.
            vec![d_sense, 0x10, swp, 0, 0, 0, 0xff, 0xff, 0, 0]
        },
        changeable: &[SENSE_IN_DESCRIPTORS, 0, WRITE_PROTECTED, 0, 0, 0, 0, 0, 0, 0],
    },
    ModePage { number: 0x1c, current: |_| vec![0; 10], changeable: &[0; 10] },
];

/// Returns the content for a page control.
fn content(page: &ModePage, unit: &Unit, control: u8) -> Vec<u8> {
    match control {
        1 => page.changeable.to_vec(),
        2 => {
            let mut default = (page.current)(unit);
            default.iter_mut().zip(page.changeable).for_each(|(byte, changeable)| *byte &= !changeable);
            default
        }
        _ => (page.current)(unit),
    }
}

pub fn sense(call: Call<'_>) -> Handled {
    let is_long = call.cdb[0] == 0x5a;
    let (control, number, subpage) = (call.cdb[2] >> 6, call.cdb[2] & 0x3f, call.cdb[3]);
    if control == 3 {
        return Err(Sense::illegal(code::SAVING_PARAMETERS_NOT_SUPPORTED).into());
    }
    let all = number == 0x3f;
    if !(subpage == 0 || all && subpage == 0xff) {
        return Err(Sense::INVALID_FIELD.into());
    }
    let mut pages = Vec::new();
    for page in PAGES.iter().filter(|page| all || page.number == number) {
        let content = content(page, call.unit, control);
        pages.extend([page.number, content.len() as u8]);
        pages.extend(content);
    }
    if pages.is_empty() {
        return Err(Sense::INVALID_FIELD.into());
    }
    let with_descriptor = !call.has(1, 0x08);
    let in_long_form = is_long && call.has(1, 0x10);
    let descriptor = if with_descriptor { block_descriptor(call.unit.blocks(), in_long_form) } else { Vec::new() };
    let read_only = call.unit.read_only() || call.nexus.read_only();
    // WP, and DPOFUA: DPO and FUA are supported.
    let specific = if read_only { 0x90 } else { 0x10 };
    let mut bytes = if is_long {
        let length = (6 + descriptor.len() + pages.len()) as u16;
        let mut header = length.to_be_bytes().to_vec();
        header.extend([0, specific, u8::from(in_long_form), 0]);
        header.extend((descriptor.len() as u16).to_be_bytes());
        header
    } else {
        vec![(3 + descriptor.len() + pages.len()) as u8, 0, specific, descriptor.len() as u8]
    };
    bytes.extend(descriptor);
    bytes.extend(pages);
    data(bytes, if is_long { Field(7, 2).of(call.cdb) } else { call.cdb[4].into() })
}

fn block_descriptor(blocks: u64, in_long_form: bool) -> Vec<u8> {
    let mut descriptor = Vec::new();
    if in_long_form {
        descriptor.extend(blocks.to_be_bytes());
        descriptor.extend([0; 4]);
    } else {
        descriptor.extend(u32::try_from(blocks).unwrap_or(u32::MAX).to_be_bytes());
    }
    descriptor.extend((BLOCK_BYTES as u32).to_be_bytes());
    descriptor
}

pub fn select(call: Call<'_>) -> Handled {
    if call.has(1, 0x01) {
        // Saving pages is not supported.
        return Err(Sense::INVALID_FIELD.into());
    }
    if call.data.is_empty() {
        return GOOD;
    }
    let list_length_error = || Sense::illegal(code::PARAMETER_LIST_LENGTH_ERROR);
    let is_long = call.cdb[0] == 0x55;
    let header = if is_long { 8 } else { 4 };
    if call.data.len() < header {
        return Err(list_length_error().into());
    }
    let descriptor =
        if is_long { usize::from(u16::from_be_bytes([call.data[6], call.data[7]])) } else { usize::from(call.data[3]) };
    let mut rest = call.data.get(header + descriptor..).ok_or_else(list_length_error)?;
    let mut changes = Vec::new();
    while let [number, length, after @ ..] = rest {
        let (number, length) = (number & 0x3f, usize::from(*length));
        let new = after.get(..length).ok_or_else(list_length_error)?;
        let page = PAGES.iter().find(|page| page.number == number && page.changeable.len() == length);
        let page = page.ok_or(Sense::INVALID_PARAMETER)?;
        let fixed = |(at, byte): (usize, &u8)| (byte ^ (page.current)(call.unit)[at]) & !page.changeable[at] == 0;
        if !new.iter().enumerate().all(fixed) {
            return Err(Sense::INVALID_PARAMETER.into());
        }
        changes.push((number, new));
        rest = &after[length..];
    }
    if !rest.is_empty() {
        return Err(list_length_error().into());
    }
    for (_, new) in changes.into_iter().filter(|(number, _)| *number == CONTROL) {
        call.unit.sense_in_descriptors().store(new[0] & SENSE_IN_DESCRIPTORS != 0, Ordering::Relaxed);
        call.unit.write_protected().store(new[2] & WRITE_PROTECTED != 0, Ordering::Relaxed);
        call.unit.attend(code::MODE_PARAMETERS_CHANGED, |nexus| !std::ptr::eq(nexus, call.nexus));
    }
    GOOD
}
