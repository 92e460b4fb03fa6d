//! Binary block events of the kernel, from the files `DEVICE.blktrace.CPU` of blktrace, or merged to one file by
//! `blkparse -d`.
//!
//! Source: the kernel's `include/uapi/linux/blktrace_api.h`. Numbers are in the byte order of the traced machine. A
//! record has 48 bytes:
//!
//! | byte | field |
//! | --- | --- |
//! | 0 | magic number and version u32: 0x65617407 |
//! | 4 | sequence number u32 |
//! | 8 | time u64 in nanoseconds |
//! | 16 | sector u64 of 512 bytes |
//! | 24 | length u32 in bytes |
//! | 28 | action u32, with its categories in the upper half |
//! | 32 | process id u32 |
//! | 36 | device u32: major in the upper 12 bits, minor in the lower 20 |
//! | 40 | processor u32 |
//! | 44 | error u16 |
//! | 46 | length u16 of data that follow the record |
//!
//! One action of a request counts, as in blkparse, but the default is always action Q, queued. There is one file for
//! each processor. If a processor only completes requests, its file has no such action. A pattern that matches all
//! files merges them by time. As in blkparse, some requests are skipped, and lower devices are left out. The data of a
//! remap contain the original device of the request, in big-endian order. Passthrough commands count as skipped. Zeros
//! or a partial record at the end, which blktrace leaves there if it is killed, are ignored.

use flashwise_core::access::Op;
use flashwise_core::options::{Kind, Parameter};

use super::spellings::scaled;
use super::stacked::{self, STACKED, Sighting};
use super::{Batch, Fit, Format, Framing, Malformed, Parse, Reading, Record, Sample, VOLUME_BYTES_MAX};
use crate::request::{Request, Volumes};

/// The row of blktrace in the table of formats.
pub static FORMAT: Format = Format {
    name: "blktrace",
    title: "blktrace binary events",
    source: "records of 48 bytes that begin with 0x65617407, of either endianness; blktrace(8), linux/blktrace_api.h",
    parameters: &[ACTION, STACKED],
    recognise: |sample| if Order::of(sample.bytes).is_some() { Fit::Yes } else { Fit::No },
    parser: |options, sample, _| {
        let order = Order::of(sample.bytes).unwrap_or(Order::Little);
        let events = || Events { order, rest: sample.bytes }.flatten();
        let action = options.text("action").as_bytes()[0];
        let sighting = |event: BlktraceEvent<'_>| match event.action()? {
            b'A' => Some(Sighting::Remap { to: event.device, from: event.remapped_from()? }),
            found => (found == action).then_some(Sighting::Request(event.device)),
        };
        let is_stacked = options.text("stacked") == "top";
        let below = if is_stacked { stacked::below(events().filter_map(sighting)) } else { Vec::new() };
        let has_others = events().any(|event| event.action().is_some_and(|found| found != b'A'));
        let is_missing = has_others && !events().any(|event| event.action() == Some(action));
        Ok(Box::new(Blktrace { order, action, below, is_missing }))
    },
};

/// The option that selects the action that counts.
const ACTION: Parameter = Parameter::of("action", Kind::Choice(&["Q", "D", "I", "C"]), "Q")
    .means("the event that counts as the request: queued, issued to the driver, inserted or completed");

/// The magic number without its last byte, which is the version.
const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
const RECORD_BYTES: usize = 48;

/// The byte order of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

impl Order {
    /// Returns the byte order in which `bytes` begin with the magic number, of any version.
    fn of(bytes: &[u8]) -> Option<Order> {
        [Order::Little, Order::Big].into_iter().find(|order| bytes.len() >= 4 && order.u32(bytes, 0) & !0xFF == MAGIC)
    }

    #[inline]
    fn number<const N: usize>(self, bytes: &[u8], at: usize) -> [u8; N] {
        let mut number: [u8; N] = bytes[at..at + N].try_into().expect("as many bytes");
        if self == Order::Big {
            number.reverse();
        }
        number
    }

    #[inline]
    fn u16(self, bytes: &[u8], at: usize) -> u16 {
        u16::from_le_bytes(self.number(bytes, at))
    }

    #[inline]
    fn u32(self, bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(self.number(bytes, at))
    }

    #[inline]
    fn u64(self, bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(self.number(bytes, at))
    }
}

/// A complete record.
#[derive(Clone, Copy, Debug)]
struct BlktraceEvent<'a> {
    time_ns: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    device: u32,
    data: &'a [u8],
}

