//! Text of Windows event traces (ETW), as printed by xperf's dumper: `DiskRead, TimeStamp, Process Name ( PID),
//! ThreadID, ...`.
//!
//! Source: SNIA IOTTA repository, Microsoft Production Server and Exchange traces, README; Kavalanekar et al.:
//! Characterization of storage workload traces from production Windows servers. IISWC 2008. A header between
//! `BeginHeader` and `EndHeader` has one line for each kind of event, with its columns. `DiskRead` and `DiskWrite` are
//! requests; their times are those of completion, in microseconds. The offset and the size are in bytes, hexadecimal
//! after `0x` or decimal; a disk number is a volume.
//!
//! The columns are those of `DiskRead` in the header, or without a header those of the traces named above. `DiskFlush`
//! counts as skipped. All other events and lines are ignored.

use flashwise_core::access::Op;
use flashwise_core::filter::Client;

use super::fields::{Fields, TimeUnit, decimal, process, time_us};
use super::passed::Reason;
use super::plausible::{Habits, Layout, unparted};
use super::spellings::scaled;
use super::unit_options::{LENGTH_UNIT, OFFSET_UNIT, PLAIN, TIME_UNIT, UnitOptions};
use super::{Fit, Format, Lines, Malformed, ParseLine, Record, Sample};
use crate::request::{Request, Volumes};

/// The row of ETW in the table of formats.
pub static FORMAT: Format = Format {
    name: "etw",
    title: "Windows event trace as text",
    source: "DiskRead, TimeStamp (us), Process Name ( PID), ..., ByteOffset, IOSize, ..., DiskNum, ...; SNIA IOTTA, \
        MSPS and Exchange",
    parameters: &[TIME_UNIT, OFFSET_UNIT, LENGTH_UNIT],
    recognise,
    parser: |options, sample, _| Ok(Box::new(Lines(Etw { units: UNITS.given(options), ..Etw::new(sample) }))),
};

/// A trace begins with its header, or with an event of a disk if the header was cut off.
fn recognise(sample: &Sample) -> Fit {
    let has_header = sample.lines().next().is_some_and(|line| line.trim_ascii() == b"BeginHeader");
    if has_header {
        return Fit::Yes;
    }
    let first = sample.lines().next().is_some_and(|line| kind(line).0.starts_with(b"Disk"));
    if first { sample.fit_lines(&Etw { units: PLAIN, ..Etw::new(sample) }) } else { Fit::No }
}

const UNITS: UnitOptions = UnitOptions::new(TimeUnit::Microseconds, 1, 1);

/// The positions of columns, from 0 for the kind of event.
#[derive(Clone, Copy, Debug)]
struct Etw {
    time: usize,
    process: usize,
    offset: usize,
    length: usize,
    disk: usize,
    /// The minimum number of columns that contains all of the above.
    columns: usize,
    units: UnitOptions,
}

/// Splits a line into the kind of event and the columns after it.
#[inline]
fn kind(line: &[u8]) -> (&[u8], &[u8]) {
    let (kind, rest) = match memchr::memchr(b',', line) {
        Some(comma) => (&line[..comma], &line[comma + 1..]),
        None => (line, &line[..0]),
    };
    (kind.trim_ascii(), rest)
}

impl Etw {
    fn new(sample: &Sample) -> Etw {
        let known = Etw { time: 1, process: 2, offset: 5, length: 6, disk: 8, columns: 9, units: UNITS };
        let header = sample.lines().find(|line| kind(line).0 == b"DiskRead").filter(|line| is_header(kind(line).1));
        header.and_then(Etw::of_header).unwrap_or(known)
    }

    /// Parses the columns of a line of the header.
    fn of_header(line: &[u8]) -> Option<Etw> {
        let names: Vec<&[u8]> = line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).collect();
        let find = |name: &str| names.iter().position(|column| *column == name.as_bytes());
        let process = names.iter().position(|column| column.starts_with(b"Process Name"));
        let [time, offset, disk] = [find("TimeStamp")?, find("ByteOffset")?, find("DiskNum")?];
        let length = find("IOSize").or_else(|| find("TransferSize"))?;
        let columns = 1 + time.max(offset).max(disk).max(length);
        Some(Etw { time, process: process.unwrap_or(usize::MAX), offset, length, disk, columns, units: UNITS })
    }
}

/// True for the columns of a line of the header.
fn is_header(columns: &[u8]) -> bool {
    columns.trim_ascii_start().starts_with(b"TimeStamp")
}

/// Returns the end of the process column, which ends with the process id in parentheses: a name can contain commas.
fn process_end(rest: &[u8]) -> Option<usize> {
    let comma = memchr::memchr(b',', rest)?;
    if rest[..comma].trim_ascii_end().ends_with(b")") {
        return Some(comma);
    }
    memchr::memmem::find(rest, b"),").map(|end| end + 1).or(Some(comma))
}

