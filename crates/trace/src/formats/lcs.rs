//! libCacheSim's LCS traces, versions 1 to 8.
//!
//! Source: libCacheSim's `lcs.h`, which describes the header and the records. All numbers are little-endian. The header
//! has 8192 bytes: a magic number u64, the version u64, statistics, and at its end the magic number again. The records
//! follow without gaps:
//!
//! | version | bytes | fields |
//! | --- | --- | --- |
//! | 1 | 24 | time u32, object u64, size u32, next access i64 |
//! | 2 | 28 | time u32, object u64, size u32, operation u8, tenant u24, next access i64 |
//! | 3 | 36 | time u32, object u64, size i64, operation u8, tenant u24, time to live u32, next access i64 |
//! | 4 to 8 | 40, 44, 52, 68, 100 | as 3, then 1, 2, 4, 8 or 16 features u32 |
//!
//! Times are in seconds. An object is one block regardless of its size (`objects.rs`), as in oracleGeneral. Tenants
//! share the objects. Set, add, cas, replace, append, prepend, incr, decr, write and update are writes; delete counts
//! as skipped. All other operations, and all of version 1, are reads.

use flashwise_core::access::Op;
use flashwise_core::options::{Kind, OptionError, Parameter};

use super::objects::Objects;
use super::{Batch, Fit, Format, Framing, Malformed, Parse, Record, Sample};
use crate::request::Volumes;

/// The row of LCS in the table of formats.
pub static FORMAT: Format = Format {
    name: "lcs",
    title: "libCacheSim LCS, versions 1 to 8",
    source: "binary header of 8192 bytes, records of 24 to 100 bytes: time_s, object, size, operation; an object is \
        one block",
    parameters: &[Parameter::of("version", Kind::Choice(&["auto", "1", "2", "3", "4", "5", "6", "7", "8"]), "auto")
        .means("version of the records; auto takes it from the header")],
    recognise: |sample| if begins_with_header(sample.bytes) { Fit::Yes } else { Fit::No },
    parser: |options, sample, block_size_bytes| {
        let version = match options.text("version") {
            "auto" => header_version(sample)?,
            given => given.parse().expect("one of the choices"),
        };
        Ok(Box::new(Lcs { version, objects: Objects::new(block_size_bytes) }))
    },
};

const MAGIC: u64 = 0x1234_5678_9abc_def0;
const HEADER_BYTES: usize = 8192;
/// The record size of each version, from 1, in bytes.
const RECORD_BYTES: [usize; 8] = [24, 28, 36, 40, 44, 52, 68, 100];

/// Returns the number at byte `at`.
fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn begins_with_header(bytes: &[u8]) -> bool {
    [0, HEADER_BYTES - 8].into_iter().all(|at| u64_at(bytes, at) == Some(MAGIC))
}

/// Returns the version in the header at the beginning of a trace.
fn header_version(sample: &Sample) -> Result<usize, OptionError> {
    let version = u64_at(sample.bytes, 8).filter(|_| begins_with_header(sample.bytes));
    let known = version.and_then(|version| usize::try_from(version).ok()).filter(|version| (1..=8).contains(version));
    known.ok_or_else(|| {
        let found = version.map_or("no header".to_owned(), |version| format!("version {version}"));
        let expected = format!("1 to 8 for a trace with {found}");
        OptionError::bad_value("lcs", "version", "auto", expected)
    })
}

#[derive(Debug)]
struct Lcs {
    version: usize,
    objects: Objects,
}

impl Lcs {
    #[inline]
    fn record(&self, record: &[u8], volumes: &mut Volumes) -> Record {
        // In version 2 the operation follows a size of 4 bytes, in later versions one of 8.
        let op = match (self.version, record) {
            (1, _) => Op::Read,
            (2, [_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, op, ..])
            | (_, [_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, op, ..]) => match op {
                3..=8 | 10 | 11 | 13 | 14 => Op::Write,
                9 => return Record::Skipped,
                _ => Op::Read,
            },
            _ => Op::Read,
        };
        let time_s = record.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let object = u64_at(record, 4).unwrap_or_default();
        Record::Request(self.objects.request(i64::from(time_s) * 1_000_000, op, object, volumes))
    }

    fn record_bytes(&self) -> usize {
        RECORD_BYTES[self.version - 1]
    }
}

/// Returns the length of the header, if `bytes` begin with it.
fn header_bytes(bytes: &[u8]) -> usize {
    if begins_with_header(bytes) { HEADER_BYTES } else { 0 }
}

impl Parse for Lcs {
    fn framing(&self) -> Framing {
        Framing::Varied
    }

