//! The first requests of the bundled trace, in every format and compression.

use std::fmt::Write as _;
use std::io::{Cursor, Write as _};
use std::path::Path;

use flashwise_core::access::Op;
use flashwise_trace::Trace;
use flashwise_trace::formats::{FormatSpec, Parser, Sample};
use flashwise_trace::input::Input;
use flashwise_trace::normalised::{Settings, normalise, parse};
use flashwise_trace::progress::Silent;
use flashwise_trace::request::Request;

pub const BLOCK_SIZE_BYTES: u64 = 4096;

/// A trace in one format.
pub struct Fixture {
    /// The format, with its options.
    pub spec: &'static str,
    pub volume: &'static str,
    pub contents: Vec<u8>,
    /// The requests with the properties that the format keeps.
    pub requests: Vec<Request>,
}

/// Returns the contents of `path` in the repository's `traces` directory.
pub fn bundled(path: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces").join(path);
    zstd::decode_all(std::fs::File::open(path).unwrap()).unwrap()
}

/// Returns the first `count` requests of the bundled trace, parsed independently, with times from 1,000 s.
pub fn requests(count: usize) -> Vec<Request> {
    let text = String::from_utf8(bundled("netsfs.csv.zst")).unwrap();
    let mut start = None;
    let request = |line: &str| {
        let fields: Vec<_> = line.split(',').collect();
        let time_us: i64 = fields[0].parse::<i64>().unwrap() / 10;
        let op = if fields[3] == "Read" { Op::Read } else { Op::Write };
        let time_us = 1_000_000_000 + time_us - *start.get_or_insert(time_us);
        let (offset_bytes, length_bytes) = (fields[4].parse().unwrap(), fields[5].parse().unwrap());
        Request { time_us, op, volume: 0, offset_bytes, length_bytes }
    };
    text.lines().take(count).map(request).collect()
}