/// Categories of events, in the upper half of the action.
mod category {
    pub const WRITE: u32 = 1 << 17;
    /// A passthrough command.
    pub const COMMAND: u32 = 1 << 25;
    /// Not an event of a request, but a process, a time or a message.
    pub const NOTIFY: u32 = 1 << 26;
    pub const DISCARD: u32 = 1 << 29;
}

impl BlktraceEvent<'_> {
    /// Returns the letter of blkparse for the action of a request that can count, or for a remap.
    #[inline]
    fn action(&self) -> Option<u8> {
        // 0x100: the data begin with a control group.
        match self.action & 0xFEFF {
            _ if self.action & category::NOTIFY != 0 => None,
            1 => Some(b'Q'),
            7 => Some(b'D'),
            8 => Some(b'C'),
            12 => Some(b'I'),
            15 => Some(b'A'),
            _ => None,
        }
    }

    /// Returns the original device of a request that was remapped to this one.
    fn remapped_from(&self) -> Option<u32> {
        let data = if self.action & 0x100 == 0 { self.data } else { self.data.get(8..)? };
        Some(u32::from_be_bytes(*data.first_chunk()?))
    }
}

/// An iterator over the events at the beginning of `rest`; damage is returned as an error.
#[derive(Clone, Debug)]
struct Events<'a> {
    order: Order,
    rest: &'a [u8],
}

/// The maximum length of one place of damage, in bytes; longer damage counts as several.
const DAMAGE_BYTES_MAX: usize = 1 << 20;

/// Bytes that are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    /// The record continues after the end.
    Cut,
    /// Zeros until the end.
    Zeros,
    /// Another number in place of the magic number and the version.
    Magic(u32),
}

impl<'a> Iterator for Events<'a> {
    type Item = Result<BlktraceEvent<'a>, Damage>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let Events { order, rest } = *self;
        if rest.is_empty() {
            return None;
        }
        let magic = if rest.len() >= 4 { order.u32(rest, 0) } else { MAGIC | VERSION };
        let bytes =
            if rest.len() >= RECORD_BYTES { RECORD_BYTES + usize::from(order.u16(rest, 46)) } else { usize::MAX };
        if magic != MAGIC | VERSION {
            // Continues at the next record, if there is one.
            let next = (MAGIC | VERSION).to_le_bytes();
            let found = memchr::memmem::find(&rest[1..], &order.number::<4>(&next, 0));
            self.rest = &rest[found.map_or(rest.len(), |at| at + 1)..];
            let are_zeros = magic == 0 && self.rest.is_empty() && rest.iter().all(|&byte| byte == 0);
            return Some(Err(if are_zeros { Damage::Zeros } else { Damage::Magic(magic) }));
        }
        if bytes > rest.len() {
            self.rest = &rest[rest.len()..];
            return Some(Err(Damage::Cut));
        }
        self.rest = &rest[bytes..];
        Some(Ok(BlktraceEvent {
            time_ns: order.u64(rest, 8),
            sector: order.u64(rest, 16),
            bytes: order.u32(rest, 24),
            action: order.u32(rest, 28),
            device: order.u32(rest, 36),
            data: &rest[RECORD_BYTES..bytes],
        }))
    }
}

/// Returns the name of a device.
fn name(device: u32) -> String {
    format!("{},{}", device >> 20, device & 0xF_FFFF)
}

#[derive(Debug)]
struct Blktrace {
    order: Order,
    action: u8,
    /// The devices whose requests are ignored.
    below: Vec<u32>,
    /// True if the trace begins only with other actions of requests.
    is_missing: bool,
}

impl Blktrace {
    #[inline]
    fn event(&self, event: &BlktraceEvent, volumes: &mut Volumes) -> Result<Record, Malformed> {
        if event.action() != Some(self.action) || self.below.contains(&event.device) {
            return Ok(Record::Ignored);
        }
        if event.action & (category::DISCARD | category::COMMAND) != 0 || event.bytes == 0 {
            return Ok(Record::Skipped);
        }
        let op = if event.action & category::WRITE != 0 { Op::Write } else { Op::Read };
        let offset_bytes = scaled(event.sector, 512, "a sector")?;
        let volume = volumes.number(name(event.device).as_bytes());
        let time_us = (event.time_ns / 1000) as i64;
        Ok(Record::Request(Request { time_us, op, volume, offset_bytes, length_bytes: event.bytes.into() }))
    }
}

impl Parse for Blktrace {
    fn framing(&self) -> Framing {
        Framing::Varied
    }

