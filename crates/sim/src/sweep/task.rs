//! Tasks: one trace, all of its jobs, one file of results.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::SystemTime;

use arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use flashwise_trace::error::TraceError;
use flashwise_trace::normalised::Settings;
use flashwise_trace::output::name_of;
use flashwise_trace::progress::Progress;
use flashwise_trace::sources::files;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::SweepError;
use super::cache::Cache;
use super::folder::Folder;
use super::origin::Origin;
use crate::job::lines::{VERSION, hexadecimal};
use crate::job::{Input, Job, run, run_accurate};
use crate::results;

/// One trace with all of its jobs. It can be sent to another machine that has the trace and the folder at the same
/// paths or in S3.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// The trace.
    pub trace: PathBuf,
    /// The folder of the results.
    pub out: PathBuf,
    /// The format of the trace; by default detected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Block size, if given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size_bytes: Option<u64>,
    /// True if malformed records are skipped.
    #[serde(default)]
    pub lenient: bool,
    /// True if each volume of the trace is a separate trace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub per_volume: bool,
    /// The required accuracy of hit ratios, if samples are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// The folder for copies of traces from S3, if given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<PathBuf>,
    /// Its size, if given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_size_bytes: Option<u64>,
    /// The jobs, in the order of their rows.
    pub jobs: Vec<Job>,
}

/// The results of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskResults {
    /// The path; `None` for a trace in S3 that was never read, which has no results.
    pub file: Option<PathBuf>,
    /// True if the file exists.
    pub is_done: bool,
}

impl Task {
    /// Finds the results. Reads the trace, which may take a while, unless it is in S3; `progress` counts its bytes.
    pub fn find(&self, progress: &dyn Progress) -> Result<TaskResults, SweepError> {
        let results = Folder::open(&self.out)?;
        match self.origin()?.known(&results, progress)? {
            None => Ok(TaskResults { file: None, is_done: false }),
            Some(checksum) => {
                let name = self.name(&checksum);
                Ok(TaskResults { is_done: results.has(&name)?, file: Some(self.out.join(name)) })
            }
        }
    }

    /// Runs the task unless its results exist, and returns their path. `progress` counts bytes read and block accesses.
    ///
    /// # Errors
    /// The trace cannot be read, a job cannot be run, or the file cannot be written. Then there is no file.
    pub fn run(&self, progress: &dyn Progress) -> Result<PathBuf, SweepError> {
        let (results, origin) = (Folder::open(&self.out)?, self.origin()?);
        if !origin.is_here()
            && let Some(checksum) = origin.known(&results, progress)?
            && results.has(&self.name(&checksum))?
        {
            return Ok(self.out.join(self.name(&checksum)));
        }
        // A copy is of one state of its object, so only files can change meanwhile.
        let before = origin.is_here().then(|| changed(&self.trace)).transpose()?;
        let trace = origin.open(&results, progress)?;
        let name = self.name(&trace.checksum);
        let file = self.out.join(&name);
        if results.has(&name)? {
            return Ok(file);
        }
        let format = self.format.as_deref().map(str::parse).transpose().map_err(TraceError::from)?;
        let settings =
            Settings { format, block_size_bytes: self.block_size_bytes, lenient: self.lenient, filter: None };
        let of_file = if self.per_volume { Input::Volumes } else { Input::File };
        let inputs = [of_file(trace.path.clone(), settings)];
        let rows = match self.accuracy {
            None => run(&inputs, &self.jobs, progress),
            Some(accuracy) => run_accurate(&inputs, &self.jobs, accuracy, progress),
        };
        let mut rows = match rows {
            Err(source) if !origin.is_here() => {
                return Err(SweepError::Copied { path: name_of(&self.trace), source });
            }
            rows => rows?.rows.concat(),
        };
        let copied = name_of(&trace.path);
        for row in &mut rows {
            let volume = row.trace.strip_prefix(&copied).unwrap_or_default();
            row.trace = format!("{}{volume}", name_of(&self.trace));
        }
        let refused = |problem: String| SweepError::Parquet { path: name_of(&file), problem };
        let batch = results::batch(&rows).map_err(|error| refused(error.to_string()))?;
        let batch = with(batch, &trace.checksum).map_err(|error| refused(error.to_string()))?;
        let contents = results::written(&batch).map_err(|error| refused(error.to_string()))?;
        if before.is_some_and(|before| !changed(&self.trace).is_ok_and(|now| now == before)) {
            return Err(SweepError::Changed { path: name_of(&self.trace) });
        }
        results.write(&name, contents)?;
        Ok(file)
    }

    fn origin(&self) -> Result<Origin, SweepError> {
        Origin::of(&self.trace, Cache::new(self.cache.as_deref(), self.cache_size_bytes))
    }

