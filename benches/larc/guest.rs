//! The guest: files on a disk behind a page cache, with Linux's read-ahead and write-back.
//!
//! As in ext4, pages get their blocks when they are written. Directories, inodes and the journal are left out.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use super::pages::{Page, PageCache, State};
use super::space::FreeSpace;

/// Bytes of a page, and of a block of the disk.
pub const PAGE_BYTES: u64 = 4096;
/// Largest read-ahead: 128 KiB.
const READ_AHEAD_MAX: u32 = 32;
/// Largest write: 512 KiB.
const WRITE_MAX: u32 = 128;
/// Writes in flight during write-back. Linux has more, but its elevator lets reads overtake them.
const WRITES_MAX: usize = 8;
/// Write-back starts at this percentage of dirty pages in the page cache, regardless of their age.
const DIRTY_BACKGROUND: usize = 10;
/// Writers wait at this percentage of dirty pages in the page cache.
const DIRTY_MAX: usize = 20;
/// The block of a page that has none yet.
const NOWHERE: u32 = u32::MAX;

/// The target of the guest's transfers.
pub trait Disk {
    /// Starts to read or write blocks, and returns the number of the transfer.
    fn submit(&mut self, write: bool, blocks: Range<u32>) -> u64;
}

/// A file, identified for the life of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(u32);

impl FileId {
    /// Returns the file with this number.
    #[cfg(test)]
    pub fn of(number: u32) -> Self {
        Self(number)
    }
}

/// A step of a client.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Reads all of a file, with this many pages per request.
    Read(FileId, u32),
    /// Adds bytes to the end of a file.
    Append(FileId, u64),
    /// Deletes a file.
    Delete(FileId),
    /// An operation without data.
    Look,
}

#[derive(Debug)]
struct File {
    bytes: u64,
    /// The block of each page.
    blocks: Vec<u32>,
    /// The preferred block of the first page.
    goal: u32,
    dirty: BTreeSet<u32>,
    /// Time of the oldest dirty page.
    dirty_since: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Task {
    step: Step,
    /// The next page.
    page: u32,
    /// Pages of the next read-ahead.
    window: u32,
    /// Transfers to wait for.
    waits: u32,
}

#[derive(Debug)]
struct Transfer {
    write: bool,
    pages: Vec<Page>,
    waiting: Vec<usize>,
}

/// Limits for the age of dirty pages.
#[derive(Clone, Copy, Debug)]
pub struct WriteBack {
    /// Dirty pages of this age are written.
    pub age: Duration,
    /// Interval of the thread that looks for them.
    pub period: Duration,
}

/// Files, their page cache, and the steps of the clients.
#[derive(Debug)]
pub struct Guest<D> {
    disk: D,
    files: Vec<File>,
    cache: PageCache,
    space: FreeSpace,
    tasks: Vec<Option<Task>>,
    transfers: HashMap<u64, Transfer>,
    /// Clients that wait for fewer dirty pages.
    throttled: Vec<usize>,
    /// Files with dirty pages, by the time of the oldest one.
    dirty: BTreeSet<(Duration, FileId)>,
    write_back: WriteBack,
    looked_last: Duration,
    /// Pages to write, in runs that are contiguous on the disk.
    to_write: VecDeque<(FileId, Vec<u32>)>,
    writes: usize,
    /// Blocks read and written by completed transfers.
    transferred: [u64; 2],
}

impl<D: Disk> Guest<D> {
    /// Creates a guest with an empty page cache.
    pub fn new(disk: D, disk_blocks: u32, cache_pages: usize, clients: usize, write_back: WriteBack) -> Self {
        Self {
            disk,
            files: Vec::new(),
            cache: PageCache::new(cache_pages),
            space: FreeSpace::new(disk_blocks),
            tasks: vec![None; clients],
            transfers: HashMap::new(),
            throttled: Vec::new(),
            dirty: BTreeSet::new(),
            write_back,
            looked_last: Duration::ZERO,
            to_write: VecDeque::new(),
            writes: 0,
            transferred: [0; 2],
        }
    }

    /// Returns the blocks read and written by completed transfers.
    pub fn transferred_blocks(&self) -> [u64; 2] {
        self.transferred
    }

    /// Returns the target of its transfers.
    pub fn disk(&mut self) -> &mut D {
        &mut self.disk
    }

    /// Cancels all write-back that has not started.
    pub fn stop(&mut self) {
        self.dirty.clear();
        self.to_write.clear();
    }