    fn whole(&self, bytes: &[u8]) -> usize {
        let mut events = Events { order: self.order, rest: bytes };
        // Damage before an incomplete record stays together with it: a few bytes alone would not be recognised as
        // damage.
        let mut damage = None;
        loop {
            let rest = events.rest.len();
            let at = bytes.len() - rest;
            match events.next() {
                None => return bytes.len(),
                Some(Ok(_)) => damage = None,
                Some(Err(Damage::Cut)) => return damage.unwrap_or(at),
                // The damage may continue: it is one place, however the trace is cut into chunks.
                Some(Err(_)) if events.rest.is_empty() && rest <= DAMAGE_BYTES_MAX => return at,
                Some(Err(_)) => damage = Some(at),
            }
        }
    }

    fn parse(&self, records: &[u8], batch: &mut Batch) {
        batch.requests.reserve(records.len() / (4 * RECORD_BYTES));
        let mut events = Events { order: self.order, rest: records };
        loop {
            let record = match events.next() {
                None => return,
                Some(Ok(event)) => self.event(&event, &mut batch.volumes),
                Some(Err(Damage::Zeros | Damage::Cut)) => return,
                Some(Err(Damage::Magic(found))) => {
                    let expected = format!("a record that begins with {:#x}", MAGIC | VERSION);
                    Err(Malformed { found: format!("{found:#010x}"), expected })
                }
            };
            batch.push(record, VOLUME_BYTES_MAX);
        }
    }

    fn may_be_cut(&self) -> bool {
        true
    }