/// Parses a number of bytes, hexadecimal after `0x` or decimal.
#[inline]
fn bytes(field: &[u8], expected: &str) -> Result<u64, Malformed> {
    let Some(digits) = field.strip_prefix(b"0x") else { return decimal(field, expected) };
    let wrong = || Malformed::new(field, expected);
    if digits.is_empty() {
        return Err(wrong());
    }
    let mut number: u64 = 0;
    for &digit in digits {
        let digit = char::from(digit).to_digit(16).ok_or_else(wrong)?;
        number = number.checked_mul(16).ok_or_else(wrong)? + u64::from(digit);
    }
    Ok(number)
}

impl ParseLine for Etw {
    #[inline]
    fn line(&self, line: &[u8], volumes: &mut Volumes) -> Result<Record, Malformed> {
        let (event, mut rest) = kind(line);
        let op = match event {
            b"DiskRead" => Op::Read,
            b"DiskWrite" => Op::Write,
            b"DiskFlush" if !is_header(rest) => return Ok(Record::Skipped),
            b"BeginHeader" | b"EndHeader" | b"" => return Ok(Record::Ignored),
            _ if is_header(rest) => return Ok(Record::Ignored),
            _ => return Ok(Record::PassedOver(Reason::OtherEvent)),
        };
        if is_header(rest) {
            return Ok(Record::Ignored);
        }
        let [mut time, mut offset, mut length, mut disk] = [&line[..0]; 4];
        for column in 1..self.columns {
            let end = if column == self.process { process_end(rest) } else { memchr::memchr(b',', rest) };
            let field = &rest[..end.unwrap_or(rest.len())];
            if column == self.time {
                time = field;
            } else if column == self.offset {
                offset = field;
            } else if column == self.length {
                length = field;
            } else if column == self.disk {
                disk = field;
            }
            match end {
                Some(end) => rest = &rest[end + 1..],
                None if column + 1 < self.columns => {
                    return Err(Malformed::new(line, format!("a line of {} columns or more", self.columns)));
                }
                None => {}
            }
        }
        let time_us = time_us(time.trim_ascii(), self.units.time, "a time in microseconds")?;
        let offset = bytes(offset.trim_ascii(), "an offset in bytes")?;
        let length = bytes(length.trim_ascii(), "a size in bytes")?;
        let offset_bytes = scaled(offset, self.units.offset_bytes, "an offset in bytes")?;
        let length_bytes = scaled(length, self.units.length_bytes, "a size in bytes")?;
        let disk = disk.trim_ascii();
        decimal(disk, "a disk number")?;
        let volume = volumes.number(disk);
        Ok(Record::Request(Request { time_us, op, volume, offset_bytes, length_bytes }))
    }

    fn layout(&self) -> Option<Layout> {
        Some(unparted(Habits::default()).in_units(self.units, FORMAT.name))
    }

    fn in_units(&self, units: UnitOptions) -> Option<Box<dyn ParseLine>> {
        Some(Box::new(Etw { units, ..*self }))
    }

    fn names_processes(&self) -> bool {
        self.process < self.columns
    }

