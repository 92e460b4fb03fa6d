//! A trace's bytes: a file or standard input, decompressed by content.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};

use crate::error::TraceError;
use crate::progress::Progress;

/// How many layers of compression are taken off; the published Systor'17 samples come as gzip within zstd.
const LAYERS_MAX: usize = 4;
const BUFFER_BYTES: usize = 256 << 10;

/// The decompressed contents of a trace.
pub struct Input<'a> {
    path: String,
    reader: Box<dyn BufRead + Send + 'a>,
    compression: Option<&'static str>,
    bytes_read: u64,
}

impl<'a> Input<'a> {
    /// Opens a file, or standard input where `path` is `-`. `progress` is told of compressed bytes as they are read.
    pub fn open(path: &str, progress: &'a (dyn Progress + 'a)) -> Result<Self, TraceError> {
        let io = |source| TraceError::Io { path: path.to_owned(), source };
        if path == "-" {
            return Self::new("standard input", Box::new(io::stdin()), progress);
        }
        let file = File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.is_dir() {
            return Err(io(io::ErrorKind::IsADirectory.into()));
        }
        Self::new(path, Box::new(file), progress)
    }

    /// Reads `source`, which errors call `path`.
    pub fn new(
        path: &str,
        source: Box<dyn Read + Send + 'a>,
        progress: &'a (dyn Progress + 'a),
    ) -> Result<Self, TraceError> {
        let counted = Counted { source, progress };
        let mut reader: Box<dyn BufRead + Send + 'a> = Box::new(BufReader::with_capacity(BUFFER_BYTES, counted));
        let mut outermost = None;
        for _ in 0..LAYERS_MAX {
            let (inner, found) = decompressed(reader).map_err(|source| match outermost {
                None => TraceError::Io { path: path.to_owned(), source },
                Some(compression) => TraceError::Compression { path: path.to_owned(), compression, byte: 0, source },
            })?;
            reader = inner;
            let Some(compression) = found else { break };
            outermost = outermost.or(Some(compression));
        }
        Ok(Input { path: path.to_owned(), reader, compression: outermost, bytes_read: 0 })
    }

    /// What errors call this input.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Fills as much of `buffer` as the input has left; returns how much that is.
    pub fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, TraceError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.error(filled, source)),
            }
        }
        self.bytes_read += filled as u64;
        Ok(filled)
    }

    fn error(&self, filled: usize, source: io::Error) -> TraceError {
        let path = self.path.clone();
        match self.compression {
            None => TraceError::Io { path, source },
            Some(compression) => {
                TraceError::Compression { path, compression, byte: self.bytes_read + filled as u64, source }
            }
        }
    }
}

struct Counted<'a> {
    source: Box<dyn Read + Send + 'a>,
    progress: &'a (dyn Progress + 'a),
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.progress.advance(read as u64);
        Ok(read)
    }
}

type Layer<'a> = (Box<dyn BufRead + Send + 'a>, Option<&'static str>);

/// Takes one layer of compression off, if there is one.
fn decompressed<'a>(mut reader: Box<dyn BufRead + Send + 'a>) -> io::Result<Layer<'a>> {
    let mut magic = [0; 6];
    let mut len = 0;
    while len < magic.len() {
        match reader.read(&mut magic[len..])? {
            0 => break,
            read => len += read,
        }
    }
    let magic = magic[..len].to_vec();
    let is = |wanted: &[u8]| magic.starts_with(wanted);
    let whole = Cursor::new(magic.clone()).chain(reader);
    fn buffered<'a>(decoder: impl Read + Send + 'a) -> Box<dyn BufRead + Send + 'a> {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
    }
    Ok(if is(&[0x28, 0xB5, 0x2F, 0xFD]) {
        (buffered(zstd::Decoder::with_buffer(whole)?), Some("zstd"))
    } else if is(&[0x1F, 0x8B]) {
        (buffered(flate2::bufread::MultiGzDecoder::new(whole)), Some("gzip"))
    } else if is(&[0xFD, b'7', b'z', b'X', b'Z', 0]) {
        (buffered(liblzma::bufread::XzDecoder::new_multi_decoder(whole)), Some("xz"))
    } else if is(b"BZh") && matches!(magic.get(3), Some(b'1'..=b'9')) {
        (buffered(bzip2::bufread::MultiBzDecoder::new(whole)), Some("bzip2"))
    } else {
        (Box::new(whole), None)
    })
}
