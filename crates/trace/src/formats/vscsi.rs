//! CloudPhysics vSCSI traces, versions 1 and 2.
//!
//! Source: Waldspurger, Park, Garthwaite, Ahmad: Efficient MRC construction with SHARDS. FAST 2015, whose traces have
//! this format. The records are little-endian; the upper byte of the version number is the version:
//!
//! | version | bytes | fields |
//! | --- | --- | --- |
//! | 1 | 32 | serial u32, length u32, segments u32, command u16, version u16, sector u64, time u64 |
//! | 2 | 40 | command u16, version u16, serial u32, length u32, segments u32, sector u64, time u64, response time u64 |
//!
//! The length is in bytes, the sector has 512 bytes, the time is in microseconds, the command is a SCSI operation code.

use flashwise_core::access::Op;
use flashwise_core::options::{Kind, Parameter};

use super::{Fit, Format, Malformed, ParseRecord, Record, Records, Sample};
use crate::request::{Request, Volumes};

/// The row of vSCSI in the table of formats.
pub static FORMAT: Format = Format {
    name: "vscsi",
    title: "CloudPhysics vSCSI, versions 1 and 2",
    source: "binary records of 32 or 40 bytes with SCSI commands, sectors and microseconds; Waldspurger et al., FAST \
        2015",
    parameters: &[Parameter::of("version", Kind::Choice(&["auto", "1", "2"]), "auto")
        .means("version of the records; auto takes it from the first ones")],
    recognise: |sample| if fits::<V1, 32>(sample) || fits::<V2, 40>(sample) { Fit::Yes } else { Fit::No },
    parser: |options, sample, _| match options.text("version") {
        "2" => Ok(Box::new(Records(V2))),
        "auto" if !fits::<V1, 32>(sample) && fits::<V2, 40>(sample) => Ok(Box::new(Records(V2))),
        _ => Ok(Box::new(Records(V1))),
    },
};

#[derive(Debug, Default)]
struct V1;

#[derive(Debug, Default)]
struct V2;

/// True if a sample has records of this version with whole sectors: the first and nine in ten of all. So a damaged
/// record is reported as such and not as an unknown format.
fn fits<P: ParseRecord<N> + Default, const N: usize>(sample: &Sample) -> bool {
    let (records, _) = sample.bytes.as_chunks::<N>();
    let mut volumes = Volumes::default();
    let mut good = |record: &[u8; N]| match P::default().record(record, &mut volumes) {
        Ok(Record::Request(request)) => request.length_bytes % 512 == 0,
        Ok(_) => true,
        Err(_) => false,
    };
    records.first().is_some_and(&mut good)
        && records.iter().filter(|record| good(record)).count() * 10 >= records.len() * 9
}

impl ParseRecord<32> for V1 {
    #[inline]
    fn record(&self, record: &[u8; 32], volumes: &mut Volumes) -> Result<Record, Malformed> {
        let [_serial, length, _segments, command_and_version] = words(record.first_chunk().expect("16 of 32 bytes"));
        let fields = [u64::from(length), u64_at(record, 16), u64_at(record, 24)];
        request(1, command_and_version, fields, volumes)
    }
}

impl ParseRecord<40> for V2 {
    #[inline]
    fn record(&self, record: &[u8; 40], volumes: &mut Volumes) -> Result<Record, Malformed> {
        let [command_and_version, _serial, length, _segments] = words(record.first_chunk().expect("16 of 40 bytes"));
        let fields = [u64::from(length), u64_at(record, 16), u64_at(record, 24)];
        request(2, command_and_version, fields, volumes)
    }
}

#[inline]
fn words(bytes: &[u8; 16]) -> [u32; 4] {
    let (words, _) = bytes.as_chunks::<4>();
    std::array::from_fn(|word| u32::from_le_bytes(words[word]))
}

#[inline]
fn u64_at(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(record[at..at + 8].try_into().expect("eight bytes"))
}

