//! Errors of the library as Python's exceptions. The classes are written in Python (`shardfs/_errors.py`).

use std::path::Path;

use pyo3::{prelude::*, sync::PyOnceLock, types::PyDict};
use shardfs::{Error, ErrorKind};

static RAISE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Returns the name of a kind, as in `_errors.py`.
fn name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "NotFound",
        ErrorKind::PermissionDenied => "PermissionDenied",
        ErrorKind::NotAContainer => "NotAContainer",
        ErrorKind::NotAFolder => "NotAFolder",
        ErrorKind::IsAFolder => "IsAFolder",
        ErrorKind::NotAnArray => "NotAnArray",
        ErrorKind::Damaged => "Damaged",
        ErrorKind::Changed => "Changed",
        ErrorKind::OutOfMemory => "OutOfMemory",
        ErrorKind::InvalidInput => "InvalidInput",
        _ => "Io",
    }
}

/// Returns the exception of an error. Paths of containers are relative to `source`.
pub(crate) fn to_python(py: Python<'_>, error: &Error, source: &str) -> PyErr {
    let make = || -> PyResult<PyErr> {
        let make =
            RAISE.get_or_try_init(py, || Ok::<_, PyErr>(py.import("shardfs._errors")?.getattr("make")?.unbind()))?;
        let details = PyDict::new(py);
        let message = match error.problem() {
            // Its text begins with the path below the source.
            None if error.kind() == ErrorKind::InvalidInput => error.to_string(),
            None => format!("{}/{error}", source.trim_end_matches('/')),
            Some(problem) => {
                // Joined to a path of this machine, or to an address.
                let container = match source.contains("://") {
                    true => format!("{}/{}", source.trim_end_matches('/'), problem.container.display()).into(),
                    false => Path::new(source).join(&problem.container),
                };
                details.set_item("container", container.into_os_string())?;
                details.set_item("path", problem.path)?;
                details.set_item("block", problem.block)?;
                details.set_item("offset", problem.offset)?;
                problem.message
            }
        };
        let made = make.bind(py).call((name(error.kind()), message), Some(&details))?;
        Ok(PyErr::from_value(made))
    };
    make().unwrap_or_else(|failed| failed)
}
