//! Records the requests to a block device: the kernel reports them at the tracepoint `block_bio_queue`, and a
//! [`Recorder`] writes them.
//!
//! Source: Documentation/trace/ftrace.rst and include/trace/events/block.h of the kernel. `block_bio_queue` is hit once
//! for each request of a file system or program, before the kernel splits or merges it. A cache in front of the device
//! would see the same requests. Events come from a separate instance of tracefs, so other tracers are not disturbed,
//! and the kernel filters them by device. This requires root.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flashwise_core::filter::Caching;

use crate::export::{Operation, Request};
use crate::record::Recorder;

/// The usual mount points of tracefs.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const EVENT: &str = "block_bio_queue";
/// Prefix of the instance's name; the number of the process follows.
const PREFIX: &str = "flashwise-";
const SECTOR_BYTES: u64 = 512;
/// Buffer of each processor in KiB, for about 100,000 unread events.
const BUFFER_KIB: u32 = 8192;
/// Number of bytes in one read.
const CHUNK_BYTES: usize = 256 << 10;
/// Interval between reads.
const PAUSE: Duration = Duration::from_millis(20);

/// Why a capture failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum CaptureError {
    #[error("{}: {error}; expected a block device such as /dev/sdb", path.display())]
    Missing { path: PathBuf, error: io::Error },
    #[error("{}: found no block device, expected one such as /dev/sdb", path.display())]
    NotADevice { path: PathBuf },
    #[error("{}: found a partition, expected the whole disk {disk}: the kernel reports requests by their offset on the \
        disk", path.display())]
    Partition { path: PathBuf, disk: String },
    #[error("{}: found a folder on {device} itself, expected one elsewhere: the recording would record \
        itself", folder.display())]
    OnItself { folder: PathBuf, device: String },
    #[error("found no tracefs at {}, expected it: mount -t tracefs tracefs {}", TRACEFS.join(" or "), TRACEFS[0])]
    NoTracefs,
    #[error("{}: {error}{}", path.display(), privilege(error))]
    Trace { path: PathBuf, error: io::Error },
}

impl CaptureError {
    /// True if a retry cannot succeed.
    pub fn is_permanent(&self) -> bool {
        match self {
            CaptureError::Missing { .. } | CaptureError::NotADevice { .. } => true,
            CaptureError::Partition { .. } | CaptureError::OnItself { .. } => true,
            CaptureError::NoTracefs | CaptureError::Trace { .. } => false,
        }
    }
}

fn privilege(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::PermissionDenied { "; capturing needs root" } else { "" }
}

/// Returns the first of `places` that is a tracefs. It is accessible only to root.
fn find_tracefs<'a>(places: &[&'a Path]) -> Result<&'a Path, CaptureError> {
    let mut closed = None;
    for place in places {
        let path = place.join("instances");
        match fs::metadata(&path) {
            Ok(found) if found.is_dir() => return Ok(place),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                closed.get_or_insert(CaptureError::Trace { path, error });
            }
            _ => {}
        }
    }
    Err(closed.unwrap_or(CaptureError::NoTracefs))
}

/// Removes the instances of captures that were killed. If a capture is running but its process is not visible here, the
/// kernel does not remove its instance, because it is in use.
fn remove_left_behind(instances: &Path) {
    // An instance that cannot be removed does no harm.
    for instance in fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = instance.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(PREFIX).and_then(|process| process.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists()) {
            let _ = fs::remove_dir(instance.path());
        }
    }
}

/// A device whose requests can be captured.
#[derive(Debug)]
pub struct Device {
    name: String,
    /// The device number in the format of the kernel's filter.
    number: u64,
}

impl Device {
    /// Opens the block device at `path`. `folder` will contain the recording.
    pub fn open(path: &Path, folder: &Path) -> Result<Device, CaptureError> {
        let not_a_device = || CaptureError::NotADevice { path: path.to_owned() };
        let metadata = fs::metadata(path).map_err(|error| CaptureError::Missing { path: path.to_owned(), error })?;
        if !metadata.file_type().is_block_device() {
            return Err(not_a_device());
        }
        let place = |number: u64| {
            let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
            fs::canonicalize(Path::new("/sys/dev/block").join(number)).ok()
        };
        let name_of = |place: &Path| place.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let device = place(metadata.rdev()).ok_or_else(not_a_device)?;
        if device.join("partition").exists() {
            let disk = device.parent().map(name_of).unwrap_or_default();
            return Err(CaptureError::Partition { path: path.to_owned(), disk: format!("/dev/{disk}") });
        }
        // In sysfs, a partition is below its device.
        if fs::metadata(folder).ok().and_then(|folder| place(folder.dev())).is_some_and(|of| of.starts_with(&device)) {
            return Err(CaptureError::OnItself { folder: folder.to_owned(), device: path.display().to_string() });
        }
        let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
        Ok(Device { name: name_of(&device), number: u64::from(major) << 20 | u64::from(minor) })
    }

    /// The device's name in a recording.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Counts of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// Requests passed to the recorder.
    pub requests: u64,
    /// Events lost because the kernel's buffer was full.
    pub lost: u64,
    /// Events without data, such as those of zones.
    pub others: u64,
}

