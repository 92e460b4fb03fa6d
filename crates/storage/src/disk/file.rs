//! Regular files and block devices as disks, with blocking system calls: open(2), preadv(2), fallocate(2), flock(2).

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, OFlags, SeekFrom, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

pub use super::open_options::{Allocation, Options, PageCache};
use super::{ALIGNMENT, Disk, device, discard, length_on_disk, letting_go};
use crate::disk::inventory::written_bytes;
use crate::export::Extent;

/// A regular file or a block device, locked against other users while it is open.
///
/// The lock is flock(2): exclusive, or shared for read-only users. A block device is also opened with `O_EXCL`. That
/// keeps out file systems, device mappers and any second user, even a read-only one. The file behind a loop device is
/// locked, too.
#[derive(Debug)]
pub struct FileDisk {
    file: File,
    /// Held for its lock.
    _behind: Option<File>,
    path: PathBuf,
    size: AtomicU64,
    is_device: bool,
    direct: bool,
    notes: Vec<String>,
    options: Options,
}

/// Maximum time to wait for a busy disk. udev(7) locks a device briefly after each change, and the kernel closes the
/// files of a killed process only after its last transfers.
const BUSY_MAX: Duration = Duration::from_secs(2);

/// The second offset to try, if the first page of a device is unreadable.
const PROBED_OFFSET: u64 = 64 << 10;

/// Zeroes to write if the file system cannot zero a range itself.
#[repr(align(4096))]
struct Zeroes([u8; 64 << 10]);
static ZEROES: Zeroes = Zeroes([0; 64 << 10]);

impl FileDisk {
    /// Opens and locks a regular file or a block device.
    pub fn open(path: &Path, options: Options) -> io::Result<Self> {
        Self::open_for(path, options, false)
    }

