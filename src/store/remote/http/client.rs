//! Sends requests: counted, several attempts within a time limit, and a bounded number at once.

use std::{
    fmt,
    future::Future,
    hash::{BuildHasher, RandomState},
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, StatusCode, header};
use reqwest::Response;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    connect::{self, Connections, Settings},
    trouble::Trouble,
};
use crate::{
    format::has_suffix,
    runtime::runtime,
    store::remote::{
        Location, Options,
        auth::credentials,
        backends::backend::{Ask, Backend, Target, text},
        listing::{taken::Taken, time},
        object::FetchError,
    },
    wanted,
};

/// Most requests in flight.
const AT_ONCE: usize = 64;
/// Longest time without a byte before a request is made again.
const STALL: Duration = Duration::from_secs(10);
/// The first pause between two attempts; each is twice as long as the one before, up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Time without success after which a person is told that the request is tried again.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a request checks whether a reader still waits for it.
const WANTED: Duration = Duration::from_millis(200);
/// Bytes read of the body of an error answer.
const REFUSAL: usize = 8 << 10;
/// Fewest bytes per second that an answer has to bring, over [`STALL`] of waiting: a slower server blocks a place that
/// others need.
const LEAST: u64 = 1 << 10;
/// Longest time that is added to now: longer than any wait, and small enough not to overflow.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// Counters of requests and their bytes, as in `stats.json`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Counters {
    /// Requests sent, each attempt.
    pub(crate) requests: AtomicU64,
    /// Of these, listings.
    pub(crate) lists: AtomicU64,
    /// Of these, repeated attempts.
    pub(crate) retries: AtomicU64,
    /// Requests that failed for good.
    pub(crate) failures: AtomicU64,
    /// Bytes of objects that arrived.
    pub(crate) bytes: AtomicU64,
}

/// Waits for the answer of a server, until the reader gives up. If a library panics, only this request fails.
///
/// # Errors
/// What `work` says.
pub(crate) fn wait<T>(work: impl Future<Output = Result<T, FetchError>>) -> Result<T, FetchError> {
    let runtime = runtime().map_err(|error| FetchError::Failed(error.to_string()))?;
    runtime.block_on(async {
        let mut work = pin!(AssertUnwindSafe(work).catch_unwind());
        loop {
            match tokio::time::timeout(WANTED, &mut work).await {
                Ok(Ok(done)) => return done,
                Ok(Err(_)) => return Err(FetchError::Failed("an error in the program itself; see the log".into())),
                Err(_) if wanted::check().is_err() => return Err(FetchError::GivenUp),
                Err(_) => {}
            }
        }
    })
}

/// Sends requests to one server.
pub(crate) struct Client {
    /// The name of the store in messages and caches, without any secret.
    pub(crate) store: Arc<str>,
    pub(crate) backend: Arc<dyn Backend>,
    connections: Connections,
    places: Arc<Semaphore>,
    pub(crate) timeout: Duration,
    retries: u32,
    pub(crate) counters: Counters,
    on_trouble: Option<fn(&str)>,
}

/// An answer whose headers have arrived.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    response: Response,
    client: Arc<Client>,
    /// Time spent waiting for bytes, and bytes that came, since the speed was last checked.
    waited: Duration,
    came: u64,
    _place: OwnedSemaphorePermit,
}

