//! Writes the requests of a trace as MSR-Cambridge CSV, which flashwise and many other tools read.
//!
//! Source: SNIA IOTTA repository, MSR Cambridge Traces, README: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`, the
//! timestamp in units of 100 ns. Response times are not known and written as 0.

use std::io::Write;
use std::ops::ControlFlow;

use flashwise_core::access::Op;

use crate::error::TraceError;
use crate::normalise::Settings;
use crate::output::write_whole;
use crate::progress::Progress;
use crate::request::Request;
use crate::requests::Requests;

/// Writes records of MSR-Cambridge CSV.
pub struct CsvWriter<'a> {
    path: &'a str,
    out: &'a mut dyn Write,
}

impl<'a> CsvWriter<'a> {
    /// Begins with the header; errors call what is written `path`.
    pub fn new(path: &'a str, out: &'a mut dyn Write) -> Result<Self, TraceError> {
        let mut writer = CsvWriter { path, out };
        writer.line(format_args!("Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime"))?;
        Ok(writer)
    }

    /// Writes a request for the volume called `volume`. Names other than `host,disk` become hosts whose disk is 0, and commas
    /// and line ends in them `_`. Times before 0 become 0.
    pub fn write(&mut self, request: &Request, volume: &[u8]) -> Result<(), TraceError> {
        let Request { time_us, op, offset_bytes, length_bytes, .. } = *request;
        let ticks = time_us.max(0).saturating_mul(10);
        let op = if op == Op::Read { "Read" } else { "Write" };
        let volume = host_and_disk(&String::from_utf8_lossy(volume));
        self.line(format_args!("{ticks},{volume},{op},{offset_bytes},{length_bytes},0"))
    }

    fn line(&mut self, line: std::fmt::Arguments) -> Result<(), TraceError> {
        let written = self.out.write_fmt(line).and_then(|()| self.out.write_all(b"\n"));
        written.map_err(|source| TraceError::Io { path: self.path.to_owned(), source })
    }
}

fn host_and_disk(volume: &str) -> String {
    let separates = |letter: char| matches!(letter, ',' | '\n' | '\r');
    match volume.split_once(',') {
        Some((host, disk)) if !host.contains(separates) && !disk.contains(separates) => volume.to_owned(),
        _ => format!("{},0", volume.replace(separates, "_")),
    }
}

/// Writes the requests of the trace at `path` as CSV to `out` (`-` is standard output). Those of a normalised trace span whole
/// blocks. `progress` is told of the bytes read.
pub fn export(path: &str, out: &str, settings: &Settings, progress: &dyn Progress) -> Result<(), TraceError> {
    let requests = Requests::open(path, settings, progress)?;
    let block_size_bytes = requests.block_size_bytes(settings)?;
    write_whole(out, &[path.to_owned()], |file| {
        let mut csv = CsvWriter::new(out, file)?;
        requests.for_each_batch(block_size_bytes, |batch| {
            for request in &batch.requests {
                csv.write(request, &batch.volumes.names()[request.volume as usize])?;
            }
            Ok(ControlFlow::Continue(()))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_become_a_host_and_a_disk() {
        for (volume, written) in [("src1,0", "src1,0"), ("sda", "sda,0"), ("", ",0"), ("a,b,c", "a_b_c,0")] {
            assert_eq!(host_and_disk(volume), written);
        }
    }
}
