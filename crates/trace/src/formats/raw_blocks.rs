//! Block numbers in binary: 32-bit or 64-bit little-endian integers without gaps.
//!
//! Source: none; array libraries write such files (`numpy.ndarray.tofile`), and many cache simulators read them. Each
//! number is a read of one block. The file does not contain the type of its integers, so the user must give it. As in
//! lists of lines, a number is one block at any block size, unless `unit` sets the size.

use flashwise_core::access::Op;
use flashwise_core::options::{Kind, OptionError, Parameter};

use super::spellings::scaled;
use super::{Fit, Format, Malformed, ParseRecord, Parser, REQUEST_BYTES_MAX, Record, Records};
use crate::request::{Request, Volumes};

/// The row of raw block lists in the table of formats.
pub static FORMAT: Format = Format {
    name: "raw-blocks",
    title: "List of block numbers in binary",
    source: "one little-endian integer a block, all reads; never recognised, since any bytes are integers",
    parameters: &[
        Parameter::of("type", Kind::Choice(&["int32", "int64"]), "")
            .means("type of the integers: 4 or 8 bytes, 0 or more; required"),
        Parameter::of("unit", Kind::Count(1, REQUEST_BYTES_MAX), "")
            .means("bytes in the block that a number stands for; without it, one block at any block size"),
    ],
    recognise: |_| Fit::No,
    parser: |options, _, block_size_bytes| {
        let numbers = RawBlocks { unit_bytes: options.text("unit").parse().unwrap_or(block_size_bytes) };
        let parser: Parser = match options.text("type") {
            "int32" => Box::new(Records::<_, 4>(numbers)),
            "int64" => Box::new(Records::<_, 8>(numbers)),
            found => {
                let expected = "int32 or int64, which the file does not say";
                return Err(OptionError::bad_value("raw-blocks", "type", found, expected));
            }
        };
        Ok(parser)
    },
};

#[derive(Debug)]
struct RawBlocks {
    unit_bytes: u64,
}

impl RawBlocks {
    #[inline]
    fn read(&self, number: i64, volumes: &mut Volumes) -> Result<Record, Malformed> {
        const EXPECTED: &str = "a block number";
        let wrong = |_| Malformed::new(number.to_string().as_bytes(), EXPECTED);
        let offset_bytes = scaled(u64::try_from(number).map_err(wrong)?, self.unit_bytes, EXPECTED)?;
        let (volume, length_bytes) = (volumes.only(), self.unit_bytes);
        Ok(Record::Request(Request { time_us: 0, op: Op::Read, volume, offset_bytes, length_bytes }))
    }
}

impl ParseRecord<4> for RawBlocks {
    #[inline]
    fn record(&self, record: &[u8; 4], volumes: &mut Volumes) -> Result<Record, Malformed> {
        self.read(i32::from_le_bytes(*record).into(), volumes)
    }
}

impl ParseRecord<8> for RawBlocks {
    #[inline]
    fn record(&self, record: &[u8; 8], volumes: &mut Volumes) -> Result<Record, Malformed> {
        self.read(i64::from_le_bytes(*record), volumes)
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::testing::{read, recognised, requests};

    fn int32(numbers: &[i32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    fn int64(numbers: &[i64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    #[test]
    fn a_number_is_one_block_at_any_block_size() {
        // 2819 * 4096 = 11546624, 2147483647 * 4096 = 8796093018112.
        let expected = ["0 R 0 11546624 4096", "0 R 0 8796093018112 4096", "0 R 0 0 4096"];
        assert_eq!(requests("raw-blocks:type=int32", &int32(&[2819, i32::MAX, 0])), expected);
        assert_eq!(requests("raw-blocks:type=int64", &int64(&[2819, 2_147_483_647, 0])), expected);
        // 4294967296 * 512 = 2199023255552.
        let expected = ["0 R 0 2199023255552 512"];
        assert_eq!(requests("raw-blocks:type=int64,unit=512", &int64(&[1 << 32])), expected);
    }

    #[test]
    fn raw_integers_are_never_recognised_and_need_a_type() {
        assert!(recognised(&int32(&[1, 2, 3, 1, 2])).is_err());
        let spec: crate::formats::FormatSpec = "raw-blocks".parse().unwrap();
        let sample = crate::formats::Sample { bytes: &[0; 8], whole: true };
        assert_eq!(
            spec.parser(&sample, 4096).unwrap_err().to_string(),
            "raw-blocks: type: found '', expected int32 or int64, which the file does not say"
        );
    }

    #[test]
    fn refuses_malformed_input() {
        let errors = |spec: &str, contents: &[u8]| {
            let batch = read(spec, contents);
            batch.malformed.iter().map(|(at, error)| format!("{at}: {error}")).collect::<Vec<_>>()
        };
        let found = errors("raw-blocks:type=int32", &[&int32(&[1, -1])[..], &[7]].concat());
        let expected =
            [r#"1: found "-1", expected a block number"#, "2: found the last 1 bytes, expected a record of 4 bytes"];
        assert_eq!(found, expected);
        let found = errors("raw-blocks:type=int64", &int64(&[1 << 52]));
        let range = r#"found "4503599627370496", expected a block number, in units of 4096 bytes, below 2^64"#;
        assert_eq!(found, [format!("0: {range}")]);
    }
}
