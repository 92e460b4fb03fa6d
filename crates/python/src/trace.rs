//! Traces: files, data frames, and open traces.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_array::{Array, ArrayRef, PrimitiveArray, RecordBatch};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use flashwise_report::workload_charts;
use flashwise_sim::job::Input;
use flashwise_sim::size::parse_block_size;
use flashwise_trace::error::TraceError;
use flashwise_trace::formats::FormatSpec;
use flashwise_trace::input;
use flashwise_trace::normalised::{self, Settings};
use flashwise_trace::progress::Progress;
use flashwise_trace::tools::reuse::{Distance, ReuseDistances};
use flashwise_trace::tools::volumes;
use flashwise_trace::tools::workload::Workload;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList, PyString, PyTuple};

use crate::errors::exception;
use crate::jobs::{items, text};
use crate::{arrow, work};

/// An open trace: normalised, and mapped into memory. It can be passed to `simulate` and the other functions any number of times.
#[pyclass(frozen, module = "flashwise")]
#[derive(Debug)]
pub struct Trace(pub flashwise_trace::Trace);

/// Returns the settings for reading traces, as given by the options of the command line.
pub fn settings(format: Option<String>, block_size: Option<&Bound<'_, PyAny>>, lenient: bool) -> PyResult<Settings> {
    let format = format.map(|format| format.parse::<FormatSpec>()).transpose().map_err(exception)?;
    let block_size = block_size.filter(|size| !size.is_none()).map(|size| text("block_size", size)).transpose()?;
    let block_size_bytes = block_size.map(|size| parse_block_size(&size)).transpose().map_err(exception)?;
    Ok(Settings { format, block_size_bytes, lenient, filter: None })
}

/// Returns one trace: a path, an open trace, or a data frame, which is read first.
pub fn input(trace: &Bound<'_, PyAny>, settings: &Settings) -> PyResult<Input> {
    if let Ok(open) = trace.cast::<Trace>() {
        return Ok(Input::Open(open.get().0.clone()));
    }
    if trace.is_instance_of::<PyString>() || trace.hasattr("__fspath__")? {
        return Ok(Input::File(trace.extract::<PathBuf>()?, settings.clone()));
    }
    if arrow::is_stream(trace) {
        let text = frame(trace)?;
        let work = |watch: &work::Watch| of_text("frame", &text, settings, watch);
        return Ok(Input::Open(work::run(trace.py(), None, None, work)?));
    }
    let found = trace.get_type().name()?;
    let expected = "a path, a trace of read_trace, or a data frame (anything with __arrow_c_stream__)";
    Err(PyTypeError::new_err(format!("trace: found a value of the type {found}, expected {expected}")))
}

/// Returns one trace or a list of them.
pub fn inputs(traces: &Bound<'_, PyAny>, settings: &Settings) -> PyResult<Vec<Input>> {
    if traces.is_instance_of::<PyList>() || traces.is_instance_of::<PyTuple>() {
        return items("trace", Some(traces))?.iter().map(|trace| input(trace, settings)).collect();
    }
    Ok(vec![input(traces, settings)?])
}

/// Splits `inputs` into volumes, each a separate trace. If `later`, files are read when they are run.
pub fn volumes(inputs: &[Input], later: bool, progress: &dyn Progress) -> Result<Vec<Input>, TraceError> {
    let mut each = Vec::new();
    for input in inputs {
        match input {
            Input::File(path, settings) if later => each.push(Input::Volumes(path.clone(), settings.clone())),
            input => each.extend(volumes::each(&open(input, progress)?, progress).into_iter().map(Input::Open)),
        }
    }
    Ok(each)
}

/// Opens the trace.
pub fn open(input: &Input, progress: &dyn Progress) -> Result<flashwise_trace::Trace, TraceError> {
    match input {
        Input::File(path, settings) | Input::Volumes(path, settings) => normalised::open(path, settings, progress),
        Input::Open(trace) => Ok(trace.clone()),
    }
}

/// Reads a trace of any format, or a data frame whose columns have the names of a CSV's (`time_us`, `op`, `offset_bytes`, `length_bytes`,
/// `volume`, ...).
#[pyfunction]
#[pyo3(signature = (trace, *, format=None, block_size=None, lenient=false, name=None, progress=None))]
pub fn read_trace(
    py: Python<'_>,
    trace: &Bound<'_, PyAny>,
    format: Option<String>,
    block_size: Option<&Bound<'_, PyAny>>,
    lenient: bool,
    name: Option<String>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Trace> {
    let settings = settings(format, block_size, lenient)?;
    if !trace.is_instance_of::<Trace>() && arrow::is_stream(trace) {
        let text = frame(trace)?;
        let name = name.unwrap_or_else(|| "frame".to_owned());
        return work::run(py, None, progress, |watch| of_text(&name, &text, &settings, watch)).map(Trace);
    }
    if name.is_some() {
        return Err(PyTypeError::new_err("name: found it with a trace that has one, expected it with a data frame"));
    }
    let input = input(trace, &settings)?;
    work::run(py, None, progress, |watch| open(&input, watch)).map(Trace)
}

#[pymethods]
impl Trace {
    /// Its name in results: its path as given.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// Block size.
    #[getter]
    fn block_size_bytes(&self) -> u64 {
        self.0.block_size_bytes()
    }

    /// Number of unique blocks.
    #[getter]
    fn unique_blocks(&self) -> usize {
        self.0.unique_blocks()
    }

    /// Number of block accesses.
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __repr__(&self) -> String {
        format!("<flashwise.Trace {} of {} block accesses>", self.0.name(), self.0.len())
    }

    /// Describes the trace: see `info`.
    fn info<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        // Called by name, because its module depends on this one.
        let info = slf.py().import("flashwise._flashwise")?.getattr("info")?;
        Ok(info.call1((slf,))?.cast_into::<PyDict>()?)
    }

    /// Returns the charts of the workload, each with its title.
    fn charts(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        let charts = |watch: &work::Watch| -> Result<_, TraceError> {
            let reuse = ReuseDistances::of(&self.0, Distance::Unique, watch);
            Ok(workload_charts(&Workload::of(&self.0, watch), &reuse, self.0.block_size_bytes()))
        };
        work::run(py, None, None, charts)
    }

    /// The block accesses in columns, without a copy: time_us, op (0 reads, 1 writes), block (a number from 0), request, request_blocks.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches = self.0.batches().map(columns).collect::<Result<Vec<_>, _>>().map_err(exception)?;
        arrow::stream(py, schema(), batches)
    }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("time_us", DataType::Int64, false),
        Field::new("op", DataType::UInt8, false),
        Field::new("block", DataType::Int32, false),
        Field::new("request", DataType::UInt64, false),
        Field::new("request_blocks", DataType::UInt32, false),
    ]))
}

