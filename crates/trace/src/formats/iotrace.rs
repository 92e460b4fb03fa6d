//! Traces of Open CAS' iotrace, as its parser prints them: JSON with one event per line, or CSV.
//!
//! Source: the documentation of Open CAS' Standalone Linux IO Tracer, and `trace.proto` and `parsedTrace.proto` of its
//! telemetry framework. `header.timestamp` is in nanoseconds, `io.lba` and `io.len` are in sectors of 512 bytes,
//! `io.operation` is `Read`, `Write` or `Discard`. The volume is `device.name`, or in raw traces `io.deviceId`. JSON
//! has 64-bit numbers as text.
//!
//! Discards and requests without length, such as flushes, count as skipped. Events without `io`, which raw traces
//! contain, are skipped and counted. In CSV the columns before `file.path` are counted from the front and those after
//! it from the back: a path can contain commas.

use std::borrow::Cow;

use flashwise_core::access::Op;
use serde::Deserialize;

use super::fields::{TimeUnit, decimal, time_us};
use super::json::Number;
use super::passed::Reason;
use super::plausible::{Habits, Layout, unparted};
use super::spellings::scaled;
use super::unfinished::Unfinished;
use super::unit_options::{LENGTH_UNIT, OFFSET_UNIT, PLAIN, TIME_UNIT, UnitOptions};
use super::{Fit, Format, Lines, Malformed, ParseLine, Record, Sample};
use crate::request::{Request, Volumes};

/// The row of iotrace in the table of formats.
pub static FORMAT: Format = Format {
    name: "iotrace",
    title: "Open CAS iotrace, JSON or CSV",
    source: "header.timestamp (ns), io.lba, io.len (sectors), io.operation, device.name; iotrace --trace-parser --io",
    parameters: &[TIME_UNIT, OFFSET_UNIT, LENGTH_UNIT],
    recognise: |sample| match IotraceColumns::of(sample) {
        Some(_) => Fit::Yes,
        None if is_json(sample) => sample.fit_lines(&Json { units: PLAIN }),
        None => Fit::No,
    },
    parser: |options, sample, _| {
        let units = UNITS.given(options);
        if is_json(sample) {
            return Ok(Box::new(Unfinished(Box::new(Lines(Json { units })))));
        }
        let known = IotraceColumns {
            name: Column::Front(1),
            time: 10,
            lba: 4,
            len: 3,
            op: 2,
            last_back: 10,
            count: 20,
            units: UNITS,
        };
        let columns = IotraceColumns { units, ..IotraceColumns::of(sample).unwrap_or(known) };
        Ok(Box::new(Unfinished(Box::new(Lines(columns)))))
    },
};

fn is_json(sample: &Sample) -> bool {
    sample.lines().next().is_some_and(|line| line.trim_ascii_start().starts_with(b"{"))
}

/// Returns the operation that a word names; `None` for one without data.
fn operation(word: &[u8]) -> Result<Option<Op>, Malformed> {
    match word {
        b"Read" => Ok(Some(Op::Read)),
        b"Write" => Ok(Some(Op::Write)),
        b"Discard" | b"UnknownIoType" => Ok(None),
        _ => Err(Malformed::new(word, "Read, Write or Discard")),
    }
}

const UNITS: UnitOptions = UnitOptions::new(TimeUnit::Nanoseconds, 512, 512);

#[inline]
fn range(lba: &[u8], len: &[u8]) -> Result<[u64; 2], Malformed> {
    Ok([decimal(lba, "an LBA")?, decimal(len, "a length in sectors")?])
}

/// Returns the request of a line at `time_us`, with its range in `units`.
#[inline]
fn request(
    time_us: i64,
    op: Option<Op>,
    [lba, len]: [u64; 2],
    volume: u32,
    units: UnitOptions,
) -> Result<Record, Malformed> {
    let Some(op) = op else { return Ok(Record::Skipped) };
    let offset_bytes = scaled(lba, units.offset_bytes, "an LBA")?;
    let length_bytes = scaled(len, units.length_bytes, "a length in sectors")?;
    Ok(Record::Request(Request { time_us, op, volume, offset_bytes, length_bytes }))
}

