//! A trace in its original format: the format, the meaning of its columns, and its requests in batches.

use std::ops::ControlFlow;

use flashwise_core::filter::Filter;

use crate::chunks::{SAMPLE_BYTES, parse};
use crate::error::TraceError;
use crate::formats::{Batch, FormatSpec, Framing, Malformed, Parser, PassedOver, Reading, Sample};
use crate::input::{Input, newlines_for_returns};
use crate::settings::{DEFAULT_BLOCK_SIZE_BYTES, Settings};

/// A trace in its original format, opened for reading.
#[derive(Debug)]
pub struct Original {
    head: Vec<u8>,
    /// True if `head` is the whole trace.
    whole: bool,
    format: FormatSpec,
    reading: Option<Reading>,
    lenient: bool,
    filter: Option<Filter>,
}

/// Returns the first [`SAMPLE_BYTES`] of `input`, or all of it if it is shorter. A truncation of the input is reported
/// by the next read.
pub fn head(input: &mut Input) -> Result<Vec<u8>, TraceError> {
    let mut head = vec![0; SAMPLE_BYTES];
    let filled = input.fill_to_cut(&mut head)?;
    head.truncate(filled);
    Ok(head)
}

/// Converts `head` to the beginning of a text: without a UTF-8 byte order mark, and with newlines if carriage returns
/// without newlines end lines. Returns true in the second case.
fn text(head: &[u8]) -> (Vec<u8>, bool) {
    const MARK: &[u8] = b"\xEF\xBB\xBF";
    let mut text = head.strip_prefix(MARK).unwrap_or(head).to_vec();
    let returns_end_lines = memchr::memchr(b'\n', &text).is_none() && memchr::memchr(b'\r', &text).is_some();
    if returns_end_lines {
        newlines_for_returns(&mut text);
    }
    (text, returns_end_lines)
}

impl Original {
    /// Recognises the format of `input`.
    pub fn recognise(input: &mut Input, settings: &Settings) -> Result<Original, TraceError> {
        let head = head(input)?;
        Original::new(input, head, settings)
    }

    /// Recognises the format of `input`; `head` has already been read from it.
    pub fn new(input: &mut Input, head: Vec<u8>, settings: &Settings) -> Result<Original, TraceError> {
        if head.is_empty() {
            // Or the input is truncated before its first byte.
            input.fill(&mut [0])?;
            return Err(TraceError::Empty { path: input.path().to_owned() });
        }
        let whole = head.len() < SAMPLE_BYTES;
        let settled = |head: &[u8]| -> Result<(FormatSpec, Parser), TraceError> {
            let sample = Sample { bytes: head, whole };
            let format = match &settings.format {
                Some(format) => format.clone(),
                None => FormatSpec::recognise(input.path(), &sample)?,
            };
            // Neither framing nor columns depend on the block size.
            let parser = format.parser(&sample, DEFAULT_BLOCK_SIZE_BYTES)?;
            Ok((format, parser))
        };
        let (text, returns_end_lines) = text(&head);
        let (settled, is_text) = match settled(&text) {
            Ok((format, parser)) if parser.framing() == Framing::Lines => (Ok((format, parser)), true),
            found if text == head => (found, false),
            _ => (settled(&head), false),
        };
        let (format, parser) = match settled {
            Ok(settled) => settled,
            // A truncated input is the more likely cause.
            Err(unrecognised @ TraceError::Unrecognised { .. }) => {
                return Err(input.fill(&mut [0]).err().unwrap_or(unrecognised));
            }
            Err(error) => return Err(error),
        };
        let head = if is_text { text } else { head };
        if is_text && returns_end_lines {
            input.end_lines_at_returns();
        }
        let contradiction = |malformed: Malformed| {
            let Malformed { found, expected } = malformed;
            TraceError::Contradiction { path: input.path().to_owned(), found, expected }
        };
        let reading = parser.reading(&Sample { bytes: &head, whole }).map_err(contradiction)?;
        if let Some(Reading { columns, doubts }) = &reading {
            // If no column was guessed, the user has given all units.
            if columns.ends_with(')') {
                input.note(&format!("read as {columns}"));
            }
            doubts.iter().for_each(|doubt| input.note(doubt));
        }
        Ok(Original { head, whole, format, reading, lenient: settings.lenient, filter: settings.filter.clone() })
    }

    /// Returns the meaning of the columns, if it had to be guessed.
    pub fn columns(&self) -> Option<String> {
        self.reading.as_ref().map(|reading| reading.columns.clone()).filter(|columns| !columns.is_empty())
    }

    /// Returns the name of the format.
    pub fn format(&self) -> &'static str {
        self.format.format().name
    }

    /// Reads all requests and hands them to `consume` in batches, in order.
    pub fn for_each_batch(
        self,
        input: &mut Input,
        block_size_bytes: u64,
        mut consume: impl FnMut(Batch) -> Result<ControlFlow<()>, TraceError>,
    ) -> Result<(), TraceError> {
        let path = input.path().to_owned();
        let sample = Sample { bytes: &self.head, whole: self.whole };
        let mut parser = self.format.parser(&sample, block_size_bytes)?;
        if let Some(filter) = self.filter {
            let format = self.format.format().name;
            parser = parser.filtered(filter).ok_or_else(|| TraceError::NoProcesses { path: path.clone(), format })?;
        }
        let framing = parser.framing();
        let (mut broken_off, mut rows, mut passed_over) = (false, 0, PassedOver::default());
        let layout = parser.layout();
        let mut changed = None;
        let parsed = parse(input, self.head, &*parser, |batch, first_record| {
            if let Some((record, malformed)) = batch.malformed.first()
                && !self.lenient
            {
                let place = framing.place(first_record + record);
                let (found, expected) = (malformed.found.clone(), malformed.expected.clone());
                return Err(TraceError::Malformed { path: path.clone(), place, found, expected });
            }
            if let (None, Some(layout)) = (&changed, &layout) {
                let found = layout.changed(&batch.requests);
                changed = found.map(|found| {
                    format!(
                        "found {found} after {}; the units may change in the middle of the trace",
                        framing.place(first_record)
                    )
                });
            }
            rows += batch.requests.len() as u64 + batch.skipped + batch.malformed.len() as u64;
            passed_over.add(&batch.passed_over);
            broken_off = consume(batch)?.is_break();
            // Only an error ends parsing; this one is discarded below.
            if broken_off { Err(TraceError::Empty { path: path.clone() }) } else { Ok(()) }
        });
        if broken_off {
            return Ok(());
        }
        input.tell_of_cut(parsed?, rows);
        changed.iter().for_each(|changed| input.note(changed));
        if let Some(lines) = passed_over.described() {
            input.note(&lines);
        }
        Ok(())
    }
}
