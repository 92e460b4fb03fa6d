//! Tar archives, read from front to back, so that they can be compressed. Headers are parsed by the `tar` crate. Its
//! archives cannot be used: they lend their files, and this reader outlives the search.
//!
//! Source: POSIX.1-2024, pax, "ustar Interchange Format" and "pax Header Block"; GNU tar's long names.

use std::io::{self, Read};

use super::{ArchiveError, Member, not_found};

/// The size of a tar header, and the alignment of contents, in bytes.
pub const HEADER_BYTES: usize = 512;

/// True if a tar archive begins with these bytes.
pub fn is_tar(bytes: &[u8]) -> bool {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return false };
    &header[257..262] == b"ustar" && has_checksum(header)
}

/// True if the checksum of a header matches. The bytes of the checksum itself count as blanks.
fn has_checksum(header: &[u8; HEADER_BYTES]) -> bool {
    let sum: u32 =
        header.iter().enumerate().map(|(at, &byte)| if (148..156).contains(&at) { 32 } else { byte.into() }).sum();
    ::tar::Header::from_byte_slice(header).cksum().is_ok_and(|said| said == sum)
}

/// A file of a tar archive. If its name was not given, further files after it are an error.
pub struct TarFile<R> {
    archive: R,
    name: String,
    /// The number of bytes of the file that are not read yet.
    left: u64,
    /// The number of bytes between the file and the next header.
    padding: u64,
    wanted: Member,
}

/// The header of a file in a tar archive.
struct TarEntry {
    name: String,
    bytes: u64,
    padding: u64,
    is_file: bool,
}

impl<R: Read> TarFile<R> {
    /// Finds the `wanted` file in `archive`.
    pub fn new(archive: R, wanted: Member) -> io::Result<TarFile<R>> {
        let mut member = TarFile { archive, name: String::new(), left: 0, padding: 0, wanted };
        let mut names = Vec::new();
        while let Some(entry) = member.next_file()? {
            if member.wanted.is(&entry.name) {
                (member.name, member.left, member.padding) = (entry.name, entry.bytes, entry.padding);
                return Ok(member);
            }
            member.skip(entry.bytes + entry.padding, &entry.name)?;
            names.push(entry.name);
        }
        Err(not_found(names).into())
    }

    /// Returns the next regular file that is not empty; none at the end.
    fn next_file(&mut self) -> io::Result<Option<TarEntry>> {
        while let Some(entry) = self.next_entry()? {
            if entry.is_file && entry.bytes > 0 && !super::is_attributes(&entry.name) {
                return Ok(Some(entry));
            }
            self.skip(entry.bytes + entry.padding, &entry.name)?;
        }
        Ok(None)
    }

    fn next_entry(&mut self) -> io::Result<Option<TarEntry>> {
        // Values from extended headers, which override those of the file's own header.
        let (mut long_name, mut long_bytes) = (None, None);
        loop {
            let Some(header) = self.next_header()? else { return Ok(None) };
            let header = ::tar::Header::from_byte_slice(&header);
            let damaged = |error: io::Error| ArchiveError::Damaged { found: error.to_string() };
            let kind = header.entry_type();
            let bytes = if kind.is_file() { long_bytes } else { None };
            let bytes = match bytes {
                Some(bytes) => bytes,
                None => header.entry_size().map_err(damaged)?,
            };
            let padding = bytes.wrapping_neg() % HEADER_BYTES as u64;
            let name = String::from_utf8_lossy(&header.path_bytes()).into_owned();
            if kind.is_gnu_longname() {
                let name = self.contents(bytes, padding, &name)?;
                let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
                long_name = Some(String::from_utf8_lossy(name).into_owned());
            } else if kind.is_pax_local_extensions() {
                let contents = self.contents(bytes, padding, &name)?;
                for extension in ::tar::PaxExtensions::new(&contents) {
                    let extension = extension.map_err(damaged)?;
                    match extension.key_bytes() {
                        b"path" => long_name = Some(String::from_utf8_lossy(extension.value_bytes()).into_owned()),
                        b"size" => long_bytes = extension.value().ok().and_then(|value| value.parse().ok()),
                        _ => {}
                    }
                }
            } else {
                let name = long_name.unwrap_or(name);
                if kind.is_gnu_sparse() {
                    return Err(ArchiveError::Unsupported { name, how: "with holes".to_owned() }.into());
                }
                return Ok(Some(TarEntry { is_file: kind.is_file(), name, bytes, padding }));
            }
        }
    }

    /// Returns the next header; none at the end, which zeroes mark.
    fn next_header(&mut self) -> io::Result<Option<[u8; HEADER_BYTES]>> {
        let mut header = [0; HEADER_BYTES];
        let mut len = 0;
        while len < header.len() {
            match self.archive.read(&mut header[len..])? {
                0 if len == 0 => return Ok(None),
                0 => return Err(ArchiveError::Cut { name: "a header".to_owned() }.into()),
                read => len += read,
            }
        }
        if header == [0; HEADER_BYTES] {
            return Ok(None);
        }
        if !has_checksum(&header) {
            let found = "a header with a wrong checksum".to_owned();
            return Err(ArchiveError::Damaged { found }.into());
        }
        Ok(Some(header))
    }

    fn contents(&mut self, bytes: u64, padding: u64, name: &str) -> io::Result<Vec<u8>> {
        const BYTES_MAX: u64 = 1 << 20;
        if bytes > BYTES_MAX {
            return Err(ArchiveError::Damaged { found: format!("a name of {bytes} bytes") }.into());
        }
        let mut contents = vec![0; bytes as usize];
        let cut = |error: io::Error| cut_within(error, name);
        self.archive.read_exact(&mut contents).map_err(cut)?;
        self.skip(padding, name)?;
        Ok(contents)
    }

    fn skip(&mut self, bytes: u64, name: &str) -> io::Result<()> {
        let skipped = io::copy(&mut self.archive.by_ref().take(bytes), &mut io::sink())?;
        if skipped == bytes { Ok(()) } else { Err(ArchiveError::Cut { name: name.to_owned() }.into()) }
    }
}

fn cut_within(error: io::Error, name: &str) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => ArchiveError::Cut { name: name.to_owned() }.into(),
        _ => error,
    }
}

impl<R: Read> Read for TarFile<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.left > 0 {
            let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
            let read = self.archive.read(&mut buffer[..room])?;
            if read == 0 {
                return Err(ArchiveError::Cut { name: self.name.clone() }.into());
            }
            self.left -= read as u64;
            return Ok(read);
        }
        if self.wanted == Member::Only {
            let (padding, first) = (std::mem::take(&mut self.padding), self.name.clone());
            self.skip(padding, &first)?;
            if let Some(next) = self.next_file()? {
                return Err(ArchiveError::Several { first, next: next.name }.into());
            }
            // Stops the search at the end.
            self.wanted = Member::Named(first);
        }
        Ok(0)
    }
}
