//! The bytes of a trace: a file, a file in an archive, or standard input, decompressed by content.
//!
//! A path can continue inside an archive as if the archive were a directory: `traces.tar.gz/msr/hm_0.csv.gz`. For an
//! archive of one file the name of the archive is enough.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::archive::tar::{self, TarFile};
use crate::archive::zip::ZipFile;
use crate::archive::{ArchiveError, Member};
use crate::error::TraceError;
use crate::files::name_of;
use crate::lz4;
use crate::progress::{Progress, Silent};

/// The maximum number of nested layers of compression and archives. The published Systor'17 samples are gzip within
/// zstd.
const LAYERS_MAX: usize = 6;
/// The number of bytes by which a layer is recognised.
const MAGIC_BYTES: usize = tar::HEADER_BYTES;
const BUFFER_BYTES: usize = 256 << 10;
/// The longest window of zstd that 64-bit programs read: `zstd --long=31` writes it.
const ZSTD_WINDOW_LOG_MAX: u32 = 31;

/// The decompressed contents of a trace.
pub struct Input<'a> {
    path: String,
    reader: Box<dyn BufRead + Send + 'a>,
    /// The error of truncated compressed data, until it is reported.
    cut: Option<TraceError>,
    /// True if carriage returns without newlines end lines.
    returns_end_lines: bool,
    progress: &'a (dyn Progress + 'a),
    read_bytes: Arc<AtomicU64>,
    /// The length of the file, if the input is a file.
    file_bytes: Option<u64>,
}

impl<'a> Input<'a> {
    /// Opens a file, or standard input if `path` is `-`. `progress` receives the number of compressed bytes read.
    pub fn open(path: impl AsRef<Path>, progress: &'a (dyn Progress + 'a)) -> Result<Self, TraceError> {
        let (path, name) = (path.as_ref(), name_of(path.as_ref()));
        let io = |source| TraceError::Io { path: name.clone(), source };
        if path == Path::new("-") {
            return Self::new("standard input", Box::new(io::stdin()), progress);
        }
        let (file, member) = match (File::open(path), split_at_archive(path)) {
            (Err(error), Some((archive, member))) if error.kind() == io::ErrorKind::NotADirectory => {
                (File::open(archive).map_err(io)?, Some(member))
            }
            (file, _) => (file.map_err(io)?, None),
        };
        let about = file.metadata().map_err(io)?;
        if about.is_dir() {
            let pattern = path.join("*");
            let expected = format!("expected a file; '{}' in quotes merges the files in it", pattern.display());
            return Err(io(io::Error::new(io::ErrorKind::IsADirectory, format!("found a directory, {expected}"))));
        }
        // The compressed size of a file in an archive is unknown at this point.
        let file_bytes = (about.is_file() && member.is_none()).then_some(about.len());
        let input = Self::of(&name, Box::new(file), Member::new(member.as_deref()), progress)?;
        Ok(Input { file_bytes, ..input })
    }

    /// Reads `source`, which errors call `path`.
    pub fn new(
        path: &str,
        source: Box<dyn Read + Send + 'a>,
        progress: &'a (dyn Progress + 'a),
    ) -> Result<Self, TraceError> {
        Self::of(path, source, Member::Only, progress)
    }

    fn of(
        path: &str,
        source: Box<dyn Read + Send + 'a>,
        mut member: Member,
        progress: &'a (dyn Progress + 'a),
    ) -> Result<Self, TraceError> {
        let read_bytes = Arc::<AtomicU64>::default();
        let counted = Counted { source, progress, read_bytes: read_bytes.clone() };
        let mut reader: Box<dyn BufRead + Send + 'a> = Box::new(BufReader::with_capacity(BUFFER_BYTES, counted));
        for _ in 0..LAYERS_MAX {
            let is_layer;
            (reader, is_layer) = unwrapped(reader, &mut member).map_err(|source| error(path, source))?;
            if !is_layer {
                break;
            }
        }
        if matches!(member, Member::Named(_)) {
            // The path continues after a file that is not an archive.
            return Err(TraceError::Io { path: path.to_owned(), source: io::ErrorKind::NotADirectory.into() });
        }
        let path = path.to_owned();
        Ok(Input { path, reader, cut: None, returns_end_lines: false, progress, read_bytes, file_bytes: None })
    }

    /// Returns the counter of the bytes read, which stays live, and the length of the file, if the input is a file.
    pub(crate) fn read_of(&self) -> Option<(Arc<AtomicU64>, u64)> {
        self.file_bytes.map(|bytes| (self.read_bytes.clone(), bytes))
    }

    /// Returns the name of this input for errors.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Treats carriage returns as line ends from here on.
    pub fn end_lines_at_returns(&mut self) {
        self.returns_end_lines = true;
    }

    /// Reports a note about this trace to the progress.
    pub fn note(&self, what: &str) {
        self.progress.note(&self.path, what);
    }

    /// Reports to the progress that the end is missing after `rows`, if compressed data is truncated or the last line
    /// `is_unfinished`.
    pub fn tell_of_cut(&self, is_unfinished: bool, rows: u64) {
        if is_unfinished || self.cut.is_some() {
            self.progress.ends_early(&self.path, rows);
        }
    }

    /// Fills `buffer` as far as the input has data; returns the number of bytes.
    pub fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, TraceError> {
        let filled = self.fill_to_cut(buffer)?;
        self.cut.take().map_or(Ok(filled), Err)
    }

    /// Works like [`fill`](Self::fill), but treats a truncation of compressed data as the end of the input. A later
    /// `fill` returns the error.
    pub fn fill_to_cut(&mut self, buffer: &mut [u8]) -> Result<usize, TraceError> {
        let mut filled = 0;
        while filled < buffer.len() && self.cut.is_none() {
            match self.reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(source) => match error(&self.path, source) {
                    cut if is_cut(&cut) => self.cut = Some(cut),
                    error => return Err(error),
                },
            }
        }
        if self.returns_end_lines {
            newlines_for_returns(&mut buffer[..filled]);
        }
        Ok(filled)
    }
}

