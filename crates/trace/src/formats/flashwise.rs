//! Recordings of `flashwise serve --record`: `time_us,volume,op,offset,length,flags`, with a header line of these
//! names.
//!
//! Source: this project. The time is in microseconds on the server's clock, offset and length are in bytes. `op` is
//! `read`, `write`, `flush`, `trim`, `write-zeroes` or `cache`. `flags` is empty or some of these, joined by `+`:
//!
//! - `fua`: force unit access;
//! - `no-hole`: zeroes that keep their space;
//! - `fast-zero`: zeroes only if that is fast;
//! - `cache-always`, `cache-never`: the decision of the server's I/O filter for the client.
//!
//! Every line ends with a newline; a last line without one is incomplete and left out. Only reads and writes count as
//! accesses; a [`Recording`](crate::recording::Recording) also returns the other operations.

use flashwise_core::recording::{Flags, HEADER, Operation};

use super::fields::{Fields, TimeUnit};
use super::plausible::{COMMAS, Layout, Origin, Origins};
use super::unfinished::Unfinished;
use super::{Fit, Format, Lines, Malformed, ParseLine, Record, VOLUME_BYTES_MAX, check};
use crate::request::{RecordedRequest, Volumes};

/// The row of recordings in the table of formats.
pub static FORMAT: Format = Format {
    name: "flashwise",
    title: "Recording of flashwise serve",
    source: "time_us,volume,op,offset,length,flags; flashwise serve --record; reads and writes count, other ops are \
        skipped",
    parameters: &[],
    recognise: |sample| if sample.lines().next() == Some(HEADER.as_bytes()) { Fit::Yes } else { Fit::No },
    parser: |_, _, _| Ok(Box::new(Unfinished(Box::new(Lines(Recorded))))),
};

/// Parses a line without its end; `None` for a header.
#[inline]
pub fn recorded(line: &[u8], volumes: &mut Volumes) -> Result<Option<RecordedRequest>, Malformed> {
    if line == HEADER.as_bytes() {
        return Ok(None);
    }
    let mut fields = Fields::new(line, b',');
    let time_us = fields.time_us(TimeUnit::Microseconds, "a time in microseconds")?;
    let volume = fields.next("a volume")?;
    let word = fields.next(Operation::EXPECTED)?;
    let operation = Operation::of_name(word).ok_or_else(|| Malformed::new(word, Operation::EXPECTED))?;
    let offset_bytes = fields.decimal("an offset in bytes")?;
    let length_bytes = fields.decimal("a length in bytes")?;
    let words = fields.next(Flags::EXPECTED)?;
    let flags = Flags::parse(words).ok_or_else(|| Malformed::new(words, Flags::EXPECTED))?;
    fields.end(6)?;
    let request =
        RecordedRequest { time_us, volume: volumes.number(volume), operation, offset_bytes, length_bytes, flags };
    check_range(&request)?;
    Ok(Some(request))
}

/// Rejects requests that no volume can have had. Operations without data can be as long as the volume.
#[inline]
fn check_range(request: &RecordedRequest) -> Result<(), Malformed> {
    let RecordedRequest { offset_bytes, length_bytes, .. } = *request;
    if let Some(access) = request.access() {
        return check(&access, VOLUME_BYTES_MAX);
    }
    if length_bytes > VOLUME_BYTES_MAX || offset_bytes > VOLUME_BYTES_MAX - length_bytes {
        let found = format!("a request of {length_bytes} bytes at byte {offset_bytes}");
        return Err(Malformed { found, expected: format!("one that ends at byte {VOLUME_BYTES_MAX} or before") });
    }
    Ok(())
}

#[derive(Debug)]
struct Recorded;

impl ParseLine for Recorded {
    #[inline]
    fn line(&self, line: &[u8], volumes: &mut Volumes) -> Result<Record, Malformed> {
        Ok(match recorded(line, volumes)? {
            None => Record::Ignored,
            Some(request) => Record::Recorded(request),
        })
    }