/// The layout of both forms.
fn layout(units: UnitOptions) -> Layout {
    unparted(Habits::default()).in_units(units, FORMAT.name)
}

#[derive(Debug, Deserialize)]
struct IotraceEvent<'a> {
    #[serde(borrow)]
    header: IotraceHeader<'a>,
    #[serde(borrow)]
    io: Option<Io<'a>>,
    #[serde(borrow)]
    device: Option<IotraceDevice<'a>>,
}

#[derive(Debug, Deserialize)]
struct IotraceHeader<'a> {
    #[serde(borrow)]
    timestamp: Number<'a>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Io<'a> {
    #[serde(borrow)]
    lba: Number<'a>,
    #[serde(borrow)]
    len: Number<'a>,
    #[serde(borrow)]
    operation: Cow<'a, str>,
    #[serde(borrow)]
    device_id: Option<Number<'a>>,
}

#[derive(Debug, Deserialize)]
struct IotraceDevice<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

/// The parser of lines of JSON.
#[derive(Debug)]
struct Json {
    units: UnitOptions,
}

impl ParseLine for Json {
    fn line(&self, line: &[u8], volumes: &mut Volumes) -> Result<Record, Malformed> {
        let event: IotraceEvent = serde_json::from_slice(line)
            .map_err(|error| Malformed::new(line, format!("a JSON object of iotrace ({error})")))?;
        let Some(io) = event.io else { return Ok(Record::PassedOver(Reason::OtherEvent)) };
        let volume = match (event.device, io.device_id) {
            (Some(device), _) if !device.name.is_empty() => volumes.number(device.name.as_bytes()),
            (_, Some(Number(id))) => volumes.number(id.as_bytes()),
            _ => volumes.number(b"?"),
        };
        let time_us = time_us(event.header.timestamp.0.as_bytes(), self.units.time, "a time in nanoseconds")?;
        let range = range(io.lba.0.as_bytes(), io.len.0.as_bytes())?;
        request(time_us, operation(io.operation.as_bytes())?, range, volume, self.units)
    }

    fn layout(&self) -> Option<Layout> {
        Some(layout(self.units))
    }

    fn in_units(&self, units: UnitOptions) -> Option<Box<dyn ParseLine>> {
        Some(Box::new(Json { units }))
    }
}

/// The position of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    /// After this many others.
    Front(usize),
    /// Before this many others.
    Back(usize),
}

/// The columns of CSV; `time`, `lba`, `len` and `op` are counted from the back.
#[derive(Clone, Copy, Debug)]
struct IotraceColumns {
    name: Column,
    time: usize,
    lba: usize,
    len: usize,
    op: usize,
    /// The largest number of columns after a column that is counted from the back.
    last_back: usize,
    count: usize,
    units: UnitOptions,
}

impl IotraceColumns {
    /// Parses the columns that the first line names.
    fn of(sample: &Sample) -> Option<IotraceColumns> {
        let names: Vec<&[u8]> = sample.lines().next()?.split(|&byte| byte == b',').collect();
        let path = names.iter().position(|name| *name == b"file.path").unwrap_or(0);
        let find = |name: &str| names.iter().position(|column| *column == name.as_bytes());
        let back = |name: &str| find(name).filter(|at| *at >= path).map(|at| names.len() - 1 - at);
        let name = match find("device.name") {
            Some(at) if at < path => Column::Front(at),
            Some(at) => Column::Back(names.len() - 1 - at),
            None => Column::Back(back("io.deviceId")?),
        };
        let [time, lba, len, op] = [back("header.timestamp")?, back("io.lba")?, back("io.len")?, back("io.operation")?];
        let name_back = if let Column::Back(at) = name { at } else { 0 };
        let last_back = time.max(lba).max(len).max(op).max(name_back);
        Some(IotraceColumns { name, time, lba, len, op, last_back, count: names.len(), units: UNITS })
    }
}