/// Returns the names of the files in the archive at `path`, in its order.
///
/// # Errors
/// A file that is not an archive, or cannot be read.
pub(crate) fn members(path: &Path) -> Result<Vec<String>, TraceError> {
    let name = name_of(path);
    let file = File::open(path).map_err(|source| TraceError::Io { path: name.clone(), source })?;
    let counted = Counted { source: Box::new(file), progress: &Silent, read_bytes: Arc::default() };
    let mut reader: Box<dyn BufRead + Send> = Box::new(BufReader::with_capacity(BUFFER_BYTES, counted));
    for _ in 0..LAYERS_MAX {
        match unwrapped(reader, &mut Member::Listed) {
            Ok((within, true)) => reader = within,
            Ok((_, false)) => break,
            Err(source) => match source.downcast::<ArchiveError>() {
                Ok(ArchiveError::NotFound { names }) => return Ok(names),
                Ok(problem) => return Err(TraceError::Archive { path: name, problem: problem.to_string() }),
                Err(source) => return Err(error(&name, source)),
            },
        }
    }
    Err(TraceError::Io { path: name, source: io::ErrorKind::NotADirectory.into() })
}

/// Replaces carriage returns by newlines.
pub(crate) fn newlines_for_returns(bytes: &mut [u8]) {
    bytes.iter_mut().filter(|byte| **byte == b'\r').for_each(|byte| *byte = b'\n');
}

/// Returns the archive that `path` leads into, and the path inside the archive.
pub(crate) fn split_at_archive(path: &Path) -> Option<(&Path, PathBuf)> {
    let archive = path.ancestors().skip(1).find(|ancestor| ancestor.is_file())?;
    Some((archive, path.strip_prefix(archive).ok()?.to_owned()))
}

/// True if compressed data is truncated.
fn is_cut(error: &TraceError) -> bool {
    matches!(error, TraceError::Compression { source, .. } if source.kind() == io::ErrorKind::UnexpectedEof)
}

/// Converts an error of the layers: damage that a layer found, or a read error of the file below all layers.
fn error(path: &str, source: io::Error) -> TraceError {
    let path = path.to_owned();
    match source.downcast::<Damage>() {
        Ok(Damage { compression, byte, source }) => TraceError::Compression { path, compression, byte, source },
        Err(source) => match source.downcast::<ArchiveError>() {
            Ok(problem) => TraceError::Archive { path, problem: problem.to_string() },
            Err(source) => TraceError::Io {
                path,
                source: source.downcast::<Unreadable>().map_or_else(|other| other, |unreadable| unreadable.0),
            },
        },
    }
}

