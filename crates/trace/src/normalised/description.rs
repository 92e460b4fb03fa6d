//! What is known of a trace besides its accesses.

use serde::{Deserialize, Serialize};

use crate::normalised::times::Times;

/// What is known of a trace besides its accesses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Name of the format it was read from.
    pub format: String,
    /// Time of the first request, in microseconds since the original trace's epoch; accesses' times count from there.
    pub start_us: i64,
    /// Requests.
    pub requests: u64,
    /// Read requests among them.
    pub read_requests: u64,
    /// Bytes that read requests ask for.
    pub read_bytes: u64,
    /// Bytes that write requests bring.
    pub write_bytes: u64,
    /// Shortest request.
    pub request_bytes_min: u64,
    /// Longest request.
    pub request_bytes_max: u64,
    /// Records of the original passed over because they ask for no data.
    pub skipped_records: u64,
    /// Records of the original passed over because they were malformed.
    pub malformed_records: u64,
    /// Names of the volumes, by number.
    pub volumes: Vec<String>,
    /// Whether the original says of which volume its requests are; not known of files of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tells_volumes: Option<bool>,
    /// How the columns of a CSV were read, units included, and what says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<String>,
    /// What is known of the times; absent in files of earlier versions, where [`Trace::times`](crate::Trace::times) finds it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Times>,
}
