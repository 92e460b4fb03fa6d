//! Copies of traces on the local disk, fetched once and removed when others need the space.
//!
//! Each copy has a folder, named by its object and by the tag that changes with the object's contents. The folder has
//! the copy, under the object's name, and its SHA-256. Workers of a machine share copies by a lock file beside the
//! folder: exclusive to fetch or remove the copy, shared to read it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use flashwise_core::human;
use flashwise_trace::error::TraceError;
use flashwise_trace::output::name_of;
use flashwise_trace::progress::Progress;
use flashwise_trace::room::free_bytes;
use sha2::{Digest, Sha256};

use super::SweepError;
use super::objects::{About, Address, Objects};
use crate::job::lines::hexadecimal;

/// Default total size of copies.
pub(super) const SIZE_BYTES: u64 = 100 << 30;

/// The file with the SHA-256 of a copy; it exists once the copy is complete.
const SUM: &str = "sha256";

/// A folder of copies.
pub(super) struct Cache {
    folder: PathBuf,
    size_bytes: u64,
}

/// A copy that is not removed as long as this lives.
#[derive(Debug)]
pub(super) struct Copy {
    pub path: PathBuf,
    pub checksum: String,
    _lock: File,
}

/// Returns the identity of a copy's object, in 32 hexadecimal digits.
pub(super) fn identity(address: &Address, about: &About) -> String {
    let of = format!("{address}\n{}\n{}\n", about.tag, about.size_bytes);
    hexadecimal(&Sha256::digest(of))[..32].to_owned()
}

impl Cache {
    /// The copies in `folder`, or in the user's cache folder, which take at most this many bytes.
    pub fn new(folder: Option<&Path>, size_bytes: Option<u64>) -> Cache {
        let of_user = || {
            let named = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
            let caches = named("XDG_CACHE_HOME").or_else(|| named("HOME").map(|home| home.join(".cache")));
            caches.unwrap_or_else(std::env::temp_dir).join("flashwise")
        };
        let folder = folder.map_or_else(of_user, Path::to_owned);
        Cache { folder, size_bytes: size_bytes.unwrap_or(SIZE_BYTES) }
    }

    /// Returns the SHA-256 of the object, if its copy exists.
    pub fn checksum(&self, identity: &str) -> Option<String> {
        fs::read_to_string(self.folder.join(identity).join(SUM)).ok()
    }

    /// Returns the copy of an object, fetched if necessary. `progress` counts bytes fetched.
    pub fn copy(
        &self,
        objects: &Objects,
        address: &Address,
        about: &About,
        progress: &dyn Progress,
    ) -> Result<Copy, SweepError> {
        let identity = identity(address, about);
        let folder = self.folder.join(&identity);
        // A space or a + would separate merged files, or an archive and its member.
        let path = folder.join(address.name().replace([' ', '+'], "_"));
        let io = |source| TraceError::Io { path: name_of(&folder), source };
        fs::create_dir_all(&self.folder).map_err(io)?;
        loop {
            let lock = self.lock(&identity).map_err(io)?;
            lock.lock_shared().map_err(io)?;
            if let Some(checksum) = self.checksum(&identity) {
                // Mark it as used, so that others are removed first.
                let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
                return Ok(Copy { path, checksum, _lock: lock });
            }
            lock.unlock().map_err(io)?;
            lock.lock().map_err(io)?;
            if self.checksum(&identity).is_none() {
                // Remove the remains of a process that was killed.
                remove(&folder).map_err(io)?;
                self.make_room(address, about.size_bytes)?;
                fs::create_dir(&folder).map_err(io)?;
                let fetched = self.fetch(objects, address, about, &path, progress);
                let checksum = fetched.inspect_err(|_| drop(remove(&folder)))?;
                let partial = folder.join(".sha256");
                fs::write(&partial, checksum).and_then(|()| fs::rename(&partial, folder.join(SUM))).map_err(io)?;
            }
        }
    }

    fn fetch(
        &self,
        objects: &Objects,
        address: &Address,
        about: &About,
        path: &Path,
        progress: &dyn Progress,
    ) -> Result<String, SweepError> {
        let io = |source| TraceError::Io { path: name_of(path), source };
        let mut copy = Summed { file: File::create_new(path).map_err(io)?, sum: Sha256::new() };
        objects.fetch(address, about, &mut copy, progress)?;
        // The checksum vouches for the copy, even after a power failure.
        copy.file.sync_all().map_err(io)?;
        Ok(hexadecimal(&copy.sum.finalize()))
    }

    /// Opens the lock file, which is never removed, so every holder has the same lock.
    fn lock(&self, identity: &str) -> io::Result<File> {
        File::options().create(true).append(true).open(self.folder.join(format!("{identity}.lock")))
    }

    /// Removes the least recently used copies until this many bytes are free.
    fn make_room(&self, address: &Address, needed_bytes: u64) -> Result<(), SweepError> {
        let mut copies = self.copies();
        copies.sort();
        let mut taken_bytes: u64 = copies.iter().map(|(_, bytes, _)| bytes).sum();
        let mut copies = copies.into_iter();
        loop {
            let free = free_bytes(&self.folder);
            let fits = free.is_none_or(|free| needed_bytes <= free);
            if fits && taken_bytes.saturating_add(needed_bytes) <= self.size_bytes {
                return Ok(());
            }
            let Some((_, bytes, identity)) = copies.next() else {
                // A trace larger than the whole cache is read nevertheless.
                return if fits { Ok(()) } else { Err(self.no_room(address, needed_bytes, free.unwrap_or(0))) };
            };
            let lock = self.lock(&identity);
            if lock.is_ok_and(|lock| lock.try_lock().is_ok() && remove(&self.folder.join(&identity)).is_ok()) {
                taken_bytes -= bytes;
            }
        }
    }

    fn no_room(&self, address: &Address, needed_bytes: u64, free_bytes: u64) -> SweepError {
        let said = |bytes: u64| human::bytes(bytes as f64);
        let (free, needed) = (said(free_bytes), said(needed_bytes));
        SweepError::Room { path: address.to_string(), cache: name_of(&self.folder), free, needed }
    }

    /// Returns each copy's last use, size in bytes and identity.
    fn copies(&self) -> Vec<(SystemTime, u64, String)> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let Ok(identity) = entry.file_name().into_string() else { continue };
            for file in fs::read_dir(entry.path()).into_iter().flatten().flatten() {
                if let (false, Ok(about)) = (file.file_name() == SUM, file.metadata()) {
                    let used = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                    found.push((used, about.len(), identity.clone()));
                }
            }
        }
        found
    }
}

fn remove(folder: &Path) -> io::Result<()> {
    // Remove the checksum first: it vouches for the rest.
    for gone in [fs::remove_file(folder.join(SUM)), fs::remove_dir_all(folder)] {
        if let Err(error) = gone
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
    }
    Ok(())
}

/// A file whose SHA-256 is computed while it is written.
struct Summed {
    file: File,
    sum: Sha256,
}

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.sum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
