//! Traces of block requests: how they are written, the normalised file that simulations run over, and the tools that work on them.
//!
//! A trace goes through [`input`] (decompression), a row of [`formats::FORMATS`] (bytes to [`Request`](request::Request)s) and the
//! [`normalised::Normaliser`] (requests to block accesses with dense ids) into a [`Trace`], an Arrow IPC file that is mapped into memory.
//! A [`recording`] is what a server wrote of its clients' requests.

mod chunks;
pub mod duration;
pub mod error;
pub mod formats;
pub mod human;
pub mod input;
pub mod normalised;
pub mod output;
pub mod progress;
pub mod recording;
pub mod request;
pub mod request_file;
pub mod requests;
mod settings;
pub mod tools;

pub use normalised::trace::Trace;
