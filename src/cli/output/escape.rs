//! Text from outside (names on a disk, mounts of other programs, messages that quote them) as it may be printed.
//!
//! A name can hold anything but a zero byte. Printed as it is, a line break forges a line of a log, and an escape
//! sequence moves a terminal's cursor. So control characters are printed as `\n` and `\u{1b}`.

use std::{
    ffi::{OsStr, OsString},
    fmt::Write,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
};

use serde::Serialize;

pub(in crate::cli) use crate::escape::{escaped, is_printable, with_hex};

/// Returns a path as [`escaped`] text. Bytes that are not UTF-8 become U+FFFD.
pub(in crate::cli) fn path(path: &Path) -> String {
    escaped(&path.to_string_lossy())
}

/// A name as it is; for a terminal, with `?` for each character that would do something to it (as `ls` of coreutils).
pub(in crate::cli) fn name(name: &OsStr, is_terminal: bool) -> OsString {
    if !is_terminal {
        return name.to_owned();
    }
    let mut shown = Vec::with_capacity(name.len());
    for chunk in name.as_bytes().utf8_chunks() {
        let valid = chunk.valid().chars().map(|c| if is_printable(c) { c } else { '?' });
        shown.extend(valid.collect::<String>().into_bytes());
        shown.extend(chunk.invalid().iter().map(|_| b'?'));
    }
    OsString::from_vec(shown)
}

/// JSON that means the same, and in which nothing does something to a terminal. Its line breaks stay.
pub(in crate::cli) fn json(text: &str) -> String {
    let mut json = String::with_capacity(text.len());
    for c in text.chars() {
        if is_printable(c) || c == '\n' {
            json.push(c);
        } else {
            // All of them have 16 bits. Outside of strings JSON has none.
            let _ = write!(json, "\\u{:04x}", u32::from(c));
        }
    }
    json
}

/// Writes a value as JSON, for people to read, and the line's end.
///
/// # Errors
/// What writing says.
pub(in crate::cli) fn write_json(out: &mut impl std::io::Write, value: &impl Serialize) -> anyhow::Result<()> {
    Ok(writeln!(out, "{}", json(&serde_json::to_string_pretty(value)?))?)
}

/// Returns a path as a word for a shell's command line, which can be copied from a terminal.
pub(in crate::cli) fn shell_word(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+:@%,=".contains(byte);
    match path.to_str() {
        Some(text) if !text.is_empty() && bytes.iter().all(plain) => text.to_owned(),
        Some(text) if text.chars().all(is_printable) => format!("'{}'", text.replace('\'', r"'\''")),
        _ => {
            // bash, zsh and the next POSIX standard understand this.
            let mut word = String::from("$'");
            for &byte in bytes {
                match byte {
                    b'\'' | b'\\' => word.extend(['\\', byte.into()]),
                    b' '..=b'~' => word.push(byte.into()),
                    _ => drop(write!(word, "\\{byte:03o}")),
                }
            }
            word + "'"
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escaped("a b\n\x1b[2Jc\u{9b}d\u{202e}é"), r"a b\n\u{1b}[2Jc\u{9b}d\u{202e}é");
        assert_eq!(path(Path::new(OsStr::from_bytes(b"a\xff\r"))), "a\u{fffd}\\r");
        assert_eq!(name(OsStr::new("a\x1b[31m\u{e9}\n"), true), OsString::from("a?[31m\u{e9}?"));
        assert_eq!(name(OsStr::new("a\x1b"), false), OsString::from("a\x1b"));
        let value = serde_json::json!({"a": "\x1b\u{9b}\u{7f}\u{202e}\né"});
        let text = json(&format!("{value:#}"));
        assert_eq!(text, "{\n  \"a\": \"\\u001b\\u009b\\u007f\\u202e\\né\"\n}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    #[test]
    fn a_shell_reads_words_as_they_were() {
        for name in [&b"/mnt/a"[..], b"/mnt/my data", b"it's", b"a\nb", b"\x1b[2J'\\", b"\xff\xfe", b"$HOME `x` *"] {
            let word = shell_word(Path::new(OsStr::from_bytes(name)));
            let said = Command::new("bash").arg("-c").arg(format!("printf %s {word}")).output().unwrap();
            assert_eq!(said.stdout, name, "{word}");
            assert_eq!(word, escaped(&word));
        }
    }
}
