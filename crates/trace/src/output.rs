//! All outputs: files that are complete or absent, standard output, pipes and devices.
//!
//! A file is written without a name and named on success. On Linux, an unnamed file vanishes with the process, even if
//! the process is killed. If the file system does not support unnamed files, the file is written next to its
//! destination under the name `.flashwise-*.partial`. The next process removes partial files of a killed one.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::NamedTempFile;

use crate::error::TraceError;
pub use crate::files::name_of;
use crate::sources::files;

const BUFFER_BYTES: usize = 1 << 20;
const PREFIX: &str = ".flashwise-";
const SUFFIX: &str = ".partial";
/// An unlocked partial file is only removed if it is older than this: a younger one may not be locked yet.
const PARTIAL_AGE_MIN: Duration = Duration::from_secs(60);

/// Writes the file at `path` with `write`; `-` is standard output. A regular file appears, or replaces an existing one,
/// only after `write` has succeeded and the data is on disk. [Streams](is_stream) are written directly. Links are
/// followed. A replaced file keeps its mode and, if possible, its owner.
///
/// # Errors
/// `path` is one of `inputs`.
pub fn write_whole<T, E: From<TraceError>>(
    path: impl AsRef<Path>,
    inputs: &[PathBuf],
    write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
) -> Result<T, E> {
    let (path, name) = (path.as_ref(), output_name(path.as_ref()));
    let io = |source| TraceError::Io { path: name.clone(), source };
    match Destination::find(path, inputs)? {
        Destination::File(place) => {
            let partial = Partial::create(&name, &place)?;
            let written = buffered(partial.file(), &name, write)?;
            partial.persist(&place).map_err(io)?;
            Ok(written)
        }
        stream => buffered(stream.open().map_err(io)?, &name, write),
    }
}

/// True if data written to `path` cannot be replaced or read again: standard output and error, other open descriptors
/// such as `/dev/fd/63`, pipes and devices.
///
/// # Errors
/// A directory.
pub fn is_stream(path: &Path) -> Result<bool, TraceError> {
    Ok(!matches!(Destination::find(path, &[])?, Destination::File(_)))
}

/// True if `path` leads to standard output, as `-` and `/dev/stdout` do.
pub fn is_standard_output(path: &Path) -> bool {
    matches!(Destination::find(path, &[]), Ok(Destination::StandardOutput))
}

/// The name of standard output in messages.
pub const STANDARD_OUTPUT: &str = "standard output";

/// Returns the name of the output at `path` for messages.
pub fn output_name(path: &Path) -> String {
    if is_standard_output(path) { STANDARD_OUTPUT.to_owned() } else { name_of(path) }
}

/// True if two paths lead to the same output, however they are spelled.
pub fn is_same_place(one: &Path, other: &Path) -> bool {
    match (Destination::find(one, &[]), Destination::find(other, &[])) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

/// Opens the stream at `path` for writing. A named pipe waits for its reader.
///
/// # Errors
/// A file that cannot be written to.
pub fn open_stream(path: &Path) -> Result<Box<dyn Write + Send>, TraceError> {
    Destination::find(path, &[])?.open().map_err(|source| TraceError::Io { path: output_name(path), source })
}

/// Checks that [`write_whole`] can start, before long work that ends with it.
///
/// # Errors
/// Errors with which [`write_whole`] would refuse to start.
pub fn check_writable(path: impl AsRef<Path>, inputs: &[PathBuf]) -> Result<(), TraceError> {
    let name = name_of(path.as_ref());
    match Destination::find(path.as_ref(), inputs)? {
        Destination::File(place) => Partial::create(&name, &place).map(|_| ()),
        Destination::Stream(place) => is_writable(&place).map_err(|source| TraceError::Io { path: name, source }),
        Destination::StandardOutput | Destination::StandardError => Ok(()),
    }
}

/// Works like [`check_writable`] for a file to append to: its directory need not be writable.
///
/// # Errors
/// Errors of [`check_writable`], if the file does not exist yet.
pub fn check_appendable(path: &Path, inputs: &[PathBuf]) -> Result<(), TraceError> {
    if !path.is_file() {
        return check_writable(path, inputs);
    }
    Destination::find(path, inputs)?;
    is_writable(path).map_err(|source| TraceError::Io { path: name_of(path), source })
}

/// Returns true if this process may write to `path`. Does not open the path: a pipe would wait for its reader.
fn is_writable(path: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK)?;
    fs::metadata(path).map(|_| ())
}

