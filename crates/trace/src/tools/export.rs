//! Writes the requests of a trace as CSV, with a header that suffices for flashwise and other tools.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

use flashwise_core::access::Op;

use crate::error::TraceError;
use crate::normalised::Settings;
use crate::output::{output_name, write_whole};
use crate::progress::Progress;
use crate::request::Request;
use crate::requests::Requests;

const HEADER: [&str; 5] = ["time_us", "volume", "op", "offset_bytes", "length_bytes"];

/// Writes requests as CSV.
pub struct CsvWriter<'a> {
    path: &'a str,
    out: csv::Writer<&'a mut dyn Write>,
}

impl<'a> CsvWriter<'a> {
    /// Creates a writer and writes the header; errors call the output `path`.
    pub fn new(path: &'a str, out: &'a mut dyn Write) -> Result<Self, TraceError> {
        let mut writer = CsvWriter { path, out: csv::Writer::from_writer(out) };
        writer.record(HEADER.map(str::as_bytes))?;
        Ok(writer)
    }

    /// Writes a request for the volume named `volume`.
    pub fn write(&mut self, request: &Request, volume: &[u8]) -> Result<(), TraceError> {
        let op: &[u8] = if request.op == Op::Read { b"read" } else { b"write" };
        let [time_us, offset, length] =
            [request.time_us.to_string(), request.offset_bytes.to_string(), request.length_bytes.to_string()];
        self.record([time_us.as_bytes(), volume, op, offset.as_bytes(), length.as_bytes()])
    }

    /// Flushes the output.
    pub fn finish(mut self) -> Result<(), TraceError> {
        self.out.flush().map_err(|source| TraceError::Io { path: self.path.to_owned(), source })
    }

    fn record(&mut self, fields: [&[u8]; 5]) -> Result<(), TraceError> {
        let written = self.out.write_record(fields);
        written.map_err(|error| {
            let path = self.path.to_owned();
            let source = match error.into_kind() {
                csv::ErrorKind::Io(source) => source,
                other => std::io::Error::other(format!("{other:?}")),
            };
            TraceError::Io { path, source }
        })
    }
}

/// Writes the requests of the trace at `path` as CSV to `out` (`-` is standard output). Those of a normalised trace
/// span whole blocks. `progress` receives the number of bytes read.
pub fn export(
    path: impl AsRef<Path>,
    out: impl AsRef<Path>,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<(), TraceError> {
    let (path, out) = (path.as_ref(), out.as_ref());
    let requests = Requests::open(path, settings, progress)?;
    let block_size_bytes = requests.block_size_bytes(settings)?;
    write_whole(out, &[path.to_owned()], |file| {
        let name = output_name(out);
        let mut csv = CsvWriter::new(&name, file)?;
        requests.for_each_batch(block_size_bytes, &mut |batch| {
            for request in &batch.requests {
                csv.write(request, &batch.volumes.names()[request.volume as usize])?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        csv.finish()
    })
}
