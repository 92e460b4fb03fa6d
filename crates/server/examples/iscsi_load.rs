//! Makes requests of one size to any iSCSI target, at a queue depth, over one session, and prints their speed.
//!
//! `iscsi_load ADDRESS TARGET LUN QUEUE_DEPTH read|write|read-on|write-on|fill SECONDS [SERVER_PID [REQUEST_BYTES]]`.
//! `read` and `write` are random, `read-on` and `write-on` sequential.

use std::error::Error;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use flashwise_testing::initiator::{self, Initiator, text};
use flashwise_testing::processor;

const BLOCK_BYTES: usize = 512;
/// Segment size to negotiate.
const SEGMENT_BYTES: usize = 256 << 10;
/// The longest header; digests are not negotiated.
const HEADER_BYTES: usize = 48;
const NO_TAG: u32 = u32::MAX;

type Failure = Box<dyn Error + Send + Sync>;

/// The load of the session.
#[derive(Clone, Copy)]
struct Load {
    depth: usize,
    writes: bool,
    in_order: bool,
    request_bytes: usize,
    duration: Duration,
}

/// A session with its negotiated parameters.
struct Session {
    initiator: Initiator,
    lun: u8,
    /// Longest data segment that the target accepts.
    segment_bytes: usize,
    /// Limit of immediate data.
    immediate_bytes: usize,
    blocks: u64,
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (6..=8, [address, target, lun, depth, kind, seconds, rest @ ..]) = (arguments.len(), &arguments[..]) else {
        return Err(
            "usage: iscsi_load ADDRESS TARGET LUN QUEUE_DEPTH read|write|read-on|write-on|fill SECONDS [SERVER_PID \
                    [REQUEST_BYTES]]"
                .into(),
        );
    };
    let number = |index: usize| rest.get(index).map(|number| number.parse::<usize>()).transpose();
    let (pid, request_bytes) = (number(0)?, number(1)?.unwrap_or(4096));
    let mut session = Session::open(address, target, lun.parse()?)?;
    let (writes, in_order) = match kind.as_str() {
        "fill" => (true, true),
        "read" => (false, false),
        "write" => (true, false),
        "read-on" => (false, true),
        "write-on" => (true, true),
        other => return Err(format!("{other:?}: expected read, write, read-on, write-on or fill").into()),
    };
    if kind == "fill" {
        let load = Load { depth: 16, writes, in_order, request_bytes: 64 << 10, duration: Duration::MAX };
        return session.run(load, Some(session.blocks * BLOCK_BYTES as u64 / (64 << 10))).map(drop);
    }
    let duration = Duration::from_secs_f64(seconds.parse()?);
    let load = Load { depth: depth.parse()?, writes, in_order, request_bytes, duration };
    let cpu_before = pid.map(processor::seconds).transpose()?;
    let begun = Instant::now();
    let mut latencies_ns = session.run(load, None)?;
    let seconds = begun.elapsed().as_secs_f64();
    let cpu_after = pid.map(processor::seconds).transpose()?;
    processor::tell(&mut latencies_ns, seconds, cpu_after.zip(cpu_before).map(|(after, before)| after - before));
    Ok(())
}

