//! Errors as Python exceptions, with the messages of the command line: an error of the system is an `OSError`, any other a `ValueError`.

use std::error::Error;
use std::io::{self, ErrorKind};

use pyo3::PyErr;
use pyo3::exceptions::{
    PyFileExistsError, PyFileNotFoundError, PyIsADirectoryError, PyNotADirectoryError, PyOSError, PyPermissionError,
    PyValueError,
};

/// Returns the exception for `error`, with the messages of the error and its causes.
pub fn exception(error: impl Into<Box<dyn Error>>) -> PyErr {
    let error = error.into();
    let (mut message, mut cause) = (error.to_string(), error.source());
    let mut system = kind(&*error);
    while let Some(inner) = cause {
        // A transparent error has the message of its source.
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
