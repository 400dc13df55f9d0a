//! What a browser shows: pages of folders, containers and files, made here, and what their scripts ask for under `/-/`.
//!
//! Pages hold names and numbers, never bytes of pictures or arrays: those come from `/files/`, or in bounded answers
//! from `/-/api/`. Every name and text out of a container goes through `html::Html::text`.
//!
//! The server writes a page whole, with the address of the first frame of each camera in it, so the browser asks for
//! pictures before any script runs. The stylesheet and the script that sets the theme are inline, because nothing is
//! drawn before they are there; the page's policy names both by their hashes (`assets::policy`). Scripts of curves are
//! loaded when the first frames are shown. `tree::Overview` says whether a container is an episode, a table or a list
//! of items, so a new format needs no page of its own.
//!
//! Answers of `/-/api/`:
//!
//! | route | answer |
//! |---|---|
//! | `curve` | columns of an array over a range of rows: each row, or the smallest and largest value of each of 1500 buckets; statistics of the same rows |
//! | `distribution` | statistics and a histogram of a whole array, or of an even sample of 2^20 elements |
//! | `plane` | one picture of an array along any two axes, at most 1024 pixels a side: a line of JSON, then bytes, f32 or f64 |
//! | `rows` | rows of a table, of a folder of arrays of one length, or of an array: texts, column by column. For IDV columns whose rows differ in length, only blocks with these rows are read (`Container::rows`) |
//! | `texts` | what was said at each step |
//! | `marks`, `at` | how many messages a topic has when; its last message at a time, with the picture |
//! | `summary`, `neighbours` | the line about a container; the episodes before and after one |
//!
//! Pages and these answers are made whole, a few at once (`limits::PAGES_AT_ONCE`), and the cache's budget counts them
//! until they are sent (`Site::counted`).

mod assets;
mod cells;
mod curve;
mod distribution;
mod document;
mod elements;
mod episode;
mod folder;
mod html;
mod items;
mod meta;
mod numbers;
mod plane;
mod query;
mod recording;
mod summary;
mod table;
mod viewer;

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{Path as Captured, State},
    response::IntoResponse,
    routing::any,
};
use http::{header, request::Parts};
use serde::Serialize;

use super::{
    Refusal, Request, Response, Site,
    http::{body, paths},
};
use crate::volume::Entry;
use elements::Elements;
use query::Query;

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";

/// Answers with the page of a folder or container.
///
/// # Errors
/// [`Refusal`] if the folder can't be listed.
pub(super) async fn folder(site: &Arc<Site>, folder: &Entry, head: &Parts) -> Result<Response, Refusal> {
    let folder = folder.clone();
    let query = Query::parse(head.uri.query().unwrap_or_default());
    page(site, move |site| viewer::entry(&site.volume, &folder, &query)).await
}

/// Answers with the page of an error.
pub(super) fn refused(site: &Site, refusal: Refusal) -> Response {
    let (status, html) = viewer::refusal(&site.volume, &refusal);
    let headers = [(header::CONTENT_TYPE, HTML), (header::CONTENT_SECURITY_POLICY, assets::policy())];
    // The refusal has the other headers of its status.
    (status, headers, refusal.into_response().map(|_| Body::from(html.into_text()))).into_response()
}

/// Returns the routes under `/-/`: assets of the pages, pages of files, and `/-/api/`.
pub(super) fn routes() -> Router<Arc<Site>> {
    Router::new()
        .route("/assets/{version}/{name}", any(asset))
        .route("/view/", any(file))
        .route("/view/{*path}", any(file))
        .route("/problems", any(problems))
        .route("/metrics", any(metrics))
        .route("/api/{what}/", any(api))
        .route("/api/{what}/{*path}", any(api))
}

/// Returns the address of the page of a file.
fn address(file: &Entry) -> String {
    format!("/-/view/{}", paths::encode(file.path()))
}

/// Makes a page in a worker.
async fn page<F>(site: &Arc<Site>, make: F) -> Result<Response, Refusal>
where
    F: FnOnce(&Site) -> viewer::Made + Send + 'static,
{
    let made = site.make(move |site| {
        let (status, html) = make(site);
        Ok((status, html.into_parts()?))
    });
    let (status, parts) = made.await?;
    let body = body::made(site, parts).await?;
    Ok((status, [(header::CONTENT_SECURITY_POLICY, assets::policy())], answer(HTML, body)).into_response())
}

