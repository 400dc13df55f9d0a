//! Stands before a server: adds round-trip time, limits the rate of each connection, counts requests and bytes.
//!
//! `proxy TARGET MILLISECONDS MEGABYTES_A_SECOND`, 0 for none. It prints two ports: its own, and one where each
//! connection is told the connections, the requests and the bytes of answers since the one before. Requests have no
//! body. A new connection takes one round trip more, as it does without a proxy. Built by `rustc -O`.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
static REQUESTS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// Bytes that may be on their way in one direction of a connection.
const BUFFERS: usize = 64;
const BUFFER: usize = 128 << 10;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments[at].parse::<f64>().expect("a number");
    let (target, round_trip, rate) = (arguments[0].clone(), Duration::from_secs_f64(number(1) / 1e3), number(2) * 1e6);
    let own = TcpListener::bind("127.0.0.1:0").expect("a port");
    let counts = TcpListener::bind("127.0.0.1:0").expect("a port");
    println!("{} {}", own.local_addr().expect("bound").port(), counts.local_addr().expect("bound").port());
    thread::spawn(move || {
        for mut asker in counts.incoming().flatten() {
            let [a, b, c] = [&CONNECTIONS, &REQUESTS, &BYTES].map(|count| count.swap(0, Relaxed));
            let _ = writeln!(asker, "{a} {b} {c}");
        }
    });
    for client in own.incoming().flatten() {
        let target = target.clone();
        thread::spawn(move || {
            CONNECTIONS.fetch_add(1, Relaxed);
            let Ok(server) = TcpStream::connect(target) else { return };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            thread::sleep(round_trip);
            let (from, to) = (client.try_clone().expect("a descriptor"), server.try_clone().expect("a descriptor"));
            thread::spawn(move || pass_on(from, to, round_trip / 2, 0.0, |bytes| {
                let ends = bytes.windows(4).filter(|end| end == b"\r\n\r\n").count();
                REQUESTS.fetch_add(ends as u64, Relaxed);
            }));
            pass_on(server, client, round_trip / 2, rate, |bytes| {
                BYTES.fetch_add(bytes.len() as u64, Relaxed);
            });
        });
    }
}

/// Passes bytes on, each after a delay, at most so many a second.
fn pass_on(mut from: TcpStream, mut to: TcpStream, delay: Duration, rate: f64, count: impl Fn(&[u8])) {
    let mut buffer = vec![0; BUFFER];
    if delay.is_zero() && rate == 0.0 {
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            count(&buffer[..length]);
            if to.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
        return;
    }
    let (waiting, due) = mpsc::sync_channel::<(Instant, Vec<u8>)>(BUFFERS);
    let writer = thread::spawn(move || {
        for (at, bytes) in due {
            thread::sleep(at.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
    let mut free = Instant::now();
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        count(&buffer[..length]);
        let now = Instant::now();
        if rate > 0.0 {
            free = free.max(now) + Duration::from_secs_f64(length as f64 / rate);
            thread::sleep(free.saturating_duration_since(now));
        }
        if waiting.send((Instant::now() + delay, buffer[..length].to_vec())).is_err() {
            break;
        }
    }
    drop(waiting);
    let _ = (writer.join(), from.shutdown(Shutdown::Both));
}
