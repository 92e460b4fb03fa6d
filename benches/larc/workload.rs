//! The workloads webserver and netsfs from the files of Filebench 1.4.9.1, with the paper's changes.

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::files::{FileSet, Table, gamma_size, tabular};
use super::guest::{Disk, FileId, Guest, PAGE_BYTES, Step};

/// A workload of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 100 threads. Each repeatedly reads ten whole files and appends to a log.
    Webserver,
    /// One thread. It launches programs, and rewrites, appends to and looks at files.
    Netsfs,
}

/// The paper's parameters, unscaled.
struct Paper {
    clients: usize,
    files: u64,
    /// Bytes of all files.
    bytes: u64,
}

impl Kind {
    /// Both, in the paper's order.
    pub const ALL: [Self; 2] = [Self::Webserver, Self::Netsfs];

    /// Its name in Filebench.
    pub fn name(self) -> &'static str {
        match self {
            Self::Webserver => "webserver",
            Self::Netsfs => "netsfs",
        }
    }

    fn paper(self) -> Paper {
        match self {
            Self::Webserver => Paper { clients: 100, files: 250_000, bytes: 250_000 * WEB_FILE_BYTES },
            // 12 GB over 500,000 files are 24 KB each; the table below has a mean of 26.7 KB.
            Self::Netsfs => Paper { clients: 1, files: 500_000, bytes: 500_000 * 26_700 },
        }
    }

    /// Returns the number of threads.
    pub fn clients(self) -> usize {
        self.paper().clients
    }

    /// Returns the blocks of a disk twice as large as the files, plus space for a log.
    pub fn disk_blocks(self, scale: u64) -> u32 {
        ((2 * self.paper().bytes + LOG_BYTES_MAX) / PAGE_BYTES / scale) as u32
    }

    /// Creates the files, and the clients that use them.
    pub fn set_up(self, guest: &mut Guest<impl Disk>, scale: u64, seed: u64) -> Workload {
        // One stream of random numbers for the files, and one for each client.
        let random = |stream: u64| Xoshiro256PlusPlus::seed_from_u64(seed << 32 | stream);
        let mut files = random(0);
        let existing = self.paper().files / scale;
        // The log is last, on the free part of the disk.
        let blocks = (2 * self.paper().bytes / PAGE_BYTES / scale) as u32;
        let (sizes, percent): (Vec<u64>, u32) = match self {
            Self::Webserver => ((0..existing).map(|_| gamma_size(WEB_FILE_BYTES, &mut files)).collect(), 100),
            Self::Netsfs => {
                let entries = existing * 100 / NETSFS_EXISTING;
                ((0..entries).map(|_| tabular(FILE_SIZE, &mut files)).collect(), NETSFS_EXISTING as u32)
            }
        };
        let set = FileSet::new(guest, sizes, percent, blocks, &mut files);
        let clients = (1..=self.clients()).map(|stream| Client { random: random(stream as u64), flowop: 0 }).collect();
        Workload { kind: self, set, log: guest.make(blocks, 0), clients, source: None }
    }
}

/// Mean size of a file of webserver.
const WEB_FILE_BYTES: u64 = 32 << 10;
/// Limit of webserver's appends; the mean is half of it.
const WEB_APPEND_BYTES: u64 = 16 << 10;
/// webserver reads 1 MiB per request.
const WEB_READ_PAGES: u32 = 256;
/// A limit that the log never reaches.
const LOG_BYTES_MAX: u64 = 128 << 30;
/// Percentage of netsfs's files that exist.
const NETSFS_EXISTING: u64 = 60;
/// Sizes of netsfs's files.
const FILE_SIZE: Table = &[
    (33, 1, 1),
    (21, 1, 3),
    (13, 3, 5),
    (10, 5, 11),
    (8, 11, 21),
    (5, 21, 43),
    (4, 43, 85),
    (3, 85, 171),
    (2, 171, 341),
    (1, 341, 1707),
];
/// Sizes of netsfs's reads.
const READ_SIZE: Table = &[(85, 8, 8), (8, 17, 23), (4, 33, 39), (2, 65, 71), (1, 129, 135)];
/// Limits of netsfs's appends.
const WRITE_SIZE: Table = &[(50, 9, 15), (14, 17, 23), (14, 33, 39), (12, 65, 71), (10, 129, 135)];

struct Client {
    random: Xoshiro256PlusPlus,
    /// Completed steps of the loop.
    flowop: u32,
}

