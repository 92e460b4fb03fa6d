//! Work on a mounted file system, and the files that must survive a power failure at each moment.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{Result, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::mounted::{text, try_run};
use crate::random::Random;

/// Numbers moments: requests, or microseconds.
pub trait Moments {
    /// Returns the present moment.
    fn now(&self) -> u64;
    /// Returns the moment at which everything became durable that is durable now.
    fn durable(&self) -> u64 {
        self.now()
    }
}

/// A version of a file, with the promise of fsync(2) or sync(1) for it.
#[derive(Clone, Debug)]
pub struct Version {
    /// Path within the file system.
    pub path: PathBuf,
    /// The content; `None` if the file does not exist.
    pub content: Option<Vec<u8>>,
    /// The moment before it was written.
    pub begun: u64,
    /// The promise is valid once the first moment is durable, and until the last one. Without a promise, it is
    /// [`NEVER`].
    pub promised: Range<u64>,
}

/// The range of a promise that was not made.
pub const NEVER: Range<u64> = u64::MAX..u64::MAX;

impl Version {
    /// True if the file system at `root` has it.
    pub fn is_there(&self, root: &Path) -> bool {
        self.check(root).is_ok()
    }

    /// Checks it in the file system at `root`.
    ///
    /// # Errors
    /// Other content, or none.
    pub fn check(&self, root: &Path) -> std::result::Result<(), String> {
        let found = fs::read(root.join(&self.path));
        match (&self.content, found) {
            (None, Err(error)) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            (Some(content), Ok(found)) if *content == found => Ok(()),
            (content, found) => Err(format!(
                "{}: of {:?} bytes expected, found {:?}",
                self.path.display(),
                content.as_ref().map(Vec::len),
                found.map(|found| found.len())
            )),
        }
    }
}

/// Sizes of the work.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Maximum bytes of most files.
    pub file_bytes: u64,
    /// Maximum bytes of some large files; 0 for none.
    pub large_bytes: u64,
    /// Maximum bytes of all kept files.
    pub kept_bytes: usize,
}

/// A worker in its own directory.
pub struct Worker<M> {
    root: PathBuf,
    moments: M,
    load: Load,
    random: Random,
    /// Files that fsync promised and that have not changed since.
    kept: VecDeque<Version>,
    /// Files without a promise.
    loose: VecDeque<PathBuf>,
    trees: VecDeque<PathBuf>,
    /// Earlier versions, and those without a promise.
    versions: Vec<Version>,
    next_name: u64,
}

impl<M: Moments> Worker<M> {
    /// Works in the directory `root`. Everything follows from the seed.
    pub fn new(root: &Path, moments: M, load: Load, seed: u64) -> Worker<M> {
        Worker {
            root: root.to_owned(),
            moments,
            load,
            random: Random(seed),
            kept: VecDeque::new(),
            loose: VecDeque::new(),
            trees: VecDeque::new(),
            versions: Vec::new(),
            next_name: 0,
        }
    }