impl ParseLine for IotraceColumns {
    #[inline]
    fn line(&self, line: &[u8], volumes: &mut Volumes) -> Result<Record, Malformed> {
        if memchr::memchr_iter(b',', line).count() + 1 < self.count {
            return Err(Malformed::new(line, format!("a line of {} columns", self.count)));
        }
        let [mut op, mut time, mut lba, mut len, mut name] = [&line[..0]; 5];
        for (column, field) in line.rsplit(|&byte| byte == b',').take(self.last_back + 1).enumerate() {
            match column {
                _ if column == self.op => op = field,
                _ if column == self.time => time = field,
                _ if column == self.lba => lba = field,
                _ if column == self.len => len = field,
                _ if Column::Back(column) == self.name => name = field,
                _ => {}
            }
        }
        if let Column::Front(at) = self.name {
            name = line.split(|&byte| byte == b',').nth(at).unwrap_or_default();
        }
        let op = match op {
            b"io.operation" => return Ok(Record::PassedOver(Reason::Header)),
            // Another event of a raw trace.
            b"" => return Ok(Record::PassedOver(Reason::OtherEvent)),
            word => operation(word)?,
        };
        let time_us = time_us(time, self.units.time, "a time in nanoseconds")?;
        let range = range(lba, len)?;
        let volume = volumes.number(if name.is_empty() { b"?" } else { name });
        request(time_us, op, range, volume, self.units)
    }

    fn layout(&self) -> Option<Layout> {
        Some(layout(self.units))
    }