/// Data that a layer cannot decompress.
#[derive(Debug, thiserror::Error)]
#[error("damaged {compression} data")]
struct Damage {
    compression: &'static str,
    /// The position in the layer's decompressed contents.
    byte: u64,
    source: io::Error,
}

/// True if the error comes from another layer and already names its cause.
fn is_layer_error(inner: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    inner.is::<Damage>() || inner.is::<Unreadable>() || inner.is::<ArchiveError>()
}

/// A read error of a file, not caused by the layers above.
#[derive(Debug, thiserror::Error)]
#[error("unreadable")]
struct Unreadable(#[source] io::Error);

/// A layer of compression, which marks its errors as its own.
struct Layer<R> {
    decoder: R,
    compression: &'static str,
    bytes_read: u64,
}

impl<R: Read> Read for Layer<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.decoder.read(buffer) {
            Ok(read) => {
                self.bytes_read += read as u64;
                Ok(read)
            }
            Err(source) if source.get_ref().is_some_and(is_layer_error) => Err(source),
            Err(source) => {
                let Layer { compression, bytes_read: byte, .. } = *self;
                Err(io::Error::other(Damage { compression, byte, source }))
            }
        }
    }
}

struct Counted<'a> {
    source: Box<dyn Read + Send + 'a>,
    progress: &'a (dyn Progress + 'a),
    read_bytes: Arc<AtomicU64>,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.source.read(buffer) {
                Ok(read) => {
                    self.progress.advance(read as u64);
                    self.read_bytes.fetch_add(read as u64, Ordering::Relaxed);
                    return Ok(read);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(io::Error::other(Unreadable(error))),
            }
        }
    }
}

/// A reader that fails once.
struct Failed(Option<io::Error>);

impl Read for Failed {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

fn buffered<'a>(reader: impl Read + Send + 'a) -> Box<dyn BufRead + Send + 'a> {
    Box::new(BufReader::with_capacity(BUFFER_BYTES, reader))
}

/// Removes one layer of compression or one archive, if there is one.
fn unwrapped<'a>(
    mut reader: Box<dyn BufRead + Send + 'a>,
    member: &mut Member,
) -> io::Result<(Box<dyn BufRead + Send + 'a>, bool)> {
    let mut magic = vec![0; MAGIC_BYTES];
    let mut len = 0;
    while len < magic.len() {
        match reader.read(&mut magic[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if len == 0 => return Err(error),
            // The data before the damage is read first.
            Err(error) => {
                reader = buffered(Failed(Some(error)));
                break;
            }
        }
    }
    magic.truncate(len);
    let is = |wanted: &[u8]| magic.starts_with(wanted);
    let whole = Cursor::new(magic.clone()).chain(reader);
    fn layer<'a>(compression: &'static str, decoder: impl Read + Send + 'a) -> (Box<dyn BufRead + Send + 'a>, bool) {
        (buffered(Layer { decoder, compression, bytes_read: 0 }), true)
    }
    // Parallel compressors begin with a skippable frame.
    let is_skippable_frame = matches!(magic[..], [0x50..=0x5F, 0x2A, 0x4D, 0x18, ..]);
    Ok(if is(&[0x28, 0xB5, 0x2F, 0xFD]) || is_skippable_frame {
        let mut decoder = zstd::Decoder::with_buffer(whole)?;
        decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
        layer("zstd", decoder)
    } else if is(&[0x1F, 0x8B]) {
        layer("gzip", flate2::bufread::MultiGzDecoder::new(whole))
    } else if is(&[0xFD, b'7', b'z', b'X', b'Z', 0]) {
        layer("xz", liblzma::bufread::XzDecoder::new_multi_decoder(whole))
    } else if is(b"BZh") && matches!(magic.get(3), Some(b'1'..=b'9')) {
        layer("bzip2", bzip2::bufread::MultiBzDecoder::new(whole))
    } else if is(&[0x04, 0x22, 0x4D, 0x18]) || is(&[0x02, 0x21, 0x4C, 0x18]) {
        layer("lz4", lz4::Frames::new(whole))
    } else if is(b"PK\x03\x04") || is(b"PK\x05\x06") {
        (buffered(ZipFile::new(whole, &member.take())?), true)
    } else if tar::is_tar(&magic) {
        (buffered(TarFile::new(whole, member.take())?), true)
    } else {
        (Box::new(whole), false)
    })
}
