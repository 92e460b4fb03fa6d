//! Jobs from Python: keywords are the words of a job, with `_` for `-`.

use std::str::FromStr;

use flashwise_core::quantity::Share;
use flashwise_sim::endurance::Algorithm;
use flashwise_sim::job::{Admission, Job, JobError, Key, Many};
use flashwise_sim::sampling::parse_accuracy;
use flashwise_sim::size::Size;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString};

use crate::errors::exception;

/// Returns the items of a list, an array or another iterable, which must not be empty. A single value is a list of one, and `None` is empty.
pub fn items<'py>(name: &str, value: Option<&Bound<'py, PyAny>>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    match value.filter(|value| !value.is_none()) {
        None => Ok(Vec::new()),
        Some(list) if is_list(list)? => {
            let items = list.try_iter()?.collect::<PyResult<Vec<_>>>()?;
            if items.is_empty() {
                let expected = "expected one item or more, or None for the default";
                return Err(PyValueError::new_err(format!("{name}: found an empty list, {expected}")));
            }
            Ok(items)
        }
        Some(one) => Ok(vec![one.clone()]),
    }
}

/// True if `value` is an iterable of several values: a list, an array, a range, a column of a data frame.
pub fn is_list(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let is_one = value.is_instance_of::<PyString>() || value.is_instance_of::<PyDict>() || value.is_callable();
    Ok(!is_one && value.hasattr("__iter__")?)
}

/// Returns a value as on the command line: text, a number, or `on` and `off` for booleans.
pub fn text(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(if flag.is_true() { "on" } else { "off" }.to_owned());
    }
    let is_text = value.is_instance_of::<PyString>() || value.is_instance_of::<PyInt>();
    if is_text || value.is_instance_of::<PyFloat>() || value.hasattr("__fspath__")? {
        return Ok(value.str()?.to_str()?.to_owned());
    }
    // Numbers of other libraries, such as numpy's.
    if let Ok(whole) = value.call_method0("__index__") {
        return Ok(whole.str()?.to_str()?.to_owned());
    }
    if let Ok(number) = value.call_method0("__float__") {
        return Ok(number.str()?.to_str()?.to_owned());
    }
    let found = value.get_type().name()?;
    Err(PyTypeError::new_err(format!("{name}: found a value of the type {found}, expected text or a number")))
}

/// Parses each item from its text.
pub fn each<T: FromStr<Err: Into<Box<dyn std::error::Error>>>>(
    name: &str,
    values: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<T>> {
    let read = |item: Bound<'_, PyAny>| text(name, &item)?.parse().map_err(exception);
    items(name, values)?.into_iter().map(read).collect()
}

/// Returns the sizes of a list, with ranges expanded. A float is a share of the unique blocks: 0.1 is 10 %.
pub fn sizes(values: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<Size>> {
    let mut all = Vec::new();
    for item in items("sizes", values)? {
        let is_whole = item.is_instance_of::<PyString>() || item.hasattr("__index__")?;
        let text = match item.extract::<f64>() {
            Ok(of_one) if !is_whole => {
                let expected =
                    "expected a share above 0 and up to 1, a number of blocks as an int, or text such as '512MiB'";
                let share = Share::new(of_one).filter(|share| share.of_one() > 0.0);
                share.ok_or_else(|| PyValueError::new_err(format!("sizes: found {of_one}, {expected}")))?.to_string()
            }
            _ => text("sizes", &item)?,
        };
        all.extend(Size::parse_list(&text).map_err(exception)?);
    }
    Ok(all)
}

/// True if `policy` is a class, or a function that makes a policy, instead of a name.
pub fn is_own(policy: &Bound<'_, PyAny>) -> bool {
    policy.is_callable()
}

/// Returns many jobs from keywords, without policies written in Python.
pub fn many(
    policies: Option<&Bound<'_, PyAny>>,
    sizes: Option<&Bound<'_, PyAny>>,
    stages: Option<&Bound<'_, PyDict>>,
) -> PyResult<Many> {
    let mut many = Many { sizes: self::sizes(sizes)?, ..Many::default() };
    for policy in items("policies", policies)?.into_iter().filter(|policy| !is_own(policy)) {
        many.policies.push(text("policies", &policy)?.parse::<Algorithm>().map_err(exception)?);
    }
    for (name, value) in stages.into_iter().flatten() {
        let name = name.extract::<String>()?.replace('_', "-");
        if value.is_none() {
            continue;
        }
        match &name[..] {
            "admission" => {
                for rule in items(&name, Some(&value))? {
                    many.admissions.extend(Admission::parse_list(&text(&name, &rule)?).map_err(exception)?);
                }
            }
            "spare" => many.spares = each::<Share>(&name, Some(&value))?,
            "policy" | "size" => {
                return Err(PyTypeError::new_err(format!("found {name}, expected the lists policies and sizes")));
            }
            name => {
                let key = Key::find(name).map_err(|error| unexpected(name, error))?;
                key.read(&mut many.base, &text(name, &value)?).map_err(exception)?;
            }
        }
    }
    Ok(many)
}

/// The error for a keyword that is no word of a job.
fn unexpected(name: &str, error: JobError) -> PyErr {
    let JobError::Unknown { near, expected, .. } = error else { return exception(error) };
    let expected: Vec<&str> = expected.split(", ").filter(|word| !["policy", "size"].contains(word)).collect();
    let [name, near, expected] = [name, &near, &expected.join(", ")].map(|text| text.replace('-', "_"));
    PyTypeError::new_err(format!("unexpected keyword argument '{name}'{near}; expected one of {expected}"))
}

/// Returns the keyword of an option of the command line.
pub fn keyword(option: &str) -> String {
    match option.trim_start_matches('-') {
        "policy" => "policies".to_owned(),
        "size" => "sizes".to_owned(),
        other => other.replace('-', "_"),
    }
}

/// Parses the keyword `accuracy`. It searches for a sample, so no sample may be given.
pub fn accuracy(value: Option<&Bound<'_, PyAny>>, base: &Job) -> PyResult<Option<f64>> {
    let Some(value) = value.filter(|value| !value.is_none()) else { return Ok(None) };
    if base.sample.is_some() {
        return Err(PyTypeError::new_err("accuracy chooses the sample; remove sample"));
    }
    let refuse = |problem: String| PyValueError::new_err(format!("accuracy: {problem}"));
    Ok(Some(parse_accuracy(&text("accuracy", value)?).map_err(refuse)?))
}

/// Parses listed jobs: text or dictionaries.
pub fn listed(jobs: &Bound<'_, PyAny>) -> PyResult<Vec<Job>> {
    let json = jobs.py().import("json")?;
    let mut all = Vec::new();
    for job in items("jobs", Some(jobs))? {
        all.push(match job.cast::<PyString>() {
            Ok(words) => words.to_str()?.parse::<Job>().map_err(exception)?,
            Err(_) => {
                let written: String = json.call_method1("dumps", (&job,))?.extract()?;
                serde_json::from_str(&written).map_err(exception)?
            }
        });
    }
    Ok(all)
}
