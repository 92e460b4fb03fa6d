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
use crate::jobs::{is_list, items, text};
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

/// Name of a trace that was a data frame.
const FRAME: &str = "frame";
/// Name of a trace that was a list of blocks.
const BLOCKS: &str = "blocks";
/// Block size of numbers of blocks, unless another is given.
const BLOCK_SIZE_BYTES: u64 = 4096;

/// Returns one trace: a path, an open trace, or columns, which are read first.
pub fn input(trace: &Bound<'_, PyAny>, settings: &Settings) -> PyResult<Input> {
    if let Ok(open) = trace.cast::<Trace>() {
        return Ok(Input::Open(open.get().0.clone()));
    }
    if is_path(trace)? {
        return Ok(Input::File(trace.extract::<PathBuf>()?, settings.clone()));
    }
    match FrameColumns::of(trace, settings)? {
        Some(columns) => Ok(Input::Open(work::run(trace.py(), None, None, |watch| columns.read(None, watch))?)),
        None => {
            let found = trace.get_type().name()?;
            let expected = "a path, a trace of read_trace, a data frame (anything with __arrow_c_stream__), or a list or an array of block numbers";
            Err(PyTypeError::new_err(format!("trace: found a value of the type {found}, expected {expected}")))
        }
    }
}

fn is_path(trace: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(trace.is_instance_of::<PyString>() || trace.hasattr("__fspath__")?)
}

/// Returns one trace or a list of them. A list of numbers is one trace.
pub fn inputs(traces: &Bound<'_, PyAny>, settings: &Settings) -> PyResult<Vec<Input>> {
    if traces.is_instance_of::<PyList>() || traces.is_instance_of::<PyTuple>() {
        let items = items("trace", Some(traces))?;
        if !items[0].hasattr("__index__")? {
            return items.iter().map(|trace| input(trace, settings)).collect();
        }
    }
    Ok(vec![input(traces, settings)?])
}

/// A data frame, or a list of block numbers, as text.
struct FrameColumns {
    name: &'static str,
    text: Vec<u8>,
    settings: Settings,
}

impl FrameColumns {
    /// The text of a data frame or of an iterable of block numbers; `None` for anything else.
    fn of(trace: &Bound<'_, PyAny>, settings: &Settings) -> PyResult<Option<FrameColumns>> {
        let is_frame = || -> PyResult<bool> {
            // A column of a data frame is a stream too.
            let has_names = ["columns", "column_names", "schema"].iter().map(|name| trace.hasattr(name));
            Ok(has_names.collect::<PyResult<Vec<_>>>()?.contains(&true) || !is_list(trace)?)
        };
        if arrow::is_stream(trace) && is_frame()? {
            let (text, default) = frame(trace, settings)?;
            return Ok(Some(FrameColumns { name: FRAME, text, settings: with_default(settings, default)? }));
        }
        if !is_list(trace)? {
            return Ok(None);
        }
        let text = blocks(trace)?;
        Ok(Some(FrameColumns { name: BLOCKS, text, settings: with_default(settings, "blocks".to_owned())? }))
    }

    fn read(&self, name: Option<&str>, progress: &dyn Progress) -> Result<flashwise_trace::Trace, TraceError> {
        of_text(name.unwrap_or(self.name), &self.text, &self.settings, progress)
    }
}

/// Returns `settings` with a default for the format.
fn with_default(settings: &Settings, format: String) -> PyResult<Settings> {
    let format = settings.format.clone().map_or_else(|| format.parse::<FormatSpec>(), Ok).map_err(exception)?;
    Ok(Settings { format: Some(format), ..settings.clone() })
}

