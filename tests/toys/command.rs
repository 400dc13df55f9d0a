//! The `shardfs` command with formats of its own: a program that knows further formats adds them, and is then the
//! command as it is without them.
//!
//! `toys write FOLDER` writes a file of each of these formats, which are those of the tests; everything else is what
//! `shardfs` takes: `cargo run --example toys -- ls -R FOLDER`.

use std::{path::Path, process::ExitCode};

#[path = "mod.rs"]
mod toys;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if let [command, folder] = &arguments[..]
        && command == "write"
    {
        return match toys::write(Path::new(folder)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("toys: {}: {error}", folder.display());
                ExitCode::FAILURE
            }
        };
    }
    toys::add();
    shardfs::command()
}
