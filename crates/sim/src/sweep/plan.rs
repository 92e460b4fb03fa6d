//! Plans: jobs and the traces to run them over.

use std::path::{Path, PathBuf};

use flashwise_core::options::did_you_mean;
use flashwise_core::quantity::{ByteSize, Share};
use flashwise_device::toml::{Malformed, Toml, decimal};
use flashwise_trace::formats::FormatSpec;
use flashwise_trace::sources::{each, parts};
use serde_json::Value;
use toml::de::DeValue;

use super::objects::{fitting, is_object};
use super::origin::is_pattern;
use super::{Shard, Task};
use crate::endurance::Algorithm;
use crate::job::{Admission, Job, Key, Many};
use crate::sampling::parse_accuracy;
use crate::size::{Size, parse_block_size};

/// Jobs and the traces to run them over.
#[derive(Clone, Debug)]
pub struct SweepPlan {
    /// A task for each trace, in the order of their names.
    pub tasks: Vec<Task>,
}

/// The reason why a plan is invalid.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum PlanError {
    #[error("{path}")]
    Io { path: String, source: std::io::Error },
    #[error("{path}, line {line}: {message}")]
    Syntax { path: String, line: usize, message: String },
    #[error("{path}: {key}: found {found}, expected {expected}")]
    Value { path: String, key: String, found: String, expected: String },
    #[error("{path}: {key}: {problem}")]
    Refused { path: String, key: String, problem: String },
}

/// The keys of a plan, besides its runs.
const KEYS: [&str; 10] =
    ["traces", "out", "format", "block-size", "lenient", "per-volume", "accuracy", "cache", "cache-size", "run"];

impl SweepPlan {
    /// Reads the TOML file at `path`. Paths of traces and results are relative to the current directory.
    pub fn read(path: &Path) -> Result<SweepPlan, PlanError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| PlanError::Io { path: name.clone(), source })?;
        let toml = Toml::parse(&text).map_err(|Malformed { line, message }| PlanError::Syntax {
            path: name.clone(),
            line,
            message,
        })?;
        let keys = toml.root().into_iter().map(|entry| (entry.key.to_owned(), of_value(entry.value.get_ref())));
        SweepPlan::of(&name, &Value::Object(keys.collect()))
    }

    /// Parses `value`, an object with the keys of a plan; errors name it `path`.
    pub fn of(path: &str, value: &Value) -> Result<SweepPlan, PlanError> {
        let at = |key: &str| PlanKey { path, key: key.to_owned() };
        let Value::Object(keys) = value else { return Err(at("plan").found(value, "a table")) };
        if let Some(key) = keys.keys().find(|key| !KEYS.contains(&key.replace('_', "-").as_str())) {
            let near = did_you_mean(key, &KEYS);
            return Err(at(key).refused(format!("unknown key{near}; expected one of: {}", KEYS.join(", "))));
        }
        let get =
            |key: &str| keys.get(key).or_else(|| keys.get(&key.replace('-', "_"))).filter(|value| !value.is_null());
        let text = |key: &str| get(key).map(|value| at(key).text(value)).transpose();
        let format = text("format")?;
        if let Some(format) = &format {
            format.parse::<FormatSpec>().map_err(|error| at("format").refused(error))?;
        }
        let block_size = text("block-size")?.map(|size| parse_block_size(&size)).transpose();
        let block_size_bytes = block_size.map_err(|error| at("block-size").refused(error))?;
        let cache = text("cache")?.map(PathBuf::from);
        let cache_size = text("cache-size")?.map(|size| size.parse().map(ByteSize::bytes)).transpose();
        let cache_size_bytes = cache_size.map_err(|error| at("cache-size").refused(error))?;
        let flag = |key: &str| match get(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(at(key).found(other, "true or false")),
        };
        let (lenient, per_volume) = (flag("lenient")?, flag("per-volume")?);
        let accuracy = text("accuracy")?.map(|text| parse_accuracy(&text)).transpose();
        let accuracy = accuracy.map_err(|error| at("accuracy").refused(error))?;
        let out = text("out")?.ok_or_else(|| at("out").missing("the folder of the results"))?;
        let mut jobs: Vec<Job> = Vec::new();
        for run in list(get("run")) {
            for job in many(path, run)? {
                if !jobs.contains(&job) {
                    jobs.push(job);
                }
            }
        }
        if jobs.is_empty() {
            return Err(at("run").missing("a table [[run]] with words of jobs, such as policy = [\"lru\", \"larc\"]"));
        }
        let mut traces: Vec<PathBuf> = Vec::new();
        for named in list(get("traces")) {
            let place = at("traces");
            for trace in all(&place.text(named)?).map_err(|problem| place.refused(problem))? {
                if !traces.contains(&trace) {
                    traces.push(trace);
                }
            }
        }
        if let Some(job) = jobs.iter().find(|job| job.sample.is_some() && accuracy.is_some()) {
            return Err(
                at("accuracy").refused(format!("it takes its own samples; found {job} beside it, expected no sample"))
            );
        }
        if traces.is_empty() {
            return Err(at("traces").missing("paths, with * for any characters"));
        }
        let out = PathBuf::from(out);
        let task = |trace| Task {
            trace,
            out: out.clone(),
            format: format.clone(),
            block_size_bytes,
            lenient,
            per_volume,
            accuracy,
            cache: cache.clone(),
            cache_size_bytes,
            jobs: jobs.clone(),
        };
        Ok(SweepPlan { tasks: traces.into_iter().map(task).collect() })
    }

    /// Returns the tasks of a shard.
    pub fn shard(self, shard: Shard) -> SweepPlan {
        let of = |(number, task)| shard.has(number).then_some(task);
        SweepPlan { tasks: self.tasks.into_iter().enumerate().filter_map(of).collect() }
    }
}

