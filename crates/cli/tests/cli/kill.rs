//! A server that is killed while a client writes, again and again: nothing that was flushed is lost.
//!
//! `FLASHWISE_KILLS` sets how often, `FLASHWISE_SEED` the seed.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::serving::{Server, Setting};
use flashwise_server::front::nbd::protocol::command::{
    NBD_CMD_FLUSH, NBD_CMD_READ, NBD_CMD_WRITE, NBD_CMD_WRITE_ZEROES,
};
use flashwise_server::front::nbd::protocol::command_flag::NBD_CMD_FLAG_FUA;
use flashwise_testing::client::Client;
use flashwise_testing::history::History;
use flashwise_testing::random::Random;
use flashwise_testing::setting;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 6_000;
const IN_FLIGHT: usize = 16;

enum Sent {
    Write { first: usize, submitted: Vec<u64>, durable: bool },
    Flush { answered: Vec<u64> },
}

struct Verifier {
    /// The contents are the numbers of versions; 0 is zeroes.
    history: History<u64>,
    /// By block: when its newest version was written that was answered.
    answered: Vec<u64>,
    random: Random,
    next_version: u64,
    next_cookie: u64,
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

/// Returns the version of each block in some bytes.
fn versions(first: u64, bytes: &[u8]) -> Result<Vec<u64>, String> {
    let version = |(block, bytes): (u64, &[u8])| {
        let version = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
        let is_whole = bytes == content(block, version);
        is_whole.then_some(version).ok_or_else(|| format!("block {block} is mixed: it starts with {:x?}", &bytes[..32]))
    };
    (first..).zip(bytes.chunks(BLOCK as usize)).map(version).collect()
}

impl Verifier {
    fn new(seed: u64) -> Verifier {
        let blocks = vec![0; BLOCKS as usize];
        Verifier {
            history: History::new(blocks.clone()),
            answered: blocks,
            random: Random(seed),
            next_version: 1,
            next_cookie: 0,
            flushes: 0,
            writes: 0,
        }
    }

    /// Reads every block. Each must be complete and at least as new as its flushed content. Later reads must agree.
    fn verify(&mut self, client: &mut Client) -> Result<(), String> {
        let step = 250;
        for first in (0..BLOCKS).step_by(step) {
            let bytes = client.read(first * BLOCK, (step as u64 * BLOCK) as u32).unwrap();
            for (block, version) in (first as usize..).zip(versions(first, &bytes)?) {
                if !self.history.is_kept(block, &version) {
                    return Err(format!("block {block} has version {version}, but a newer one was flushed"));
                }
                self.answered[block] = self.history.settled(block, &version, false);
            }
        }
        // Clients take for durable what they find.
        self.history.promised(self.answered.iter().copied().enumerate());
        Ok(())
    }

    /// Checks that a backend without its flash is a state of the volume; it is the content from now on. Returns the
    /// number of flushes before that state, of all.
    fn verify_backend(&mut self, backend: &Path) -> Result<(usize, usize), String> {
        let versions = versions(0, &std::fs::read(backend).unwrap())?;
        let found = self.history.check(&versions)?;
        (self.history, self.answered) = (History::new(versions), vec![0; BLOCKS as usize]);
        Ok(found)
    }

    fn take_cookie(&mut self) -> u64 {
        self.next_cookie += 1;
        self.next_cookie
    }

    fn send_one(&mut self, client: &mut Client) -> std::io::Result<(u64, Sent)> {
        let cookie = self.take_cookie();
        if self.random.chance(40) {
            client.request(NBD_CMD_FLUSH, 0, cookie, 0, 0)?;
            return Ok((cookie, Sent::Flush { answered: self.answered.clone() }));
        }
        let count = self.random.pick(&[1, 1, 1, 2, 8]);
        let limit = self.random.pick(&[BLOCKS / 10, BLOCKS]);
        let block = self.random.below(limit - count);
        let durable = self.random.chance(30);
        let has_zeroes = self.random.chance(20);
        let version = if has_zeroes { 0 } else { self.next_version };
        self.next_version += 1;
        let flags = if durable { NBD_CMD_FLAG_FUA } else { 0 };
        let command = if has_zeroes { NBD_CMD_WRITE_ZEROES } else { NBD_CMD_WRITE };
        let blocks = block as usize..(block + count) as usize;
        let submitted = blocks.clone().map(|block| self.history.written(block, version)).collect();
        client.request(command, flags, cookie, block * BLOCK, (count * BLOCK) as u32)?;
        if !has_zeroes {
            client.give(&(block..block + count).flat_map(|block| content(block, version)).collect::<Vec<_>>())?;
        }
        Ok((cookie, Sent::Write { first: blocks.start, submitted, durable }))
    }

