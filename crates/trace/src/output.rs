//! Output files that are whole or absent: written beside their place, and renamed into it when all went well.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::TraceError;

const BUFFER_BYTES: usize = 1 << 20;

/// Writes the file at `path` with `write`; `-` is standard output. A regular file appears, or replaces the one before, only
/// when `write` has succeeded. Anything else, such as a pipe or a device, is written to as it is.
///
/// # Errors
/// `path` must be none of `inputs`.
pub fn write_whole<T, E: From<TraceError>>(
    path: &str,
    inputs: &[String],
    write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
) -> Result<T, E> {
    let io = |source| TraceError::Io { path: path.to_owned(), source };
    match Place::find(path, inputs)? {
        Place::StandardOutput => buffered(io::stdout().lock(), "standard output", write),
        Place::Device(place) => {
            let file = File::options().write(true).open(&place).map_err(io)?;
            buffered(file, path, write)
        }
        Place::File(place) => {
            let beside = beside(path, &place)?;
            let written = buffered(beside.as_file(), path, write)?;
            beside.persist(&place).map_err(|error| io(error.error))?;
            Ok(written)
        }
    }
}

/// Tells whether [`write_whole`] could begin to write, before long work that ends with it.
///
/// # Errors
/// Those with which it would refuse to begin.
pub fn check_writable(path: &str, inputs: &[String]) -> Result<(), TraceError> {
    if let Place::File(place) = Place::find(path, inputs)? {
        beside(path, &place)?;
    }
    Ok(())
}

/// Where output goes.
enum Place {
    StandardOutput,
    /// A pipe or device, written to as it is.
    Device(PathBuf),
    /// A file, there or to be.
    File(PathBuf),
}

impl Place {
    fn find(path: &str, inputs: &[String]) -> Result<Place, TraceError> {
        if path == "-" {
            return Ok(Place::StandardOutput);
        }
        // A link is followed, so that the file behind it is replaced and not the link.
        let place = fs::canonicalize(path).unwrap_or_else(|_| PathBuf::from(path));
        let is_input = |input: &String| input != "-" && fs::canonicalize(input).is_ok_and(|input| input == place);
        if inputs.iter().any(is_input) {
            return Err(TraceError::OverwritesInput { path: path.to_owned() });
        }
        match fs::metadata(&place) {
            Ok(found) if found.is_dir() => {
                Err(TraceError::Io { path: path.to_owned(), source: io::ErrorKind::IsADirectory.into() })
            }
            Ok(found) if !found.is_file() => Ok(Place::Device(place)),
            _ => Ok(Place::File(place)),
        }
    }
}

fn buffered<T, E: From<TraceError>>(
    out: impl Write,
    path: &str,
    write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
) -> Result<T, E> {
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
    let written = write(&mut out);
    if written.is_err() {
        // What is buffered is not worth writing any more.
        let _ = out.into_parts();
        return written;
    }
    out.flush().map_err(|source| TraceError::Io { path: path.to_owned(), source })?;
    written
}

/// A file in the same directory, gone unless it is kept.
fn beside(path: &str, place: &Path) -> Result<NamedTempFile, TraceError> {
    let directory = place.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !directory.is_dir() {
        let directory = directory.display().to_string();
        return Err(TraceError::NoDirectory { path: path.to_owned(), directory });
    }
    let mut builder = tempfile::Builder::new();
    builder.prefix(".flashwise-").suffix(".partial");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Those of any new file: the process's mask takes its share off.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(directory).map_err(|source| TraceError::Io { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &'static str) -> impl FnOnce(&mut dyn Write) -> Result<(), TraceError> {
        move |out| out.write_all(text.as_bytes()).map_err(|source| TraceError::Io { path: String::new(), source })
    }

    fn names(directory: &Path) -> Vec<String> {
        let name = |file: io::Result<fs::DirEntry>| file.unwrap().file_name().into_string().unwrap();
        fs::read_dir(directory).unwrap().map(name).collect()
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("out");
        let path = place.to_str().unwrap();
        write_whole(path, &[], text("first")).unwrap();
        let failed = write_whole(path, &[], |out| {
            text("second")(out)?;
            Err::<(), _>(TraceError::Empty { path: "input".to_owned() })
        });
        assert!(matches!(failed, Err(TraceError::Empty { .. })));
        assert_eq!(fs::read_to_string(&place).unwrap(), "first");
        assert_eq!(names(directory.path()), ["out"]);
        write_whole(path, &[], text("third")).unwrap();
        assert_eq!(fs::read_to_string(&place).unwrap(), "third");
        assert_eq!(names(directory.path()), ["out"]);
    }

    #[test]
    fn an_input_is_never_overwritten_however_it_is_spelled() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("trace");
        fs::write(&place, "trace").unwrap();
        let path = place.to_str().unwrap().to_owned();
        let detour = format!("{}/./trace", directory.path().display());
        for (out, input) in [(&path, &path), (&detour, &path), (&path, &detour)] {
            let refused: Result<(), TraceError> = write_whole(out, std::slice::from_ref(input), text("other"));
            assert!(matches!(refused, Err(TraceError::OverwritesInput { .. })));
        }
        assert_eq!(fs::read_to_string(&place).unwrap(), "trace");
    }

    #[cfg(unix)]
    #[test]
    fn the_file_behind_a_link_is_replaced_and_a_device_is_written_to() {
        let directory = tempfile::tempdir().unwrap();
        let (place, link) = (directory.path().join("out"), directory.path().join("link"));
        fs::write(&place, "old").unwrap();
        std::os::unix::fs::symlink(&place, &link).unwrap();
        write_whole(link.to_str().unwrap(), &[], text("new")).unwrap();
        assert_eq!(fs::read_to_string(&place).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        write_whole("/dev/null", &[], text("gone")).unwrap();
        let failed = write_whole("/dev/full", &[], text("too much")).unwrap_err();
        let TraceError::Io { path, source } = failed else { panic!("{failed}") };
        assert_eq!((path.as_str(), source.kind()), ("/dev/full", io::ErrorKind::StorageFull));
    }

    #[test]
    fn a_missing_directory_is_named() {
        let failed = write_whole("/nowhere/out", &[], text("x")).unwrap_err();
        assert_eq!(failed.to_string(), "/nowhere/out: found no directory /nowhere, expected it to exist");
    }
}
