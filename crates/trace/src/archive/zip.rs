//! Zip archives. Their directory is at the end, so the archive is copied into a temporary file first.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

use rawzip::{CompressionMethod, RECOMMENDED_BUFFER_SIZE, ZipArchive, ZipArchiveEntryWayfinder};

use super::{ArchiveError, Member, is_attributes, not_found};
use crate::files::{temporary_file, temporary_name};

/// A file of a zip archive, whose checksum is verified at its end.
pub struct ZipFile {
    contents: Box<dyn Read + Send>,
    sum: flate2::Crc,
    bytes: u64,
    crc32: u32,
    name: String,
}

/// An entry of the directory.
struct ZipEntry {
    name: String,
    method: CompressionMethod,
    is_encrypted: bool,
    bytes: u64,
    crc32: u32,
    place: ZipArchiveEntryWayfinder,
}

impl ZipFile {
    /// Finds the `wanted` file in `archive`.
    pub fn new(mut archive: impl Read, wanted: &Member) -> io::Result<ZipFile> {
        let mut copy = temporary_file().map_err(io::Error::other)?;
        io::copy(&mut archive, &mut copy).map_err(|error| named(error, &temporary_name()))?;
        let damaged = |error: rawzip::Error| ArchiveError::Damaged { found: error.to_string() };
        let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
        let archive = ZipArchive::from_file(copy, &mut buffer).map_err(damaged)?;
        let (mut found, mut names) = (Vec::new(), Vec::new());
        let mut entries = archive.entries(&mut buffer);
        while let Some(entry) = entries.next_entry().map_err(damaged)? {
            let name = String::from_utf8_lossy(entry.file_path().as_bytes()).into_owned();
            if entry.is_dir() || entry.uncompressed_size_hint() == 0 || is_attributes(&name) {
                continue;
            }
            names.push(name.clone());
            if wanted.is(&name) {
                let (method, is_encrypted) = (entry.compression_method(), entry.flags().is_encrypted());
                let (bytes, crc32, place) = (entry.uncompressed_size_hint(), entry.crc32(), entry.wayfinder());
                found.push(ZipEntry { name, method, is_encrypted, bytes, crc32, place });
            }
        }
        if let ([first, next, ..], Member::Only) = (&found[..], wanted) {
            return Err(ArchiveError::Several { first: first.name.clone(), next: next.name.clone() }.into());
        }
        let Some(ZipEntry { name, method, is_encrypted, bytes, crc32, place }) = found.into_iter().next() else {
            return Err(not_found(names).into());
        };
        let (start, end) = archive.get_entry(place).map_err(damaged)?.compressed_data_range();
        let mut file: File = archive.into_inner().into_inner();
        file.seek(SeekFrom::Start(start))?;
        let stored = BufReader::new(file.take(end - start));
        let contents: Box<dyn Read + Send> = match method {
            _ if is_encrypted => return Err(unsupported(name, "encrypted")),
            CompressionMethod::STORE => Box::new(stored),
            CompressionMethod::DEFLATE => Box::new(flate2::bufread::DeflateDecoder::new(stored)),
            other => return Err(unsupported(name, &format!("compressed by {other}"))),
        };
        Ok(ZipFile { contents, sum: flate2::Crc::new(), bytes, crc32, name })
    }
}

/// Adds the name of the copy to an error of writing it; an error of reading the archive already has a name.
fn named(error: io::Error, name: &str) -> io::Error {
    if error.get_ref().is_some() {
        return error;
    }
    io::Error::new(error.kind(), format!("{name}: {error}"))
}

fn unsupported(name: String, how: &str) -> io::Error {
    ArchiveError::Unsupported { name, how: how.to_owned() }.into()
}

impl Read for ZipFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let damaged = |what: String| ArchiveError::Damaged { found: format!("{} {what}", self.name) };
        let read = self.contents.read(buffer).map_err(|error| damaged(format!("({error})")))?;
        self.sum.update(&buffer[..read]);
        self.bytes = self.bytes.checked_sub(read as u64).ok_or_else(|| damaged("longer than it says".to_owned()))?;
        if read == 0 && !buffer.is_empty() && (self.bytes > 0 || self.sum.sum() != self.crc32) {
            return Err(damaged("with another checksum than it says".to_owned()).into());
        }
        Ok(read)
    }
}
