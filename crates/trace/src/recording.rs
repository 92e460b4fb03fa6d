//! Reads a recording of `flashwise serve` with all its details: every operation in order, with its flags.
//!
//! [`formats`](crate::formats) reads the same file as a trace, with reads and writes only.

use flashwise_core::recording::HEADER;
pub use flashwise_core::recording::{Flags, Operation};

use crate::chunks::RECORD_BYTES_MAX;
use crate::error::{Place, TraceError};
use crate::formats::{Malformed, recorded};
use crate::input::Input;
use crate::progress::Progress;
pub use crate::request::RecordedRequest;
use crate::request::Volumes;

/// An open recording: an iterator over its requests. If the server was killed, it ends with the last complete line.
pub struct Recording<'a> {
    input: Input<'a>,
    volumes: Volumes,
    buffer: Vec<u8>,
    /// The range of the buffer that is read and not yet consumed.
    unread: std::ops::Range<usize>,
    line: u64,
    at_end: bool,
}

const BUFFER_BYTES: usize = 256 << 10;

impl<'a> Recording<'a> {
    /// Opens the recording at `path`, compressed or not; `-` is standard input. `progress` receives the number of bytes
    /// read.
    ///
    /// # Errors
    /// A file that does not begin with the header of a recording.
    pub fn open(path: impl AsRef<std::path::Path>, progress: &'a dyn Progress) -> Result<Recording<'a>, TraceError> {
        Recording::new(Input::open(path, progress)?)
    }

    /// Reads the recording from `input`.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn new(input: Input<'a>) -> Result<Recording<'a>, TraceError> {
        let mut recording = Recording {
            input,
            volumes: Volumes::default(),
            buffer: vec![0; BUFFER_BYTES],
            unread: 0..0,
            line: 0,
            at_end: false,
        };
        let header = recording.next_line()?;
        let line = recording.buffer[header.clone().unwrap_or_default()].to_vec();
        let expected = || format!("a recording, which begins with the line {HEADER}");
        if line != HEADER.as_bytes() {
            return Err(recording.malformed(Malformed::new(&line, expected())));
        }
        Ok(recording)
    }

    /// Returns the volumes that were seen so far.
    pub fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    fn malformed(&self, malformed: Malformed) -> TraceError {
        let (path, place) = (self.input.path().to_owned(), Place::Line(self.line));
        TraceError::Malformed { path, place, found: malformed.found, expected: malformed.expected }
    }

    /// Returns the next complete line, without its end, as a range of the buffer.
    fn next_line(&mut self) -> Result<Option<std::ops::Range<usize>>, TraceError> {
        let mut searched = 0;
        loop {
            let start = self.unread.start;
            if let Some(newline) = memchr::memchr(b'\n', &self.buffer[start + searched..self.unread.end]) {
                let end = start + searched + newline;
                self.unread.start = end + 1;
                self.line += 1;
                let carriage_return = end > start && self.buffer[end - 1] == b'\r';
                return Ok(Some(start..end - usize::from(carriage_return)));
            }
            searched = self.unread.len();
            if self.at_end {
                return Ok(None);
            }
            self.read_on()?;
        }
    }

    fn read_on(&mut self) -> Result<(), TraceError> {
        let kept = self.unread.len();
        if kept > RECORD_BYTES_MAX {
            self.line += 1;
            let expected = format!("lines shorter than {RECORD_BYTES_MAX} bytes");
            let found = format!("a line of more than {kept} bytes");
            return Err(self.malformed(Malformed { found, expected }));
        }
        self.buffer.copy_within(self.unread.clone(), 0);
        self.buffer.resize(kept + BUFFER_BYTES, 0);
        let read = self.input.fill_to_cut(&mut self.buffer[kept..])?;
        self.at_end = read < BUFFER_BYTES;
        self.unread = 0..kept + read;
        Ok(())
    }

    fn next_request(&mut self) -> Result<Option<RecordedRequest>, TraceError> {
        while let Some(line) = self.next_line()? {
            if line.is_empty() {
                continue;
            }
            match recorded(&self.buffer[line], &mut self.volumes) {
                Ok(Some(request)) => return Ok(Some(request)),
                Ok(None) => {}
                Err(malformed) => return Err(self.malformed(malformed)),
            }
        }
        Ok(None)
    }
}

impl Iterator for Recording<'_> {
    type Item = Result<RecordedRequest, TraceError>;

    /// Returns the next request. After an error, the following lines can still be read.
    fn next(&mut self) -> Option<Self::Item> {
        self.next_request().transpose()
    }
}

#[cfg(test)]
mod tests {
    use flashwise_core::filter::Caching;

    use super::*;
    use crate::progress::Silent;

