//! The tree over HTTP and WebDAV: one more thin adapter to `vfs`, beside `fuse`. Runs without a mount and without
//! privileges.
//!
//! `http/connections` takes requests, `http/access` lets them in. What they ask of the filesystem runs in threads that may
//! wait for a disk or a decoder ([`Site::run`]), and a file's bytes are read piece by piece as the client takes them
//! (`http/body`).

mod dav;
mod http;
mod page;

use std::{
    any::Any,
    io,
    net::TcpListener,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use ::http::{HeaderName, HeaderValue, Method, StatusCode, header, request::Parts};
use axum::{
    Router,
    body::Body,
    response::{IntoResponse, Redirect},
    routing::any,
};
use bytes::Bytes;
use futures_util::FutureExt;
use hyper_util::service::TowerToHyperService;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::{
    cache::Buffer,
    limits,
    pool::{self, pool},
    runtime::runtime,
    vfs::Vfs,
    volume::Volume,
};
pub(crate) use http::access::{Access, random_hex};
use http::{
    connections::{self, Place},
    files,
    recent::Recent,
    refusal::Refusal,
};
pub(crate) use http::{paths::encode, tls::Tls};

/// A request, whose body has not been read.
pub(crate) type Request = ::http::Request<Body>;
/// An answer, whose body is made as the client takes it.
pub(crate) type Response = ::http::Response<Body>;

/// Content-Security-Policy of answers without one of their own. Everything comes from this server, and inline scripts
/// and styles do not apply.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
                      media-src 'self'; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; \
                      frame-ancestors 'none'";

/// Longest wait of a request for its turn.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often files that are gone are closed.
const SWEEP: Duration = Duration::from_secs(5);
/// Longest wait for changes before that thread checks whether the filesystem is still in use.
const LOOK_UP: Duration = Duration::from_secs(2);

/// What all requests share.
pub(crate) struct Site {
    /// What is shown.
    pub(crate) volume: Volume,
    access: Access,
    /// How connections are encrypted, if they are.
    tls: Option<Tls>,
    /// Places for requests that work in a thread that may wait.
    requests: Arc<Semaphore>,
    /// Places for work that needs more memory than a piece of a file.
    pages: Arc<Semaphore>,
    recent: Recent,
}

impl Site {
    /// Returns a site that shows a filesystem, encrypted if there is a certificate.
    pub(crate) fn new(vfs: Arc<Vfs>, access: Access, tls: Option<Tls>) -> Arc<Self> {
        let [requests, pages] =
            [limits::REQUESTS_AT_ONCE, limits::PAGES_AT_ONCE].map(|most| Arc::new(Semaphore::new(most)));
        Arc::new(Self { volume: Volume::of(vfs), access, tls, requests, pages, recent: Recent::new() })
    }

    /// Runs `work`, which may wait for a disk or a decoder, in a thread of the pool. That bounds the number of threads, not
    /// memory: decoded bytes share the cache's budget.
    ///
    /// # Errors
    /// Those of `work`; [`Refusal::busy`] if no thread is free in time; a refusal with status 500 if `work` panics.
    pub(crate) async fn run<T, F>(self: &Arc<Self>, work: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: FnOnce(&Arc<Self>) -> Result<T, Refusal> + Send + 'static,
    {
        let (site, place, (sender, done)) = (self.clone(), place(&self.requests).await?, oneshot::channel());
        pool().run(pool::Place::Task("requests"), Arc::default(), move || {
            // Kept until the work is done, even if its client is gone.
            let _place = place;
            let work = catch_unwind(AssertUnwindSafe(|| work(&site)));
            let _ = sender.send(work.unwrap_or_else(|panicked| Err(site.fault(&*panicked))));
        });
        done.await.unwrap_or_else(|_| Err(self.fault(&"it was not begun")))
    }

    /// Runs `work` like [`Self::run`], but only a few at once: pages, and pieces of answers made as the client takes
    /// them.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub(crate) async fn make<T, F>(self: &Arc<Self>, work: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: FnOnce(&Arc<Self>) -> Result<T, Refusal> + Send + 'static,
    {
        let place = place(&self.pages).await?;
        self.run(move |site| {
            let _place = place;
            work(site)
        })
        .await
    }

    /// Notes a panic, and returns the answer to its request.
    fn fault(&self, panicked: &(dyn Any + Send)) -> Refusal {
        let text = panicked.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panicked.downcast_ref::<String>().map(String::as_str));
        self.volume.vfs().note_panic(text.unwrap_or("a panic without a text"));
        Refusal::fault()
    }

    /// Returns bytes of an answer that the cache's budget counts until they are sent.
    ///
    /// # Errors
    /// [`Refusal::busy`] if there is no room for them.
    fn counted(&self, bytes: Vec<u8>) -> Result<Bytes, Refusal> {
        let mut room = self.volume.vfs().cache().reserve(bytes.len() as u64).map_err(|_| Refusal::busy())?;
        // The client may take them slowly.
        room.hold();
        Ok(Bytes::from_owner(Buffer::from(bytes).with_room(room)))
    }
}

/// Waits for a place. Dropping it frees it.
///
/// # Errors
/// [`Refusal::busy`] if none is free in time.
async fn place(places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Refusal> {
    let place = tokio::time::timeout(PATIENCE, places.clone().acquire_owned()).await;
    place.ok().and_then(Result::ok).ok_or_else(Refusal::busy)
}

/// Serves a site until `ended` completes, and then gives up the requests that are under way.
///
/// # Errors
/// When the threads can't be started.
pub(crate) fn serve(site: &Arc<Site>, listener: TcpListener, ended: impl Future<Output = ()>) -> io::Result<()> {
    let vfs = Arc::downgrade(site.volume.vfs());
    std::thread::Builder::new().name("changes".into()).spawn(move || look_after(&vfs))?;
    listener.set_nonblocking(true)?;
    let handler = Arc::new(Handler { site: site.clone(), router: TowerToHyperService::new(router(site)) });
    runtime()?.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tokio::select! {
            () = connections::accept(listener, handler) => Ok(()),
            () = ended => Ok(()),
        }
    })
}

