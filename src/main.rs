//! The `shardfs` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    shardfs::command()
}
