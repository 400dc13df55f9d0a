//! Listings, one page at a time: while one page is read, the next is on its way.

use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use http::{HeaderMap, Method};

use super::{Listed, Listing, taken::Taken};
use crate::store::{
    Names,
    remote::{
        backends::backend::{Ask, Collect, PAGE, Page, Target},
        object::FetchError,
        store::{BRIEFLY, RemoteStore},
    },
};

/// Most consecutive pages without a new name.
const EMPTY_PAGES: usize = 1000;
/// The page token that stands for a WebDAV request (see `web`).
const WEBDAV: &str = "webdav";
/// Largest page of a listing in bytes.
pub(in crate::store::remote) const LONGEST: usize = 64 << 20;

/// An answer to a request for a page.
struct Answered {
    headers: HeaderMap,
    body: Vec<u8>,
    /// Counts the body.
    _memory: Taken,
}

impl RemoteStore {
    /// Returns the whole listing of a folder.
    pub(in crate::store::remote) async fn list(
        &self,
        prefix: &[u8],
        is_top: bool,
        was_known: bool,
    ) -> Result<Listing, FetchError> {
        let within = was_known.then_some(BRIEFLY);
        let mut to = Listed { prefix, is_top, listing: Listing::within(self.listings.room()) };
        if self.lists_as_web() {
            self.read_web(prefix, PAGE, within, &mut to).await?;
            to.listing.finish()?;
            return Ok(to.listing);
        }
        let mut more: Option<String> = None;
        let mut answered = self.ask(prefix, None, PAGE, within).await?;
        // A few empty pages are normal. A server that sends nothing else would never end.
        let (mut progress, mut empty) = (Instant::now(), 0);
        loop {
            let early = self.backend.next_page(&answered.headers, &answered.body);
            let ahead = async {
                match &early {
                    Some(next) => self.ask(prefix, Some(next), PAGE, within).await.map(Some),
                    None => Ok(None),
                }
            };
            let before = to.listing.len();
            let (ahead, next) = futures_util::join!(ahead, async { self.read(prefix, &answered, &mut to) });
            let next = next?;
            if next.is_none() {
                break;
            }
            let endless = |what: &str| {
                let store = self.backend.store();
                FetchError::Failed(format!("{store}: the server lists {what} again and again"))
            };
            if next == more {
                return Err(endless("the same page"));
            }
            match to.listing.len() > before {
                true => (progress, empty) = (Instant::now(), 0),
                false => empty += 1,
            }
            if empty >= EMPTY_PAGES || empty > 0 && progress.elapsed() >= self.client.timeout {
                return Err(endless("empty pages"));
            }
            let ahead = if early == next { ahead? } else { None };
            answered = match ahead {
                Some(ahead) => ahead,
                None => self.ask(prefix, next.as_deref(), PAGE, within).await?,
            };
            more = next;
        }
        to.listing.finish()?;
        Ok(to.listing)
    }

    /// Returns whether any key begins with `prefix`.
    pub(in crate::store::remote) async fn has_keys(&self, prefix: &[u8]) -> Result<bool, FetchError> {
        match self.page(prefix, None, 1, None).await {
            Ok(page) => Ok(!page.objects.is_empty() || !page.folders.is_empty() || page.has_more),
            Err(FetchError::Gone) if self.backend.is_web() => Ok(false),
            Err(FetchError::Gone) => {
                let store = self.backend.store();
                Err(FetchError::Failed(format!("{store}: there is no such bucket")))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the first names of the keys that begin with `prefix`.
    pub(in crate::store::remote) async fn page(
        &self,
        prefix: &[u8],
        more: Option<&str>,
        most: u16,
        within: Option<Duration>,
    ) -> Result<Page, FetchError> {
        let mut page = Page { most: most.into(), ..Page::default() };
        if self.lists_as_web() {
            self.read_web(prefix, most, within, &mut page).await?;
        } else {
            let answered = self.ask(prefix, more, most, within).await?;
            page.has_more |= self.read(prefix, &answered, &mut page)?.is_some();
        }
        Ok(page)
    }

    /// Lists a folder of a web server, from its page or by WebDAV. The WebDAV request is made like one for a next page.
    async fn read_web(
        &self,
        prefix: &[u8],
        most: u16,
        within: Option<Duration>,
        to: &mut dyn Collect,
    ) -> Result<(), FetchError> {
        let by_webdav = self.by_webdav.load(Relaxed);
        let asked = async |more, to: &mut dyn Collect| {
            let answered = self.ask(prefix, more, most, within).await?;
            self.read(prefix, &answered, to).map(drop)
        };
        match asked(by_webdav.then_some(WEBDAV), to).await {
            Err(error) if !by_webdav && !matches!(error, FetchError::TimedOut(_)) => {
                to.reset();
                let other = asked(Some(WEBDAV), to).await;
                self.by_webdav.fetch_or(other.is_ok(), Relaxed);
                other.map_err(|_| error)
            }
            listed => listed,
        }
    }

    /// Returns whether a folder is listed in one answer, which may be a page or WebDAV's.
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
            let mut memory = self.listings.answer_room();
            match answer.collect_within(LONGEST + 1, &mut memory).await {
                Ok(body) if body.len() > LONGEST => {
                    return Err(FetchError::Failed(format!("{store}: a listing of more than {LONGEST} bytes")));
                }
                Ok(body) => return Ok(Answered { headers, body, _memory: memory }),
                Err(trouble) => attempts.again(trouble, None).await?,
            }
        }
    }

    /// Reads an answer. Returns the token of the next page.
    fn read(
        &self,
        prefix: &[u8],
        Answered { headers, body, .. }: &Answered,
        to: &mut dyn Collect,
    ) -> Result<Option<String>, FetchError> {
        let store = self.backend.store();
        self.backend.page(prefix, headers, body, to).map_err(|why| FetchError::Failed(format!("{store}: {why}")))
    }
}