/// The destination of an output.
#[derive(Debug, PartialEq, Eq)]
enum Destination {
    StandardOutput,
    StandardError,
    /// A pipe, a device or an open descriptor, written to directly.
    Stream(PathBuf),
    /// A file, existing or new.
    File(PathBuf),
}

impl Destination {
    fn find(path: &Path, inputs: &[PathBuf]) -> Result<Destination, TraceError> {
        if path == Path::new("-") {
            return Ok(Destination::StandardOutput);
        }
        if path.to_str().is_some_and(|name| name.starts_with("s3://")) && !path.parent().is_some_and(Path::is_dir) {
            let (found, expected) = ("an object in S3".to_owned(), "a file: outputs are not written to S3".to_owned());
            return Err(TraceError::Sources { path: name_of(path), found, expected });
        }
        let place = match resolve_links(path) {
            (_, Some(1)) => return Ok(Destination::StandardOutput),
            (_, Some(2)) => return Ok(Destination::StandardError),
            (place, Some(_)) => return Ok(Destination::Stream(place)),
            (place, None) => place,
        };
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") && !place.is_dir() {
            return Err(TraceError::NoDirectory { path: name_of(path), directory: name_of(path) });
        }
        let is_input =
            |input: &PathBuf| input != Path::new("-") && fs::canonicalize(input).is_ok_and(|input| input == place);
        // A missing trace is rejected when it is opened.
        let mut files = inputs.iter().flat_map(|input| files(input).unwrap_or_default());
        if files.any(|file| is_input(&file)) {
            return Err(TraceError::OverwritesInput { path: name_of(path) });
        }
        match fs::metadata(&place) {
            Ok(found) if found.is_dir() => {
                Err(TraceError::Io { path: name_of(path), source: io::ErrorKind::IsADirectory.into() })
            }
            Ok(found) if !found.is_file() => Ok(Destination::Stream(place)),
            _ => Ok(Destination::File(place)),
        }
    }

    /// Opens a stream, or a file for appending.
    fn open(self) -> io::Result<Box<dyn Write + Send>> {
        Ok(match self {
            Destination::StandardOutput => Box::new(io::stdout()),
            Destination::StandardError => Box::new(io::stderr()),
            // The descriptor may belong to a file, whose contents stay.
            Destination::Stream(place) | Destination::File(place) => {
                Box::new(File::options().append(true).open(place)?)
            }
        })
    }
}

/// Returns the file that `path` leads to, existing or not, and the number of the descriptor, if it is one.
fn resolve_links(path: &Path) -> (PathBuf, Option<u32>) {
    const LINKS_MAX: usize = 40;
    let mut place = path.to_owned();
    for _ in 0..LINKS_MAX {
        if let Some(number) = descriptor(&place) {
            return (place, Some(number));
        }
        match fs::read_link(&place) {
            Ok(target) => place = place.parent().unwrap_or(Path::new("")).join(target),
            Err(_) => break,
        }
    }
    // A file that does not exist yet is in an existing directory.
    let whole = fs::canonicalize(&place).or_else(|error| {
        let (Some(parent), Some(name)) = (place.parent(), place.file_name()) else { return Err(error) };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        fs::canonicalize(parent).map(|parent| parent.join(name))
    });
    (whole.unwrap_or(place), None)
}

