//! Jobs: complete descriptions of a run, except the trace, in words for people and programs.
//!
//! A job has a text form, words with values, and a JSON form, an object of the same words. The words are the options of
//! `flashwise simulate`. Words with their default are left out, so jobs of the same meaning are written alike; a row
//! names its job.
//!
//! ```
//! use flashwise_sim::job::Job;
//!
//! let job: Job = "size=10% policy=larc layout=in-place ram=5%".parse()?;
//! assert_eq!(job.to_string(), "policy=larc size=10% layout=in-place");
//!
//! let json = r#"{"policy": "larc", "size": "10%", "layout": "in-place", "epoch": 1000}"#;
//! let job: Job = serde_json::from_str(json).unwrap();
//! assert_eq!(job.to_string(), "policy=larc size=10% epoch=1000 layout=in-place");
//!
//! let error = |text: &str| text.parse::<Job>().unwrap_err().to_string();
//! let expected = "ram: found 'much', expected a size in bytes such as 10GiB, 512MiB or 4096";
//! assert_eq!(error("policy=larc size=10% ram=much"), expected);
//! let expected = "polcy: found an unknown word (did you mean 'policy'?); expected one of: policy, ";
//! assert!(error("polcy=larc").starts_with(expected));
//! # Ok::<(), flashwise_sim::job::JobError>(())
//! ```

mod canonical;
mod form;
mod inputs;
mod keys;
pub mod lines;
mod many;
mod meaning;
mod run;
mod words;

use flashwise_core::cache::settings::{SettingError, Settings};
use flashwise_core::options::OptionError;
use flashwise_core::quantity::{ByteSize, Share};
use flashwise_device::flash::{GcPlacement, Profile, Victim};
use flashwise_device::{ArrayError, TierModel};
use flashwise_trace::error::TraceError;

pub(crate) use form::words_of;
pub use inputs::{Input, Rows, run, run_accurate};
pub use keys::{Key, Stage};
pub use many::{Comparison, Many, SIZES, compared};
pub use meaning::{Meaning, Placement, Reads};
pub use run::{Runs, run_each};
pub use words::{Admission, LayoutName, LayoutRow, OnOff, SampleBy, Written, sample_share};

use crate::array::Arrivals;
use crate::cache_settings::{CacheError, Ram};
use crate::endurance::{Algorithm, EnduranceError};
use crate::experiment::ExperimentError;
use crate::simulate::Warmup;
use crate::size::{Size, SizeError};
use crate::wlfc::BucketError;

/// One run of `flashwise simulate`. `None` means that the word is absent and has its default; [`Job::meaning`]
/// interprets the words.
///
/// The fields are in writing order and have the names of their words.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)] // Each is the option of the same name.
pub struct Job {
    pub policy: Option<Algorithm>,
    pub size: Option<Size>,
    pub warmup: Option<Warmup>,
    pub epoch: Option<u64>,
    pub sample: Option<Share>,
    pub sample_by: Option<SampleBy>,
    pub sample_seed: Option<u64>,
    pub layout: Option<LayoutName>,
    pub ram: Option<Ram>,
    pub erase_unit: Option<ByteSize>,
    pub spare: Option<Share>,
    pub gc_victim: Option<Victim>,
    pub gc_placement: Option<GcPlacement>,
    pub gc_reserve: Option<u32>,
    pub wear_levelling: Option<u32>,
    pub trim: Option<OnOff>,
    pub device: Option<Written<Profile>>,
    pub drive_writes_per_day: Option<f64>,
    pub write_buffers: Option<u32>,
    pub wfue_alpha: Option<Share>,
    pub admission: Option<Admission>,
    pub cache_device: Option<Written<TierModel>>,
    pub storage_device: Option<Written<TierModel>>,
    pub storage_size: Option<ByteSize>,
    pub arrivals: Option<Arrivals>,
    pub bucket: Option<ByteSize>,
    pub journal_logs: Option<u32>,
    /// The settings of the whole cache and of caches of buckets, except those with a field.
    pub settings: Settings,
}

/// The reason why a job is invalid or cannot be run.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum JobError {
    #[error("{key}: found an unknown word{near}; expected one of: {expected}")]
    Unknown { key: String, near: String, expected: String },
    #[error("found '{found}', expected words such as policy=lru size=10%")]
    NotAWord { found: String },
    #[error("{key}: found it twice, expected it once")]
    Repeated { key: &'static str },
    #[error("{key}: {problem}")]
    Value { key: &'static str, problem: String },
    #[error("{key} is missing, expected {expected}")]
    Missing { key: &'static str, expected: &'static str },
    #[error("{0}")]
    Conflict(String),
    #[error("--{0}")]
    Setting(SettingError),
    #[error("{trace}: a warm-up of {warmup} accesses leaves none to count, expected fewer than {accesses}")]
    Warmup { trace: String, warmup: u64, accesses: usize },
    #[error(transparent)]
    Experiment(ExperimentError),
    #[error(transparent)]
    Endurance(#[from] EnduranceError),
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error(transparent)]
    Bucket(BucketError),
    #[error(transparent)]
    Array(#[from] ArrayError),
    #[error(transparent)]
    Option(#[from] OptionError),
    #[error(transparent)]
    Size(#[from] SizeError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("{trace}: {error}")]
    Of { trace: String, error: Box<JobError> },
}

impl JobError {
    /// Adds the name of the trace to an error, if there are several traces.
    fn of(self, trace: &str, several: bool) -> JobError {
        match self {
            error @ JobError::Trace(_) => error,
            error if several => JobError::Of { trace: trace.to_owned(), error: Box::new(error) },
            error => error,
        }
    }

    /// True if a sample has no accesses; a larger one may have some.
    pub fn is_empty_sample(&self) -> bool {
        matches!(self, JobError::Trace(TraceError::EmptySample { .. }))
    }
}

impl From<ExperimentError> for JobError {
    fn from(error: ExperimentError) -> JobError {
        match error {
            ExperimentError::Endurance(error) => JobError::Endurance(error),
            ExperimentError::Trace(error) | ExperimentError::Bucket(BucketError::Trace(error)) => {
                JobError::Trace(error)
            }
            ExperimentError::Bucket(error) => JobError::Bucket(error),
            ExperimentError::Of { trace, error } => JobError::Of { trace, error: Box::new(JobError::from(*error)) },
            error => JobError::Experiment(error),
        }
    }
}