/// Returns the traces that `name` stands for, each separately.
fn all(name: &str) -> Result<Vec<PathBuf>, String> {
    let objects = is_object(Path::new(name)) && is_pattern(name) && parts(name).count() == 1;
    if objects {
        fitting(name).map_err(|error| error.to_string())
    } else {
        each(name).map_err(|error| error.to_string())
    }
}

/// A position in a plan, for errors.
struct PlanKey<'a> {
    path: &'a str,
    key: String,
}

impl PlanKey<'_> {
    fn found(&self, found: &Value, expected: &str) -> PlanError {
        let (path, key, found) = (self.path.to_owned(), self.key.clone(), found.to_string());
        PlanError::Value { path, key, found, expected: expected.to_owned() }
    }

    fn missing(&self, expected: &str) -> PlanError {
        self.refused(format!("is missing, expected {expected}"))
    }

    fn refused(&self, problem: impl ToString) -> PlanError {
        PlanError::Refused { path: self.path.to_owned(), key: self.key.clone(), problem: problem.to_string() }
    }

    /// Returns a value as the text of an option.
    fn text(&self, value: &Value) -> Result<String, PlanError> {
        match value {
            Value::String(text) => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            Value::Bool(flag) => Ok(if *flag { "on" } else { "off" }.to_owned()),
            other => Err(self.found(other, "text or a number")),
        }
    }
}

/// Returns the items of a list; a single value is a list of one.
fn list(value: Option<&Value>) -> &[Value] {
    match value {
        None => &[],
        Some(Value::Array(items)) => items,
        Some(one) => std::slice::from_ref(one),
    }
}

/// Returns the jobs of a `[[run]]`: every combination of its lists.
fn many(path: &str, run: &Value) -> Result<Vec<Job>, PlanError> {
    let place = |key: &str| PlanKey { path, key: format!("run: {key}") };
    let Value::Object(words) = run else { return Err(place("table").found(run, "words of jobs")) };
    let mut bases = vec![Many::default()];
    for (word, values) in words {
        let place = place(word);
        let word = word.replace('_', "-");
        let texts = list(Some(values)).iter().map(|value| place.text(value)).collect::<Result<Vec<_>, _>>()?;
        if texts.is_empty() {
            return Err(place.found(values, "one value or more; omit the word for its default"));
        }
        let refused = |error: &dyn ToString| place.refused(error.to_string());
        for text in &texts {
            for many in &mut bases {
                match &word[..] {
                    "policy" => many.policies.push(text.parse::<Algorithm>().map_err(|error| refused(&error))?),
                    "size" => many.sizes.extend(Size::parse_list(text).map_err(|error| refused(&error))?),
                    "admission" => {
                        many.admissions.extend(Admission::parse_list(text).map_err(|error| refused(&error))?);
                    }
                    "spare" => {
                        many.spares.push(text.parse::<Share>().map_err(|error| refused(&error))?);
                    }
                    _ => {}
                }
            }
        }
        if !["policy", "size", "admission", "spare"].contains(&&word[..]) {
            // Errors of jobs name the word themselves.
            let whole = PlanKey { path, key: "run".to_owned() };
            let key = Key::find(&word).map_err(|error| whole.refused(error))?;
            let with = |many: &Many, text: &String| {
                let mut many = many.clone();
                key.read(&mut many.base, text).map_err(|error| whole.refused(error))?;
                Ok(many)
            };
            let all = bases.iter().flat_map(|many| texts.iter().map(move |text| with(many, text)));
            bases = all.collect::<Result<_, PlanError>>()?;
        }
    }
    let mut jobs = Vec::new();
    for many in bases {
        jobs.extend(many.jobs().map_err(|error| PlanKey { path, key: "run".to_owned() }.refused(error))?);
    }
    Ok(jobs)
}

/// Converts TOML to JSON; dates become text.
fn of_value(value: &DeValue) -> Value {
    // Numbers keep their spelling, which options parse.
    match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(number) => Value::String(decimal(number)),
        DeValue::Float(number) => Value::String(number.to_string()),
        DeValue::Boolean(flag) => Value::Bool(*flag),
        DeValue::Datetime(time) => Value::String(time.to_string()),
        DeValue::Array(items) => Value::Array(items.iter().map(|item| of_value(item.get_ref())).collect()),
        DeValue::Table(table) => Value::Object(
            table.iter().map(|(key, value)| (key.get_ref().to_string(), of_value(value.get_ref()))).collect(),
        ),
    }
}
