//! Destinations of alerts, and thresholds of optional alerts.

use std::path::PathBuf;

/// Destinations of alerts, and thresholds of optional alerts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertOptions {
    /// Address that gets each alert as a POST of JSON.
    pub webhook: Option<String>,
    /// Addresses that get each alert by mail.
    pub mail: Vec<String>,
    /// Program that takes a mail on standard input, with the options of sendmail.
    pub mail_command: PathBuf,
    /// How long a detach may take, in microseconds.
    pub detach_us_max: u64,
    /// Longest p99 of reads that miss, in microseconds; none for no such alert.
    pub miss_p99_us_max: Option<u64>,
}
