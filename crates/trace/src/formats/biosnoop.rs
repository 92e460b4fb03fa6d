//! Output of biosnoop, of bcc and of libbpf-tools: `TIME(s) COMM PID DISK T SECTOR BYTES [P] [QUE(ms)] LAT(ms)`.
//!
//! Source: biosnoop(8) of bcc, and its examples. The time is in seconds since the first line and is that of the
//! request's completion. Sectors have 512 bytes; a disk is a volume. `T` is `R` or `W` in bcc, and the letters of RWBS
//! in libbpf-tools, as in blkparse. bcc prints discards as `W`.
//!
//! The name of a process can contain blanks, and the disk can be missing, so columns are counted from the end of the
//! line. The header lists the columns; without a header only the latency follows the bytes. Lines of 0 bytes, such as
//! flushes, count as skipped.

use flashwise_core::filter::Client;

use super::blkparse::op;
use super::fields::{TimeUnit, decimal, process, time_us};
use super::passed::Reason;
use super::plausible::{Habits, Layout, unparted};
use super::spellings::scaled;
use super::unfinished::Unfinished;
use super::unit_options::{LENGTH_UNIT, OFFSET_UNIT, PLAIN, TIME_UNIT, UnitOptions};
use super::{Fit, Format, Lines, Malformed, ParseLine, Record, Sample};
use crate::request::{Request, Volumes};

/// The row of biosnoop in the table of formats.
pub static FORMAT: Format = Format {
    name: "biosnoop",
    title: "biosnoop of bcc and libbpf-tools",
    source: "TIME(s) COMM PID DISK T SECTOR BYTES [P] [QUE(ms)] LAT(ms); biosnoop(8)",
    parameters: &[TIME_UNIT, OFFSET_UNIT, LENGTH_UNIT],
    recognise: |sample| match columns_after(sample) {
        Some(after) => sample.fit_lines(&Biosnoop { after, units: PLAIN }),
        None => Fit::No,
    },
    parser: |options, sample, _| {
        let after = columns_after(sample).unwrap_or(1);
        Ok(Box::new(Unfinished(Box::new(Lines(Biosnoop { after, units: UNITS.given(options) })))))
    },
};

/// The first columns of the header.
const COLUMNS: [&[u8]; 7] = [b"TIME(s)", b"COMM", b"PID", b"DISK", b"T", b"SECTOR", b"BYTES"];

fn words(line: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty())
}

/// Returns the number of columns after the bytes, according to the header.
fn columns_after(sample: &Sample) -> Option<usize> {
    let header = sample.lines().find(|line| line.trim_ascii_start().starts_with(COLUMNS[0]))?;
    let mut columns = words(header);
    COLUMNS.iter().all(|name| columns.next() == Some(name)).then(|| columns.count())
}

const UNITS: UnitOptions = UnitOptions::new(TimeUnit::Seconds, 512, 1);

#[derive(Debug)]
struct Biosnoop {
    /// The number of columns after the bytes.
    after: usize,
    units: UnitOptions,
}

impl Biosnoop {
    /// Returns the columns T, SECTOR and BYTES, and the words before them in reverse order.
    #[inline]
    fn cut<'a>(&self, line: &'a [u8]) -> Option<([&'a [u8]; 3], impl DoubleEndedIterator<Item = &'a [u8]>)> {
        let mut words = words(line).rev();
        for _ in 0..self.after {
            words.next()?;
        }
        let (bytes, sector, letters) = (words.next()?, words.next()?, words.next()?);
        Some(([letters, sector, bytes], words))
    }
}

fn is_number(word: &[u8]) -> bool {
    word.iter().all(u8::is_ascii_digit)
}

impl ParseLine for Biosnoop {
    #[inline]
    fn line(&self, line: &[u8], volumes: &mut Volumes) -> Result<Record, Malformed> {
        let start = line.trim_ascii_start();
        if start.starts_with(COLUMNS[0]) {
            return Ok(Record::PassedOver(Reason::Header));
        }
        if start.is_empty() {
            return Ok(Record::Ignored);
        }
        // Of bcc and of libbpf-tools.
        if start.starts_with(b"Possibly lost ") || start.starts_with(b"lost ") && line.contains(&b'#') {
            return Ok(Record::PassedOver(Reason::Lost));
        }
        let wrong = || Malformed::new(line, format!("a line of {} columns", COLUMNS.len() + self.after));
        let ([letters, sector, bytes], mut before) = self.cut(line).ok_or_else(wrong)?;
        let time = before.next_back().ok_or_else(wrong)?;
        let disk = before.next().ok_or_else(wrong)?;
        let time_us = time_us(time, self.units.time, "a time in seconds")?;
        let length_bytes = scaled(decimal(bytes, "a number of bytes")?, self.units.length_bytes, "a number of bytes")?;
        let op = op(letters)?;
        let Some(op) = op.filter(|_| length_bytes > 0) else { return Ok(Record::Skipped) };
        let offset_bytes = scaled(decimal(sector, "a sector")?, self.units.offset_bytes, "a sector")?;
        // If the disk is missing, the process id is in its place.
        let volume = volumes.number(if is_number(disk) { b"?" } else { disk });
        Ok(Record::Request(Request { time_us, op, volume, offset_bytes, length_bytes }))
    }

