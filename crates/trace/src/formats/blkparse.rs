//! Text output of blkparse: `major,minor cpu sequence time pid action rwbs sector + sectors [process]`.
//!
//! Source: blktrace user guide and blkparse(1), "Output description and formatting"; the letters of RWBS are those of
//! the kernel's `blk_fill_rwbs`. Times are in seconds, sectors of 512 bytes, a device is a volume.
//!
//! A request causes several actions; only one of them counts. By default it is the first of these that occurs among the
//! first events of the trace:
//!
//! - Q: queued, as the file system sent it, before merging;
//! - D: issued to the driver, after merging;
//! - I: inserted;
//! - C: completed.
//!
//! D comes before I because requests that are issued directly are never inserted. Merges (M, F) are of queued requests.
//! The process is that of the event's context: for Q the sender of the request, for the others the running process,
//! often a kernel thread. Discards, flushes without data and other requests that are neither read nor write do not
//! count. Other lines (messages, the summary at the end) are ignored.
//!
//! A request to a stacked device, such as a logical volume, causes the same actions there and on the disk below. Events
//! A (remap) at the beginning of the trace identify the lower devices. Their requests are ignored, and a note names
//! them.

use flashwise_core::access::Op;
use flashwise_core::filter::Client;
use flashwise_core::options::{Kind, Parameter};

use super::fields::{TimeUnit, Words, decimal, process, time_us};
use super::passed::Reason;
use super::plausible::{self, Habits, Layout, unparted};
use super::spellings::scaled;
use super::stacked::{self, STACKED, Sighting};
use super::unfinished::Unfinished;
use super::unit_options::{LENGTH_UNIT, OFFSET_UNIT, PLAIN, TIME_UNIT, UnitOptions};
use super::{Format, Lines, Malformed, ParseLine, Reading, Record, Sample};
use crate::request::{Request, Volumes};

/// The row of blkparse in the table of formats.
pub static FORMAT: Format = Format {
    name: "blkparse",
    title: "blkparse text",
    source: "major,minor cpu sequence time pid action rwbs sector + sectors [process]; blkparse(1)",
    parameters: &[ACTION, STACKED, TIME_UNIT, OFFSET_UNIT, LENGTH_UNIT],
    recognise: |sample| sample.fit_lines(&Blkparse { action: ANY, below: Vec::new(), units: PLAIN }),
    parser: |options, sample, _| {
        let action = match options.text("action") {
            "auto" => counting_action(sample),
            given => given.as_bytes()[0],
        };
        let below = if options.text("stacked") == "top" { below(sample, action) } else { Vec::new() };
        Ok(Box::new(Unfinished(Box::new(Lines(Blkparse { action, below, units: UNITS.given(options) })))))
    },
};

/// The option that selects the action that counts.
pub(super) const ACTION: Parameter = Parameter::of("action", Kind::Choice(&["auto", "Q", "D", "I", "C"]), "auto")
    .means("the event that counts as the request; auto takes the first of Q, D, I, C that the trace begins with");

/// Any action, for recognising the format.
pub(super) const ANY: u8 = b'*';

fn counting_action(sample: &Sample) -> u8 {
    let has = |action: u8| {
        let is = |line: &[u8]| matches!(BlkparseEvent::new(line), Ok(Some(event)) if event.action == [action]);
        sample.lines().any(is)
    };
    [b'Q', b'D', b'I'].into_iter().find(|&action| has(action)).unwrap_or(b'C')
}

/// Returns the lower devices of stacked ones, from the beginning of the trace.
fn below(sample: &Sample, action: u8) -> Vec<Vec<u8>> {
    let sighting = |line| match BlkparseEvent::new(line) {
        Ok(Some(BlkparseEvent { device, action: b"A", rest, .. })) => {
            let from = rest.all().nth(4)?.strip_prefix(b"(")?.strip_suffix(b")")?;
            Some(Sighting::Remap { to: device, from })
        }
        Ok(Some(event)) if event.action == [action] => Some(Sighting::Request(event.device)),
        _ => None,
    };
    stacked::below(sample.lines().filter_map(sighting)).into_iter().map(<[u8]>::to_vec).collect()
}

/// The common fields of all events, and the words after them.
struct BlkparseEvent<'a> {
    device: &'a [u8],
    time: &'a [u8],
    action: &'a [u8],
    rwbs: &'a [u8],
    rest: Words<'a>,
}