/// A running capture. Dropping it removes its instance from the kernel.
#[derive(Debug)]
pub struct Capture {
    instance: PathBuf,
    pipe: File,
    /// An incomplete line.
    rest: Vec<u8>,
    captured: Captured,
}

impl Capture {
    /// Starts a capture of all requests to the device.
    pub fn start(device: &Device) -> Result<Capture, CaptureError> {
        let tracefs = find_tracefs(&TRACEFS.map(Path::new))?;
        let instance = tracefs.join("instances").join(format!("{PREFIX}{}", std::process::id()));
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| CaptureError::Trace { path, error }
        };
        remove_left_behind(&tracefs.join("instances"));
        fs::create_dir(&instance).map_err(failed(&instance))?;
        let pipe = instance.join("trace_pipe");
        let opened = OpenOptions::new().read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32).open(&pipe);
        let opened = opened.map_err(|error| {
            // The first error is reported.
            let _ = fs::remove_dir(&instance);
            CaptureError::Trace { path: pipe, error }
        })?;
        let capture = Capture { instance, pipe: opened, rest: Vec::new(), captured: Captured::default() };
        let event = format!("events/block/{EVENT}");
        for (file, value) in [
            ("buffer_size_kb", BUFFER_KIB.to_string()),
            // A monotonic clock that is consistent across processors.
            ("trace_clock", "mono".to_owned()),
            (&format!("{event}/filter"), format!("dev == {}", device.number)),
            (&format!("{event}/enable"), "1".to_owned()),
        ] {
            let path = capture.instance.join(file);
            fs::write(&path, value).map_err(failed(&path))?;
        }
        Ok(capture)
    }

    /// Passes events to the recorder until `ends` returns true, and then the remaining ones.
    pub fn record(&mut self, recorder: &Recorder, mut ends: impl FnMut() -> bool) -> Result<Captured, CaptureError> {
        while !ends() {
            self.read(recorder)?;
            std::thread::sleep(PAUSE);
        }
        let enable = self.instance.join(format!("events/block/{EVENT}/enable"));
        fs::write(&enable, "0").map_err(|error| CaptureError::Trace { path: enable, error })?;
        self.read(recorder)?;
        Ok(self.captured)
    }

    /// Reads all available events.
    fn read(&mut self, recorder: &Recorder) -> Result<(), CaptureError> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            match self.pipe.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(count) => self.take(&chunk[..count], recorder),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(CaptureError::Trace { path: self.instance.join("trace_pipe"), error }),
            }
        }
    }

    fn take(&mut self, chunk: &[u8], recorder: &Recorder) {
        self.rest.extend_from_slice(chunk);
        let whole = self.rest.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
        let text = String::from_utf8_lossy(&self.rest[..whole]).into_owned();
        self.rest.drain(..whole);
        for line in text.lines() {
            match Line::read(line) {
                Line::Event(event) => {
                    let before = self.captured.requests;
                    for request in event.requests() {
                        recorder.record(event.time_us, 0, &request);
                        self.captured.requests += 1;
                    }
                    self.captured.others += u64::from(before == self.captured.requests);
                }
                Line::Lost(lost) => self.captured.lost += lost,
                Line::Other => {}
            }
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // Errors are ignored: an instance without events remains, and the next capture creates its own.
        let _ = fs::write(self.instance.join(format!("events/block/{EVENT}/enable")), "0");
        // An instance cannot be removed while it is open.
        if let Ok(null) = File::open("/dev/null") {
            self.pipe = null;
        }
        let _ = fs::remove_dir(&self.instance);
    }
}

/// A line of `trace_pipe`.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Event(CapturedEvent<'a>),
    /// Number of lost events.
    Lost(u64),
    Other,
}

/// A request as reported by the kernel.
#[derive(Debug, PartialEq, Eq)]
struct CapturedEvent<'a> {
    time_us: u64,
    /// The letters of the operation.
    does: &'a str,
    sector: u64,
    sectors: u64,
}

impl Line<'_> {
    /// Parses `dd-17 [000] ..... 48524.917631: block_bio_queue: 7,0 WFS 0 + 8 [dd]`, or `CPU:1 [LOST 45 EVENTS]`.
    fn read(line: &str) -> Line<'_> {
        if let Some((_, lost)) = line.split_once("[LOST ") {
            return lost.split(' ').next().and_then(|count| count.parse().ok()).map_or(Line::Other, Line::Lost);
        }
        CapturedEvent::read(line).map_or(Line::Other, Line::Event)
    }
}

