//! All outputs: files that are whole or absent, standard output, pipes and devices.
//!
//! A file is written without a name, and given it when all went well. On Linux a file without a name vanishes with the process, however that
//! ends. Where the file system has none, the file is written beside its place under the name `.flashwise-*.partial`; what a killed process
//! left of these is removed by the next one.

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
/// An unlocked partial file that was written to since may be one that is not locked yet.
const PARTIAL_AGE_MIN: Duration = Duration::from_secs(60);

/// Writes the file at `path` with `write`; `-` is standard output. A regular file appears, or replaces the one before, only
/// when `write` has succeeded and the disk has it. [Streams](is_stream) are written to as they are. Links are followed, and a file that is
/// replaced keeps its mode and, as far as may be, its owner.
///
/// # Errors
/// `path` must be none of `inputs`.
pub fn write_whole<T, E: From<TraceError>>(
    path: impl AsRef<Path>,
    inputs: &[PathBuf],
    write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
) -> Result<T, E> {
    let (path, name) = (path.as_ref(), output_name(path.as_ref()));
    let io = |source| TraceError::Io { path: name.clone(), source };
    match Place::find(path, inputs)? {
        Place::File(place) => {
            let partial = Partial::create(&name, &place)?;
            let written = buffered(partial.file(), &name, write)?;
            partial.persist(&place).map_err(io)?;
            Ok(written)
        }
        stream => buffered(stream.open().map_err(io)?, &name, write),
    }
}

/// True if what is written to `path` cannot be replaced or read again: standard output and error, other open descriptors such as
/// `/dev/fd/63`, pipes and devices.
///
/// # Errors
/// A directory.
pub fn is_stream(path: &Path) -> Result<bool, TraceError> {
    Ok(!matches!(Place::find(path, &[])?, Place::File(_)))
}

/// True if `path` leads to standard output, as `-` and `/dev/stdout` do.
pub fn is_standard_output(path: &Path) -> bool {
    matches!(Place::find(path, &[]), Ok(Place::StandardOutput))
}

/// What messages call standard output.
pub const STANDARD_OUTPUT: &str = "standard output";

/// What messages call the output at `path`.
pub fn output_name(path: &Path) -> String {
    if is_standard_output(path) { STANDARD_OUTPUT.to_owned() } else { name_of(path) }
}

/// True if two outputs go to the same place, however they are spelled.
pub fn is_same_place(one: &Path, other: &Path) -> bool {
    match (Place::find(one, &[]), Place::find(other, &[])) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

/// Opens the stream at `path` to write to it. A pipe with a name waits for its reader.
///
/// # Errors
/// A file that cannot be written to.
pub fn open_stream(path: &Path) -> Result<Box<dyn Write + Send>, TraceError> {
    Place::find(path, &[])?.open().map_err(|source| TraceError::Io { path: output_name(path), source })
}

/// Tells whether [`write_whole`] could begin to write, before long work that ends with it.
///
/// # Errors
/// Those with which it would refuse to begin.
pub fn check_writable(path: impl AsRef<Path>, inputs: &[PathBuf]) -> Result<(), TraceError> {
    let name = name_of(path.as_ref());
    match Place::find(path.as_ref(), inputs)? {
        Place::File(place) => Partial::create(&name, &place).map(|_| ()),
        Place::Stream(place) => is_writable(&place).map_err(|source| TraceError::Io { path: name, source }),
        Place::StandardOutput | Place::StandardError => Ok(()),
    }
}

/// As [`check_writable`], of a file that is added to: its directory need not take others.
///
/// # Errors
/// Those of [`check_writable`] where there is no file yet.
pub fn check_appendable(path: &Path, inputs: &[PathBuf]) -> Result<(), TraceError> {
    if !path.is_file() {
        return check_writable(path, inputs);
    }
    Place::find(path, inputs)?;
    is_writable(path).map_err(|source| TraceError::Io { path: name_of(path), source })
}

/// Whether this process may write to what is at `path`, without opening it: a pipe would wait for its reader.
fn is_writable(path: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK)?;
    fs::metadata(path).map(|_| ())
}

/// Where output goes.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    StandardOutput,
    StandardError,
    /// A pipe, a device or a descriptor that is open, written to as it is.
    Stream(PathBuf),
    /// A file, there or to be.
    File(PathBuf),
}