    fn in_units(&self, units: UnitOptions) -> Option<Box<dyn ParseLine>> {
        Some(Box::new(IotraceColumns { units, ..*self }))
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::testing::{read, recognised, refuses, requests};

    const JSON: &[u8] = br#"{"header":{"sid":"1","timestamp":"3835590186"},"io":{"lba":"1652296","len":256,"ioClass":19,"operation":"Write","flush":false,"fua":false,"error":false,"latency":"83797","qd":"1","writeHint":0},"device":{"id":"271581186","name":"nvme0n1","partition":"271581186","model":"disk"},"file":{"id":"76","offset":"0","size":"241960","path":"/a\"b.sst","eventType":"Access","creationDate":"2020-07-02T06:52:55.712990641Z"}}
{"header":{"sid":"2","timestamp":"3835625267"},"io":{"lba":"8","len":8,"operation":"Discard"},"device":{"id":"1","name":"sda"}}
{"header":{"sid":"3","timestamp":"3835625999"},"io":{"lba":"0","len":0,"operation":"Write","flush":true},"device":{"id":"1","name":"sda"}}
{"header":{"sid":"4","timestamp":"3835626000"},"deviceDescription":{"id":"1","name":"sda","size":"1024"}}
{"header":{"sid":"5","timestamp":"3835626001"},"io":{"lba":"8","len":8,"operation":"Read","deviceId":"77"}}
"#;

    const CSV: &[u8] = b"device.id,device.name,device.partition,file.eventType,file.id,file.offset,file.path,file.size,header.sid,\
        header.timestamp,io.error,io.flush,io.fua,io.ioClass,io.latency,io.lba,io.len,io.operation,io.qd,io.writeHint\n\
        8388608,sda,8388608,,,,,,48,5082383915,false,false,false,1,145584,193227744,8,Write,16,0\n\
        8388608,sda,8388608,,,,,,65,5082575353,false,false,false,0,85643,0,0,Write,1,0\n\
        8388608,sda,265289728,Access,1704686,0,/var/lib/a,b.sqlite,1520,78,5088873278,false,false,false,15,227152,176422616,32,Read,1,0\n";

    /// Counted by `grep -c '"operation":"\(Read\|Write\)"'`, 3 including one without length, and `grep -c
    /// ',\(Read\|Write\),'`, 3 including one.
    #[test]
    fn reads_both_forms() {
        // 1652296 * 512 = 845975552, 193227744 * 512 = 98932604928, 176422616 * 512 = 90328379392.
        assert_eq!(requests("iotrace", JSON), ["3835590 W nvme0n1 845975552 131072", "3835626 R 77 4096 4096"]);
        assert_eq!((read("iotrace", JSON).skipped, recognised(JSON)), (2, Ok("iotrace")));
        let expected = ["5082383 W sda 98932604928 4096", "5088873 R sda 90328379392 16384"];
        assert_eq!(requests("iotrace", CSV), expected);
        assert_eq!((read("iotrace", CSV).skipped, recognised(CSV)), (1, Ok("iotrace")));
        let headless = &CSV[CSV.iter().position(|&byte| byte == b'\n').unwrap() + 1..];
        assert_eq!(requests("iotrace", headless), expected);
        // The columns of an older version, and times with decimals as other tools write them.
        let old = b"device.id,device.name,file.id,file.offset,file.size,header.sid,header.timestamp,io.error,io.flush,io.fua,\
            io.ioClass,io.latency,io.lba,io.len,io.operation,io.qd\n\
            271581185,nvme0n1,,,,23,33493819292,false,false,false,1,144925,1953524992,8,Read,1\n";
        assert_eq!(
            (requests("iotrace", old), recognised(old)),
            (vec!["33493819 R nvme0n1 1000204795904 4096".to_owned()], Ok("iotrace"))
        );
        let seconds = br#"{"header":{"timestamp":1577808000.25},"io":{"lba":8.0,"len":"8","operation":"Read"}}
{"header":{"timestamp":"1577808000.5"},"io":{"lba":8,"len":8,"operation":"Read"},"device":{"name":"sda"}}
"#;
        assert_eq!(
            requests("iotrace:time-unit=s", seconds),
            ["1577808000250000 R ? 4096 4096", "1577808000500000 R sda 4096 4096"]
        );
        assert_eq!(recognised(seconds), Ok("iotrace"));
        let raw = b"header.sid,header.timestamp,io.lba,io.len,io.deviceId,io.operation,io.flush,ioCompletion.lba\n\
            1,2000,8,8,77,Read,false,\n2,3000,,,,,,8\n";
        assert_eq!((requests("iotrace", raw), recognised(raw)), (vec!["2 R 77 4096 4096".to_owned()], Ok("iotrace")));
    }

    #[test]
    fn refuses_malformed_input() {
        let row = "1,sda,1,,,,,,48,5082383915,false,false,false,1,145584,193227744,8,Write,16,0\n";
        refuses(
            "iotrace",
            &[
                (&row.replace("Write", "Erase"), r#"found "Erase", expected Read, Write or Discard"#),
                (&row.replace("5082383915", "x"), r#"found "x", expected a time in nanoseconds"#),
                (&row.replace("193227744", "-1"), r#"found "-1", expected an LBA"#),
                ("1,sda\n", r#"found "1,sda", expected a line of 20 columns"#),
                (
                    "{\"header\"\n",
                    r#"found "{\"header\"", expected a JSON object of iotrace (EOF while parsing an object at line 1 column 9)"#,
                ),
                (
                    "{\"header\":{\"timestamp\":[]}}\n",
                    r#"found "{\"header\":{\"timestamp\":[]}}", expected a JSON object of iotrace (invalid type: sequence, expected a number at line 1 column 25)"#,
                ),
                (
                    r#"{"header":{"timestamp":"x"},"io":{"lba":"8","len":8,"operation":"Read"}}
"#,
                    r#"found "x", expected a time in nanoseconds"#,
                ),
            ],
        );
    }
}
