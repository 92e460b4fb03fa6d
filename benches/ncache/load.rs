//! Transactions after TPC-B.
//!
//! Each reads and writes back the page of an account, and rewrites the last block of the log. This is the I/O of a
//! database that keeps tellers and branches in its own memory.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use flashwise_server::front::Address;
use flashwise_testing::client::Client;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Experiment;

/// Size of a database page.
const PAGE_BYTES: u64 = 8192;
/// Size of a log write.
const LOG_BLOCK_BYTES: u64 = 4096;
/// Transactions whose records fit into a log block: about 300 bytes each.
const LOG_RECORDS: u64 = 13;
/// The log takes this fraction at the end of the disk, and wraps around there.
const LOG_SHARE: u64 = 32;
/// Ratio of the database to its hot data, which come first.
pub const HOT_SHARE: u64 = 10;
/// Share of transactions on hot data.
pub const HOT_TRANSACTIONS: f64 = 0.9;

/// Counters of the clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Completed transactions.
    pub transactions: u64,
    /// Completed transactions on hot data.
    pub hot: u64,
}

impl Totals {
    /// Returns the difference from `before`.
    pub fn since(self, before: Totals) -> Totals {
        Totals { transactions: self.transactions - before.transactions, hot: self.hot - before.hot }
    }
}

#[derive(Default)]
struct Shared {
    ended: AtomicBool,
    transactions: AtomicU64,
    hot: AtomicU64,
    records: AtomicU64,
}

/// Clients that run transactions one after the other until they are stopped.
pub struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<io::Result<()>>>,
}

impl Load {
    /// Starts the clients.
    pub fn start(socket: &Path, experiment: &Experiment) -> io::Result<Load> {
        let shared = Arc::new(Shared::default());
        let address = Address::Unix(socket.to_owned());
        let start = |number: usize| {
            let client = Client::open(&address, "db", false)?;
            let (shared, seed) = (Arc::clone(&shared), experiment.seed << 32 | number as u64);
            Ok(std::thread::spawn(move || make(client, &shared, Xoshiro256PlusPlus::seed_from_u64(seed))))
        };
        let clients = (0..experiment.clients).map(start).collect::<io::Result<_>>()?;
        Ok(Load { shared, clients })
    }

    /// Returns the counters so far.
    pub fn totals(&self) -> Totals {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Totals { transactions: value(&self.shared.transactions), hot: value(&self.shared.hot) }
    }

    /// Stops the clients and waits for their last transactions.
    pub fn end(self) -> io::Result<()> {
        self.shared.ended.store(true, Ordering::Relaxed);
        self.clients.into_iter().try_for_each(|client| client.join().expect("no client panics"))
    }
}

fn make(mut client: Client, shared: &Shared, mut random: Xoshiro256PlusPlus) -> io::Result<()> {
    let log_bytes = client.size / LOG_SHARE / LOG_BLOCK_BYTES * LOG_BLOCK_BYTES;
    let log_from = client.size - log_bytes;
    let pages = log_from / PAGE_BYTES;
    let hot_pages = client.size / HOT_SHARE / PAGE_BYTES;
    while !shared.ended.load(Ordering::Relaxed) {
        let is_hot = random.random_bool(HOT_TRANSACTIONS);
        let page = if is_hot { random.random_range(0..hot_pages) } else { random.random_range(hot_pages..pages) };
        let mut account = client.read(page * PAGE_BYTES, PAGE_BYTES as u32)?;
        account[..8].copy_from_slice(&random.random::<[u8; 8]>());
        write(&mut client, page * PAGE_BYTES, &account)?;
        let record = shared.records.fetch_add(1, Ordering::Relaxed);
        let block = record / LOG_RECORDS % (log_bytes / LOG_BLOCK_BYTES);
        write(&mut client, log_from + block * LOG_BLOCK_BYTES, &[record as u8; LOG_BLOCK_BYTES as usize])?;
        shared.transactions.fetch_add(1, Ordering::Relaxed);
        shared.hot.fetch_add(u64::from(is_hot), Ordering::Relaxed);
    }
    Ok(())
}

fn write(client: &mut Client, offset: u64, data: &[u8]) -> io::Result<()> {
    match client.write(offset, data)? {
        0 => Ok(()),
        error => Err(io::Error::other(format!("writing at {offset}: error {error}"))),
    }
}
