//! The description of a trace: its figures besides the accesses.

use serde::{Deserialize, Serialize};

use crate::normalised::times::Times;

/// The description of a trace: its figures besides the accesses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The name of the original format.
    pub format: String,
    /// The time of the first request, in microseconds since the original trace's epoch; times of accesses are relative
    /// to it.
    pub start_us: i64,
    /// The number of requests.
    pub requests: u64,
    /// The number of read requests.
    pub read_requests: u64,
    /// The bytes of all read requests.
    pub read_bytes: u64,
    /// The bytes of all write requests.
    pub write_bytes: u64,
    /// The length of the shortest request, in bytes.
    pub request_bytes_min: u64,
    /// The length of the longest request, in bytes.
    pub request_bytes_max: u64,
    /// The number of records of the original skipped because they have no data.
    pub skipped_records: u64,
    /// The number of records of the original skipped because they were malformed.
    pub malformed_records: u64,
    /// The names of the volumes, by number.
    pub volumes: Vec<String>,
    /// True if the original distinguishes volumes; unknown for files of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tells_volumes: Option<bool>,
    /// The columns of a CSV with their units and the source of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<String>,
    /// The figures of the times. They are absent in files of earlier versions, for which
    /// [`Trace::times`](crate::Trace::times) computes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Times>,
}
