//! Tables of results.

use std::io::Write;
use std::path::PathBuf;

use arrow_array::RecordBatch;
use flashwise_report::hit_ratio_chart;
use flashwise_sim::columns::Column;
use flashwise_sim::curve::{self, CurvePoint};
use flashwise_sim::results::{self, ResultRow};
use flashwise_trace::error::TraceError;
use flashwise_trace::output::write_whole;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList};

use crate::arrow;
use crate::errors::exception;

/// Results in columns, as described in `docs/figures.md`.
///
/// pandas, polars and pyarrow read a table without a copy. `table["hit_ratio"]` is a column as a list.
///
/// Examples
/// --------
/// >>> import flashwise
/// >>> table = flashwise.simulate([1, 2, 1, 3, 1, 2], ["lru", "fifo"], [1, 2])
/// >>> len(table), table["policy"]
/// (4, ['lru', 'lru', 'fifo', 'fifo'])
///
/// >>> table.to_pandas()[["policy", "size", "hits"]].shape
/// (4, 3)
#[pyclass(frozen, module = "flashwise")]
#[derive(Debug)]
pub struct Table {
    contents: Contents,
    batch: RecordBatch,
}

#[derive(Debug)]
enum Contents {
    Rows(Vec<ResultRow>),
    Points(Vec<CurvePoint>),
}

impl Table {
    /// The rows of a simulation.
    pub fn of_rows(rows: Vec<ResultRow>) -> PyResult<Table> {
        Ok(Table { batch: results::batch(&rows).map_err(exception)?, contents: Contents::Rows(rows) })
    }

    /// The points of curves.
    pub fn of_points(points: Vec<CurvePoint>) -> PyResult<Table> {
        let columns: &'static [Column<CurvePoint>] = CurvePoint::COLUMNS;
        Ok(Table { batch: results::batch_of(columns, &points).map_err(exception)?, contents: Contents::Points(points) })
    }

    fn rows(&self, py: Python<'_>) -> PyResult<Vec<Py<PyDict>>> {
        self.to_dicts(py)?.extract()
    }
}

#[pymethods]
impl Table {
    /// The columns, for pandas, polars, pyarrow and others.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface allows this: a caller who requests another schema converts.
        let _ = requested_schema;
        arrow::stream(py, self.batch.schema(), vec![self.batch.clone()])
    }

    /// The types of the columns.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::schema(py, &self.batch.schema())
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    fn __repr__(&self) -> String {
        format!("<flashwise.Table of {} rows and {} columns>", self.batch.num_rows(), self.batch.num_columns())
    }

    fn _repr_html_<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("flashwise._notebook")?.call_method1("table", (self.to_csv()?,))
    }

    /// Names of the columns, in order: a list of str, shape (columns,).
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.batch.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Returns a column as a list with a value for each row, `None` where a row lacks the figure.
    fn __getitem__<'py>(&self, py: Python<'py>, column: &str) -> PyResult<Bound<'py, PyList>> {
        if self.batch.schema().field_with_name(column).is_err() {
            return Err(PyKeyError::new_err(format!("found no column '{column}'; Table.columns has the names")));
        }
        let values = self.rows(py)?.into_iter().map(|row| row.bind(py).get_item(column));
        PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)
    }

    /// Returns the rows as a data frame of pandas. Needs pandas and pyarrow.
    ///
    /// Parameters
    /// ----------
    /// epochs : bool, default False
    ///     Return a row for each epoch of each row, instead of the rows. They exist after `simulate(..., epoch=N)`.
    ///
    /// Returns
    /// -------
    /// pandas.DataFrame
    ///     A tidy frame, shape (rows, columns): a row for each result, a column for each figure, and no lists in cells.
    #[pyo3(signature = (*, epochs=false))]
    fn to_pandas<'py>(slf: &Bound<'py, Self>, epochs: bool) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("flashwise._frames")?.call_method1("to_pandas", (slf, epochs))
    }

    /// Returns the rows as a data frame of polars. Needs polars.
    ///
    /// Parameters
    /// ----------
    /// epochs : bool, default False
    ///     Return a row for each epoch of each row, instead of the rows. They exist after `simulate(..., epoch=N)`.
    ///
    /// Returns
    /// -------
    /// polars.DataFrame
    ///     A tidy frame, shape (rows, columns): a row for each result, a column for each figure, and no lists in cells.
    #[pyo3(signature = (*, epochs=false))]
    fn to_polars<'py>(slf: &Bound<'py, Self>, epochs: bool) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("flashwise._frames")?.call_method1("to_polars", (slf, epochs))
    }

    /// Returns the rows as CSV with a header, as on the command line, without epochs.
    fn to_csv(&self) -> PyResult<String> {
        let mut out = Vec::new();
        match &self.contents {
            Contents::Rows(rows) => results::write_csv(rows, &mut out),
            Contents::Points(points) => curve::write_csv(points, &mut out),
        }
        .map_err(exception)?;
        String::from_utf8(out).map_err(exception)
    }

    /// Returns the rows as a JSON array, as on the command line.
    fn to_json(&self) -> PyResult<String> {
        let json = match &self.contents {
            Contents::Rows(rows) => serde_json::to_string_pretty(rows),
            Contents::Points(points) => serde_json::to_string_pretty(points),
        };
        Ok(json.map_err(exception)? + "\n")
    }

    /// Returns the rows as dictionaries, without figures that a row lacks.
    fn to_dicts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        Ok(py.import("json")?.call_method1("loads", (self.to_json()?,))?.cast_into::<PyList>()?)
    }

    /// Writes the columns to a Parquet file.
    fn write_parquet(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| {
            let contents = results::written(&self.batch).map_err(exception)?;
            let write = |file: &mut dyn Write| -> Result<(), TraceError> {
                let io = |source| TraceError::Io { path: path.display().to_string(), source };
                file.write_all(&contents).map_err(io)
            };
            write_whole(&path, &[], write).map_err(exception)
        })
    }

    /// Returns, for each trace, its name and its chart of hit ratios by cache size, as SVG.
    fn charts(&self) -> Vec<(String, String)> {
        let rows = match &self.contents {
            Contents::Rows(rows) => rows.clone(),
            Contents::Points(points) => points.iter().map(row).collect(),
        };
        let mut charts: Vec<(String, String)> = Vec::new();
        for row in &rows {
            if charts.iter().all(|(trace, _)| *trace != row.trace) {
                let of_trace: Vec<ResultRow> = rows.iter().filter(|other| other.trace == row.trace).cloned().collect();
                charts.push((row.trace.clone(), hit_ratio_chart(&of_trace)));
            }
        }
        charts
    }
}

/// Returns the part of a point that a chart of hit ratios needs.
fn row(point: &CurvePoint) -> ResultRow {
    ResultRow {
        trace: point.trace.clone(),
        policy: point.policy[..].into(),
        size: point.size.clone(),
        capacity_blocks: point.capacity_blocks,
        block_size_bytes: point.capacity_bytes / point.capacity_blocks.max(1),
        hit_ratio: point.hit_ratio,
        ..ResultRow::default()
    }
}