impl Answer {
    /// Returns the next bytes of the body; `None` at its end.
    ///
    /// # Errors
    /// That the body is cut, or stalls.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Trouble> {
        let begun = Instant::now();
        let next = tokio::time::timeout(self.client.stall(), self.response.chunk()).await;
        self.waited += begun.elapsed();
        match next {
            Err(_) => Err(Trouble::late("the answer stalls")),
            Ok(Err(error)) => Err(connect::trouble(&error, "")),
            Ok(Ok(None)) => Ok(None),
            Ok(Ok(Some(bytes))) => {
                self.came += bytes.len() as u64;
                self.client.counters.bytes.fetch_add(bytes.len() as u64, Relaxed);
                if self.waited >= self.client.stall() {
                    if self.came < LEAST.saturating_mul(self.waited.as_secs()) {
                        return Err(Trouble::late("the answer comes too slowly"));
                    }
                    (self.waited, self.came) = (Duration::ZERO, 0);
                }
                Ok(Some(bytes))
            }
        }
    }

    /// Returns the body, cut after `most` bytes. If there is a `memory`, the body is counted in it.
    ///
    /// # Errors
    /// As [`Self::next`], and that there is no room.
    pub(crate) async fn collect(&mut self, most: usize, mut memory: Option<&mut Taken>) -> Result<Vec<u8>, Trouble> {
        let mut body: Vec<u8> = Vec::new();
        while body.len() < most {
            let Some(bytes) = self.next().await? else { break };
            let needed = body.len() + bytes.len();
            if needed > body.capacity() {
                let grown = needed.max(body.capacity() + body.capacity() / 2);
                let counted = memory.as_mut().map_or(Ok(()), |memory| memory.grow(grown as u64));
                counted.map_err(|why| Trouble::lasting(&why))?;
                let no_memory = |_| Trouble::lasting("no memory for an answer");
                body.try_reserve_exact(grown - body.len()).map_err(no_memory)?;
            }
            body.extend_from_slice(&bytes[..bytes.len().min(most - body.len())]);
        }
        Ok(body)
    }
}

/// Returns a time in the future, however large `time` is.
pub(crate) fn after(time: Duration) -> Instant {
    Instant::now() + time.min(LONGEST)
}

/// The attempts of one request: how many are left, and until when.
pub(crate) struct Attempts<'a> {
    client: &'a Arc<Client>,
    begun: Instant,
    until: Instant,
    timeout: Duration,
    made: u32,
    in_a_row: u32,
    /// Bytes received in all attempts.
    came: u64,
    on_trouble: Option<fn(&str)>,
}

