//! DiskSim ASCII traces: `time device block size flags`.
//!
//! Source: Bucy, Schindler, Schlosser, Ganger: The DiskSim Simulation Environment, version 4.0, reference manual
//! (CMU-PDL-08-101), section on input workload traces. The time is in milliseconds, block and size in sectors of 512
//! bytes, flags are hexadecimal with bit 0 set in a read.
//!
//! Traces of SSDSim, MQSim and FlashSim look the same with different units: SSDSim and MQSim write whole nanoseconds
//! (or microseconds), FlashSim writes sizes in pages. So a trace is only recognised as DiskSim if its times have
//! decimals and all its sizes are multiples of 8 sectors. 4 KiB file systems produce such sizes; counts of pages are
//! different. Otherwise the user must give the format.

use flashwise_core::access::Op;

use super::fields::{TimeUnit, Words};
use super::plausible::{BLANKS, Habits, Layout};
use super::{Fit, Format, Lines, Malformed, ParseLine, Record, Sample};
use crate::request::{Request, Volumes};

/// The row of DiskSim in the table of formats.
pub static FORMAT: Format = Format {
    name: "disksim",
    title: "DiskSim ASCII",
    source: "time_ms device sector sectors flags (bit 0 = read); DiskSim 4.0 reference manual, CMU-PDL-08-101",
    parameters: &[],
    recognise,
    parser: |_, _, _| Ok(Box::new(Lines(DiskSim))),
};

const UNSURE: &str = "traces of SSDSim, MQSim and FlashSim (sizes in pages) have the same five columns in other units. \
    If its times are milliseconds and its sizes sectors of 512 bytes, use --format disksim, \
    otherwise give its columns and units";

fn recognise(sample: &Sample) -> Fit {
    if sample.fit_lines(&DiskSim) != Fit::Yes {
        return Fit::No;
    }
    let certain = |line: &[u8]| {
        let mut words = Words::new(line);
        let time = words.word().unwrap_or_default();
        let sectors = words.word().and(words.word()).and_then(|_| words.decimal("").ok());
        time.contains(&b'.') && sectors.is_none_or(|sectors| sectors % 8 == 0)
    };
    if sample.lines().all(certain) { Fit::Yes } else { Fit::Unsure(UNSURE) }
}

/// Returns the operation of hexadecimal flags.
fn op_of(flags: &[u8]) -> Option<Op> {
    match flags {
        b"0" => Some(Op::Write),
        b"1" => Some(Op::Read),
        _ => {
            let bits = std::str::from_utf8(flags).ok().filter(|flags| !flags.starts_with('+'))?;
            let bits = u32::from_str_radix(bits, 16).ok()?;
            Some(if bits & 1 == 1 { Op::Read } else { Op::Write })
        }
    }
}

#[derive(Debug)]
struct DiskSim;

impl ParseLine for DiskSim {
    #[inline]
    fn line(&self, line: &[u8], volumes: &mut Volumes) -> Result<Record, Malformed> {
        let mut words = Words::new(line);
        let time_us = words.time_us(TimeUnit::Milliseconds, "a time in milliseconds")?;
        let device = words.next("a device number")?;
        if !device.iter().all(u8::is_ascii_digit) {
            return Err(Malformed::new(device, "a device number"));
        }
        let offset_bytes = words.bytes(512, "a sector")?;
        let length_bytes = words.bytes(512, "a size in sectors")?;
        let flags = words.next("flags")?;
        let op = op_of(flags).ok_or_else(|| Malformed::new(flags, "hexadecimal flags"))?;
        words.end(5)?;
        let volume = volumes.number(device);
        Ok(Record::Request(Request { time_us, op, volume, offset_bytes, length_bytes }))
    }

    fn layout(&self) -> Option<Layout> {
        Some(Layout {
            time: Some((0, TimeUnit::Milliseconds)),
            op: Some(4),
            op_of: Some(op_of),
            offset: (2, 512),
            length: (3, 512),
            volume: vec![1],
            habits: Habits { pages_beside_sectors: true, ..BLANKS.habits },
            ..BLANKS
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::testing::{recognised, refuses, requests};

    const TRACE: &[u8] = b"7961.833 0 20228336 8 0\n8346.2067 1 6397360 496 1\n8346.3 1 8 8 41\n";

    #[test]
    fn reads_the_columns() {
        // 20228336 * 512 = 10356908032, 6397360 * 512 = 3275448320, 496 * 512 = 253952.
        let expected = ["7961833 W 0 10356908032 4096", "8346206 R 1 3275448320 253952", "8346300 R 1 4096 4096"];
        assert_eq!(requests("disksim", TRACE), expected);
        assert_eq!(recognised(TRACE), Ok("disksim"));
    }

    #[test]
    fn asks_where_units_are_not_certain() {
        for other in ["0 0 280605840 2 1\n979 0 287641400 128 1\n", "26.214000\t0\t303574\t1\t0\n"] {
            let error = recognised(other.as_bytes()).unwrap_err();
            assert!(
                error.starts_with("trace: it looks like disksim, but traces of SSDSim, MQSim and FlashSim"),
                "{error}"
            );
        }
    }

    #[test]
    fn refuses_malformed_input() {
        refuses(
            "disksim",
            &[
                ("-1.0 0 8 8 0", r#"found "-1.0", expected a time in milliseconds"#),
                ("1.0 sda 8 8 0", r#"found "sda", expected a device number"#),
                ("1.0 0 8 -8 0", r#"found "-8", expected a size in sectors"#),
                ("1.0 0 8 8 R", r#"found "R", expected hexadecimal flags"#),
                ("1.0 0 8 8", r#"found "1.0 0 8 8", expected a line with one more field: flags"#),
                ("1.0 0 8 8 0 0", r#"found "1.0 0 8 8 0 0", expected a line of 5 fields"#),
            ],
        );
    }
}
