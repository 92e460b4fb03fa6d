//! MSR-Cambridge CSV: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
//!
//! Source: SNIA IOTTA repository, MSR Cambridge Traces, README; Narayanan, Donnelly, Rowstron: Write off-loading. FAST
//! 2008. The timestamp is a Windows filetime, in units of 100 ns; offset and size are in bytes; type is `Read` or
//! `Write`. A volume is named `Hostname.DiskNumber`. Some captures in this format also contain `Flush` and `Trim`,
//! which have no data.

use flashwise_core::access::Op;

use super::fields::{Fields, TimeUnit};
use super::passed::Reason;
use super::plausible::{COMMAS, Habits, Layout};
use super::{Format, Lines, Malformed, ParseLine, Record};
use crate::request::{Request, Volumes};

/// The row of MSR-Cambridge in the table of formats.
pub static FORMAT: Format = Format {
    name: "msr",
    title: "MSR-Cambridge CSV",
    source: "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime; SNIA IOTTA, MSR Cambridge Traces",
    parameters: &[],
    recognise: |sample| sample.fit_lines(&Msr),
    parser: |_, _, _| Ok(Box::new(Lines(Msr))),
};

const HEADER: &[u8] = b"Timestamp,";

#[derive(Debug)]
struct Msr;

impl ParseLine for Msr {
    #[inline]
    fn line(&self, line: &[u8], volumes: &mut Volumes) -> Result<Record, Malformed> {
        let mut fields = Fields::new(line, b',');
        if line.starts_with(HEADER) {
            return Ok(Record::PassedOver(Reason::Header));
        }
        let time_us = fields.time_us(TimeUnit::Filetime, "a timestamp in units of 100 ns")?;
        let host = fields.next("a host name")?;
        let disk = fields.next("a disk number")?;
        let op = match fields.next("Read or Write")? {
            b"Read" | b"read" => Op::Read,
            b"Write" | b"write" => Op::Write,
            b"Flush" | b"Trim" => return Ok(Record::Skipped),
            other => return Err(Malformed::new(other, "Read or Write")),
        };
        let offset_bytes = fields.decimal("an offset in bytes")?;
        let length_bytes = fields.decimal("a size in bytes")?;
        // The response time may be missing.
        fields.end_after(1, 7)?;
        let volume = volumes.number_of_two(host, b'.', disk);
        Ok(Record::Request(Request { time_us, op, volume, offset_bytes, length_bytes }))
    }

    fn layout(&self) -> Option<Layout> {
        Some(Layout {
            time: Some((0, TimeUnit::Filetime)),
            op: Some(3),
            offset: (4, 1),
            length: (5, 1),
            volume: vec![1, 2],
            habits: Habits { dated: true, ..COMMAS.habits },
            ..COMMAS
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::testing::{read, recognised, refuses, requests};

    const TRACE: &[u8] = b"Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\r\n\
        128166372003061629,hm,0,Read,383496192,32768,413\r\n\
        128166372016382155,hm,1,Write,2822144,4096,1325\n\
        128166372026382155,hm,1,Flush,0,0,13\n";

    #[test]
    fn reads_the_columns() {
        let expected = ["12816637200306162 R hm.0 383496192 32768", "12816637201638215 W hm.1 2822144 4096"];
        assert_eq!(requests("msr", TRACE), expected);
        assert_eq!(read("msr", TRACE).skipped, 1);
        assert_eq!(recognised(TRACE), Ok("msr"));
    }

    #[test]
    fn refuses_malformed_input() {
        refuses(
            "msr",
            &[
                ("x,hm,0,Read,1,2,3", r#"found "x", expected a timestamp in units of 100 ns"#),
                ("1,hm,0,Erase,1,2,3", r#"found "Erase", expected Read or Write"#),
                ("1,hm,0,Read,-1,2,3", r#"found "-1", expected an offset in bytes"#),
                ("1,hm,0,Read,1,2KB,3", r#"found "2KB", expected a size in bytes"#),
                ("1,hm,0", r#"found "1,hm,0", expected a line with one more field: Read or Write"#),
                (
                    "1,hm,0,Read,18446744073709551615,2,3",
                    "found a request of 2 bytes at byte 18446744073709551615, expected one that ends at byte \
                     144115188075855872 or before",
                ),
                ("1,hm,0,Read,0,4294967297,3", "found a request of 4294967297 bytes, expected at most 4294967296"),
            ],
        );
    }
}
