//! The files of a recording: numbered segments. Each is written once, sequentially, and never reopened.
//!
//! Source: RFC 8878, section 3: a zstd file is a sequence of frames. Each appended piece is a frame with a checksum, so
//! a file that ends after any piece is valid.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use flashwise_core::recording::HEADER;
use rustix::fs::Access;

/// Compression level.
const ZSTD_LEVEL: i32 = 3;

/// The limits of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a segment. A new one begins before it would be exceeded.
    pub segment_bytes_max: u64,
    /// Maximum size of all segments, including those of earlier starts. Nothing is written beyond it.
    pub total_bytes_max: u64,
}

/// The names of a recording's segments. `trace.csv.zst` stands for `trace.000001.csv.zst`, `trace.000002.csv.zst` and
/// so on, which sort in the order of writing.
#[derive(Clone, Debug)]
pub struct Names {
    folder: PathBuf,
    /// The part before the number, with a dot.
    before: OsString,
    /// The part after the number, with a dot, or empty.
    after: OsString,
}

/// The segments on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct KeptSegments {
    /// The highest number of a segment; 0 if there is none.
    last: u64,
    /// Total size of the segments in bytes.
    bytes: u64,
}

impl Names {
    /// Returns the names for a path in the configuration.
    pub fn of(path: &Path) -> Names {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = path.file_name().unwrap_or_default().as_bytes();
        let uncompressed = name.strip_suffix(b".zst").unwrap_or(name);
        // A leading dot hides a file, and does not begin an extension.
        let dot = uncompressed.iter().rposition(|&byte| byte == b'.').filter(|&at| at > 0);
        let stem_bytes = dot.unwrap_or(uncompressed.len());
        let before = [&name[..stem_bytes], b"."].concat();
        let after = name[stem_bytes..].to_vec();
        Names { folder: folder.to_owned(), before: OsString::from_vec(before), after: OsString::from_vec(after) }
    }

    /// The folder of the segments.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of a segment.
    pub fn path(&self, number: u64) -> PathBuf {
        self.with(&format!("{number:06}"))
    }

    /// The path of a segment, with NUMBER as a placeholder.
    pub fn pattern(&self) -> String {
        self.with("NUMBER").display().to_string()
    }

    fn with(&self, number: &str) -> PathBuf {
        let mut name = self.before.clone();
        name.push(number);
        name.push(&self.after);
        self.folder.join(name)
    }

    /// Parses the number from the name of a segment of this recording.
    fn number(&self, name: &OsStr) -> Option<u64> {
        let digits = name.as_bytes().strip_prefix(self.before.as_bytes())?.strip_suffix(self.after.as_bytes())?;
        let is_number = digits.len() >= 6 && digits.iter().all(u8::is_ascii_digit);
        std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
    }

    fn found(&self) -> io::Result<KeptSegments> {
        let mut found = KeptSegments::default();
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            let Some(number) = self.number(&entry.file_name()) else { continue };
            found.last = found.last.max(number);
            // A segment that was removed meanwhile takes no space.
            found.bytes += entry.metadata().map_or(0, |metadata| metadata.len());
        }
        Ok(found)
    }
}

/// Creates the file of a segment; fails if it exists.
type Create = fn(&Path) -> io::Result<Box<dyn Write + Send>>;

fn create_new(path: &Path) -> io::Result<Box<dyn Write + Send>> {
    Ok(Box::new(OpenOptions::new().write(true).create_new(true).open(path)?))
}

/// The segment that is being written.
struct Open {
    file: Box<dyn Write + Send>,
    path: PathBuf,
    bytes: u64,
}

/// Writes a recording. The first piece begins a new segment, and so does each piece that does not fit.
pub struct Segments {
    names: Names,
    is_compressed: bool,
    limits: Limits,
    create: Create,
    open: Option<Open>,
    last_path: Option<PathBuf>,
    /// Total size of all segments in bytes.
    bytes: u64,
    /// Their total size when there was no room for more.
    full_at_bytes: Option<u64>,
}

impl Segments {
    /// Starts a recording. The first file is created with the first write.
    ///
    /// # Errors
    /// The folder cannot be read or written.
    pub fn new(path: &Path, limits: Limits) -> io::Result<Segments> {
        Segments::with(path, limits, create_new)
    }

