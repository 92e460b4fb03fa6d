//! Work on a mounted file system, and the files that must survive a power failure at each request.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use flashwise_testing::mounted::{run, text};
use flashwise_testing::random::Random;

use super::recording::Recording;

/// A promise of fsync(2) or sync(1).
#[derive(Clone)]
pub struct Promise {
    /// Path within the file system.
    pub path: PathBuf,
    /// The content; `None` if the file does not exist.
    pub content: Option<Vec<u8>>,
    /// It is valid once the first number of requests is durable, and while at most the last number of requests was
    /// made.
    pub requests: Range<usize>,
}

impl Promise {
    /// Checks it in the file system at `root`.
    pub fn check(&self, root: &Path) -> Result<(), String> {
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

/// Maximum bytes of kept files.
const KEPT_BYTES_MAX: usize = 6 << 20;
const FILE_BYTES_MAX: u64 = 48 << 10;

pub struct Worker<'a> {
    root: &'a Path,
    recording: &'a Recording,
    random: Random,
    /// Files that fsync promised and that have not changed since.
    kept: VecDeque<(PathBuf, Vec<u8>, usize)>,
    /// Files without a promise.
    loose: VecDeque<PathBuf>,
    trees: VecDeque<PathBuf>,
    promises: Vec<Promise>,
    next_name: u64,
}

impl<'a> Worker<'a> {
    pub fn new(root: &'a Path, recording: &'a Recording, seed: u64) -> Worker<'a> {
        Worker {
            root,
            recording,
            random: Random(seed),
            kept: VecDeque::new(),
            loose: VecDeque::new(),
            trees: VecDeque::new(),
            promises: Vec::new(),
            next_name: 0,
        }
    }

    /// Performs one step.
    pub fn step(&mut self) {
        while self.kept.iter().map(|(_, content, _)| content.len()).sum::<usize>() > KEPT_BYTES_MAX {
            self.delete();
        }
        match self.random.below(100) {
            0..=24 => self.create(),
            25..=44 => self.overwrite(),
            45..=64 => self.append(),
            65..=74 => self.rename(),
            75..=84 => self.delete(),
            85..=96 => self.leave_unsynced(),
            97 => self.copy_sources(),
            _ => drop(run("fstrim", &[text(self.root)])),
        }
    }

    fn name(&mut self, kind: &str) -> PathBuf {
        self.next_name += 1;
        let directory = format!("d{}", self.random.below(6));
        fs::create_dir_all(self.root.join(&directory)).unwrap();
        Path::new(&directory).join(format!("{kind}-{}", self.next_name))
    }

    fn content(&mut self) -> Vec<u8> {
        let length = self.random.below(FILE_BYTES_MAX);
        self.random.bytes(length as usize)
    }

    fn sync(&self, path: &Path) {
        File::open(self.root.join(path)).unwrap().sync_all().unwrap();
    }

    /// Makes the entries of a directory and its parent durable.
    fn sync_directory(&self, path: &Path) {
        let directory = self.root.join(path.parent().unwrap());
        File::open(directory).unwrap().sync_all().unwrap();
        File::open(self.root).unwrap().sync_all().unwrap();
    }

    /// Promises that the file exists with its content, until it is taken.
    fn keep(&mut self, path: PathBuf, content: Vec<u8>) {
        self.kept.push_back((path, content, self.recording.flushed()));
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
        let (path, content, from) = self.kept.remove(chosen).unwrap();
        let requests = from..self.recording.len();
        self.promises.push(Promise { path: path.clone(), content: Some(content.clone()), requests });
        (path, content)
    }

    fn create(&mut self) {
        let (path, content) = (self.name("file"), self.content());
        fs::write(self.root.join(&path), &content).unwrap();
        self.sync(&path);
        self.sync_directory(&path);
        self.keep(path, content);
    }

    fn overwrite(&mut self) {
        let Some((path, mut content)) = self.take() else { return };
        let bytes = self.content();
        let at = self.random.below(content.len() as u64 + 1) as usize;
        content.resize(content.len().max(at + bytes.len()), 0);
        content[at..at + bytes.len()].copy_from_slice(&bytes);
        let mut file = OpenOptions::new().write(true).open(self.root.join(&path)).unwrap();
        file.seek(SeekFrom::Start(at as u64)).unwrap();
        file.write_all(&bytes).unwrap();
        file.sync_data().unwrap();
        self.keep(path, content);
    }

    /// Writes like a log: a little, then fsync, several times.
    fn append(&mut self) {
        let Some((path, mut content)) = self.take() else { return };
        let mut file = OpenOptions::new().append(true).open(self.root.join(&path)).unwrap();
        for _ in 0..=self.random.below(4) {
            let bytes = self.random.next().to_le_bytes().repeat(1 + self.random.below(100) as usize);
            file.write_all(&bytes).unwrap();
            file.sync_all().unwrap();
            content.extend(bytes);
        }
        self.keep(path, content);
    }

    fn rename(&mut self) {
        let Some((path, content)) = self.take() else { return };
        let target = self.name("renamed");
        fs::rename(self.root.join(&path), self.root.join(&target)).unwrap();
        self.sync_directory(&target);
        self.sync_directory(&path);
        self.keep(target, content);
        self.promises.push(Promise { path, content: None, requests: self.recording.flushed()..usize::MAX });
    }

    fn delete(&mut self) {
        let Some((path, _)) = self.take() else { return };
        fs::remove_file(self.root.join(&path)).unwrap();
        self.sync_directory(&path);
        self.promises.push(Promise { path, content: None, requests: self.recording.flushed()..usize::MAX });
    }

    fn leave_unsynced(&mut self) {
        let (path, content) = (self.name("loose"), self.content());
        fs::write(self.root.join(&path), content).unwrap();
        self.loose.push_back(path);
        if self.loose.len() > 20 {
            let path = self.loose.pop_front().unwrap();
            fs::remove_file(self.root.join(path)).unwrap();
        }
    }

    /// Copies a tree of sources; removes the oldest except one.
    fn copy_sources(&mut self) {
        if self.trees.len() > 1 {
            let tree = self.trees.pop_front().unwrap();
            while let Some(chosen) = self.kept.iter().position(|(path, ..)| path.starts_with(&tree)) {
                self.take_number(chosen);
            }
            fs::remove_dir_all(self.root.join(tree)).unwrap();
        }
        let tree = self.name("sources");
        let target = self.root.join(&tree);
        run("cp", &["-r", concat!(env!("CARGO_MANIFEST_DIR"), "/../core/src"), text(&target)]);
        run("sync", &["-f", text(self.root)]);
        for path in files(&target) {
            let content = fs::read(&path).unwrap();
            self.keep(path.strip_prefix(self.root).unwrap().to_owned(), content);
        }
        self.trees.push_back(tree);
    }

    /// Checks that the kept files read as they were written.
    pub fn read_all(&self) {
        for (path, content, _) in &self.kept {
            assert!(fs::read(self.root.join(path)).unwrap() == *content, "{} reads as something else", path.display());
        }
    }

    /// Returns all promises.
    pub fn promises(mut self) -> Vec<Promise> {
        while self.take().is_some() {}
        self.promises
    }
}

/// Returns all files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    fs::read_dir(directory).unwrap().flat_map(|entry| below(entry.unwrap().path())).collect()
}