    fn layout(&self) -> Option<Layout> {
        Some(Layout {
            time: Some((0, TimeUnit::Microseconds)),
            op: Some(2),
            offset: (3, 1),
            length: (4, 1),
            volume: vec![1],
            origins: Origins { time: Origin::Header, offset: Origin::Header, length: Origin::Header },
            ..COMMAS
        })
    }
}

#[cfg(test)]
mod tests {
    use flashwise_core::filter::Caching;
    use flashwise_core::recording::{Flags, HEADER, Operation, Row};

    use super::recorded;
    use crate::formats::testing::{read, recognised, refuses, requests};

    const TRACE: &[u8] = b"time_us,volume,op,offset,length,flags\n\
        1000,a,read,8192,4096,\n\
        1001,b,write,512,1024,fua\n\
        1002,a,flush,0,0,\n\
        1003,a,trim,0,1048576,\n\
        1004,a,write-zeroes,0,4096,fua+no-hole+fast-zero\n\
        1005,a,cache,0,4096,\n\
        1006,a,write,0,1,\n";

    #[test]
    fn reads_and_writes_count_and_other_operations_are_passed_over() {
        let expected = ["1000 R a 8192 4096", "1001 W b 512 1024", "1006 W a 0 1"];
        assert_eq!(requests("flashwise", TRACE), expected);
        assert_eq!(read("flashwise", TRACE).skipped, 4);
        assert_eq!(recognised(TRACE), Ok("flashwise"));
    }

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let mut volumes = crate::request::Volumes::default();
        assert_eq!(recorded(HEADER.as_bytes(), &mut volumes), Ok(None));
        let flags = Flags { force_unit_access: true, no_hole: true, only_if_fast: true, caching: Caching::Always };
        for operation in Operation::ALL {
            let row = Row { time_us: 5, volume: "a", operation, offset_bytes: 512, length_bytes: 1024, flags };
            let read = recorded(row.to_string().as_bytes(), &mut volumes).unwrap().unwrap();
            assert_eq!((read.time_us, read.volume, read.operation, read.flags), (5, 0, operation, flags));
            assert_eq!((read.offset_bytes, read.length_bytes), (512, 1024));
        }
    }

    #[test]
    fn a_line_that_was_not_finished_is_left_out() {
        // Every prefix of the last line could be a line with fewer digits or without flags.
        for cut in 1.."1006,a,write,0,1,\n".len() {
            let batch = read("flashwise", &TRACE[..TRACE.len() - cut]);
            assert_eq!((batch.requests.len(), batch.skipped, batch.malformed.len()), (2, 4, 0), "{cut} bytes cut");
        }
    }

    #[test]
    fn refuses_malformed_input() {
        let flags = "expected nothing, or some of fua, no-hole, fast-zero, cache-always and cache-never, joined by +";
        let cases = [
            ("x,a,read,0,1,\n", r#"found "x", expected a time in microseconds"#.to_owned()),
            (
                "1,a,erase,0,1,\n",
                r#"found "erase", expected read, write, flush, trim, write-zeroes or cache"#.to_owned(),
            ),
            ("1,a,read,-1,1,\n", r#"found "-1", expected an offset in bytes"#.to_owned()),
            ("1,a,read,1,1KB,\n", r#"found "1KB", expected a length in bytes"#.to_owned()),
            ("1,a,write,1,1,fua+\n", format!(r#"found "fua+", {flags}"#)),
            (
                "1,a,read,0,1\n",
                format!(
                    r#"found "1,a,read,0,1", expected a line with one more field: {}"#,
                    flags.trim_start_matches("expected ")
                ),
            ),
            ("1,a,read,0,1,,\n", r#"found "1,a,read,0,1,,", expected a line of 6 fields"#.to_owned()),
            ("1,a,read,0,4294967297,\n", "found a request of 4294967297 bytes, expected at most 4294967296".to_owned()),
            (
                "1,a,trim,18446744073709551615,2,\n",
                "found a request of 2 bytes at byte 18446744073709551615, expected one that ends at byte \
                 144115188075855872 or before"
                    .to_owned(),
            ),
        ];
        let cases: Vec<_> = cases.iter().map(|(line, error)| (*line, error.as_str())).collect();
        refuses("flashwise", &cases);
    }
}