fn answer(media_type: &'static str, bytes: impl Into<Body>) -> Response {
    // Entries and damage may have changed by the next request.
    ([(header::CONTENT_TYPE, media_type), (header::CACHE_CONTROL, "no-cache")], bytes.into()).into_response()
}

async fn asset(Captured((version, name)): Captured<(String, String)>) -> Response {
    let Some(asset) = assets::find(&name) else { return Refusal::not_found().into_response() };
    let response = answer(asset.media_type, asset.bytes);
    if version != assets::version() {
        return response;
    }
    ([(header::CACHE_CONTROL, "public, max-age=31536000, immutable")], response).into_response()
}

async fn file(State(site): State<Arc<Site>>, request: Request) -> Response {
    let uri = request.uri();
    let address = uri.path().strip_prefix("/view").unwrap_or_default().to_owned();
    let query = Query::parse(uri.query().unwrap_or_default());
    let made = page(&site, move |site| match paths::find(&site.volume, &address) {
        Ok(entry) => viewer::entry(&site.volume, &entry, &query),
        Err(refusal) => viewer::refusal(&site.volume, &refusal),
    });
    made.await.unwrap_or_else(IntoResponse::into_response)
}

async fn problems(State(site): State<Arc<Site>>) -> Response {
    page(&site, |site| viewer::problems(&site.volume)).await.unwrap_or_else(IntoResponse::into_response)
}

/// Counters for Prometheus.
async fn metrics(State(site): State<Arc<Site>>) -> Response {
    let text = site.run(|site| site.volume.vfs().metrics().ok_or_else(Refusal::not_found)).await;
    text.map_or_else(IntoResponse::into_response, |text| answer("text/plain; version=0.0.4; charset=utf-8", text))
}

async fn api(State(site): State<Arc<Site>>, request: Request) -> Response {
    let uri = request.uri();
    // Captured paths would be decoded as UTF-8, which names of SOURCE need not be.
    let mut parts = uri.path().splitn(4, '/').skip(2).map(str::to_owned);
    let (what, address) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let query = Query::parse(uri.query().unwrap_or_default());
    site.make(move |site| answered(site, &what, &address, &query)).await.unwrap_or_else(|refusal| {
        let body = serde_json::json!({"error": refusal.text}).to_string();
        (refusal.status, answer(JSON, body)).into_response()
    })
}

fn answered(site: &Site, what: &str, address: &str, query: &Query) -> Result<Response, Refusal> {
    let entry = paths::find(&site.volume, address)?;
    let array = || -> Result<Elements, Refusal> { Elements::of(&entry)?.ok_or_else(Refusal::not_found) };
    match what {
        "summary" => json(site, &summary::summary(&entry)),
        "neighbours" => json(site, &episode::neighbours(&site.volume, &entry)?),
        "curve" => json(site, &curve::curve(&array()?, query)?),
        "distribution" => json(site, &distribution::distribution(&array()?)?),
        "texts" => json(site, &episode::texts(&array()?)?),
        "marks" => {
            let [first, last] = ["first", "last"].map(|name| query.number(name).unwrap_or(0));
            json(site, &recording::marks(&entry, (first, last))?.ok_or_else(Refusal::not_found)?)
        }
        "at" => {
            let time = query.number("time").unwrap_or(0);
            json(site, &recording::at(&entry, time)?.ok_or_else(Refusal::not_found)?)
        }
        "plane" => Ok(answer("application/octet-stream", site.counted(plane::plane(&array()?, query)?)?)),
        "rows" => json(site, &rows(&entry, query)?),
        _ => Err(Refusal::not_found()),
    }
}

fn rows(entry: &Entry, query: &Query) -> Result<serde_json::Value, Refusal> {
    let overview = entry.overview()?;
    let table = table::Table::of(entry, overview.as_deref(), &entry.inside())?;
    Ok(table.ok_or_else(Refusal::not_found)?.rows(query))
}

fn json(site: &Site, value: &impl Serialize) -> Result<Response, Refusal> {
    // Serializing cannot fail: keys are texts, and NaN becomes null.
    Ok(answer(JSON, site.counted(serde_json::to_vec(value).unwrap_or_default())?))
}
