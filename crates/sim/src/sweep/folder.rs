//! Folders of results: on a local path, or objects of S3 with a common prefix.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use flashwise_trace::error::TraceError;
use flashwise_trace::output::{name_of, write_whole};

use super::SweepError;
use super::objects::{Address, Objects};

/// A folder of results.
pub(super) enum Folder {
    Local(PathBuf),
    Objects(Objects, Address),
}

impl Folder {
    /// Opens the folder `path`, which need not exist.
    pub fn open(path: &Path) -> Result<Folder, SweepError> {
        match Address::of(path)? {
            None => Ok(Folder::Local(path.to_owned())),
            Some(address) => Ok(Folder::Objects(Objects::open(&address)?, address)),
        }
    }

    /// True if a file exists.
    pub fn has(&self, name: &str) -> Result<bool, SweepError> {
        match self {
            Folder::Local(path) => Ok(path.join(name).is_file()),
            Folder::Objects(objects, address) => Ok(objects.about(&address.join(name))?.is_some()),
        }
    }

    /// Returns the contents of a file, if it exists.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, SweepError> {
        match self {
            Folder::Local(folder) => {
                let path = folder.join(name);
                match std::fs::read(&path) {
                    Ok(bytes) => Ok(Some(bytes)),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                    Err(source) => Err(TraceError::Io { path: name_of(&path), source }.into()),
                }
            }
            Folder::Objects(objects, address) => objects.read(&address.join(name)),
        }
    }

    /// Writes or replaces a file atomically.
    pub fn write(&self, name: &str, contents: Vec<u8>) -> Result<(), SweepError> {
        match self {
            Folder::Local(folder) => {
                let path = folder.join(name);
                let io = |path: &Path| {
                    let path = name_of(path);
                    |source| TraceError::Io { path, source }
                };
                let parent = path.parent().unwrap_or(folder);
                std::fs::create_dir_all(parent).map_err(io(parent))?;
                write_whole(&path, &[], |file: &mut dyn Write| file.write_all(&contents).map_err(io(&path)))?;
                Ok(())
            }
            Folder::Objects(objects, address) => objects.write(&address.join(name), contents),
        }
    }

    /// Returns the time of the last write and the name of each file, except those in subfolders.
    pub fn list(&self) -> Result<Vec<(SystemTime, String)>, SweepError> {
        match self {
            Folder::Local(folder) => Ok(listed(folder)?),
            Folder::Objects(objects, address) => objects.list(address),
        }
    }
}

fn listed(folder: &Path) -> Result<Vec<(SystemTime, String)>, TraceError> {
    let io = |path: &Path| {
        let path = name_of(path);
        |source| TraceError::Io { path, source }
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io(folder))? {
        let entry = entry.map_err(io(folder))?;
        let path = entry.path();
        // Files of a sweep have names that are text.
        if let (true, Ok(name)) = (path.is_file(), entry.file_name().into_string()) {
            let modified = std::fs::metadata(&path).and_then(|about| about.modified()).map_err(io(&path))?;
            found.push((modified, name));
        }
    }
    Ok(found)
}
