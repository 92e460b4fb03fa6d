//! What figures ask of a row of results.

use flashwise_sim::results::ResultRow;

/// The rule of a row; empty if there is none.
pub fn rule(row: &ResultRow) -> &str {
    row.admission.as_deref().unwrap_or_default()
}

/// Erasures of a row whose wear was simulated.
pub fn erasures(row: &ResultRow) -> Option<u64> {
    row.endurance.as_ref()?;
    Some(row.tiers.as_ref()?.erasures)
}

/// The file of a trace, without the folders that it is in.
pub fn file_name(trace: &str) -> String {
    trace.rsplit('/').next().unwrap_or(trace).to_owned()
}