impl<'a> BlkparseEvent<'a> {
    /// Parses the event of a line. Returns `None` for blank lines and for the lines of the summary at the end, which
    /// all contain a colon.
    #[inline]
    fn new(line: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let mut words = Words::new(line);
        let device = match words.word() {
            Some(device) if is_device(device) => device,
            Some(_) if !line.contains(&b':') => {
                return Err(Malformed::new(line, "an event, which begins with a device such as 8,16"));
            }
            _ => return Ok(None),
        };
        words.decimal("a processor")?;
        words.decimal("a sequence number")?;
        let time = words.next("a time in seconds")?;
        words.decimal("a process id")?;
        let action = words.next("an action")?;
        let rwbs = words.word().unwrap_or_default();
        Ok(Some(BlkparseEvent { device, time, action, rwbs, rest: words }))
    }
}

/// True if a word is `major,minor`.
fn is_device(word: &[u8]) -> bool {
    let number = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let mut numbers = word.splitn(2, |&byte| byte == b',');
    numbers.next().is_some_and(number) && numbers.next().is_some_and(number)
}

/// Returns the operation of RWBS, if it is read or write. F is a flush if it comes first, with or without a write after
/// it; later it is forced unit access.
pub(super) fn op(rwbs: &[u8]) -> Result<Option<Op>, Malformed> {
    const LETTERS: &[u8] = b"RWDEFNASMBUZOC";
    let first = rwbs.iter().find(|&&letter| letter != b'F');
    if rwbs.is_empty() || !rwbs.iter().all(|letter| LETTERS.contains(letter)) {
        return Err(Malformed::new(rwbs, "letters of reads, writes and so on, such as R, WS or N"));
    }
    Ok(match first {
        Some(b'R') => Some(Op::Read),
        Some(b'W') => Some(Op::Write),
        _ => None,
    })
}

const UNITS: UnitOptions = UnitOptions::new(TimeUnit::Seconds, 512, 512);

#[derive(Debug)]
struct Blkparse {
    action: u8,
    units: UnitOptions,
    /// The devices whose requests are ignored.
    below: Vec<Vec<u8>>,
}

impl ParseLine for Blkparse {
    #[inline]
    fn line(&self, line: &[u8], volumes: &mut Volumes) -> Result<Record, Malformed> {
        let Some(mut event) = BlkparseEvent::new(line)? else {
            let is_blank = line.trim_ascii().is_empty();
            return Ok(if is_blank { Record::Ignored } else { Record::PassedOver(Reason::NoEvent) });
        };
        if event.action != [self.action] && self.action != ANY {
            return Ok(Record::Ignored);
        }
        if self.below.iter().any(|device| device == event.device) {
            return Ok(Record::Ignored);
        }
        let time_us = time_us(event.time, self.units.time, "a time in seconds")?;
        let Some(op) = op(event.rwbs)? else { return Ok(Record::Skipped) };
        let (sector, plus, sectors) = (event.rest.word(), event.rest.word(), event.rest.word());
        let (Some(sector), Some(b"+"), Some(sectors)) = (sector, plus, sectors) else {
            // A flush before a write, or a passthrough command: neither has sectors.
            return Ok(Record::Skipped);
        };
        let offset_bytes = scaled(decimal(sector, "a sector")?, self.units.offset_bytes, "a sector")?;
        let length_bytes =
            scaled(decimal(sectors, "a number of sectors")?, self.units.length_bytes, "a number of sectors")?;
        let volume = volumes.number(event.device);
        Ok(Record::Request(Request { time_us, op, volume, offset_bytes, length_bytes }))
    }

    fn reading(&self, sample: &Sample) -> Result<Option<Reading>, Malformed> {
        let doubts = self.layout().map_or(Ok(Vec::new()), |layout| plausible::check(&layout, self, sample))?;
        Ok(stacked::reading(char::from(self.action), &self.below, doubts))
    }

    fn layout(&self) -> Option<Layout> {
        let layout = unparted(Habits { decimals: true, streaming: true, ..Habits::default() });
        Some(layout.in_units(self.units, &format!("{}:action={}", FORMAT.name, char::from(self.action))))
    }

    fn in_units(&self, units: UnitOptions) -> Option<Box<dyn ParseLine>> {
        Some(Box::new(Blkparse { units, below: self.below.clone(), ..*self }))
    }

