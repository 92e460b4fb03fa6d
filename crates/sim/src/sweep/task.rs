//! Tasks: one trace, all of its jobs, one file.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::SystemTime;

use arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use flashwise_trace::error::TraceError;
use flashwise_trace::normalised::Settings;
use flashwise_trace::output::{name_of, write_whole};
use flashwise_trace::progress::Progress;
use flashwise_trace::sources::files;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::job::lines::{VERSION, checksum, hexadecimal};
use crate::job::{Input, Job, JobError, run};
use crate::results;

/// One trace with all jobs that run over it. It can be sent to another machine, which has the trace and the folder at the same paths.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// The trace.
    pub trace: PathBuf,
    /// The folder of the results.
    pub out: PathBuf,
    /// The format of the trace, if it is not to be recognised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Length of a block, if it is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size_bytes: Option<u64>,
    /// Whether malformed records are passed over.
    #[serde(default)]
    pub lenient: bool,
    /// The jobs, in the order of their rows.
    pub jobs: Vec<Job>,
}

/// Why a task failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum SweepError {
    #[error(transparent)]
    Job(#[from] JobError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("{path}: the results make no Parquet file: {problem}")]
    Parquet { path: String, problem: String },
    #[error("{path}: {problem}")]
    NotResults { path: String, problem: String },
    #[error("{path}: changed while it was read")]
    Changed { path: String },
}

/// Where the results of a task are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The file.
    pub file: PathBuf,
    /// Whether it is there.
    pub is_done: bool,
    /// SHA-256 of the trace, in hexadecimal.
    pub trace_checksum: String,
}

impl Task {
    /// Looks for the results. Reads the trace, which may take a while; `progress` is told of its bytes.
    pub fn find(&self, progress: &dyn Progress) -> Result<Found, SweepError> {
        let checksum = checksum(std::slice::from_ref(&self.trace), progress)?;
        let mut of = Sha256::new();
        let reading = (&self.format, self.block_size_bytes, self.lenient);
        // The row of a trace has its name.
        of.update(format!("{VERSION}\n{checksum}\n{}\n{reading:?}\n", self.trace.display()));
        for job in &self.jobs {
            of.update(format!("{job}\n"));
        }
        let name = self.trace.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let stem = name.split('.').next().unwrap_or_default();
        let file = self.out.join(format!("{stem}-{}.parquet", &hexadecimal(&of.finalize())[..32]));
        Ok(Found { is_done: file.is_file(), file, trace_checksum: checksum })
    }

    /// Runs what is not there yet. `progress` is told of bytes that are read, and of block accesses.
    ///
    /// # Errors
    /// What cannot be read, run or written. No file is left then.
    pub fn run(&self, progress: &dyn Progress) -> Result<Found, SweepError> {
        let before = changed(&self.trace)?;
        let found = self.find(progress)?;
        if found.is_done {
            return Ok(found);
        }
        std::fs::create_dir_all(&self.out).map_err(|source| TraceError::Io { path: name_of(&self.out), source })?;
        let format = self.format.as_deref().map(str::parse).transpose().map_err(TraceError::from)?;
        let settings =
            Settings { format, block_size_bytes: self.block_size_bytes, lenient: self.lenient, filter: None };
        let rows = run(&[Input::File(self.trace.clone(), settings)], &self.jobs, progress)?.rows.concat();
        let refused = |problem: String| SweepError::Parquet { path: name_of(&found.file), problem };
        let batch = results::batch(&rows).map_err(|error| refused(error.to_string()))?;
        let batch = with(batch, &found.trace_checksum).map_err(|error| refused(error.to_string()))?;
        let contents = results::written(&batch).map_err(|error| refused(error.to_string()))?;
        if changed(&self.trace)? != before {
            return Err(SweepError::Changed { path: name_of(&self.trace) });
        }
        let io = |source| TraceError::Io { path: name_of(&found.file), source };
        write_whole(&found.file, &[], |file: &mut dyn Write| file.write_all(&contents).map_err(io))?;
        Ok(Found { is_done: true, ..found })
    }
}

/// The same columns, and where they come from.
fn with(batch: RecordBatch, trace_checksum: &str) -> Result<RecordBatch, arrow_schema::ArrowError> {
    let rows = batch.num_rows();
    let mut fields: Vec<Field> = batch.schema().fields().iter().map(|field| field.as_ref().clone()).collect();
    let mut arrays: Vec<ArrayRef> = batch.columns().to_vec();
    for (name, value) in [("trace_checksum", trace_checksum), ("version", VERSION)] {
        let array = StringArray::from(vec![value; rows]);
        fields.push(Field::new(name, DataType::Utf8, array.null_count() > 0));
        arrays.push(Arc::new(array));
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
}

/// When each of the files of the trace at `path` was changed last, and how long it is.
fn changed(path: &Path) -> Result<Vec<(SystemTime, u64)>, TraceError> {
    let of = |file: PathBuf| {
        let io = |source| TraceError::Io { path: name_of(&file), source };
        let about = std::fs::metadata(&file).map_err(io)?;
        Ok((about.modified().map_err(io)?, about.len()))
    };
    files(path)?.into_iter().map(of).collect()
}

/// A part of the tasks, for one machine of many: `2/10` is the second of ten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    number: usize,
    of: usize,
}

impl Shard {
    /// Whether it has the task of this number, from 0.
    pub fn has(self, task: usize) -> bool {
        task % self.of == self.number - 1
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let parts = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        let shard = parts.map(|(number, of)| Shard { number, of });
        let shard = shard.filter(|shard| (1..=shard.of).contains(&shard.number));
        shard.ok_or_else(|| {
            format!("found '{text}', expected the number of a shard and how many there are, such as 1/4")
        })
    }
}
