//! Atomic replacement of files.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

/// Replaces a file durably: after a crash it has either the old or the new content. Creates missing folders.
///
/// # Errors
/// Those of the file system, without the path.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}
