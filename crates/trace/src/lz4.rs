//! Concatenated LZ4 frames. A truncated last frame is an error, which the decoder itself does not detect at the end of
//! a block.

use std::io::{self, BufRead, Read};

use lz4_flex::frame::FrameDecoder;

/// The decompressed contents of all frames.
pub struct Frames<R: BufRead> {
    decoder: FrameDecoder<Watched<R>>,
    /// True if a frame has begun.
    is_open: bool,
    /// True for the legacy format of before 2013, whose frames end at the end of the file.
    is_legacy: bool,
}

/// A reader that remembers reaching its end.
struct Watched<R> {
    inner: R,
    at_end: bool,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.at_end |= read == 0 && !buffer.is_empty();
        Ok(read)
    }
}

impl<R: BufRead> Frames<R> {
    /// Decompresses `frames`.
    pub fn new(frames: R) -> Self {
        let decoder = FrameDecoder::new(Watched { inner: frames, at_end: false });
        Frames { decoder, is_open: false, is_legacy: false }
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        const LEGACY: u8 = 0x02;
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.is_open {
                match self.decoder.get_mut().inner.fill_buf()? {
                    [] => return Ok(0),
                    [first, ..] => self.is_legacy = *first == LEGACY,
                }
                self.is_open = true;
            }
            match self.decoder.read(buffer)? {
                0 if !self.decoder.get_mut().at_end => self.is_open = false,
                0 if self.is_legacy => return Ok(0),
                0 => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the last frame is cut off")),
                read => return Ok(read),
            }
        }
    }
}