    /// Like [`open`](Self::open), but also opens a device that must be written in order.
    pub(super) fn open_for(path: &Path, options: Options, writes_in_order: bool) -> io::Result<Self> {
        let metadata = std::fs::metadata(path).map_err(|error| named(path, "cannot be opened", error))?;
        let kind = metadata.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            let message = format!("{}: is neither a regular file nor a block device", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let exclusive = if kind.is_block_device() { OFlags::EXCL } else { OFlags::empty() };
        let open = || {
            OpenOptions::new()
                .read(true)
                .write(!options.read_only)
                .custom_flags(exclusive.bits().cast_signed())
                .open(path)
        };
        let file = while_busy(open).map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::BUSY) => in_use(path),
            // The device node exists, but the disk does not.
            Some(Errno::NXIO | Errno::NODEV | Errno::NOMEDIUM) => {
                let message = format!("{}: cannot be opened: {error}", path.display());
                io::Error::new(io::ErrorKind::NotFound, message)
            }
            _ => named(path, "cannot be opened", error),
        })?;
        Self::from_file(file, path, options, writes_in_order)
    }

    /// Creates, opens and locks a regular file of `size` zero bytes. Removes the file on failure. Refuses to create one
    /// below `/dev`.
    pub fn create(path: &Path, size: u64, allocation: Allocation, options: Options) -> io::Result<Self> {
        if device::names_a_device(path) {
            let message = format!("{}: there is no such device, and no file is made below /dev", path.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|error| named(path, "cannot be created", error))?;
        let disk = set_size(&file, path, size, allocation).and_then(|()| Self::from_file(file, path, options, false));
        if disk.is_err() {
            // The first error is reported.
            let _ = std::fs::remove_file(path);
        }
        disk
    }

    /// Allocates the first `length` bytes of a regular file, so that writes there never fail for lack of space. Does
    /// nothing if the file system does not support that.
    pub fn set_aside(&self, length: u64) -> io::Result<()> {
        if self.is_device {
            return Ok(());
        }
        match rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, length) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(error) => Err(named(&self.path, &format!("cannot set {length} bytes aside"), error.into())),
        }
    }

    fn from_file(file: File, path: &Path, options: Options, writes_in_order: bool) -> io::Result<Self> {
        let metadata = file.metadata().map_err(|error| named(path, "cannot be examined", error))?;
        let is_device = metadata.file_type().is_block_device();
        if is_device && !writes_in_order {
            let unusable = |what| io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {what}", path.display()));
            device::check_zones(&device::sysfs(metadata.rdev())).map_err(unusable)?;
        }
        lock(&file, path, options.read_only)?;
        let behind = if is_device { device::behind_loop(&device::sysfs(metadata.rdev())) } else { None };
        // If the file cannot be opened, it was removed or is in another root. Others cannot open it by name, either.
        let behind = behind.and_then(|(behind, is_whole)| Some((File::open(behind).ok()?, is_whole)));
        if let Some((behind, is_whole)) = &behind {
            // Loop devices on parts of a file share its lock.
            lock(behind, path, options.read_only || !is_whole)?;
        }
        let size = size(&file, path, &metadata)?;
        let mut disk = Self {
            file,
            _behind: behind.map(|(behind, _)| behind),
            path: path.to_owned(),
            size: AtomicU64::new(size),
            is_device,
            direct: false,
            notes: Vec::new(),
            options,
        };
        if options.page_cache != PageCache::Use {
            disk.bypass_page_cache()?;
        }
        if is_device && let Some(note) = device::alignment_note(&device::sysfs(metadata.rdev())) {
            disk.notes.push(format!("{}: {note}", path.display()));
        }
        Ok(disk)
    }

    /// The path that it was opened with.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if it is a block device.
    pub fn is_device(&self) -> bool {
        self.is_device
    }

    /// True if reads and writes bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// True if it was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.options.read_only
    }

    /// Notes for users: why the page cache is used although it should be bypassed, and that the device is not aligned.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Sets `O_DIRECT`, and clears it again if the disk is not readable this way.
    fn bypass_page_cache(&mut self) -> io::Result<()> {
        let set = |direct| {
            let flags = rustix::fs::fcntl_getfl(&self.file)?;
            rustix::fs::fcntl_setfl(&self.file, if direct { flags | OFlags::DIRECT } else { flags - OFlags::DIRECT })
        };
        let reason = match self.direct_alignment() {
            wanted if wanted > ALIGNMENT as u64 => {
                format!("bypassing the page cache takes an alignment of {wanted} bytes, this program's is {ALIGNMENT}")
            }
            wanted if !self.size().is_multiple_of(wanted) => {
                format!(
                    "its size of {} is no multiple of the {wanted} bytes that bypassing the page cache takes",
                    self.size()
                )
            }
            _ => match set(true).and_then(|()| self.probe()) {
                Ok(()) => {
                    self.direct = true;
                    return Ok(());
                }
                Err(Errno::INVAL) => {
                    set(false).map_err(|error| named(&self.path, "cannot use the page cache", error.into()))?;
                    "the file system cannot bypass the page cache".to_owned()
                }
                Err(error) => return Err(named(&self.path, "cannot be read", error.into())),
            },
        };
        if self.options.page_cache == PageCache::Avoid {
            let message = format!("{}: {reason}; allow the page cache or move it elsewhere", self.path.display());
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        self.notes.push(format!("{}: {reason}; it is used", self.path.display()));
        Ok(())
    }

    /// Returns the alignment of offsets, lengths and addresses for `O_DIRECT`. Kernels before Linux 6.1 and some file
    /// systems do not report it. Then it is the sector for devices, and our own alignment for files, which is nearly
    /// always enough.
    fn direct_alignment(&self) -> u64 {
        let wanted = StatxFlags::DIOALIGN;
        match rustix::fs::statx(&self.file, "", AtFlags::EMPTY_PATH, wanted) {
            Ok(told) if told.stx_mask & wanted.bits() != 0 && told.stx_dio_offset_align > 0 => {
                u64::from(told.stx_dio_offset_align.max(told.stx_dio_mem_align))
            }
            _ if self.is_device => 512,
            _ => ALIGNMENT as u64,
        }
    }

    /// Tests a read, because the kernel does not report every restriction.
    fn probe(&self) -> Result<(), Errno> {
        let mut memory = vec![0; 2 * ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        let mut read = |offset| rustix::io::pread(&self.file, &mut memory[start..][..ALIGNMENT], offset);
        match read(0) {
            // One unreadable page does not count.
            Err(error) if error != Errno::INVAL && self.size() > PROBED_OFFSET => read(PROBED_OFFSET).or(Err(error)),
            result => result,
        }
        .map(drop)
    }

    fn length_on_disk(&self, doing: &str, offset: u64, length: u64) -> io::Result<u64> {
        length_on_disk(self.size(), offset, length).map_err(|error| named(&self.path, doing, error))
    }

    fn read_exactly(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<()> {
        read_exactly(&self.file, &self.path, self.size(), buffers, offset)
    }

    fn write_exactly(&self, buffers: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        write_exactly(&self.file, &self.path, buffers, offset)
    }

    /// Calls fallocate(2) with `flags`. False if it is not supported.
    fn fallocate(&self, flags: FallocateFlags, offset: u64, length: u64) -> io::Result<bool> {
        loop {
            match rustix::fs::fallocate(&self.file, flags | FallocateFlags::KEEP_SIZE, offset, length) {
                Ok(()) => return Ok(true),
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV) => return Ok(false),
                Err(Errno::INTR | Errno::AGAIN) => std::thread::yield_now(),
                Err(error) => return Err(named(&self.path, &format!("zeroing at {offset}"), error.into())),
            }
        }
    }

    fn write_zeroes(&self, mut offset: u64, length: u64) -> io::Result<()> {
        let end = offset + length;
        while offset < end {
            let mut left = (end - offset).min(1 << 20) as usize;
            let step = left as u64;
            let mut pieces = Vec::with_capacity(16);
            while left > 0 {
                let piece = left.min(ZEROES.0.len());
                pieces.push(IoSlice::new(&ZEROES.0[..piece]));
                left -= piece;
            }
            self.write_exactly(&mut pieces, offset)?;
            offset += step;
        }
        Ok(())
    }
}

impl Disk for FileDisk {
    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn description(&self) -> String {
        self.path.display().to_string()
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    fn buffers_writes(&self) -> bool {
        !self.direct
    }

    fn let_go(&self) -> io::Result<()> {
        [Some(&self.file), self._behind.as_ref()].into_iter().flatten().try_for_each(letting_go::let_go)
    }

    fn write_streams(&self) -> u8 {
        // The page cache does not keep the stream of a write.
        let has = |metadata: Metadata| device::write_streams(&device::sysfs(metadata.rdev()));
        if self.is_device && self.direct { self.file.metadata().map_or(0, has) } else { 0 }
    }

    fn drive_written_bytes(&self) -> Option<u64> {
        let metadata = self.file.metadata().ok().filter(|_| self.is_device)?;
        written_bytes(&device::sysfs(metadata.rdev()), &self.file)
    }

    fn refresh_size(&self) -> io::Result<u64> {
        let metadata = self.file.metadata().map_err(|error| named(&self.path, "cannot be examined", error))?;
        let found = size(&self.file, &self.path, &metadata)?;
        self.size.store(found, Ordering::Release);
        Ok(found)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_vectored_at(&mut [IoSliceMut::new(buffer)], offset)
    }

    fn read_now(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> bool {
        let length: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        !self.direct
            && matches!(rustix::io::preadv2(&self.file, buffers, offset, ReadWriteFlags::NOWAIT), Ok(read) if read == length)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.write_vectored_at(&mut [IoSlice::new(buffer)], offset)
    }

    fn read_vectored_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<()> {
        let length = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        let on_disk = self.length_on_disk("reading", offset, length)?;
        if on_disk == length {
            return self.read_exactly(buffers, offset);
        }
        let mut left = on_disk as usize;
        let mut within = Vec::with_capacity(buffers.len());
        for buffer in buffers {
            let here = left.min(buffer.len());
            let (stored, padding) = buffer.split_at_mut(here);
            left -= stored.len();
            padding.fill(0);
            within.push(IoSliceMut::new(stored));
        }
        self.read_exactly(&mut within, offset)
    }

    fn write_vectored_at(&self, buffers: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        let length = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        let on_disk = self.length_on_disk("writing", offset, length)?;
        if on_disk == length {
            return self.write_exactly(buffers, offset);
        }
        let mut left = on_disk as usize;
        let mut within = Vec::with_capacity(buffers.len());
        for buffer in &*buffers {
            let stored = &buffer[..left.min(buffer.len())];
            left -= stored.len();
            within.push(IoSlice::new(stored));
        }
        self.write_exactly(&mut within, offset)
    }

    fn sync(&self) -> io::Result<()> {
        loop {
            match rustix::fs::fdatasync(&self.file) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(named(&self.path, "syncing", error.into())),
            }
        }
    }

    fn zero(&self, offset: u64, length: u64, may_punch_holes: bool) -> io::Result<()> {
        let length = self.length_on_disk("zeroing", offset, length)?;
        if length == 0
            || may_punch_holes && self.fallocate(FallocateFlags::PUNCH_HOLE, offset, length)?
            || self.fallocate(FallocateFlags::ZERO_RANGE, offset, length)?
        {
            return Ok(());
        }
        self.write_zeroes(offset, length)
    }

    /// Frees the space of a regular file, including space allocated by [`Allocation::Full`].
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let length = self.length_on_disk("discarding", offset, length)?;
        if length == 0 {
            return Ok(());
        }
        if self.is_device {
            return discard::discard(&self.file, offset, length)
                .map_err(|error| named(&self.path, &format!("discarding at {offset}"), error));
        }
        self.fallocate(FallocateFlags::PUNCH_HOLE, offset, length)?;
        Ok(())
    }

    /// Uses `SEEK_DATA` and `SEEK_HOLE`. Allocated space that was never written is a hole.
    fn extents(&self, offset: u64, length: u64, extents_max: usize) -> io::Result<Vec<Extent>> {
        assert!(extents_max > 0, "an answer has at least one extent");
        let end = offset + self.length_on_disk("examining", offset, length)?;
        let data = |length| Extent { length, hole: false, zero: false };
        let mut extents = Vec::new();
        let mut at = offset;
        while at < end && extents.len() < extents_max {
            let data_start = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Ok(start) => start.min(end),
                Err(Errno::NXIO) if !self.is_device => end,
                // Not supported by this file system or device.
                Err(_) => {
                    extents.push(data(end - at));
                    break;
                }
            };
            if data_start > at {
                extents.push(Extent { length: data_start - at, hole: true, zero: true });
                at = data_start;
                continue;
            }
            // Even if another thread made a hole here just now, at least one byte was data.
            let hole_start = rustix::fs::seek(&self.file, SeekFrom::Hole(at)).unwrap_or(end).clamp(at + 1, end);
            extents.push(data(hole_start - at));
            at = hole_start;
        }
        Ok(extents)
    }
}

