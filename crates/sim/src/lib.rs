//! The part of flashwise that answers from a trace: trace formats, the normaliser, simulation, figures and reports.
//!
//! A trace goes through [`input`] (decompression), a row of [`formats::FORMATS`] (bytes to [`Request`](request::Request)s) and
//! the [`normalise`]r (requests to block accesses with dense ids) into a [`trace::Trace`], an Arrow IPC file that is mapped
//! into memory. [`simulate`] runs policies over it; [`cache_simulation`] runs the whole cache over the requests themselves.

pub mod array;
pub mod cache_run;
pub mod cache_settings;
pub mod cache_simulation;
pub mod concat;
pub mod convert;
pub mod cut;
pub mod device;
pub mod duration;
pub mod endurance;
pub mod error;
pub mod export;
pub mod formats;
pub mod generate;
pub mod human;
pub mod info;
pub mod input;
pub mod normalise;
pub mod numbering;
pub mod offline;
pub mod output;
pub mod pareto;
pub mod progress;
pub mod recording;
pub mod report;
pub mod request;
pub mod request_file;
pub mod requests;
pub mod results;
pub mod reuse;
pub mod simulate;
pub mod size;

pub mod trace;
mod trace_file;
