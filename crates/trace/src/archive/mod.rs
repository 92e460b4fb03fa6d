//! Reads files in tar and zip archives, without extracting them.

use std::io;
use std::path::Path;

pub mod tar;
pub mod zip;

/// Selects a file of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Member {
    /// The only file that is not empty.
    Only,
    /// The file with this name.
    Named(String),
    /// No file: the caller lists the names.
    Listed,
}

impl Member {
    /// Selects the file at `path` within the archive, or the only one.
    pub fn new(path: Option<&Path>) -> Member {
        path.map_or(Member::Only, |path| Member::Named(path.to_string_lossy().into_owned()))
    }

    /// Returns this selection and replaces it by the only file: an archive within an archive has no name in the path.
    pub fn take(&mut self) -> Member {
        std::mem::replace(self, Member::Only)
    }

    /// True if the file named `name` is selected.
    fn is(&self, name: &str) -> bool {
        let plain = |name: &str| name.trim_start_matches("./").to_owned();
        match self {
            Member::Only => true,
            Member::Listed => false,
            Member::Named(wanted) => plain(wanted) == plain(name),
        }
    }
}

/// The reason why a file of an archive cannot be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ArchiveError {
    #[error(
        "found an archive of more than one file ({first}, {next}), expected the name of one of them after the \
         archive's, as in ARCHIVE/{first}"
    )]
    Several { first: String, next: String },
    #[error("found no such file in the archive, expected one of: {}", shortened(names))]
    NotFound { names: Vec<String> },
    #[error("found an archive without a file in it, expected a trace")]
    NoFile,
    #[error("found an archive that ends within {name}, expected a whole one")]
    Cut { name: String },
    #[error("damaged archive: {found}")]
    Damaged { found: String },
    #[error("found {name} {how} in the archive, expected stored or deflated files, or a tar archive")]
    Unsupported { name: String, how: String },
}

impl From<ArchiveError> for io::Error {
    fn from(error: ArchiveError) -> io::Error {
        io::Error::other(error)
    }
}

/// The maximum number of names in the error for a missing file.
const NAMES_MAX: usize = 20;

fn not_found(names: Vec<String>) -> ArchiveError {
    if names.is_empty() { ArchiveError::NoFile } else { ArchiveError::NotFound { names } }
}

fn shortened(names: &[String]) -> String {
    let more = if names.len() > NAMES_MAX { ", ..." } else { "" };
    names[..names.len().min(NAMES_MAX)].join(", ") + more
}

/// True for a file of extended attributes that macOS writes next to another file.
fn is_attributes(name: &str) -> bool {
    name.rsplit('/').next().is_some_and(|last| last.starts_with("._"))
}