impl Drop for FileDisk {
    fn drop(&mut self) {
        // Transfers that have just completed may keep the file open for a moment.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// Fills `buffers` from `offset` of a file of this size.
pub(super) fn read_exactly(
    file: &File,
    path: &Path,
    size: u64,
    mut buffers: &mut [IoSliceMut<'_>],
    mut offset: u64,
) -> io::Result<()> {
    IoSliceMut::advance_slices(&mut buffers, 0);
    while !buffers.is_empty() {
        match rustix::io::preadv(file, buffers, offset) {
            Ok(0) => {
                let message = format!("{}: ends at {offset}, before its size of {size}", path.display());
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
            }
            Ok(length) => {
                offset += length as u64;
                IoSliceMut::advance_slices(&mut buffers, length);
            }
            Err(Errno::INTR | Errno::AGAIN) => std::thread::yield_now(),
            Err(error) => return Err(named(path, &format!("reading at {offset}"), error.into())),
        }
    }
    Ok(())
}

/// Writes all of `buffers` at `offset`.
pub(super) fn write_exactly(
    file: &File,
    path: &Path,
    mut buffers: &mut [IoSlice<'_>],
    mut offset: u64,
) -> io::Result<()> {
    IoSlice::advance_slices(&mut buffers, 0);
    while !buffers.is_empty() {
        match rustix::io::pwritev(file, buffers, offset) {
            Ok(0) => {
                let message = format!("{}: takes no more bytes at {offset}", path.display());
                return Err(io::Error::new(io::ErrorKind::WriteZero, message));
            }
            Ok(length) => {
                offset += length as u64;
                IoSlice::advance_slices(&mut buffers, length);
            }
            Err(Errno::INTR | Errno::AGAIN) => std::thread::yield_now(),
            Err(error) => return Err(named(path, &format!("writing at {offset}"), error.into())),
        }
    }
    Ok(())
}

/// Adds the path and the operation to an error.
pub(super) fn named(path: &Path, doing: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {doing}: {error}", path.display()))
}

fn in_use(path: &Path) -> io::Error {
    let message = format!("{}: in use by another process, or mounted; it must be released first", path.display());
    io::Error::new(io::ErrorKind::ResourceBusy, message)
}

/// Repeats `call` while the device is busy, for at most [`BUSY_MAX`].
fn while_busy<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let started = Instant::now();
    loop {
        let result = call();
        let busy = result
            .as_ref()
            .is_err_and(|error| matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::WouldBlock));
        if !busy || started.elapsed() > BUSY_MAX {
            return result;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(super) fn lock(file: &File, path: &Path, read_only: bool) -> io::Result<()> {
    let operation =
        if read_only { FlockOperation::NonBlockingLockShared } else { FlockOperation::NonBlockingLockExclusive };
    let locked = while_busy(|| Ok(rustix::fs::flock(file, operation)?));
    locked.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => in_use(path),
        _ => named(path, "cannot be locked", error),
    })
}

/// Returns the size, or an error if the file is unusable.
fn size(file: &File, path: &Path, metadata: &Metadata) -> io::Result<u64> {
    let unusable = |what: String| io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {what}", path.display()));
    let size = if metadata.file_type().is_block_device() {
        let sector = rustix::fs::ioctl_blksszget(file).map_err(|error| named(path, "sector size", error.into()))?;
        if sector as usize > ALIGNMENT {
            return Err(unusable(format!("has sectors of {sector} bytes, expected at most {ALIGNMENT}")));
        }
        rustix::fs::seek(file, SeekFrom::End(0)).map_err(|error| named(path, "size", error.into()))?
    } else if metadata.is_file() {
        metadata.len()
    } else {
        return Err(unusable("is neither a regular file nor a block device".to_owned()));
    };
    match size {
        0 if metadata.is_file() => Err(unusable("is empty; give it a size first".to_owned())),
        0 => {
            let message = format!("{}: has a size of 0: nothing is in the drive, or it is gone", path.display());
            Err(io::Error::new(io::ErrorKind::NotFound, message))
        }
        size => Ok(size),
    }
}

/// Sets the size of a new file and allocates its space, durably.
fn set_size(file: &File, path: &Path, size: u64, allocation: Allocation) -> io::Result<()> {
    file.set_len(size).map_err(|error| named(path, &format!("cannot have {size} bytes"), error))?;
    if allocation == Allocation::Full && size > 0 {
        let free = || rustix::fs::fstatvfs(file).map(|space| space.f_bavail.saturating_mul(space.f_frsize));
        let full = |free: u64| {
            let message = format!("{}: needs {size} bytes, the file system has {free} free", path.display());
            io::Error::new(io::ErrorKind::StorageFull, message)
        };
        // If the space does not suffice, some file systems first allocate all they have.
        if let Ok(free) = free()
            && free < size
        {
            return Err(full(free));
        }
        match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size) {
            Ok(()) => {}
            Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => return Err(full(free().unwrap_or(0))),
            Err(error) => return Err(named(path, &format!("cannot set {size} bytes aside"), error.into())),
        }
    }
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    file.sync_all()
        .and_then(|()| File::open(directory)?.sync_all())
        .map_err(|error| named(path, "cannot be synced", error))
}
