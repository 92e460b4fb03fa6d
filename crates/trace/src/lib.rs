//! Traces of block requests: their formats, the normalised file that simulations run over, and the tools for traces.
//!
//! A trace goes through [`input`] (decompression), a row of [`formats::FORMATS`] (bytes to
//! [`Request`](request::Request)s) and the [`normalised::Normaliser`] (requests to block accesses with dense ids). The
//! result is a [`Trace`], an Arrow IPC file that is mapped into memory. Several files can be merged by time into one
//! trace, depending on its name: [`sources`]. A [`recording`] is the log of client requests that a server wrote.
//!
//! A trace of any format is opened by its path. Its blocks are numbered from 0:
//!
//! ```
//! use flashwise_core::access::Op;
//! use flashwise_trace::normalised::{self, Settings};
//! use flashwise_trace::progress::Silent;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("trace.csv");
//! // MSR-Cambridge: time, host, disk, operation, offset, length, response time.
//! std::fs::write(&path, "128166372003061629,web,0,Read,8192,4096,0\n128166372003061630,web,0,Write,4096,8192,0\n")?;
//!
//! let trace = normalised::open(path.to_str().unwrap(), &Settings::default(), &Silent)?;
//! let accesses: Vec<(u32, Op)> = trace.accesses().collect();
//! assert_eq!(accesses, [(0, Op::Read), (1, Op::Write), (0, Op::Write)]);
//! assert_eq!(trace.addresses(), [2, 1]);
//! assert_eq!(trace.description().format, "msr");
//! # Ok(())
//! # }
//! ```

mod archive;
mod chunks;
pub mod duration;
pub mod error;
mod files;
pub mod formats;
pub mod input;
mod lz4;
mod merge;
pub mod normalised;
pub mod original;
pub mod output;
pub mod progress;
pub mod recording;
pub mod request;
pub mod request_file;
pub mod requests;
pub mod room;
pub mod sampling;
mod settings;
pub mod sources;
pub mod tools;

pub use normalised::trace::Trace;