/// Returns the first `count` requests in each format.
pub fn all(count: usize) -> Vec<Fixture> {
    let requests = requests(count);
    let text = |line: &dyn Fn(&mut String, &Request)| {
        let mut text = String::new();
        for request in &requests {
            line(&mut text, request);
            text.push('\n');
        }
        text.into_bytes()
    };
    let letter = |request: &Request| if request.op == Op::Read { 'R' } else { 'W' };
    let kept = |keep: &dyn Fn(&mut Request)| {
        let mut kept = requests.clone();
        kept.iter_mut().for_each(keep);
        kept
    };
    let whole_seconds = |request: &mut Request| request.time_us -= request.time_us % 1_000_000;
    let reads_without_times = |request: &mut Request| (request.time_us, request.op) = (0, Op::Read);
    let first_block = |request: &mut Request| {
        request.offset_bytes -= request.offset_bytes % BLOCK_SIZE_BYTES;
        request.length_bytes = BLOCK_SIZE_BYTES;
    };
    let fixture = |spec, volume, contents, requests| Fixture { spec, volume, contents, requests };
    let same = requests.clone();
    vec![
        fixture(
            "msr",
            "nfs.0",
            text(&|out, r| {
                let op = if r.op == Op::Read { "Read" } else { "Write" };
                write!(out, "{},nfs,0,{op},{},{},1700", r.time_us * 10 + 7, r.offset_bytes, r.length_bytes).unwrap();
            }),
            same.clone(),
        ),
        fixture(
            "spc",
            "3",
            text(&|out, r| {
                let (sector, op) = (r.offset_bytes / 512, letter(r).to_ascii_lowercase());
                write!(out, "3,{sector},{},{op},{}", r.length_bytes, decimals(r.time_us, 6)).unwrap();
            }),
            same.clone(),
        ),
        fixture(
            "alibaba",
            "3",
            text(&|out, r| {
                write!(out, "3,{},{},{},{}", letter(r), r.offset_bytes, r.length_bytes, r.time_us).unwrap();
            }),
            same.clone(),
        ),
        fixture(
            "tencent",
            "3",
            text(&|out, r| {
                let (seconds, sector, sectors) = (r.time_us / 1_000_000, r.offset_bytes / 512, r.length_bytes / 512);
                write!(out, "{seconds},{sector},{sectors},{},3", r.op as u8).unwrap();
            }),
            kept(&whole_seconds),
        ),
        fixture(
            "systor",
            "3",
            text(&|out, r| {
                let time = decimals(r.time_us, 6);
                write!(out, "{time}000,0.000017,{},3,{},{}", letter(r), r.offset_bytes, r.length_bytes).unwrap();
            }),
            same.clone(),
        ),
        fixture(
            "meta",
            "a1-b2/3",
            text(&|out, r| {
                let (seconds, op) = (r.time_us / 1_000_000, if r.op == Op::Read { "getChunkData" } else { "putChunk" });
                write!(out, "{seconds},a1-b2,5,{},{},7,8,{op}.Permanent,1,9,3", r.length_bytes, r.offset_bytes)
                    .unwrap();
            }),
            kept(&whole_seconds),
        ),
        fixture(
            "fiu",
            "6,0",
            text(&|out, r| {
                let (sector, sectors) = (r.offset_bytes / 512, r.length_bytes / 512);
                write!(out, "{}999 2522 nfsd {sector} {sectors} {} 6 0 98b9cb7e", r.time_us, letter(r)).unwrap();
            }),
            same.clone(),
        ),
        fixture(
            "blkparse",
            "8,16",
            text(&|out, r| {
                let (time, sector, sectors) = (decimals(r.time_us, 6), r.offset_bytes / 512, r.length_bytes / 512);
                let op = letter(r);
                for action in ["Q", "G", "D", "C"] {
                    let end = if action == "C" { "" } else { "\n" };
                    write!(
                        out,
                        "  8,16   5        1  {time}000 18615  {action}  {op}S {sector} + {sectors} [nfsd]{end}"
                    )
                    .unwrap();
                }
            }),
            same.clone(),
        ),
        fixture("blktrace", "8,16", records(&requests, blktrace), same.clone()),
        fixture(
            "ftrace",
            "8,16",
            text(&|out, r| {
                let (time, sector, sectors) = (decimals(r.time_us, 6), r.offset_bytes / 512, r.length_bytes / 512);
                let op = letter(r);
                for (event, cmd) in [("bio_queue", ""), ("getrq", ""), ("rq_issue", " 0 ()"), ("rq_complete", " ()")] {
                    let end = if event == "rq_complete" { "" } else { "\n" };
                    write!(
                        out,
                        "  my nfsd-18615   [005] d..1.  {time}: block_{event}: 8,16 {op}S{cmd} {sector} + {sectors} \
                         [my nfsd]{end}"
                    )
                    .unwrap();
                }
            }),
            same.clone(),
        ),
        fixture(
            "biosnoop",
            "sdb",
            {
                let head = b"TIME(s)     COMM           PID     DISK      T SECTOR     BYTES   LAT(ms)\n".to_vec();
                let lines = text(&|out, r| {
                    let (time, sector) = (decimals(r.time_us, 6), r.offset_bytes / 512);
                    write!(
                        out,
                        "{time} my nfsd        18615   sdb       {} {sector} {} 0.75",
                        letter(r),
                        r.length_bytes
                    )
                    .unwrap();
                });
                [head, lines].concat()
            },
            same.clone(),
        ),
        fixture(
            "iotrace",
            "sdb",
            text(&|out, r| {
                let (sector, sectors) = (r.offset_bytes / 512, r.length_bytes / 512);
                let op = if r.op == Op::Read { "Read" } else { "Write" };
                write!(
                    out,
                    r#"{{"header":{{"sid":"1","timestamp":"{}999"}},"io":{{"lba":"{sector}","len":{sectors},"operation":"{op}"}},"device":{{"id":"1","name":"sdb"}}}}"#,
                    r.time_us
                )
                .unwrap();
            }),
            same.clone(),
        ),
        fixture(
            "iotrace",
            "sdb",
            {
                let head = b"device.id,device.name,file.path,header.sid,header.timestamp,io.lba,io.len,io.operation\n"
                    .to_vec();
                let lines = text(&|out, r| {
                    let (sector, sectors) = (r.offset_bytes / 512, r.length_bytes / 512);
                    let op = if r.op == Op::Read { "Read" } else { "Write" };
                    write!(out, "1,sdb,/a,b,1,{}999,{sector},{sectors},{op}", r.time_us).unwrap();
                });
                [head, lines].concat()
            },
            same.clone(),
        ),
        fixture(
            "etw",
            "3",
            {
                let head = b"BeginHeader\n  DiskRead,  TimeStamp,     Process Name ( \
                    PID),   ThreadID,             IrpPtr,   ByteOffset,     IOSize, ElapsedTime,  DiskNum, \
                    IrpFlags\nEndHeader\n"
                    .to_vec();
                let lines = text(&|out, r| {
                    let op = if r.op == Op::Read { "Read" } else { "Write" };
                    write!(
                        out,
                        "   Disk{op}, {:10}, a, b.exe (   4), 84, 0xfffffa8004bfc010, {:#012x}, {:#010x}, 110, 3, \
                         0x060a00",
                        r.time_us, r.offset_bytes, r.length_bytes
                    )
                    .unwrap();
                });
                [head, lines].concat()
            },
            same.clone(),
        ),
        fixture(
            "fio",
            "/dev/sdb",
            {
                let head = b"fio version 3 iolog\n0 /dev/sdb add\n0 /dev/sdb open\n".to_vec();
                let lines = text(&|out, r| {
                    let action = if r.op == Op::Read { "read" } else { "write" };
                    write!(out, "{} /dev/sdb {action} {} {}", r.time_us, r.offset_bytes, r.length_bytes).unwrap();
                });
                [head, lines].concat()
            },
            same.clone(),
        ),
        fixture(
            "disksim",
            "3",
            text(&|out, r| {
                let (sector, sectors) = (r.offset_bytes / 512, r.length_bytes / 512);
                write!(out, "{} 3 {sector} {sectors} {}", decimals(r.time_us, 3), 1 - r.op as u8).unwrap();
            }),
            same.clone(),
        ),
        fixture(
            "lis",
            "0",
            {
                let mut number = 0..;
                let lines = requests.iter().map(|r| {
                    format!("{} {} 0 {}\n", r.offset_bytes / 512, r.length_bytes / 512, number.next().unwrap_or(0))
                });
                lines.collect::<String>().into_bytes()
            },
            kept(&reads_without_times),
        ),
        fixture(
            "blocks",
            "0",
            text(&|out, r| write!(out, "{}", r.offset_bytes / BLOCK_SIZE_BYTES).unwrap()),
            kept(&|r| {
                first_block(r);
                reads_without_times(r);
            }),
        ),
        fixture(
            "raw-blocks:type=int64",
            "0",
            records(&requests, |r| (r.offset_bytes / BLOCK_SIZE_BYTES).to_le_bytes().to_vec()),
            kept(&|r| {
                first_block(r);
                reads_without_times(r);
            }),
        ),
        fixture("vscsi:version=1", "0", records(&requests, vscsi_1), same.clone()),
        fixture("vscsi:version=2", "0", records(&requests, vscsi_2), same.clone()),
        fixture(
            "oracle-general",
            "0",
            oracle_general(&requests),
            kept(&|r| {
                first_block(r);
                whole_seconds(r);
                r.op = Op::Read;
            }),
        ),
        fixture("lcs", "0", lcs(&requests), {
            let mut requests = kept(&whole_seconds);
            requests.iter_mut().for_each(first_block);
            requests
        }),
        fixture(
            "mooncake",
            "0",
            text(&|out, r| {
                let (time, block) = (decimals(r.time_us, 3), r.offset_bytes / BLOCK_SIZE_BYTES);
                write!(out, r#"{{"timestamp": {time}, "input_length": 512, "hash_ids": [{block}]}}"#).unwrap();
            }),
            kept(&|r| {
                first_block(r);
                r.op = Op::Read;
            }),
        ),
        fixture(
            "flashwise",
            "sda",
            {
                let header = b"time_us,volume,op,offset,length,flags\n".to_vec();
                let lines = text(&|out, r| {
                    let (op, flags) = if r.op == Op::Read { ("read", "") } else { ("write", "fua") };
                    write!(out, "{},sda,{op},{},{},{flags}", r.time_us, r.offset_bytes, r.length_bytes).unwrap();
                });
                [header, lines].concat()
            },
            same.clone(),
        ),
        fixture(
            "csv",
            "sda",
            {
                let header = b"ts_us,op,lba_sectors,len_bytes,device\n".to_vec();
                let lines = text(&|out, r| {
                    let op = letter(r);
                    write!(out, "{},{op},{},{},sda", r.time_us, r.offset_bytes / 512, r.length_bytes).unwrap();
                });
                [header, lines].concat()
            },
            same.clone(),
        ),
        fixture(
            "csv",
            "sda",
            {
                let header = b"datetime|op|lba|bytes|device\n".to_vec();
                let lines = text(&|out, r| {
                    let (s, us) = (r.time_us / 1_000_000, r.time_us % 1_000_000);
                    let date = format!("1970-01-01T{:02}:{:02}:{:02}.{us:06}Z", s / 3600, s / 60 % 60, s % 60);
                    write!(out, "{date}|{}|{:#x}|{}.0|sda", letter(r), r.offset_bytes / 512, r.length_bytes).unwrap();
                });
                [header, lines].concat()
            },
            same,
        ),
    ]
}

/// Formats a time with `digits` decimals, in a unit of 10^`digits` microseconds.
fn decimals(time_us: i64, digits: usize) -> String {
    let unit = 10_i64.pow(digits as u32);
    format!("{}.{:0digits$}", time_us / unit, time_us % unit)
}

fn records(requests: &[Request], record: fn(&Request) -> Vec<u8>) -> Vec<u8> {
    requests.iter().flat_map(record).collect()
}

fn vscsi_1(r: &Request) -> Vec<u8> {
    let command = if r.op == Op::Read { 0x28_u16 } else { 0x2A };
    let head = [9, r.length_bytes as u32, 1].map(u32::to_le_bytes).concat();
    let tail = [r.offset_bytes / 512, r.time_us as u64].map(u64::to_le_bytes).concat();
    [head, [command, 0x0100].map(u16::to_le_bytes).concat(), tail].concat()
}

fn vscsi_2(r: &Request) -> Vec<u8> {
    let command = if r.op == Op::Read { 0x88_u16 } else { 0x8A };
    let head = [9, r.length_bytes as u32, 1].map(u32::to_le_bytes).concat();
    let tail = [r.offset_bytes / 512, r.time_us as u64, 1700].map(u64::to_le_bytes).concat();
    [[command, 0x0200].map(u16::to_le_bytes).concat(), head, tail].concat()
}

/// Returns an event Q and an event C, with data after it, in big-endian order.
fn blktrace(r: &Request) -> Vec<u8> {
    let category = if r.op == Op::Read { 1 << 16 } else { 1 << 17 };
    let event = |action: u32, data: u16| {
        let head = [0x6561_7407_u32, 1].map(u32::to_be_bytes).concat();
        let range = [r.time_us as u64 * 1000 + 999, r.offset_bytes / 512].map(u64::to_be_bytes).concat();
        let middle = [r.length_bytes as u32, action | category, 18615, 8 << 20 | 16, 5].map(u32::to_be_bytes).concat();
        [head, range, middle, [0, data].map(u16::to_be_bytes).concat(), vec![0xAA; data.into()]].concat()
    };
    [event(1, 0), event(8, 5)].concat()
}

fn oracle_general(requests: &[Request]) -> Vec<u8> {
    let objects: Vec<_> = requests.iter().map(|r| r.offset_bytes / BLOCK_SIZE_BYTES).collect();
    let mut out = Vec::new();
    for (position, request) in requests.iter().enumerate() {
        let later = objects[position + 1..].iter().position(|object| *object == objects[position]);
        let next = later.map_or(-1, |distance| (position + 1 + distance) as i64);
        out.extend(((request.time_us / 1_000_000) as u32).to_le_bytes());
        out.extend(objects[position].to_le_bytes());
        out.extend((request.length_bytes as u32).to_le_bytes());
        out.extend(next.to_le_bytes());
    }
    out
}

/// Returns a trace of version 3: its records of 36 bytes do not divide the header's 8192.
fn lcs(requests: &[Request]) -> Vec<u8> {
    let magic = 0x1234_5678_9abc_def0_u64.to_le_bytes();
    let mut out = [&magic[..], &3_u64.to_le_bytes(), &[0; 8192 - 24], &magic].concat();
    for r in requests {
        out.extend(((r.time_us / 1_000_000) as u32).to_le_bytes());
        out.extend((r.offset_bytes / BLOCK_SIZE_BYTES).to_le_bytes());
        out.extend(r.length_bytes.to_le_bytes());
        out.extend([if r.op == Op::Read { 12 } else { 13 }, 1, 0, 0]);
        out.extend([0; 4]);
        out.extend(i64::MAX.to_le_bytes());
    }
    out
}

/// A compression: its name and function.
pub type Compression = (&'static str, fn(&[u8]) -> Vec<u8>);

pub const COMPRESSIONS: [Compression; 6] =
    [("none", <[u8]>::to_vec), ("gzip", gzip), ("zstd", zstandard), ("xz", xz), ("bzip2", bzip2), ("lz4", lz4)];

pub fn gzip(contents: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(contents).unwrap();
    encoder.finish().unwrap()
}

pub fn zstandard(contents: &[u8]) -> Vec<u8> {
    // With a checksum, like the zstd program, so that damage is detected.
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(contents).unwrap();
    encoder.finish().unwrap()
}

pub fn xz(contents: &[u8]) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 0);
    encoder.write_all(contents).unwrap();
    encoder.finish().unwrap()
}

