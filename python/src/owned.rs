//! What belongs to the process that made it.
//!
//! After `fork` a child has the memory of its parent's locks in whatever state other threads had left them, and none of
//! those threads. So a child never touches a volume of its parent, not even to free it: the Python side opens its own.

use std::process;

use pyo3::{PyResult, exceptions::PyRuntimeError};

/// A value that only the process which made it may use and free.
pub(crate) struct Owned<T> {
    process: u32,
    value: Option<T>,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: process::id(), value: Some(value) }
    }

    /// The value.
    ///
    /// # Errors
    /// `RuntimeError` in another process.
    pub(crate) fn get(&self) -> PyResult<&T> {
        let value = self.value.as_ref().filter(|_| self.process == process::id());
        value.ok_or_else(|| PyRuntimeError::new_err("opened before a fork, in another process"))
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.process != process::id() {
            std::mem::forget(self.value.take());
        }
    }
}
