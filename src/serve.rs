//! The tree over HTTP and WebDAV: one more thin adapter to `vfs`, beside `fuse`. Runs without a mount and without
//! privileges.
//!
//! A request is read by hyper; what it asks of the filesystem runs in threads that may wait
//! for a disk or a decoder (`workers`), and its body is read piece by piece as the client takes it (`body`).

mod body;
mod files;
mod listing;
mod page;
mod paths;
mod refusal;
mod types;
mod workers;

use std::{io, net::TcpListener, sync::Arc};

use axum::{Router, body::Body, response::Redirect, routing::any};

use crate::{vfs::Vfs, volume::Volume};
use refusal::Refusal;
use workers::Workers;

/// A request, whose body has not been read.
pub(crate) type Request = http::Request<Body>;
/// An answer, whose body is made as the client takes it.
pub(crate) type Response = http::Response<Body>;

/// What all requests share.
pub(crate) struct Site {
    /// What is shown.
    pub(crate) volume: Volume,
    workers: Workers,
}

impl Site {
    /// A site that shows a filesystem.
    pub(crate) fn new(vfs: Arc<Vfs>) -> Arc<Self> {
        Arc::new(Self { volume: Volume::of(vfs), workers: Workers::new() })
    }

    /// Runs what may wait for a disk or a decoder in a thread that may.
    ///
    /// # Errors
    /// Those of `work`; [`Refusal::busy`] where no thread gets free in time; a refusal with 500 where `work` panics.
    pub(crate) async fn run<T, F>(self: &Arc<Self>, work: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: FnOnce(&Self) -> Result<T, Refusal> + Send + 'static,
    {
        let site = self.clone();
        let done = self.workers.run(move || work(&site)).await?;
        done.unwrap_or_else(|panicked| {
            self.volume.vfs().note_panic(&panicked);
            Err(Refusal::fault())
        })
    }
}

/// Serves a site until `ended` is.
///
/// # Errors
/// When the runtime can't be started.
pub(crate) fn serve(site: &Arc<Site>, listener: TcpListener, ended: impl Future<Output = ()>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    listener.set_nonblocking(true)?;
    let router = router(site);
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tokio::select! {
            served = axum::serve(listener, router) => served,
            () = ended => Ok(()),
        }
    })
}

fn router(site: &Arc<Site>) -> Router {
    Router::new()
        .route("/", any(async || Redirect::temporary("/files/")))
        .route("/files", any(files::answer))
        .route("/files/", any(files::answer))
        .route("/files/{*path}", any(files::answer))
        .nest("/-", page::routes())
        .with_state(site.clone())
}
