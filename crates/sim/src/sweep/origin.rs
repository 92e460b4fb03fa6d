//! The origin of a task's trace: files, and objects of S3, which are copied first.

use std::path::{Path, PathBuf};

use flashwise_trace::progress::Progress;
use flashwise_trace::sources::parts;

use super::SweepError;
use super::cache::{Cache, Copy, identity};
use super::folder::Folder;
use super::objects::{About, Address, Objects, fitting, is_object};
use crate::job::lines::{checksum, checksum_of_all};

/// The subfolder of results for the SHA-256 of objects, each in a file named by the object's identity. So a worker can
/// find results without fetching the objects.
const KNOWN: &str = ".traces";

/// The files and objects of a trace.
pub(super) struct Origin {
    parts: Vec<TracePart>,
    cache: Cache,
}

enum TracePart {
    Here(PathBuf),
    There(Object),
}

/// An object, and the path inside it if it is an archive.
struct Object {
    objects: Objects,
    address: Address,
    about: About,
    inside: Option<String>,
}

/// An open trace.
pub(super) struct Opened {
    /// Its local name.
    pub path: PathBuf,
    pub checksum: String,
    _copies: Vec<Copy>,
}

impl Origin {
    /// Finds the files and objects of the trace `trace`; reads metadata of objects but does not fetch them.
    pub fn of(trace: &Path, cache: Cache) -> Result<Origin, SweepError> {
        let named = match trace.to_str() {
            Some(name) if parts(name).any(|part| is_object(Path::new(part))) => name,
            _ => return Ok(Origin { parts: vec![TracePart::Here(trace.to_owned())], cache }),
        };
        let mut found = Vec::new();
        for part in parts(named) {
            if !is_object(Path::new(part)) {
                found.push(TracePart::Here(PathBuf::from(part)));
                continue;
            }
            let each = if is_pattern(part) { fitting(part)? } else { vec![PathBuf::from(part)] };
            for object in each {
                found.push(TracePart::There(Object::find(&object)?));
            }
        }
        Ok(Origin { parts: found, cache })
    }

    /// True if it consists of files only.
    pub fn is_here(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, TracePart::Here(_)))
    }

    /// Returns the SHA-256 of the trace, if it is known without fetching. Reads files; `progress` counts their bytes.
    pub fn known(&self, results: &Folder, progress: &dyn Progress) -> Result<Option<String>, SweepError> {
        let mut sums = Vec::new();
        for part in &self.parts {
            let sum = match part {
                TracePart::Here(path) => Some(checksum(std::slice::from_ref(path), progress)?),
                TracePart::There(object) => {
                    let identity = identity(&object.address, &object.about);
                    match self.cache.checksum(&identity) {
                        Some(known) => Some(known),
                        None => {
                            let read = results.read(&format!("{KNOWN}/{identity}"))?;
                            read.and_then(|known| String::from_utf8(known).ok())
                        }
                    }
                }
            };
            let Some(sum) = sum else { return Ok(None) };
            sums.push(sum);
        }
        Ok(Some(checksum_of_all(&sums)))
    }

    /// Opens the trace: fetches objects and stores their checksums in the folder of results. `progress` counts bytes.
    pub fn open(&self, results: &Folder, progress: &dyn Progress) -> Result<Opened, SweepError> {
        let (mut paths, mut sums, mut copies) = (Vec::new(), Vec::new(), Vec::new());
        for part in &self.parts {
            match part {
                TracePart::Here(path) => {
                    sums.push(checksum(std::slice::from_ref(path), progress)?);
                    paths.push(path.clone());
                }
                TracePart::There(Object { objects, address, about, inside }) => {
                    let copy = self.cache.copy(objects, address, about, progress)?;
                    let known = format!("{KNOWN}/{}", identity(address, about));
                    if !results.has(&known)? {
                        results.write(&known, copy.checksum.clone().into_bytes())?;
                    }
                    sums.push(copy.checksum.clone());
                    paths.push(inside.as_ref().map_or(copy.path.clone(), |inside| copy.path.join(inside)));
                    copies.push(copy);
                }
            }
        }
        let path = match &paths[..] {
            [one] => one.clone(),
            several => several.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" + ").into(),
        };
        Ok(Opened { path, checksum: checksum_of_all(&sums), _copies: copies })
    }
}

impl Object {
    fn find(path: &Path) -> Result<Object, SweepError> {
        let whole = Address::of(path)?.expect("it names an object");
        let objects = Objects::open(&whole)?;
        for (address, inside) in whole.places() {
            if let Some(about) = objects.about(&address)? {
                let inside = inside.map(str::to_owned);
                return Ok(Object { objects, address, about, inside });
            }
        }
        let problem = "found no such object".to_owned();
        Err(SweepError::Object { path: whole.to_string(), problem })
    }
}

/// True if a name is a pattern.
pub(super) fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '['])
}