pub fn bzip2(contents: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(contents).unwrap();
    encoder.finish().unwrap()
}

pub fn lz4(contents: &[u8]) -> Vec<u8> {
    // With checksums, like the lz4 program.
    let info = lz4_flex::frame::FrameInfo::new().block_checksums(true).content_checksum(true);
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(contents).unwrap();
    encoder.finish().unwrap()
}

/// Returns a tar archive of these files.
pub fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, contents) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(contents.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, *contents).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Returns a zip archive of these files, stored or deflated.
pub fn zip(files: &[(&str, &[u8])], deflated: bool) -> Vec<u8> {
    let method = if deflated { rawzip::CompressionMethod::DEFLATE } else { rawzip::CompressionMethod::STORE };
    let mut bytes = Vec::new();
    let mut archive = rawzip::ZipArchiveWriter::new(&mut bytes);
    for (name, contents) in files {
        let (mut entry, config) = archive.new_file(name).compression_method(method).start().unwrap();
        let descriptor = if deflated {
            let encoder = flate2::write::DeflateEncoder::new(&mut entry, flate2::Compression::fast());
            let mut writer = config.wrap(encoder);
            writer.write_all(contents).unwrap();
            let (encoder, descriptor) = writer.finish().unwrap();
            encoder.finish().unwrap();
            descriptor
        } else {
            let mut writer = config.wrap(&mut entry);
            writer.write_all(contents).unwrap();
            writer.finish().unwrap().1
        };
        entry.finish(descriptor).unwrap();
    }
    archive.finish().unwrap();
    bytes
}

