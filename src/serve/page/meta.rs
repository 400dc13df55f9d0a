//! Metadata as lists of names and values.

use serde_json::{Map, Value};

use super::html::Html;

/// Values that are shown of all documents together.
const VALUES: usize = 400;
/// Characters of a text that are shown.
const TEXT: usize = 600;
/// Elements of a list of numbers or texts that are shown.
const ELEMENTS: usize = 32;
/// Objects within objects.
const DEPTH: usize = 8;

/// Writes documents one below another, each under its name.
pub(super) fn write(html: &mut Html, documents: &[(String, Map<String, Value>)]) {
    let mut left = VALUES;
    for (name, document) in documents {
        html.raw("<h2>").text(name).raw("</h2>");
        write_object(html, document, DEPTH, &mut left);
    }
    if left == 0 {
        html.raw("<p class=\"empty\">There is more in the files below.</p>");
    }
}

fn write_object(html: &mut Html, object: &Map<String, Value>, depth: usize, left: &mut usize) {
    html.raw("<dl>");
    for (name, value) in object {
        if *left == 0 {
            break;
        }
        *left -= 1;
        html.raw("<div><dt>").text(name).raw("</dt><dd>");
        write_value(html, value, depth, left);
        html.raw("</dd></div>");
    }
    html.raw("</dl>");
}

fn write_value(html: &mut Html, value: &Value, depth: usize, left: &mut usize) {
    match value {
        Value::Null => html.raw("<span class=\"missing\">none</span>"),
        Value::String(text) => html.text(&super::summary::shortened(text, TEXT)),
        Value::Object(object) if depth > 0 => {
            write_object(html, object, depth - 1, left);
            html
        }
        Value::Array(list) if list.iter().all(|value| !value.is_object() && !value.is_array()) => {
            let shown: Vec<String> = list.iter().take(ELEMENTS).map(flat).collect();
            let more = if list.len() > ELEMENTS { format!(", … {} in all", list.len()) } else { String::new() };
            html.text(&shown.join(", ")).text(&more)
        }
        Value::Object(_) | Value::Array(_) => html.text(&super::summary::shortened(&value.to_string(), TEXT)),
        value => html.text(&value.to_string()),
    };
}

fn flat(value: &Value) -> String {
    match value {
        Value::String(text) => super::summary::shortened(text, TEXT),
        value => value.to_string(),
    }
}