/// Returns the number of this process's descriptor that `path` shows. Links of the kernel cannot be followed further:
/// `pipe:[7]` is not a path.
fn descriptor(path: &Path) -> Option<u32> {
    let number = path.file_name()?.to_str()?.parse().ok()?;
    let folder = path.parent()?;
    let is_ours = |ours: &str| {
        fs::canonicalize(folder).is_ok_and(|folder| fs::canonicalize(ours).is_ok_and(|ours| ours == folder))
    };
    (folder == Path::new("/dev/fd") || is_ours("/proc/self/fd") || is_ours("/proc/thread-self/fd")).then_some(number)
}

fn buffered<T, E: From<TraceError>>(
    out: impl Write,
    path: &str,
    write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
) -> Result<T, E> {
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
    let written = write(&mut out);
    if written.is_err() {
        // Buffered data is no longer worth writing.
        let _ = out.into_parts();
        return written;
    }
    out.flush().map_err(|source| TraceError::Io { path: path.to_owned(), source })?;
    written
}

/// A file on the file system of its destination, deleted unless it is persisted.
enum Partial {
    /// An unnamed file, and the directory of its destination.
    #[cfg(target_os = "linux")]
    Unnamed(File, PathBuf),
    Named(NamedTempFile),
}

impl Partial {
    fn create(name: &str, place: &Path) -> Result<Partial, TraceError> {
        let directory = place.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !directory.is_dir() {
            let directory = directory.display().to_string();
            return Err(TraceError::NoDirectory { path: name.to_owned(), directory });
        }
        let partial = Self::unnamed(directory).map_or_else(|| Self::named(directory), Ok).map_err(|error| {
            // The error contains the name of the partial file, which does not help the user.
            let path = format!("{name}: no file can be made in {}", directory.display());
            TraceError::Io { path, source: error.kind().into() }
        })?;
        let like_before = copy_attributes(partial.file(), place);
        like_before.map(|()| partial).map_err(|source| TraceError::Io { path: name.to_owned(), source })
    }

    /// Returns `None` if the file system does not support unnamed files, or cannot name them later.
    #[cfg(target_os = "linux")]
    fn unnamed(directory: &Path) -> Option<Partial> {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = rustix::fs::OFlags::TMPFILE.bits() as i32;
        let file = File::options().read(true).write(true).custom_flags(flags).open(directory).ok()?;
        fs::symlink_metadata(in_proc(&file)).ok()?;
        Some(Partial::Unnamed(file, directory.to_owned()))
    }

    #[cfg(not(target_os = "linux"))]
    fn unnamed(_: &Path) -> Option<Partial> {
        None
    }

    fn named(directory: &Path) -> io::Result<Partial> {
        sweep(directory);
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX).suffix(SUFFIX);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // The mode of any new file, before the process's umask.
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        let partial = builder.tempfile_in(directory)?;
        // A lock marks the file as being written. If locks are not supported, no files are swept either.
        let _ = partial.as_file().try_lock();
        Ok(Partial::Named(partial))
    }

    fn file(&self) -> &File {
        match self {
            #[cfg(target_os = "linux")]
            Partial::Unnamed(file, _) => file,
            Partial::Named(file) => file.as_file(),
        }
    }

    /// Makes it the file at `place`, after syncing its contents to disk.
    fn persist(self, place: &Path) -> io::Result<()> {
        self.file().sync_all()?;
        match self {
            #[cfg(target_os = "linux")]
            Partial::Unnamed(file, directory) => {
                use rustix::fs::{AtFlags, CWD, linkat};
                let link = |to: &Path| linkat(CWD, in_proc(&file), CWD, to, AtFlags::SYMLINK_FOLLOW);
                match link(place) {
                    Err(rustix::io::Errno::EXIST) => {}
                    linked => return Ok(linked?),
                }
                // A link cannot replace a file, but renaming can.
                let mut builder = tempfile::Builder::new();
                let linked = builder.prefix(PREFIX).suffix(SUFFIX).make_in(directory, |name| Ok(link(name)?))?;
                linked.persist(place).map(|_| ()).map_err(|error| error.error)
            }
            Partial::Named(file) => file.persist(place).map(|_| ()).map_err(|error| error.error),
        }
    }
}