fn columns(batch: normalised::trace::Accesses) -> Result<RecordBatch, arrow_schema::ArrowError> {
    let arrays = vec![
        array::<Int64Type>(batch.time_us.buffer().bytes().clone()),
        array::<UInt8Type>(batch.op.buffer().bytes().clone()),
        array::<Int32Type>(batch.block.buffer().bytes().clone()),
        array::<UInt64Type>(batch.request.buffer().bytes().clone()),
        array::<UInt32Type>(batch.request_blocks.buffer().bytes().clone()),
    ];
    RecordBatch::try_new(schema(), arrays)
}

/// Returns a column of the aligned values in `bytes`, which are shared.
fn array<T: ArrowPrimitiveType>(bytes: impl Into<Buffer>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(bytes.into()), None))
}

/// Reads the trace in the CSV `text`.
fn of_text(
    name: &str,
    text: &[u8],
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<flashwise_trace::Trace, TraceError> {
    let input = input::Input::new(name, Box::new(text), progress)?;
    let csv = "csv".parse::<FormatSpec>()?;
    let settings = Settings { format: Some(settings.format.clone().unwrap_or(csv)), ..settings.clone() };
    let io = |source| TraceError::Io { path: "temporary file".to_owned(), source };
    let file: File = normalised::normalise(input, &settings, tempfile::tempfile().map_err(io)?)?;
    flashwise_trace::Trace::map(name, &file)
}

/// Converts the columns of a data frame to CSV, so they have the meaning of CSV columns.
fn frame(frame: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let (schema, batches) = arrow::batches(frame)?;
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let mut out = names.join(",").into_bytes();
    for batch in &batches {
        let columns = batch.columns().iter().zip(&names).map(|(column, name)| cells(name, column));
        let columns = columns.collect::<PyResult<Vec<_>>>()?;
        for row in 0..batch.num_rows() {
            for (number, column) in columns.iter().enumerate() {
                out.push(if number == 0 { b'\n' } else { b',' });
                column(row, &mut out);
            }
        }
    }
    out.push(b'\n');
    Ok(out)
}

type Cells<'a> = Box<dyn Fn(usize, &mut Vec<u8>) + 'a>;

/// Returns a writer for the cells of a column by row; missing values are empty.
fn cells<'a>(name: &str, column: &'a ArrayRef) -> PyResult<Cells<'a>> {
    use std::io::Write;
    macro_rules! numbers {
        ($type:ty) => {{
            let values = column.as_primitive::<$type>();
            Box::new(move |row: usize, out: &mut Vec<u8>| {
                if values.is_valid(row) {
                    let _ = write!(out, "{}", values.value(row));
                }
            })
        }};
    }
    macro_rules! texts {
        ($values:expr) => {{
            let values = $values;
            Box::new(move |row: usize, out: &mut Vec<u8>| {
                if values.is_valid(row) {
                    out.extend_from_slice(values.value(row).as_bytes());
                }
            })
        }};
    }
    Ok(match column.data_type() {
        DataType::Int8 => numbers!(Int8Type),
        DataType::Int16 => numbers!(Int16Type),
        DataType::Int32 => numbers!(Int32Type),
        DataType::Int64 => numbers!(Int64Type),
        DataType::UInt8 => numbers!(UInt8Type),
        DataType::UInt16 => numbers!(UInt16Type),
        DataType::UInt32 => numbers!(UInt32Type),
        DataType::UInt64 => numbers!(UInt64Type),
        DataType::Float32 => numbers!(Float32Type),
        DataType::Float64 => numbers!(Float64Type),
        DataType::Timestamp(TimeUnit::Second, _) => numbers!(TimestampSecondType),
        DataType::Timestamp(TimeUnit::Millisecond, _) => numbers!(TimestampMillisecondType),
        DataType::Timestamp(TimeUnit::Microsecond, _) => numbers!(TimestampMicrosecondType),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => numbers!(TimestampNanosecondType),
        DataType::Utf8 => texts!(column.as_string::<i32>()),
        DataType::LargeUtf8 => texts!(column.as_string::<i64>()),
        DataType::Utf8View => texts!(column.as_string_view()),
        DataType::Dictionary(..) => {
            let dictionary = column.as_any_dictionary();
            let (keys, values) = (dictionary.normalized_keys(), cells(name, dictionary.values())?);
            Box::new(move |row: usize, out: &mut Vec<u8>| {
                if column.is_valid(row) {
                    values(keys[row], out);
                }
            })
        }
        other => {
            let expected = "numbers, times or text";
            return Err(PyTypeError::new_err(format!("column {name}: found the type {other}, expected {expected}")));
        }
    })
}
