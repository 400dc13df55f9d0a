//! What a browser shows: pages of folders, and what stands under `/-/`.

use std::sync::Arc;

use axum::{Router, body::Body};
use http::{HeaderValue, header, request::Parts};

use super::{Refusal, Response, Site, paths};
use crate::volume::Entry;

/// The page of a folder or container.
///
/// # Errors
/// [`Refusal`] where the folder can't be listed.
pub(super) async fn folder(site: &Arc<Site>, folder: &Entry, _head: &Parts) -> Result<Response, Refusal> {
    let folder = folder.clone();
    let html = site.run(move |_| listed(&folder)).await?;
    let mut response = Response::new(Body::from(html));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    Ok(response)
}

fn listed(folder: &Entry) -> Result<String, Refusal> {
    let mut html = String::from("<!doctype html><html lang=en><meta charset=utf-8><title>shardfs</title><ul>");
    for entry in folder.entries().filter_map(Result::ok).filter(paths::is_shown) {
        let name = entry.name().to_string_lossy().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        html += &format!("<li><a href=\"{}\">{name}</a>", paths::address(&entry));
    }
    Ok(html + "</ul>\n")
}

/// Everything under `/-/`: assets of the pages, and `/-/api/`.
pub(super) fn routes() -> Router<Arc<Site>> {
    Router::new()
}