/// Returns the path in /proc of an open, unnamed file.
#[cfg(target_os = "linux")]
fn in_proc(file: &File) -> PathBuf {
    use std::os::fd::AsRawFd;
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Gives `file` the mode and, if possible, the owner of the file at `place`, if it exists.
fn copy_attributes(file: &File, place: &Path) -> io::Result<()> {
    let Ok(before) = fs::metadata(place) else { return Ok(()) };
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, fchown};
        // Only root may give files away.
        let _ = fchown(file, Some(before.uid()), Some(before.gid()));
    }
    file.set_permissions(before.permissions())
}

/// Removes partial files in `directory` that are no longer being written.
fn sweep(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_partial = name.starts_with(PREFIX) && name.ends_with(SUFFIX);
        let is_old = |metadata: fs::Metadata| {
            metadata.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > PARTIAL_AGE_MIN))
        };
        if is_partial
            && entry.metadata().is_ok_and(is_old)
            && File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok())
        {
            let _ = fs::remove_file(entry.path());
        }
    }
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
        let path = place.clone();
        let detour = directory.path().join("./trace");
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

    #[cfg(unix)]
    #[test]
    fn a_link_that_leads_to_no_file_yet_is_followed_too() {
        let directory = tempfile::tempdir().unwrap();
        let (place, link) = (directory.path().join("out"), directory.path().join("link"));
        std::os::unix::fs::symlink("way", &link).unwrap();
        std::os::unix::fs::symlink("./out", directory.path().join("way")).unwrap();
        write_whole(&link, &[], text("new")).unwrap();
        assert_eq!(fs::read_to_string(&place).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(names(directory.path()).len(), 3);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_is_replaced_keeps_its_mode() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("out");
        let mode = |place: &Path| fs::metadata(place).unwrap().permissions().mode() & 0o7777;
        fs::write(&place, "old").unwrap();
        let usual = mode(&place);
        for kept in [0o600, 0o640, 0o755] {
            fs::set_permissions(&place, fs::Permissions::from_mode(kept)).unwrap();
            write_whole(&place, &[], text("new")).unwrap();
            assert_eq!((mode(&place), fs::read_to_string(&place).unwrap().as_str()), (kept, "new"));
        }
        fs::remove_file(&place).unwrap();
        write_whole(&place, &[], text("newer")).unwrap();
        assert_eq!(mode(&place), usual);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn nothing_has_a_name_until_it_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("out");
        for before in [0, 1] {
            write_whole(&place, &[], |out| {
                assert_eq!(names(directory.path()).len(), before);
                text("whole")(out)
            })
            .unwrap();
        }
        assert_eq!(names(directory.path()), ["out"]);
    }

    #[test]
    fn named_temporary_files_of_killed_processes_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let (place, left) = (directory.path().join("out"), directory.path().join(".flashwise-old.partial"));
        fs::write(&left, "left").unwrap();
        let of_another = Partial::named(directory.path()).unwrap();
        assert!(left.exists(), "it may be one that is not locked yet");
        let long_ago = std::time::SystemTime::now() - 2 * PARTIAL_AGE_MIN;
        for partial in [&File::options().write(true).open(&left).unwrap(), of_another.file()] {
            partial.set_modified(long_ago).unwrap();
        }
        let partial = Partial::named(directory.path()).unwrap();
        assert_eq!((left.exists(), names(directory.path()).len()), (false, 2));
        partial.file().write_all(b"whole").unwrap();
        partial.persist(&place).unwrap();
        drop(of_another);
        assert_eq!(
            (names(directory.path()), fs::read_to_string(&place).unwrap().as_str()),
            (vec!["out".to_owned()], "whole")
        );
    }

    #[test]
    fn a_missing_directory_is_named() {
        let failed = write_whole("/nowhere/out", &[], text("x")).unwrap_err();
        assert_eq!(failed.to_string(), "/nowhere/out: found no directory /nowhere, expected it to exist");
    }
}
