//! The errors of reading, converting and writing traces.

use std::path::PathBuf;

use flashwise_core::quantity::Share;

/// An error of reading, converting or writing a trace. A `source` is not part of the message: print the chain.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum TraceError {
    #[error("{path}")]
    Io { path: String, source: std::io::Error },
    #[error(
        "{path}: found {free} free in {directory}, expected about {needed} for a copy while it is open (TMPDIR names \
         another directory)"
    )]
    Room { path: String, directory: String, needed: String, free: String },
    #[error("{path}: damaged {compression} data after byte {byte} of its contents")]
    Compression { path: String, compression: &'static str, byte: u64, source: std::io::Error },
    #[error("{path}, {place}: found {found}, expected {expected}")]
    Malformed { path: String, place: Place, found: String, expected: String },
    #[error("{path}: it holds no requests")]
    Empty { path: String },
    #[error("{path}: it holds no requests; {malformed} malformed records were skipped")]
    OnlyMalformed { path: String, malformed: u64 },
    #[error(
        "{path}: its format is not recognised; its first bytes are {found}. Name the format with --format, one of: \
         {formats}. For other text, name the columns, from 0, as in --format {example}"
    )]
    Unrecognised { path: String, found: String, formats: String, example: String },
    #[error("{path}: its contents fit more than one format: {formats}; name the right one with --format")]
    Ambiguous { path: String, formats: String },
    #[error("{path}: found {found}, expected {expected}")]
    Contradiction { path: String, found: String, expected: String },
    #[error("{path}: found {found}, expected {expected}")]
    Sources { path: String, found: String, expected: String },
    #[error("{path}: {problem}")]
    Archive { path: String, problem: String },
    #[error("{path}: damaged since it was written: {found}; convert the original again")]
    Checksum { path: String, found: String },
    #[error("{path}: it looks like {format}, but {why}, as in --format {example}")]
    Unsure { path: String, format: &'static str, why: &'static str, example: String },
    #[error("{path}: not a flashwise trace: found {found}, expected {expected}")]
    NotATrace { path: PathBuf, found: String, expected: String },
    #[error("{path}: a normalised trace: found {found}, expected {expected}")]
    Normalised { path: String, found: String, expected: String },
    #[error(
        "{path}: found a filter by process and the format {format}, which has no processes; expected fiu, blkparse, \
         ftrace, biosnoop or etw"
    )]
    NoProcesses { path: String, format: &'static str },
    #[error("{path}: none of its {accesses} accesses is in a sample of {rate}; expected a larger share")]
    EmptySample { path: String, accesses: u64, rate: Share },
    #[error("{path}: none of its requests is in the cut")]
    NothingLeft { path: String },
    #[error("{path}: found no volume '{volume}', expected one of: {volumes}")]
    NoSuchVolume { path: String, volume: String, volumes: String },
    #[error("{path}: found blocks of {found}, expected blocks of {expected} as in {other}")]
    BlockSizes { path: String, found: String, expected: String, other: String },
    #[error("{path}: it is also an input; name another file for the output")]
    OverwritesInput { path: String },
    #[error("{path}: found no directory {directory}, expected it to exist")]
    NoDirectory { path: String, directory: String },
    #[error("{path}: {what}: found {found}, expected at most {most}")]
    TooLarge { path: String, what: &'static str, found: u64, most: u64 },
    #[error(transparent)]
    Option(#[from] flashwise_core::options::OptionError),
    #[error(transparent)]
    Generate(#[from] GenerateError),
}

/// The reason why a trace cannot be generated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)]
pub enum GenerateError {
    #[error("blocks: found {found}, expected a number from 1 to {most}")]
    Blocks { found: u64, most: u64 },
    #[error("request blocks: found up to {found}, expected at most the number of blocks, {blocks}")]
    RequestBlocks { found: u64, blocks: u64 },
    #[error("pattern {pattern} has no end: found neither a number of requests nor of accesses, expected one of them")]
    NoLength { pattern: &'static str },
    #[error(
        "pattern {pattern} over {blocks} blocks ended after {requests} requests with {accesses} accesses: expected \
         more blocks, or fewer requests or accesses"
    )]
    Ended { pattern: &'static str, blocks: u64, requests: u64, accesses: u64 },
    #[error("accesses: found {found}, expected a number from {least} to {most} for a week")]
    Accesses { found: u64, least: u64, most: u64 },
    #[error("found '{found}', expected a share from 0 to 1 or from 0% to 100%")]
    Share { found: String },
    #[error("found '{found}', expected a number of blocks such as 1, or a range such as 1..16, both ends included")]
    Range { found: String },
    #[error("found '{found}', expected requests per second such as 1000/s")]
    Rate { found: String },
}

/// A position in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line number, from 1.
    Line(u64),
    /// A byte offset in the decompressed contents, from 0.
    Byte(u64),
    /// A record number, from 1.
    Record(u64),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Line(line) => write!(f, "line {line}"),
            Place::Byte(byte) => write!(f, "byte {byte}"),
            Place::Record(record) => write!(f, "record {record}"),
        }
    }
}
