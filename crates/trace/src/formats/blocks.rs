//! Lists of block numbers, one per line.
//!
//! Source: the reference strings of Jiang, Zhang: LIRS. SIGMETRICS 2002 (`2_pools`, `cs`, `loop`, `sprite`, ...), and
//! the plain text traces of many cache simulators. Each line is a read of one block. The size of a block is not given;
//! so by default a line is one block at any block size. With `unit=4096` the numbers count blocks of 4 KiB, which
//! smaller blocks split and larger ones share. Lines of `*` mark phases in some of these files and are ignored.

use flashwise_core::access::Op;
use flashwise_core::options::{Kind, Parameter};

use super::fields::decimal;
use super::{Format, Lines, Malformed, ParseLine, REQUEST_BYTES_MAX, Record};
use crate::request::{Request, Volumes};

/// The row of block lists in the table of formats.
pub static FORMAT: Format = Format {
    name: "blocks",
    title: "List of block numbers",
    source: "one block number a line, all reads; the reference strings of LIRS (Jiang, Zhang, SIGMETRICS 2002)",
    parameters: &[Parameter::of("unit", Kind::Count(1, REQUEST_BYTES_MAX), "")
        .means("bytes in the block that a number stands for; without it, one block at any block size")],
    recognise: |sample| sample.fit_lines(&Blocks { unit_bytes: 1 }),
    parser: |options, _, block_size_bytes| {
        let given = options.text("unit").parse();
        Ok(Box::new(Lines(Blocks { unit_bytes: given.unwrap_or(block_size_bytes) })))
    },
};

#[derive(Debug)]
struct Blocks {
    unit_bytes: u64,
}

impl ParseLine for Blocks {
    #[inline]
    fn line(&self, line: &[u8], volumes: &mut Volumes) -> Result<Record, Malformed> {
        let line = line.trim_ascii();
        if line.is_empty() || line.iter().all(|&byte| byte == b'*') {
            return Ok(Record::Ignored);
        }
        let offset_bytes =
            super::spellings::scaled(decimal(line, "a block number")?, self.unit_bytes, "a block number")?;
        let volume = volumes.only();
        let length_bytes = self.unit_bytes;
        Ok(Record::Request(Request { time_us: 0, op: Op::Read, volume, offset_bytes, length_bytes }))
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::testing::{recognised, refuses, requests};

    const TRACE: &[u8] = b"2819\r\n*\n\n85\n 0 \n";

    #[test]
    fn a_number_is_one_block_at_any_block_size() {
        // 2819 * 4096 = 11546624, 85 * 4096 = 348160.
        let expected = ["0 R 0 11546624 4096", "0 R 0 348160 4096", "0 R 0 0 4096"];
        assert_eq!(requests("blocks", TRACE), expected);
        assert_eq!(recognised(TRACE), Ok("blocks"));
    }

    #[test]
    fn a_unit_makes_numbers_bytes() {
        // 2819 * 512 = 1443328, 85 * 512 = 43520.
        let expected = ["0 R 0 1443328 512", "0 R 0 43520 512", "0 R 0 0 512"];
        assert_eq!(requests("blocks:unit=512", TRACE), expected);
    }

    #[test]
    fn refuses_malformed_input() {
        refuses(
            "blocks",
            &[
                ("-1", r#"found "-1", expected a block number"#),
                ("1 2", r#"found "1 2", expected a block number"#),
                ("1.0", r#"found "1.0", expected a block number"#),
                (
                    "4503599627370496",
                    r#"found "4503599627370496", expected a block number, in units of 4096 bytes, below 2^64"#,
                ),
            ],
        );
    }
}
