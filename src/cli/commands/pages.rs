//! `shardfs completions`, `man` and `reference`: completions for shells, man pages and docs/CLI.md, made from the
//! definitions of the options.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::{Args, CommandFactory, builder::PossibleValue};
use clap_complete::Shell;
use indexmap::IndexMap;

use crate::cli::{Cli, Destination, stdout};

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shardfs completions bash > /etc/bash_completion.d/shardfs
  shardfs completions zsh > /usr/local/share/zsh/site-functions/_shardfs
  shardfs completions fish > ~/.config/fish/completions/shardfs.fish")]
pub(in crate::cli) struct CompletionArguments {
    /// The shell
    shell: Shell,
}

/// Write man pages into a folder
#[derive(Debug, Args)]
#[command(after_help = "Example:
  shardfs man /usr/local/share/man

Writes DIR/man1/shardfs.1, a page for each command beside it, and DIR/man8/mount.shardfs.8.")]
pub(in crate::cli) struct ManArguments {
    /// The folder, made if it does not exist
    #[arg(value_name = "DIR", value_parser = crate::cli::local())]
    folder: PathBuf,
}

pub(in crate::cli) fn completions(arguments: &CompletionArguments) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "shardfs", &mut script);
    if arguments.shell == Shell::Bash {
        script.extend_from_slice(include_bytes!("completion.bash"));
    }
    // Not written by clap itself, which panics if the pipe is closed.
    Ok(io::Write::write_all(&mut stdout(), &script)?)
}

pub(in crate::cli) fn man(arguments: &ManArguments) -> anyhow::Result<()> {
    let mut cli = Cli::command().disable_help_subcommand(true);
    cli.build();
    write_pages(arguments, &cli).with_context(|| arguments.folder.display().to_string())
}

fn write_pages(arguments: &ManArguments, cli: &clap::Command) -> io::Result<()> {
    let to = Destination::make(&arguments.folder)?;
    for section in ["man1", "man8"] {
        to.make_all(Path::new(section))?;
    }
    let put = |page: &Path, text: &str| {
        to.put_file(page, None, None, |mut file| file.write_all(text.as_bytes()).map(|()| true))
    };
    let mut commands = vec![cli];
    while let Some(command) = commands.pop() {
        commands.extend(command.get_subcommands().filter(|command| !command.is_hide_set()));
        let page = clap_mangen::Man::new(command.clone());
        // Without a date, as a word of its own.
        let page = page.date("\"\"").source(concat!("shardfs ", env!("CARGO_PKG_VERSION"))).manual("shardfs manual");
        let mut text = Vec::new();
        page.render(&mut text)?;
        let text = readable(&String::from_utf8_lossy(&text));
        let name = page.get_filename();
        if name == "shardfs-mount.1" {
            put(Path::new("man8/mount.shardfs.8"), &helper_page(&text))?;
        }
        put(&Path::new("man1").join(name), &text)?;
    }
    Ok(())
}

/// Returns a page of clap_mangen with line breaks in examples kept.
fn readable(page: &str) -> String {
    match page.split_once(".SH EXTRA\n") {
        Some((front, rest)) => {
            let (examples, behind) = rest.split_once(".SH ").map_or((rest, None), |(own, next)| (own, Some(next)));
            let behind = behind.map_or_else(String::new, |behind| format!(".SH {behind}"));
            format!("{front}.SH EXAMPLES AND NOTES\n.nf\n{examples}.fi\n{behind}")
        }
        None => page.to_owned(),
    }
}

/// Returns the page of the mount helper: the page of `shardfs mount` under its own name and section.
fn helper_page(mount: &str) -> String {
    let page = mount.replacen(".TH shardfs-mount 1", ".TH mount.shardfs 8", 1);
    page.replacen(".SH NAME\nshardfs\\-mount \\-", ".SH NAME\nmount.shardfs \\-", 1)
}

/// Print the options of every command as Markdown: docs/CLI.md
pub(in crate::cli) fn reference() -> anyhow::Result<()> {
    let mut text = String::from(
        "# Commands and options\n\n`shardfs help COMMAND` and the man pages say the same. In /etc/fstab the long options of \
         `mount` are mount\noptions, with `_` or `-`. Options that several commands have are described once, at the \
         [end](#shared-options).\n\nThis page is the output of `shardfs reference`; a test compares them.\n",
    );
    let mut cli = Cli::command();
    cli.build();
    let shared = shared_options(&cli);
    for command in shown_commands(&cli) {
        describe(&mut text, command, command.get_name(), &shared);
    }
    text.push_str("\n## Shared options\n");
    for (heading, options) in shared {
        let _ = write!(text, "\n### {heading}\n\n{TABLE}");
        options.into_iter().for_each(|option| row(&mut text, option));
    }
    Ok(io::Write::write_all(&mut stdout(), text.as_bytes())?)
}

