//! libCacheSim's oracleGeneral traces.
//!
//! Source: libCacheSim's documentation of its trace formats. Records of 24 bytes, little-endian: time u32 in seconds,
//! object id u64, object size u32, next access i64. The latter is the position of the next access to the same object;
//! -1 or 2^63 - 1 for none.
//!
//! An object is one block regardless of its size (`objects.rs`), and every request reads it, as in libCacheSim without
//! object sizes.

use flashwise_core::access::Op;

use super::objects::Objects;
use super::{Fit, Format, Malformed, ParseRecord, Record, Records, Sample};
use crate::request::Volumes;

/// The row of oracleGeneral in the table of formats.
pub static FORMAT: Format = Format {
    name: "oracle-general",
    title: "libCacheSim oracleGeneral",
    source: "binary records of 24 bytes: time_s u32, object u64, size u32, next access i64; an object is one block, \
        all reads",
    parameters: &[],
    recognise,
    parser: |_, _, block_size_bytes| Ok(Box::new(Records(OracleGeneral(Objects::new(block_size_bytes))))),
};

/// Times must not decrease, and the next access of each record must be correct.
fn recognise(sample: &Sample) -> Fit {
    const NEVER: [i64; 2] = [-1, i64::MAX];
    /// The number of the first record is 0 or 1, depending on the program that wrote the trace.
    const FIRST: [usize; 2] = [0, 1];
    let (records, _) = sample.bytes.as_chunks::<24>();
    let records: Vec<_> = records.iter().map(fields).collect();
    let in_order = records.windows(2).all(|pair| pair[0].0 <= pair[1].0);
    let true_next = |first: usize| {
        records.iter().enumerate().all(|(position, &(_, object, next))| {
            let next = usize::try_from(next).ok().filter(|_| !NEVER.contains(&next)).map(|next| next - first.min(next));
            let is_later = next.is_none_or(|next| next > position && next < 1 << 48);
            is_later && next.and_then(|next| records.get(next)).is_none_or(|&(_, other, _)| other == object)
        })
    };
    let known = records.iter().all(|&(_, _, next)| next >= 0 || NEVER.contains(&next));
    let fits = !records.is_empty() && in_order && known && FIRST.into_iter().any(true_next);
    if fits { Fit::Yes } else { Fit::No }
}

/// Returns the time, the object and the next access.
#[inline]
fn fields(record: &[u8; 24]) -> (u32, u64, i64) {
    let [t0, t1, t2, t3, id @ .., _, _, _, _, _, _, _, _, _, _, _, _] = *record;
    let [.., n0, n1, n2, n3, n4, n5, n6, n7] = *record;
    let next = i64::from_le_bytes([n0, n1, n2, n3, n4, n5, n6, n7]);
    (u32::from_le_bytes([t0, t1, t2, t3]), u64::from_le_bytes(id), next)
}

#[derive(Debug)]
struct OracleGeneral(Objects);

impl ParseRecord<24> for OracleGeneral {
    /// Block numbers are in range by construction.
    const VOLUME_BYTES_MAX: u64 = u64::MAX;

    #[inline]
    fn record(&self, record: &[u8; 24], volumes: &mut Volumes) -> Result<Record, Malformed> {
        let (time_s, object, _) = fields(record);
        Ok(Record::Request(self.0.request(i64::from(time_s) * 1_000_000, Op::Read, object, volumes)))
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::testing::{read, recognised, requests};

    fn record(time_s: u32, object: u64, size: u32, next: i64) -> Vec<u8> {
        let (time_s, object, size) = (time_s.to_le_bytes(), object.to_le_bytes(), size.to_le_bytes());
        [&time_s[..], &object, &size, &next.to_le_bytes()].concat()
    }

    #[test]
    fn an_object_is_one_block() {
        // 42932745 * 4096 = 175852523520.
        let trace = [record(5, 42_932_745, 512, 2), record(5, 3, 100_000, -1), record(9, 42_932_745, 512, i64::MAX)];
        let expected = ["5000000 R 0 175852523520 4096", "5000000 R 0 12288 4096", "9000000 R 0 175852523520 4096"];
        assert_eq!(requests("oracle-general", &trace.concat()), expected);
        assert_eq!(recognised(&trace.concat()), Ok("oracle-general"));
        let from_one = [record(5, 7, 512, 3), record(5, 3, 1, -1), record(9, 7, 512, -1)];
        assert_eq!(recognised(&from_one.concat()), Ok("oracle-general"));
    }

    #[test]
    fn false_next_accesses_are_something_else() {
        for trace in [
            [record(5, 7, 512, 2), record(5, 3, 1, -1), record(9, 8, 512, -1)],
            [record(5, 7, 512, -2), record(5, 3, 1, -1), record(9, 8, 512, -1)],
            [record(5, 7, 512, -1), record(5, 3, 1, 0), record(9, 8, 512, -1)],
            [record(6, 7, 512, -1), record(5, 3, 1, -1), record(9, 8, 512, -1)],
        ] {
            assert!(recognised(&trace.concat()).is_err());
        }
    }

    #[test]
    fn refuses_half_a_record() {
        let contents = [record(5, 7, 512, -1), vec![0; 11]].concat();
        let batch = read("oracle-general", &contents);
        let error = (1, "found the last 11 bytes, expected a record of 24 bytes".to_owned());
        assert_eq!(batch.malformed.iter().map(|(at, error)| (*at, error.to_string())).collect::<Vec<_>>(), [error]);
    }
}
