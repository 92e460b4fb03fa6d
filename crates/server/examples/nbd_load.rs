//! Makes requests of one size to any NBD server, at a queue depth, over one or more connections, and prints their
//! speed.
//!
//! `nbd_load URI QUEUE_DEPTH read|write|read-on|write-on|fill SECONDS [SERVER_PID [REQUEST_BYTES [CONNECTIONS]]]`. Each
//! connection has this depth. `read` and `write` are random, `read-on` and `write-on` sequential.

use std::error::Error;
use std::io::{Read, Write};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use flashwise_server::front::nbd::Uri;
use flashwise_testing::client::{self, Client};
use flashwise_testing::processor;

type Failure = Box<dyn Error + Send + Sync>;

/// The load of each connection.
#[derive(Clone, Copy)]
struct Load {
    depth: usize,
    writes: bool,
    in_order: bool,
    request_bytes: usize,
    duration: Duration,
}

/// The results of a connection.
struct Figures {
    seconds: f64,
    latencies_ns: Vec<u64>,
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (4..=7, [uri, depth, kind, seconds, rest @ ..]) = (arguments.len(), &arguments[..]) else {
        return Err(
            "usage: nbd_load URI QUEUE_DEPTH read|write|read-on|write-on|fill SECONDS [SERVER_PID [REQUEST_BYTES \
             [CONNECTIONS]]]"
                .into(),
        );
    };
    let number = |index: usize| rest.get(index).map(|number| number.parse::<usize>()).transpose();
    let (pid, request_bytes, connections) = (number(0)?, number(1)?.unwrap_or(4096), number(2)?.unwrap_or(1));
    let uri: Uri = uri.parse()?;
    let open = || Client::open(&uri.address, &uri.export, false);
    let writes = match kind.as_str() {
        "fill" => return fill(&mut open()?),
        "read" | "read-on" => false,
        "write" | "write-on" => true,
        other => return Err(format!("{other:?}: expected read, write, read-on, write-on or fill").into()),
    };
    let duration = Duration::from_secs_f64(seconds.parse()?);
    let in_order = kind.ends_with("-on");
    let load = Load { depth: depth.parse()?, writes, in_order, request_bytes, duration };
    let clients = (0..connections).map(|_| open()).collect::<Result<Vec<_>, _>>()?;
    let cpu_before = pid.map(processor::seconds).transpose()?;
    let barrier = Barrier::new(connections);
    // The connections stay open until the server's processor time is read, so that it excludes closing them.
    let ended: Vec<(Client, Figures)> = std::thread::scope(|scope| {
        let start = |(index, mut client): (usize, Client)| {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                let figures = run(&mut client, load, 1 + index as u64)?;
                Ok::<_, Failure>((client, figures))
            })
        };
        let threads: Vec<_> = clients.into_iter().enumerate().map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect::<Result<_, _>>()
    })?;
    let cpu_after = pid.map(processor::seconds).transpose()?;
    let server_cpu_seconds = cpu_after.zip(cpu_before).map(|(after, before)| after - before);
    let seconds = ended.iter().map(|(_, figures)| figures.seconds).fold(0.0, f64::max);
    let mut latencies_ns: Vec<u64> = ended.into_iter().flat_map(|(_, figures)| figures.latencies_ns).collect();
    processor::tell(&mut latencies_ns, seconds, server_cpu_seconds);
    Ok(())
}

/// Writes all of the export, so that reads find data.
fn fill(client: &mut Client) -> Result<(), Failure> {
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

fn run(client: &mut Client, load: Load, seed: u64) -> Result<Figures, Failure> {
    let Load { depth, writes, in_order, request_bytes, duration } = load;
    let places = client.size / request_bytes as u64;
    let data = vec![0x5a; request_bytes];
    let reply_bytes = if writes { 16 } else { 16 + request_bytes };
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut asked = 0;
    let mut started = vec![Instant::now(); depth];
    let mut output = Vec::new();
    let mut put = |output: &mut Vec<u8>, slot: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        asked += 1;
        let place = if in_order { asked % places } else { state % places };
        let offset = place * request_bytes as u64;
        output.extend(client::request_bytes(u16::from(writes), 0, slot as u64, offset, request_bytes as u32));
        if writes {
            output.extend_from_slice(&data);
        }
    };
    let start = Instant::now();
    started.fill(start);
    (0..depth).for_each(|slot| put(&mut output, slot));
    let mut latencies_ns = Vec::with_capacity(1 << 22);
    let mut input = vec![0; (1 << 20).max(2 * reply_bytes)];
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
    Ok(Figures { seconds: start.elapsed().as_secs_f64(), latencies_ns })
}
