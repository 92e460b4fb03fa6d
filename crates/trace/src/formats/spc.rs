//! SPC traces: `ASU,LBA,Size,Opcode,Timestamp`.
//!
//! Source: Storage Performance Council: SPC Trace File Format Specification, revision 1.0.1; the UMass Trace
//! Repository's Financial and WebSearch traces are in it. The application-specific unit (ASU) is the volume, the LBA
//! counts blocks of 512 bytes, and the size is in bytes. The opcode is `R` or `W` in either case, the time is in
//! seconds. Optional fields may follow.

use flashwise_core::access::Op;

use super::fields::{Fields, TimeUnit};
use super::plausible::{COMMAS, Habits, Layout};
use super::{Format, Lines, Malformed, ParseLine, Record};
use crate::request::{Request, Volumes};

/// The row of SPC in the table of formats.
pub static FORMAT: Format = Format {
    name: "spc",
    title: "SPC trace (UMass Financial, WebSearch)",
    source: "ASU,LBA,Size,Opcode,Timestamp; SPC Trace File Format Specification 1.0.1",
    parameters: &[],
    recognise: |sample| sample.fit_lines(&Spc),
    parser: |_, _, _| Ok(Box::new(Lines(Spc))),
};

#[derive(Debug)]
struct Spc;

impl ParseLine for Spc {
    #[inline]
    fn line(&self, line: &[u8], volumes: &mut Volumes) -> Result<Record, Malformed> {
        let mut fields = Fields::new(line, b',');
        let volume = fields.next("an ASU")?.trim_ascii();
        if volume.is_empty() || !volume.iter().all(u8::is_ascii_digit) {
            return Err(Malformed::new(volume, "an ASU, a whole number"));
        }
        let offset_bytes = fields.bytes(512, "an LBA")?;
        let length_bytes = fields.decimal("a size in bytes")?;
        let op = match fields.next("r or w")?.trim_ascii() {
            b"r" | b"R" => Op::Read,
            b"w" | b"W" => Op::Write,
            other => return Err(Malformed::new(other, "r or w")),
        };
        let time_us = fields.time_us(TimeUnit::Seconds, "a time in seconds")?;
        let volume = volumes.number(volume);
        Ok(Record::Request(Request { time_us, op, volume, offset_bytes, length_bytes }))
    }

    fn layout(&self) -> Option<Layout> {
        Some(Layout {
            time: Some((4, TimeUnit::Seconds)),
            op: Some(3),
            offset: (1, 512),
            length: (2, 1),
            volume: vec![0],
            habits: Habits { decimals: true, ..COMMAS.habits },
            ..COMMAS
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::testing::{recognised, refuses, requests};

    const TRACE: &[u8] = b"0,20941264,8192,W,0.551706\n1, 20939840, 8192, r, 1.011732,extra\n";

    #[test]
    fn reads_the_columns() {
        // 20941264 * 512 = 10721927168, 20939840 * 512 = 10721198080.
        let expected = ["551706 W 0 10721927168 8192", "1011732 R 1 10721198080 8192"];
        assert_eq!(requests("spc", TRACE), expected);
        assert_eq!(recognised(TRACE), Ok("spc"));
    }

    #[test]
    fn refuses_malformed_input() {
        refuses(
            "spc",
            &[
                ("x,1,512,r,0.1", r#"found "x", expected an ASU, a whole number"#),
                ("0,-1,512,r,0.1", r#"found "-1", expected an LBA"#),
                (
                    "0,36028797018963968,512,r,0.1",
                    r#"found "36028797018963968", expected an LBA, in units of 512 bytes, below 2^64"#,
                ),
                ("0,1,512,x,0.1", r#"found "x", expected r or w"#),
                ("0,1,512,r,-0.1", r#"found "-0.1", expected a time in seconds"#),
                ("0,1,512,r", r#"found "0,1,512,r", expected a line with one more field: a time in seconds"#),
            ],
        );
    }
}
