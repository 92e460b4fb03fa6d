//! Small state that survives restarts, as JSON in files of the state directory.

use std::io;
use std::path::Path;

use flashwise_storage::replace::replace_file;
use rustix::fs::Access;
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// True if the folder can be searched, or does not exist.
pub fn can_look_into(folder: &Path) -> bool {
    rustix::fs::access(folder, Access::EXEC_OK) != Err(Errno::ACCESS)
}

/// Reads a file's contents, called `what` in messages; `None` if the file does not exist.
pub fn read<T: DeserializeOwned>(path: &Path, what: &str) -> io::Result<Option<T>> {
    // Reading a pipe would block.
    if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        let problem = format!("{}: is no regular file, expected {what} as JSON", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| {
            let shown = path.display();
            let problem =
                format!("{shown}: found {error}, expected {what} as JSON; move the file away to start without");
            io::Error::new(io::ErrorKind::InvalidData, problem)
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
    }
}

/// Fails if the file exists and was changed since its server wrote `left`. Otherwise a write would lose the change.
pub fn check_unchanged<T: DeserializeOwned + PartialEq>(path: &Path, what: &str, left: &T) -> io::Result<()> {
    let cannot = |problem: &dyn std::fmt::Display| format!("{} cannot be written: {problem}", path.display());
    match read::<T>(path, what).map_err(|error| io::Error::new(error.kind(), cannot(&error)))? {
        Some(found) if found != *left => {
            let problem = "something else has changed it since this server read it; start the server again, or put \
                back what was there";
            Err(io::Error::new(io::ErrorKind::InvalidData, cannot(&problem)))
        }
        _ => Ok(()),
    }
}

/// Replaces a file by one that holds `value` as JSON, durably.
pub fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    replace_file(path, &serde_json::to_vec_pretty(value)?)
}
