//! FIU traces: `ts_ns pid process lba size op major minor md5`.
//!
//! Source: SNIA IOTTA repository, FIU IODedup, README; Koller, Rangaswami: I/O deduplication. FAST 2010. LBA and size
//! are in sectors of 512 bytes, the op is `R` or `W`, the device `major,minor` is the volume. The digests of the
//! contents are ignored. The process name can contain blanks, so the fields after it are counted from the end of the
//! line. A run of blanks counts as one.

use flashwise_core::access::Op;
use flashwise_core::filter::Client;

use super::fields::{TimeUnit, Words, decimal, process};
use super::plausible::{BLANKS, Layout};
use super::spellings::scaled;
use super::unit_options::{LENGTH_UNIT, OFFSET_UNIT, PLAIN, TIME_UNIT, UnitOptions};
use super::{Format, Lines, Malformed, ParseLine, Record};
use crate::request::{Request, Volumes};

/// The row of FIU in the table of formats.
pub static FORMAT: Format = Format {
    name: "fiu",
    title: "FIU blkparse",
    source: "ts_ns pid process lba size op major minor md5; SNIA IOTTA, FIU IODedup; Koller, Rangaswami, FAST 2010",
    parameters: &[TIME_UNIT, OFFSET_UNIT, LENGTH_UNIT],
    recognise: |sample| sample.fit_lines(&Fiu { units: PLAIN }),
    parser: |options, _, _| Ok(Box::new(Lines(Fiu { units: UNITS.given(options) }))),
};

/// The number of fields after the process name.
const FIELDS_AFTER: usize = 6;

const UNITS: UnitOptions = UnitOptions::new(TimeUnit::Nanoseconds, 512, 512);

#[derive(Debug)]
struct Fiu {
    units: UnitOptions,
}

impl ParseLine for Fiu {
    fn line(&self, line: &[u8], volumes: &mut Volumes) -> Result<Record, Malformed> {
        let mut words = Words::new(line);
        let time_us = words.time_us(self.units.time, "a time in nanoseconds")?;
        words.decimal("a process id")?;
        words.next("a process")?;
        let mut after = [&b""[..]; FIELDS_AFTER];
        let mut found = 0;
        while let Some(word) = words.word() {
            after.rotate_left(1);
            after[FIELDS_AFTER - 1] = word;
            found += 1;
        }
        if found < FIELDS_AFTER {
            return Err(Malformed::new(line, "a line of 9 fields"));
        }
        let [lba, size, op, major, minor, _digest] = after;
        let offset_bytes = scaled(decimal(lba, "an LBA")?, self.units.offset_bytes, "an LBA")?;
        let length_bytes = scaled(decimal(size, "a size in sectors")?, self.units.length_bytes, "a size in sectors")?;
        let op = match op {
            b"R" => Op::Read,
            b"W" => Op::Write,
            other => return Err(Malformed::new(other, "R or W")),
        };
        decimal(major, "a major device number")?;
        decimal(minor, "a minor device number")?;
        let volume = volumes.number_of_two(major, b',', minor);
        Ok(Record::Request(Request { time_us, op, volume, offset_bytes, length_bytes }))
    }

    fn names_processes(&self) -> bool {
        true
    }

    fn process(&self, line: &[u8]) -> Client {
        let words: Vec<&[u8]> = Words::new(line).all().collect();
        let name = words.get(2..words.len().saturating_sub(FIELDS_AFTER)).unwrap_or_default();
        process(words.get(1).copied(), &name.join(&b' '))
    }

    fn layout(&self) -> Option<Layout> {
        let layout = Layout {
            blanks_in: Some((9, 2)),
            time: Some((0, TimeUnit::Nanoseconds)),
            op: Some(5),
            offset: (3, 512),
            length: (4, 512),
            volume: vec![6, 7],
            ..BLANKS
        };
        Some(layout.in_units(self.units, FORMAT.name))
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::testing::{recognised, refuses, requests};

    const TRACE: &[u8] = b"89966899165 4892 syslogd 904265560 8 W 6 0 531e779d14e1c0a1\n\
        89966899999 4892 my process 8 16 R 6 1 531e779d14e1c0a1\n";

    #[test]
    fn reads_the_columns() {
        // 904265560 * 512 = 462983966720.
        let expected = ["89966899 W 6,0 462983966720 4096", "89966899 R 6,1 4096 8192"];
        assert_eq!(requests("fiu", TRACE), expected);
        assert_eq!(recognised(TRACE), Ok("fiu"));
    }

    #[test]
    fn each_request_is_filtered_by_its_process() {
        use flashwise_core::filter::Caching::{Never, Usual};
        use flashwise_core::filter::{Filter, Rule};
        let denying = |rules: &str| {
            let filter = Filter { deny: Rule::parse_list(rules).unwrap(), ..Filter::default() };
            crate::formats::testing::filtered("fiu", &filter, TRACE).unwrap()
        };
        assert_eq!(denying("program:syslogd"), [Never, Usual]);
        assert_eq!(denying("program:my process"), [Usual, Never]);
        assert_eq!(denying("program:process"), [Usual, Usual]);
        assert_eq!(denying("pid:4892"), [Never, Never]);
    }

    #[test]
    fn refuses_malformed_input() {
        refuses(
            "fiu",
            &[
                ("1 2 p 8 8 W 6 0", r#"found "1 2 p 8 8 W 6 0", expected a line of 9 fields"#),
                ("1 2 p 8 8 w 6 0 d", r#"found "w", expected R or W"#),
                ("1 2 p x 8 W 6 0 d", r#"found "x", expected an LBA"#),
                ("-1 2 p 8 8 W 6 0 d", r#"found "-1", expected a time in nanoseconds"#),
                ("1 2 p 8 8 W sda 0 d", r#"found "sda", expected a major device number"#),
            ],
        );
    }
}
