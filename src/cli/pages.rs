//! `shardfs completions` and `man`: what shells and man(1) want to know, from the definitions of the options themselves.

use std::{fs, io, path::PathBuf};

use anyhow::Context;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shardfs completions bash > /etc/bash_completion.d/shardfs
  shardfs completions zsh > /usr/local/share/zsh/site-functions/_shardfs
  shardfs completions fish > ~/.config/fish/completions/shardfs.fish")]
pub(super) struct CompletionArguments {
    /// Which shell
    shell: Shell,
}

/// Write man pages into a folder
#[derive(Debug, Args)]
#[command(after_help = "Example:
  shardfs man /usr/local/share/man

Writes DIR/man1/shardfs.1, a page for each command beside it, and DIR/man8/mount.shardfs.8.")]
pub(super) struct ManArguments {
    /// The folder, made if it is not there
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub(super) fn completions(arguments: &CompletionArguments) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut super::Cli::command(), "shardfs", &mut script);
    if arguments.shell == Shell::Bash {
        script.extend_from_slice(include_bytes!("completion.bash"));
    }
    // Not by clap itself, for which a closed pipe is a panic.
    Ok(io::Write::write_all(&mut io::stdout(), &script)?)
}

pub(super) fn man(arguments: &ManArguments) -> anyhow::Result<()> {
    let named = || arguments.folder.display().to_string();
    let [commands, helpers] = ["man1", "man8"].map(|section| arguments.folder.join(section));
    fs::create_dir_all(&commands).and_then(|()| fs::create_dir_all(&helpers)).with_context(named)?;
    clap_mangen::generate_to(super::Cli::command(), &commands).with_context(named)?;
    fs::write(helpers.join("mount.shardfs.8"), ".so man1/shardfs-mount.1\n").with_context(named)
}
