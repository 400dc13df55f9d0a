//! Text of files, counts and columns as lines for people.

use std::{collections::HashMap, io::Write};

use serde_json::Value;

use crate::cli::output::escape;

/// Returns text from a file that is safe in a line of a terminal: without control characters, and with at most `most`
/// of the others.
pub(super) fn shown(text: &str, most: usize) -> String {
    let mut line = String::new();
    for (number, c) in text.chars().enumerate() {
        if number == most {
            line.push('…');
            break;
        }
        if escape::is_printable(c) { line.push(c) } else { line.extend(c.escape_default()) }
    }
    line
}

/// Counts how often something was seen. Among equals, what was seen first comes first.
#[derive(Default)]
pub(super) struct Counts(HashMap<String, (usize, usize)>);

impl Counts {
    pub(super) fn add(&mut self, what: String) {
        let next = self.0.len();
        self.0.entry(what).or_insert((next, 0)).1 += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the most frequent first.
    fn sorted(&self) -> Vec<(&str, usize)> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(_, (place, count))| (std::cmp::Reverse(*count), *place));
        all.into_iter().map(|(what, (_, count))| (&**what, *count)).collect()
    }

    /// Returns the first few of them on a line.
    pub(super) fn line(&self) -> String {
        const FEW: usize = 5;
        let all = self.sorted();
        let mut parts: Vec<String> = all
            .iter()
            .take(FEW)
            .map(|(what, count)| format!("{} ({count})", if what.is_empty() { "\"\"" } else { what }))
            .collect();
        if all.len() > FEW {
            parts.push(format!("and {} others", all.len() - FEW));
        }
        parts.join(", ")
    }

    pub(super) fn json(&self) -> Value {
        self.sorted().into_iter().map(|(what, count)| (what.to_owned(), Value::from(count))).collect()
    }
}

/// Prints rows of equal length, headings first, as columns indented by two blanks. Columns in `right` are aligned
/// right, and columns without anything below their heading are left out.
pub(super) fn table(out: &mut impl Write, rows: &[Vec<String>], right: &[usize]) -> anyhow::Result<()> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let is_said = |column: &usize| rows[1..].iter().any(|row| !row[*column].is_empty());
    let columns = 0..rows.first().map_or(0, Vec::len);
    let shown: Vec<(usize, usize)> = columns.filter(is_said).map(|column| (column, width(column))).collect();
    for row in rows {
        let mut line = String::new();
        for &(column, width) in &shown {
            let cell = &row[column];
            line.push_str("  ");
            let cell = if right.contains(&column) { format!("{cell:>width$}") } else { format!("{cell:width$}") };
            line.push_str(&cell);
        }
        writeln!(out, "{}", escape::escaped(line.trim_end()))?;
    }
    Ok(())
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
