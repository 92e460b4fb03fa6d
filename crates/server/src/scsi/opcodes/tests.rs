//! Commands byte for byte from the standards, and properties of each row of the table.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use flashwise_core::filter::Caching;
use flashwise_storage::export::{Claimable, Done, Error, Export, Extent, Operation, Request};
use parking_lot::Mutex;

use super::*;
use crate::scsi::nexus::InitiatorPort;
use crate::scsi::plan::Progress;

/// A disk that records its requests; half of it is a hole.
struct Disk {
    bytes: Mutex<Vec<u8>>,
    asked: Mutex<Vec<(Operation, u64, u64, bool)>>,
    fails_flushes: AtomicBool,
}

const BYTES: u64 = 1 << 20;

impl Disk {
    fn new() -> Arc<Disk> {
        let bytes = Mutex::new(vec![0; BYTES as usize]);
        Arc::new(Disk { bytes, asked: Mutex::default(), fails_flushes: AtomicBool::default() })
    }
}

impl Export for Disk {
    fn size(&self) -> u64 {
        BYTES
    }

    fn submit(&self, request: Request, done: Done) {
        let Request { operation, offset, length, force_unit_access, data, .. } = request;
        self.asked.lock().push((operation, offset, length, force_unit_access));
        if operation == Operation::Flush && self.fails_flushes.load(Ordering::Relaxed) {
            return done(Err(Error::Io));
        }
        let mut bytes = self.bytes.lock();
        let range = &mut bytes[offset as usize..(offset + length) as usize];
        let result = match operation {
            Operation::Read => range.to_vec(),
            Operation::Write => {
                range.copy_from_slice(&data);
                Vec::new()
            }
            Operation::WriteZeroes { .. } => {
                range.fill(0);
                Vec::new()
            }
            Operation::Flush | Operation::Trim | Operation::Cache => Vec::new(),
        };
        done(Ok(result));
    }

    fn extents(&self, offset: u64, length: u64, _: usize) -> Result<Vec<Extent>, Error> {
        let half = (BYTES / 2).saturating_sub(offset).min(length);
        let extents = [
            Extent { length: half, hole: false, zero: false },
            Extent { length: length - half, hole: true, zero: true },
        ];
        Ok(extents.into_iter().filter(|extent| extent.length > 0).collect())
    }
}

struct Rig {
    disk: Arc<Disk>,
    unit: Arc<Unit>,
    nexus: Arc<Nexus>,
}

impl Rig {
    fn new() -> Rig {
        let disk = Disk::new();
        let unit = Arc::new(Unit::open("disk", Arc::new(Claimable::new(disk.clone())), None).unwrap());
        let nexus = unit.enter(InitiatorPort { transport_id: vec![1] }, false);
        assert_eq!(nexus.take_attention(), Some(code::POWER_ON_RESET_OR_BUS_DEVICE_RESET));
        Rig { disk, unit, nexus }
    }

    fn perform(&self, command: &[u8], data: &[u8]) -> Answer {
        let mut cdb = [0; 16];
        cdb[..command.len()].copy_from_slice(command);
        let begun = match begin(&self.unit, &self.nexus, &cdb) {
            Ok(begun) => begun,
            Err(answer) => return answer,
        };
        if let Err(answer) = begun.wanted(data.len() as u64) {
            return answer;
        }
        let mut plan = match begun.perform(&self.unit, &self.nexus, data.to_vec()) {
            Work::Answer(answer) => return answer,
            Work::Plan(plan) => plan,
        };
        let mut result = None;
        loop {
            let (sender, receiver) = std::sync::mpsc::channel();
            let submit = |request, export: &dyn Export| {
                export.submit(request, Box::new(move |result| sender.send(result).unwrap()));
            };
            match plan.advance(&self.unit, result.take(), Caching::Usual, Waker::noop(), submit) {
                Progress::Submitted => result = Some(receiver.recv().unwrap()),
                Progress::Done(answer) => return answer,
                Progress::Blocked => panic!("nobody else is here"),
            }
        }
    }

    /// Returns the requests of the last commands to the disk.
    fn asked(&self) -> Vec<(Operation, u64, u64, bool)> {
        std::mem::take(&mut self.disk.asked.lock())
    }
}

fn sense(answer: &Answer) -> (u8, u16) {
    answer.sense.map(|sense| (sense.key, sense.code)).unwrap()
}

