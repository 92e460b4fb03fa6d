//! Closes a file whose owner still exists.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::io::DupFlags;

/// Replaces an open file by /dev/null, which closes it and releases its locks. No transfer may be in progress.
pub(super) fn let_go(file: &File) -> io::Result<()> {
    let null = File::open("/dev/null")?;
    // SAFETY: `file` owns the descriptor, remains its owner, and closes it. The number stays open in between.
    #[allow(unsafe_code)]
    let mut descriptor = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(file.as_raw_fd()) });
    Ok(rustix::io::dup3(null, &mut descriptor, DupFlags::CLOEXEC)?)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rustix::fs::FlockOperation;

    use super::*;

    #[test]
    fn a_file_that_was_let_go_is_locked_by_another_and_has_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "text").unwrap();
        let (file, other) = (File::open(&path).unwrap(), File::open(&path).unwrap());
        rustix::fs::flock(&file, FlockOperation::LockExclusive).unwrap();
        assert!(rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive).is_err());
        let_go(&file).unwrap();
        rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
        let mut found = String::new();
        assert_eq!((&file).read_to_string(&mut found).unwrap(), 0);
    }
}
