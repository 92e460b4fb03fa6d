//! The formats of this test's files, with units of time, offset and length, and requests.

use std::sync::LazyLock;

use flashwise_core::access::Op;
use flashwise_trace::request::Request;

use crate::fixtures::requests;

pub const LINES: u64 = 1000;

/// A request in the units of a file.
pub struct Row {
    pub time: String,
    pub offset: u64,
    pub length: u64,
    pub volume: u64,
    pub is_read: bool,
    pub at: u64,
}

/// A spelling of times: a name, the seconds between two requests, and a formatter of seconds since the start.
pub type Clock = (&'static str, f64, fn(f64) -> String);

/// The seconds from 1970 to the first request of a trace with dates.
const START_S: f64 = 1_577_808_000.0;

fn dated(per_s: u64, seconds: f64) -> String {
    let (whole, part) = (START_S as u64 + seconds as u64, seconds.fract());
    (whole * per_s + (part * per_s as f64).round() as u64).to_string()
}

pub const CLOCKS: [Clock; 9] = [
    ("seconds since 1970", 1.0, |s| dated(1, s)),
    ("ms since 1970", 0.01, |s| dated(1000, s)),
    ("slow ms since 1970", 1.0, |s| dated(1000, s)),
    ("us since 1970", 0.01, |s| dated(1_000_000, s)),
    ("ns since 1970", 0.01, |s| dated(1_000_000_000, s)),
    ("filetime", 0.01, |s| (116_444_736_000_000_000 + dated(10_000_000, s).parse::<u64>().unwrap()).to_string()),
    (".NET ticks", 0.01, |s| (621_355_968_000_000_000 + dated(10_000_000, s).parse::<u64>().unwrap()).to_string()),
    ("decimal seconds since 1970", 0.01, |s| format!("{}.{:06}", dated(1, s.floor()), (s.fract() * 1e6).round())),
    ("fast seconds since 1970", 0.001, |s| dated(1, s)),
];

/// Times since the start; the step of whole seconds is one.
pub const RELATIVE: [Clock; 6] = [
    ("seconds", 1.0, |s| (s as u64).to_string()),
    ("ms", 0.01, |s| ((s * 1e3).round() as u64).to_string()),
    ("us", 0.01, |s| ((s * 1e6).round() as u64).to_string()),
    ("ns", 0.01, |s| ((s * 1e6).round() as u64 * 1000).to_string()),
    ("decimal seconds", 0.01, |s| format!("{s:.6}")),
    ("decimal ms", 0.01, |s| format!("{:.3}", s * 1e3)),
];

/// Units of offsets and lengths, in bytes each.
pub const UNITS: &[(u64, u64)] = &[
    (1, 1),
    (512, 512),
    (4096, 4096),
    (1024, 1024),
    (512, 1),
    (1, 512),
    (4096, 1),
    (1, 4096),
    (512, 4096),
    (4096, 512),
];

/// The requests of a trace with these seconds from one to the next.
pub type Pattern = fn(f64) -> Vec<Request>;

/// Requests in bytes and seconds since the start: loops, random jumps, or those of a real trace.
pub const PATTERNS: &[(&str, Pattern)] = &[
    ("loop", |step_s| (0..LINES).map(|at| block(at, at % 500, step_s)).collect()),
    ("noise", |step_s| (0..LINES).map(|at| block(at, at * 7919 % 4093 * 3 % 500, step_s)).collect()),
    ("real", |step_s| {
        static REQUESTS: LazyLock<Vec<Request>> = LazyLock::new(|| requests(LINES as usize));
        let requests = REQUESTS.iter().copied();
        // At the same mean rate as the others, with its own rhythm.
        let start_us = REQUESTS[0].time_us;
        let scale = step_s * LINES as f64 / (REQUESTS[LINES as usize - 1].time_us - start_us) as f64;
        let time_us = |time_us: i64| ((time_us - start_us) as f64 * scale * 1e6) as i64;
        requests.map(|request| Request { time_us: time_us(request.time_us), ..request }).collect()
    }),
    ("mixed sizes", |step_s| scattered(step_s, 4096, &[1, 1, 1, 2, 4, 8, 16, 32])),
    ("sectors", |step_s| scattered(step_s, 512, &[1, 2, 3, 5, 8, 8, 16, 31])),
];

/// Requests at multiples of `unit_bytes` in random order; their lengths are those of `units`.
fn scattered(step_s: f64, unit_bytes: u64, units: &[u64]) -> Vec<Request> {
    let request = |at: u64| Request {
        offset_bytes: at * 0x9E37_79B9 % 0x3F_FFFF * unit_bytes,
        length_bytes: units[(at * 2_654_435 % 1009) as usize % units.len()] * unit_bytes,
        ..block(at, 0, step_s)
    };
    (0..LINES).map(request).collect()
}

/// Returns a request of the block with this number of 4 KiB.
fn block(at: u64, block: u64, step_s: f64) -> Request {
    let op = if at.is_multiple_of(3) { Op::Write } else { Op::Read };
    Request {
        time_us: (at as f64 * step_s * 1e6).round() as i64,
        op,
        volume: 0,
        offset_bytes: block * 4096,
        length_bytes: 4096,
    }
}

/// Formats a row as a line, in the row's units.
pub type Line = fn(&Row) -> String;

fn letter(row: &Row) -> char {
    if row.is_read { 'R' } else { 'W' }
}

fn word(row: &Row) -> &'static str {
    if row.is_read { "Read" } else { "Write" }
}

