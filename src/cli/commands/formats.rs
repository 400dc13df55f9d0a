//! `shardfs formats`: which containers are shown as folders.

use std::io::Write as _;

use clap::Args;

use crate::{
    cli::stdout,
    tree::{self, Format},
};

/// List the container formats: their names for --formats, their suffixes, whether they are shown by default
///
/// Files of these formats appear as folders. `--formats=kdb,idv` names those that do, `--formats=-kdb` takes one away from
/// the default. Most formats are recognised by their content, whatever the file's name.
#[derive(Debug, Args)]
#[command(after_help = format!("{}\n\nExample:\n  shardfs mount --formats=-kdb data/ /mnt/shards", table()))]
pub(in crate::cli) struct Arguments {}

pub(in crate::cli) fn run(_: &Arguments) -> anyhow::Result<()> {
    Ok(writeln!(stdout(), "{}", table())?)
}

/// One line for each format.
fn table() -> String {
    let formats = tree::known_formats();
    let name = formats.iter().map(|format| format.name.len()).max().unwrap_or(0);
    let line = |format: &Format| {
        let shown = if format.is_default { "shown" } else { "hidden" };
        format!("{:name$}  {shown:6}  {} ({})", format.name, format.summary, suffixes(format))
    };
    formats.iter().map(|format| line(format)).collect::<Vec<_>>().join("\n")
}

/// The suffixes of a format, for people; of folders without one, the file that makes them containers.
pub(in crate::cli) fn suffixes(format: &Format) -> String {
    let suffixes: Vec<_> = format.all_suffixes().collect();
    if suffixes.is_empty() { format.markers.join(" ") } else { suffixes.join(" ") }
}
