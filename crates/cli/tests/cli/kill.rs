//! A server that is killed while a client writes, again and again: nothing that was flushed is lost.
//!
//! `FLASHWISE_KILLS` sets how often, `FLASHWISE_SEED` the seed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::serving::Setting;
use flashwise_core::random::next as random;
use flashwise_server::front::nbd::protocol::command::{NBD_CMD_FLUSH, NBD_CMD_READ, NBD_CMD_WRITE};
use flashwise_server::front::nbd::protocol::command_flag::NBD_CMD_FLAG_FUA;
use flashwise_testing::client::Client;
use flashwise_testing::setting;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 6_000;
const IN_FLIGHT: usize = 16;

/// The versions that a block may have: numbers that only grow.
#[derive(Clone, Copy, Default)]
struct Block {
    durable: u64,
    answered: u64,
    sent: u64,
}

enum Sent {
    Write { block: u64, count: u64, version: u64, durable: bool },
    Flush { answered: Vec<u64> },
}

struct Verifier {
    blocks: Vec<Block>,
    state: u64,
    next_version: u64,
    next_cookie: u64,
    lost: u64,
    flushes: u64,
    writes: u64,
}

fn content(block: u64, version: u64) -> Vec<u8> {
    if version == 0 {
        return vec![0; BLOCK as usize];
    }
    let mut bytes = [block.to_le_bytes(), version.to_le_bytes()].concat();
    while bytes.len() < BLOCK as usize {
        bytes.extend_from_within(..16);
    }
    bytes
}

impl Verifier {
    /// Reads every block. Each must be complete and at least as new as its flushed content. Later reads must agree.
    fn verify(&mut self, client: &mut Client) -> Result<(), String> {
        let step = 250;
        for first in (0..BLOCKS).step_by(step) {
            let bytes = client.read(first * BLOCK, (step as u64 * BLOCK) as u32).unwrap();
            for (block, bytes) in (first..).zip(bytes.chunks(BLOCK as usize)) {
                let version = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
                if bytes != content(block, version) {
                    return Err(format!("block {block} is mixed: it starts with {:x?}", &bytes[..32]));
                }
                let state = &mut self.blocks[block as usize];
                if version < state.durable || version > state.sent {
                    self.lost += 1;
                    return Err(format!(
                        "block {block} has version {version}; {} was flushed, {} sent last",
                        state.durable, state.sent
                    ));
                }
                *state = Block { durable: version, answered: version, sent: version };
            }
        }
        Ok(())
    }

    fn take_cookie(&mut self) -> u64 {
        self.next_cookie += 1;
        self.next_cookie
    }

    fn send_one(&mut self, client: &mut Client) -> std::io::Result<(u64, Sent)> {
        let cookie = self.take_cookie();
        if random(&mut self.state).is_multiple_of(40) {
            let answered = self.blocks.iter().map(|block| block.answered).collect();
            client.request(NBD_CMD_FLUSH, 0, cookie, 0, 0)?;
            return Ok((cookie, Sent::Flush { answered }));
        }
        let count = [1, 1, 1, 2, 8][random(&mut self.state) as usize % 5];
        let limit = if random(&mut self.state).is_multiple_of(2) { BLOCKS / 10 } else { BLOCKS };
        let block = random(&mut self.state) % (limit - count);
        let durable = random(&mut self.state).is_multiple_of(30);
        let version = self.next_version;
        self.next_version += 1;
        let mut data = Vec::new();
        for block in block..block + count {
            data.extend(content(block, version));
            self.blocks[block as usize].sent = version;
        }
        let flags = if durable { NBD_CMD_FLAG_FUA } else { 0 };
        client.request(NBD_CMD_WRITE, flags, cookie, block * BLOCK, (count * BLOCK) as u32)?;
        client.give(&data)?;
        Ok((cookie, Sent::Write { block, count, version, durable }))
    }

    fn answered(&mut self, sent: Sent) {
        match sent {
            Sent::Write { block, count, version, durable } => {
                self.writes += 1;
                for block in &mut self.blocks[block as usize..(block + count) as usize] {
                    block.answered = block.answered.max(version);
                    if durable {
                        block.durable = block.durable.max(version);
                    }
                }
            }
            Sent::Flush { answered } => {
                self.flushes += 1;
                for (block, version) in self.blocks.iter_mut().zip(answered) {
                    block.durable = block.durable.max(version);
                }
            }
        }
    }

