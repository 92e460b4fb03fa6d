//! The Python package: converts arguments, calls the other crates, and converts results. It has no logic of its own.
//!
//! Results are tables, which pandas, polars and pyarrow read without a copy. Long work releases Python's lock, reports progress to a
//! callback, and stops on Ctrl-C.
#![cfg(feature = "extension")]
#![allow(clippy::needless_pass_by_value)] // pyo3 hands arguments over by value.

mod advise;
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

/// The part of `import flashwise` that is not written in Python.
#[pyo3::pymodule]
mod _flashwise {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::advise::advise;
    #[pymodule_export]
    use crate::simulate::{policies, simulate};
    #[pymodule_export]
    use crate::sweep::{sweep_find, sweep_run, sweep_tasks};
    #[pymodule_export]
    use crate::table::Table;
    #[pymodule_export]
    use crate::tools::{convert, curve, generate, info, lifetime, pareto, reuse};
    #[pymodule_export]
    use crate::trace::{Trace, load_example, read_trace};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
