//! Random requests of one size to any NBD server, at a queue depth, and how fast they were answered:
//! `nbd_load URI QUEUE_DEPTH read|write|fill SECONDS [SERVER_PID]`.

use std::error::Error;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use flashwise_server::nbd::Uri;

#[path = "../tests/support/client.rs"]
#[allow(dead_code, clippy::unwrap_used)]
mod client;

use client::{Client, request_bytes};

const BLOCK_BYTES: usize = 4096;
/// What the kernel counts processor time in, by second, on all common machines (`getconf CLK_TCK`).
const TICKS_PER_SECOND: f64 = 100.0;

/// What a run found.
struct Figures {
    seconds: f64,
    latencies_ns: Vec<u64>,
    server_cpu_seconds: Option<f64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (uri, depth, kind, seconds, pid) = match &arguments[..] {
        [uri, depth, kind, seconds] => (uri, depth, kind, seconds, None),
        [uri, depth, kind, seconds, pid] => (uri, depth, kind, seconds, Some(pid.parse::<u32>()?)),
        _ => return Err("usage: nbd_load URI QUEUE_DEPTH read|write|fill SECONDS [SERVER_PID]".into()),
    };
    let uri: Uri = uri.parse()?;
    let mut client = Client::open(&uri.address, &uri.export, false)?;
    let duration = Duration::from_secs_f64(seconds.parse()?);
    let mut figures = match kind.as_str() {
        "fill" => return fill(&mut client),
        "read" => run(&mut client, depth.parse()?, false, duration, pid)?,
        "write" => run(&mut client, depth.parse()?, true, duration, pid)?,
        other => return Err(format!("{other:?}: expected read, write or fill").into()),
    };
    figures.latencies_ns.sort_unstable();
    let count = figures.latencies_ns.len();
    let percentile = |part: f64| figures.latencies_ns[(count as f64 * part) as usize] as f64 / 1000.0;
    let cpu = figures.server_cpu_seconds.map_or("-".into(), |cpu| format!("{:.2}", cpu * 1e6 / count as f64));
    println!(
        "iops {:.0} latency_us p50 {:.1} p99 {:.1} p99.9 {:.1} server_cpu_us_per_io {cpu}",
        count as f64 / figures.seconds,
        percentile(0.5),
        percentile(0.99),
        percentile(0.999),
    );
    Ok(())
}

/// Writes all of the export, so that reads find something.
fn fill(client: &mut Client) -> Result<(), Box<dyn Error>> {
    let chunk: Vec<u8> = (0..1 << 20).map(|index| (index % 251) as u8).collect();
    for offset in (0..client.size).step_by(chunk.len()) {
        let length = (client.size - offset).min(chunk.len() as u64);
        let error = client.write(offset, &chunk[..length as usize])?;
        if error != 0 {
            return Err(format!("writing at {offset}: error {error}").into());
        }
    }
    Ok(())
}

fn run(
    client: &mut Client,
    depth: usize,
    writes: bool,
    duration: Duration,
    pid: Option<u32>,
) -> Result<Figures, Box<dyn Error>> {
    let blocks = client.size / BLOCK_BYTES as u64;
    let data = [0x5a; BLOCK_BYTES];
    let reply_bytes = if writes { 16 } else { 16 + BLOCK_BYTES };
    let mut state = 1_u64;
    let mut started = vec![Instant::now(); depth];
    let mut output = Vec::new();
    let mut put = |output: &mut Vec<u8>, slot: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let offset = state % blocks * BLOCK_BYTES as u64;
        output.extend(request_bytes(u16::from(writes), 0, slot as u64, offset, BLOCK_BYTES as u32));
        if writes {
            output.extend_from_slice(&data);
        }
    };
    let cpu_before = pid.map(cpu_seconds).transpose()?;
    let start = Instant::now();
    started.fill(start);
    (0..depth).for_each(|slot| put(&mut output, slot));
    let mut latencies_ns = Vec::with_capacity(1 << 22);
    let mut input = vec![0; 1 << 20];
    let mut filled = 0;
    let mut in_flight = depth;
    while in_flight > 0 {
        client.socket.write_all(&output)?;
        output.clear();
        let count = client.socket.read(&mut input[filled..])?;
        if count == 0 {
            return Err("the server closed the connection".into());
        }
        filled += count;
        let now = Instant::now();
        let mut used = 0;
        while filled - used >= reply_bytes {
            let reply = &input[used..];
            if reply[..8] != *b"\x67\x44\x66\x98\0\0\0\0" {
                return Err(format!("not a good reply: {:02x?}", &reply[..16]).into());
            }
            let slot = u64::from_be_bytes(reply[8..16].try_into()?) as usize;
            latencies_ns.push((now - started[slot]).as_nanos() as u64);
            used += reply_bytes;
            if now - start < duration {
                started[slot] = now;
                put(&mut output, slot);
            } else {
                in_flight -= 1;
            }
        }
        input.copy_within(used..filled, 0);
        filled -= used;
    }
    let seconds = start.elapsed().as_secs_f64();
    let cpu_after = pid.map(cpu_seconds).transpose()?;
    let server_cpu_seconds = cpu_after.zip(cpu_before).map(|(after, before)| after - before);
    Ok(Figures { seconds, latencies_ns, server_cpu_seconds })
}

/// Processor time of a process and its threads, user and system: fields 14 and 15 of `/proc/PID/stat`.
fn cpu_seconds(pid: u32) -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit_once(") ").ok_or("/proc/PID/stat has no name")?.1;
    let ticks: Vec<u64> = after_name.split(' ').skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<u64>() as f64 / TICKS_PER_SECOND)
}