    /// Writes until `end`, and until a flush is answered. Requests without an answer by then never get one.
    fn work(&mut self, client: &mut Client, end: Instant) -> std::io::Result<()> {
        let mut in_flight: HashMap<u64, Sent> = HashMap::new();
        while Instant::now() < end || self.flushes == 0 {
            while in_flight.len() < IN_FLIGHT {
                let (cookie, sent) = self.send_one(client)?;
                in_flight.insert(cookie, sent);
            }
            if random(&mut self.state).is_multiple_of(50) {
                // A read among the writes, whose content is checked when the server is back.
                let (cookie, block) = (self.take_cookie(), random(&mut self.state) % BLOCKS);
                client.request(NBD_CMD_READ, 0, cookie, block * BLOCK, BLOCK as u32)?;
            }
            let reply = client.reply(0)?;
            assert_eq!(reply.error, 0);
            if let Some(sent) = in_flight.remove(&reply.cookie) {
                self.answered(sent);
            }
        }
        Ok(())
    }
}

/// Kills a server `kills` times; `Err` when something was lost.
fn kill_and_verify(keys: &str, kills: u64, seed: u64) -> Result<Verifier, String> {
    let setting = Setting::new(BLOCKS * BLOCK, keys);
    let mut verifier = Verifier {
        blocks: vec![Block::default(); BLOCKS as usize],
        state: seed,
        next_version: 1,
        next_cookie: 0,
        lost: 0,
        flushes: 0,
        writes: 0,
    };
    for kill in 0..=kills {
        let server = setting.serve();
        let mut client = Client::open(&setting.address(), "v", true).unwrap();
        verifier.verify(&mut client).map_err(|error| format!("seed {seed}, after kill {kill}: {error}"))?;
        if kill == kills {
            server.end();
            break;
        }
        let milliseconds = 20 + random(&mut verifier.state) % 400;
        verifier.work(&mut client, Instant::now() + Duration::from_millis(milliseconds)).unwrap();
        server.kill();
    }
    Ok(verifier)
}

const KEYS: &str = "flash-size = \"12MiB\"\nerase-unit = \"256KiB\"\nram = \"2MiB\"\nsequential-bypass = 0";

#[test]
fn flushed_data_survives_kill_9() {
    let (kills, seed) = (setting("FLASHWISE_KILLS", 20), setting("FLASHWISE_SEED", 1));
    for (mode, share) in [("write-back", 6), ("write-through", 2), ("write-around", 2)] {
        let keys = format!("{KEYS}\nwrite-mode = \"{mode}\"");
        let kills = (kills * share).div_ceil(10);
        let verifier = kill_and_verify(&keys, kills, seed).unwrap_or_else(|error| panic!("{mode}: {error}"));
        assert!(verifier.flushes > 0 && verifier.writes > 0, "the client did nothing");
        println!("{mode}: {kills} kills, {} writes, {} flushes, none lost", verifier.writes, verifier.flushes);
    }
}

/// The same with the layout of buckets.
#[test]
fn data_flushed_by_wlfc_survives_kill_9() {
    let (kills, seed) = (setting("FLASHWISE_KILLS", 20), setting("FLASHWISE_SEED", 1));
    let keys = "flash-size = \"12MiB\"\nerase-unit = \"256KiB\"\nlayout = \"wlfc\"";
    for (name, more) in [("a file", ""), ("zones", "\nflash-zones = \"size=256KiB,max-active=8,max-open=8\"")] {
        let kills = kills.div_ceil(2);
        let verifier =
            kill_and_verify(&format!("{keys}{more}"), kills, seed).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(verifier.flushes > 0 && verifier.writes > 0, "the client did nothing");
        println!("{name}: {kills} kills, {} writes, {} flushes, none lost", verifier.writes, verifier.flushes);
    }
}

/// The control: a server that only pretends to flush is caught.
#[test]
fn a_server_that_ignores_flushes_is_caught() {
    let keys = format!("{KEYS}\nunsafe-ignore-flushes = true");
    let error = kill_and_verify(&keys, 20, 1).err().expect("lost data is found");
    assert!(error.contains("was flushed"), "{error}");
}
