//! Jobs from Python: keywords are the words of a job, with `_` for `-`.

use std::str::FromStr;

use flashwise_core::quantity::Share;
use flashwise_sim::endurance::Algorithm;
use flashwise_sim::job::{Admission, Job, Key, Many};
use flashwise_sim::sampling::parse_accuracy;
use flashwise_sim::size::Size;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::errors::exception;

/// Returns the items of a non-empty list or tuple; a single value is a list of one, and `None` is empty.
pub fn items<'py>(name: &str, value: Option<&Bound<'py, PyAny>>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    match value.filter(|value| !value.is_none()) {
        None => Ok(Vec::new()),
        Some(list) if list.is_instance_of::<PyList>() || list.is_instance_of::<PyTuple>() => {
            if list.is_empty()? {
                let expected = "expected one item or more, or None for the default";
                return Err(PyValueError::new_err(format!("{name}: found an empty list, {expected}")));
            }
            list.try_iter()?.collect()
        }
        Some(one) => Ok(vec![one.clone()]),
    }
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

/// Returns the sizes of a list, with ranges expanded.
pub fn sizes(values: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<Size>> {
    let mut all = Vec::new();
    for item in items("sizes", values)? {
        all.extend(Size::parse_list(&text("sizes", &item)?).map_err(exception)?);
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
            "over-provision" => many.over_provisions = each::<Share>(&name, Some(&value))?,
            "policy" | "size" => {
                return Err(PyTypeError::new_err(format!("found {name}, expected the lists policies and sizes")));
            }
            name => {
                let key = Key::find(name).map_err(exception)?;
                key.read(&mut many.base, &text(name, &value)?).map_err(exception)?;
            }
        }
    }
    Ok(many)
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
