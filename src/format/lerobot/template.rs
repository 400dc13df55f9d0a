//! Paths of files as Python format strings.

use std::fmt::Write;

use super::{Class, FormatError};

/// Most digits that a number is padded to.
const WIDTH: usize = 64;

/// A part of a path that differs from file to file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// `episode_chunk` (v2).
    EpisodeChunk,
    /// `episode_index` (v2).
    EpisodeIndex,
    /// `chunk_index` (v3).
    ChunkIndex,
    /// `file_index` (v3).
    FileIndex,
    /// `video_key`.
    VideoKey,
}

const FIELDS: [(&str, Field); 5] = [
    ("episode_chunk", Field::EpisodeChunk),
    ("episode_index", Field::EpisodeIndex),
    ("chunk_index", Field::ChunkIndex),
    ("file_index", Field::FileIndex),
    ("video_key", Field::VideoKey),
];

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// A field, the least number of characters, and what fills them.
    Field(Field, usize, char),
}

/// A path with fields in it.
#[derive(Debug, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

impl Template {
    /// Reads a template that may have these fields.
    pub(super) fn parse(text: &str, known: &[Field]) -> Result<Self, FormatError> {
        let refused = |reason: String| Err(FormatError::refused(Class::BadTemplate, reason));
        let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            plain.push_str(before);
            if let Some(after) = from.strip_prefix("{{").or_else(|| from.strip_prefix("}}")) {
                plain.push_str(&from[..1]);
                rest = after;
                continue;
            }
            let field = from.strip_prefix('{').and_then(|from| from.split_once('}'));
            let Some((field, after)) = field else { return refused(format!("{text:?} has a brace without another")) };
            let (name, form) = field.split_once(':').unwrap_or((field, ""));
            let found = FIELDS.iter().find(|(known, _)| *known == name).map(|(_, field)| *field);
            let Some(found) = found.filter(|field| known.contains(field)) else {
                return refused(format!("{text:?} has the field {field:?}, which is not known"));
            };
            let Some((width, fill)) = form_of(found, form) else {
                return refused(format!("{text:?} has the field {field:?} in a form that is not known"));
            };
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Field(found, width, fill));
            rest = after;
        }
        plain.push_str(rest);
        pieces.push(Piece::Text(plain));
        Ok(Self(pieces))
    }

    /// Returns the path with each field replaced by its text: a number, or the key of a video. Returns `None` if the
    /// path is empty or absolute, or has a part `..`.
    pub fn path(&self, value: impl Fn(Field) -> Option<String>) -> Option<String> {
        let mut path = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => path.push_str(text),
                Piece::Field(field, width, fill) => {
                    let value = value(*field)?;
                    // Writing to a string cannot fail.
                    let _ = match fill {
                        '0' => write!(path, "{value:0>width$}"),
                        _ => write!(path, "{value:>width$}"),
                    };
                }
            }
        }
        let leads_out = path.is_empty() || path.starts_with('/') || path.split('/').any(|part| part == "..");
        (!leads_out && !path.contains('\0')).then_some(path)
    }
}

/// Returns the width and the fill character of a format specification: empty, `d`, `0Nd` or `Nd`.
fn form_of(field: Field, form: &str) -> Option<(usize, char)> {
    if form.is_empty() {
        return Some((0, ' '));
    }
    let digits = form.strip_suffix('d').filter(|_| field != Field::VideoKey)?;
    let fill = if digits.starts_with('0') { '0' } else { ' ' };
    if digits.is_empty() {
        return Some((0, fill));
    }
    let width = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<usize>().ok())??;
    (width <= WIDTH).then_some((width, fill))
}

#[cfg(test)]
mod tests {
    use super::*;

    const V3: [Field; 3] = [Field::ChunkIndex, Field::FileIndex, Field::VideoKey];

    fn path(template: &str, key: &str) -> Option<String> {
        let template = Template::parse(template, &V3).unwrap();
        template.path(|field| Some(if field == Field::VideoKey { key.into() } else { "7".into() }))
    }

    #[test]
    fn paths_of_python_s_format() {
        assert_eq!(path("d/{chunk_index:03d}/f-{file_index}.p", "").unwrap(), "d/007/f-7.p");
        assert_eq!(path("{{{video_key}}}/{file_index:3d}{file_index:d}", "a/b").unwrap(), "{a/b}/  77");
        for gone in ["/a", "../a", "a/../b", "", "{video_key}/a"] {
            assert_eq!(path(gone, ".."), None, "{gone}");
        }
        assert_eq!(path("a/..b", ""), Some("a/..b".into()));
    }

    #[test]
    fn other_fields_and_forms_are_refused() {
        for text in [
            "{episode_index}",
            "{other}",
            "{file_index.x}",
            "{file_index[0]}",
            "{file_index!r}",
            "{file_index:x}",
            "{file_index:+d}",
            "{file_index:99999999999999999999d}",
            "{video_key:3d}",
            "{}",
            "{file_index",
            "a}",
            "{file_index:{video_key}}",
        ] {
            assert!(Template::parse(text, &V3).is_err(), "{text}");
        }
    }
}
