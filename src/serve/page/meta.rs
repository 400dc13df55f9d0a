//! Metadata as lists of names and values.
//!
//! A document takes up to fifty times its size in memory while it is parsed. The cache's budget counts that memory
//! meanwhile. Pages keep no documents.

use serde_json::{Map, Value};

use super::html::Html;
use crate::{escape::shortened, limits, volume::Entry};

/// Values that are shown of a document.
const VALUES: usize = 400;
/// Bytes of HTML after which nothing more of a document is shown.
const BYTES: usize = 128 << 10;
/// Characters of a text that are shown.
const TEXT: usize = 600;
/// Elements of a list of numbers or texts that are shown.
const ELEMENTS: usize = 32;
/// Most levels of objects within objects.
const DEPTH: usize = 8;

/// Returns a JSON document as HTML; `None` if it is malformed or too large, or memory is short.
pub(super) fn document(file: &Entry) -> Option<Html> {
    let size = Some(file.size()).filter(|&size| size <= limits::METADATA_JSON);
    shown(file, &size.and_then(|_| file.read().ok())?)
}

/// Returns the attributes of a group or an array as HTML; `None` if it has none, they are too large or can't be read.
pub(super) fn attributes(entry: &Entry) -> Option<Html> {
    let bytes = entry.attributes().ok()??;
    shown(entry, &bytes)
}

fn shown(entry: &Entry, document: &[u8]) -> Option<Html> {
    let size = Some(document.len() as u64).filter(|&size| size <= limits::METADATA_JSON)?;
    let _room = entry.vfs().cache().reserve(size * limits::JSON_ROOM).ok()?;
    let document: Map<String, Value> = serde_json::from_slice(document).ok()?;
    let (mut html, mut left) = (Html::default(), VALUES);
    write_object(&mut html, &document, DEPTH, &mut left);
    if left == 0 {
        html.raw("<p class=\"empty\">There is more in the files below.</p>");
    }
    Some(html)
}

fn write_object(html: &mut Html, object: &Map<String, Value>, depth: usize, left: &mut usize) {
    html.raw("<dl>");
    for (name, value) in object {
        if *left == 0 {
            break;
        }
        *left = if html.len() < BYTES { *left - 1 } else { 0 };
        html.fill("<div><dt>{}</dt><dd>", &[&shortened(name, TEXT)]);
        write_value(html, value, depth, left);
        html.raw("</dd></div>");
    }
    html.raw("</dl>");
}

fn write_value(html: &mut Html, value: &Value, depth: usize, left: &mut usize) {
    match value {
        Value::Null => html.raw("<span class=\"missing\">none</span>"),
        Value::Object(object) if depth > 0 => {
            write_object(html, object, depth - 1, left);
            html
        }
        Value::Array(list) if list.iter().all(|value| !value.is_object() && !value.is_array()) => {
            let shown: Vec<String> = list.iter().take(ELEMENTS).map(flat).collect();
            let more = if list.len() > ELEMENTS { format!(", … {} in all", list.len()) } else { String::new() };
            html.text(&shown.join(", ")).text(&more)
        }
        Value::Object(_) | Value::Array(_) => html.text(&shortened(&value.to_string(), TEXT)),
        value => html.text(&flat(value)),
    };
}

fn flat(value: &Value) -> String {
    match value {
        Value::String(text) => shortened(text, TEXT),
        value => value.to_string(),
    }
}