    /// Returns the number of transfers in flight.
    pub fn in_flight(&self) -> usize {
        self.transfers.len()
    }

    /// Creates a file of this size, on the disk, as close to `goal` as possible.
    pub fn make(&mut self, goal: u32, bytes: u64) -> FileId {
        let id = FileId(self.files.len() as u32);
        let mut blocks = Vec::new();
        if bytes > 0 {
            let runs = self.space.take(goal, pages_of(bytes)).expect("the disk is large enough");
            blocks.extend(runs.into_iter().flatten());
        }
        self.files.push(File { bytes, blocks, goal, dirty: BTreeSet::new(), dirty_since: Duration::ZERO });
        id
    }

    /// Starts a step of a client, and returns true if it has ended. Otherwise [`Self::ended`] returns the client when
    /// it can continue.
    pub fn begin(&mut self, client: usize, step: Step, now: Duration) -> bool {
        let (page, window) = match step {
            Step::Read(_, io_pages) => (0, first_window(io_pages)),
            _ => (0, 1),
        };
        self.tasks[client] = Some(Task { step, page, window, waits: 0 });
        self.go_on(client, now)
    }

    /// Continues the step of a client that waited, and returns true if it has ended.
    pub fn go_on(&mut self, client: usize, now: Duration) -> bool {
        let mut task = self.tasks[client].take().expect("the client has begun a step");
        let ended = match task.step {
            Step::Read(file, _) => self.read(client, file, &mut task),
            Step::Append(file, bytes) => self.append(client, file, bytes, &mut task, now),
            Step::Delete(file) => {
                self.delete(file);
                true
            }
            Step::Look => true,
        };
        if !ended {
            self.tasks[client] = Some(task);
        }
        self.write();
        ended
    }

    /// Goes through the pages of a file, with read-ahead from the first missing one.
    fn read(&mut self, client: usize, file: FileId, task: &mut Task) -> bool {
        let pages = pages_of(self.files[file.0 as usize].bytes);
        while task.page < pages {
            match self.cache.state((file, task.page)) {
                State::Here => {
                    self.cache.touch((file, task.page));
                    task.page += 1;
                }
                State::Coming(transfer) => {
                    self.wait(client, task, transfer);
                    return false;
                }
                State::Missing => {
                    let end = pages.min(task.page + task.window);
                    task.window = (task.window * 2).min(READ_AHEAD_MAX);
                    self.read_pages(client, file, task.page..end, task);
                    return false;
                }
            }
        }
        true
    }

    /// Reads the missing pages; the client waits for them.
    fn read_pages(&mut self, client: usize, file: FileId, pages: Range<u32>, task: &mut Task) {
        let missing: Vec<u32> = pages.filter(|&page| self.cache.state((file, page)) == State::Missing).collect();
        for run in self.runs(file, &missing, READ_AHEAD_MAX) {
            let transfer = self.transfer(false, file, &run);
            for page in run {
                self.cache.begin_read((file, page), transfer);
            }
            self.wait(client, task, transfer);
        }
    }

    fn append(&mut self, client: usize, file: FileId, bytes: u64, task: &mut Task, now: Duration) -> bool {
        if self.cache.unwritten() * 100 >= self.cache.capacity() * DIRTY_MAX {
            task.waits = 1;
            self.throttled.push(client);
            return false;
        }
        let old_bytes = self.files[file.0 as usize].bytes;
        let first = (old_bytes / PAGE_BYTES) as u32;
        if !old_bytes.is_multiple_of(PAGE_BYTES) {
            match self.cache.state((file, first)) {
                State::Here => {}
                State::Coming(transfer) => {
                    self.wait(client, task, transfer);
                    return false;
                }
                State::Missing => {
                    self.read_pages(client, file, first..first + 1, task);
                    return false;
                }
            }
        }
        let File { bytes: all_bytes, blocks, dirty, dirty_since, .. } = &mut self.files[file.0 as usize];
        *all_bytes += bytes;
        if dirty.is_empty() && bytes > 0 {
            *dirty_since = now;
            self.dirty.insert((now, file));
        }
        let pages = pages_of(*all_bytes);
        blocks.resize(pages as usize, NOWHERE);
        for page in first..pages {
            dirty.insert(page);
            self.cache.dirty((file, page));
        }
        true
    }

