//! fio's I/O logs, versions 2 and 3: `file action`, `file action offset length`, in version 3 with a time before each.
//!
//! Source: fio's HOWTO, "Trace file format v2" and "v3"; fio's `iolog.c`, which writes times in microseconds since the
//! start of the job. Offset and length are in bytes, a file is a volume. The first line is `fio version 2 iolog` or
//! `fio version 3 iolog`.
//!
//! Only `read` and `write` count as requests. Syncs and trims count as skipped; `add`, `open`, `close` and `wait` are
//! ignored. Version 2 has no times, only waits between requests, so all its times are 0.

use flashwise_core::access::Op;
use flashwise_core::options::{Kind, OptionError, Parameter};

use super::fields::{TimeUnit, Words};
use super::passed::Reason;
use super::plausible::{Habits, Layout, unparted};
use super::unfinished::Unfinished;
use super::unit_options::{LENGTH_UNIT, OFFSET_UNIT, TIME_UNIT, UnitOptions};
use super::{Fit, Format, Lines, Malformed, ParseLine, Record, Sample};
use crate::request::{Request, Volumes};

/// The row of fio's I/O logs in the table of formats.
pub static FORMAT: Format = Format {
    name: "fio",
    title: "fio iolog, versions 2 and 3",
    source: "[time_us] file action [offset length] below \"fio version 3 iolog\"; fio's HOWTO; version 2 has no times",
    parameters: &[
        Parameter::of("version", Kind::Choice(&["auto", "2", "3"]), "auto")
            .means("version of the log; auto takes it from the first line"),
        TIME_UNIT,
        OFFSET_UNIT,
        LENGTH_UNIT,
    ],
    recognise: |sample| if version(sample).is_some() { Fit::Yes } else { Fit::No },
    parser: |options, sample, _| {
        let has_times = match options.text("version") {
            "2" => false,
            "3" => true,
            auto => version(sample).map(|version| version == 3).ok_or_else(|| {
                OptionError::bad_value("fio", "version", auto, "2 or 3, which the first line does not say")
            })?,
        };
        Ok(Box::new(Unfinished(Box::new(Lines(Fio { has_times, units: UNITS.given(options) })))))
    },
};

/// Returns the version from the first line.
fn version(sample: &Sample) -> Option<u8> {
    sample.lines().next().and_then(header)
}

/// Returns the version if a line is a header.
fn header(line: &[u8]) -> Option<u8> {
    match line.trim_ascii_end() {
        b"fio version 2 iolog" => Some(2),
        b"fio version 3 iolog" => Some(3),
        _ => None,
    }
}

const UNITS: UnitOptions = UnitOptions::new(TimeUnit::Microseconds, 1, 1);

#[derive(Debug)]
struct Fio {
    has_times: bool,
    units: UnitOptions,
}

impl Fio {
    /// Handles a second header, of a log that fio appended to this one. Returns an error unless it has the same
    /// version.
    #[cold]
    fn repeated_header(&self, line: &[u8]) -> Result<Record, Malformed> {
        let version = 2 + u8::from(self.has_times);
        match header(line) {
            Some(found) if found == version => Ok(Record::PassedOver(Reason::Header)),
            _ => Err(Malformed::new(line, format!("an action of version {version}"))),
        }
    }
}

impl ParseLine for Fio {
    #[inline]
    fn line(&self, line: &[u8], volumes: &mut Volumes) -> Result<Record, Malformed> {
        if line.starts_with(b"fio version ") {
            return self.repeated_header(line);
        }
        let mut words = Words::new(line);
        let time_us = if self.has_times { words.time_us(self.units.time, "a time in microseconds")? } else { 0 };
        let file = words.next("a file")?;
        let op = match words.next("an action")? {
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"trim" | b"sync" | b"datasync" | b"sync_file_range" | b"syncfs" | b"file_operation" => {
                return Ok(Record::Skipped);
            }
            b"add" | b"open" | b"close" | b"wait" => return Ok(Record::Ignored),
            other => {
                return Err(Malformed::new(other, "an action such as read, write, trim, sync, add, open or close"));
            }
        };
        let offset_bytes = words.bytes(self.units.offset_bytes, "an offset in bytes")?;
        let length_bytes = words.bytes(self.units.length_bytes, "a length in bytes")?;
        words.end(4 + usize::from(self.has_times))?;
        let volume = volumes.number(file);
        Ok(Record::Request(Request { time_us, op, volume, offset_bytes, length_bytes }))
    }

