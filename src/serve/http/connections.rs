//! Connections: a bounded number, each ended when its client is too slow.
//!
//! If there is no place left for a new connection, the one that has waited longest for a request gives way. If there is
//! a token, connections that have not shown it share a part of the places, so that they cannot take the others.
//!
//! If every place is busy, the one whose client takes its answer the slowest gives way, if that is slower than
//! [`limits::LEAST_RATE`], or nothing could be written for [`limits::RATE_SECONDS`]. An address of another machine gets no more places than it leaves free, so that there is one
//! for the next address.

use std::{
    collections::BTreeMap,
    io,
    net::IpAddr,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::{Body, Bytes};
use hyper::{
    body::{Frame, SizeHint},
    server::conn::http1,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinSet,
    time::{Instant, Sleep},
};

use crate::serve::{Handler, limits};

/// Shortest time that a new connection keeps its place, because its first request is on the way.
const A_MOMENT: Duration = Duration::from_millis(250);

/// Accepts connections without end, and serves each in a task of its own. When this is dropped, they end.
pub(in crate::serve) async fn accept(listener: TcpListener, handler: Arc<Handler>) {
    let places = Arc::new(Places { has_token: handler.site.access.has_token(), ..Places::default() });
    // Dropped with this function, which ends them all.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let (stream, client) = match listener.accept().await {
            Ok((stream, client)) => (stream, client.ip()),
            Err(error) => {
                // The connection is gone already, or there is no file descriptor for it.
                log::debug!("a connection was not accepted: {error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let place = loop {
            match Places::take(&places, client) {
                // No notification comes when the first moment of a connection is over.
                Err(Full::Server) => drop(tokio::time::timeout(A_MOMENT / 4, places.freed.notified()).await),
                place => break place,
            }
        };
        match place {
            Ok(place) => drop(connections.spawn(serve(stream, handler.clone(), Arc::new(place)))),
            Err(_) => log::debug!("{client}: too many connections"),
        }
    }
}

async fn serve(stream: TcpStream, handler: Arc<Handler>, place: Arc<Place>) {
    let _ = stream.set_nodelay(true);
    let stream = Patient { stream, shared: place.shared.clone(), waiting: None };
    let Some(tls) = &handler.site.tls else { return answer_all(stream, handler, place).await };
    let shaken = tokio::select! {
        shaken = tokio::time::timeout(Duration::from_secs(limits::REQUEST_SECONDS), tls.accept(stream)) => shaken,
        () = place.shared.leave.notified() => return,
    };
    match shaken {
        Ok(Ok(stream)) => answer_all(stream, handler.clone(), place).await,
        Ok(Err(error)) => log::debug!("a connection was not encrypted: {error}"),
        Err(_) => log::debug!("a connection was not encrypted in time"),
    }
}

/// Answers the requests of a connection until it ends.
async fn answer_all(stream: impl AsyncRead + AsyncWrite + Unpin, handler: Arc<Handler>, place: Arc<Place>) {
    let own = place.clone();
    let service = hyper::service::service_fn(move |request| {
        let (handler, place) = (handler.clone(), own.clone());
        async move {
            let answering = Answering::begin(place);
            let answer = handler.answer(request, &answering.0).await;
            Ok::<_, std::convert::Infallible>(answer.map(|body| Answer { body, _answering: answering }))
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(limits::REQUEST_SECONDS))
        .max_header_size(limits::REQUEST_HEAD)
        .max_headers(limits::REQUEST_HEADERS)
        .max_buf_size(2 * limits::REQUEST_HEAD)
        // A client that will ask nothing more may still wait for its answer. If it is gone, a write fails.
        .half_close(true)
        // Lent bytes go to the system call as they are, because nothing else may touch them.
        .writev(true)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = pin!(served);
    let ended = tokio::select! {
        // A request that has come already is answered.
        biased;
        ended = served.as_mut() => ended,
        () = place.shared.leave.notified() => {
            // hyper would keep a connection without a request until its time is up.
            if place.shared.is_slow.load(Relaxed) || !place.was_asked.load(Relaxed) {
                return;
            }
            // If a request has just come, it is still answered.
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        log::debug!("a connection ended: {error}");
    }
}

/// The places for connections.
#[derive(Default)]
struct Places {
    /// Whether clients have to show a token.
    has_token: bool,
    state: Mutex<State>,
    /// Notified when a connection ends, or begins to wait for a request.
    freed: Notify,
}

#[derive(Default)]
struct State {
    /// Connections that have a place, by number.
    open: BTreeMap<u64, Open>,
    /// The number of the next one.
    next: u64,
}

/// A connection that has a place.
struct Open {
    client: IpAddr,
    /// Whether it has shown the token.
    is_known: bool,
    phase: Phase,
    shared: Arc<Shared>,
}

/// What happens on a connection, and since when.
enum Phase {
    /// It was accepted, and no request has come yet.
    New(Instant),
    /// It waits for another request.
    Waiting(Instant),
    /// A request is being answered. Its client had taken so many bytes before.
    Answering(Instant, u64),
}

/// What a connection and the places know of it.
#[derive(Default)]
struct Shared {
    /// Bytes that its client has taken. The kernel may still hold the last ones.
    taken: AtomicU64,
    /// Since when the kernel has taken nothing more for it.
    waits: Mutex<Option<Instant>>,
    /// Set before it has to give way in the middle of an answer.
    is_slow: AtomicBool,
    /// Notified when it has to give way.
    leave: Notify,
}

impl Open {
    /// Returns the bytes a second at which its client takes its answer, 0 if that has come to a halt; `None` if it is too
    /// early to tell.
    fn rate(&self) -> Option<u64> {
        let Phase::Answering(since, before) = self.phase else { return None };
        if self.shared.waits.lock().is_some_and(|since| since.elapsed().as_secs() >= limits::RATE_SECONDS) {
            return Some(0);
        }
        let seconds = since.elapsed().as_secs();
        let taken = self.shared.taken.load(Relaxed).saturating_sub(before);
        (seconds >= limits::RATE_SECONDS).then(|| taken / seconds.max(1))
    }

    /// Returns since when it has waited for a request; `None` if it has to have its place.
    fn waits_since(&self) -> Option<Instant> {
        match self.phase {
            Phase::New(since) => Some(since).filter(|since| since.elapsed() >= A_MOMENT),
            Phase::Waiting(since) => Some(since),
            Phase::Answering(..) => None,
        }
    }
}

/// Which limit leaves no place, if no other connection can give way.
#[derive(Debug, PartialEq, Eq)]
enum Full {
    Server,
    Client,
}

/// The place of one connection. It is free again when this is dropped.
pub(in crate::serve) struct Place {
    places: Arc<Places>,
    number: u64,
    was_asked: AtomicBool,
    shared: Arc<Shared>,
}

impl Places {
    /// Takes a place for a connection; another connection gives way for it if need be.
    fn take(places: &Arc<Self>, client: IpAddr) -> Result<Place, Full> {
        let mut state = places.state.lock();
        if !client.to_canonical().is_loopback() {
            let free = limits::CONNECTIONS.saturating_sub(state.open.len());
            let own = state.open.values().filter(|open| open.client == client).count();
            // What it leaves free is for others: its own may give way, but those of others do not.
            let most = if own > 0 { limits::CONNECTIONS_AN_ADDRESS.min(own.max(free)) } else { 1 };
            state.make_room(most, |open| open.client == client).ok_or(Full::Client)?;
        }
        if places.has_token {
            state.make_room(limits::STRANGERS, |open| !open.is_known).ok_or(Full::Server)?;
        }
        state.make_room(limits::CONNECTIONS, |_| true).ok_or(Full::Server)?;
        let (number, shared) = (state.next, Arc::<Shared>::default());
        let open = Open { client, is_known: false, phase: Phase::New(Instant::now()), shared: shared.clone() };
        state.open.insert(number, open);
        state.next += 1;
        Ok(Place { places: places.clone(), number, was_asked: AtomicBool::new(false), shared })
    }
}

impl State {
    /// Makes sure that fewer than `most` connections of this kind have a place. `None` if none of them can give way:
    /// their requests are being answered as fast as can be asked, or on the way.
    fn make_room(&mut self, most: usize, is_kind: impl Fn(&Open) -> bool) -> Option<()> {
        let of_kind = || self.open.iter().filter(|(_, open)| is_kind(open));
        if of_kind().count() < most {
            return Some(());
        }
        let oldest = of_kind().filter_map(|(number, open)| Some((open.waits_since()?, *number))).min();
        if let Some((_, oldest)) = oldest {
            self.open.remove(&oldest)?.shared.leave.notify_one();
            return Some(());
        }
        let rated = of_kind().filter_map(|(number, open)| Some((open.rate()?, *number)));
        let (_, slowest) = rated.filter(|(rate, _)| *rate < limits::LEAST_RATE).min()?;
        let slowest = self.open.remove(&slowest)?;
        slowest.shared.is_slow.store(true, Relaxed);
        slowest.shared.leave.notify_one();
        Some(())
    }
}

impl Place {
    /// Notes that the connection has shown the token.
    pub(in crate::serve) fn set_known(&self) {
        self.change(|open| open.is_known = true);
    }

    fn change(&self, change: impl FnOnce(&mut Open)) {
        if let Some(open) = self.places.state.lock().open.get_mut(&self.number) {
            change(open);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.state.lock().open.remove(&self.number);
        self.places.freed.notify_one();
    }
}

/// A request that is being answered, until its answer is made and taken.
struct Answering(Arc<Place>);

impl Answering {
    fn begin(place: Arc<Place>) -> Self {
        place.was_asked.store(true, Relaxed);
        place.change(|open| open.phase = Phase::Answering(Instant::now(), open.shared.taken.load(Relaxed)));
        Self(place)
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.change(|open| open.phase = Phase::Waiting(Instant::now()));
        self.0.places.freed.notify_one();
    }
}

/// The body of an answer.
struct Answer {
    body: Body,
    _answering: Answering,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection whose writes fail if the client takes nothing for `limits::STALLED_SECONDS`.
struct Patient {
    stream: TcpStream,
    /// Counts the bytes that were written, and says since when a write waits.
    shared: Arc<Shared>,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    fn written(&mut self, context: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(done) = &written {
            self.shared.taken.fetch_add(done.as_ref().map_or(0, |&bytes| bytes as u64), Relaxed);
            if self.waiting.take().is_some() {
                *self.shared.waits.lock() = None;
            }
            return written;
        }
        let waiting = self.waiting.get_or_insert_with(|| {
            *self.shared.waits.lock() = Some(Instant::now());
            Box::pin(tokio::time::sleep(Duration::from_secs(limits::STALLED_SECONDS)))
        });
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Patient {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buf)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[io::IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, bufs);
        this.written(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    fn places(has_token: bool) -> Arc<Places> {
        Arc::new(Places { has_token, ..Places::default() })
    }

    /// Takes a place for a connection that has had a request.
    fn take_from(places: &Arc<Places>, client: IpAddr) -> Arc<Place> {
        let place = Arc::new(Places::take(places, client).unwrap());
        drop(Answering::begin(place.clone()));
        place
    }

    fn take(places: &Arc<Places>) -> Arc<Place> {
        take_from(places, HERE)
    }

    fn has_place(place: &Place) -> bool {
        place.places.state.lock().open.contains_key(&place.number)
    }

    #[test]
    fn the_one_that_waits_longest_gives_way() {
        let places = places(false);
        let open: Vec<_> = (0..limits::CONNECTIONS).map(|_| take(&places)).collect();
        let answering = Answering::begin(open[0].clone());
        drop(Answering::begin(open[1].clone()));
        let new = take(&places);
        // The first is being answered, the second was until just now.
        assert_eq!([0, 1, 2, 3].map(|number| has_place(&open[number])), [true, true, false, true]);
        drop(answering);
        let all: Vec<_> = open.iter().chain([&new]).map(|place| Answering::begin(place.clone())).collect();
        assert_eq!(Places::take(&places, HERE).err(), Some(Full::Server));
        drop(all);
        assert!(Places::take(&places, HERE).is_ok());
    }

    #[test]
    fn a_new_one_has_a_moment() {
        let places = places(true);
        let open: Vec<_> = (0..limits::STRANGERS).map(|_| Places::take(&places, HERE).unwrap()).collect();
        let later = Instant::now() + Duration::from_secs(3600);
        places.state.lock().open.values_mut().for_each(|open| open.phase = Phase::New(later));
        assert_eq!(Places::take(&places, HERE).err(), Some(Full::Server));
        places.state.lock().open.values_mut().for_each(|open| open.phase = Phase::New(Instant::now() - A_MOMENT));
        assert!(Places::take(&places, HERE).is_ok() && !has_place(&open[0]) && has_place(&open[1]));
    }

    #[test]
    fn strangers_do_not_take_the_places_of_others() {
        let places = places(true);
        let known = || {
            let place = take(&places);
            place.set_known();
            place
        };
        let known: Vec<_> = (0..limits::CONNECTIONS - limits::STRANGERS).map(|_| known()).collect();
        let strangers: Vec<_> = (0..2 * limits::CONNECTIONS).map(|_| take(&places)).collect();
        assert!(known.iter().all(|place| has_place(place)));
        let newest = strangers.iter().rev().take_while(|place| has_place(place)).count();
        assert_eq!(newest, limits::STRANGERS);
        assert_eq!(strangers.iter().filter(|place| has_place(place)).count(), newest);
    }

    /// As if a client had been answered for an hour, and had taken so many bytes.
    fn answered_for_an_hour(place: &Place, bytes: u64) {
        place.shared.taken.fetch_add(bytes, Relaxed);
        let begin = Instant::now() - Duration::from_secs(3600);
        place.change(|open| match &mut open.phase {
            Phase::Answering(since, _) => *since = begin,
            _ => panic!("not answered"),
        });
    }

    #[test]
    fn if_all_are_busy_the_slowest_gives_way() {
        const LESS: u64 = limits::LEAST_RATE * 3600;
        let places = places(false);
        let open: Vec<_> = (0..limits::CONNECTIONS).map(|_| take(&places)).collect();
        let answering: Vec<_> = open.iter().map(|place| Answering::begin(place.clone())).collect();
        assert_eq!(Places::take(&places, HERE).err(), Some(Full::Server));
        open.iter().for_each(|place| answered_for_an_hour(place, 4 * LESS));
        // As fast as may be asked.
        assert_eq!(Places::take(&places, HERE).err(), Some(Full::Server));
        // One takes half of it, another less.
        places
            .state
            .lock()
            .open
            .values_mut()
            .take(2)
            .zip([7 * LESS / 2, 15 * LESS / 4])
            .for_each(|(open, less)| open.phase = Phase::Answering(Instant::now() - Duration::from_secs(3600), less));
        assert!(Places::take(&places, HERE).is_ok());
        assert_eq!([0, 1, 2].map(|number| has_place(&open[number])), [true, false, true]);
        assert!(open[1].shared.is_slow.load(Relaxed) && !open[0].shared.is_slow.load(Relaxed));
        drop(answering);
    }

    #[test]
    fn a_client_that_has_stopped_is_slow() {
        let places = places(false);
        let place = take(&places);
        let answering = Answering::begin(place.clone());
        answered_for_an_hour(&place, u64::from(u32::MAX));
        let rate = || places.state.lock().open[&place.number].rate().unwrap();
        assert!(rate() > limits::LEAST_RATE);
        *place.shared.waits.lock() = Some(Instant::now() - Duration::from_secs(limits::RATE_SECONDS));
        assert_eq!(rate(), 0);
        drop(answering);
    }

    #[test]
    fn an_address_leaves_places_for_the_next_one() {
        let places = places(false);
        let addresses = (1..=250).map(|number| IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, number)));
        let mut all = Vec::new();
        for (number, address) in addresses.enumerate() {
            let mut own = 0;
            while own < 300
                && let Ok(place) = Places::take(&places, address)
            {
                all.push(Answering::begin(Arc::new(place)));
                own += 1;
            }
            match number {
                0..=2 => assert_eq!(own, limits::CONNECTIONS_AN_ADDRESS),
                3 => assert_eq!(own, limits::CONNECTIONS_AN_ADDRESS / 2),
                _ => assert!(own > 0 || number > 7, "{number}"),
            }
        }
    }

    #[test]
    fn another_machine_has_some_of_the_places() {
        let places = places(false);
        let own = take(&places);
        let open: Vec<_> = (0..limits::CONNECTIONS_AN_ADDRESS).map(|_| take_from(&places, THERE)).collect();
        let next = take_from(&places, THERE);
        assert!(has_place(&own) && !has_place(&open[0]) && has_place(&open[1]));
        let answering: Vec<_> = open.iter().chain([&next]).map(|place| Answering::begin(place.clone())).collect();
        assert_eq!(Places::take(&places, THERE).err(), Some(Full::Client));
        assert!(Places::take(&places, HERE).is_ok());
        drop(answering);
    }
}