impl CapturedEvent<'_> {
    fn read(line: &str) -> Option<CapturedEvent<'_>> {
        // The name of a program is too short to contain this separator.
        let (before, after) = line.split_once(&format!(": {EVENT}: "))?;
        let (seconds, micros) = before.rsplit(' ').next()?.split_once('.')?;
        let time_us = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
        let mut words = after.split(' ').skip(1);
        let does = words.next()?;
        let sector = words.next()?.parse().ok()?;
        let sectors = words.nth(1)?.parse().ok()?;
        Some(CapturedEvent { time_us, does, sector, sectors })
    }

    /// Converts the event to requests to a volume: an optional flush, then the operation.
    fn requests(&self) -> impl Iterator<Item = Request> {
        let request = |operation, force_unit_access| Request {
            operation,
            offset: self.sector * SECTOR_BYTES,
            length: self.sectors * SECTOR_BYTES,
            force_unit_access,
            data: Vec::new(),
            caching: Caching::Usual,
        };
        // An F before the letter of the operation is a flush, an F after it is FUA.
        let flushes = self.does.starts_with('F');
        let does = self.does.strip_prefix('F').unwrap_or(self.does);
        let (letter, after) = does.split_at(does.len().min(1));
        let operation = match letter {
            "R" => Some(Operation::Read),
            "W" if after.starts_with('Z') => Some(ZEROES),
            "W" => Some(Operation::Write),
            "D" => Some(Operation::Trim),
            // Older kernels do not mark zeroes.
            "N" => Some(ZEROES),
            _ => None,
        };
        let flush = Request { offset: 0, length: 0, ..request(Operation::Flush, false) };
        let own = operation.filter(|_| self.sectors > 0).map(|operation| request(operation, after.contains('F')));
        flushes.then_some(flush).into_iter().chain(own)
    }
}

const ZEROES: Operation = Operation::WriteZeroes { may_punch_holes: true, only_if_fast: false };

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of Linux 6.18 while dd and blkdiscard used a loop device.
    #[test]
    fn lines_of_the_kernel_are_read() {
        type Row = (&'static str, u64, &'static [(Operation, u64, u64, bool)]);
        let rows: [Row; 6] = [
            (
                "      blkdiscard-23281   [000] ..... 48524.916173: block_bio_queue: 7,0 RA 136 + 120 [blkdiscard]",
                48_524_916_173,
                &[(Operation::Read, 69_632, 61_440, false)],
            ),
            (
                "      blkdiscard-23281   [000] ..... 48524.916413: block_bio_queue: 7,0 NS 128 + 16 [blkdiscard]",
                48_524_916_413,
                &[(ZEROES, 65_536, 8192, false)],
            ),
            (
                "              dd-23282   [000] ..... 48524.917631: block_bio_queue: 7,0 WFS 0 + 8 [dd]",
                48_524_917_631,
                &[(Operation::Write, 0, 4096, true)],
            ),
            (
                "              dd-23282   [000] ..... 48524.924342: block_bio_queue: 7,0 FWS 0 + 0 [dd]",
                48_524_924_342,
                &[(Operation::Flush, 0, 0, false)],
            ),
            // The commit of a journal: makes earlier writes durable, and then this block.
            (
                "    jbd2/x: a [-7-12     [001] d..1.     0.000007: block_bio_queue: 7,0 FWFS 2048 + 8 [jbd2/x: a [-7]",
                7,
                &[(Operation::Flush, 0, 0, false), (Operation::Write, 1 << 20, 4096, true)],
            ),
            (
                "      blkdiscard-23281   [000] ..... 48524.916500: block_bio_queue: 7,0 DS 8 + 16 [blkdiscard]",
                48_524_916_500,
                &[(Operation::Trim, 4096, 8192, false)],
            ),
        ];
        for (line, time_us, expected) in rows {
            let Line::Event(event) = Line::read(line) else { panic!("{line}") };
            let found: Vec<_> = event
                .requests()
                .map(|request| (request.operation, request.offset, request.length, request.force_unit_access))
                .collect();
            assert_eq!((event.time_us, found.as_slice()), (time_us, expected), "{line}");
        }
        assert_eq!(Line::read("CPU:1 [LOST 45 EVENTS]"), Line::Lost(45));
        for other in ["", "# tracer: nop", "dd-1 [000] ..... 1.000001: block_rq_issue: 7,0 W 4096 () 0 + 8 [dd]"] {
            assert_eq!(Line::read(other), Line::Other);
        }
    }

    /// The highest process number is 4,194,304.
    #[test]
    fn only_the_leftovers_of_killed_captures_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let own = format!("flashwise-{}", std::process::id());
        for name in ["flashwise-4194305", "flashwise-x", "others", &own] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        remove_left_behind(folder.path());
        let left = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut left: Vec<String> = left.collect();
        left.sort_unstable();
        assert_eq!(left, [own.as_str(), "flashwise-x", "others"]);
        remove_left_behind(&folder.path().join("nowhere"));
    }

    #[test]
    fn paths_without_a_block_device_are_refused() {
        let refused = |path| {
            let error = Device::open(Path::new(path), Path::new("/tmp")).unwrap_err();
            assert!(error.is_permanent());
            error.to_string()
        };
        for path in ["/dev/null", "/tmp"] {
            assert_eq!(refused(path), format!("{path}: found no block device, expected one such as /dev/sdb"));
        }
        let expected = "/nowhere: No such file or directory (os error 2); expected a block device such as /dev/sdb";
        assert_eq!(refused("/nowhere"), expected);
    }
}