impl Attempts<'_> {
    /// Notes that bytes are of use, which renews the attempts.
    pub(crate) fn progress(&mut self) {
        self.in_a_row = 0;
    }

    /// Notes that bytes have arrived, which renews the time. A server that sends only a few bytes in each attempt gains
    /// no more time than those bytes may take ([`LEAST`]).
    pub(crate) fn came(&mut self, bytes: u64) {
        self.came = self.came.saturating_add(bytes);
        let most = self.timeout.saturating_add(Duration::from_secs(self.came / LEAST)).min(LONGEST);
        self.until = after(self.timeout).min(self.begun + most);
    }

    /// Waits before the next attempt: as long as the server asks for, and otherwise longer each time.
    ///
    /// # Errors
    /// That there is no attempt left, or no time.
    pub(crate) async fn again(&mut self, trouble: Trouble, wait: Option<Duration>) -> Result<(), FetchError> {
        let Trouble { why, is_late, is_lasting } = trouble;
        let (store, counters) = (&self.client.store, &self.client.counters);
        if is_lasting {
            counters.failures.fetch_add(1, Relaxed);
            return Err(self.client.failed(why));
        }
        let pause = PAUSE.saturating_mul(1 << self.in_a_row.min(16)).min(LONGEST_PAUSE);
        // Between half and all of the pause, so that many readers do not return at the same moment.
        let part = 500 + (RandomState::new().hash_one(self.made) % 500) as u32;
        let pause = wait.unwrap_or(pause * part / 1000);
        let out_of_time = after(pause) >= self.until;
        self.made += 1;
        self.in_a_row += 1;
        if self.in_a_row > self.client.retries || out_of_time {
            counters.failures.fetch_add(1, Relaxed);
            let seconds = self.begun.elapsed().as_secs_f64();
            let attempts = if self.made == 1 { "1 attempt".into() } else { format!("{} attempts", self.made) };
            let text = match wait {
                Some(wait) if out_of_time => format!(
                    "{store}: {why}, in {attempts} and {seconds:.1} s; it asks to wait for {} s; --timeout says how long \
                     to try",
                    wait.as_secs()
                ),
                _ => format!(
                    "{store}: {why}, in {attempts} and {seconds:.1} s; is the server reachable? --timeout and --retries \
                     say how long to try"
                ),
            };
            return Err(if is_late || out_of_time { FetchError::TimedOut(text) } else { FetchError::Unreached(text) });
        }
        log::debug!("{store}: {why}; again in {:.2} s", pause.as_secs_f64());
        if self.begun.elapsed() + pause >= PATIENCE
            && let Some(tell) = self.on_trouble.take()
        {
            tell(&format!("{store}: {why}; trying again"));
        }
        counters.retries.fetch_add(1, Relaxed);
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// Sends a request until an attempt succeeds, or fails in a way that no other attempt would change.
    ///
    /// # Errors
    /// [`FetchError`] for every answer but success.
    pub(crate) async fn send(&mut self, ask: &Ask<'_>) -> Result<Answer, FetchError> {
        let client = self.client;
        let backend = &client.backend;
        let mut is_second_chance = false;
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            let request = match tokio::time::timeout(left.max(STALL), backend.request(ask)).await {
                Ok(Err(FetchError::Denied(why))) => return Err(FetchError::Denied(format!("{}: {why}", client.store))),
                Ok(request) => request?,
                Err(_) => {
                    self.again(Trouble::late("credentials do not arrive"), None).await?;
                    continue;
                }
            };
            let place = client.places.clone().acquire_owned().await;
            let Ok(place) = place else { return Err(FetchError::Failed("shutting down".into())) };
            client.counters.requests.fetch_add(1, Relaxed);
            if matches!(ask.target, Target::List { .. }) {
                client.counters.lists.fetch_add(1, Relaxed);
            }
            let sent = client.connections.send(request, backend.is_web());
            let sent = tokio::time::timeout(client.stall(), sent).await;
            let response = match sent.unwrap_or_else(|_| Err(Trouble::late("no answer in time"))) {
                Ok(response) => response,
                Err(trouble) => {
                    drop(place);
                    self.again(trouble, None).await?;
                    continue;
                }
            };
            let mut answer = Answer {
                status: response.status(),
                headers: response.headers().clone(),
                response,
                client: client.clone(),
                waited: Duration::ZERO,
                came: 0,
                _place: place,
            };
            if answer.status.is_success() {
                return match ask.target {
                    Target::Object(key) if backend.is_web() && is_encoded(key, &answer.headers) => {
                        Err(client.failed("the server compresses what it sends, although it was asked not to"))
                    }
                    _ => Ok(answer),
                };
            }
            let text = answer.collect(REFUSAL, None).await.unwrap_or_default();
            let code = code(&text);
            let status = answer.status;
            let wait = retry_after(&answer.headers);
            let may_change = !is_second_chance && backend.was_refused(status, &answer.headers, &code);
            let leads = answer.headers.contains_key(header::LOCATION) || code == "PermanentRedirect";
            drop(answer);
            if may_change {
                is_second_chance = true;
                continue;
            }
            let said = format!(
                "{} {}",
                status.as_u16(),
                if code.is_empty() { status.canonical_reason().unwrap_or_default() } else { &code }
            );
            let said = said.trim_end();
            return Err(match status {
                StatusCode::PRECONDITION_FAILED | StatusCode::RANGE_NOT_SATISFIABLE => FetchError::Changed,
                StatusCode::NOT_FOUND | StatusCode::GONE => FetchError::Gone,
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    let advice = advice(&code).map_or_else(|| backend.refused(), str::to_owned);
                    FetchError::Denied(format!("{}: the server said {said}; {advice}", client.store))
                }
                status if is_passing(status, &code) => {
                    self.again(Trouble::passing(&format!("the server said {said}")), wait).await?;
                    continue;
                }
                status if status.is_redirection() && leads && !backend.is_web() => client.failed(format_args!(
                    "the server said {said}: what is signed is not sent elsewhere; name the right address or region"
                )),
                _ => match advice(&code) {
                    Some(advice) => client.failed(format_args!("the server said {said}; {advice}")),
                    None => client.failed(format_args!("the server said {said}")),
                },
            });
        }
    }
}

