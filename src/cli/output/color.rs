//! `--color`: colours for terminals, or where they are asked for.

use clap::{Args, ValueEnum};

/// When there are colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum When {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb
    #[default]
    Auto,
    /// Also in files and pipes
    Always,
    /// Never
    Never,
}

/// The option of commands that print for people.
#[derive(Debug, Args)]
#[command(next_help_heading = crate::cli::OUTPUT)]
pub(in crate::cli) struct ColorOption {
    /// When to use colours; without a value: `always`
    #[arg(long, value_enum, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_value_t,
          default_missing_value = "always")]
    color: When,
}

impl ColorOption {
    /// Returns whether to use colours in output that goes to a terminal or elsewhere.
    pub(in crate::cli) fn is_on(&self, is_terminal: bool) -> bool {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        match self.color {
            When::Always => true,
            When::Never => false,
            // <https://no-color.org>: the variable counts if it is set and not empty.
            When::Auto => {
                let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
                is_terminal && !is_set("NO_COLOR") && !is_dumb
            }
        }
    }
}

/// A colour: the escape sequence that begins it. [`END`] ends it.
pub(in crate::cli) type Color = &'static str;

pub(in crate::cli) const GOOD: Color = "\x1b[32m";
pub(in crate::cli) const WARNING: Color = "\x1b[33m";
pub(in crate::cli) const BAD: Color = "\x1b[31m";
pub(in crate::cli) const FOLDER: Color = "\x1b[1;34m";
pub(in crate::cli) const LINK: Color = "\x1b[1;36m";
/// Ends a colour.
pub(in crate::cli) const END: &str = "\x1b[0m";

/// Returns a text in a colour, if colours are on.
pub(in crate::cli) fn paint(is_on: bool, color: Color, text: &str) -> String {
    if is_on { format!("{color}{text}{END}") } else { text.to_owned() }
}