/// Converts block numbers to text, one a line.
fn blocks(numbers: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    use std::io::Write;
    let mut out = Vec::new();
    // Arrays of pyarrow have values of their own.
    let list = numbers.getattr_opt("to_pylist")?.map(|list| list.call0()).transpose()?;
    for (at, number) in list.as_ref().unwrap_or(numbers).try_iter()?.enumerate() {
        let number = number?;
        let block = number.extract::<u64>().map_err(|_| {
            let found = number.repr().map_or_else(|_| "?".to_owned(), |text| text.to_string());
            PyTypeError::new_err(format!("trace: found {found} at {at}, expected the number of a block, an int from 0"))
        })?;
        let _ = writeln!(out, "{block}");
    }
    Ok(out)
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

/// Opens a trace for many calls.
///
/// Parameters
/// ----------
/// trace : path, Trace, data frame, or list or array of int
///     Accesses. Integers, shape (accesses,), are the numbers of the blocks that are read.
///     A data frame has the columns of a CSV, or a column "block" with such numbers, and "op" and "time_us" if there are any.
/// format : str, optional
///     Format of the trace, such as "msr" or "csv:op=kind". By default it is recognised.
/// block_size : int or str, optional
///     Block size in bytes, a power of two from 512 to 1 MiB. The default is 4 KiB.
/// lenient : bool, default False
///     Skip malformed records instead of raising an error.
/// name : str, optional
///     Name in results, for a data frame, a list or an array. A file is named by its path.
/// progress : callable, optional
///     Called about twenty times a second with the bytes read and the block accesses run so far.
///
/// Returns
/// -------
/// Trace
///     Its length is the number of block accesses.
///
/// Examples
/// --------
/// >>> import flashwise
/// >>> trace = flashwise.read_trace([7, 8, 7], name="mine")
/// >>> trace.name, len(trace), trace.unique_blocks
/// ('mine', 3, 2)
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
    let is_columns = !trace.is_instance_of::<Trace>() && !is_path(trace)?;
    let columns = if is_columns { FrameColumns::of(trace, &settings)? } else { None };
    if let Some(columns) = columns {
        return work::run(py, None, progress, |watch| columns.read(name.as_deref(), watch)).map(Trace);
    }
    if name.is_some() {
        return Err(PyTypeError::new_err(
            "name: found it with a trace that has one, expected it with a data frame or a list",
        ));
    }
    let input = input(trace, &settings)?;
    work::run(py, None, progress, |watch| open(&input, watch)).map(Trace)
}

/// The bundled trace, compressed.
static EXAMPLE: &[u8] = include_bytes!("../../../traces/netsfs.csv.zst");

/// Opens the trace that is part of the package: three minutes of a network file server.
///
/// Returns
/// -------
/// Trace
///     1,126,563 accesses to 617,197 blocks of 4 KiB, under a synthetic load.
///
/// Examples
/// --------
/// >>> import flashwise
/// >>> flashwise.load_example()
/// <flashwise.Trace netsfs of 1126563 block accesses>
#[pyfunction]
pub fn load_example(py: Python<'_>) -> PyResult<Trace> {
    let settings = settings(None, None, false)?;
    work::run(py, None, None, |watch| of_text("netsfs", EXAMPLE, &settings, watch)).map(Trace)
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

/// Reads the trace in `text`.
fn of_text(
    name: &str,
    text: &[u8],
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<flashwise_trace::Trace, TraceError> {
    let input = input::Input::new(name, Box::new(text), progress)?;
    let io = |source| TraceError::Io { path: "temporary file".to_owned(), source };
    let file: File = normalised::normalise(input, settings, tempfile::tempfile().map_err(io)?)?;
    flashwise_trace::Trace::map(name, &file)
}

/// Converts the columns of a data frame to CSV, so they have the meaning of CSV columns. Returns it with its format: a column `block` has the
/// numbers of blocks, as in the columns of a [`Trace`].
fn frame(frame: &Bound<'_, PyAny>, settings: &Settings) -> PyResult<(Vec<u8>, String)> {
    let (schema, batches) = arrow::batches(frame)?;
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let mut format = "csv".to_owned();
    if names.contains(&"block") && !names.iter().any(|name| name.starts_with("offset")) {
        let unit = settings.block_size_bytes.unwrap_or(BLOCK_SIZE_BYTES);
        format = format!("csv:offset=block,offset-unit={unit}");
        if schema.field_with_name("op").is_ok_and(|op| op.data_type().is_integer()) {
            format += ",read=0,write=1";
        }
    }
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
    Ok((out, format))
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
