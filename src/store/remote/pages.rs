//! Listings are asked for a page at a time: while one is read, the next is on its way.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use http::{HeaderMap, Method};

use super::{
    backend::{Ask, PAGE, Page, Target},
    listing::Listing,
    object::FetchError,
    store::RemoteStore,
};

/// How long a server may take to list what is known from before, or can be told otherwise.
pub(super) const BRIEFLY: Duration = Duration::from_secs(5);
/// What WebDAV is asked for with (see `web`).
const WEBDAV: &str = "webdav";
/// Bytes of one page of a listing.
pub(super) const LONGEST: usize = 64 << 20;

/// An answer to a request for a page.
struct Answered {
    headers: HeaderMap,
    body: Vec<u8>,
}

impl RemoteStore {
    /// All of a folder.
    pub(super) async fn list(&self, prefix: &[u8], is_top: bool, was_known: bool) -> Result<Listing, FetchError> {
        let mut listing = Listing::default();
        let within = was_known.then_some(BRIEFLY);
        if self.lists_as_web() {
            listing.add(prefix, is_top, self.page(prefix, None, PAGE, within).await?)?;
            listing.finish()?;
            return Ok(listing);
        }
        let mut more: Option<String> = None;
        let mut answered = self.ask(prefix, None, PAGE, within).await?;
        loop {
            let early = self.backend.next_page(&answered.headers, &answered.body);
            let ahead = async {
                match &early {
                    Some(next) => self.ask(prefix, Some(next), PAGE, within).await.map(Some),
                    None => Ok(None),
                }
            };
            let (ahead, page) = futures_util::join!(ahead, async { self.read(prefix, &answered) });
            let page = page?;
            let next = page.more.clone();
            listing.add(prefix, is_top, page)?;
            if next.is_none() {
                break;
            }
            if next == more {
                let store = self.backend.store();
                return Err(FetchError::Failed(format!("{store}: the server lists the same page again and again")));
            }
            let ahead = if early == next { ahead? } else { None };
            answered = match ahead {
                Some(ahead) => ahead,
                None => self.ask(prefix, next.as_deref(), PAGE, within).await?,
            };
            more = next;
        }
        listing.finish()?;
        Ok(listing)
    }

    /// Whether anything has a key that begins so.
    pub(super) async fn has_keys(&self, prefix: &[u8]) -> Result<bool, FetchError> {
        match self.page(prefix, None, 1, None).await {
            Ok(page) => Ok(!page.objects.is_empty() || !page.folders.is_empty() || page.more.is_some()),
            Err(FetchError::Gone) if self.backend.is_web() => Ok(false),
            Err(FetchError::Gone) => {
                let store = self.backend.store();
                Err(FetchError::Failed(format!("{store}: there is no such bucket")))
            }
            Err(error) => Err(error),
        }
    }

    /// One page of what has keys that begin so.
    pub(super) async fn page(
        &self,
        prefix: &[u8],
        more: Option<&str>,
        most: u16,
        within: Option<Duration>,
    ) -> Result<Page, FetchError> {
        if !self.lists_as_web() {
            return self.read(prefix, &self.ask(prefix, more, most, within).await?);
        }
        // A server of the web lists by a page, or by WebDAV, which is asked for as if it were the next page.
        let by_webdav = self.by_webdav.load(Relaxed);
        let asked = async |more| self.read(prefix, &self.ask(prefix, more, most, within).await?);
        match asked(by_webdav.then_some(WEBDAV)).await {
            Err(error) if !by_webdav && !matches!(error, FetchError::TimedOut(_)) => {
                let other = asked(Some(WEBDAV)).await;
                self.by_webdav.fetch_or(other.is_ok(), Relaxed);
                other.map_err(|_| error)
            }
            listed => listed,
        }
    }

    /// Whether a folder is listed in one answer, which may be a page or WebDAV's.
    fn lists_as_web(&self) -> bool {
        self.backend.is_web() && !self.backend.is_pinned()
    }

    async fn ask(
        &self,
        prefix: &[u8],
        more: Option<&str>,
        most: u16,
        within: Option<Duration>,
    ) -> Result<Answered, FetchError> {
        let ask = Ask::new(Method::GET, Target::List { prefix, more, most });
        let store = self.backend.store();
        let mut attempts = match within {
            Some(within) => self.client.attempts_within(store, within),
            None => self.client.attempts(store),
        };
        loop {
            let mut answer = self.client.send(&*self.backend, &ask, &mut attempts).await?;
            let headers = answer.headers.clone();
            match answer.collect(LONGEST).await {
                Ok(body) => return Ok(Answered { headers, body }),
                Err(trouble) => attempts.again(trouble, None).await?,
            }
        }
    }

    fn read(&self, prefix: &[u8], Answered { headers, body }: &Answered) -> Result<Page, FetchError> {
        let store = self.backend.store();
        self.backend.page(prefix, headers, body).map_err(|why| FetchError::Failed(format!("{store}: {why}")))
    }
}