    fn layout(&self) -> Option<Layout> {
        let layout = unparted(Habits::default());
        let time = layout.time.filter(|_| self.has_times);
        Some(Layout { time, ..layout }.in_units(self.units, FORMAT.name))
    }

    fn in_units(&self, units: UnitOptions) -> Option<Box<dyn ParseLine>> {
        Some(Box::new(Fio { units, ..*self }))
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::testing::{read, recognised, refuses, requests};

    const V3: &[u8] = b"fio version 3 iolog\n\
        0 /dev/sdb add\n\
        11 /dev/sdb open\n\
        1204 /dev/sdb read 8192 4096\n\
        1300 /dev/sdb write 0 65536\n\
        1300 /dev/sdb datasync 0 0\n\
        1350 /dev/sdb file_operation 0 0\n\
        1400 /dev/sdb trim 4096 4096\n\
        fio version 3 iolog\n\
        7 /dev/sdc read 512 1\n\
        1500 /dev/sdb close\n";

    const V2: &[u8] = b"fio version 2 iolog\r\n\
        /dev/sdb add\r\n\
        /dev/sdb open\r\n\
        /dev/sdb wait 1000 0\r\n\
        /dev/sdb read 8192 4096\r\n\
        /dev/sdb sync 0 0\r\n\
        /dev/sdb write 0 65536\r\n\
        /dev/sdb close\r\n";

    #[test]
    fn reads_both_versions() {
        let expected = ["1204 R /dev/sdb 8192 4096", "1300 W /dev/sdb 0 65536", "7 R /dev/sdc 512 1"];
        assert_eq!(requests("fio", V3), expected);
        assert_eq!((read("fio", V3).skipped, recognised(V3)), (3, Ok("fio")));
        assert_eq!(requests("fio", V2), ["0 R /dev/sdb 8192 4096", "0 W /dev/sdb 0 65536"]);
        assert_eq!((read("fio", V2).skipped, recognised(V2)), (1, Ok("fio")));
        let headless = &V3[V3.iter().position(|&byte| byte == b'\n').unwrap() + 1..];
        assert_eq!(requests("fio:version=3", headless), expected);
        assert!(recognised(headless).is_err());
    }

    /// Every line that the awk program `$3 == "read" || $3 == "write"` counts is a request: 3 in version 3.
    #[test]
    fn a_line_that_was_not_finished_is_left_out() {
        assert_eq!(requests("fio", &V3[..V3.len() - 60]).len(), 2);
        for cut in 0..V3.len() {
            let lines = V3[..cut].split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n"));
            let counted = lines.filter(|line| {
                let words: Vec<_> = line.split(|&byte| byte == b' ').collect();
                matches!(words.get(2), Some(&(b"read" | b"write")))
            });
            let batch = read("fio:version=3", &V3[..cut]);
            assert_eq!((batch.requests.len(), batch.malformed.len()), (counted.count(), 0), "{cut}");
        }
    }

    #[test]
    fn refuses_malformed_input() {
        let expected = "an action such as read, write, trim, sync, add, open or close";
        refuses(
            "fio:version=3",
            &[
                ("x /dev/sdb read 0 1\n", r#"found "x", expected a time in microseconds"#),
                ("1 /dev/sdb erase 0 1\n", &format!(r#"found "erase", expected {expected}"#)),
                ("1 /dev/sdb read -1 1\n", r#"found "-1", expected an offset in bytes"#),
                ("1 /dev/sdb read 1 4k\n", r#"found "4k", expected a length in bytes"#),
                ("1 /dev/sdb read 1 4 5\n", r#"found "1 /dev/sdb read 1 4 5", expected a line of 5 fields"#),
                ("fio version 2 iolog\n", r#"found "fio version 2 iolog", expected an action of version 3"#),
            ],
        );
        let spec: crate::formats::FormatSpec = "fio".parse().unwrap();
        let sample = crate::formats::Sample { bytes: b"0 /dev/sdb add\n", whole: true };
        assert_eq!(
            spec.parser(&sample, 4096).unwrap_err().to_string(),
            "fio: version: found 'auto', expected 2 or 3, which the first line does not say"
        );
    }
}
