//! Systor '17 traces: `Timestamp,Response,IOType,LUN,Offset,Size`.
//!
//! Source: SNIA IOTTA repository, Systor '17 Traces, README; Lee et al.: Understanding storage traffic characteristics
//! on enterprise virtual desktop infrastructure. SYSTOR 2017. Times are in seconds (the response time can be missing),
//! offset and size in bytes. The type is `R` or `W`; requests without a type are skipped.

use flashwise_core::access::Op;

use super::fields::{Fields, TimeUnit};
use super::passed::Reason;
use super::plausible::{COMMAS, Habits, Layout};
use super::{Format, Lines, Malformed, ParseLine, Record};
use crate::request::{Request, Volumes};

/// The row of Systor '17 in the table of formats.
pub static FORMAT: Format = Format {
    name: "systor",
    title: "Systor '17 CSV",
    source: "Timestamp,Response,IOType,LUN,Offset,Size; SNIA IOTTA, Systor '17 Traces; Lee et al., SYSTOR 2017",
    parameters: &[],
    recognise: |sample| sample.fit_lines(&Systor),
    parser: |_, _, _| Ok(Box::new(Lines(Systor))),
};

const HEADER: &[u8] = b"Timestamp,";

#[derive(Debug)]
struct Systor;

impl ParseLine for Systor {
    #[inline]
    fn line(&self, line: &[u8], volumes: &mut Volumes) -> Result<Record, Malformed> {
        let mut fields = Fields::new(line, b',');
        if line.starts_with(HEADER) {
            return Ok(Record::PassedOver(Reason::Header));
        }
        let time_us = fields.time_us(TimeUnit::Seconds, "a time in seconds")?;
        fields.next("a response time")?;
        let op = match fields.next("R or W")? {
            b"R" => Some(Op::Read),
            b"W" => Some(Op::Write),
            b"" => None,
            other => return Err(Malformed::new(other, "R or W")),
        };
        let volume = fields.next("a LUN")?;
        let offset_bytes = fields.decimal("an offset in bytes")?;
        let length_bytes = fields.decimal("a size in bytes")?;
        fields.end(6)?;
        let Some(op) = op else { return Ok(Record::PassedOver(Reason::NoOp)) };
        let volume = volumes.number(volume);
        Ok(Record::Request(Request { time_us, op, volume, offset_bytes, length_bytes }))
    }

    fn layout(&self) -> Option<Layout> {
        Some(Layout {
            time: Some((0, TimeUnit::Seconds)),
            op: Some(2),
            offset: (4, 1),
            length: (5, 1),
            volume: vec![3],
            habits: Habits { dated: true, decimals: true, ..COMMAS.habits },
            ..COMMAS
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::testing::{read, recognised, refuses, requests};

    const TRACE: &[u8] = b"Timestamp,Response,IOType,LUN,Offset,Size\n\
        1455592196.006100000,0.006475000,R,0,203468398592,32768\n\
        1455592196.010701,,W,4,4590576115200,4096\n";

    #[test]
    fn reads_the_columns() {
        let expected = ["1455592196006100 R 0 203468398592 32768", "1455592196010701 W 4 4590576115200 4096"];
        assert_eq!(requests("systor", TRACE), expected);
        assert_eq!(recognised(TRACE), Ok("systor"));
    }

    #[test]
    fn requests_without_a_type_and_further_headers_are_passed_over() {
        let twice = [TRACE, b"1455592197.5,0.1,,0,0,4096\n", TRACE].concat();
        assert_eq!(requests("systor", &twice).len(), 4);
        let batch = read("systor", &twice);
        let said = "2 lines were skipped: 1 repeated header, 1 request without a type";
        assert_eq!((batch.skipped, batch.passed_over.described().as_deref()), (1, Some(said)));
    }

    #[test]
    fn refuses_malformed_input() {
        refuses(
            "systor",
            &[
                ("1.5e,0.1,R,0,0,4096", r#"found "1.5e", expected a time in seconds"#),
                ("1.5,0.1,X,0,0,4096", r#"found "X", expected R or W"#),
                ("1.5,0.1,R,0,0", r#"found "1.5,0.1,R,0,0", expected a line with one more field: a size in bytes"#),
                ("1.5,0.1,R,0,0,1,2", r#"found "1.5,0.1,R,0,0,1,2", expected a line of 6 fields"#),
            ],
        );
    }
}