#[test]
fn each_row_is_one_command_of_its_groups_length() {
    let mut seen = BTreeSet::new();
    for opcode in OPCODES {
        assert!(seen.insert((opcode.code, opcode.action)), "{} is there twice", opcode.name);
        // SPC-4, section 4.2.5.1: the first three bits give the length of the command.
        let length = match opcode.code >> 5 {
            0 => 6,
            1 | 2 => 10,
            4 => 16,
            5 => 12,
            group => panic!("{} is in group {group}", opcode.name),
        };
        assert_eq!(opcode.length(), length, "{}", opcode.name);
        assert!(opcode.out == Out::Nothing || opcode.access != Access::Free, "{}", opcode.name);
        assert!(!opcode.changes || opcode.access == Access::Writes, "{}", opcode.name);
        let actions = OPCODES.iter().filter(|other| other.code == opcode.code);
        assert!(actions.clone().count() == 1 || actions.clone().all(|other| other.action.is_some()), "{}", opcode.name);
    }
}

#[test]
fn errors_name_the_byte_of_an_invalid_bit() {
    let rig = Rig::new();
    for opcode in OPCODES {
        for at in 1..opcode.length() {
            for bit in 0..8 {
                let mut cdb = vec![0; opcode.length()];
                cdb[0] = opcode.code;
                cdb[1] = opcode.action.unwrap_or(0);
                let is_known = opcode.usage[at - 1] & 1 << bit != 0 || (at == 1 && opcode.action.is_some() && bit < 5);
                if is_known {
                    continue;
                }
                cdb[at] |= 1 << bit;
                let answer = rig.perform(&cdb, &[]);
                assert_eq!(answer.sense, Some(Sense::wrong_byte(at as u16)), "{} byte {at} bit {bit}", opcode.name);
            }
        }
    }
    assert_eq!(rig.perform(&[0xff], &[]).sense, Some(Sense::illegal(code::INVALID_COMMAND_OPERATION_CODE)));
    assert_eq!(rig.perform(&[0x9e, 0x1f], &[]).sense, Some(Sense::wrong_byte(1)));
}

#[test]
fn reads_and_writes_have_their_range_from_the_command() {
    let rig = Rig::new();
    let data = [5; 1024];
    // LBA 3, two blocks, with FUA where the command has it.
    let writes: [&[u8]; 4] = [
        &[0x0a, 0, 0, 3, 2, 0],
        &[0x2a, 0x08, 0, 0, 0, 3, 0, 0, 2, 0],
        &[0xaa, 0x08, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0],
        &[0x8a, 0x08, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0],
    ];
    for command in writes {
        assert_eq!(rig.perform(command, &data), Answer::GOOD);
        assert_eq!(rig.asked(), [(Operation::Write, 1536, 1024, command[0] != 0x0a)]);
    }
    let reads: [&[u8]; 4] = [
        &[0x08, 0, 0, 3, 2, 0],
        &[0x28, 0, 0, 0, 0, 3, 0, 0, 2, 0],
        &[0xa8, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0],
        &[0x88, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0],
    ];
    for command in reads {
        assert_eq!(rig.perform(command, &[]), Answer::data(data.to_vec()));
        assert_eq!(rig.asked(), [(Operation::Read, 1536, 1024, false)]);
    }
    // READ (6) of 0 blocks reads 256; READ (10) with FUA flushes the cache first.
    assert_eq!(rig.perform(&[0x08, 0, 0, 0, 0, 0], &[]).data.len(), 256 * 512);
    rig.asked();
    rig.perform(&[0x28, 0x08, 0, 0, 0, 0, 0, 0, 1, 0], &[]);
    assert_eq!(rig.asked(), [(Operation::Flush, 0, 0, false), (Operation::Read, 0, 512, false)]);
    // The disk has 2,048 blocks.
    for (block, blocks, is_there) in [(2047, 1, true), (2047, 2, false), (2048, 0, true), (2049, 0, false)] {
        let [high, low] = u16::to_be_bytes(block);
        let answer = rig.perform(&[0x28, 0, 0, 0, high, low, 0, 0, blocks, 0], &[]);
        assert_eq!(answer.sense.is_none(), is_there, "{block}, {blocks}");
        assert!(is_there || sense(&answer) == (5, 0x2100));
    }
}