    fn layout(&self) -> Option<Layout> {
        let habits = Habits { decimals: true, streaming: true, ..Habits::default() };
        Some(unparted(habits).in_units(self.units, FORMAT.name))
    }

    fn in_units(&self, units: UnitOptions) -> Option<Box<dyn ParseLine>> {
        Some(Box::new(Biosnoop { units, ..*self }))
    }

    fn names_processes(&self) -> bool {
        true
    }

    fn process(&self, line: &[u8]) -> Client {
        let Some((_, before)) = self.cut(line) else { return Client::default() };
        let mut before: Vec<&[u8]> = before.collect();
        before.reverse();
        if before.last().is_some_and(|disk| !is_number(disk)) {
            before.pop();
        }
        let pid = before.pop();
        process(pid, &before.get(1..).unwrap_or_default().join(&b' '))
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::testing::{filtered, read, recognised, refuses, requests};

    const BCC: &[u8] = b"TIME(s)     COMM           PID    DISK    T SECTOR     BYTES  LAT(ms)\n\
        0.000004    supervise      1950   xvda1   W 13092560   4096      0.74\n\
        0.004578    ?              0              R 0          0         4.00\n\
        0.004600    kworker/23:1   9126           R 18446744073709551615 0         0.61\n\
        1.022346    Web Content    1950   xvda1   R 8          8192      0.98\n\
        Possibly lost 3 samples\n\
        1.500000    fio            1951           W 16         512       0.98\n";

    const QUEUED: &[u8] = b"TIME(s)     COMM           PID    DISK    T    SECTOR     BYTES   QUE(ms) LAT(ms)\n\
        0.000000    fio            77     nvme0n1 RA   24         131072   0.001   0.080\n\
        0.000100    jbd2/sda1-8    78     sda     FF   0          0        0.001   0.080\n\
        0.000200    fio            77     nvme0n1 DS   24         131072   0.001   0.080\n\
        0.000300    fio            77     nvme0n1 WFS  48         4096     0.001   0.080\n";

    /// Counted by `awk '$(NF-1) > 0'`, without the header: 3 of bcc's.
    #[test]
    fn columns_are_counted_from_the_end() {
        let expected = ["4 W xvda1 6703390720 4096", "1022346 R xvda1 4096 8192", "1500000 W ? 8192 512"];
        assert_eq!(requests("biosnoop", BCC), expected);
        assert_eq!((read("biosnoop", BCC).skipped, recognised(BCC)), (2, Ok("biosnoop")));
        assert_eq!(requests("biosnoop", QUEUED), ["0 R nvme0n1 12288 131072", "300 W nvme0n1 24576 4096"]);
        assert_eq!((read("biosnoop", QUEUED).skipped, recognised(QUEUED)), (2, Ok("biosnoop")));
        // The last line is incomplete.
        assert_eq!(requests("biosnoop", &BCC[..BCC.len() - 8]).len(), 2);
    }

    #[test]
    fn each_request_is_filtered_by_its_process() {
        use flashwise_core::filter::Caching::{Never, Usual};
        use flashwise_core::filter::{Filter, Rule};
        let denying = |rules: &str| {
            let filter = Filter { deny: Rule::parse_list(rules).unwrap(), ..Filter::default() };
            filtered("biosnoop", &filter, BCC).unwrap()
        };
        assert_eq!(denying("program:Web Content"), [Usual, Never, Usual]);
        assert_eq!(denying("program:fio"), [Usual, Usual, Never]);
        assert_eq!(denying("pid:1950"), [Never, Never, Usual]);
    }

    #[test]
    fn refuses_malformed_input() {
        refuses(
            "biosnoop",
            &[
                ("x fio 1 sda W 8 512 0.1\n", r#"found "x", expected a time in seconds"#),
                ("1.0 fio 1 sda W x 512 0.1\n", r#"found "x", expected a sector"#),
                ("1.0 fio 1 sda W 8 x 0.1\n", r#"found "x", expected a number of bytes"#),
                ("1.0 sda W\n", r#"found "1.0 sda W", expected a line of 8 columns"#),
                (
                    "1.0 fio 1 sda Q 8 512 0.1\n",
                    r#"found "Q", expected letters of reads, writes and so on, such as R, WS or N"#,
                ),
            ],
        );
    }
}
