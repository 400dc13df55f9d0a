//! The queue of blobs to be written, and the thread that writes them.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use super::{Hash, Payload, Shared, blob, scan};

/// How long a process that ends waits for what is still to be written.
const LAST: Duration = Duration::from_secs(5);

/// All files are looked at again after a part of the limit was written: others write too.
const RESCAN_PART: u64 = 16;

/// Eviction makes room for a part of the limit beyond what is needed, so that it is not done for each blob.
const ROOM_PART: u64 = 16;

/// Blobs on their way to the disk.
pub(super) struct Writer {
    queue: Arc<Queue>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    /// Signalled when there is something to write, and when the thread has to end.
    filled: Condvar,
    /// Signalled when something was written.
    emptied: Condvar,
}

#[derive(Default)]
struct State {
    /// In order.
    names: VecDeque<Hash>,
    /// Their keys and payloads; the one being written is here until it is done.
    waiting: HashMap<Hash, (Box<[u8]>, Payload)>,
    /// Bytes of these payloads.
    bytes: u64,
    /// Whether a blob is being written.
    is_writing: bool,
    has_thread: bool,
    is_closed: bool,
}

impl State {
    fn take_out(&mut self, hash: &Hash) {
        if let Some((_, payload)) = self.waiting.remove(hash) {
            self.bytes -= (*payload).as_ref().len() as u64;
        }
    }
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { queue: Arc::default(), shared }
    }

    /// Takes a blob into the queue if it has room; the first starts the thread.
    pub(super) fn put(&self, key: &[u8], hash: Hash, payload: Payload) -> bool {
        let length = (*payload).as_ref().len() as u64;
        let mut state = self.queue.state.lock();
        if state.waiting.contains_key(&hash) {
            return true;
        }
        // One blob has room however long it is.
        if state.bytes > 0 && state.bytes.saturating_add(length) > self.shared.limits.queue {
            return false;
        }
        if !state.has_thread {
            let (queue, shared) = (self.queue.clone(), self.shared.clone());
            let thread = thread::Builder::new().name("disk-cache".to_owned());
            if thread.spawn(move || run(&queue, &shared)).is_err() {
                return false;
            }
            state.has_thread = true;
        }
        state.names.push_back(hash);
        state.waiting.insert(hash, (key.into(), payload));
        state.bytes += length;
        self.queue.filled.notify_one();
        true
    }

    /// The payload of a blob that is not written yet.
    pub(super) fn waiting(&self, hash: &Hash) -> Option<Payload> {
        self.queue.state.lock().waiting.get(hash).map(|(_, payload)| payload.clone())
    }

    /// Takes a blob out of the queue.
    pub(super) fn forget(&self, hash: &Hash) {
        self.queue.state.lock().take_out(hash);
    }

    /// Takes all of them out.
    pub(super) fn clear(&self) {
        let mut state = self.queue.state.lock();
        (state.names, state.waiting, state.bytes) = (VecDeque::new(), HashMap::new(), 0);
    }

    /// Bytes in the queue.
    pub(super) fn queued(&self) -> u64 {
        self.queue.state.lock().bytes
    }

    /// Waits until the queue is empty.
    pub(super) fn flush(&self, most: Duration) -> bool {
        let end = Instant::now() + most;
        let mut state = self.queue.state.lock();
        while state.is_writing || !state.names.is_empty() {
            if self.queue.emptied.wait_until(&mut state, end).timed_out() {
                return false;
            }
        }
        true
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // A disk that does not answer blocks this thread alone.
        self.flush(LAST);
        self.queue.state.lock().is_closed = true;
        self.queue.filled.notify_all();
    }
}

