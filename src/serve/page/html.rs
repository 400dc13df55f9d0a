//! HTML that is put together so that no name or text out of a container can be taken for markup.

use std::{fmt::Write, path::Path};

use serde_json::Value;

use crate::{
    serve::{Refusal, http::paths},
    volume::Entry,
};

/// Bytes of a file that become HTML at a time. One byte becomes at most six (`&quot;`).
const PIECE: u64 = 32 << 10;

/// The mark of an array whose type and shape are guessed.
pub(super) const GUESS: &str =
    r#" <span class="badge" title="The container does not record dtype or shape">guess</span>"#;

/// A document that grows. Markup can only be a literal of the program; everything else is escaped.
#[derive(Debug, Default)]
pub(super) struct Html {
    text: String,
    /// A file whose text belongs at this position. It is read when the document is sent.
    file: Option<(usize, Entry)>,
}

impl Html {
    /// Markup.
    pub(super) fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.text.push_str(markup);
        self
    }

    /// Markup with a value in the place of each `{}`, as [`Self::text`] writes it.
    pub(super) fn fill(&mut self, markup: &'static str, values: &[&str]) -> &mut Self {
        let mut parts = markup.split("{}");
        self.raw(parts.next().unwrap_or_default());
        for (part, value) in parts.zip(values) {
            self.text(value).raw(part);
        }
        self
    }

    /// Text, or the value of an attribute between double quotes. Control characters that do not end a line, and those
    /// that change the direction of text, are shown as their code points.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\r' if chars.peek() == Some(&'\n') => {}
                '\n' | '\t' => self.text.push(c),
                // Writing to a String cannot fail.
                c if c.is_control() || is_directional(c) => {
                    let _ = write!(self.text, "\u{fffd}{:02X}", u32::from(c));
                }
                c => self.character(c),
            }
        }
        self
    }

    /// A character as it is, which is never markup.
    fn character(&mut self, c: char) {
        match c {
            '&' => self.text.push_str("&amp;"),
            '<' => self.text.push_str("&lt;"),
            '>' => self.text.push_str("&gt;"),
            '"' => self.text.push_str("&quot;"),
            '\'' => self.text.push_str("&#39;"),
            c => self.text.push(c),
        }
    }

    /// A name, as [`Self::text`], that may be broken into lines behind its separators.
    pub(super) fn name(&mut self, name: &str) -> &mut Self {
        for part in name.split_inclusive(['/', '_', '.']) {
            self.text(part);
            if part.ends_with(['/', '_', '.']) {
                self.raw("<wbr>");
            }
        }
        self
    }

    /// Begins a link to `path` below `route`, which ends with `/`. The caller adds what it shows, and `</a>`.
    pub(super) fn link(&mut self, route: &'static str, path: &Path) -> &mut Self {
        self.fill(r#"<a href="{}{}">"#, &[route, &paths::encode(path)])
    }

    /// Adds a symbol of `icons.svg`, hidden from screen readers.
    pub(super) fn icon(&mut self, name: &'static str) -> &mut Self {
        let markup =
            r##"<svg class="icon of-{}" aria-hidden="true"><use href="/-/assets/{}/icons.svg#{}"></use></svg>"##;
        self.fill(markup, &[name, super::assets::version(), name])
    }

    /// Adds the mark of something damaged.
    pub(super) fn damaged(&mut self, reason: &str) -> &mut Self {
        self.fill(r#" <span class="badge bad" title="{}">damaged</span>"#, &[reason])
    }

    /// Adds links to the parts of something long before and after the one that is shown.
    pub(super) fn links(
        &mut self,
        label: &'static str,
        before: Option<String>,
        here: &str,
        after: Option<String>,
    ) -> &mut Self {
        self.fill(r#"<nav class="pages" aria-label="{}">"#, &[label]);
        if let Some(address) = before {
            self.fill(r#"<a class="button" rel="prev" href="{}">← Previous</a>"#, &[&address]);
        }
        self.fill("<span>{}</span>", &[here]);
        if let Some(address) = after {
            self.fill(r#"<a class="button" rel="next" href="{}">Next →</a>"#, &[&address]);
        }
        self.raw("</nav>")
    }

    /// Adds links to other pages of a list. `page` counts from 1; the number of pages may be unknown.
    pub(super) fn pages(
        &mut self,
        label: &'static str,
        (page, pages): (u64, Option<u64>),
        has_more: bool,
        address: impl Fn(u64) -> String,
    ) {
        if page > 1 || has_more {
            let of = pages.map(|pages| format!(" of {}", grouped(pages))).unwrap_or_default();
            let here = format!("Page {}{of}", grouped(page));
            self.links(label, (page > 1).then(|| address(page - 1)), &here, has_more.then(|| address(page + 1)));
        }
    }

    /// Adds an empty section that the script of its name fills, out of `about`.
    pub(super) fn section(&mut self, class: &'static str, name: &'static str, label: &'static str, about: &Value) {
        let markup = r#"<section class="{}" id="{}" aria-label="{}" data-{}="{}"></section>"#;
        self.fill(markup, &[class, name, label, name, &about.to_string()]);
        self.raw(r#"<noscript><p class="notice">JavaScript is needed to show what is here.</p></noscript>"#);
    }

    /// Adds all of a file as it is, for a script that parses it. A document has at most one file.
    pub(super) fn file(&mut self, file: &Entry) -> &mut Self {
        self.file = Some((self.text.len(), file.clone()));
        self
    }

    /// Adds another document.
    pub(super) fn push(&mut self, html: &Self) -> &mut Self {
        if let Some((at, file)) = &html.file {
            self.file = Some((self.text.len() + at, file.clone()));
        }
        self.text.push_str(&html.text);
        self
    }

    /// Returns the length of the document in bytes, without its file.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Returns the parts of the document, of which its file is read as they are taken.
    ///
    /// # Errors
    /// [`Refusal`] if its file has gone.
    pub(super) fn into_parts(mut self) -> Result<impl Iterator<Item = Result<String, Refusal>> + Send, Refusal> {
        let after = self.text.split_off(self.file.as_ref().map_or(self.text.len(), |(at, _)| *at));
        let tag = self.file.as_ref().map(|(_, file)| file.tag()).transpose()?.flatten();
        let (file, mut done) = (self.file.map(|(_, file)| file), 0);
        let text = std::iter::from_fn(move || {
            let file = file.as_ref().filter(|file| done < file.size())?;
            Some(text_of(file, tag, &mut done))
        });
        Ok(std::iter::once(Ok(self.text)).chain(text).chain(std::iter::once(Ok(after))))
    }

    /// The text of a document without a file.
    pub(super) fn into_text(self) -> String {
        self.text
    }
}

/// Returns the next part of a file that is still in the state of a tag, as HTML.
///
/// # Errors
/// [`Refusal`] if the file can't be read, or has changed.
fn text_of(file: &Entry, tag: Option<u128>, done: &mut u64) -> Result<String, Refusal> {
    let mut bytes = file.read_range(*done, PIECE)?;
    if file.tag()? != tag || bytes.is_empty() {
        return Err(Refusal::changed());
    }
    if *done + (bytes.len() as u64) < file.size() {
        // A character that is cut belongs to the next part.
        let last = bytes.utf8_chunks().last().map_or(0, |chunk| match std::str::from_utf8(chunk.invalid()) {
            Err(error) if error.error_len().is_none() => chunk.invalid().len(),
            _ => 0,
        });
        bytes.truncate(bytes.len() - last);
    }
    *done += bytes.len() as u64;
    let mut html = Html::default();
    String::from_utf8_lossy(&bytes).chars().for_each(|c| html.character(c));
    Ok(html.text)
}

/// Returns whether a character changes the order in which a browser shows its neighbours.
fn is_directional(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Formats a number of bytes for people.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    while amount >= 1000.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    if amount < 10.0 { format!("{amount:.1} {}", UNITS[unit]) } else { format!("{amount:.0} {}", UNITS[unit]) }
}

/// Formats a number with a thin space between its thousands.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun.
pub(super) fn counted(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_never_markup() {
        let mut html = Html::default();
        html.fill("<p title=\"{}\">", &["\"><script>'&\u{202e}\u{1b}"]);
        assert_eq!(html.into_text(), "<p title=\"&quot;&gt;&lt;script&gt;&#39;&amp;\u{fffd}202E\u{fffd}1B\">");
    }

    #[test]
    fn lines_end_in_two_ways() {
        let mut html = Html::default();
        html.text("a\r\nb\nc\rd\r");
        assert_eq!(html.into_text(), "a\nb\nc\u{fffd}0Dd\u{fffd}0D");
    }

    #[test]
    fn names_break_behind_separators() {
        let mut html = Html::default();
        html.name("a/<b>_c.npy");
        assert_eq!(html.into_text(), "a/<wbr>&lt;b&gt;_<wbr>c.<wbr>npy");
    }

    #[test]
    fn sizes_and_counts() {
        assert_eq!([0, 1023, 1024, 1_048_575, 5 << 30].map(size), ["0 B", "1023 B", "1.0 KiB", "1.0 MiB", "5.0 GiB"]);
        assert_eq!(counted(1, "row"), "1 row");
        assert_eq!(counted(1_234_567, "row"), "1\u{202f}234\u{202f}567 rows");
    }
}