/// First lines of a table of arguments and options.
const TABLE: &str = "| option | default | what it does |\n|---|---|---|\n";

fn shown_commands(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
}

fn shown_arguments(command: &clap::Command) -> impl Iterator<Item = &clap::Arg> {
    let is_shown =
        |argument: &&clap::Arg| !argument.is_hide_set() && !["help", "version"].contains(&argument.get_id().as_str());
    command.get_arguments().filter(is_shown)
}

/// The headings of options that several commands have, each with all options below it.
type Shared<'a> = IndexMap<&'a str, Vec<&'a clap::Arg>>;

fn shared_options(cli: &clap::Command) -> Shared<'_> {
    let mut shared = Shared::new();
    for argument in shown_commands(cli).flat_map(shown_arguments) {
        let Some(heading) = argument.get_help_heading() else { continue };
        let options = shared.entry(heading).or_default();
        if options.iter().all(|option| option.get_id() != argument.get_id()) {
            options.push(argument);
        }
    }
    shared
}

/// Writes a section for a command: what it does, its own arguments and options as a table, links to shared ones, and
/// examples; then sections for its own commands.
fn describe(text: &mut String, command: &clap::Command, name: &str, shared: &Shared<'_>) {
    let about = command.get_long_about().or_else(|| command.get_about()).map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    // `String` can be written to without an error.
    let _ = write!(text, "\n## `shardfs {name}`\n\n{}\n\n```\n{usage}\n```\n", sentences(&about));
    let own = shown_arguments(command).filter(|argument| argument.get_help_heading().is_none());
    let own: Vec<_> = own.collect();
    if !own.is_empty() {
        let _ = write!(text, "\n{TABLE}");
    }
    own.into_iter().for_each(|argument| row(text, argument));
    let links: Vec<String> = shared.iter().filter_map(|(heading, options)| link(command, heading, options)).collect();
    if !links.is_empty() {
        let _ = writeln!(text, "\nAlso: {}.", links.join("; "));
    }
    if let Some(after) = command.get_after_help() {
        let _ = write!(text, "\n```\n{after}\n```\n");
    }
    for inner in shown_commands(command) {
        describe(text, inner, &format!("{name} {}", inner.get_name()), shared);
    }
}

/// Returns a link to the options below a heading, with their names if the command does not have all of them.
fn link(command: &clap::Command, heading: &str, options: &[&clap::Arg]) -> Option<String> {
    let has = |option: &&&clap::Arg| shown_arguments(command).any(|argument| argument.get_id() == option.get_id());
    let names: Vec<String> = options.iter().filter(has).map(|option| format!("`--{}`", option.get_id())).collect();
    let target = format!("[{heading}](#{})", heading.to_lowercase().replace(' ', "-"));
    match names.len() {
        0 => None,
        count if count == options.len() => Some(target),
        _ => Some(format!("{} ({target})", names.join(", ").replace('_', "-"))),
    }
}

/// Returns the paragraphs of a description, each with a full stop.
fn sentences(about: &str) -> String {
    let paragraphs = about.split("\n\n").map(|text| text.trim_end_matches('.').replace('\n', " ") + ".");
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

fn row(text: &mut String, argument: &clap::Arg) {
    let value = argument.get_value_names().map(|names| names.join(" ")).unwrap_or_default();
    let has_value = argument.get_action().takes_values();
    let is_optional = argument.get_num_args().is_some_and(|count| count.min_values() == 0);
    let names = argument.get_short().map(|short| format!("-{short}")).into_iter();
    let names: Vec<String> = names.chain(argument.get_long().map(|long| format!("--{long}"))).collect();
    let name = match names.join(", ") {
        names if names.is_empty() => value,
        names if has_value && is_optional => format!("{names}[={value}]"),
        names if has_value => format!("{names} {value}"),
        names => names,
    };
    let help = argument.get_long_help().or_else(|| argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let help = help.replace('\n', " ");
    // Help texts name the defaults that depend on the machine.
    let (help, said) = help.split_once(" [default: ").unwrap_or((&help, ""));
    let defaults: Vec<_> = argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let default = match has_value && !defaults.is_empty() {
        true => format!("`{}`", defaults.join(" ")),
        false => said.trim_end_matches(']').to_owned(),
    };
    let described = |value: &PossibleValue| {
        let help = value.get_help().map(|help| format!(": {help}")).unwrap_or_default();
        format!("`{}`{help}", value.get_name())
    };
    let values = argument.get_possible_values().into_iter().filter(|value| has_value && !value.is_hide_set());
    let values: Vec<String> = values.map(|value| described(&value)).collect();
    let values = if values.is_empty() { String::new() } else { format!(". {}", values.join("; ")) };
    let _ = writeln!(text, "| `{name}` | {default} | {} |", format!("{help}{values}").replace('|', "\\|"));
}
