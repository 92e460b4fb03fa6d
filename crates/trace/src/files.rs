//! What messages call files, and files that are gone when they are closed.

use std::fs::File;
use std::path::Path;

use crate::error::TraceError;

/// What messages call the file at `path`; what is not UTF-8 in it is replaced.
pub fn name_of(path: &Path) -> String {
    path.display().to_string()
}

/// What messages call temporary files.
pub fn temporary_name() -> String {
    format!("temporary file in {} (TMPDIR names another directory)", std::env::temp_dir().display())
}

/// A file that is gone when it is closed.
pub fn temporary_file() -> Result<File, TraceError> {
    tempfile::tempfile().map_err(|source| TraceError::Io { path: temporary_name(), source })
}
