//! Files that are no arrays: JSON, text, pictures, bytes.

use std::path::Path;

use super::{
    html::{self, Html},
    query::Query,
};
use crate::{
    serve::http::paths,
    volume::{Entry, Error},
};

/// Bytes of text on a page.
const TEXT: u64 = 256 << 10;
/// Bytes of a JSON document that is shown folded; longer ones are shown as text.
const JSON: u64 = 2 << 20;
/// Bytes of a page of bytes, and of one of its lines.
const BYTES: u64 = 4096;
const LINE: usize = 16;

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
            html.raw(r#"<pre class="source" tabindex="0">"#).file(file).raw("</pre></div>");
            Ok(())
        }
        Kind::Json | Kind::Text => write_text(html, file, query),
        Kind::Bytes => write_bytes(html, file, query),
    }
}

fn write_text(html: &mut Html, file: &Entry, query: &Query) -> Result<(), Error> {
    let at = query.number("at").unwrap_or(0).min(file.size());
    let mut bytes = file.read_range(at, TEXT)?;
    // A part ends at the end of a line, or of a character if it has no line break.
    if at + (bytes.len() as u64) < file.size() {
        let line = bytes.iter().rposition(|&byte| byte == b'\n').map(|end| end + 1);
        let end = line.unwrap_or_else(|| match std::str::from_utf8(&bytes) {
            Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
            _ => bytes.len(),
        });
        bytes.truncate(end);
    }
    let next = at + bytes.len() as u64;
    if bytes.is_empty() {
        html.raw("<p class=\"empty\">This file is empty.</p>");
    } else {
        html.fill(r#"<pre class="source" tabindex="0">{}</pre>"#, &[&String::from_utf8_lossy(&bytes)]);
    }
    write_links(html, file, at, next, TEXT);
    Ok(())
}

fn write_bytes(html: &mut Html, file: &Entry, query: &Query) -> Result<(), Error> {
    let at = query.number("at").unwrap_or(0).min(file.size()) / LINE as u64 * LINE as u64;
    let bytes = file.read_range(at, BYTES)?;
    if bytes.is_empty() {
        html.raw("<p class=\"empty\">This file is empty.</p>");
        return Ok(());
    }
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
    write_links(html, file, at, at + bytes.len() as u64, BYTES);
    Ok(())
}

/// Links to the parts before and after the one that is shown.
fn write_links(html: &mut Html, file: &Entry, at: u64, next: u64, step: u64) {
    if at == 0 && next >= file.size() {
        return;
    }
    let address = |at: u64| format!("?at={at}");
    let here = [at, next, file.size()].map(html::grouped);
    let here = format!("{} – {} of {} bytes", here[0], here[1], here[2]);
    let before = (at > 0).then(|| address(at.saturating_sub(step)));
    html.links("Parts of the file", before, &here, (next < file.size()).then(|| address(next)));
}
