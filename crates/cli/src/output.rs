//! Files that are written whole or not at all.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use tempfile::NamedTempFile;

/// A file written beside its final place, and put there once it is whole.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    beside: NamedTempFile,
}

impl OutputFile {
    /// Begins the file that shall stand at `path`. Fails at once if it could not be written there.
    pub fn create(path: &Path) -> anyhow::Result<OutputFile> {
        let cannot = || format!("{}: cannot be written", path.display());
        if path.is_dir() {
            return Err(anyhow::anyhow!("it is a directory, expected a file")).with_context(cannot);
        }
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        // As an ordinary new file would be: readable as the process's umask allows, not by its owner alone.
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let beside = builder.prefix(".flashwise-").tempfile_in(folder).with_context(cannot)?;
        Ok(OutputFile { path: path.to_owned(), beside })
    }

    /// Writes the file and puts it in its place.
    pub fn write(self, write: impl FnOnce(&mut BufWriter<&File>) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let cannot = || format!("{}: cannot be written", self.path.display());
        let mut out = BufWriter::new(self.beside.as_file());
        write(&mut out).with_context(cannot)?;
        out.flush().with_context(cannot)?;
        drop(out);
        self.beside.persist(&self.path).map_err(|error| error.error).with_context(cannot)?;
        Ok(())
    }
}
