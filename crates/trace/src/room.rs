//! Estimates the disk space for the copy of a trace from the beginning of the trace, and checks that it is available.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::TraceError;
use crate::progress::Progress;
use crate::requests::Requests;
use flashwise_core::human;

/// The number of original bytes to read before the rest is estimated.
const JUDGED_BYTES: u64 = 4 << 20;
/// Shorter copies, in bytes, are not reported.
const SAID_BYTES: u64 = 1 << 30;

/// Watches the growth of a copy.
pub struct Room<'a> {
    read: Option<(Vec<Arc<AtomicU64>>, u64)>,
    name: String,
    progress: &'a dyn Progress,
}

impl<'a> Room<'a> {
    /// Creates a watcher for the copy of a trace; `progress` receives a note about a long one.
    pub fn of(requests: &Requests, progress: &'a dyn Progress) -> Room<'a> {
        Room { read: requests.read_of(), name: requests.name().to_owned(), progress }
    }

    /// Checks the space when the copy has `written_bytes`.
    ///
    /// # Errors
    /// A directory without enough free space.
    pub fn check(&mut self, written_bytes: u64) -> Result<(), TraceError> {
        let Some((counters, all_bytes)) = &self.read else { return Ok(()) };
        let read_bytes: u64 = counters.iter().map(|counter| counter.load(Ordering::Relaxed)).sum();
        if read_bytes < JUDGED_BYTES.min(*all_bytes / 2) || read_bytes == 0 {
            return Ok(());
        }
        let needed_bytes = (written_bytes as f64 * (*all_bytes as f64 / read_bytes as f64).max(1.0)) as u64;
        self.read = None;
        let directory = std::env::temp_dir();
        let free_bytes = free_bytes(&directory);
        let (needed, free) = (human::bytes(needed_bytes as f64), free_bytes.map(|bytes| human::bytes(bytes as f64)));
        let left_bytes = needed_bytes.saturating_sub(written_bytes);
        if let (Some(free_bytes), Some(free)) = (free_bytes, &free)
            && left_bytes > free_bytes
        {
            let (path, directory) = (self.name.clone(), directory.display().to_string());
            return Err(TraceError::Room { path, directory, needed, free: free.clone() });
        }
        if needed_bytes >= SAID_BYTES {
            let free = free.map_or_else(String::new, |free| format!(", where {free} are free"));
            let what = format!(
                "takes about {needed} in {} while it is open{free} (TMPDIR names another directory; flashwise trace \
                 convert keeps a shorter file)",
                directory.display()
            );
            self.progress.note(&self.name, &what);
        }
        Ok(())
    }
}

/// Returns the free bytes in the file system of `directory`, if known.
#[cfg(target_os = "linux")]
pub fn free_bytes(directory: &std::path::Path) -> Option<u64> {
    let about = rustix::fs::statvfs(directory).ok()?;
    Some(about.f_bavail.saturating_mul(about.f_frsize))
}

/// Returns the free bytes in the file system of `directory`, if known.
#[cfg(not(target_os = "linux"))]
pub fn free_bytes(_: &std::path::Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Collects the notes.
    #[derive(Debug, Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Progress for Notes {
        fn advance(&self, _: u64) {}

        fn note(&self, path: &str, what: &str) {
            self.0.lock().unwrap().push(format!("{path}: {what}"));
        }
    }

    /// Checks a trace of `all_bytes` after its first 4 MiB became `written_bytes`.
    fn judged(all_bytes: u64, written_bytes: u64) -> (Result<(), TraceError>, Vec<String>) {
        let (notes, read) = (Notes::default(), Arc::new(AtomicU64::new(JUDGED_BYTES - 1)));
        let mut room = Room { read: Some((vec![read.clone()], all_bytes)), name: "t".to_owned(), progress: &notes };
        assert!(room.check(written_bytes).is_ok(), "too little is read to say anything");
        read.store(JUDGED_BYTES, Ordering::Relaxed);
        let found = room.check(written_bytes);
        assert!(room.check(u64::MAX).is_ok(), "it is said once");
        (found, notes.0.into_inner().unwrap())
    }

    #[test]
    fn the_space_for_a_copy_is_estimated_and_noted() {
        let (found, notes) = judged(8 << 20, 1 << 20);
        assert!(found.is_ok() && notes.is_empty(), "2 MiB need no word: {notes:?}");
        let (found, notes) = judged(4 << 30, 2 << 20);
        assert!(found.is_ok() && notes.len() == 1, "{found:?}");
        assert!(notes[0].starts_with("t: takes about 2 GiB in ") && notes[0].contains("TMPDIR"), "{notes:?}");
        let (found, _) = judged(1 << 50, 1 << 30);
        let error = found.unwrap_err().to_string();
        assert!(error.starts_with("t: found ") && error.contains("expected about 256 PiB"), "{error}");
    }
}
