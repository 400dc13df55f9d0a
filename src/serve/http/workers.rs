//! A bounded number of threads for work that may wait for a disk or a decoder.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::{
    limits::{PAGES_AT_ONCE, REQUESTS_AT_ONCE},
    pool::{Place, pool},
    serve::Refusal,
};

/// Longest wait of a request for its turn.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bounds the number of threads, not memory: decoded bytes share the cache's budget.
pub(in crate::serve) struct Workers {
    places: Arc<Semaphore>,
    /// Places for work that needs more memory than a piece of a file.
    pages: Arc<Semaphore>,
}

impl Workers {
    pub(in crate::serve) fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(REQUESTS_AT_ONCE)), pages: Arc::new(Semaphore::new(PAGES_AT_ONCE)) }
    }

    /// Waits for a place to make a page, or an answer to a script. Dropping it frees the place.
    ///
    /// # Errors
    /// [`Refusal::busy`] if none is free in time.
    pub(in crate::serve) async fn page(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        place(&self.pages).await
    }

    /// Runs `work` in a thread that may wait. The inner error is the text of a panic.
    ///
    /// # Errors
    /// [`Refusal::busy`] if no thread is free in time.
    pub(in crate::serve) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Result<T, String>, Refusal> {
        let place = place(&self.places).await?;
        let (sender, done) = oneshot::channel();
        pool().run(Place::Task("requests"), Arc::default(), move || {
            // Kept until the work is done, even if its client is gone.
            let _place = place;
            let _ = sender.send(catch_unwind(AssertUnwindSafe(work)).map_err(|panicked| panic_text(&*panicked)));
        });
        Ok(done.await.unwrap_or_else(|_| Err("it was not begun".into())))
    }
}

async fn place(places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Refusal> {
    let place = tokio::time::timeout(PATIENCE, places.clone().acquire_owned()).await;
    place.ok().and_then(Result::ok).ok_or_else(Refusal::busy)
}

/// Returns the text of a panic.
pub(in crate::serve) fn panic_text(panicked: &(dyn std::any::Any + Send)) -> String {
    let text = panicked.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panicked.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a text".into())
}