    fn names_processes(&self) -> bool {
        true
    }

    fn process(&self, line: &[u8]) -> Client {
        let pid = Words::new(line).all().nth(4);
        let name = memchr::memchr(b'[', line).zip(memchr::memrchr(b']', line));
        let name = name.and_then(|(start, end)| line.get(start + 1..end));
        process(pid, name.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::testing::{read, recognised, refuses, requests};

    const QUEUED: &[u8] = b"  8,16   5        1     0.000000000 18615  A   R 1444645666 + 256 <- (8,17) 1444645632\n\
        \x20 8,16   5        2     0.000001850 18615  Q   R 1444645666 + 256 [java]\n\
        \x20 8,16   5        3     0.000006438 18615  G   R 1444645666 + 256 [java]\n\
        \x20 8,16   5        4     0.000008750 18615  P   N [java]\n\
        \x20 8,16   5        5     0.000009980 18615  I   R 1444645666 + 256 [java]\n\
        \x20 8,16   5        0     0.000012990     0  m   N cfq18615S / insert_request\n\
        \x20 8,16   5        6     0.000014000 18615  U   N [java] 1\n\
        \x20 8,16   5        7     0.000015000 18615  D   R 1444645666 + 256 [java]\n\
        259,0     0        8     1.500000000 18615  Q WFSM 8 + 16 [ext4 writer]\n\
        259,0     0        9     1.600000000 18615  M   W 24 + 8 [ext4 writer]\n\
        259,0     0       10     1.700000000 18615  Q FWS [jbd2]\n\
        259,0     0       11     1.800000000 18615  Q   D 0 + 4096 [fstrim]\n\
        \x20 8,16   5       12     2.000000000 18615  C   R 1444645666 + 256 [0]\n\
        CPU0 (8,16):\n Reads Queued:           1,      128KiB\t Writes Queued:           1,        8KiB\n";

    const ISSUED: &[u8] = b"  8,16   3        4     0.000011950  3645  I  RA 4938888 + 256 [java]\n\
        \x20 8,16   3        5     0.000026421  3645  D  RA 4938888 + 256 [java]\n\
        \x20 8,16   3        7     0.001795683  3557  C  RA 4938888 + 256 [0]\n";

    #[test]
    fn of_each_request_one_event_counts() {
        // 1444645666 * 512 = 739658580992, 4938888 * 512 = 2528710656.
        let expected = ["1 R 8,16 739658580992 131072", "1500000 W 259,0 4096 8192"];
        assert_eq!(requests("blkparse", QUEUED), expected);
        assert_eq!(read("blkparse", QUEUED).skipped, 2);
        assert_eq!(requests("blkparse", ISSUED), ["26 R 8,16 2528710656 131072"]);
        assert_eq!(requests("blkparse:action=I", ISSUED), ["11 R 8,16 2528710656 131072"]);
        assert_eq!(requests("blkparse:action=C", ISSUED), ["1795 R 8,16 2528710656 131072"]);
        assert_eq!(requests("blkparse:action=Q", ISSUED), [""; 0]);
        // blkparse was killed.
        let cut = [QUEUED, b"  8,16   5       13     2.100000000 18615  Q   R 1444645922 + 25"].concat();
        assert_eq!(requests("blkparse", &cut), expected);
        assert_eq!(recognised(QUEUED), Ok("blkparse"));
        assert_eq!(recognised(ISSUED), Ok("blkparse"));
    }

    /// A logical volume (253,0) on a partition (8,2) of a disk (8,0), as a kernel since 5.12 and one before trace it.
    const STACKED: [&[u8]; 2] = [
        b"253,0 0 1 0.000000000 7 Q W 0 + 8 [fio]\n\
        8,0 0 1 0.000001000 7 A W 4096 + 8 <- (8,2) 2048\n\
        8,2 0 1 0.000001000 7 A W 2048 + 8 <- (253,0) 0\n\
        8,0 0 2 0.000002000 7 Q W 4096 + 8 [fio]\n\
        8,0 0 2 0.000002000 7 D W 4096 + 8 [fio]\n\
        8,16 0 3 0.000003000 7 Q R 8 + 8 [fio]\n",
        b"253,0 0 1 0.000000000 7 Q W 0 + 8 [fio]\n\
        8,0 0 1 0.000001000 7 A W 4096 + 8 <- (253,0) 0\n\
        8,0 0 2 0.000002000 7 Q W 4096 + 8 [fio]\n\
        8,0 0 2 0.000002000 7 D W 4096 + 8 [fio]\n\
        8,16 0 3 0.000003000 7 Q R 8 + 8 [fio]\n",
    ];

    #[test]
    fn of_stacked_devices_one_counts() {
        for trace in STACKED {
            assert_eq!(requests("blkparse", trace), ["0 W 253,0 0 4096", "3 R 8,16 4096 4096"]);
            let all = ["0 W 253,0 0 4096", "2 W 8,0 2097152 4096", "3 R 8,16 4096 4096"];
            assert_eq!(requests("blkparse:stacked=all", trace), all);
            // Only the disk gets issued requests.
            assert_eq!(requests("blkparse:action=D", trace), ["2 W 8,0 2097152 4096"]);
            let reading = |spec: &str| {
                let spec: crate::formats::FormatSpec = spec.parse().unwrap();
                let sample = crate::formats::Sample { bytes: trace, whole: true };
                spec.parser(&sample, 4096).unwrap().reading(&sample).unwrap().map(|reading| reading.columns)
            };
            let expected = "events Q, without those of 8,0, to which requests of other devices are mapped \
                            (stacked=all in --format keeps them)";
            assert_eq!(reading("blkparse").as_deref(), Some(expected));
            assert_eq!((reading("blkparse:stacked=all"), reading("blkparse:action=D")), (None, None));
        }
    }

    #[test]
    fn each_request_is_filtered_by_its_process() {
        use flashwise_core::filter::Caching::{Always, Never, Usual};
        use flashwise_core::filter::{Filter, Rule};
        let filter = |allow: &str, deny: &str| {
            let rules = |text: &str| Rule::parse_list(text).unwrap();
            let filter = Filter { allow: rules(allow), deny: rules(deny), ..Filter::default() };
            crate::formats::testing::filtered("blkparse", &filter, QUEUED).unwrap()
        };
        assert_eq!(filter("none", "program:java"), [Never, Usual]);
        assert_eq!(filter("none", "program:ext4 writer"), [Usual, Never]);
        assert_eq!(filter("pid:18615", "program:java"), [Always, Usual]);
        assert_eq!(filter("none", "pid:18615"), [Never, Never]);
    }

    #[test]
    fn letters_give_the_operation() {
        use super::op;
        use flashwise_core::access::Op;
        for read in ["R", "RA", "RM", "RSM", "RS"] {
            assert_eq!(op(read.as_bytes()), Ok(Some(Op::Read)), "{read}");
        }
        for write in ["W", "WS", "WM", "WSM", "WFS", "FWFS", "FW", "WBS"] {
            assert_eq!(op(write.as_bytes()), Ok(Some(Op::Write)), "{write}");
        }
        for neither in ["N", "D", "DS", "DE", "F", "FN", "FF", "E"] {
            assert_eq!(op(neither.as_bytes()), Ok(None), "{neither}");
        }
        assert!(op(b"[java]").is_err() && op(b"").is_err() && op(b"X").is_err());
    }

    #[test]
    fn refuses_malformed_input() {
        refuses(
            "blkparse:action=Q",
            &[
                (
                    "8;16 5 2 0.1 1 Q R 8 + 8\n",
                    r#"found "8;16 5 2 0.1 1 Q R 8 + 8", expected an event, which begins with a device such as 8,16"#,
                ),
                ("8,16 5 2 x 1 Q R 8 + 8 [p]\n", r#"found "x", expected a time in seconds"#),
                ("8,16 5 2 0.1 1\n", r#"found "8,16 5 2 0.1 1", expected a line with one more field: an action"#),
                (
                    "8,16 5 2 0.1 1 Q Rx 8 + 8 [p]\n",
                    r#"found "Rx", expected letters of reads, writes and so on, such as R, WS or N"#,
                ),
                ("8,16 5 2 0.1 1 Q R -8 + 8 [p]\n", r#"found "-8", expected a sector"#),
                (
                    "8,16 5 2 0.1 1 Q R 8 + 8388609 [p]\n",
                    "found a request of 4294967808 bytes, expected at most 4294967296",
                ),
            ],
        );
    }
}