    fn open(contents: impl Into<Vec<u8>>) -> Result<Recording<'static>, TraceError> {
        let contents = std::io::Cursor::new(contents.into());
        Recording::new(Input::new("recording", Box::new(contents), &Silent)?)
    }

    fn all(contents: impl Into<Vec<u8>>) -> Result<Vec<RecordedRequest>, String> {
        open(contents).and_then(Iterator::collect).map_err(|error| error.to_string())
    }

    #[test]
    fn every_operation_is_read_with_its_flags() {
        let text = format!(
            "{HEADER}\n5,a,write,512,1024,fua\n\r\n6,b,write-zeroes,0,4096,fast-zero+no-hole\n7,a,flush,0,0,\n\
             8,a,read,0,512,cache-never\n9,a,write,0,512,fua+cache-always"
        );
        let mut recording = open(format!("{text}\n")).unwrap();
        let zeroes = Flags { no_hole: true, only_if_fast: true, ..Flags::default() };
        let expected = [
            (5, 0, Operation::Write, 512, 1024, Flags { force_unit_access: true, ..Flags::default() }),
            (6, 1, Operation::WriteZeroes, 0, 4096, zeroes),
            (7, 0, Operation::Flush, 0, 0, Flags::default()),
            (8, 0, Operation::Read, 0, 512, Flags { caching: Caching::Never, ..Flags::default() }),
            (
                9,
                0,
                Operation::Write,
                0,
                512,
                Flags { force_unit_access: true, caching: Caching::Always, ..Flags::default() },
            ),
        ]
        .map(|(time_us, volume, operation, offset_bytes, length_bytes, flags)| RecordedRequest {
            time_us,
            volume,
            operation,
            offset_bytes,
            length_bytes,
            flags,
        });
        let found: Vec<_> = recording.by_ref().map(Result::unwrap).collect();
        assert_eq!(found, expected);
        assert_eq!(recording.volumes().names(), [b"a", b"b"]);
        // A last line without newline is incomplete.
        assert_eq!(all(text).unwrap(), expected[..4]);
    }

    #[test]
    fn lines_across_the_ends_of_the_buffer_are_whole() {
        // 100,000 lines of 23 to 28 bytes: about ten buffers.
        let lines: String =
            (0..100_000).map(|number| format!("{number},volume,read,{},4096,\n", 4096 * number)).collect();
        let found = all(format!("{HEADER}\n{lines}")).unwrap();
        assert_eq!(found.len(), 100_000);
        assert!((0..).zip(&found).all(|(number, request)| request.offset_bytes == 4096 * number));
    }

    #[test]
    fn a_compressed_recording_that_was_cut_off_is_read_as_far_as_it_was_flushed() {
        use std::io::Write;
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.write_all(format!("{HEADER}\n1,a,read,0,4096,\n2,a,read,4096,4096,\n").as_bytes()).unwrap();
        encoder.flush().unwrap();
        let flushed = encoder.get_ref().len();
        encoder.write_all(b"3,a,read,8192,4096,\n4,a,re").unwrap();
        encoder.flush().unwrap();
        let later = encoder.get_ref().clone();
        for (cut, requests) in [(flushed, 2), (later.len() - 1, 2), (later.len(), 3)] {
            let cut = &later[..cut];
            assert_eq!(all(cut).unwrap().len(), requests);
            let input = Input::new("trace", Box::new(std::io::Cursor::new(cut.to_vec())), &Silent).unwrap();
            let file = crate::normalised::normalise(input, &Default::default(), tempfile::tempfile().unwrap());
            let trace = crate::normalised::trace::Trace::map("trace", &file.unwrap()).unwrap();
            assert_eq!(trace.description().requests, requests as u64);
        }
        // Damage is a different error: a block of a reserved type, RFC 8878, section 3.1.1.2.2.
        let mut damaged = later.clone();
        damaged[flushed] |= 0b110;
        assert!(all(damaged).unwrap_err().starts_with("recording: damaged zstd data after byte "));
    }

    #[test]
    fn invalid_recordings_are_refused_with_the_line() {
        let begins = "expected a recording, which begins with the line time_us,volume,op,offset,length,flags";
        assert_eq!(all("").unwrap_err(), format!("recording, line 0: found \"\", {begins}"));
        assert_eq!(all("1,a,R,0,1\n").unwrap_err(), format!("recording, line 1: found \"1,a,R,0,1\", {begins}"));
        let error = all(format!("{HEADER}\n1,a,read,0,1,\n1,a,raed,0,1,\n")).unwrap_err();
        assert_eq!(
            error,
            "recording, line 3: found \"raed\", expected read, write, flush, trim, write-zeroes or cache"
        );
        let error = all(format!("{HEADER}\n{}", "1".repeat(3 << 20))).unwrap_err();
        assert!(error.starts_with("recording, line 2: found a line of more than "), "{error}");
    }
}
