//! Processes that decode videos: the interpreter again, with nothing but this module.

use std::ffi::OsString;

use pyo3::prelude::*;

use crate::error::guarded;

/// Sets how such a process is started: a program, its arguments, and the variables that it keeps. The codec is one more
/// argument.
#[pyfunction]
pub(crate) fn set_decoder(
    py: Python<'_>,
    path: OsString,
    arguments: Vec<OsString>,
    environment: Vec<OsString>,
) -> PyResult<()> {
    guarded(py, || shardfs::set_decoder(shardfs::DecoderProgram { path, name: None, arguments, environment }))
}

/// Is such a process until its owner ends it; returns its exit code.
#[pyfunction]
pub(crate) fn run_decoder(codec: OsString) -> u8 {
    u8::from(shardfs::run_decoder(Some(codec)) != std::process::ExitCode::SUCCESS)
}