/// A format, its lines, and its own units: of time in microseconds, of offset and length in bytes.
pub struct Written {
    pub name: &'static str,
    /// The text before the first line.
    pub head: &'static str,
    pub line: Line,
    pub clock: Clock,
    pub units: (u64, u64),
    /// Its columns of time, offset, length and volume; all 0 if columns cannot be given in another order.
    pub columns: [usize; 4],
    /// A column that it does not read.
    pub other: Option<usize>,
}

pub const FORMATS: &[Written] = &[
    Written {
        name: "msr",
        head: "",
        line: |r| format!("{},h,{},{},{},{},{}", r.time, r.volume, word(r), r.offset, r.length, 5 + r.at % 90),
        clock: CLOCKS[5],
        units: (1, 1),
        columns: [0, 4, 5, 2],
        other: Some(6),
    },
    Written {
        name: "spc",
        head: "",
        line: |r| format!("{},{},{},{},{}", r.volume, r.offset, r.length, letter(r), r.time),
        clock: RELATIVE[4],
        units: (512, 1),
        columns: [4, 1, 2, 0],
        other: None,
    },
    Written {
        name: "alibaba",
        head: "",
        line: |r| format!("{},{},{},{},{}", r.volume, letter(r), r.offset, r.length, r.time),
        clock: CLOCKS[3],
        units: (1, 1),
        columns: [4, 2, 3, 0],
        other: None,
    },
    Written {
        name: "tencent",
        head: "",
        line: |r| format!("{},{},{},{},{}", r.time, r.offset, r.length, u8::from(!r.is_read), r.volume),
        clock: CLOCKS[0],
        units: (512, 512),
        columns: [0, 1, 2, 4],
        other: None,
    },
    Written {
        name: "systor",
        head: "",
        line: |r| format!("{},0.00{},{},{},{},{}", r.time, 1 + r.at % 7, letter(r), r.volume, r.offset, r.length),
        clock: CLOCKS[7],
        units: (1, 1),
        columns: [0, 4, 5, 3],
        other: Some(1),
    },
    Written {
        name: "fiu",
        head: "",
        line: |r| format!("{} 4892 syslogd {} {} {} 6 {} 531e", r.time, r.offset, r.length, letter(r), r.volume),
        clock: RELATIVE[3],
        units: (512, 512),
        columns: [0, 3, 4, 7],
        other: Some(1),
    },
    Written {
        name: "disksim",
        head: "",
        line: |r| format!("{} {} {} {} {}", r.time, r.volume, r.offset, r.length, u8::from(r.is_read)),
        clock: RELATIVE[5],
        units: (512, 512),
        columns: [0, 2, 3, 1],
        other: None,
    },
    Written {
        name: "blkparse",
        head: "",
        line: |r| {
            let request = format!("{} + {} [my program]", r.offset, r.length);
            let event = |action: char| {
                format!("  8,{} 1 {} {} 77 {action} {} {request}", r.volume * 16, r.at, r.time, letter(r))
            };
            ['Q', 'D', 'C'].map(event).join("\n")
        },
        clock: RELATIVE[4],
        units: (512, 512),
        columns: [0; 4],
        other: None,
    },
    Written {
        name: "ftrace",
        head: "# tracer: nop\n",
        line: |r| {
            let device = r.volume * 16;
            let request = format!("8,{device} {} 4096 () {} + {} [a b]", letter(r), r.offset, r.length);
            format!(" a b-789 [001] d..1. {}: block_rq_issue: {request}", r.time)
        },
        clock: RELATIVE[4],
        units: (512, 512),
        columns: [0; 4],
        other: None,
    },
    Written {
        name: "biosnoop",
        head: "TIME(s)     COMM           PID    DISK    T SECTOR     BYTES  LAT(ms)\n",
        line: |r| {
            format!("{} a b 77 sd{} {} {} {} 0.{}", r.time, r.volume, letter(r), r.offset, r.length, 10 + r.at % 80)
        },
        clock: RELATIVE[4],
        units: (512, 1),
        columns: [0; 4],
        other: None,
    },
    Written {
        name: "iotrace",
        head: "device.id,device.name,file.path,header.sid,header.timestamp,io.lba,io.len,io.operation\n",
        line: |r| format!("1,sd{},/a,b,1,{},{},{},{}", r.volume, r.time, r.offset, r.length, word(r)),
        clock: CLOCKS[4],
        units: (512, 512),
        columns: [0; 4],
        other: None,
    },
    Written {
        name: "iotrace",
        head: "",
        line: |r| {
            let io = format!(r#""io":{{"lba":"{}","len":{},"operation":"{}"}}"#, r.offset, r.length, word(r));
            format!(
                r#"{{"header":{{"sid":"1","timestamp":"{}"}},{io},"device":{{"id":"1","name":"sd{}"}}}}"#,
                r.time, r.volume
            )
        },
        clock: CLOCKS[4],
        units: (512, 512),
        columns: [0; 4],
        other: None,
    },
    Written {
        name: "etw",
        head: "BeginHeader\n  DiskRead,  TimeStamp,     Process Name ( \
            PID),   ThreadID,             IrpPtr,   ByteOffset,     IOSize, ElapsedTime,  DiskNum\nEndHeader\n",
        line: |r| {
            let range = format!("{:#012x}, {:#010x}", r.offset, r.length);
            format!(
                "   Disk{}, {}, a, b.exe (   4), 84, 0xfffffa8004bfc010, {range}, 110, {}",
                word(r),
                r.time,
                r.volume
            )
        },
        clock: RELATIVE[2],
        units: (1, 1),
        columns: [0; 4],
        other: None,
    },
    Written {
        name: "fio",
        head: "fio version 3 iolog\n0 /dev/sd0 add\n",
        line: |r| format!("{} /dev/sd{} {} {} {}", r.time, r.volume, word(r).to_ascii_lowercase(), r.offset, r.length),
        clock: RELATIVE[2],
        units: (1, 1),
        columns: [0; 4],
        other: None,
    },
    Written {
        name: "flashwise",
        head: "time_us,volume,op,offset,length,flags\n",
        line: |r| format!("{},v{},{},{},{},", r.time, r.volume, word(r).to_ascii_lowercase(), r.offset, r.length),
        clock: CLOCKS[3],
        units: (1, 1),
        columns: [0; 4],
        other: None,
    },
    Written {
        name: "csv",
        head: "time,op,offset,length,device\n",
        line: |r| format!("{},{},{},{},{}", r.time, letter(r), r.offset, r.length, r.volume),
        clock: CLOCKS[0],
        units: (1, 1),
        columns: [0, 2, 3, 4],
        other: None,
    },
];