/// Writes what comes until the writer is gone.
fn run(queue: &Queue, shared: &Shared) {
    let mut known = Known::default();
    loop {
        let mut state = queue.state.lock();
        let hash = loop {
            if state.is_closed {
                return;
            }
            match state.names.pop_front() {
                Some(hash) => break hash,
                None => queue.filled.wait(&mut state),
            }
        };
        let taken = state.waiting.get(&hash).map(|(key, payload)| (key.clone(), payload.clone()));
        state.is_writing = true;
        drop(state);
        if let Some((key, payload)) = taken {
            let payload = (*payload).as_ref();
            if shared.is_writable() && store(shared, &mut known, (&key, &hash), payload) {
                shared.counters.written.fetch_add(1, Relaxed);
                shared.counters.written_bytes.fetch_add(payload.len() as u64, Relaxed);
            } else {
                shared.counters.dropped.fetch_add(1, Relaxed);
            }
        }
        let mut state = queue.state.lock();
        let was_removed = !state.waiting.contains_key(&hash);
        state.take_out(&hash);
        state.is_writing = false;
        drop(state);
        if was_removed {
            shared.folder.remove(&hash);
        }
        queue.emptied.notify_all();
    }
}

/// What this process knows of the folder's size.
#[derive(Debug, Default)]
struct Known {
    /// Bytes of all blobs when they were looked at last, and those that were written since.
    bytes: Option<u64>,
    written: u64,
}

/// Makes room and writes one blob. Whether it is there now; errors are noted.
fn store(shared: &Shared, known: &mut Known, (key, hash): (&[u8], &Hash), payload: &[u8]) -> bool {
    let size = scan::space(blob::file_size(key, payload));
    let stored = make_room(shared, known, size).and_then(|has_room| match has_room {
        true => write(shared, key, hash, payload).map(|()| true),
        false => Ok(false),
    });
    let is_there = stored.unwrap_or_else(|error| {
        shared.not_written(&error);
        false
    });
    known.written += if is_there { size } else { 0 };
    is_there
}

/// Evicts until a blob has room within both limits. Whether it has.
fn make_room(shared: &Shared, known: &mut Known, size: u64) -> io::Result<bool> {
    let limits = &shared.limits;
    if size > limits.size / 2 {
        return Ok(false);
    }
    let bytes = match known.bytes {
        Some(bytes) if known.written <= limits.size / RESCAN_PART => bytes + known.written,
        _ => look(shared, known)?,
    };
    let over = match bytes.saturating_add(size) > limits.size {
        // Others may have evicted since.
        true => look(shared, known)?.saturating_add(size).saturating_sub(limits.size),
        false => 0,
    };
    let needed = limits.free.saturating_add(size);
    let short = needed.saturating_sub(shared.folder.free()?);
    if over == 0 && short == 0 {
        return Ok(true);
    }
    // One process evicts at a time. The others go without this blob in place of waiting.
    let Some(_lock) = shared.folder.lock()? else { return Ok(false) };
    let freed = scan::evict(&shared.folder, over.max(short).saturating_add(limits.size / ROOM_PART))?;
    shared.counters.evicted.fetch_add(freed.blobs, Relaxed);
    let left = look(shared, known)?;
    if shared.folder.free()? < needed {
        return Err(io::Error::from_raw_os_error(libc::ENOSPC));
    }
    Ok(left.saturating_add(size) <= limits.size)
}

/// Looks at all files. Returns their bytes.
fn look(shared: &Shared, known: &mut Known) -> io::Result<u64> {
    scan::clean(&shared.folder)?;
    let bytes = scan::usage(&shared.folder)?.bytes;
    *known = Known { bytes: Some(bytes), written: 0 };
    Ok(bytes)
}

fn write(shared: &Shared, key: &[u8], hash: &Hash, payload: &[u8]) -> io::Result<()> {
    let (mut file, temporary) = shared.folder.temporary()?;
    let kept = blob::write(&mut file, key, payload).and_then(|()| shared.folder.keep(&temporary, hash));
    if kept.is_err() {
        shared.folder.discard(&temporary);
    }
    kept
}
