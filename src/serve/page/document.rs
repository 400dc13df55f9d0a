//! Files that are no arrays: JSON, text, pictures, bytes.

use std::{ops::Range, path::Path};

use super::{
    cells,
    html::{self, Html},
    query::Query,
};
use crate::{
    serve::http::paths,
    volume::{Entry, Error},
};

/// Bytes from one page of text to the next. A page begins with the next line.
const TEXT: u64 = 256 << 10;
/// Bytes that are searched for that line. If none begins in them, the page begins with the next character.
const LONG_LINE: u64 = 64 << 10;
/// Bytes of a JSON document that is shown folded; longer ones are shown as text.
const JSON: u64 = 2 << 20;
/// Bytes of a page of bytes, and of one of its lines.
const BYTES: u64 = 4096;
const LINE: usize = 16;

/// The beginning of a text. Browsers pass over a line break behind the tag, which need not be the text's own.
const PRE: &str = "<pre class=\"source\" tabindex=\"0\">\n";

/// How a file is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Json,
    Text,
    Picture,
    Bytes,
}

impl Kind {
    /// For stylesheets.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Text => "text",
            Self::Picture => "picture",
            Self::Bytes => "bytes",
        }
    }
}

/// Returns how a file of this name is shown. Only formats that can't hold scripts are pictures.
pub(super) fn kind(name: &Path) -> Kind {
    let suffix = name.extension().unwrap_or_default().to_ascii_lowercase();
    match suffix.to_str().unwrap_or_default() {
        "json" => Kind::Json,
        "jsonl" | "ndjson" | "txt" | "log" | "md" | "csv" | "tsv" | "toml" | "yaml" | "yml" | "py" | "rs" | "sh"
        | "xml" | "html" | "svg" | "css" | "js" | "ini" | "cfg" => Kind::Text,
        "png" | "jpg" | "jpeg" | "gif" | "webp" | "bmp" | "avif" => Kind::Picture,
        _ => Kind::Bytes,
    }
}

