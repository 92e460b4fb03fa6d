//! File names for messages, and temporary files.

use std::fs::File;
use std::path::Path;

use crate::error::TraceError;

/// Returns the name of the file at `path` for messages; bytes that are not UTF-8 are replaced.
pub fn name_of(path: &Path) -> String {
    path.display().to_string()
}

/// Returns the name of temporary files for messages.
pub fn temporary_name() -> String {
    format!("temporary file in {} (TMPDIR names another directory)", std::env::temp_dir().display())
}

/// Creates a temporary file, which is deleted when it is closed.
pub fn temporary_file() -> Result<File, TraceError> {
    tempfile::tempfile().map_err(|source| TraceError::Io { path: temporary_name(), source })
}
