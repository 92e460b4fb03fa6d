//! Recovery of a log. After any sequence of segments, tears and restarts, it finds everything that a server wrote,
//! block for block.
//!
//! Then the log is damaged, with correct or wrong checksums. Recovery gives a consistent log, the same one each time,
//! or an error.
#![no_main]

use flashwise_core::format::{BLOCK_BYTES, Header, Kind, Page, Record, Role, decode_metadata, encode_metadata};
use flashwise_fuzz::log_writer::{GEOMETRY, LogWriter, found};
use flashwise_storage::flash::{recover_log, settle};
use flashwise_storage::offline::check::check;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

const DATA: [Kind; 3] = [Kind::Clean, Kind::Dirty, Kind::Void];
const MARKS: [Kind; 7] =
    [Kind::Forget, Kind::Destaged, Kind::Lost, Kind::UnitDestaged, Kind::Unsure, Kind::Sure, Kind::ForgetRegion];

fn records(program: &mut Unstructured, kinds: &[Kind], count_max: u8) -> Result<Vec<(Kind, u32)>> {
    let count = program.arbitrary::<u8>()? % (count_max + 1);
    (0..count)
        .map(|_| {
            program.arbitrary::<u8>().map(|byte| (kinds[usize::from(byte) % kinds.len()], u32::from(byte / 4) % 16))
        })
        .collect()
}

/// Performs an action of a server; returns true if it continued.
fn serve(program: &mut Unstructured, log: &mut LogWriter) -> Result<bool> {
    match program.arbitrary::<u8>()? % 16 {
        0 => return Ok(false),
        1 => log.flush(),
        2 => log.close(true),
        3 => log.close(false),
        4 => log.advance_tail(program.arbitrary::<u8>()?.into()),
        5 => restart(log),
        6 => {
            log.append(&records(program, &DATA, 5)?, &records(program, &MARKS, 3)?, true);
            restart(log);
        }
        _ => log.append(&records(program, &DATA, 5)?, &records(program, &MARKS, 3)?, false),
    }
    Ok(true)
}

fn restart(log: &mut LogWriter) {
    let recovered = recover_log(&log.flash, &log.superblock, 1, &|_, _| ()).expect("what a server wrote is recovered");
    settle(&log.flash, &recovered).expect("memory is written");
    recovered.log.check();
    assert_eq!(found(&recovered), log.copies());
    assert!(recovered.epoch > log.written_epoch, "epochs rise");
    log.epoch = log.epoch.max(recovered.epoch);
}

/// Returns a small number, or the largest.
fn number(program: &mut Unstructured) -> Result<u64> {
    Ok(match program.arbitrary::<u8>()? {
        255 => u64::MAX,
        254 => u32::MAX.into(),
        253 => 1 << 62,
        252 => (1 << 62) - 1,
        251 => program.arbitrary()?,
        small => small.into(),
    })
}

fn change(program: &mut Unstructured, header: &mut Header, records: &mut Vec<Record>) -> Result<()> {
    let field = program.arbitrary::<u8>()?;
    let value = number(program)?;
    let chosen = program.arbitrary::<u8>()? as usize % records.len().max(1);
    match field % 14 {
        0 => header.cache = value,
        1 => header.epoch = value,
        2 => header.sequence = value,
        3 => header.tail = value,
        4 => header.previous_end = value as u32,
        5 => header.page = value as u32,
        6 => header.data_pages = value as u32,
        7 => header.durable_end = value as u32,
        8 => records.truncate(value as usize),
        9 => records.extend_from_within(..records.len().min(252 - records.len()).min(value as usize)),
        _ if records.is_empty() => {}
        10 => records[chosen].kind = Kind::ALL[value as usize % Kind::ALL.len()],
        11 => records[chosen].block = value as u32,
        12 => records[chosen].slot = value as u32,
        _ => records[chosen].crc = value as u32,
    }
    Ok(())
}

/// Damages a page of the log: changes bytes or decoded fields, or replaces the page by another.
fn damage(program: &mut Unstructured, log: &LogWriter) -> Result<()> {
    let slot = |program: &mut Unstructured| -> Result<u32> {
        let (unit, page) = (u32::from(program.arbitrary::<u8>()?), u32::from(program.arbitrary::<u8>()?));
        Ok(GEOMETRY.slot(1 + unit % GEOMETRY.log_units(), page % GEOMETRY.unit_pages))
    };
    let at = slot(program)?;
    let mut page = log.read(at);
    match program.arbitrary::<u8>()? % 8 {
        0 => page = [program.arbitrary()?; BLOCK_BYTES],
        1 => page[usize::from(program.arbitrary::<u16>()?) % BLOCK_BYTES] ^= program.arbitrary::<u8>()?,
        2 => page = log.read(slot(program)?),
        kind => {
            let read = [Role::Segment, Role::Footer].map(|role| Some((role, decode_metadata(role, &page).ok()?)));
            let Some((role, mut read)) = read.into_iter().flatten().next() else { return Ok(()) };
            change(program, &mut read.header, &mut read.records)?;
            let role = match (kind, role) {
                (3, Role::Segment) => Role::Footer,
                (3, Role::Footer) => Role::Segment,
                _ => role,
            };
            let mut written: Page = [0; BLOCK_BYTES];
            encode_metadata(role, &read.header, &read.records, &mut written);
            page = written;
        }
    }
    log.write(&page, at);
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    let mut program = Unstructured::new(bytes);
    let mut log = LogWriter::new();
    for _ in 0..200 {
        if !serve(&mut program, &mut log).unwrap_or(false) {
            break;
        }
    }
    restart(&mut log);
    let report = check(&log.flash, None, true, &|_| ()).expect("memory is read");
    assert!(report.is_sound() || log.has_losses(), "{:?}", report.findings);
    if program.is_empty() {
        return;
    }
    for _ in 0..20 {
        if damage(&mut program, &log).is_err() {
            break;
        }
    }
    check(&log.flash, None, true, &|_| ()).expect("memory is read");
    if let Ok(recovered) = recover_log(&log.flash, &log.superblock, 1, &|_, _| ()) {
        recovered.log.check();
        let again =
            recover_log(&log.flash, &log.superblock, 1, &|_, _| ()).expect("what was recovered is recovered again");
        assert_eq!(found(&again), found(&recovered));
    }
});
