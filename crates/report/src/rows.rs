//! What figures ask of a row of results.

use flashwise_sim::results::ResultRow;

/// The rule of a row; empty if there is none.
pub fn rule(row: &ResultRow) -> &str {
    row.array.as_ref().map_or("", |array| &array.admission)
}

/// The file of a trace, without the folders that it is in.
pub fn file_name(trace: &str) -> String {
    trace.rsplit('/').next().unwrap_or(trace).to_owned()
}
