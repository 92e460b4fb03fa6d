//! MSR-Cambridge CSV: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
//!
//! Source: SNIA IOTTA repository, MSR Cambridge Traces, README; Narayanan, Donnelly, Rowstron: Write off-loading. FAST 2008.
//! The timestamp is a Windows filetime, in units of 100 ns; offset and size are in bytes; type is `Read` or `Write`.

use flashwise_core::access::Op;

use super::fields::{Fields, decimal};
use super::{Format, Lines, Malformed, ParseLine, Record, Sample};
use crate::request::{Request, Volumes};

/// MSR-Cambridge's row in the table of formats.
pub static FORMAT: Format = Format {
    name: "msr",
    title: "MSR-Cambridge CSV",
    source: "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime; SNIA IOTTA, MSR Cambridge Traces",
    parameters: &[],
    recognise,
    parser: |_, _| Ok(Box::new(Lines(Msr))),
};

const HEADER: &[u8] = b"Timestamp,";

fn recognise(sample: &Sample) -> bool {
    let mut lines = sample.lines().filter(|line| !line.starts_with(HEADER)).take(20).peekable();
    lines.peek().is_some() && lines.all(|line| Msr.line(line, &mut Volumes::default()).is_ok())
}

#[derive(Debug)]
struct Msr;

impl ParseLine for Msr {
    #[inline]
    fn line(&self, line: &[u8], volumes: &mut Volumes) -> Result<Record, Malformed> {
        if line.starts_with(HEADER) {
            return Ok(Record::Ignored);
        }
        let mut fields = Fields::new(line, b',');
        let filetime = decimal(fields.next("a timestamp")?, "a timestamp in units of 100 ns")?;
        let volume = fields.next_two("a host name and a disk number")?;
        let op = match fields.next("Read or Write")? {
            b"Read" | b"read" => Op::Read,
            b"Write" | b"write" => Op::Write,
            b"Flush" | b"Trim" => return Ok(Record::Skipped),
            other => return Err(Malformed::new(other, "Read or Write")),
        };
        let offset_bytes = decimal(fields.next("an offset")?, "an offset in bytes")?;
        let length_bytes = decimal(fields.next("a size")?, "a size in bytes")?;
        let volume = volumes.number(volume);
        Ok(Record::Request(Request { time_us: (filetime / 10) as i64, op, volume, offset_bytes, length_bytes }))
    }
}