#[test]
fn comparisons_tell_the_first_byte_that_differs() {
    let rig = Rig::new();
    rig.perform(&[0x2a, 0, 0, 0, 0, 8, 0, 0, 1, 0], &[1; 512]);
    let mut wrong = [1; 512];
    wrong[77] = 2;
    let verified = rig.perform(&[0x2f, 0x02, 0, 0, 0, 8, 0, 0, 1, 0], &wrong);
    assert_eq!(verified.sense.map(|sense| (sense.key, sense.code, sense.information)), Some((0xe, 0x1d00, Some(77))));
    let mut compare = [0; 16];
    (compare[0], compare[9], compare[13]) = (0x89, 8, 1);
    let swap = |from: &[u8], to: u8| rig.perform(&compare, &[from, &[to; 512]].concat());
    assert_eq!(swap(&wrong, 9).sense.and_then(|sense| sense.information), Some(77));
    assert_eq!((swap(&[1; 512], 9), swap(&[9; 512], 1)), (Answer::GOOD, Answer::GOOD));
    assert_eq!(sense(&rig.perform(&compare, &[1; 512])), (5, 0x2400), "half of the data is missing");
    let mut or = [0; 16];
    (or[0], or[9], or[13]) = (0x8b, 8, 1);
    assert_eq!(rig.perform(&or, &[6; 512]), Answer::GOOD);
    assert_eq!(rig.perform(&[0x28, 0, 0, 0, 0, 8, 0, 0, 1, 0], &[]).data, [7; 512]);
}

