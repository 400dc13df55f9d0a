//! `/files/…`: every path of docs/TREE.md.

use std::sync::Arc;

use axum::{extract::State, response::IntoResponse};
use http::{HeaderValue, Method, header, request::Parts};

use super::{Refusal, Request, Response, Site, body, listing, page, paths, types};
use crate::volume::{Entry, EntryKind};

/// Answers a request below `/files`.
pub(super) async fn answer(State(site): State<Arc<Site>>, request: Request) -> Response {
    // What is sent along with a request for a file has no meaning.
    let (head, _) = request.into_parts();
    answered(&site, head).await.unwrap_or_else(IntoResponse::into_response)
}

async fn answered(site: &Arc<Site>, head: Parts) -> Result<Response, Refusal> {
    if ![Method::GET, Method::HEAD].contains(&head.method) {
        return Err(Refusal::method());
    }
    let address = head.uri.path().strip_prefix("/files").unwrap_or_default().to_owned();
    let entry = site.run(move |site| paths::find(&site.volume, &address)).await?;
    match entry.kind() {
        EntryKind::Folder if listing::wants_json(&head.headers) => Ok(listing::answer(site, &entry)),
        EntryKind::Folder => page::folder(site, &entry, &head).await,
        EntryKind::File => Ok(file(site, &entry, &head)),
        EntryKind::Link => Err(Refusal::not_found()),
    }
}

fn file(site: &Arc<Site>, entry: &Entry, head: &Parts) -> Response {
    let body = match head.method {
        Method::HEAD => axum::body::Body::empty(),
        _ => body::of_range(site.clone(), entry.clone(), 0, entry.size()),
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, entry.size().into());
    let (media_type, _) = types::media_type(entry.name());
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