/// Writes a file, or the part of a long one that the query asks for (`at`, in bytes).
///
/// # Errors
/// Those of reading the file.
pub(super) fn write(html: &mut Html, file: &Entry, query: &Query) -> Result<(), Error> {
    if file.size() == 0 {
        html.raw(r#"<p class="empty">This file is empty.</p>"#);
        return Ok(());
    }
    match kind(file.path()) {
        Kind::Picture => {
            let markup =
                r#"<figure class="picture"><img id="picture" alt="{}" src="{}"><figcaption></figcaption></figure>"#;
            html.fill(markup, &[&file.name().to_string_lossy(), &paths::address(file)]);
            Ok(())
        }
        Kind::Json if file.size() <= JSON => {
            // Read here, so that damage becomes the page's status.
            file.read_range(0, 1)?;
            html.raw(
                r#"<div class="bar" data-json-tools hidden><button type="button" id="unfold">Unfold all</button>"#,
            );
            html.raw(r#"<button type="button" id="fold">Fold all</button></div><div id="json">"#);
            html.raw(PRE).file(file).raw("</pre></div>");
            Ok(())
        }
        // What its name does not say, its beginning may.
        Kind::Bytes if cells::text(&file.read_range(0, BYTES)?, file.size()).is_none() => {
            write_bytes(html, file, query)
        }
        Kind::Json | Kind::Text | Kind::Bytes => write_text(html, file, query),
    }
}

fn write_text(html: &mut Html, file: &Entry, query: &Query) -> Result<(), Error> {
    let at = query.number("at").unwrap_or(0).min(file.size());
    let before = at.saturating_sub(1);
    let bytes = file.read_range(before, TEXT + LONG_LINE + 1)?;
    let is_whole = before + bytes.len() as u64 >= file.size();
    let [start, end] = [at, at.saturating_add(TEXT)].map(|place| border(&bytes, place - before, is_whole));
    let shown = bytes.get(start..end).unwrap_or_default();
    html.raw(PRE).text(&String::from_utf8_lossy(shown)).raw("</pre>");
    write_links(html, file, at, before + start as u64..before + end as u64, TEXT);
    Ok(())
}

/// Returns where the first line after a place begins, or the first character if that is too far. The end of a file ends a
/// line.
fn border(bytes: &[u8], place: u64, is_whole: bool) -> usize {
    let Some(from) = usize::try_from(place).ok().filter(|from| *from > 0 && *from < bytes.len()) else {
        return if place == 0 { 0 } else { bytes.len() };
    };
    let reach = bytes.len().min(from + LONG_LINE as usize);
    let line = bytes[from - 1..reach].iter().position(|&byte| byte == b'\n');
    match line {
        Some(end) => from + end,
        None if is_whole && reach == bytes.len() => reach,
        None => from + bytes[from..].iter().take(3).take_while(|&&byte| byte & 0xc0 == 0x80).count(),
    }
}

fn write_bytes(html: &mut Html, file: &Entry, query: &Query) -> Result<(), Error> {
    let at = query.number("at").unwrap_or(0).min(file.size()) / LINE as u64 * LINE as u64;
    let bytes = file.read_range(at, BYTES)?;
    let mut dump = String::new();
    for (number, line) in bytes.chunks(LINE).enumerate() {
        let digits: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let shown: String = line
            .iter()
            .map(|&byte| if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '·' })
            .collect();
        let offset = at + (number * LINE) as u64;
        dump += &format!("{offset:08x}  {:<width$}  {shown}\n", digits.join(" "), width = LINE * 3 - 1);
    }
    html.fill(r#"<pre class="source bytes" tabindex="0">{}</pre>"#, &[&dump]);
    write_links(html, file, at, at..at + bytes.len() as u64, BYTES);
    Ok(())
}

/// Links to the parts before and after the one that is shown, which begin `step` bytes apart.
fn write_links(html: &mut Html, file: &Entry, at: u64, shown: Range<u64>, step: u64) {
    if at == 0 && shown.end >= file.size() {
        return;
    }
    let address = |at: u64| format!("?at={at}");
    let here = [shown.start, shown.end, file.size()].map(html::grouped);
    let here = format!("{} – {} of {} bytes", here[0], here[1], here[2]);
    let before = (at > 0).then(|| address(at.saturating_sub(step)));
    html.links("Parts of the file", before, &here, (shown.end < file.size()).then(|| address(at + step)));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts that a text of so many bytes is shown in.
    fn parts(text: &[u8]) -> Vec<Range<usize>> {
        let part = |at: usize| {
            let before = at.saturating_sub(1);
            let end = text.len().min(before + (TEXT + LONG_LINE) as usize + 1);
            let bytes = &text[before..end];
            let border = |place: usize| before + border(bytes, (place - before) as u64, end == text.len());
            border(at)..border(at + TEXT as usize)
        };
        let mut parts = vec![part(0)];
        while parts.last().is_some_and(|last| last.end < text.len()) {
            parts.push(part(parts.len() * TEXT as usize));
        }
        parts
    }

    /// Lines of any length: the parts follow each other, begin with a line, and hold no part of a character.
    #[test]
    fn parts_begin_with_lines() {
        let page = TEXT as usize;
        for length in [1, 2, 79, 40_000, LONG_LINE as usize - 1, page - 1, page, 3 * page] {
            for newline in ["\n", "\r\n"] {
                let line = "€".repeat(length / 3) + &"x".repeat(length % 3) + newline;
                let text = line.repeat(4 * page / line.len() + 1) + "the end";
                let parts = parts(text.as_bytes());
                let whole: String = parts.iter().map(|part| &text[part.clone()]).collect();
                assert_eq!(whole.len(), text.len(), "{length}");
                let is_line = |part: &Range<usize>| part.start == 0 || text[..part.start].ends_with('\n');
                let are_lines = parts.iter().all(is_line);
                assert!(are_lines || line.len() > LONG_LINE as usize, "{length}");
                assert!(parts.iter().all(|part| !part.is_empty()), "{length}");
            }
        }
        assert_eq!(parts(b"a\n\nb").as_slice(), std::slice::from_ref(&(0..4)));
    }
}
