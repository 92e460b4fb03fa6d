//! Files of tokens, secrets, keys and configurations: regular files of limited size. Other users must have no access to
//! secret ones.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Maximum size of a token, a secret, a key or a certificate in bytes.
pub const BYTES_MAX: u64 = 1 << 20;
/// Maximum size of a configuration in bytes: enough for 100,000 volumes.
pub const CONFIGURATION_BYTES_MAX: u64 = 64 << 20;
/// Minimum length of a token or secret for access from other machines.
pub const CHARACTERS_MIN: usize = 16;

/// Reads a file that only this user and its group may read.
///
/// # Errors
/// It cannot be read, is no regular file, is too large, is not text, or every user of the machine may read it.
pub fn read(path: &Path) -> io::Result<String> {
    let file = open(path, BYTES_MAX)?;
    let mode = file.metadata()?.permissions().mode() & 0o777;
    if mode & 0o007 != 0 {
        return Err(invalid(format!(
            "its mode is {mode:o}, so that every user of this machine may use it; run: chmod o= {}",
            path.display()
        )));
    }
    text(file, BYTES_MAX)
}

/// Reads a file that every user may read.
///
/// # Errors
/// It cannot be read, is no regular file, is larger than `bytes_max`, or is not text.
pub fn read_public(path: &Path, bytes_max: u64) -> io::Result<String> {
    text(open(path, bytes_max)?, bytes_max)
}

/// Opens a file. A FIFO is refused immediately, even without a writer.
fn open(path: &Path, bytes_max: u64) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(invalid("it is not a regular file".to_owned()));
    }
    if metadata.len() > bytes_max {
        return Err(invalid(format!("it has {} bytes, expected at most {bytes_max}", metadata.len())));
    }
    Ok(file)
}

fn text(file: File, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    file.take(bytes_max).read_to_string(&mut text)?;
    Ok(text)
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn only_regular_files_of_a_bounded_size_that_others_cannot_read_are_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "sesame\n").unwrap();
        for (mode, is_read) in [(0o600, true), (0o640, true), (0o644, false), (0o602, false)] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let found = read(&path);
            assert_eq!(found.is_ok(), is_read, "{mode:o}: {found:?}");
            if let Err(error) = found {
                let expected =
                    format!("its mode is {mode:o}, so that every user of this machine may use it; run: chmod o= ");
                assert!(error.to_string().starts_with(&expected), "{error}");
            }
        }
        assert_eq!(read_public(&path, 7).unwrap(), "sesame\n");
        assert_eq!(read_public(&path, 6).unwrap_err().to_string(), "it has 7 bytes, expected at most 6");
        let fifo = folder.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
        for path in [&fifo, Path::new("/dev/zero"), folder.path()] {
            let error = read(path).unwrap_err().to_string();
            assert_eq!(error, "it is not a regular file", "{}", path.display());
        }
    }
}