    /// Performs one step.
    ///
    /// # Errors
    /// Those of the file system. The worker can then only be asked for its versions, or continue after
    /// [`restarted`](Self::restarted).
    pub fn step(&mut self) -> Result<()> {
        while self.kept.iter().map(|kept| kept.content.as_ref().map_or(0, Vec::len)).sum::<usize>()
            > self.load.kept_bytes
        {
            self.delete()?;
        }
        match self.random.below(100) {
            0..=21 => self.create(),
            22..=38 => self.overwrite(),
            39..=41 => self.grow(),
            42..=59 => self.append(),
            60..=66 => self.rename(),
            67..=72 => self.replace(),
            73..=82 => self.delete(),
            83..=96 => self.leave_unsynced(),
            97 => self.copy_sources(),
            _ => self.run("fstrim", &[text(&self.root)]),
        }
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<()> {
        try_run(program, arguments).map(drop).map_err(std::io::Error::other)
    }

    fn name(&mut self, kind: &str) -> Result<PathBuf> {
        self.next_name += 1;
        let directory = format!("d{}", self.random.below(6));
        fs::create_dir_all(self.root.join(&directory))?;
        Ok(Path::new(&directory).join(format!("{kind}-{}", self.next_name)))
    }

    fn content(&mut self) -> Vec<u8> {
        let is_large = self.load.large_bytes > 0 && self.random.chance(20);
        let limit = if is_large { self.load.large_bytes } else { self.load.file_bytes };
        let length = 16 + self.random.below(limit);
        self.random.bytes(length as usize)
    }

    /// Makes the entries of a directory and its parent durable.
    fn sync_directory(&self, path: &Path) -> Result<()> {
        let directory = self.root.join(path.parent().unwrap_or(path));
        File::open(directory)?.sync_all()?;
        File::open(&self.root)?.sync_all()
    }

    /// Makes a version of a file durable by `change`. Its promise is valid until it is taken.
    fn keep(&mut self, path: PathBuf, content: Vec<u8>, change: impl FnOnce(&Self, &Path) -> Result<()>) -> Result<()> {
        let begun = self.moments.now();
        let result = change(self, &self.root.join(&path));
        let version = Version { path, content: Some(content), begun, promised: NEVER };
        match &result {
            Ok(()) => self.kept.push_back(Version { promised: self.moments.durable()..u64::MAX, ..version }),
            Err(_) => self.versions.push(version),
        }
        result
    }

    /// Promises that a file does not exist.
    fn promise_absence(&mut self, path: PathBuf, begun: u64) {
        let promised = self.moments.durable()..u64::MAX;
        self.versions.push(Version { path, content: None, begun, promised });
    }

    /// Takes a file that is about to change. Its promise ends.
    fn take(&mut self) -> Option<(PathBuf, Vec<u8>)> {
        if self.kept.is_empty() {
            return None;
        }
        let chosen = self.random.below(self.kept.len() as u64) as usize;
        Some(self.take_number(chosen))
    }

    fn take_number(&mut self, chosen: usize) -> (PathBuf, Vec<u8>) {
        let mut version = self.kept.remove(chosen).unwrap();
        version.promised.end = self.moments.now();
        self.versions.push(version.clone());
        (version.path, version.content.unwrap_or_default())
    }

    fn create(&mut self) -> Result<()> {
        let (path, content) = (self.name("file")?, self.content());
        self.keep(path.clone(), content.clone(), |worker, at| {
            let mut file = File::create(at)?;
            file.write_all(&content)?;
            file.sync_all()?;
            worker.sync_directory(&path)
        })
    }

    fn overwrite(&mut self) -> Result<()> {
        let Some((path, mut content)) = self.take() else { return Ok(()) };
        let bytes = self.content();
        let at = self.random.below(content.len() as u64 + 1) as usize;
        content.resize(content.len().max(at + bytes.len()), 0);
        content[at..at + bytes.len()].copy_from_slice(&bytes);
        self.keep(path, content, |_, path| {
            let mut file = OpenOptions::new().write(true).open(path)?;
            file.seek(SeekFrom::Start(at as u64))?;
            file.write_all(&bytes)?;
            file.sync_data()
        })
    }

    /// Makes a file larger, with a hole, and writes its end.
    fn grow(&mut self) -> Result<()> {
        let Some((path, mut content)) = self.take() else { return Ok(()) };
        let bytes = self.random.bytes(100);
        content.resize(content.len() + self.random.below(self.load.file_bytes) as usize, 0);
        let length = content.len() as u64;
        content.extend(&bytes);
        self.keep(path, content, |_, path| {
            let mut file = OpenOptions::new().append(true).open(path)?;
            file.set_len(length)?;
            file.write_all(&bytes)?;
            file.sync_all()
        })
    }

    /// Writes like a log: a little, then fsync, several times.
    fn append(&mut self) -> Result<()> {
        let Some((path, mut content)) = self.take() else { return Ok(()) };
        for number in 0..=self.random.below(4) {
            if number > 0 {
                self.take_number(self.kept.len() - 1);
            }
            let bytes = self.random.next().to_le_bytes().repeat(1 + self.random.below(100) as usize);
            content.extend(&bytes);
            self.keep(path.clone(), content.clone(), |_, path| {
                let mut file = OpenOptions::new().append(true).open(path)?;
                file.write_all(&bytes)?;
                file.sync_all()
            })?;
        }
        Ok(())
    }

    fn rename(&mut self) -> Result<()> {
        let Some((path, content)) = self.take() else { return Ok(()) };
        let (begun, target) = (self.moments.now(), self.name("renamed")?);
        self.keep(target.clone(), content, |worker, at| {
            fs::rename(worker.root.join(&path), at)?;
            worker.sync_directory(&target)?;
            worker.sync_directory(&path)
        })?;
        self.promise_absence(path, begun);
        Ok(())
    }

    /// Replaces the content of a file as editors do: a new file that is renamed.
    fn replace(&mut self) -> Result<()> {
        let Some((path, _)) = self.take() else { return Ok(()) };
        let content = self.content();
        self.keep(path.clone(), content.clone(), |worker, at| {
            let new = at.with_extension("new");
            let mut file = File::create(&new)?;
            file.write_all(&content)?;
            file.sync_all()?;
            fs::rename(&new, at)?;
            worker.sync_directory(&path)
        })
    }

    fn delete(&mut self) -> Result<()> {
        let Some((path, _)) = self.take() else { return Ok(()) };
        let begun = self.moments.now();
        fs::remove_file(self.root.join(&path))?;
        self.sync_directory(&path)?;
        self.promise_absence(path, begun);
        Ok(())
    }

    fn leave_unsynced(&mut self) -> Result<()> {
        let (path, content) = (self.name("loose")?, self.content());
        let begun = self.moments.now();
        fs::write(self.root.join(&path), &content)?;
        self.versions.push(Version { path: path.clone(), content: Some(content), begun, promised: NEVER });
        self.loose.push_back(path);
        if self.loose.len() > 20 {
            let path = self.loose.pop_front().unwrap();
            fs::remove_file(self.root.join(path))?;
        }
        Ok(())
    }

    /// Copies a tree of sources; removes the oldest except one.
    fn copy_sources(&mut self) -> Result<()> {
        if self.trees.len() > 1 {
            let tree = self.trees.pop_front().unwrap();
            while let Some(chosen) = self.kept.iter().position(|kept| kept.path.starts_with(&tree)) {
                self.take_number(chosen);
            }
            fs::remove_dir_all(self.root.join(tree))?;
        }
        let (begun, tree) = (self.moments.now(), self.name("sources")?);
        let target = self.root.join(&tree);
        self.run("cp", &["-r", concat!(env!("CARGO_MANIFEST_DIR"), "/../core/src"), text(&target)])?;
        self.run("sync", &["-f", text(&self.root)])?;
        let promised = self.moments.durable()..u64::MAX;
        for path in files(&target)? {
            let content = Some(fs::read(&path)?);
            let path = path.strip_prefix(&self.root).unwrap_or(&path).to_owned();
            self.kept.push_back(Version { path, content, begun, promised: promised.clone() });
        }
        self.trees.push_back(tree);
        Ok(())
    }

    /// Checks that the kept files read as they were written.
    pub fn read_all(&self) {
        for kept in &self.kept {
            assert!(kept.is_there(&self.root), "{} reads as something else", kept.path.display());
        }
    }

    /// Continues after a crash: files without a promise may be gone.
    pub fn restarted(&mut self) {
        self.loose.clear();
    }

    /// Returns all versions.
    pub fn versions(mut self) -> Vec<Version> {
        self.versions.extend(self.kept);
        self.versions
    }
}

/// Returns all files below a directory.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files_found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() { files_found.extend(files(&path)?) } else { files_found.push(path) }
    }
    Ok(files_found)
}