impl Session {
    fn open(address: &str, target: &str, lun: u8) -> Result<Session, Failure> {
        let mut initiator = Initiator::connect(address);
        let segment = SEGMENT_BYTES.to_string();
        let pairs = [
            ("InitiatorName", initiator::NAME),
            ("SessionType", "Normal"),
            ("TargetName", target),
            ("HeaderDigest", "None"),
            ("DataDigest", "None"),
            ("ImmediateData", "Yes"),
            ("InitialR2T", "Yes"),
            ("MaxRecvDataSegmentLength", &segment),
            ("FirstBurstLength", &segment),
            ("MaxBurstLength", &segment),
            ("MaxOutstandingR2T", "1"),
        ];
        let answer = initiator.login(1, 0x87, &text(&pairs))?;
        if answer.header[36] != 0 || answer.header[1] & 0x83 != 0x83 {
            return Err(format!("the login was answered with {answer:?}").into());
        }
        let told = String::from_utf8_lossy(&answer.data).into_owned();
        let value = |key: &str, default: usize| -> usize {
            let found = told.split('\0').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
            found.and_then(|value| value.parse().ok()).unwrap_or(default)
        };
        let segment_bytes = value("MaxRecvDataSegmentLength", 8192);
        let immediate_bytes = segment_bytes.min(value("FirstBurstLength", 64 << 10));
        let mut session = Session { initiator, lun, segment_bytes, immediate_bytes, blocks: 0 };
        for _ in 0..4 {
            // Unit attentions come first.
            let mut header = session.initiator.command(0x80, 0, &[0; 6]);
            header[9] = lun;
            session.initiator.send(header, &[])?;
            session.initiator.outcome();
        }
        let mut header = session.initiator.command(0xc0, 8, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        header[9] = lun;
        session.initiator.send(header, &[])?;
        let capacity = session.initiator.outcome().data;
        let last: [u8; 4] = capacity.get(..4).ok_or("there is no capacity")?.try_into()?;
        session.blocks = u64::from(u32::from_be_bytes(last)) + 1;
        Ok(session)
    }

    /// Appends the header and the immediate data of request `slot`, whose number is its tag.
    fn put(&mut self, output: &mut Vec<u8>, slot: usize, place: u64, load: Load, data: &[u8]) {
        let blocks = (load.request_bytes / BLOCK_BYTES) as u16;
        let code = if load.writes { 0x2a } else { 0x28 };
        let cdb = initiator::cdb_10(code, (place * u64::from(blocks)) as u32, blocks);
        let flags = if load.writes { 0xa0 } else { 0xc0 };
        let mut header = self.initiator.command(flags, load.request_bytes as u32, &cdb);
        header[9] = self.lun;
        header[16..20].copy_from_slice(&(slot as u32).to_be_bytes());
        let sent = if load.writes { load.request_bytes.min(self.immediate_bytes) } else { 0 };
        header[5..8].copy_from_slice(&(sent as u32).to_be_bytes()[1..]);
        output.extend(header);
        output.extend(&data[..sent]);
    }

    /// Appends the data that the target requests with R2T.
    fn put_data(&self, output: &mut Vec<u8>, ready: &[u8], data: &[u8]) {
        let word = |at: usize| u32::from_be_bytes([ready[at], ready[at + 1], ready[at + 2], ready[at + 3]]) as usize;
        let (from, length) = (word(40), word(44));
        let mut at = 0;
        let mut number = 0u32;
        while at < length {
            let piece = (length - at).min(self.segment_bytes);
            let mut header = [0; HEADER_BYTES];
            (header[0], header[1]) = (0x05, if at + piece == length { 0x80 } else { 0 });
            header[5..8].copy_from_slice(&(piece as u32).to_be_bytes()[1..]);
            header[8..16].copy_from_slice(&ready[8..16]);
            header[16..24].copy_from_slice(&ready[16..24]);
            header[28..32].copy_from_slice(&self.initiator.status_number.to_be_bytes());
            header[36..40].copy_from_slice(&number.to_be_bytes());
            header[40..44].copy_from_slice(&((from + at) as u32).to_be_bytes());
            output.extend(header);
            output.extend(&data[from + at..from + at + piece]);
            at += piece;
            number += 1;
        }
    }

    /// Makes requests for the duration of the load, or `count` of them. Returns the latency of each.
    fn run(&mut self, load: Load, count: Option<u64>) -> Result<Vec<u64>, Failure> {
        let places = self.blocks / (load.request_bytes / BLOCK_BYTES) as u64;
        let data: Vec<u8> = (0..load.request_bytes).map(|index| (index % 251) as u8).collect();
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut asked = 0;
        let mut next = move || {
            asked += 1;
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            if load.in_order { (asked - 1) % places } else { state % places }
        };
        let mut left = count.unwrap_or(u64::MAX);
        let begun = Instant::now();
        let mut started = vec![begun; load.depth];
        let mut output = Vec::new();
        let mut in_flight = 0;
        for slot in 0..load.depth.min(left as usize) {
            self.put(&mut output, slot, next(), load, &data);
            in_flight += 1;
        }
        left -= in_flight;
        let mut latencies_ns = Vec::with_capacity(1 << 20);
        let mut input = vec![0; 2 * SEGMENT_BYTES + (1 << 20)];
        let mut filled = 0;
        while in_flight > 0 {
            self.initiator.stream.write_all(&output)?;
            output.clear();
            let count = self.initiator.stream.read(&mut input[filled..])?;
            if count == 0 {
                return Err("the target closed the connection".into());
            }
            filled += count;
            let now = Instant::now();
            let mut used = 0;
            while filled - used >= HEADER_BYTES {
                let message = &input[used..filled];
                let length = u32::from_be_bytes([0, message[5], message[6], message[7]]) as usize;
                let whole = HEADER_BYTES + 4 * usize::from(message[4]) + length.next_multiple_of(4);
                if message.len() < whole {
                    break;
                }
                used += whole;
                let word =
                    |at: usize| u32::from_be_bytes([message[at], message[at + 1], message[at + 2], message[at + 3]]);
                let ended = match message[0] & 0x3f {
                    0x21 if message[3] == 0 => true,
                    // The last data may contain the status.
                    0x25 => message[1] & 1 != 0,
                    0x31 => {
                        self.put_data(&mut output, &message[..HEADER_BYTES], &data);
                        false
                    }
                    0x20 if word(20) == NO_TAG => false,
                    other => return Err(format!("a message {other:#x}: {:02x?}", &message[..HEADER_BYTES]).into()),
                };
                if !ended {
                    continue;
                }
                self.initiator.status_number = word(24).wrapping_add(1);
                let slot = word(16) as usize;
                latencies_ns.push((now - started[slot]).as_nanos() as u64);
                if left > 0 && now - begun < load.duration {
                    left -= 1;
                    started[slot] = now;
                    self.put(&mut output, slot, next(), load, &data);
                } else {
                    in_flight -= 1;
                }
            }
            input.copy_within(used..filled, 0);
            filled -= used;
        }
        Ok(latencies_ns)
    }
}
