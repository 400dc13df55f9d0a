//! Errors of the library as Python's exceptions. The classes are written in Python (`shardfs/_errors.py`).

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use pyo3::{exceptions::PyRuntimeError, prelude::*, sync::PyOnceLock, types::PyDict};
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

/// Does something that may wait, without the interpreter's lock. A panic becomes an exception that programs catch;
/// PyO3's own is none that `except Exception` sees. `source` is what paths of containers are relative to.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    source: &str,
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> PyResult<T> {
    guarded(py, work)?.map_err(|error| to_python(py, &error, source))
}

/// Does the same as [`detached`] for work that does not fail.
pub(crate) fn guarded<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| caught(work)).map_err(|Panicked| fault())
}

/// An error in shardfs itself. What it said is printed already.
pub(crate) struct Panicked;

/// Runs work whose panic is an error.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Panicked)
}

/// Returns the exception of a panic.
pub(crate) fn fault() -> PyErr {
    PyRuntimeError::new_err("an error in shardfs itself; report it with what it has printed")
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
                    // An error of opening the address names it.
                    true if problem.container.starts_with(source) => problem.container,
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