    fn reading(&self, _sample: &Sample) -> Result<Option<Reading>, Malformed> {
        let below: Vec<_> = self.below.iter().map(|&device| name(device)).collect();
        let events = format!("events {}", char::from(self.action));
        if self.is_missing {
            let doubt = format!(
                "none of its first events are {events}: right for a processor that only completes requests, otherwise \
                 name \
                 another action, as in --format blktrace:action=C"
            );
            return Ok(Some(Reading { columns: events, doubts: vec![doubt] }));
        }
        Ok(stacked::reading(char::from(self.action), &below, Vec::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::testing::{read, recognised, requests};

    const READ: u32 = 1 << 16;
    const SDA: u32 = 8 << 20;
    const DM: u32 = 253 << 20;

    /// Creates a record of `blk_io_trace`, field by field, with its data.
    fn record(order: Order, time_ns: u64, [sector, bytes]: [u64; 2], action: u32, device: u32, data: &[u8]) -> Vec<u8> {
        let ordered = |number: Vec<u8>| if order == Order::Big { number.into_iter().rev().collect() } else { number };
        let u32 = |number: u32| ordered(number.to_le_bytes().to_vec());
        let u64 = |number: u64| ordered(number.to_le_bytes().to_vec());
        let u16 = |number: u16| ordered(number.to_le_bytes().to_vec());
        let head = [u32(0x6561_7407), u32(1), u64(time_ns), u64(sector), u32(bytes as u32), u32(action), u32(77)];
        let tail = [u32(device), u32(0), u16(0), u16(data.len() as u16), data.to_vec()];
        [head.concat(), tail.concat()].concat()
    }

    fn trace(order: Order) -> Vec<u8> {
        let event = |time_ns, range, action, device| record(order, time_ns, range, action, device, b"");
        let remap = [DM.to_be_bytes(), SDA.to_be_bytes(), [0; 4], [0; 4]].concat();
        [
            record(order, 0, [0, 0], category::NOTIFY, 0, b"fio\0"),
            event(1_999, [8, 4096], 1 | READ, 8 << 20 | 16),
            event(2_000, [8, 4096], 7 | READ, 8 << 20 | 16),
            event(3_000, [16, 512], 1 | 0x100 | category::WRITE, DM),
            record(order, 3_000, [2064, 512], 15 | category::WRITE, SDA, &remap),
            event(4_000, [2064, 512], 1 | category::WRITE, SDA),
            event(5_000, [8, 4096], 1 | category::WRITE | category::DISCARD, DM),
            event(6_000, [0, 0], 1 | category::WRITE, DM),
            event(7_000, [0, 96], 1 | READ | category::COMMAND, DM),
            event(8_000, [2064, 512], 8 | category::WRITE, SDA),
        ]
        .concat()
    }

    #[test]
    fn damage_is_one_place_however_the_trace_is_cut() {
        let event = |time_ns| record(Order::Little, time_ns, [8, 4096], 1 | READ, SDA, b"");
        let trace = [event(1_000), vec![7; 90], event(2_000)].concat();
        let of_whole = read("blktrace", &trace);
        assert_eq!((of_whole.records, of_whole.malformed.len()), (3, 1));
        let parser = Blktrace { order: Order::Little, action: b'Q', below: Vec::new(), is_missing: false };
        for cut in RECORD_BYTES..RECORD_BYTES + 90 + RECORD_BYTES {
            assert_eq!(parser.whole(&trace[..cut]), RECORD_BYTES, "{cut}");
        }
    }

    #[test]
    fn of_each_request_one_event_counts_in_both_orders() {
        for order in [Order::Little, Order::Big] {
            let trace = trace(order);
            let expected = ["1 R 8,16 4096 4096", "3 W 253,0 8192 512"];
            assert_eq!(requests("blktrace", &trace), expected);
            assert_eq!((read("blktrace", &trace).skipped, recognised(&trace)), (3, Ok("blktrace")));
            let all = ["1 R 8,16 4096 4096", "3 W 253,0 8192 512", "4 W 8,0 1056768 512"];
            assert_eq!(requests("blktrace:stacked=all", &trace), all);
            assert_eq!(requests("blktrace:action=D", &trace), ["2 R 8,16 4096 4096"]);
            assert_eq!(requests("blktrace:action=C", &trace), ["8 W 8,0 1056768 512"]);
            // blktrace was killed.
            assert_eq!(requests("blktrace", &[&trace[..], &[0; 1000]].concat()), expected);
        }
    }

    /// Tests the file of a processor that only completes requests.
    #[test]
    fn completions_count_only_if_the_user_selects_them() {
        let completed = record(Order::Little, 1, [8, 4096], 8 | READ, SDA, b"");
        assert_eq!(requests("blktrace", &completed), [""; 0]);
        assert_eq!(requests("blktrace:action=C", &completed).len(), 1);
        let doubts = |spec: &str, bytes: &[u8]| {
            let spec: crate::formats::FormatSpec = spec.parse().unwrap();
            let sample = Sample { bytes, whole: true };
            let reading = spec.parser(&sample, 4096).unwrap().reading(&sample).unwrap();
            reading.map_or(0, |reading| reading.doubts.len())
        };
        assert_eq!((doubts("blktrace", &completed), doubts("blktrace:action=C", &completed)), (1, 0));
        assert_eq!(doubts("blktrace", &record(Order::Little, 0, [0, 0], category::NOTIFY, 0, b"fio\0")), 0);
    }

    #[test]
    fn records_are_found_wherever_they_are_cut() {
        let trace = trace(Order::Little);
        let spec: crate::formats::FormatSpec = "blktrace".parse().unwrap();
        let parser = spec.parser(&Sample { bytes: &trace, whole: true }, 4096).unwrap();
        for cut in 0..=trace.len() {
            let whole = parser.whole(&trace[..cut]);
            assert!(whole <= cut && cut - whole < RECORD_BYTES + 16, "{cut}");
            let mut batch = Batch::default();
            parser.parse(&trace[..whole], &mut batch);
            let records = batch.records;
            parser.parse(&trace[whole..], &mut batch);
            assert_eq!((batch.requests.len(), batch.malformed.len()), (2, 0), "{cut}");
            // An incomplete record is left out.
            let mut batch = Batch::default();
            parser.parse(&trace[..cut], &mut batch);
            assert_eq!((batch.records, batch.malformed.len()), (records, 0), "{cut}");
        }
    }

    #[test]
    fn refuses_malformed_input() {
        let errors = |contents: &[u8]| {
            let batch = read("blktrace", contents);
            batch.malformed.iter().map(|(at, error)| format!("{at}: {error}")).collect::<Vec<_>>()
        };
        let good = record(Order::Little, 1, [8, 4096], 1 | READ, SDA, b"");
        let damaged = [&good[..], &[1, 2, 3, 4, 5], &good[..]].concat();
        assert_eq!(errors(&damaged), ["1: found 0x04030201, expected a record that begins with 0x65617407"]);
        assert_eq!(read("blktrace", &damaged).requests.len(), 2);
        let mut newer = good.clone();
        newer[0] = 8;
        assert_eq!(errors(&newer), ["0: found 0x65617408, expected a record that begins with 0x65617407"]);
        assert_eq!(recognised(&newer), Ok("blktrace"));
        let far = record(Order::Little, 1, [1 << 55, 4096], 1 | READ, SDA, b"");
        assert!(errors(&far)[0].contains("expected a sector, in units of 512 bytes, below 2^64"));
    }
}
