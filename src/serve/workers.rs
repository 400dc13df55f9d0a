//! Threads for work that may wait for a disk or a decoder, as many as there are places for.

use std::{sync::Arc, time::Duration};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Refusal;
use crate::limits::{PAGES_AT_ONCE, REQUESTS_AT_ONCE};

/// How long a request waits for its turn.
const PATIENCE: Duration = Duration::from_secs(30);

/// The threads. What their work decodes shares the cache's budget: this bounds how many there are, and not memory.
pub(super) struct Workers {
    places: Arc<Semaphore>,
    /// For what needs more memory than a piece of a file while it is made.
    pages: Arc<Semaphore>,
}

impl Workers {
    pub(super) fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(REQUESTS_AT_ONCE)), pages: Arc::new(Semaphore::new(PAGES_AT_ONCE)) }
    }

    /// A place for making a page, or an answer to a script; it is free again when this is dropped.
    ///
    /// # Errors
    /// [`Refusal::busy`] where none gets free in time.
    pub(super) async fn page(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        match tokio::time::timeout(PATIENCE, self.pages.clone().acquire_owned()).await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(Refusal::busy()),
        }
    }

    /// Does work in a thread that may wait. The inner error is what a panic said.
    ///
    /// # Errors
    /// [`Refusal::busy`] where no thread gets free in time.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Result<T, String>, Refusal> {
        let place = tokio::time::timeout(PATIENCE, self.places.clone().acquire_owned()).await;
        let Ok(Ok(place)) = place else { return Err(Refusal::busy()) };
        let done = tokio::task::spawn_blocking(move || {
            // Kept until the work is done, also where its client is gone.
            let _place = place;
            work()
        });
        Ok(done.await.map_err(|error| match error.try_into_panic() {
            Ok(panicked) => panic_text(&*panicked),
            Err(error) => error.to_string(),
        }))
    }
}

/// What a panic said.
pub(super) fn panic_text(panicked: &(dyn std::any::Any + Send)) -> String {
    let text = panicked.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panicked.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a text".into())
}
