//! Calls the methods of a policy written in Python, one for each access, without the tuple of arguments that the stable interface
//! otherwise creates.
#![allow(unsafe_code)] // A foreign interface: each use says why it holds.

use pyo3::ffi;
use pyo3::prelude::*;

/// Calls `method` with `block`.
#[inline]
pub fn call<'py>(py: Python<'py>, method: &Py<PyAny>, block: &Py<PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let end = std::ptr::null_mut::<ffi::PyObject>();
    // SAFETY: both are borrowed and so alive, and a null ends the arguments. The result is a new reference, or null after an exception.
    unsafe {
        let returned = ffi::PyObject_CallFunctionObjArgs(method.as_ptr(), block.as_ptr(), end);
        Bound::from_owned_ptr_or_err(py, returned)
    }
}
