//! Other programs that this one starts, found in PATH.

use std::{env, io, path::PathBuf, process::Command};

/// Returns a command for a program in one of the folders of PATH. Relative folders are passed over: the current one may
/// be a folder in which others write.
///
/// # Errors
/// `NotFound` if it is in none of them.
pub(crate) fn command(name: &str) -> io::Result<Command> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut programs: Vec<PathBuf> = env::split_paths(&path).filter(|folder| folder.is_absolute()).collect();
    programs.iter_mut().for_each(|folder| folder.push(name));
    let found = programs.into_iter().find(|program| program.is_file());
    found.map(Command::new).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{name}: not in PATH")))
}
