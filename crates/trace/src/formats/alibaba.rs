//! Alibaba Cloud block traces: `device_id,opcode,offset,length,timestamp`.
//!
//! Source: Li, Wang, Lee, Li, Zhang, Xia, Huang: An in-depth analysis of cloud block storage workloads in large-scale
//! production. IISWC 2020, and the README of its traces. Offset and length are in bytes, the timestamp in microseconds,
//! the opcode is `R` or `W`.

use flashwise_core::access::Op;

use super::fields::{Fields, TimeUnit};
use super::passed::Reason;
use super::plausible::{COMMAS, Habits, Layout};
use super::{Format, Lines, Malformed, ParseLine, Record};
use crate::request::{Request, Volumes};

/// The row of Alibaba in the table of formats.
pub static FORMAT: Format = Format {
    name: "alibaba",
    title: "Alibaba Cloud block CSV",
    source: "device_id,opcode,offset,length,timestamp; Li et al., IISWC 2020",
    parameters: &[],
    recognise: |sample| sample.fit_lines(&Alibaba),
    parser: |_, _, _| Ok(Box::new(Lines(Alibaba))),
};

const HEADER: &[u8] = b"device_id,";

#[derive(Debug)]
struct Alibaba;

impl ParseLine for Alibaba {
    #[inline]
    fn line(&self, line: &[u8], volumes: &mut Volumes) -> Result<Record, Malformed> {
        let mut fields = Fields::new(line, b',');
        let volume = fields.next("a device")?;
        if line.starts_with(HEADER) {
            return Ok(Record::PassedOver(Reason::Header));
        }
        let op = match fields.next("R or W")? {
            b"R" => Op::Read,
            b"W" => Op::Write,
            other => return Err(Malformed::new(other, "R or W")),
        };
        let offset_bytes = fields.decimal("an offset in bytes")?;
        let length_bytes = fields.decimal("a length in bytes")?;
        let time_us = fields.time_us(TimeUnit::Microseconds, "a time in microseconds")?;
        fields.end(5)?;
        let volume = volumes.number(volume);
        Ok(Record::Request(Request { time_us, op, volume, offset_bytes, length_bytes }))
    }

    fn layout(&self) -> Option<Layout> {
        Some(Layout {
            time: Some((4, TimeUnit::Microseconds)),
            op: Some(1),
            offset: (2, 1),
            length: (3, 1),
            volume: vec![0],
            habits: Habits { dated: true, ..COMMAS.habits },
            ..COMMAS
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::testing::{recognised, refuses, requests};

    const TRACE: &[u8] = b"419,W,8792731648,16384,1577808144360767\n725,R,59110326272,360448,1577808144360813\n";

    #[test]
    fn reads_the_columns() {
        let expected = ["1577808144360767 W 419 8792731648 16384", "1577808144360813 R 725 59110326272 360448"];
        assert_eq!(requests("alibaba", TRACE), expected);
        assert_eq!(recognised(TRACE), Ok("alibaba"));
    }

    #[test]
    fn refuses_malformed_input() {
        refuses(
            "alibaba",
            &[
                ("1,r,0,4096,1", r#"found "r", expected R or W"#),
                ("1,R,0.5,4096,1", r#"found "0.5", expected an offset in bytes"#),
                ("1,R,0,,1", r#"found "", expected a length in bytes"#),
                ("1,R,0,4096,1,2", r#"found "1,R,0,4096,1,2", expected a line of 5 fields"#),
            ],
        );
    }
}
