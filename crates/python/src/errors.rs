//! Errors as Python exceptions, with the words of the command line: what the system refuses is an `OSError`, all else a `ValueError`.

use std::error::Error;
use std::io::{self, ErrorKind};

use pyo3::PyErr;
use pyo3::exceptions::{
    PyFileExistsError, PyFileNotFoundError, PyIsADirectoryError, PyNotADirectoryError, PyOSError, PyPermissionError,
    PyValueError,
};

/// The exception for `error`; its message is that of the error and of all that caused it.
pub fn exception(error: impl Into<Box<dyn Error>>) -> PyErr {
    let error = error.into();
    let (mut message, mut cause) = (error.to_string(), error.source());
    let mut system = kind(&*error);
    while let Some(inner) = cause {
        // A transparent error says what its source says.
        let said = inner.to_string();
        if !message.ends_with(&said) {
            message = format!("{message}: {said}");
        }
        system = system.or(kind(inner));
        cause = inner.source();
    }
    match system {
        None => PyValueError::new_err(message),
        Some(ErrorKind::NotFound) => PyFileNotFoundError::new_err(message),
        Some(ErrorKind::AlreadyExists) => PyFileExistsError::new_err(message),
        Some(ErrorKind::PermissionDenied) => PyPermissionError::new_err(message),
        Some(ErrorKind::IsADirectory) => PyIsADirectoryError::new_err(message),
        Some(ErrorKind::NotADirectory) => PyNotADirectoryError::new_err(message),
        Some(_) => PyOSError::new_err(message),
    }
}

fn kind(error: &(dyn Error + 'static)) -> Option<ErrorKind> {
    error.downcast_ref::<io::Error>().map(io::Error::kind)
}