/// Clients and their loops.
pub struct Workload {
    kind: Kind,
    set: FileSet,
    log: FileId,
    clients: Vec<Client>,
    /// The file that netsfs is rewriting, and its index.
    source: Option<(u32, FileId)>,
}

impl Workload {
    /// Returns the next step of a client, and its number of Filebench operations. Open, read and close count as one
    /// each.
    pub fn next(&mut self, client: usize, guest: &mut Guest<impl Disk>) -> (Step, u64) {
        match self.kind {
            Kind::Webserver => self.webserver(client),
            Kind::Netsfs => self.netsfs(client, guest),
        }
    }

    fn webserver(&mut self, client: usize) -> (Step, u64) {
        let Client { random, flowop } = &mut self.clients[client];
        *flowop = (*flowop + 1) % 11;
        match *flowop {
            0 => (Step::Append(self.log, up_to(WEB_APPEND_BYTES, random)), 1),
            _ => (Step::Read(self.set.pick(random).1, WEB_READ_PAGES), 3),
        }
    }

    /// A loop has 61 operations: three files are read; six are read, rewritten and deleted; three are appended to; one
    /// is looked at.
    fn netsfs(&mut self, client: usize, guest: &mut Guest<impl Disk>) -> (Step, u64) {
        let Client { random, flowop } = &mut self.clients[client];
        let now = *flowop;
        *flowop = (now + 1) % 25;
        let mut io_pages = || (tabular(READ_SIZE, random) / PAGE_BYTES) as u32;
        match now {
            0..3 => {
                let pages = io_pages();
                (Step::Read(self.set.pick(random).1, pages), 3)
            }
            3..21 if now % 3 == 0 => {
                let pages = io_pages();
                let source = self.set.pick(random);
                self.source = Some(source);
                (Step::Read(source.1, pages), 2)
            }
            3..21 if now % 3 == 1 => {
                let (source, _) = self.source.expect("it was read");
                let target = self.set.create(guest, random);
                (Step::Append(target, self.set.size(source)), 4)
            }
            3..21 => {
                let (index, file) = self.source.take().expect("it was read");
                self.set.forget(index);
                (Step::Delete(file), 1)
            }
            21..24 => {
                let file = self.set.pick(random).1;
                let most = tabular(WRITE_SIZE, random);
                (Step::Append(file, up_to(most, random)), 3)
            }
            _ => (Step::Look, 1),
        }
    }
}

/// Returns a uniform number of bytes below `bytes`.
fn up_to(bytes: u64, random: &mut impl Rng) -> u64 {
    random.random_range(0..bytes)
}

#[cfg(test)]
mod tests {
    use super::super::guest::tests::guest;
    use super::*;

    /// Returns the operations of the first client's steps, and how many steps read, write and delete.
    fn loops(kind: Kind, steps: usize) -> (u64, [usize; 3]) {
        let mut guest = guest(kind.clients());
        let mut workload = kind.set_up(&mut guest, 4000, 1);
        let (mut operations, mut kinds) = (0, [0; 3]);
        for _ in 0..steps {
            let (step, count) = workload.next(0, &mut guest);
            operations += count;
            match step {
                Step::Read(..) => kinds[0] += 1,
                Step::Append(..) => kinds[1] += 1,
                Step::Delete(_) => kinds[2] += 1,
                Step::Look => {}
            }
        }
        (operations, kinds)
    }

    #[test]
    fn loops_have_the_operations_of_filebench() {
        // Ten times open, read and close, and an append.
        assert_eq!(loops(Kind::Webserver, 11 * 3), (3 * 31, [30, 3, 0]));
        // Launching 9, rewriting 6 times 7, appending 3 times 3, looking 1.
        assert_eq!(loops(Kind::Netsfs, 25 * 3), (3 * 61, [27, 27, 18]));
    }

    #[test]
    fn tables_have_the_means_that_their_rows_say() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for (table, mean_kib) in [(FILE_SIZE, 26.71), (READ_SIZE, 12.52), (WRITE_SIZE, 35.2)] {
            assert_eq!(table.iter().map(|row| row.0).sum::<u32>(), 100);
            let draws = 200_000;
            let mean = (0..draws).map(|_| tabular(table, &mut random)).sum::<u64>() as f64 / f64::from(draws) / 1024.0;
            assert!((mean / mean_kib - 1.0).abs() < 0.03, "{mean}, not {mean_kib}");
        }
    }
}