#[inline]
fn request(
    version: u32,
    command_and_version: u32,
    [length_bytes, sector, time_us]: [u64; 3],
    volumes: &mut Volumes,
) -> Result<Record, Malformed> {
    let wrong = |found: String, expected: String| Err(Malformed { found, expected });
    let (command, found) = (command_and_version & 0xFFFF, command_and_version >> 24);
    if found != version {
        return wrong(format!("a record of version {found}"), format!("version {version}"));
    }
    // READ and WRITE (6, 10, 16, 12), WRITE AND VERIFY (10, 16, 12).
    let op = match command {
        0x08 | 0x28 | 0x88 | 0xA8 => Op::Read,
        0x0A | 0x2A | 0x8A | 0xAA | 0x2E | 0x8E | 0xAE => Op::Write,
        0..=0xFF => return Ok(Record::Skipped),
        _ => return wrong(format!("command {command:#x}"), "a SCSI operation code, at most 0xff".to_owned()),
    };
    let Some(offset_bytes) = sector.checked_mul(512) else {
        return wrong(format!("sector {sector}"), "a sector below 2^55".to_owned());
    };
    let Ok(time_us) = i64::try_from(time_us) else {
        return wrong(format!("time {time_us}"), "microseconds below 2^63".to_owned());
    };
    let volume = volumes.only();
    Ok(Record::Request(Request { time_us, op, volume, offset_bytes, length_bytes }))
}

#[cfg(test)]
mod tests {
    use crate::formats::testing::{read, recognised, requests};

    fn v1(command: u16, version: u16, length: u32, sector: u64, time_us: u64) -> Vec<u8> {
        let mut record = [7_u32, length, 1].map(u32::to_le_bytes).concat();
        record.extend([command, version].map(u16::to_le_bytes).concat());
        record.extend([sector, time_us].map(u64::to_le_bytes).concat());
        record
    }

    fn v2(command: u16, length: u32, sector: u64, time_us: u64) -> Vec<u8> {
        let mut record = [command, 0x0200].map(u16::to_le_bytes).concat();
        record.extend([7_u32, length, 1].map(u32::to_le_bytes).concat());
        record.extend([sector, time_us, 99].map(u64::to_le_bytes).concat());
        record
    }

    fn errors(contents: &[u8]) -> Vec<(u64, String)> {
        let batch = read("vscsi", contents);
        batch.malformed.iter().map(|(record, malformed)| (*record, malformed.to_string())).collect()
    }

    #[test]
    fn reads_both_versions() {
        // 42932745 * 512 = 21981565440.
        let expected = ["5633898368802 W 0 21981565440 512", "5633898369000 R 0 4096 4096"];
        let one = [v1(0x2A, 0x0100, 512, 42_932_745, 5_633_898_368_802), v1(0x28, 0x0100, 4096, 8, 5_633_898_369_000)];
        assert_eq!(requests("vscsi", &one.concat()), expected);
        assert_eq!(recognised(&one.concat()), Ok("vscsi"));
        let two = [v2(0x8A, 512, 42_932_745, 5_633_898_368_802), v2(0x88, 4096, 8, 5_633_898_369_000)];
        assert_eq!(requests("vscsi", &two.concat()), expected);
        assert_eq!(requests("vscsi:version=2", &two.concat()), expected);
        assert_eq!(recognised(&two.concat()), Ok("vscsi"));
    }

    #[test]
    fn other_commands_are_skipped() {
        let synchronise_cache = v1(0x35, 0x0100, 0, 0, 1);
        assert_eq!(read("vscsi", &synchronise_cache).skipped, 1);
    }

    #[test]
    fn refuses_malformed_input() {
        let good = v1(0x28, 0x0100, 4096, 8, 1);
        let contents = [&good[..], &v1(0x28, 0x0300, 4096, 8, 1)].concat();
        assert_eq!(errors(&contents), [(1, "found a record of version 3, expected version 1".to_owned())]);
        let contents = [&good[..], &v1(0x128, 0x0100, 4096, 8, 1)].concat();
        assert_eq!(
            errors(&contents),
            [(1, "found command 0x128, expected a SCSI operation code, at most 0xff".to_owned())]
        );
        let contents = [&good[..], &v1(0x28, 0x0100, 4096, 1 << 55, 1)].concat();
        assert_eq!(errors(&contents), [(1, "found sector 36028797018963968, expected a sector below 2^55".to_owned())]);
        let contents = [&good[..], &v1(0x28, 0x0100, 4096, 8, 1 << 63)].concat();
        assert_eq!(
            errors(&contents),
            [(1, "found time 9223372036854775808, expected microseconds below 2^63".to_owned())]
        );
        let contents = [&good[..], &good[..31]].concat();
        assert_eq!(errors(&contents), [(1, "found the last 31 bytes, expected a record of 32 bytes".to_owned())]);
    }
}