    /// Like [`new`](Self::new), with a custom function to create files.
    pub fn with(path: &Path, limits: Limits, create: Create) -> io::Result<Segments> {
        let names = Names::of(path);
        rustix::fs::access(names.folder(), Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)?;
        let bytes = names.found()?.bytes;
        let full_at_bytes = (bytes >= limits.total_bytes_max).then_some(bytes);
        let is_compressed = path.extension().is_some_and(|extension| extension == "zst");
        Ok(Segments { names, is_compressed, limits, create, open: None, last_path: None, bytes, full_at_bytes })
    }

    /// Total size of all segments in bytes, including those of earlier starts.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The segment of the last write.
    pub fn last_path(&self) -> Option<&Path> {
        self.last_path.as_deref()
    }

    /// True if there was no room for the last write.
    pub fn is_full(&self) -> bool {
        self.full_at_bytes.is_some()
    }

    /// Writes complete lines as one piece. Returns false if there was no room. Room returns when segments are removed.
    pub fn append(&mut self, lines: &[u8]) -> io::Result<bool> {
        if let Some(full_at_bytes) = self.full_at_bytes {
            self.bytes = self.names.found()?.bytes;
            if self.bytes >= full_at_bytes {
                return Ok(false);
            }
            self.full_at_bytes = None;
        }
        let piece = self.encoded(lines)?;
        let is_too_large = |open: &Open| open.bytes + piece.len() as u64 > self.limits.segment_bytes_max;
        if self.open.as_ref().is_some_and(is_too_large) {
            self.open = None;
        }
        let mut header = Vec::new();
        if self.open.is_none() {
            header = self.encoded(format!("{HEADER}\n").as_bytes())?;
            self.bytes = self.names.found()?.bytes;
        }
        let added = (header.len() + piece.len()) as u64;
        if self.bytes + added > self.limits.total_bytes_max {
            (self.open, self.full_at_bytes) = (None, Some(self.bytes));
            return Ok(false);
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.begin()?,
        };
        header.extend(piece);
        open.file.write_all(&header)?;
        open.bytes += added;
        self.bytes += added;
        self.open = Some(open);
        Ok(true)
    }

    fn begin(&mut self) -> io::Result<Open> {
        let mut number = self.names.found()?.last + 1;
        loop {
            let path = self.names.path(number);
            match (self.create)(&path) {
                Ok(file) => {
                    self.last_path = Some(path.clone());
                    return Ok(Open { file, path, bytes: 0 });
                }
                // Another server with the same configuration was faster.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    fn encoded(&self, lines: &[u8]) -> io::Result<Vec<u8>> {
        if !self.is_compressed {
            return Ok(lines.to_vec());
        }
        let mut compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL)?;
        compressor.include_checksum(true)?;
        compressor.compress(lines)
    }
}

impl std::fmt::Debug for Segments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let open = self.open.as_ref().map(|open| &open.path);
        f.debug_struct("Segments").field("names", &self.names).field("open", &open).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNLIMITED: Limits = Limits { segment_bytes_max: u64::MAX, total_bytes_max: u64::MAX };

    fn names(folder: &Path) -> Vec<String> {
        let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_number_comes_before_the_extension() {
        for (path, segment) in [
            ("trace", "./trace.000007"),
            ("trace.csv", "./trace.000007.csv"),
            ("/a.b/trace.csv.zst", "/a.b/trace.000007.csv.zst"),
            ("/a.b/trace.zst", "/a.b/trace.000007.zst"),
            ("today.1.csv", "./today.1.000007.csv"),
            (".hidden", "./.hidden.000007"),
        ] {
            let names = Names::of(Path::new(path));
            assert_eq!(names.path(7), Path::new(segment));
            assert_eq!(names.number(names.path(7).file_name().unwrap()), Some(7));
            assert_eq!(names.number(Path::new(path).file_name().unwrap()), None);
        }
        let names = Names::of(Path::new("trace.csv"));
        assert_eq!(names.path(1_234_567), Path::new("./trace.1234567.csv"));
        for other in ["trace.7.csv", "trace.00000x.csv", "trace.000007.csv.zst", "other.000007.csv", "trace.+00007.csv"]
        {
            assert_eq!(names.number(OsStr::new(other)), None, "{other}");
        }
    }

    #[test]
    fn numbers_go_up_past_gaps_and_no_file_is_written_twice() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["trace.csv", "trace.000002.csv", "trace.000005.csv", "trace.000009.csv.zst"] {
            std::fs::write(folder.path().join(name), "precious").unwrap();
        }
        let path = folder.path().join("trace.csv");
        // Both start before either has a file.
        let (mut one, mut other) = (Segments::new(&path, UNLIMITED).unwrap(), Segments::new(&path, UNLIMITED).unwrap());
        assert_eq!(names(folder.path()).len(), 4);
        assert!(one.append(b"1\n").unwrap());
        assert!(other.append(b"2\n").unwrap());
        assert!(one.append(b"3\n").unwrap());
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        for name in ["trace.csv", "trace.000002.csv", "trace.000005.csv", "trace.000009.csv.zst"] {
            assert_eq!(read(name), "precious");
        }
        assert_eq!(read("trace.000006.csv"), format!("{HEADER}\n1\n3\n"));
        assert_eq!(read("trace.000007.csv"), format!("{HEADER}\n2\n"));
        assert_eq!(names(folder.path()).len(), 6);
    }

