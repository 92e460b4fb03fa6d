//! Text of the kernel's block tracepoints: ftrace's `trace` and `trace_pipe`, `trace-cmd report`, and `perf script`.
//!
//! Source: the kernel's `include/trace/events/block.h`, for the end of every line; Documentation/trace/ftrace.rst and
//! perf-script(1) for the beginning:
//!
//! ```text
//! fio-789 [000] d..1.  4455.092003: block_rq_issue: 259,0 WS 65536 () 64 + 128 [fio]
//! fio 789 [000]  4455.092003: block:block_rq_issue: 259,0 WS 65536 () 64 + 128 [fio]
//! ```
//!
//! Times are in seconds, sectors have 512 bytes, a device is a volume. A request causes several events; one of them
//! counts. They correspond to the actions of blkparse: Q is block_bio_queue (as the file system sent it), D
//! block_rq_issue, I block_rq_insert and C block_rq_complete. By default, the first of them counts that occurs among
//! the first events. Letters, processes and lower devices are as in blkparse; the remaps are block_bio_remap and
//! block_rq_remap. All other lines are skipped and counted, such as comments, other tracepoints and call chains.

use std::sync::LazyLock;

use flashwise_core::filter::Client;
use memchr::memmem::Finder;

use super::blkparse::{ACTION, ANY, op};
use super::fields::{TimeUnit, Words, decimal, process, time_us};
use super::passed::Reason;
use super::plausible::{self, Habits, Layout, unparted};
use super::spellings::scaled;
use super::stacked::{self, STACKED, Sighting};
use super::unfinished::Unfinished;
use super::unit_options::{LENGTH_UNIT, OFFSET_UNIT, PLAIN, TIME_UNIT, UnitOptions};
use super::{Format, Lines, Malformed, ParseLine, Reading, Record, Sample};
use crate::request::{Request, Volumes};

/// The row of the kernel's block tracepoints in the table of formats.
pub static FORMAT: Format = Format {
    name: "ftrace",
    title: "Block tracepoints of ftrace, trace-cmd and perf script",
    source: "process [cpu] time_s: block_rq_issue: major,minor rwbs bytes () sector + sectors [process]; \
        trace/events/block.h",
    parameters: &[ACTION, STACKED, TIME_UNIT, OFFSET_UNIT, LENGTH_UNIT],
    recognise: |sample| sample.fit_lines(&Ftrace { action: ANY, below: Vec::new(), units: PLAIN }),
    parser: |options, sample, _| {
        let action = match options.text("action") {
            "auto" => counting_action(sample),
            given => given.as_bytes()[0],
        };
        let below = if options.text("stacked") == "top" { below(sample, action) } else { Vec::new() };
        Ok(Box::new(Unfinished(Box::new(Lines(Ftrace { action, below, units: UNITS.given(options) })))))
    },
};

fn counting_action(sample: &Sample) -> u8 {
    let has = |action: u8| sample.lines().filter_map(FtraceEvent::new).any(|event| event.action == action);
    [b'Q', b'D', b'I'].into_iter().find(|&action| has(action)).unwrap_or(b'C')
}

/// Returns the lower devices of stacked ones, from the beginning of the trace.
fn below(sample: &Sample, action: u8) -> Vec<Vec<u8>> {
    let events = sample.lines().filter_map(|line| FtraceEvent::new(line)?.sighting(action));
    stacked::below(events).into_iter().map(<[u8]>::to_vec).collect()
}

/// An event of a request or a remap.
struct FtraceEvent<'a> {
    /// The letter of blkparse for the event.
    action: u8,
    /// The words before the name of the event, including the time.
    head: &'a [u8],
    /// The words after the name of the event.
    rest: &'a [u8],
}