    fn answered(&mut self, sent: Sent) {
        match sent {
            Sent::Write { first, submitted, durable } => {
                self.writes += 1;
                for (answered, &submitted) in self.answered[first..].iter_mut().zip(&submitted) {
                    *answered = submitted.max(*answered);
                }
                if durable {
                    self.history.promised((first..).zip(submitted));
                }
            }
            Sent::Flush { answered } => {
                self.flushes += 1;
                self.history.promised(answered.into_iter().enumerate());
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
            if self.random.chance(50) {
                // A read among the writes, whose content is checked when the server is back.
                let (cookie, block) = (self.take_cookie(), self.random.below(BLOCKS));
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
    let mut verifier = Verifier::new(seed);
    for kill in 0..=kills {
        let server = setting.serve();
        let mut client = Client::open(&setting.address(), "v", true).unwrap();
        verifier.verify(&mut client).map_err(|error| format!("seed {seed}, after kill {kill}: {error}"))?;
        if kill == kills {
            server.end();
            break;
        }
        let milliseconds = 20 + verifier.random.below(400);
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

/// Kills a server and takes its flash away, `kills` times; `Err` when the bare backend is no state of the volume.
/// Returns the numbers of flushes that the backend had, and of all. Half of the servers are killed and started before,
/// with their flash.
fn kill_and_take_the_flash(order: &str, kills: u64, seed: u64) -> Result<(usize, usize), String> {
    let mut verifier = Verifier::new(seed);
    let random = &mut verifier.random;
    let journal = if order == "journal" { "journal = \"disk.journal\"\njournal-size = \"64MiB\"\n" } else { "" };
    let keys = format!(
        "{journal}flash-size = \"{}\"\nerase-unit = \"256KiB\"\nram = \"2MiB\"\nwrite-back-order = \"{order}\"\n\
         sequential-bypass = \"{}\"\ndirty-high = \"{}\"\ndirty-low = \"5%\"\nbackend-delay = \"{}\"",
        random.pick(&["6MiB", "12MiB"]),
        random.pick(&["0", "64KiB"]),
        random.pick(&["10%", "50%"]),
        random.pick(&["0s", "0s", "200us"]),
    );
    let setting = Setting::new(BLOCKS * BLOCK, &keys);
    let mut found = (0, 0);
    for kill in 0..kills {
        let told = |error| format!("seed {seed}, after kill {kill}: {error}\n{keys}");
        for is_last in if verifier.random.chance(2) { &[false, true][..] } else { &[true] } {
            let start = ["serve", "flashwise.toml", "--discard-cache", "v"];
            let server = Server::start(setting.directory.path(), &start);
            let mut client = Client::open(&setting.address(), "v", true).unwrap();
            verifier.verify(&mut client).map_err(told)?;
            let milliseconds = 20 + verifier.random.below(400);
            verifier.work(&mut client, Instant::now() + Duration::from_millis(milliseconds)).unwrap();
            server.kill();
            if *is_last {
                std::fs::remove_file(setting.path("cache.img")).unwrap();
                if order == "journal" {
                    // A start writes the last group into place.
                    Server::start(setting.directory.path(), &start).kill();
                }
                let (before, all) = verifier.verify_backend(&setting.path("disk.img")).map_err(told)?;
                found = (found.0 + before, found.1 + all);
            }
        }
    }
    Ok(found)
}

#[test]
fn a_backend_that_lost_its_flash_is_a_state_of_the_volume() {
    let (kills, seed) = (setting("FLASHWISE_KILLS", 8), setting("FLASHWISE_SEED", 1));
    let (mut before, mut all) = (0, 0);
    for (seed, order) in (seed..seed + kills.div_ceil(4)).zip(["barriers", "journal"].into_iter().cycle()) {
        let found = kill_and_take_the_flash(order, 4, seed).unwrap_or_else(|error| panic!("{order}: {error}"));
        (before, all) = (before + found.0, all + found.1);
    }
    assert!(before > 0, "no backend had any of {all} flushes");
    println!("{kills} lost flashes: the backends had {before} of {all} flushes");
}

/// The control: without an order of write-back, the backend is a mixture.
#[test]
fn a_backend_without_an_order_is_caught() {
    let error = kill_and_take_the_flash("none", 20, 1).expect_err("a mixture is found");
    assert!(error.contains("never a state of the volume"), "{error}");
}