#[test]
fn space_is_given_up_and_filled() {
    let rig = Rig::new();
    // UNMAP of blocks 8 to 15 and 64, in two descriptors of 16 bytes behind a header of 8.
    let mut list = vec![0, 38, 0, 32, 0, 0, 0, 0];
    list.extend([0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0, 0]);
    list.extend([0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(rig.perform(&[0x42, 0, 0, 0, 0, 0, 0, 0, 40, 0], &list), Answer::GOOD);
    assert_eq!(rig.asked(), [(Operation::Trim, 4096, 4096, false), (Operation::Trim, 32768, 512, false)]);
    // WRITE SAME (10) with UNMAP zeroes; other data is written to all blocks.
    assert_eq!(rig.perform(&[0x41, 0x08, 0, 0, 0, 1, 0, 0, 2, 0], &[0; 512]), Answer::GOOD);
    let zeroes = Operation::WriteZeroes { may_punch_holes: true, only_if_fast: false };
    assert_eq!(rig.asked(), [(zeroes, 512, 1024, false)]);
    assert_eq!(rig.perform(&[0x41, 0, 0, 0, 4, 0, 0, 0, 0, 0], &[3; 512]), Answer::GOOD);
    assert!(rig.disk.bytes.lock()[1024 * 512..].iter().all(|byte| *byte == 3), "0 blocks mean all");
    // GET LBA STATUS from block 1,022: two allocated blocks, then the hole.
    let mut status = [0; 16];
    (status[0], status[1], status[8], status[9], status[13]) = (0x9e, 0x12, 0x03, 0xfe, 64);
    let found = rig.perform(&status, &[]).data;
    assert_eq!(found[..8], [0, 0, 0, 36, 0, 0, 0, 0]);
    assert_eq!(found[8..24], [0, 0, 0, 0, 0, 0, 3, 0xfe, 0, 0, 0, 2, 0, 0, 0, 0]);
    assert_eq!(found[24..40], [0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 4, 0, 1, 0, 0, 0]);
}

#[test]
fn the_unit_describes_itself() {
    let rig = Rig::new();
    assert_eq!(rig.perform(&[0x25], &[]).data, [0, 0, 7, 0xff, 0, 0, 2, 0]);
    let mut capacity = [0; 16];
    (capacity[0], capacity[1], capacity[13]) = (0x9e, 0x10, 32);
    let found = rig.perform(&capacity, &[]).data;
    assert_eq!((found.len(), found[13], found[14]), (32, 3, 0x80));
    let inquired = rig.perform(&[0x12, 0, 0, 0, 36, 0], &[]).data;
    assert_eq!((inquired.len(), inquired[0], inquired[2], &inquired[8..16]), (36, 0, 6, &b"flashws "[..]));
    // SBC-3, table 174: maximum blocks of one transfer from byte 8 on, of an UNMAP from byte 20 on, its granularity
    // from byte 28 on.
    let limits = rig.perform(&[0x12, 1, 0xb0, 0, 255, 0], &[]).data;
    assert_eq!((limits.len(), limits[3], limits[5], &limits[6..8]), (64, 60, 128, &[0, 8][..]));
    assert_eq!(
        (&limits[8..12], &limits[20..24], &limits[28..32]),
        (&[0, 0, 0x80, 0][..], &[0xff; 4][..], &[0, 0, 0, 8][..])
    );
    // MODE SENSE (6) of the caching page: header, block descriptor, and the bit WCE.
    let caching = rig.perform(&[0x1a, 0, 8, 0, 255, 0], &[]).data;
    assert_eq!((caching.len(), caching[0], caching[2], caching[3], caching[12], caching[14]), (32, 31, 0x10, 8, 8, 4));
    assert_eq!(
        rig.perform(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0], &[]).data,
        [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    );
}

#[test]
fn every_command_is_reported_as_it_is() {
    let rig = Rig::new();
    let all = rig.perform(&[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0], &[]).data;
    assert_eq!(all.len(), 4 + 8 * OPCODES.len());
    for (row, opcode) in all[4..].as_chunks::<8>().0.iter().zip(OPCODES) {
        assert_eq!((row[0], usize::from(row[7])), (opcode.code, opcode.length()));
        let action = opcode.action.unwrap_or(0);
        let ask = if opcode.action.is_some() { 2 } else { 1 };
        let one = rig.perform(&[0xa3, 0x0c, ask, opcode.code, 0, action, 0, 0, 0, 255, 0, 0], &[]).data;
        assert_eq!((one[1], usize::from(one[3]), one[4]), (3, opcode.length(), opcode.code), "{}", opcode.name);
        assert_eq!(one.len(), 4 + opcode.length());
        let other = rig.perform(&[0xa3, 0x0c, 3 - ask, opcode.code, 0, action, 0, 0, 0, 255, 0, 0], &[]);
        assert_eq!(other.sense, Some(Sense::wrong_byte(2)), "{}", opcode.name);
    }
    assert_eq!(rig.perform(&[0xa3, 0x0c, 1, 0xff, 0, 0, 0, 0, 0, 255, 0, 0], &[]).data, [0, 1, 0, 0]);
}

#[test]
fn the_only_group_of_ports_is_active_and_optimised() {
    let rig = Rig::new();
    assert_eq!(rig.perform(&[0x12, 0, 0, 0, 36, 0], &[]).data[5] & 0x30, 0x10);
    let groups = |form: u8| rig.perform(&[0xa3, form << 5 | 0x0a, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0], &[]);
    assert_eq!(groups(0).data, [0, 0, 0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]);
    assert_eq!(groups(1).data, [0, 0, 0, 16, 0x10, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]);
    assert_eq!(sense(&groups(2)).0, 5);
    // Its designators: the relative port 1 and the group 1, of a port (association 1) of iSCSI (protocol 5).
    let page = rig.perform(&[0x12, 1, 0x83, 0, 255, 0], &[]).data;
    assert!(page.ends_with(&[0x51, 0x94, 0, 4, 0, 0, 0, 1, 0x51, 0x95, 0, 4, 0, 0, 0, 1]), "{page:x?}");
}

#[test]
fn stopped_and_missing_units_are_reported() {
    let rig = Rig::new();
    assert_eq!(rig.perform(&[0x1b, 0, 0, 0, 0, 0], &[]), Answer::GOOD);
    assert_eq!(rig.asked(), [(Operation::Flush, 0, 0, false)]);
    assert_eq!(sense(&rig.perform(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[])), (2, 0x0403));
    assert!(rig.perform(&[0x12, 0, 0, 0, 36, 0], &[]).sense.is_none());
    assert_eq!(rig.perform(&[0x1b, 0, 0, 0, 1, 0], &[]), Answer::GOOD);
    assert_eq!(rig.perform(&[0, 0, 0, 0, 0, 0], &[]), Answer::GOOD);
    let mut inquiry = [0; 16];
    (inquiry[0], inquiry[4]) = (0x12, 36);
    assert_eq!(absent(&inquiry).data[0], 0x7f);
    assert_eq!(sense(&absent(&[0; 16])), (5, 0x2500));
}

/// A read-only initiator cannot stop others from writing: it cannot reserve, stop or write-protect the unit.
#[test]
fn read_only_initiators_cannot_block_others() {
    let rig = Rig::new();
    let reader = rig.unit.enter(InitiatorPort { transport_id: vec![2] }, true);
    reader.take_attention();
    let ask = |nexus: &Nexus, command: &[u8]| {
        let mut cdb = [0; 16];
        cdb[..command.len()].copy_from_slice(command);
        begin(&rig.unit, nexus, &cdb).err().map(|answer| sense(&answer))
    };
    let refused = Some((key::DATA_PROTECT, code::WRITE_PROTECTED));
    for command in [
        &[0x1b, 0, 0, 0, 0, 0][..],
        &[0x16, 0, 0, 0, 0, 0],
        &[0x15, 0x10, 0, 0, 24, 0],
        &[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0],
    ] {
        assert_eq!(ask(&reader, command), refused, "{command:x?}");
        assert_eq!(ask(&rig.nexus, command), None, "{command:x?}");
    }
    assert_eq!(ask(&reader, &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]), None);
    assert_eq!(ask(&reader, &[0x17, 0, 0, 0, 0, 0]), None);
}

#[test]
fn a_unit_that_cannot_make_all_durable_does_not_stop() {
    let rig = Rig::new();
    rig.disk.fails_flushes.store(true, Ordering::Relaxed);
    assert_eq!(sense(&rig.perform(&[0x1b, 0, 0, 0, 0, 0], &[])).0, key::MEDIUM_ERROR);
    assert_eq!(rig.perform(&[0, 0, 0, 0, 0, 0], &[]), Answer::GOOD);
    // With NO_FLUSH it stops.
    assert_eq!(rig.perform(&[0x1b, 0, 0, 0, 4, 0], &[]), Answer::GOOD);
    assert_eq!(sense(&rig.perform(&[0, 0, 0, 0, 0, 0], &[])), (2, 0x0403));
}

#[test]
fn blocks_are_copied_within_the_unit() {
    let rig = Rig::new();
    rig.perform(&[0x2a, 0, 0, 0, 0, 8, 0, 0, 2, 0], &[4; 1024]);
    let page = rig.perform(&[0x12, 1, 0x83, 0, 255, 0], &[]).data;
    // The first designator of the page: NAA, 8 bytes.
    assert_eq!(page[4..8], [1, 3, 0, 8]);
    let mut list = vec![7, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0];
    list.extend([0xe4, 0, 0, 0, 1, 3, 0, 8]);
    list.extend(&page[8..16]);
    list.resize(48, 0);
    // Two blocks from block 8 to block 100.
    list.extend([0x02, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 100]);
    let copy = |list: &[u8]| rig.perform(&[0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, list.len() as u8, 0, 0], list);
    assert_eq!(copy(&list), Answer::GOOD);
    assert_eq!(rig.disk.bytes.lock()[100 * 512..103 * 512], [[4; 512], [4; 512], [0; 512]].concat());
    let status = |id: u8| rig.perform(&[0x84, 0, id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0], &[]);
    assert_eq!(status(7).data, [0, 0, 0, 8, 1, 0, 1, 1, 0, 0, 0, 1]);
    assert_eq!(status(8).sense, Some(Sense::wrong_byte(2)));
    for (at, byte, expected) in [
        (16, 0xe0, (5, code::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE)),
        (24, 0x31, (key::COPY_ABORTED, code::COPY_TARGET_DEVICE_NOT_REACHABLE)),
        (48, 0x03, (5, code::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE)),
        (55, 1, (key::COPY_ABORTED, code::COPY_TARGET_DEVICE_NOT_REACHABLE)),
        (69, 1, (key::COPY_ABORTED, code::NONE)),
        (11, 29, (5, code::PARAMETER_LIST_LENGTH_ERROR)),
        (15, 1, (5, code::INLINE_DATA_LENGTH_EXCEEDED)),
    ] {
        let mut wrong = list.clone();
        wrong[at] = byte;
        assert_eq!(sense(&copy(&wrong)), expected, "byte {at} is {byte:#x}");
    }
}

/// A session outlives a deleted logical disk.
#[test]
fn a_new_export_does_not_inherit_reservations_of_a_deleted_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("reservations-disk.json");
    let disk = Disk::new;
    let exports = flashwise_storage::export::Exports::default();
    let open = || {
        assert!(exports.add("disk", disk()));
        let (_, export) = exports.find("disk").unwrap();
        let unit = Arc::new(Unit::open("disk", export, Some(file.clone())).unwrap());
        let nexus = unit.enter(InitiatorPort { transport_id: vec![1] }, false);
        nexus.take_attention();
        Rig { disk: disk(), unit, nexus }
    };
    // PERSISTENT RESERVE OUT: registers, with persistence (APTPL).
    let register = |rig: &Rig, key: u8| {
        let mut parameters = [0; 24];
        (parameters[15], parameters[20]) = (key, 1);
        rig.perform(&[0x5f, 6, 0, 0, 0, 0, 0, 0, 24], &parameters)
    };
    let old = open();
    assert_eq!((register(&old, 1).status, file.exists()), (Status::Good, true));
    exports.remove("disk");
    std::fs::remove_file(&file).unwrap();
    assert_eq!((register(&old, 2).status, file.exists()), (Status::CheckCondition, false));
    let new = open();
    assert!(!new.unit.is_reserved());
    assert_eq!((register(&new, 3).status, file.exists()), (Status::Good, true));
    // Ending persistence would delete the file, which belongs to the other export now.
    let mut parameters = [0; 24];
    parameters[15] = 4;
    assert_eq!(old.perform(&[0x5f, 6, 0, 0, 0, 0, 0, 0, 24], &parameters).status, Status::CheckCondition);
    assert!(file.exists());
}