impl<'a> FtraceEvent<'a> {
    #[inline]
    fn new(line: &'a [u8]) -> Option<Self> {
        const NAMES: [(&[u8], u8); 6] = [
            (b"bio_queue: ", b'Q'),
            (b"rq_issue: ", b'D'),
            (b"rq_insert: ", b'I'),
            (b"rq_complete: ", b'C'),
            (b"bio_remap: ", b'A'),
            (b"rq_remap: ", b'A'),
        ];
        static PREFIX: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(b"block_"));
        for at in PREFIX.find_iter(line) {
            let name = &line[at + PREFIX.needle().len()..];
            let known = NAMES.iter().find_map(|(known, action)| Some((*action, name.strip_prefix(*known)?)));
            if let Some((action, rest)) = known {
                // perf writes the group before the event.
                let head = line[..at].strip_suffix(b"block:").unwrap_or(&line[..at]);
                if head.is_empty() || head.ends_with(b" ") {
                    return Some(FtraceEvent { action, head, rest });
                }
            }
        }
        None
    }

    /// Returns the devices of the event, if requests are events of `action`.
    fn sighting(&self, action: u8) -> Option<Sighting<&'a [u8]>> {
        let mut words = Words::new(self.rest);
        let device = words.word()?;
        if self.action != b'A' {
            return (self.action == action).then_some(Sighting::Request(device));
        }
        let from = words.all().skip_while(|word| *word != b"<-").nth(1)?.strip_prefix(b"(")?.strip_suffix(b")")?;
        Some(Sighting::Remap { to: device, from })
    }

    /// Returns the time in `unit`, which ends with a colon; perf can write a number of events after it.
    #[inline]
    fn time_us(&self, unit: TimeUnit) -> Result<i64, Malformed> {
        const EXPECTED: &str = "a time in seconds before the event";
        let wrong = || Malformed::new(self.head, EXPECTED);
        let head = &self.head[..memchr::memrchr(b':', self.head).ok_or_else(wrong)?];
        let start = memchr::memrchr(b' ', head).map_or(0, |blank| blank + 1);
        time_us(&head[start..], unit, EXPECTED)
    }
}

/// Returns the sector and the number of sectors, which are next to the first `+`.
#[inline]
fn sectors<'a>(mut words: Words<'a>) -> Option<(&'a [u8], &'a [u8])> {
    let mut before: &[u8] = b"";
    while let Some(word) = words.word() {
        if word == b"+" {
            return Some((before, words.word()?));
        }
        before = word;
    }
    None
}

/// Returns the record of a line that is not an event of a request.
fn no_request(line: &[u8]) -> Record {
    let is_time = |word: &[u8]| {
        let seconds = word.strip_suffix(b":").unwrap_or_default();
        seconds.contains(&b'.') && seconds.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
    };
    // ftrace writes `CPU:1 [LOST 7 EVENTS]`, trace-cmd `CPU:1 [7 EVENTS DROPPED]`, and perf `PERF_RECORD_LOST lost 7`.
    let is_loss = line.starts_with(b"CPU:") && (line.ends_with(b" EVENTS]") || line.ends_with(b"EVENTS DROPPED]"));
    match () {
        () if line.trim_ascii().is_empty() => Record::Ignored,
        () if is_loss || memchr::memmem::find(line, b" PERF_RECORD_LOST").is_some() => Record::PassedOver(Reason::Lost),
        () if Words::new(line).all().any(is_time) => Record::PassedOver(Reason::OtherEvent),
        () => Record::PassedOver(Reason::NoEvent),
    }
}

const UNITS: UnitOptions = UnitOptions::new(TimeUnit::Seconds, 512, 512);

#[derive(Debug)]
struct Ftrace {
    action: u8,
    units: UnitOptions,
    /// The devices whose requests are ignored.
    below: Vec<Vec<u8>>,
}

impl ParseLine for Ftrace {
    #[inline]
    fn line(&self, line: &[u8], volumes: &mut Volumes) -> Result<Record, Malformed> {
        if line.first() == Some(&b'#') {
            return Ok(Record::PassedOver(Reason::Comment));
        }
        let Some(event) = FtraceEvent::new(line) else { return Ok(no_request(line)) };
        if event.action == b'A' || event.action != self.action && self.action != ANY {
            return Ok(Record::Ignored);
        }
        let mut words = Words::new(event.rest);
        let device = words.next("a device such as 8,16")?;
        if self.below.iter().any(|below| below == device) {
            return Ok(Record::Ignored);
        }
        let time_us = event.time_us(self.units.time)?;
        let Some(op) = op(words.word().unwrap_or_default())? else { return Ok(Record::Skipped) };
        let (sector, sectors) =
            sectors(words).ok_or_else(|| Malformed::new(line, "a sector and a number of sectors, as in 64 + 128"))?;
        let offset_bytes = scaled(decimal(sector, "a sector")?, self.units.offset_bytes, "a sector")?;
        let length_bytes =
            scaled(decimal(sectors, "a number of sectors")?, self.units.length_bytes, "a number of sectors")?;
        let volume = volumes.number(device);
        Ok(Record::Request(Request { time_us, op, volume, offset_bytes, length_bytes }))
    }

    fn layout(&self) -> Option<Layout> {
        let habits = Habits { decimals: true, streaming: true, ..Habits::default() };
        let spec = format!("{}:action={}", FORMAT.name, char::from(self.action));
        Some(unparted(habits).in_units(self.units, &spec))
    }

