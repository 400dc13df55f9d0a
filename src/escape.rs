//! Names of any bytes as names that a filesystem takes: what `docs/TREE.md`, section 2, Names, says of one part of a path.

use std::{os::unix::ffi::OsStrExt, path::Path};

use serde_json::Value;
use xxhash_rust::xxh64::xxh64;

/// Longest name that Linux takes, in bytes.
pub const NAME_MAX: usize = 255;

/// Rule 2: escapes what a file name cannot or should not hold as `%XX`, and spells out `.`, `..` and the empty name.
/// Stops soon after the longest possible name; [`fit`] cuts it.
pub(crate) fn escape(part: &[u8]) -> String {
    match part {
        b"" => return "%empty".into(),
        b"." => return "%2E".into(),
        b".." => return "%2E%2E".into(),
        _ => {}
    }
    let is_escaped = |byte: &u8| matches!(byte, b'%' | b'/' | 0..=0x1f | 0x7f);
    if part.len() <= NAME_MAX
        && !part.iter().any(is_escaped)
        && let Ok(name) = str::from_utf8(part)
    {
        return name.into();
    }
    percent(part, |c| matches!(c, '%' | '/' | '\0'..='\x1f' | '\x7f'), NAME_MAX)
}

/// Returns a text with some characters, and bytes that are not UTF-8, as `%XX`. Stops soon after `most` bytes.
fn percent(part: &[u8], is_escaped: impl Fn(char) -> bool, most: usize) -> String {
    let mut text = String::with_capacity(part.len());
    for chunk in part.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_escaped(c) {
                text.push_str(&format!("%{:02X}", u32::from(c)));
            } else {
                text.push(c);
            }
            if text.len() > most {
                return text;
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("%{byte:02X}")));
        if text.len() > most {
            return text;
        }
    }
    text
}

/// Rule 4: a name that is too long keeps what fits and ends with the hash of the whole part.
pub(crate) fn fit(mut name: String, part: &[u8], suffix: &str) -> String {
    if name.len() + suffix.len() > NAME_MAX {
        name = cut(name, &hashed(part), suffix);
    }
    name.push_str(suffix);
    name
}

/// Returns the hash of a whole part, as it stands at the end of a name that is too long.
pub(crate) fn hashed(part: &[u8]) -> String {
    format!("%~{:016x}", xxh64(part, 0))
}

/// Returns what fits of a name, with a tail at its end, so that a suffix fits as well.
pub(crate) fn cut(mut name: String, tail: &str, suffix: &str) -> String {
    let room = NAME_MAX.saturating_sub(tail.len() + suffix.len());
    name.truncate(whole_units(&name, room));
    name.push_str(tail);
    name
}

/// Returns the most bytes of `name`, up to `room`, that end on whole characters and whole escapes.
fn whole_units(name: &str, room: usize) -> usize {
    let mut end = 0;
    let mut rest = name.char_indices();
    while let Some((at, c)) = rest.next() {
        let mut next = at + c.len_utf8();
        if c == '%' {
            // `%XX`. The only longer escape, `%empty`, is a whole name and short.
            next = rest.nth(1).map_or(name.len(), |(at, c)| at + c.len_utf8());
        }
        if next > room {
            break;
        }
        end = next;
    }
    end
}

/// Returns bytes as hexadecimal digits, two each.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// Returns a JSON object with the bytes of the path that stands at `key` as `<key>_hex`, if they are not UTF-8: the text
/// has U+FFFD in their place.
pub(crate) fn with_hex(mut object: Value, key: &str, path: &Path) -> Value {
    if path.to_str().is_none() {
        object[format!("{key}_hex")] = hex(path.as_os_str().as_bytes()).into();
    }
    object
}

/// Escapes a part of any length without cutting it: for messages, and for comparisons by text.
pub(crate) fn escape_all(part: &[u8]) -> String {
    percent(part, |c| matches!(c, '%' | '\0'..='\x1f' | '\x7f'), usize::MAX)
}

/// Escapes only bytes that are not UTF-8.
pub(crate) fn escape_bytes(part: &[u8]) -> String {
    percent(part, |_| false, usize::MAX)
}

/// Returns whether a character is printed as it is. Control characters are not, nor those that change the direction of
/// text or break lines.
#[cfg(feature = "cli")]
pub(crate) fn is_printable(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Returns the first `most` characters of a text.
#[cfg(feature = "cli")]
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns a text on one line, with control characters escaped.
#[cfg(feature = "cli")]
pub(crate) fn escaped(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if is_printable(c) { line.push(c) } else { line.extend(c.escape_default()) }
    }
    line
}
