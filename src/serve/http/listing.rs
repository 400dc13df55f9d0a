//! Listings of folders for programs, made as the client takes them: the objects that `shardfs ls --json` prints, or
//! links to files.

use std::{path::Path, sync::Arc};

use axum::response::IntoResponse;
use http::{HeaderMap, header};
use quick_xml::escape::escape;

use super::{body, paths};
use crate::{
    serve::{Refusal, Response, Site},
    vfs::namespace::listed,
    volume::{Entry, ErrorKind},
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
    let (media_type, begin, end) = match form {
        Form::Array => ("application/json", "[", "]\n"),
        Form::Lines => ("application/x-ndjson", "", ""),
        Form::Links => ("text/html; charset=utf-8", "<!doctype html><meta charset=utf-8><title>shardfs</title>\n", ""),
    };
    let (folder, mut entries, mut between) = (folder.clone(), folder.entries(), "\n");
    let listed = std::iter::from_fn(move || entries.next_named()).map(move |(name, found)| {
        let (path, entry) = match (name, found) {
            (_, Ok(entry)) if paths::is_shown(&entry) => (entry.path().to_path_buf(), Some(entry)),
            // This user may not read it, or it is gone.
            (_, Ok(_)) => return Ok(String::new()),
            (Some(_), Err(error)) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Changed) => {
                return Ok(String::new());
            }
            // It exists: a client would take an entry that is left out for removed.
            (Some(name), Err(_)) => (folder.path().join(name), None),
            (None, Err(error)) => return Err(error.into()),
        };
        Ok(match form {
            Form::Array => format!("{}{}", std::mem::replace(&mut between, ",\n"), json(&path, entry.as_ref())),
            Form::Lines => json(&path, entry.as_ref()) + "\n",
            Form::Links => {
                let address = paths::address_below("/files", &path, entry.is_some_and(|entry| entry.is_folder()));
                let name = escape(path.file_name().unwrap_or_default().to_string_lossy());
                format!("<a href=\"{address}\">{name}</a><br>\n")
            }
        })
    });
    let [begin, end] = [begin, end].map(|text| std::iter::once(Ok(text.to_owned())));
    let body = body::made(site, begin.chain(listed).chain(end)).await?;
    Ok(([(header::CONTENT_TYPE, media_type), (header::VARY, "accept")], body).into_response())
}

/// Returns what `shardfs ls --json` prints of an entry; of one that cannot be looked at, its name.
fn json(path: &Path, entry: Option<&Entry>) -> String {
    let info = entry.and_then(|entry| entry.item_info().ok().flatten());
    listed::to_json(path, entry.map(Entry::attr), &info.unwrap_or_default()).to_string()
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
