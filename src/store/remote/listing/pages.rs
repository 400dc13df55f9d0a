//! Listings, one page at a time: while one page is read, the next is on its way.

use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use http::{HeaderMap, Method};

use super::{Listing, taken::Taken};
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
pub(crate) const LONGEST: usize = 64 << 20;

/// An answer to a request for a page.
struct Answered {
    headers: HeaderMap,
    body: Vec<u8>,
    /// Counts the body.
    _memory: Taken,
}

impl RemoteStore {
    /// Returns the whole listing of a folder.
    pub(crate) async fn list(&self, prefix: &[u8], is_top: bool, was_known: bool) -> Result<Listing, FetchError> {
        let within = was_known.then_some(BRIEFLY);
        let begin = || self.listings.begin(prefix, is_top);
        if self.lists_as_web() {
            let mut to = self.read_web(prefix, PAGE, within, begin).await?;
            to.finish()?;
            return Ok(to);
        }
        let mut to = begin();
        let mut more: Option<String> = None;
        let mut answered = self.ask(prefix, None, PAGE, within).await?;
        // A few empty pages are normal. A server that sends nothing else would never end.
        let (mut progress, mut empty) = (Instant::now(), 0);
        loop {
            let early = self.client.backend.next_page(&answered.headers, &answered.body);
            let ahead = async {
                match &early {
                    Some(next) => self.ask(prefix, Some(next), PAGE, within).await.map(Some),
                    None => Ok(None),
                }
            };
            let before = to.len();
            let (ahead, next) = futures_util::join!(ahead, async { self.read(prefix, &answered, &mut to) });
            let next = next?;
            if next.is_none() {
                break;
            }
            let endless = |what: &str| self.client.failed(format_args!("the server lists {what} again and again"));
            if next == more {
                return Err(endless("the same page"));
            }
            match to.len() > before {
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
        to.finish()?;
        Ok(to)
    }

    /// Returns whether any key begins with `prefix`.
    pub(crate) async fn has_keys(&self, prefix: &[u8]) -> Result<bool, FetchError> {
        Ok(self.first(prefix).await?.is_some_and(|page| !page.found.is_empty() || page.has_more))
    }

    /// Returns whether there is a folder. That of a web server may be empty. But some list nothing below the name of a
    /// file, or of anything: so this does not tell folders from files.
    pub(crate) async fn may_be_folder(&self, prefix: &[u8]) -> Result<bool, FetchError> {
        let page = self.first(prefix).await?;
        Ok(page.is_some_and(|page| self.lists_as_web() || !page.found.is_empty() || page.has_more))
    }

    /// Returns the first of the keys that begin with `prefix`; `None` if a web server has no such folder.
    async fn first(&self, prefix: &[u8]) -> Result<Option<Page>, FetchError> {
        match self.page(prefix, 1, None).await {
            Err(FetchError::Gone) if self.client.backend.is_web() => Ok(None),
            Err(FetchError::Gone) => Err(self.client.failed("there is no such bucket")),
            page => page.map(Some),
        }
    }

    /// Returns the first names of the keys that begin with `prefix`.
    pub(crate) async fn page(&self, prefix: &[u8], most: u16, within: Option<Duration>) -> Result<Page, FetchError> {
        let begin = || Page { most: most.into(), ..Page::default() };
        if self.lists_as_web() {
            return self.read_web(prefix, most, within, begin).await;
        }
        let mut page = begin();
        let answered = self.ask(prefix, None, most, within).await?;
        page.has_more |= self.read(prefix, &answered, &mut page)?.is_some();
        Ok(page)
    }

    /// Lists a folder of a web server into what `begin` makes, from its page or by WebDAV. The WebDAV request is made like
    /// one for a next page.
    async fn read_web<C: Collect>(
        &self,
        prefix: &[u8],
        most: u16,
        within: Option<Duration>,
        begin: impl Fn() -> C,
    ) -> Result<C, FetchError> {
        let by_webdav = self.by_webdav.load(Relaxed);
        let asked = async |more| {
            let mut to = begin();
            let answered = self.ask(prefix, more, most, within).await?;
            self.read(prefix, &answered, &mut to).map(|_| to)
        };
        match asked(by_webdav.then_some(WEBDAV)).await {
            Err(error) if !by_webdav && !error.is_unreached() => {
                let other = asked(Some(WEBDAV)).await;
                self.by_webdav.fetch_or(other.is_ok(), Relaxed);
                other.map_err(|_| error)
            }
            listed => listed,
        }
    }

    /// Returns whether a folder is listed in one answer, which may be a page or WebDAV's.
    pub(crate) fn lists_as_web(&self) -> bool {
        self.client.backend.is_web() && !self.client.backend.is_pinned()
    }

    async fn ask(
        &self,
        prefix: &[u8],
        more: Option<&str>,
        most: u16,
        within: Option<Duration>,
    ) -> Result<Answered, FetchError> {
        let ask = Ask::new(Method::GET, Target::List { prefix, more, most });
        let mut attempts = self.client.attempts(within);
        loop {
            let mut answer = attempts.send(&ask).await?;
            let headers = answer.headers.clone();
            let mut memory = self.listings.answer_room();
            match answer.collect(LONGEST + 1, Some(&mut memory)).await {
                Ok(body) if body.len() > LONGEST => {
                    return Err(self.client.failed(format_args!("a listing of more than {LONGEST} bytes")));
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
        self.client.backend.page(prefix, headers, body, to).map_err(|why| self.client.failed(why))
    }
}