    fn process(&self, line: &[u8]) -> Client {
        let mut fields = Fields::new(line, b',');
        let before = (0..self.process).map_while(|_| fields.next("").ok()).map(|field| field.len() + 1).sum();
        let rest = line.get(before..).unwrap_or_default();
        let column = &rest[..process_end(rest).unwrap_or(rest.len())];
        let (name, pid) = match memchr::memrchr(b'(', column) {
            Some(open) => (&column[..open], column[open + 1..].trim_ascii_end().strip_suffix(b")")),
            None => (column, None),
        };
        process(pid.map(<[u8]>::trim_ascii), name.trim_ascii())
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::testing::{filtered, read, recognised, refuses, requests};

    const TRACE: &[u8] = b"BeginHeader\r\n\
        \x20              DiskRead,  TimeStamp,     Process Name ( \
        PID),   ThreadID,             IrpPtr,   ByteOffset,     IOSize, ElapsedTime,  DiskNum, IrpFlags, DiskSvcTime, \
        I/O Pri,  VolSnap,         FileObject, FileName\r\n\
        \x20             DiskWrite,  TimeStamp,     Process Name ( \
        PID),   ThreadID,             IrpPtr,   ByteOffset,     IOSize, ElapsedTime,  DiskNum, IrpFlags, DiskSvcTime, \
        I/O Pri,  VolSnap,         FileObject, FileName\r\n\
        \x20          DiskReadInit,  TimeStamp,     Process Name ( PID),   ThreadID,             IrpPtr\r\n\
        \x20             DiskFlush,  TimeStamp,     Process Name ( \
        PID),   ThreadID,             IrpPtr,                           ElapsedTime,  DiskNum, IrpFlags, DiskSvcTime, \
        I/O Pri\r\n\
        EndHeader\r\n\
        OS Version: 6.0.6001, Trace Size: 12345KB, Events Lost: 0, Trace start: 0x01c8b2a0\r\n\
        \x20          DiskReadInit,        970,      sqlservr.exe (2468),       1404, 0xfffffa8004a6e010\r\n\
        \x20              DiskRead,       1040,      sqlservr.exe (2468),       1404, 0xfffffa8004a6e010, \
        0x00afdbc800, 0x00002000,          70,        2, 0x060043,          68,  Normal,        0, 0xfffffa80043c5590, \
        \"E:\\db, old.mdf\"\r\n\
        \x20             DiskWrite,       2210,            System (   4),         84, 0xfffffa8004bfc010, \
        0x0000001000, 0x00001000,         110,        0, 0x060a00,         108,  Normal,        0, 0xfffffa8003d0a070, \
        \"C:\\$LogFile\"\r\n\
        \x20             DiskFlush,       2300,            System (   4),         84, \
        0xfffffa8004bfc010,                               90,        0, 0x060a00,          88,  Normal\r\n\
        \x20            FileIoRead,       2400,            System (   4),         84, 0xfffffa8004bfc010\r\n\
        \x20              DiskRead,       2500,        a, b.exe ( 77),         84, 0xfffffa8004bfc010, 8192, \
        512,         110,        0, 0x060a00\r\n";

    /// Counted by `grep -c '^ *DiskRead, *[0-9]'` and the same for DiskWrite: 2 and 1.
    #[test]
    fn reads_the_columns_that_the_header_names() {
        // 0xafdbc800 = 2950416384.
        let expected = ["1040 R 2 2950416384 8192", "2210 W 0 4096 4096", "2500 R 0 8192 512"];
        assert_eq!(requests("etw", TRACE), expected);
        assert_eq!((read("etw", TRACE).skipped, recognised(TRACE)), (1, Ok("etw")));
        let end = TRACE.windows(9).position(|window| window == b"EndHeader").unwrap();
        assert_eq!(requests("etw", &TRACE[end..]), expected);
        let first = TRACE.windows(12).rposition(|window| window == b"DiskReadInit").unwrap();
        assert_eq!(recognised(&TRACE[first..]), Ok("etw"));
        let other = b"DiskRead, TimeStamp, DiskNum, ByteOffset, TransferSize\nDiskRead, 1, 3, 0x200, 0x400\n";
        assert_eq!(requests("etw", other), ["1 R 3 512 1024"]);
        assert_eq!(recognised(other), Ok("etw"));
    }

    #[test]
    fn each_request_is_filtered_by_its_process() {
        use flashwise_core::filter::Caching::{Never, Usual};
        use flashwise_core::filter::{Filter, Rule};
        let denying = |rules: &str| {
            let filter = Filter { deny: Rule::parse_list(rules).unwrap(), ..Filter::default() };
            filtered("etw", &filter, TRACE).unwrap()
        };
        assert_eq!(denying("program:sqlservr.exe"), [Never, Usual, Usual]);
        assert_eq!(denying("pid:4"), [Usual, Never, Usual]);
        assert_eq!(denying("pid:77"), [Usual, Usual, Never]);
    }

    #[test]
    fn refuses_malformed_input() {
        refuses(
            "etw",
            &[
                ("DiskRead, x, p ( 1), 2, 0x3, 0x200, 0x200, 5, 0", r#"found "x", expected a time in microseconds"#),
                ("DiskRead, 1, p ( 1), 2, 0x3, 0xg, 0x200, 5, 0", r#"found "0xg", expected an offset in bytes"#),
                ("DiskRead, 1, p ( 1), 2, 0x3, 0x200, 0x, 5, 0", r#"found "0x", expected a size in bytes"#),
                ("DiskRead, 1, p ( 1), 2, 0x3, 0x200, 0x200, 5, C", r#"found "C", expected a disk number"#),
                (
                    "DiskRead, 1, p ( 1), 2, 0x3",
                    r#"found "DiskRead, 1, p ( 1), 2, 0x3", expected a line of 9 columns or more"#,
                ),
                (
                    "DiskRead, 1, p ( 1), 2, 0x3, 0x10000000000000000, 0x200, 5, 0",
                    r#"found "0x10000000000000000", expected an offset in bytes"#,
                ),
            ],
        );
    }
}