    fn whole(&self, bytes: &[u8]) -> usize {
        // The rest of the header is still missing.
        if bytes.len() < HEADER_BYTES && bytes.starts_with(&MAGIC.to_le_bytes()) {
            return 0;
        }
        let header_bytes = header_bytes(bytes);
        header_bytes + (bytes.len() - header_bytes) / self.record_bytes() * self.record_bytes()
    }

    fn parse(&self, records: &[u8], batch: &mut Batch) {
        let mut records = records[header_bytes(records)..].chunks_exact(self.record_bytes());
        batch.requests.reserve(records.len());
        for record in &mut records {
            let record = self.record(record, &mut batch.volumes);
            // Block numbers are in range by construction.
            batch.push(Ok(record), u64::MAX);
        }
        let rest = records.remainder().len();
        if rest > 0 {
            let expected = format!("a record of {} bytes", self.record_bytes());
            batch.push(Err(Malformed { found: format!("the last {rest} bytes"), expected }), u64::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::testing::{read, recognised, requests};

    fn header(version: u64) -> Vec<u8> {
        let mut header = vec![0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC.to_le_bytes());
        header[8..16].copy_from_slice(&version.to_le_bytes());
        header[HEADER_BYTES - 8..].copy_from_slice(&MAGIC.to_le_bytes());
        header
    }

    /// Creates a record, field by field as `lcs.h` lists them.
    fn record(version: u64, time_s: u32, object: u64, op: u8) -> Vec<u8> {
        let mut record = [&time_s.to_le_bytes()[..], &object.to_le_bytes()].concat();
        match version {
            1 | 2 => record.extend(4096_u32.to_le_bytes()),
            _ => record.extend(4096_i64.to_le_bytes()),
        }
        if version > 1 {
            record.extend([op, 0xAA, 0xBB, 0xCC]);
        }
        if version > 2 {
            record.extend(3600_u32.to_le_bytes());
        }
        record.extend((-1_i64).to_le_bytes());
        let features = [0, 0, 0, 0, 1, 2, 4, 8, 16][version as usize];
        record.extend(vec![0xEE; 4 * features]);
        record
    }

    #[test]
    fn reads_all_versions() {
        for version in 1..=8 {
            let records = [(5, 3, 1), (6, 42_932_745, 13), (7, 3, 9), (8, 4, 12), (9, 5, 255)];
            let records = records.map(|(time_s, object, op)| record(version, time_s, object, op));
            assert!(records.iter().all(|record| record.len() == RECORD_BYTES[version as usize - 1]));
            let trace = [header(version), records.concat()].concat();
            // 42932745 * 4096 = 175852523520.
            let mut expected = vec![
                "5000000 R 0 12288 4096",
                "6000000 W 0 175852523520 4096",
                "8000000 R 0 16384 4096",
                "9000000 R 0 20480 4096",
            ];
            if version == 1 {
                expected[1] = "6000000 R 0 175852523520 4096";
                expected.insert(2, "7000000 R 0 12288 4096");
            }
            assert_eq!(requests("lcs", &trace), expected, "{version}");
            assert_eq!(requests(&format!("lcs:version={version}"), &trace[HEADER_BYTES..]), expected, "{version}");
            assert_eq!(recognised(&trace), Ok("lcs"));
            assert_eq!(read("lcs", &trace).skipped, u64::from(version > 1));
        }
    }

    #[test]
    fn a_part_of_the_header_is_no_record() {
        let lcs = Lcs { version: 2, objects: Objects::new(4096) };
        let trace = [header(2), record(2, 5, 7, 1), vec![0; 11]].concat();
        let whole = [100, HEADER_BYTES - 1, HEADER_BYTES, trace.len()].map(|bytes| lcs.whole(&trace[..bytes]));
        assert_eq!(whole, [0, 0, HEADER_BYTES, HEADER_BYTES + 28]);
    }

    #[test]
    fn refuses_malformed_input() {
        let contents = [header(2), record(2, 5, 7, 1), vec![0; 11]].concat();
        let batch = read("lcs", &contents);
        let error = (1, "found the last 11 bytes, expected a record of 28 bytes".to_owned());
        assert_eq!(batch.malformed.iter().map(|(at, error)| (*at, error.to_string())).collect::<Vec<_>>(), [error]);
        let refused = |bytes: &[u8]| {
            let spec: crate::formats::FormatSpec = "lcs".parse().unwrap();
            spec.parser(&Sample { bytes, whole: true }, 4096).unwrap_err().to_string()
        };
        assert_eq!(refused(&header(9)), "lcs: version: found 'auto', expected 1 to 8 for a trace with version 9");
        assert_eq!(refused(&[0; 24]), "lcs: version: found 'auto', expected 1 to 8 for a trace with no header");
    }
}
