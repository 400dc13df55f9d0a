//! stderr. What can't be written there is left out: a command does its work all the same.

use std::io::{self, Write};

/// Writes a line.
pub(in crate::cli) fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