/// Returns an input named `trace` with these bytes.
pub fn input(bytes: Vec<u8>) -> Result<Input<'static>, String> {
    Input::new("trace", Box::new(Cursor::new(bytes)), &Silent).map_err(|error| chain(&error))
}

/// Formats an error with all its causes.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        write!(text, ": {error}").unwrap();
        cause = error.source();
    }
    text
}

/// The name of a format, and requests with the names of their volumes.
pub type Read = (&'static str, Vec<(String, Request)>);

/// Returns the recognised format and the requests with the names of their volumes, without the normaliser.
pub fn read(bytes: Vec<u8>) -> Result<Read, String> {
    let mut input = input(bytes)?;
    let mut head = vec![0; 64 << 10];
    let filled = input.fill(&mut head).map_err(|error| chain(&error))?;
    head.truncate(filled);
    let sample = Sample { bytes: &head, whole: filled < 64 << 10 };
    let spec = FormatSpec::recognise("trace", &sample).map_err(|error| chain(&error))?;
    let parser: Parser = spec.parser(&sample, BLOCK_SIZE_BYTES).map_err(|error| chain(&error))?;
    let mut requests = Vec::new();
    parse(&mut input, head, &*parser, |batch, _| {
        assert_eq!(batch.malformed, []);
        let named = |request: &Request| {
            let name = String::from_utf8(batch.volumes.names()[request.volume as usize].clone()).unwrap();
            (name, Request { volume: 0, ..*request })
        };
        requests.extend(batch.requests.iter().map(named));
        Ok(())
    })
    .map_err(|error| chain(&error))?;
    Ok((spec.format().name, requests))
}

/// Normalises and maps a trace.
pub fn trace(bytes: Vec<u8>, settings: &Settings) -> Result<Trace, String> {
    let input = input(bytes)?;
    let file = normalise(input, settings, tempfile::tempfile().unwrap()).map_err(|error| chain(&error))?;
    Trace::map("trace", &file).map_err(|error| chain(&error))
}
