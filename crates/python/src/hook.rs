//! Calls of the methods of a policy that is written in Python, of which there is one for each access: without the tuple of arguments that the
//! stable interface otherwise makes for each.
#![allow(unsafe_code)] // A foreign interface: each use says why it holds.

use pyo3::ffi;
use pyo3::prelude::*;

/// What `method` returns of `block`.
#[inline]
pub fn call<'py>(py: Python<'py>, method: &Py<PyAny>, block: &Py<PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let end = std::ptr::null_mut::<ffi::PyObject>();
    // SAFETY: both are alive as long as they are borrowed, and a null ends the arguments. What is returned is a new reference, or null where
    // something was raised.
    unsafe {
        let returned = ffi::PyObject_CallFunctionObjArgs(method.as_ptr(), block.as_ptr(), end);
        Bound::from_owned_ptr_or_err(py, returned)
    }
}