impl Client {
    /// # Errors
    /// What is wrong with the configuration, the certificates, or the machine.
    pub(crate) fn new(location: &Location, options: &Options) -> Result<Arc<Self>, FetchError> {
        let (store, backend) = credentials::backend(location, options)?;
        Ok(Arc::new(Self {
            store: store.into(),
            backend,
            connections: Connections::new(Settings::new(options)?),
            places: Arc::new(Semaphore::new(AT_ONCE)),
            timeout: options.timeout,
            retries: options.retries,
            counters: Counters::default(),
            on_trouble: options.on_trouble,
        }))
    }

    /// Returns an error that names the store.
    pub(crate) fn failed(&self, why: impl fmt::Display) -> FetchError {
        FetchError::Failed(format!("{}: {why}", self.store))
    }

    fn stall(&self) -> Duration {
        STALL.min(self.timeout)
    }

    /// Returns the attempts that `--timeout` and `--retries` permit, or those within another time limit.
    pub(crate) fn attempts(self: &Arc<Self>, within: Option<Duration>) -> Attempts<'_> {
        let timeout = within.unwrap_or(self.timeout);
        let (begun, on_trouble) = (Instant::now(), self.on_trouble);
        Attempts { client: self, begun, until: after(timeout), timeout, made: 0, in_a_row: 0, came: 0, on_trouble }
    }
}

/// Names of files that are compressed themselves. Some servers say so as if they had done it.
const COMPRESSED: [&str; 8] = [".gz", ".tgz", ".svgz", ".z", ".bz2", ".xz", ".zst", ".br"];

/// Returns whether an answer has other bytes than the object.
fn is_encoded(key: &[u8], headers: &HeaderMap) -> bool {
    let encoding = headers.get(header::CONTENT_ENCODING);
    let is_own = || COMPRESSED.iter().any(|suffix| has_suffix(key, suffix));
    encoding.is_some_and(|encoding| encoding != "identity") && !is_own()
}

/// Returns whether another attempt a little later may succeed.
fn is_passing(status: StatusCode, code: &str) -> bool {
    status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
        || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT)
        || matches!(code, "SlowDown" | "RequestTimeout" | "InternalError" | "ServerBusy")
}

/// Returns what to do about an error that credentials cannot solve.
fn advice(code: &str) -> Option<&'static str> {
    Some(match code {
        "InvalidObjectState" => "the object is archived; restore it before it is read",
        "RequestTimeTooSkewed" => "set this machine's clock",
        "ExpiredToken" => "the session token has expired; get new keys",
        _ => return None,
    })
}

/// Returns the code of an error in XML or JSON, if it is a plain word. No other text of a server goes into messages.
fn code(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let between = |open: &str, close: char| Some(text.split_once(open)?.1.split(close).next()?.to_owned());
    let code = between("<Code>", '<').or_else(|| between("\"error\":\"", '"')).unwrap_or_default();
    let is_word =
        code.len() <= 80 && code.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b' ' | b'.' | b'-'));
    if is_word { code } else { String::new() }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let wait = text(headers, header::RETRY_AFTER)?.trim();
    if let Ok(seconds) = wait.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
    let until = u64::try_from(time::parse(wait)?).ok()?;
    Some(Duration::from_secs(until.saturating_sub(now)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_errors() {
        assert_eq!(code(b"<Error><Code>SlowDown</Code><Key>x</Key></Error>"), "SlowDown");
        assert_eq!(code(b"{\"error\":\"Access to dataset x is restricted.\"}"), "Access to dataset x is restricted.");
        assert_eq!(code(b"<Error><Code>\x1b[31m</Code></Error>"), "");
        assert_eq!(code(b""), "");
    }
}