impl Place {
    fn find(path: &Path, inputs: &[PathBuf]) -> Result<Place, TraceError> {
        if path == Path::new("-") {
            return Ok(Place::StandardOutput);
        }
        if path.to_str().is_some_and(|name| name.starts_with("s3://")) && !path.parent().is_some_and(Path::is_dir) {
            let (found, expected) = ("an object in S3".to_owned(), "a file: outputs are not written to S3".to_owned());
            return Err(TraceError::Sources { path: name_of(path), found, expected });
        }
        let place = match behind_links(path) {
            (_, Some(1)) => return Ok(Place::StandardOutput),
            (_, Some(2)) => return Ok(Place::StandardError),
            (place, Some(_)) => return Ok(Place::Stream(place)),
            (place, None) => place,
        };
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") && !place.is_dir() {
            return Err(TraceError::NoDirectory { path: name_of(path), directory: name_of(path) });
        }
        let is_input =
            |input: &PathBuf| input != Path::new("-") && fs::canonicalize(input).is_ok_and(|input| input == place);
        // A trace that cannot be found is refused where it is opened.
        let mut files = inputs.iter().flat_map(|input| files(input).unwrap_or_default());
        if files.any(|file| is_input(&file)) {
            return Err(TraceError::OverwritesInput { path: name_of(path) });
        }
        match fs::metadata(&place) {
            Ok(found) if found.is_dir() => {
                Err(TraceError::Io { path: name_of(path), source: io::ErrorKind::IsADirectory.into() })
            }
            Ok(found) if !found.is_file() => Ok(Place::Stream(place)),
            _ => Ok(Place::File(place)),
        }
    }

    /// Opens what is no file, or a file to write at its end.
    fn open(self) -> io::Result<Box<dyn Write + Send>> {
        Ok(match self {
            Place::StandardOutput => Box::new(io::stdout()),
            Place::StandardError => Box::new(io::stderr()),
            // The descriptor may be of a file, whose contents stay.
            Place::Stream(place) | Place::File(place) => Box::new(File::options().append(true).open(place)?),
        })
    }
}

/// The file that `path` leads to, whether there is one or not, and the number of the descriptor, if it is one.
fn behind_links(path: &Path) -> (PathBuf, Option<u32>) {
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
    // What is not there yet is in a directory that is.
    let whole = fs::canonicalize(&place).or_else(|error| {
        let (Some(parent), Some(name)) = (place.parent(), place.file_name()) else { return Err(error) };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        fs::canonicalize(parent).map(|parent| parent.join(name))
    });
    (whole.unwrap_or(place), None)
}

/// The number of the descriptor of this process that `path` shows, which links of the kernel's do not lead on from: `pipe:[7]` is no path.
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
        // What is buffered is not worth writing any more.
        let _ = out.into_parts();
        return written;
    }
    out.flush().map_err(|source| TraceError::Io { path: path.to_owned(), source })?;
    written
}

/// A file on the file system of its place, gone unless it is kept.
enum Partial {
    /// Without a name; the directory of its place.
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
            // The name of the partial file, which the error has, tells nobody anything.
            let path = format!("{name}: no file can be made in {}", directory.display());
            TraceError::Io { path, source: error.kind().into() }
        })?;
        let like_before = liken(partial.file(), place);
        like_before.map(|()| partial).map_err(|source| TraceError::Io { path: name.to_owned(), source })
    }

    /// None where the file system knows no files without names, or no name can be given to them later.
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
            // Those of any new file: the process's mask takes its share off.
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        let partial = builder.tempfile_in(directory)?;
        // A lock says that it is still written. Where there are none, nothing is swept either.
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

    /// Makes it the file at `place`, once the disk has its contents.
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

/// Where the kernel shows an open file, which has no other name.
#[cfg(target_os = "linux")]
fn in_proc(file: &File) -> PathBuf {
    use std::os::fd::AsRawFd;
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Gives `file` the mode and, if possible, the owner of the file at `place`, if there is one.
fn liken(file: &File, place: &Path) -> io::Result<()> {
    let Ok(before) = fs::metadata(place) else { return Ok(()) };
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, fchown};
        // Only root may give files away.
        let _ = fchown(file, Some(before.uid()), Some(before.gid()));
    }
    file.set_permissions(before.permissions())
}

/// Removes the partial files in `directory` that nobody writes any more.
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
    fn where_files_need_names_what_a_killed_process_left_is_swept_and_what_is_still_written_is_not() {
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