    fn in_units(&self, units: UnitOptions) -> Option<Box<dyn ParseLine>> {
        Some(Box::new(Ftrace { units, below: self.below.clone(), ..*self }))
    }

    fn reading(&self, sample: &Sample) -> Result<Option<Reading>, Malformed> {
        let doubts = self.layout().map_or(Ok(Vec::new()), |layout| plausible::check(&layout, self, sample))?;
        Ok(stacked::reading(char::from(self.action), &self.below, doubts))
    }

    fn names_processes(&self) -> bool {
        true
    }

    /// ftrace writes `name-pid`, perf `name pid` or `name pid/tid`; the processor follows in brackets.
    fn process(&self, line: &[u8]) -> Client {
        let brackets = memchr::memchr_iter(b'[', line).find(|&at| {
            let cpu = &line[at + 1..];
            memchr::memchr(b']', cpu).is_some_and(|end| end > 0 && cpu[..end].iter().all(u8::is_ascii_digit))
        });
        let mut head = line[..brackets.unwrap_or(0)].trim_ascii();
        // The thread group, which is an option of ftrace.
        if let Some(open) = head.ends_with(b")").then(|| memchr::memrchr(b'(', head)).flatten() {
            head = head[..open].trim_ascii_end();
        }
        let start = memchr::memrchr(b' ', head).map_or(0, |blank| blank + 1);
        let pid = head[start..].split(|&byte| byte == b'/').next().unwrap_or_default();
        if start > 0 && pid.iter().all(u8::is_ascii_digit) {
            return process(Some(pid), head[..start].trim_ascii());
        }
        match memchr::memrchr(b'-', head) {
            Some(dash) => process(Some(&head[dash + 1..]), &head[..dash]),
            None => process(None, head),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::testing::{filtered, read, recognised, refuses, requests};

    const FTRACE: &[u8] = b"# tracer: nop\n#\n#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n\
        \x20    jbd2/sda1-8-533   [000] .... 396695.376685: block_bio_remap: 8,0 FWFS 3905554656 + 8 <- (8,1) \
        3905552608\n\
        \x20    jbd2/sda1-8-533   [000] .... 396695.376696: block_bio_queue: 8,0 FWFS 3905554656 + 8 [jbd2/sda1-8]\n\
        \x20    jbd2/sda1-8-533   [000] .... 396695.376709: block_getrq: 8,0 FWFS 3905554656 + 8 [jbd2/sda1-8]\n\
        \x20    jbd2/sda1-8-533   [000] d... 396695.376716: block_rq_insert: 8,0 FWFS 0 () 3905554656 + 8 \
        [jbd2/sda1-8]\n\
        \x20    ksoftirqd/3-23    [003] dns. 396695.377109: block_rq_issue: 8,0 WFS 4096 () 3905554656 + 8 \
        [ksoftirqd/3]\n\
        \x20    my fio-789   (    789) [000] ..... 396696.092003: block_bio_queue: 259,0 R 64 + 128 [my fio]\n\
        \x20         <idle>-0     [000] d.h1. 396696.129864: block_rq_complete: 259,0 R () 64 + 128 none,0,0 [0]\n\
        \x20    fio-789   [000] ..... 396697.0: block_bio_queue: 259,0 D 64 + 128 [fio]\n\
        \x20    raft-37801   [003] .....  9904.831153: nvme_setup_cmd: nvme0: disk=nvme0n1, slba=498455480, len=7\n";

    const PERF: &[u8] = b"    kworker/u16:3 25003 [004] 543348.164811:   block:block_rq_insert: 259,0 RM 4096 () \
        2564656 + 8 [kworker/u16:3]\n\
        \x20   kworker/4:1H    533/544 [004] 543348.164815:          1 block:block_rq_issue: 259,0 RM 4096 () 2564656 \
        + 8 none,0,0 [kworker/4:1H]\n\
        \x20           ffffffff8149a2f1 blk_mq_start_request+0x81 ([kernel.kallsyms])\n\
        \x20        my dd      0 [004] 543348.164887123:   block:block_rq_issue: 259,0 FF 0 () 0 + 0 [0]\n\
        \x20        my dd      7 [004] 543348.164887123:   block:block_rq_issue: 259,0 WS 4096 (2a 00) 8 + 8 [0]\n";

    /// Counted by `grep -c 'block_bio_queue:'`, 3 with the discard, and `grep -c 'block_rq_issue:'`, 3 with the flush.
    #[test]
    fn of_each_request_one_event_counts() {
        // 3905554656 * 512 = 1999643983872, 2564656 * 512 = 1313103872.
        let expected = ["396695376696 W 8,0 1999643983872 4096", "396696092003 R 259,0 32768 65536"];
        assert_eq!(requests("ftrace", FTRACE), expected);
        assert_eq!((read("ftrace", FTRACE).skipped, recognised(FTRACE)), (1, Ok("ftrace")));
        assert_eq!(requests("ftrace:action=D", FTRACE), ["396695377109 W 8,0 1999643983872 4096"]);
        assert_eq!(requests("ftrace:action=C", FTRACE), ["396696129864 R 259,0 32768 65536"]);
        let expected = ["543348164815 R 259,0 1313103872 4096", "543348164887 W 259,0 4096 4096"];
        assert_eq!(requests("ftrace", PERF), expected);
        assert_eq!((read("ftrace", PERF).skipped, recognised(PERF)), (1, Ok("ftrace")));
        let said = |trace: &[u8]| read("ftrace", trace).passed_over.described();
        let of_ftrace = "6 lines were skipped: 3 comments, 1 operation without data, 2 other events";
        assert_eq!(said(FTRACE).as_deref(), Some(of_ftrace));
        let of_perf = "2 lines were skipped: 1 operation without data, 1 line without an event";
        assert_eq!(said(PERF).as_deref(), Some(of_perf));
        let lost = b"CPU:1 [LOST 118 EVENTS]\nCPU:2 [7 EVENTS DROPPED]\n\
            swapper     0 [001] 543348.164887: PERF_RECORD_LOST lost 7\n\
            dd 7 [004] 543348.164887123: block:block_rq_issue: 259,0 WS 4096 () 8 + 8 [dd]\n";
        assert_eq!(said(lost).as_deref(), Some("3 lines were skipped: 3 notices of lost events"));
        assert_eq!((recognised(lost), recognised(&lost[..49]).is_err()), (Ok("ftrace"), true));
        // The last line is incomplete.
        assert_eq!(requests("ftrace", &PERF[..PERF.len() - 8]).len(), 1);
    }

    #[test]
    fn of_stacked_devices_one_counts() {
        let trace = b"fio-7 [000] ..... 1.0: block_bio_queue: 253,0 W 0 + 8 [fio]\n\
            fio-7 [000] ..... 1.1: block_bio_remap: 8,0 W 2048 + 8 <- (253,0) 0\n\
            fio-7 [000] ..... 1.2: block_bio_queue: 8,0 W 2048 + 8 [fio]\n";
        assert_eq!(requests("ftrace", trace), ["1000000 W 253,0 0 4096"]);
        assert_eq!(requests("ftrace:stacked=all", trace).len(), 2);
    }

    #[test]
    fn each_request_is_filtered_by_its_process() {
        use flashwise_core::filter::Caching::{Never, Usual};
        use flashwise_core::filter::{Filter, Rule};
        let denying = |rules: &str, trace: &[u8]| {
            let filter = Filter { deny: Rule::parse_list(rules).unwrap(), ..Filter::default() };
            filtered("ftrace", &filter, trace).unwrap()
        };
        assert_eq!(denying("program:jbd2/sda1-8", FTRACE), [Never, Usual]);
        assert_eq!(denying("program:my fio", FTRACE), [Usual, Never]);
        assert_eq!(denying("pid:533", FTRACE), [Never, Usual]);
        assert_eq!(denying("pid:533", PERF), [Never, Usual]);
        assert_eq!(denying("program:my dd", PERF), [Usual, Never]);
    }

    #[test]
    fn refuses_malformed_input() {
        refuses(
            "ftrace:action=D",
            &[
                (
                    "fio-7 [000] .... x: block_rq_issue: 8,0 W 0 () 8 + 8 [fio]\n",
                    r#"found "x", expected a time in seconds before the event"#,
                ),
                ("fio-7 [000] .... 1.0: block_rq_issue: 8,0 W 0 () x + 8 [fio]\n", r#"found "x", expected a sector"#),
                (
                    "fio-7 [000] .... 1.0: block_rq_issue: 8,0 W 0 () 8 [fio]\n",
                    r#"found "fio-7 [000] .... 1.0: block_rq_issue: 8,0 W 0 () 8 [fio]", expected a sector and a number of sectors, as in 64 + 128"#,
                ),
                (
                    "fio-7 [000] .... 1.0: block_rq_issue: 8,0 Q 0 () 8 + 8 [fio]\n",
                    r#"found "Q", expected letters of reads, writes and so on, such as R, WS or N"#,
                ),
            ],
        );
    }
}
