//! Rows as lines of JSON in a file, each written when it is done, so that an interrupted run can resume.
//!
//! A line has the whole row and its origin: the trace's checksum, the options for reading it, and the version. A row
//! already in the file, of the same job over the same contents, is not run again.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use flashwise_trace::error::TraceError;
use flashwise_trace::output::{is_stream, name_of, open_stream, output_name};
use flashwise_trace::progress::Progress;
use flashwise_trace::sources::sources;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Job;
use crate::results::ResultRow;

/// Longer lines are not rows.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Version of the rows.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Origin of a trace's rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// SHA-256 of the trace, in hexadecimal; `None` if it cannot be read twice.
    pub trace_checksum: Option<String>,
    /// Options for reading it, if any were given.
    pub reading: Option<String>,
}

/// A file of rows, written by this process only, or a stream of them.
pub struct Lines {
    name: String,
    out: Mutex<Box<dyn Write + Send>>,
    known: HashSet<String>,
}

/// The reason why rows cannot be added to a file.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum LinesError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("{path}: found another run that writes to it, expected to be the only one")]
    Locked { path: String },
    #[error("{path}, line {line}: found no row ({problem}), expected what an earlier run wrote, or a new file")]
    NotARow { path: String, line: usize, problem: String },
}

/// The part of a line that identifies its row.
#[derive(Deserialize)]
struct Known {
    trace: String,
    job: String,
    version: String,
    trace_checksum: Option<String>,
    reading: Option<String>,
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    row: &'a ResultRow,
    version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_checksum: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reading: Option<&'a str>,
}

fn key(trace: &str, job: &str, checksum: &str, reading: Option<&str>) -> String {
    [trace, job, checksum, reading.unwrap_or_default()].join("\n")
}

impl Lines {
    /// Opens the file at `path`, which need not exist. An incomplete last line is removed. A [stream](is_stream) has no
    /// rows yet.
    ///
    /// # Errors
    /// The file is being written to, or does not contain rows.
    pub fn open(path: &Path) -> Result<Lines, LinesError> {
        let name = output_name(path);
        if is_stream(path)? {
            return Ok(Lines { name, out: Mutex::new(open_stream(path)?), known: HashSet::new() });
        }
        let io = |source| TraceError::Io { path: name.clone(), source };
        let file = File::options().read(true).append(true).create(true).open(path).map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(LinesError::Locked { path: name }),
            Err(std::fs::TryLockError::Error(error)) => return Err(io(error).into()),
        }
        let (mut known, mut whole, mut number, mut line) = (HashSet::new(), 0, 0, Vec::new());
        let mut lines = BufReader::new(&file);
        loop {
            line.clear();
            let read = lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).map_err(io)? as u64;
            number += 1;
            let not_a_row = |problem: String| LinesError::NotARow { path: name.clone(), line: number, problem };
            if line.pop_if(|byte| *byte == b'\n').is_none() {
                if read == LINE_BYTES_MAX {
                    return Err(not_a_row("a line of more than 1 MiB".to_owned()));
                }
                break;
            }
            whole += read;
            if line.is_empty() {
                continue;
            }
            let row: Known = serde_json::from_slice(&line).map_err(|error| not_a_row(error.to_string()))?;
            if let (Some(checksum), VERSION) = (&row.trace_checksum, row.version.as_str()) {
                let job = row.job.parse().map_or_else(|_| row.job.clone(), |job: Job| job.canonical());
                known.insert(key(&row.trace, &job, checksum, row.reading.as_deref()));
            }
        }
        if !line.is_empty() {
            file.set_len(whole).map_err(io)?;
        }
        Ok(Lines { name, out: Mutex::new(Box::new(file)), known })
    }

    /// True if the file, when opened, had the row of `job`, in any spelling, over the trace called `trace`.
    pub fn has(&self, trace: &str, origin: &Origin, job: &Job) -> bool {
        let checksum = origin.trace_checksum.as_deref();
        checksum.is_some_and(|sum| self.known.contains(&key(trace, &job.canonical(), sum, origin.reading.as_deref())))
    }

    /// Appends a complete row.
    ///
    /// # Errors
    /// The row cannot be written.
    pub fn write(&self, row: &ResultRow, origin: &Origin) -> Result<(), TraceError> {
        let io = |source| TraceError::Io { path: self.name.clone(), source };
        let (trace_checksum, reading) = (origin.trace_checksum.as_deref(), origin.reading.as_deref());
        let line = serde_json::to_string(&Line { row, version: VERSION, trace_checksum, reading });
        let line = line.map_err(|error| io(error.into()))? + "\n";
        let mut out = self.out.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        out.write_all(line.as_bytes()).and_then(|()| out.flush()).map_err(io)
    }
}

/// Returns the SHA-256 of the files at `paths`, in hexadecimal: of one file, that of its contents; of several, that of
/// their checksums. For a file in an archive it is that of the archive. `progress` counts bytes.
///
/// # Errors
/// A file cannot be read.
pub fn checksum(paths: &[PathBuf], progress: &dyn Progress) -> Result<String, TraceError> {
    let mut sums = Vec::new();
    for path in paths {
        for file in sources(path)? {
            sums.push(checksum_of_file(&file, progress)?);
        }
    }
    Ok(checksum_of_all(&sums))
}

/// Returns the checksum of a trace in several files, from those of each.
pub fn checksum_of_all(sums: &[String]) -> String {
    match sums {
        [one] => one.clone(),
        sums => hexadecimal(&Sha256::digest(sums.join("\n"))),
    }
}

/// Returns the SHA-256 of the file at `path`, in hexadecimal.
fn checksum_of_file(path: &Path, progress: &dyn Progress) -> Result<String, TraceError> {
    let io = |source| TraceError::Io { path: name_of(path), source };
    // A path may continue inside an archive.
    let place = path.ancestors().find(|ancestor| ancestor.is_file()).unwrap_or(path);
    let mut file = File::open(place).map_err(io)?;
    let (mut sum, mut chunk) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        let read = file.read(&mut chunk).map_err(io)?;
        if read == 0 {
            return Ok(hexadecimal(&sum.finalize()));
        }
        sum.update(&chunk[..read]);
        progress.advance(read as u64);
    }
}

/// Formats bytes in hexadecimal.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
