//! ARC's and LIRS's `.lis` traces: `start_block blocks ignored request`.
//!
//! Source: Megiddo, Modha: ARC: A self-tuning, low overhead replacement cache. FAST 2003, and the traces published with
//! it (OLTP, P1 to P14, DS1, S1 to S3). Blocks have 512 bytes, requests are numbered, there are no times, and all
//! requests count as reads. ARC's figures count these blocks: OLTP reproduces them at a block size of 512 bytes.

use flashwise_core::access::Op;
use flashwise_core::options::{Kind, Parameter};

use super::fields::Words;
use super::plausible::{self, BLANKS, Habits, Layout};
use super::{Fit, Format, Lines, Malformed, ParseLine, REQUEST_BYTES_MAX, Reading, Record, Sample};
use crate::request::{Request, Volumes};

/// The row of `.lis` traces in the table of formats.
pub static FORMAT: Format = Format {
    name: "lis",
    title: "ARC and LIRS .lis",
    source: "start_block blocks ignored request, in blocks of 512 bytes, all reads; Megiddo, Modha, FAST 2003",
    parameters: &[UNIT],
    recognise,
    parser: |options, _, _| Ok(Box::new(Lines(Lis { unit_bytes: options.text(UNIT.name).parse().ok() }))),
};

/// In addition to its shape, a trace must have request numbers that increase by 0 or 1. At least one must increase,
/// unless the ignored column is all zeros.
fn recognise(sample: &Sample) -> Fit {
    let column = |at: usize| sample.lines().take(100).filter_map(move |line| Words::new(line).nth_decimal(at));
    let numbers: Vec<_> = column(3).collect();
    let steps = || numbers.windows(2).map(|pair| pair[1].checked_sub(pair[0]));
    let is_counting = steps().all(|step| matches!(step, Some(0 | 1)));
    let is_moving = steps().any(|step| step == Some(1)) || column(2).all(|ignored| ignored == 0);
    if is_counting && is_moving { sample.fit_lines(&Lis { unit_bytes: None }) } else { Fit::No }
}

const UNIT: Parameter =
    Parameter::of("unit", Kind::Count(1, REQUEST_BYTES_MAX), "").means("bytes in a block of the trace; without it 512");

/// The block size of ARC's traces, in bytes.
const BLOCK_BYTES: u64 = 512;

#[derive(Debug)]
struct Lis {
    unit_bytes: Option<u64>,
}

impl ParseLine for Lis {
    #[inline]
    fn line(&self, line: &[u8], volumes: &mut Volumes) -> Result<Record, Malformed> {
        let mut words = Words::new(line);
        let unit_bytes = self.unit_bytes.unwrap_or(BLOCK_BYTES);
        let offset_bytes = words.bytes(unit_bytes, "a block number")?;
        let length_bytes = words.bytes(unit_bytes, "a number of blocks")?;
        words.decimal("a number, which is ignored")?;
        words.decimal("a request number")?;
        words.end(4)?;
        let volume = volumes.only();
        Ok(Record::Request(Request { time_us: 0, op: Op::Read, volume, offset_bytes, length_bytes }))
    }

    fn layout(&self) -> Option<Layout> {
        let habits = Habits { short: true, ..BLANKS.habits };
        let layout = Layout { offset: (0, BLOCK_BYTES), length: (1, BLOCK_BYTES), habits, ..BLANKS };
        self.unit_bytes.is_none().then_some(layout)
    }

    fn reading(&self, sample: &Sample) -> Result<Option<Reading>, Malformed> {
        let Some(layout) = self.layout() else { return Ok(None) };
        let mut doubts = plausible::check(&layout, self, sample)?;
        let doubt =
            "its blocks are read as 512 bytes each, as in ARC's traces (unit= of --format lis names another length)";
        doubts.push(doubt.to_owned());
        Ok(Some(Reading { columns: String::new(), doubts }))
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::testing::{recognised, refuses, requests};

    const TRACE: &[u8] = b"230027 8 0 0\n1842745 64 0 1\r\n216082 8 50 2\n";

    #[test]
    fn reads_the_columns() {
        // 230027 * 512 = 117773824, 1842745 * 512 = 943485440, 216082 * 512 = 110633984.
        let expected = ["0 R 0 117773824 4096", "0 R 0 943485440 32768", "0 R 0 110633984 4096"];
        assert_eq!(requests("lis", TRACE), expected);
        assert_eq!(recognised(TRACE), Ok("lis"));
    }

    #[test]
    fn four_numbers_without_an_increasing_last_one_are_not_recognised() {
        assert!(recognised(b"1 8 0 5\n2 8 0 900\n").is_err());
    }

    #[test]
    fn refuses_malformed_input() {
        refuses(
            "lis",
            &[
                ("x 8 0 0", r#"found "x", expected a block number"#),
                ("1 -8 0 0", r#"found "-8", expected a number of blocks"#),
                ("1 8 0", r#"found "1 8 0", expected a line with one more field: a request number"#),
                ("1 8 0 0 0", r#"found "1 8 0 0 0", expected a line of 4 fields"#),
                (
                    "36028797018963967 8 0 0",
                    "found a request of 4096 bytes at byte 18446744073709551104, expected one that ends at byte \
                     144115188075855872 or before",
                ),
            ],
        );
    }
}