    /// Two threads that read the folder concurrently find the same last number.
    #[test]
    fn threads_that_begin_at_once_have_segments_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        std::thread::scope(|scope| {
            for number in 0..16 {
                let path = &path;
                scope.spawn(move || {
                    let mut segments = Segments::new(path, UNLIMITED).unwrap();
                    assert!(segments.append(format!("{number}\n").as_bytes()).unwrap());
                });
            }
        });
        assert_eq!(names(folder.path()).len(), 16);
        let mut lines: Vec<u32> = names(folder.path())
            .iter()
            .map(|name| std::fs::read_to_string(folder.path().join(name)).unwrap())
            .map(|text| text.lines().nth(1).unwrap().parse().unwrap())
            .collect();
        lines.sort_unstable();
        assert_eq!(lines, (0..16).collect::<Vec<_>>());
    }

    /// With a header of 38 bytes and lines of 10, a segment of 60 bytes has two lines and 58 bytes. The 130 bytes have
    /// room for a second one of two lines.
    #[test]
    fn a_full_segment_is_followed_by_another_and_a_full_recording_waits_until_segments_were_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.csv");
        let limits = Limits { segment_bytes_max: 60, total_bytes_max: 130 };
        let mut segments = Segments::new(&path, limits).unwrap();
        let append = |segments: &mut Segments| segments.append(b"123456789\n").unwrap();
        for (segment, bytes) in [(1, 48), (1, 58), (2, 106), (2, 116)] {
            assert!(append(&mut segments));
            assert_eq!((segments.last_path(), segments.bytes()), (Some(&*Names::of(&path).path(segment)), bytes));
        }
        assert!(!append(&mut segments) && segments.is_full());
        assert!(!append(&mut segments));
        assert_eq!(names(folder.path()), ["trace.000001.csv", "trace.000002.csv"]);
        // Another start finds no room either, and creates no file.
        let mut later = Segments::new(&path, limits).unwrap();
        assert!(!append(&mut later));
        assert_eq!(names(folder.path()).len(), 2);
        std::fs::remove_file(Names::of(&path).path(1)).unwrap();
        assert!(append(&mut segments) && !segments.is_full());
        assert_eq!(
            (names(folder.path()), segments.bytes()),
            (vec!["trace.000002.csv".to_owned(), "trace.000003.csv".to_owned()], 106)
        );
        // A recording at its limit is full from the start.
        assert!(Segments::new(&path, Limits { total_bytes_max: 106, ..limits }).unwrap().is_full());
    }

    /// If the file is cut after any piece, zstd's own reader accepts it.
    #[test]
    fn every_piece_of_a_compressed_segment_is_a_frame() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.zst");
        let mut segments = Segments::new(&path, UNLIMITED).unwrap();
        let mut expected = format!("{HEADER}\n");
        for number in 0..5 {
            let lines = format!("{number},a,read,0,4096,\n").repeat(100);
            expected += &lines;
            assert!(segments.append(lines.as_bytes()).unwrap());
            let bytes = std::fs::read(folder.path().join("trace.000001.zst")).unwrap();
            assert_eq!(segments.bytes(), bytes.len() as u64);
            assert_eq!(String::from_utf8(zstd::decode_all(&*bytes).unwrap()).unwrap(), expected);
        }
    }
}
