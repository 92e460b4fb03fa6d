//! The load of the demo, and the NBD client that sends it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use flashwise_server::front::nbd::protocol::{
    NBD_OPTS_MAGIC, NBD_REQUEST_MAGIC, NBD_SIMPLE_REPLY_MAGIC, command, option,
};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Size of a request.
pub const BLOCK_BYTES: u64 = 4096;
/// Share of the requests that write.
const WRITES: f64 = 0.3;
/// Seed of the load, which is always the same.
const SEED: u64 = 1;
/// Time to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request for one block.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub is_write: bool,
    pub block: u64,
}

/// Requests without end, 70 % of them reads, with blocks from a Zipf distribution.
pub struct ZipfLoad {
    random: Xoshiro256PlusPlus,
    ranks: Zipf<f64>,
    blocks: u64,
}

impl ZipfLoad {
    /// A load on a volume of `bytes`.
    pub fn on(bytes: u64) -> anyhow::Result<ZipfLoad> {
        let blocks = bytes / BLOCK_BYTES;
        let ranks = Zipf::new(blocks as f64, 0.9).context("the demo's load")?;
        Ok(ZipfLoad { random: Xoshiro256PlusPlus::seed_from_u64(SEED), ranks, blocks })
    }
}

impl Iterator for ZipfLoad {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        // Spread ranks over the volume; the factor is odd, so each rank has a block of its own.
        let rank = self.ranks.sample(&mut self.random) as u64 - 1;
        let block = rank.wrapping_mul(0x9E37_79B1) % self.blocks;
        Some(Request { is_write: self.random.random_bool(WRITES), block })
    }
}

/// A minimal NBD client. Source: the NBD protocol, fixed newstyle negotiation, NBD_OPT_EXPORT_NAME.
pub struct DemoClient {
    socket: UnixStream,
    data: Vec<u8>,
}

impl DemoClient {
    /// Opens an export.
    pub fn open(socket: &Path, export: &str) -> anyhow::Result<DemoClient> {
        let mut socket = UnixStream::connect(socket)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut greeting = [0; 18];
        socket.read_exact(&mut greeting)?;
        // Client flags: fixed newstyle, no zeroes after the answer.
        let mut hello = 3_u32.to_be_bytes().to_vec();
        hello.extend(NBD_OPTS_MAGIC.to_be_bytes());
        hello.extend(option::NBD_OPT_EXPORT_NAME.to_be_bytes());
        hello.extend((export.len() as u32).to_be_bytes());
        hello.extend(export.as_bytes());
        socket.write_all(&hello)?;
        socket.read_exact(&mut [0; 10])?;
        Ok(DemoClient { socket, data: vec![0; BLOCK_BYTES as usize] })
    }

    /// Sends a request. Its answer must be received before the next request.
    pub fn send(&mut self, Request { is_write, block }: Request) -> anyhow::Result<()> {
        let kind = if is_write { command::NBD_CMD_WRITE } else { command::NBD_CMD_READ };
        let mut request = NBD_REQUEST_MAGIC.to_be_bytes().to_vec();
        request.extend(0_u16.to_be_bytes());
        request.extend(kind.to_be_bytes());
        request.extend(block.to_be_bytes());
        request.extend((block * BLOCK_BYTES).to_be_bytes());
        request.extend((BLOCK_BYTES as u32).to_be_bytes());
        if is_write {
            request.extend(&self.data);
        }
        self.socket.write_all(&request)?;
        Ok(())
    }

    /// Waits for the answer to the request that was sent.
    pub fn receive(&mut self, Request { is_write, .. }: Request) -> anyhow::Result<()> {
        let mut reply = [0; 16];
        self.socket.read_exact(&mut reply)?;
        let (magic, error) = (&reply[..4], &reply[4..8]);
        ensure!(magic == NBD_SIMPLE_REPLY_MAGIC.to_be_bytes() && error == [0; 4], "found the reply {reply:x?}");
        if !is_write {
            self.socket.read_exact(&mut self.data)?;
        }
        Ok(())
    }
}
