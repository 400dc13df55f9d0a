//! Listings of folders for programs, made as the client takes them: the objects that `shardfs ls --json` prints, or
//! links to files.

use std::sync::Arc;

use axum::response::IntoResponse;
use http::{HeaderMap, header};

use super::{body, paths};
use crate::{
    serve::{Refusal, Response, Site},
    vfs::namespace::listed,
    volume::{Entries, Entry, ErrorKind},
};

/// How a listing is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::serve) enum Form {
    /// One JSON array.
    Array,
    /// One JSON object per line.
    Lines,
    /// HTML with a link to each entry itself, for programs that follow links.
    Links,
}

/// Returns the form that a client wants; `None` for a page, because browsers ask for HTML by its name.
pub(in crate::serve) fn wanted(headers: &HeaderMap) -> Option<Form> {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let (mut array, mut lines, mut html) = (0.0, 0.0, 0.0);
    for range in accepted.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let wanted = match parts.next().unwrap_or_default().to_ascii_lowercase().as_str() {
            "application/json" => &mut array,
            "application/x-ndjson" => &mut lines,
            "text/html" | "application/xhtml+xml" => &mut html,
            _ => continue,
        };
        let quality = parts.find_map(|part| part.strip_prefix("q=")).map_or(Ok(1.0), str::parse);
        *wanted = f64::max(*wanted, quality.unwrap_or(0.0));
    }
    match f64::max(array, lines) {
        json if html > 0.0 && json < html => None,
        json if json <= 0.0 => Some(Form::Links),
        _ if lines > array => Some(Form::Lines),
        _ => Some(Form::Array),
    }
}

/// Answers with the entries of a folder.
///
/// # Errors
/// [`Refusal`] if the first of them can't be listed.
pub(in crate::serve) async fn answer(site: &Arc<Site>, folder: &Entry, form: Form) -> Result<Response, Refusal> {
    let begin = Rest { form, folder: folder.clone(), entries: folder.entries(), is_begun: false, has_some: false };
    let body = body::made(site, begin, Rest::piece).await?;
    let media_type = match form {
        Form::Array => "application/json",
        Form::Lines => "application/x-ndjson",
        Form::Links => "text/html; charset=utf-8",
    };
    Ok(([(header::CONTENT_TYPE, media_type), (header::VARY, "accept")], body).into_response())
}

/// A listing that is under way.
struct Rest {
    form: Form,
    folder: Entry,
    entries: Entries,
    /// Whether the text before the entries was written.
    is_begun: bool,
    /// Whether any entry was written.
    has_some: bool,
}

impl Rest {
    /// Returns the next entries, and what is left.
    fn piece(mut self) -> Result<(Vec<u8>, Option<Self>), Refusal> {
        let form = self.form;
        let mut text = Vec::new();
        if !self.is_begun {
            text.extend_from_slice(match form {
                Form::Array => b"[",
                Form::Lines => b"",
                Form::Links => b"<!doctype html><meta charset=utf-8><title>shardfs</title>\n",
            });
        }
        self.is_begun = true;
        for _ in 0..body::PIECE_ENTRIES {
            if text.len() >= body::PIECE_BYTES {
                break;
            }
            let Some((name, found)) = self.entries.next_named() else {
                text.extend_from_slice(if form == Form::Array { b"]\n" } else { b"" });
                return Ok((text, None));
            };
            let (path, entry) = match (name, found) {
                (_, Ok(entry)) if paths::is_shown(&entry) => (entry.path().to_path_buf(), Some(entry)),
                // This user may not read it, or it is gone.
                (_, Ok(_)) => continue,
                (Some(_), Err(error)) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Changed) => {
                    continue;
                }
                // It exists: a client would take an entry that is left out for removed.
                (Some(name), Err(_)) => (self.folder.path().join(name), None),
                (None, Err(error)) => return Err(error.into()),
            };
            if form == Form::Links {
                let address = paths::address_below("/files", &path, entry.is_some_and(|entry| entry.is_folder()));
                let name = escaped(&path.file_name().unwrap_or_default().to_string_lossy());
                text.extend_from_slice(format!("<a href=\"{address}\">{name}</a><br>\n").as_bytes());
                continue;
            }
            if form == Form::Array {
                text.extend_from_slice(if self.has_some { b",\n" } else { b"\n" });
            }
            self.has_some = true;
            let info = entry.as_ref().and_then(|entry| entry.item_info().ok().flatten());
            let attr = entry.as_ref().map(Entry::attr);
            text.extend_from_slice(listed::to_json(&path, attr, &info.unwrap_or_default()).to_string().as_bytes());
            if form == Form::Lines {
                text.push(b'\n');
            }
        }
        Ok((text, Some(self)))
    }
}

/// Escapes text for HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn forms() {
        let wanted = |accept| wanted(&HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]));
        let page = ["text/html,application/xhtml+xml,*/*;q=0.8", "text/html, application/json;q=0.9"];
        assert!(page.iter().all(|accept| wanted(accept).is_none()));
        assert!(["*/*", "application/json;q=0", "image/png"].iter().all(|accept| wanted(accept) == Some(Form::Links)));
        let array =
            ["application/json", "application/json, text/plain, */*", "text/html;q=0.5, Application/JSON;q=0.9"];
        assert!(array.iter().all(|accept| wanted(accept) == Some(Form::Array)));
        assert_eq!(wanted("application/x-ndjson"), Some(Form::Lines));
        assert_eq!(wanted("application/x-ndjson, application/json"), Some(Form::Array));
    }
}
