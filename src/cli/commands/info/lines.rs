//! Text of files, counts and columns as lines for people.

use std::{cmp::Reverse, io::Write};

use indexmap::IndexMap;
use serde_json::Value;

use crate::{cli::escape, escape::shortened};

/// Returns text from a file that is safe in a line of a terminal: without control characters, and with at most `most`
/// of the others.
pub(super) fn shown(text: &str, most: usize) -> String {
    escape::escaped(&shortened(text, most))
}

/// Counts how often something was seen. Among equals, what was seen first comes first.
#[derive(Default)]
pub(super) struct Counts(IndexMap<String, usize>);

impl Counts {
    pub(super) fn add(&mut self, what: String) {
        *self.0.entry(what).or_default() += 1;
    }

    /// Returns the most frequent first.
    fn sorted(&self) -> Vec<(&String, &usize)> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(_, count)| Reverse(*count));
        all
    }

    /// Returns the first few of them on a line; empty if there are none.
    pub(super) fn line(&self) -> String {
        const FEW: usize = 5;
        let shown = |(what, count): &(&String, &usize)| match what.as_str() {
            "" => format!("\"\" ({count})"),
            what => format!("{what} ({count})"),
        };
        few(self.sorted().iter().map(shown), FEW)
    }

    pub(super) fn json(&self) -> Value {
        self.sorted().into_iter().map(|(what, count)| (what.clone(), Value::from(*count))).collect()
    }
}

/// Prints rows of cells as columns indented by two blanks, below their headings if there are any. Columns in `right` are
/// aligned right, and columns without anything below their heading are left out. A row of one cell is a line of text.
pub(super) fn table(
    out: &mut impl Write,
    headings: &[&str],
    rows: &[Vec<String>],
    right: &[usize],
) -> anyhow::Result<()> {
    let headings: Vec<String> = headings.iter().map(ToString::to_string).collect();
    let headings = Some(&headings).filter(|headings| !headings.is_empty());
    let mut shown = Vec::new();
    for column in 0..rows.iter().map(Vec::len).max().unwrap_or(0) {
        let width = |row: &Vec<String>| row[column].chars().count();
        let widest = rows.iter().filter(|row| row.len() > 1).map(width).max().unwrap_or(0);
        if widest > 0 {
            shown.push((column, widest.max(headings.map_or(0, width))));
        }
    }
    for row in headings.into_iter().chain(rows) {
        let mut line = String::new();
        if let [text] = &row[..] {
            line = format!("  {text}");
        } else {
            for &(column, width) in &shown {
                let cell = &row[column];
                line.push_str("  ");
                let cell = if right.contains(&column) { format!("{cell:>width$}") } else { format!("{cell:width$}") };
                line.push_str(&cell);
            }
        }
        writeln!(out, "{}", escape::escaped(line.trim_end()))?;
    }
    Ok(())
}

/// Returns the first few of several texts on a line.
pub(super) fn few(texts: impl ExactSizeIterator<Item = String>, most: usize) -> String {
    let others = texts.len().checked_sub(most).filter(|others| *others > 0);
    let others = others.map(|others| format!("and {others} others"));
    texts.take(most).chain(others).collect::<Vec<_>>().join(", ")
}

/// Returns whether a path is a part of a container or lies in it; all do in the empty one.
pub(super) fn is_below(path: &str, part: &str) -> bool {
    path.strip_prefix(part).is_some_and(|rest| part.is_empty() || rest.is_empty() || rest.starts_with('/'))
}

/// Returns a number that may be missing as a cell.
pub(super) fn cell(number: Option<u64>) -> String {
    number.map_or_else(String::new, |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_files_stays_on_its_line() {
        assert_eq!(shown("öffne\n\x1b[31m", 40), "öffne\\n\\u{1b}[31m");
        assert_eq!(shown("abcdef", 3), "abc…");
        assert_eq!(shown("abc", 3), "abc");
    }
}