    fn delete(&mut self, id: FileId) {
        let file = &mut self.files[id.0 as usize];
        if !file.dirty.is_empty() {
            self.dirty.remove(&(file.dirty_since, id));
            file.dirty.clear();
        }
        file.bytes = 0;
        for (page, block) in std::mem::take(&mut file.blocks).into_iter().enumerate() {
            self.cache.remove((id, page as u32));
            if block != NOWHERE {
                self.space.give(block..block + 1);
            }
        }
        self.to_write.retain(|(file, _)| *file != id);
    }

    fn wait(&mut self, client: usize, task: &mut Task, transfer: u64) {
        task.waits += 1;
        self.transfers.get_mut(&transfer).expect("it is under way").waiting.push(client);
    }

    /// Divides the pages of a file into runs that are contiguous on the disk.
    fn runs(&self, file: FileId, pages: &[u32], pages_max: u32) -> Vec<Vec<u32>> {
        let block = |page: u32| self.files[file.0 as usize].blocks[page as usize];
        let mut runs: Vec<Vec<u32>> = Vec::new();
        for &page in pages {
            match runs.last_mut() {
                Some(run) if run.len() < pages_max as usize && block(run[run.len() - 1]) + 1 == block(page) => {
                    run.push(page);
                }
                _ => runs.push(vec![page]),
            }
        }
        runs
    }

    fn transfer(&mut self, write: bool, file: FileId, run: &[u32]) -> u64 {
        let start = self.files[file.0 as usize].blocks[run[0] as usize];
        let number = self.disk.submit(write, start..start + run.len() as u32);
        let pages = run.iter().map(|&page| (file, page)).collect();
        self.transfers.insert(number, Transfer { write, pages, waiting: Vec::new() });
        number
    }

    /// Handles the end of a transfer, and returns the clients that can continue.
    pub fn ended(&mut self, transfer: u64) -> Vec<usize> {
        let Transfer { write, pages, mut waiting } = self.transfers.remove(&transfer).expect("it was under way");
        self.transferred[usize::from(write)] += pages.len() as u64;
        for page in pages {
            self.cache.end(page, write);
        }
        if write {
            self.writes -= 1;
            self.write();
            if self.cache.unwritten() * 100 < self.cache.capacity() * DIRTY_MAX {
                waiting.append(&mut self.throttled);
            }
        }
        waiting.retain(|&client| {
            let task = self.tasks[client].as_mut().expect("who waits has a step");
            task.waits -= 1;
            task.waits == 0
        });
        waiting
    }

    /// Looks for old dirty pages, once per period.
    pub fn look(&mut self, now: Duration) {
        if now >= self.looked_last + self.write_back.period {
            self.looked_last = now;
            self.write();
        }
    }

    /// Writes pages that are old, or too many, up to the limit of writes in flight.
    fn write(&mut self) {
        while self.writes < WRITES_MAX {
            let Some((file, run)) = self.to_write.pop_front() else {
                if self.prepare() {
                    continue;
                }
                return;
            };
            for &page in &run {
                self.cache.begin_write((file, page));
                self.is_clean(file, page);
            }
            self.transfer(true, file, &run);
            self.writes += 1;
        }
    }

    /// Marks a page as clean, even if it was dirtied again before the write was submitted.
    fn is_clean(&mut self, id: FileId, page: u32) {
        let file = &mut self.files[id.0 as usize];
        if file.dirty.remove(&page) && file.dirty.is_empty() {
            self.dirty.remove(&(file.dirty_since, id));
        }
    }

