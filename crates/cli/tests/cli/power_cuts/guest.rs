//! The program in the guest of the power-cut tests. It writes files, prints fsync's promises, and reads the files back
//! after a power cut.
//!
//! Each line is a word, the number of a file or group of files, a position in it, and a version. Versions of a position
//! only grow.
#![allow(clippy::unwrap_used)] // What fails ends the program, and the host is told.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flashwise_testing::random::Random;
use rustix::fs::OFlags;

const BLOCK: usize = 4096;
/// A file for each way to make a write durable, so that no thread flushes pending changes of another.
const FILES: [u64; 3] = [FSYNC, FDATASYNC, DSYNC];
const FSYNC: u64 = 1;
const FDATASYNC: u64 = 2;
const DSYNC: u64 = 3;
/// Blocks of each of these files, which are overwritten in place.
const BLOCKS: u64 = 2048;
/// Represents files that are replaced as a whole; each is its own place.
const REPLACED: u64 = 4;
const REPLACED_FILES: u64 = 60;
const REPLACED_BLOCKS_MAX: u64 = 16;
/// Size of the file that is never flushed: several times the flash, so that the log wraps.
const NOISE_BLOCKS: u64 = 64 << 20 >> 12;
/// Versions of one boot: more than it writes.
const VERSIONS_OF_BOOT: u64 = 1_000_000_000;

fn main() {
    // A thread that fails ends all of them.
    std::panic::set_hook(Box::new(|failure| {
        eprintln!("{failure}");
        std::process::exit(1);
    }));
    let arguments: Vec<String> = std::env::args().collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[1..] {
        ["make", directory] => make(Path::new(directory)),
        ["read", directory] => read(Path::new(directory)),
        ["write", directory, boot] => write(Path::new(directory), boot.parse().unwrap()),
        _ => panic!("expected make DIRECTORY, read DIRECTORY or write DIRECTORY BOOT, found {arguments:?}"),
    }
}

