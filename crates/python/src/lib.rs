//! The Python package: what Python gives is converted, what the other crates do is called, and what comes of it is handed back. No logic.
//!
//! Results are tables, which pandas, polars and pyarrow take without a copy. Long work runs without Python's lock, tells its
//! progress to a callback, and ends where Ctrl-C is pressed.
#![cfg(feature = "extension")]
#![allow(clippy::needless_pass_by_value)] // pyo3 hands arguments over by value.

mod arrow;
mod errors;
mod hook;
mod jobs;
mod policy;
mod simulate;
mod sweep;
mod table;
mod tools;
mod trace;
mod work;

/// What `import flashwise` brings that is not written in Python.
#[pyo3::pymodule]
mod _flashwise {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::simulate::{policies, simulate};
    #[pymodule_export]
    use crate::sweep::{sweep_find, sweep_run, sweep_tasks};
    #[pymodule_export]
    use crate::table::Table;
    #[pymodule_export]
    use crate::tools::{convert, curve, generate, info, lifetime, pareto, reuse};
    #[pymodule_export]
    use crate::trace::{Trace, read_trace};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