    /// Allocates blocks for the file that has been dirty for longest, if it is due. Returns true if it did.
    fn prepare(&mut self) -> bool {
        let Some(&(since, id)) = self.dirty.first() else { return false };
        let is_old = since + self.write_back.age <= self.looked_last;
        let dirty_pages = self.cache.unwritten();
        if !is_old && dirty_pages * 100 < self.cache.capacity() * DIRTY_BACKGROUND {
            return false;
        }
        self.dirty.remove(&(since, id));
        let file = &mut self.files[id.0 as usize];
        let pages: Vec<u32> = std::mem::take(&mut file.dirty).into_iter().collect();
        let nowhere = |page: &&u32| file.blocks[**page as usize] == NOWHERE;
        let (first, wanted) = (pages.iter().find(nowhere).copied(), pages.iter().filter(nowhere).count() as u32);
        if let Some(first) = first {
            let goal = first.checked_sub(1).map_or(file.goal, |before| file.blocks[before as usize] + 1);
            let runs = self.space.take(goal, wanted).expect("the disk is large enough");
            // Pages without a block are at the end of the file.
            for (page, block) in (first..).zip(runs.into_iter().flatten()) {
                file.blocks[page as usize] = block;
            }
        }
        let runs = self.runs(id, &pages, WRITE_MAX);
        self.to_write.extend(runs.into_iter().map(|run| (id, run)));
        true
    }
}

fn pages_of(bytes: u64) -> u32 {
    bytes.div_ceil(PAGE_BYTES) as u32
}

/// Returns the pages of Linux's first read-ahead for requests of `io_pages`.
fn first_window(io_pages: u32) -> u32 {
    match io_pages.next_power_of_two() {
        pages if pages <= READ_AHEAD_MAX / 32 => pages * 4,
        pages if pages <= READ_AHEAD_MAX / 4 => pages * 2,
        _ => READ_AHEAD_MAX,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A disk that records its requests and numbers them in order.
    #[derive(Debug, Default)]
    pub struct Recorded(Vec<(bool, Range<u32>)>);

    impl Disk for Recorded {
        fn submit(&mut self, write: bool, blocks: Range<u32>) -> u64 {
            self.0.push((write, blocks));
            self.0.len() as u64 - 1
        }
    }

    /// Returns a guest with a page cache of 1000 pages, which writes back after 30 s.
    pub fn guest(clients: usize) -> Guest<Recorded> {
        let write_back = WriteBack { age: Duration::from_secs(30), period: Duration::from_secs(5) };
        Guest::new(Recorded::default(), 100_000, 1000, clients, write_back)
    }

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn a_file_is_read_ahead_in_windows_that_double_and_only_once() {
        let mut guest = guest(2);
        let file = guest.make(50, 100 << 10);
        // Requests of 8 KiB: Linux starts with 16 KiB.
        assert!(!guest.begin(0, Step::Read(file, 2), NOW));
        // Another client waits for the same transfer.
        assert!(!guest.begin(1, Step::Read(file, 2), NOW));
        assert_eq!(guest.ended(0), [0, 1]);
        assert!(!guest.go_on(0, NOW));
        assert!(!guest.go_on(1, NOW));
        assert_eq!(guest.ended(1), [0, 1]);
        assert!(!guest.go_on(0, NOW));
        assert_eq!(guest.ended(2), [0]);
        assert!(guest.go_on(0, NOW) && guest.go_on(1, NOW));
        assert!(guest.begin(0, Step::Read(file, 256), NOW));
        assert_eq!(guest.disk.0, [(false, 50..54), (false, 54..62), (false, 62..75)]);
        assert_eq!(guest.transferred_blocks(), [25, 0]);
    }

    #[test]
    fn old_blocks_are_written_and_deleted_ones_are_not() {
        let mut guest = guest(1);
        let [kept, deleted] = [7, 9].map(|goal| guest.make(goal, 0));
        assert!(guest.begin(0, Step::Append(kept, 5000), NOW));
        assert!(guest.begin(0, Step::Append(deleted, 5000), NOW));
        assert!(guest.begin(0, Step::Delete(deleted), NOW));
        guest.look(Duration::from_secs(29));
        assert_eq!(guest.disk.0, []);
        guest.look(Duration::from_secs(34));
        assert_eq!(guest.disk.0, [(true, 7..9)]);
        // An append to the last page writes it again in place; the new pages follow it.
        assert!(guest.begin(0, Step::Append(kept, 5000), Duration::from_secs(40)));
        assert!(guest.ended(0).is_empty());
        guest.look(Duration::from_secs(80));
        assert_eq!(guest.disk.0[1..], [(true, 8..10)]);
    }

    #[test]
    fn writers_wait_while_a_fifth_of_the_page_cache_is_dirty() {
        let mut guest = guest(1);
        let file = guest.make(0, 0);
        // 250 of 1000 pages, more than a tenth, are written, at most 128 per request.
        assert!(guest.begin(0, Step::Append(file, 250 * PAGE_BYTES), NOW));
        assert_eq!(guest.disk.0, [(true, 0..128), (true, 128..250)]);
        assert!(!guest.begin(0, Step::Append(file, 1), NOW));
        assert_eq!(guest.ended(0), [0]);
        assert!(guest.go_on(0, NOW));
    }
}
