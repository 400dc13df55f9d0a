//! Connections: as many as there are places for, each ended when its client is too slow.

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::Sleep,
};

use super::{Handler, limits};

/// Accepts connections without end, and serves each in a task of its own.
pub(super) async fn accept(listener: TcpListener, handler: Arc<Handler>) {
    let places = Arc::new(Semaphore::new(limits::CONNECTIONS));
    let clients = Arc::<Clients>::default();
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let (stream, client) = match listener.accept().await {
            Ok((stream, client)) => (stream, client.ip()),
            Err(error) => {
                // A connection that is gone already, or no descriptor for it.
                log::debug!("a connection was not accepted: {error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let Some(counted) = Clients::count(&clients, client) else { continue };
        let handler = handler.clone();
        tokio::spawn(async move {
            let _held = (place, counted);
            serve(stream, handler).await;
        });
    }
}

async fn serve(stream: TcpStream, handler: Arc<Handler>) {
    let _ = stream.set_nodelay(true);
    let service = hyper::service::service_fn(move |request| {
        let handler = handler.clone();
        async move { Ok::<_, std::convert::Infallible>(handler.answer(request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(limits::REQUEST_SECONDS))
        .max_header_size(limits::REQUEST_HEAD)
        .max_headers(limits::REQUEST_HEADERS)
        .max_buf_size(2 * limits::REQUEST_HEAD)
        // What is lent from a map is given to the system call as it is: nothing else may look at it.
        .writev(true)
        .serve_connection(TokioIo::new(Patient::new(stream)), service);
    if let Err(error) = served.await {
        log::debug!("a connection ended: {error}");
    }
}

/// How many connections each other machine has.
#[derive(Default)]
struct Clients(Mutex<HashMap<IpAddr, usize>>);

/// One connection that is counted.
struct Counted {
    clients: Arc<Clients>,
    client: IpAddr,
}

impl Clients {
    /// Counts a connection until what comes back is dropped; `None` where the client has enough of them.
    fn count(clients: &Arc<Self>, client: IpAddr) -> Option<Counted> {
        let mut counts = clients.0.lock();
        let count = counts.entry(client).or_default();
        if *count >= limits::CONNECTIONS_AN_ADDRESS && !client.to_canonical().is_loopback() {
            log::debug!("{client}: too many connections");
            return None;
        }
        *count += 1;
        Some(Counted { clients: clients.clone(), client })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.clients.0.lock();
        if let Some(count) = counts.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.client);
            }
        }
    }
}

/// A connection whose writing fails when the other side takes nothing for long.
struct Patient {
    stream: TcpStream,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    fn new(stream: TcpStream) -> Self {
        Self { stream, waiting: None }
    }

    fn written(&mut self, context: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let patience = Duration::from_secs(limits::STALLED_SECONDS);
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
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
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, buf);
        this.written(context, written)
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