fn router(site: &Arc<Site>) -> Router {
    Router::new()
        .route("/", any(async || Redirect::temporary("/files/")).options(dav::answer))
        .route("/dav", any(dav::answer))
        .route("/dav/", any(dav::answer))
        .route("/dav/{*path}", any(dav::answer))
        .nest("/-", page::routes())
        .fallback(async || Refusal::not_found())
        .with_state(site.clone())
}

/// Answers requests.
struct Handler {
    site: Arc<Site>,
    router: TowerToHyperService<Router>,
}

impl Handler {
    /// Answers a request. If the answer takes too long to begin, or panics, only this request fails.
    async fn answer(&self, request: ::http::Request<hyper::body::Incoming>, place: &Place) -> Response {
        let (head, body) = request.into_parts();
        // The query may hold a token.
        let asked = log::log_enabled!(log::Level::Debug).then(|| format!("{} {}", head.method, head.uri.path()));
        let is_head = head.method == Method::HEAD;
        let admitted = check_coding(&head).and_then(|()| self.site.access.admit(&head));
        let mut response = match admitted {
            Err(mut answer) => {
                // Nothing more is read from a client that was refused.
                if answer.status().is_client_error() {
                    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                *answer
            }
            Ok(()) => {
                place.set_known();
                let answered = AssertUnwindSafe(self.routed(head, body)).catch_unwind();
                match tokio::time::timeout(Duration::from_secs(limits::ANSWER_SECONDS), answered).await {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(panicked)) => self.site.fault(&*panicked).into_response(),
                    Err(_) => Refusal::new(StatusCode::GATEWAY_TIMEOUT, "no answer in time").into_response(),
                }
            }
        };
        harden(&mut response);
        if let Some(asked) = asked {
            log::debug!("{asked}: {}", response.status().as_u16());
        }
        if is_head { response.map(|_| Body::empty()) } else { response }
    }

    /// Answers a request that was let in. Files skip the router, because most requests are for files.
    async fn routed(&self, head: Parts, body: hyper::body::Incoming) -> Response {
        let path = head.uri.path();
        if path == "/files" || path.starts_with("/files/") {
            return files::answer(&self.site, head).await;
        }
        let request = ::http::Request::from_parts(head, Body::new(body));
        let answered = hyper::service::Service::call(&self.router, request).await;
        answered.unwrap_or_else(|never| match never {})
    }
}

/// Refuses a body whose coding is not just `chunked`: a proxy in between may see its end at another place.
fn check_coding(head: &Parts) -> Result<(), Box<Response>> {
    let mut codings = head.headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(Box::new(Refusal::new(StatusCode::BAD_REQUEST, "Transfer-Encoding is chunked").into_response())),
    }
}

/// Adds headers that stop the browser from guessing media types and from showing answers to other sites.
fn harden(response: &mut Response) {
    let headers = response.headers_mut();
    let all = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in all {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(POLICY));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("private, no-cache"));
}

/// Notes changes below SOURCE, and closes files that are gone.
fn look_after(vfs: &Weak<Vfs>) {
    let mut swept = Instant::now();
    while let Some(vfs) = vfs.upgrade() {
        let round = AssertUnwindSafe(|| {
            let changes = vfs.wait_for_changes(LOOK_UP);
            // There is no kernel cache to invalidate: each request looks at the current state.
            drop((vfs.changed_nodes(changes), vfs.take_invalidated()));
            if swept.elapsed() > SWEEP {
                vfs.sweep();
                swept = Instant::now();
            }
        });
        // The panic's text is in the log; the next round starts anew.
        let _ = catch_unwind(round);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpStream,
    };

    use super::*;
    use crate::vfs::{Options, TEST_PANIC};

    #[test]
    fn a_panic_is_an_answer_to_one_request() {
        let vfs = Arc::new(Vfs::open("fixtures".as_ref(), Options::default()).unwrap());
        let site = Site::new(vfs.clone(), Access::new([]), None);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let server = std::thread::spawn(move || serve(&site, listener, async { drop(ended.await) }));
        // Both on one connection.
        let mut connection = TcpStream::connect(address).unwrap();
        write!(connection, "GET /files/{TEST_PANIC} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        write!(connection, "GET /files/notes.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answers = String::new();
        connection.read_to_string(&mut answers).unwrap();
        assert!(answers.starts_with("HTTP/1.1 500") && answers.contains("HTTP/1.1 200"), "{answers}");
        assert!(vfs.problems().iter().any(|problem| problem.message.contains("this name is for tests of panics")));
        end.send(()).unwrap();
        server.join().unwrap().unwrap();
    }
}
