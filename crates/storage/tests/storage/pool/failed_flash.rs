//! A pool whose flash takes no more writes, with data on it that was flushed.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use flashwise_storage::export::{Error, Operation};
use flashwise_storage::pool::{CHUNK_BYTES, Pool};
use flashwise_storage::status::VolumeState;
use flashwise_testing::waiting::wait_until;
use rustix::fs::{MemfdFlags, SealFlags};

use super::live::{Tank, ask, flush, new, read, write};

const MIB: u64 = 1 << 20;
const CHUNK: u64 = CHUNK_BYTES;

/// A flash in memory that can be read and, until it fails, written.
struct Flash(File);

impl Flash {
    fn new(bytes: u64) -> Flash {
        let memory = rustix::fs::memfd_create("flash", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        let file = File::from(memory);
        file.set_len(bytes).unwrap();
        Flash(file)
    }

    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }

    /// Each write fails from now on.
    fn fail(&self) {
        rustix::fs::fcntl_add_seals(&self.0, SealFlags::WRITE).unwrap();
    }
}

/// A pool with a flash of 16 MiB.
fn with_flash() -> (Tank, Flash, Pool) {
    let (mut tank, flash) = (Tank::new(true), Flash::new(16 * MIB));
    tank.config.cache.flash = flash.path();
    let pool = tank.open();
    (tank, flash, pool)
}

/// Writes are refused, and take no room from anybody. The status says that the flash failed, not the disks; after a
/// detach everything is as it was answered.
#[test]
fn a_pool_whose_flash_fails_loses_no_space_and_no_data() {
    let (_tank, flash, pool) = with_flash();
    let [disk, other] = ["a", "b"].map(|name| pool.create_logical(&new(name, 4 * MIB)).unwrap());
    write(&disk, 0, CHUNK, 1).unwrap();
    flush(&disk);
    write(&disk, 0, CHUNK / 2, 2).unwrap();
    let before = pool.status();
    flash.fail();
    ask(&disk, Operation::Flush, 0, 0, Vec::new()).unwrap_err();
    wait_until("the flash has failed", || pool.volume().status().state == VolumeState::FlashFailed);
    // One that was under way may be among those that are refused.
    assert_eq!(write(&disk, CHUNK, CHUNK, 3), Err(Error::Io));
    let used = pool.status().used_bytes;
    assert!(used <= before.used_bytes + CHUNK);
    for round in 0..20 {
        for at in 1..60 {
            assert_eq!(write(&disk, at * CHUNK, 4096, 3), Err(Error::Io), "round {round}, chunk {at}");
        }
    }
    assert_eq!(write(&other, 0, 4096, 3), Err(Error::Io));
    let status = pool.status();
    assert_eq!(status.used_bytes, used);
    let warning = status.warning.unwrap();
    let starts = "the flash has failed, and writes are refused; detach it: 'flashwise detach tank' (flash: ";
    assert!(warning.starts_with(starts), "{warning}");
    let waiting = "8 acknowledged blocks of a wait in memory, because the flash rejects them: its flushes fail";
    assert!(warning.ends_with(waiting), "{warning}");
    assert!(status.disks.iter().all(|disk| !warning.contains(&disk.path)), "{warning}");
    let content = [vec![2; CHUNK as usize / 2], vec![1; CHUNK as usize / 2], vec![0; CHUNK as usize]].concat();
    assert!(read(&disk, 0, 2 * CHUNK) == content);

    assert_eq!(pool.detach().unwrap(), 0);
    let status = pool.status();
    assert_eq!((status.used_bytes, status.free_bytes), (before.used_bytes, before.free_bytes));
    assert_eq!(status.warning, None);
    assert!(read(&disk, 0, 2 * CHUNK) == content);
    write(&other, 0, 4096, 4).unwrap();
    [&disk, &other].into_iter().for_each(|disk| flush(disk));
    pool.close().unwrap();
}