    /// Returns the name of the results' file, derived from their origin.
    fn name(&self, checksum: &str) -> String {
        let mut of = Sha256::new();
        let reading = (&self.format, self.block_size_bytes, self.lenient);
        // Rows contain the name of the trace.
        of.update(format!("{VERSION}\n{checksum}\n{}\n{reading:?}\n", self.trace.display()));
        if self.per_volume {
            of.update("per-volume\n");
        }
        if let Some(accuracy) = self.accuracy {
            of.update(format!("accuracy {accuracy}\n"));
        }
        for job in &self.jobs {
            of.update(format!("{job}\n"));
        }
        let name = self.trace.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let stem = name.split('.').next().unwrap_or_default();
        format!("{stem}-{}.parquet", &hexadecimal(&of.finalize())[..32])
    }
}

/// Adds the columns of the origin.
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

/// Returns the time of the last change and the length of each file of the trace at `path`.
fn changed(path: &Path) -> Result<Vec<(SystemTime, u64)>, TraceError> {
    let of = |file: PathBuf| {
        let io = |source| TraceError::Io { path: name_of(&file), source };
        let about = std::fs::metadata(&file).map_err(io)?;
        Ok((about.modified().map_err(io)?, about.len()))
    };
    files(path)?.into_iter().map(of).collect()
}

/// One of N parts of the tasks, for one of N machines: `2/10` is the second of ten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    number: usize,
    of: usize,
}

impl Shard {
    /// True if it has the task of this index.
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

#[cfg(test)]
mod tests {
    use flashwise_trace::progress::Silent;
    use serde_json::json;

    use super::*;
    use crate::sweep::SweepPlan;
    use crate::sweep::rows::rows;

    /// Two volumes; the second repeats one block.
    fn trace(folder: &Path) -> String {
        let mut text = "time_us,op,volume,offset_bytes,length_bytes\n".to_owned();
        for number in 0..4000_u64 {
            let (volume, block) = if number % 4 == 3 { ("b", 7) } else { ("a", number * number % 4001) };
            text += &format!("{number},read,{volume},{},4096\n", block * 4096);
        }
        let path = folder.join("two.csv");
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    #[test]
    fn volumes_are_swept_separately_and_samples_reach_their_accuracy() {
        let folder = tempfile::tempdir().unwrap();
        let trace = trace(folder.path());
        let swept = |out: &str, more: serde_json::Value| {
            let out = folder.path().join(out);
            let mut plan =
                json!({"traces": &trace, "out": out.display().to_string(), "run": {"policy": "lru", "size": "10%"}});
            plan.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let tasks = SweepPlan::of("plan", &plan).unwrap().tasks;
            assert_eq!(tasks.len(), 1);
            // As sent to another process.
            let task: Task = serde_json::from_str(&serde_json::to_string(&tasks[0]).unwrap()).unwrap();
            assert!(task.run(&Silent).unwrap().exists() && task.find(&Silent).unwrap().is_done);
            (rows(&out).unwrap().rows, task.name("checksum"))
        };
        let (whole, name) = swept("whole", json!({}));
        let (each, of_volumes) = swept("each", json!({"per_volume": true}));
        let (accurate, of_accuracy) = swept("accurate", json!({"accuracy": "1%"}));
        assert!(name != of_volumes && name != of_accuracy && of_volumes != of_accuracy);
        let found = |rows: &[results::Brief]| {
            rows.iter().map(|row| (row.trace.clone(), row.accesses, (row.hit_ratio * 1e4) as u64)).collect::<Vec<_>>()
        };
        let inputs = [Input::Volumes((&trace).into(), Settings::default())];
        let alone = run(&inputs, &[Job::from_str("policy=lru size=10%").unwrap()], &Silent).unwrap().rows.concat();
        let alone: Vec<_> =
            alone.iter().map(|row| (row.trace.clone(), row.accesses, (row.hit_ratio * 1e4) as u64)).collect();
        assert_eq!(found(&each), alone);
        let [(a, 3000, _), (b, 1000, 9990)] = &alone[..] else { panic!("{alone:?}") };
        assert!(a.starts_with(&trace) && b.starts_with(&trace) && a != b, "{a} {b}");
        assert_eq!((whole.len(), &whole[0].trace), (1, &trace));
        assert!((accurate[0].hit_ratio - whole[0].hit_ratio).abs() < 0.02, "{accurate:?} {whole:?}");
        for (more, expected) in [
            (json!({"accuracy": "2"}), "accuracy: found '2', expected a share"),
            (json!({"accuracy": "1%", "run": {"policy": "lru", "sample": "1%"}}), "accuracy: it takes its own samples"),
            (json!({"per-volume": "yes"}), "per-volume: found \"yes\", expected true or false"),
        ] {
            let mut plan = json!({"traces": &trace, "out": "out", "run": {"policy": "lru", "size": "10%"}});
            plan.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let refused = SweepPlan::of("plan", &plan).unwrap_err().to_string();
            assert!(refused.contains(expected), "{refused}");
        }
    }
}
