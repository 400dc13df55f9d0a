//! stdout. An error of it says so, and ends a command: what comes next could not be written either.

use std::{
    error::Error,
    io::{self, BufWriter, IsTerminal, StdoutLock, Write},
};

/// stdout, or a file that is the same.
#[derive(Debug)]
pub(in crate::cli) struct Stdout<W>(pub(in crate::cli) W);

/// Why nothing can be written to stdout.
#[derive(Debug, thiserror::Error)]
#[error("stdout: {0}")]
struct Closed(io::Error);

impl<W: Write> Write for Stdout<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(closed)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(closed)
    }
}

fn closed(error: io::Error) -> io::Error {
    // `Write` tries again what was interrupted, and looks at the kind for that.
    io::Error::new(error.kind(), Closed(error))
}

/// Returns stdout, for a line or two.
pub(in crate::cli) fn stdout() -> Stdout<io::Stdout> {
    Stdout(io::stdout())
}

/// Returns stdout for many lines, which are written when it is flushed, and whether it is a terminal.
pub(in crate::cli) fn buffered() -> (BufWriter<Stdout<StdoutLock<'static>>>, bool) {
    let stdout = io::stdout().lock();
    let is_terminal = stdout.is_terminal();
    (BufWriter::new(Stdout(stdout)), is_terminal)
}

/// Returns why nothing can be written to stdout, if that is the error: a broken pipe if its reader has seen enough.
pub(in crate::cli) fn closed_for(error: &anyhow::Error) -> Option<io::ErrorKind> {
    error.chain().find_map(|cause: &(dyn Error + 'static)| {
        let error = cause.downcast_ref::<io::Error>()?;
        error.get_ref()?.is::<Closed>().then(|| error.kind())
    })
}
