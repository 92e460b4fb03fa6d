//! Tencent CBS traces: `Timestamp,Offset,Size,IOType,VolumeID`.
//!
//! Source: SNIA IOTTA repository, Tencent Block Storage, README; Zhang et al.: OSCA: An online-model based cache
//! allocation scheme in cloud block storage systems. ATC 2020. The timestamp is in seconds, offset and size are in
//! sectors of 512 bytes. The type is 0 for a read and 1 for a write.

use flashwise_core::access::Op;

use super::fields::{Fields, TimeUnit};
use super::passed::Reason;
use super::plausible::{COMMAS, Habits, Layout};
use super::{Format, Lines, Malformed, ParseLine, Record};
use crate::request::{Request, Volumes};

/// The row of Tencent in the table of formats.
pub static FORMAT: Format = Format {
    name: "tencent",
    title: "Tencent CBS CSV",
    source: "Timestamp,Offset,Size,IOType,VolumeID; SNIA IOTTA, Tencent Block Storage; Zhang et al., ATC 2020",
    parameters: &[],
    recognise: |sample| sample.fit_lines(&Tencent),
    parser: |_, _, _| Ok(Box::new(Lines(Tencent))),
};

const HEADER: &[u8] = b"Timestamp,";

fn op_of(word: &[u8]) -> Option<Op> {
    match word {
        b"0" => Some(Op::Read),
        b"1" => Some(Op::Write),
        _ => None,
    }
}

#[derive(Debug)]
struct Tencent;

impl ParseLine for Tencent {
    #[inline]
    fn line(&self, line: &[u8], volumes: &mut Volumes) -> Result<Record, Malformed> {
        let mut fields = Fields::new(line, b',');
        if line.starts_with(HEADER) {
            return Ok(Record::PassedOver(Reason::Header));
        }
        let time_us = fields.time_us(TimeUnit::Seconds, "a time in seconds")?;
        let offset_bytes = fields.bytes(512, "an offset in sectors")?;
        let length_bytes = fields.bytes(512, "a size in sectors")?;
        let word = fields.next("0 or 1")?;
        let op = op_of(word).ok_or_else(|| Malformed::new(word, "0 (read) or 1 (write)"))?;
        let volume = fields.next("a volume")?;
        fields.end(5)?;
        let volume = volumes.number(volume);
        Ok(Record::Request(Request { time_us, op, volume, offset_bytes, length_bytes }))
    }

    fn layout(&self) -> Option<Layout> {
        Some(Layout {
            time: Some((0, TimeUnit::Seconds)),
            op: Some(3),
            op_of: Some(op_of),
            offset: (1, 512),
            length: (2, 512),
            volume: vec![4],
            habits: Habits { dated: true, ..COMMAS.habits },
            ..COMMAS
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::testing::{recognised, refuses, requests};

    const TRACE: &[u8] = b"1538323200,12910952,128,0,1063\n1538323201,6265688,8,1,1107\n";

    #[test]
    fn reads_the_columns() {
        // 12910952 * 512 = 6610407424, 6265688 * 512 = 3208032256.
        let expected = ["1538323200000000 R 1063 6610407424 65536", "1538323201000000 W 1107 3208032256 4096"];
        assert_eq!(requests("tencent", TRACE), expected);
        assert_eq!(recognised(TRACE), Ok("tencent"));
    }

    #[test]
    fn refuses_malformed_input() {
        refuses(
            "tencent",
            &[
                ("1,8,8,2,1", r#"found "2", expected 0 (read) or 1 (write)"#),
                ("9223372036855,8,8,0,1", r#"found "9223372036855", expected a time in seconds"#),
                ("1,8,8,0", r#"found "1,8,8,0", expected a line with one more field: a volume"#),
                ("1,8,8388609,0,1", "found a request of 4294967808 bytes, expected at most 4294967296"),
            ],
        );
    }
}