/// Fills a block so that each of its sectors identifies itself.
fn fill(block: &mut [u8], file: u64, place: u64, version: u64) {
    for (word, bytes) in [file << 32 | place, version].iter().cycle().zip(block.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}

/// Returns the version of a block, or its error.
fn version(block: &[u8], file: u64, place: u64) -> Result<u64, String> {
    let version = u64::from_le_bytes(block[8..16].try_into().unwrap());
    let mut expected = [0; BLOCK];
    fill(&mut expected, file, place, version);
    match block.chunks(16).zip(expected.chunks(16)).position(|(found, expected)| found != expected) {
        None => Ok(version),
        Some(at) => {
            let at = at * 16;
            Err(format!("version {version} at first, at byte {at} {:02x?}", &block[at..at + 16]))
        }
    }
}

/// Memory for O_DIRECT, and its first aligned byte.
struct Aligned(Vec<u8>, usize);

impl Aligned {
    fn new(bytes: usize) -> Aligned {
        let memory = vec![0; bytes + BLOCK];
        let start = memory.as_ptr().align_offset(BLOCK);
        Aligned(memory, start)
    }

    fn blocks(&mut self, count: u64) -> &mut [u8] {
        &mut self.0[self.1..self.1 + count as usize * BLOCK]
    }
}

fn path_of(directory: &Path, file: u64) -> PathBuf {
    directory.join(format!("file-{file}"))
}

fn open(path: &Path, flags: OFlags) -> File {
    let opened = OpenOptions::new().read(true).write(true).custom_flags(flags.bits() as i32).open(path);
    opened.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Makes the files with version 0 of all blocks, durably.
fn make(directory: &Path) {
    for file in FILES {
        let mut bytes = vec![0; BLOCKS as usize * BLOCK];
        for (place, block) in (0..).zip(bytes.chunks_mut(BLOCK)) {
            fill(block, file, place, 0);
        }
        std::fs::write(path_of(directory, file), bytes).unwrap();
    }
    std::fs::create_dir(path_of(directory, REPLACED)).unwrap();
    let noise = File::create(directory.join("noise")).unwrap();
    noise.set_len(NOISE_BLOCKS * BLOCK as u64).unwrap();
    rustix::fs::syncfs(noise).unwrap();
}

/// Prints the versions found.
fn read(directory: &Path) {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for file in FILES {
        let bytes = std::fs::read(path_of(directory, file)).unwrap();
        assert_eq!(bytes.len(), BLOCKS as usize * BLOCK, "the size of file {file}");
        for (place, block) in (0..).zip(bytes.chunks(BLOCK)) {
            tell(&mut out, file, place, version(block, file, place));
        }
    }
    for place in 0..REPLACED_FILES {
        match std::fs::read(path_of(directory, REPLACED).join(place.to_string())) {
            Ok(bytes) => tell(&mut out, REPLACED, place, version_of_replaced(&bytes, place)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => panic!("file {place} of those that are replaced: {error}"),
        }
    }
    out.flush().unwrap();
}

fn tell(out: &mut impl io::Write, file: u64, place: u64, found: Result<u64, String>) {
    match found {
        Ok(version) => writeln!(out, "found {file} {place} {version}"),
        Err(what) => writeln!(out, "mixed {file} {place}: {what}"),
    }
    .unwrap();
}

fn blocks_of_replaced(version: u64) -> u64 {
    1 + version % REPLACED_BLOCKS_MAX
}

fn version_of_replaced(bytes: &[u8], place: u64) -> Result<u64, String> {
    let versions: Result<Vec<u64>, String> =
        bytes.chunks_exact(BLOCK).map(|block| version(block, REPLACED, place)).collect();
    match versions?[..] {
        [first, ref others @ ..]
            if others.iter().all(|&other| other == first)
                && bytes.len() as u64 == blocks_of_replaced(first) * BLOCK as u64 =>
        {
            Ok(first)
        }
        ref versions => Err(format!("{} bytes with blocks of versions {versions:?}", bytes.len())),
    }
}

/// Writes until the power fails.
fn write(directory: &Path, boot: u64) {
    std::thread::scope(|scope| {
        for file in FILES {
            scope.spawn(move || overwrite(directory, file, boot));
        }
        scope.spawn(|| replace(directory, boot));
        scope.spawn(|| make_noise(directory, boot));
    });
}

/// Overwrites blocks in place, a few runs of them before each flush.
fn overwrite(directory: &Path, file: u64, boot: u64) {
    let flags = match file {
        FSYNC => OFlags::empty(),
        FDATASYNC => OFlags::DIRECT,
        _ => OFlags::DIRECT | OFlags::DSYNC,
    };
    let disk = open(&path_of(directory, file), flags);
    let mut random = Random(boot << 8 | file);
    let mut memory = Aligned::new(8 * BLOCK);
    let mut version = boot * VERSIONS_OF_BOOT;
    loop {
        let mut lines = String::new();
        for _ in 0..1 + random.below(if file == DSYNC { 1 } else { 6 }) {
            version += 1;
            let count = 1 + random.below(8);
            let first = random.below(BLOCKS - count);
            let bytes = memory.blocks(count);
            for (place, block) in (first..).zip(bytes.chunks_mut(BLOCK)) {
                fill(block, file, place, version);
                writeln!(lines, "kept {file} {place} {version}").unwrap();
            }
            disk.write_all_at(bytes, first * BLOCK as u64).unwrap();
        }
        match file {
            FSYNC => disk.sync_all().unwrap(),
            FDATASYNC => disk.sync_data().unwrap(),
            _ => {}
        }
        print!("{lines}");
        pause(&mut random);
    }
}

/// Replaces whole files: a new one is written, flushed and renamed over the old one, and the directory is flushed.
fn replace(directory: &Path, boot: u64) {
    let folder = path_of(directory, REPLACED);
    let directory = File::open(&folder).unwrap();
    let mut random = Random(boot << 8 | REPLACED);
    for version in boot * VERSIONS_OF_BOOT + 1.. {
        let place = random.below(REPLACED_FILES);
        let mut bytes = vec![0; blocks_of_replaced(version) as usize * BLOCK];
        bytes.chunks_mut(BLOCK).for_each(|block| fill(block, REPLACED, place, version));
        let new = folder.join(format!("new-{place}"));
        let mut file = File::create(&new).unwrap();
        file.write_all(&bytes).unwrap();
        file.sync_all().unwrap();
        std::fs::rename(&new, folder.join(place.to_string())).unwrap();
        directory.sync_all().unwrap();
        println!("kept {REPLACED} {place} {version}");
        pause(&mut random);
    }
}

/// Writes without flushes, and reads.
fn make_noise(directory: &Path, boot: u64) {
    let noise = open(&directory.join("noise"), OFlags::DIRECT);
    let mut random = Random(boot << 8);
    let mut memory = Aligned::new(16 * BLOCK);
    loop {
        let count = 1 + random.below(16);
        let offset = random.below(NOISE_BLOCKS - count) * BLOCK as u64;
        let bytes = memory.blocks(count);
        if random.chance(3) {
            noise.read_exact_at(bytes, offset).unwrap();
        } else {
            bytes.fill(random.next() as u8);
            noise.write_all_at(bytes, offset).unwrap();
        }
    }
}

/// Sometimes pauses without flushes, so that the power also fails long after the last flush.
fn pause(random: &mut Random) {
    if random.chance(100) {
        std::thread::sleep(Duration::from_millis(random.below(1000)));
    }
}
