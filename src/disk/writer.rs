//! The queue of blobs to be written, and the thread that writes them.

use std::{
    collections::{HashMap, VecDeque},
    fs::File,
    io,
    sync::{Arc, Weak, atomic::Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use super::{
    Disk, Hash, Payload, Shared, Way, blob, hash,
    plain::{self, Part},
    scan,
};

/// How long a process that ends waits for blobs that are still to be written.
const LAST: Duration = Duration::from_secs(5);

/// A disk that takes longer than this for one blob may never answer.
const STUCK: Duration = Duration::from_secs(5);

/// A disk that takes longer than this for a byte is slow: less than 200 MB/s.
const SLOW: Duration = Duration::from_nanos(5);

/// All files are counted again after this part of the limit was written, because other processes write too.
const RESCAN_PART: u64 = 16;

/// Eviction frees this part of the limit beyond what is needed, so that it is not done for each blob.
const ROOM_PART: u64 = 16;

/// Largest number of blobs that may wait.
const LONGEST_QUEUE: usize = 4096;

/// Blobs on their way to the disk.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) state: Mutex<State>,
    /// Signalled when there is something to write, and when the thread must end.
    filled: Condvar,
    /// Signalled when something was written.
    emptied: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    /// The blobs to write, in order.
    names: VecDeque<Hash>,
    /// The blobs; the one being written is here until it is done.
    waiting: HashMap<Hash, Waiting>,
    /// Bytes of the payloads that are held.
    bytes: u64,
    /// Since when a blob is being written, if one is.
    writing_since: Option<Instant>,
    has_thread: bool,
    is_closed: bool,
}

/// A blob that is not written yet.
struct Waiting {
    key: Box<[u8]>,
    /// Set for one that becomes a plain file.
    part: Option<Part>,
    length: u64,
    kept: Kept,
}

/// What keeps the payload until it is written.
enum Kept {
    /// The queue holds it, and counts its bytes.
    Held(Payload),
    /// A cache holds it, until it needs the room.
    Cached(Weak<dyn AsRef<[u8]> + Send + Sync>),
}

impl Kept {
    fn payload(&self) -> Option<Payload> {
        match self {
            Self::Held(payload) => Some(payload.clone()),
            Self::Cached(payload) => payload.upgrade(),
        }
    }
}

impl State {
    /// Takes out all blobs.
    pub(super) fn clear(&mut self) {
        (self.names, self.waiting, self.bytes) = (VecDeque::new(), HashMap::new(), 0);
    }

    /// Takes a blob out.
    pub(super) fn take_out(&mut self, hash: &Hash) {
        if let Some(Waiting { length, kept: Kept::Held(_), .. }) = self.waiting.remove(hash) {
            self.bytes -= length;
        }
    }

    /// Takes over payloads that only a cache holds, oldest first, as far as there is room. Returns how many the cache
    /// has given up meanwhile.
    fn hold_next(&mut self, limit: u64) -> u64 {
        let mut lost = 0;
        for hash in &self.names {
            let Some(Waiting { length, kept, .. }) = self.waiting.get_mut(hash) else { continue };
            let Kept::Cached(payload) = kept else { continue };
            match payload.upgrade() {
                None => {
                    self.waiting.remove(hash);
                    lost += 1;
                }
                Some(_) if !has_room(self.bytes, *length, limit) => break,
                Some(payload) => {
                    self.bytes += *length;
                    *kept = Kept::Held(payload);
                }
            }
        }
        lost
    }
}

/// Returns whether `length` more bytes may be held beside `bytes`. A single blob always may.
fn has_room(bytes: u64, length: u64, limit: u64) -> bool {
    bytes == 0 || bytes.saturating_add(length) <= limit
}

impl Disk {
    /// Takes a blob into the queue if it has room. The first blob starts the thread. If there is no room, a
    /// [`Way::Cached`] payload waits in its cache, and is lost if the cache gives it up.
    pub(super) fn enqueue(&self, key: &[u8], payload: Payload, way: Way, part: Option<Part>) -> bool {
        let hash = hash(key);
        let length = (*payload).as_ref().len() as u64;
        let mut state = self.shared.queue.state.lock();
        if state.waiting.get(&hash).is_some_and(|waiting| waiting.kept.payload().is_some()) {
            return true;
        }
        let kept = match has_room(state.bytes, length, self.shared.limits.queue) {
            true => Kept::Held(payload),
            false if way == Way::Cached && state.names.len() < LONGEST_QUEUE => Kept::Cached(Arc::downgrade(&payload)),
            false => return false,
        };
        if !state.has_thread {
            let shared = self.shared.clone();
            let thread = thread::Builder::new().name("disk-cache".to_owned());
            if thread.spawn(move || run(&shared)).is_err() {
                return false;
            }
            state.has_thread = true;
        }
        if matches!(kept, Kept::Held(_)) {
            state.bytes += length;
        }
        state.names.push_back(hash);
        state.waiting.insert(hash, Waiting { key: key.into(), part, length, kept });
        self.shared.queue.filled.notify_one();
        true
    }

    /// Returns the payload of a blob that is not written yet.
    pub(super) fn waiting(&self, hash: &Hash) -> Option<Payload> {
        self.shared.queue.state.lock().waiting.get(hash)?.kept.payload()
    }

    /// Drops what waits to be written if the disk seems not to answer, to free its memory: all but the blob that is
    /// being written. Returns whether there was any.
    pub fn give_up_queue(&self) -> bool {
        let mut state = self.shared.queue.state.lock();
        if state.writing_since.is_none_or(|since| since.elapsed() < STUCK) {
            return false;
        }
        let names = std::mem::take(&mut state.names);
        names.iter().for_each(|hash| state.take_out(hash));
        !names.is_empty()
    }

    /// Returns how many bytes the queue holds.
    pub fn queued(&self) -> u64 {
        self.shared.queue.state.lock().bytes
    }

    /// Waits some seconds at most until everything is written or dropped. A process calls it before it ends.
    pub fn finish(&self) {
        // A disk that does not answer blocks only the writing thread.
        self.flush(LAST);
    }

    /// Waits until everything that was put before is written or dropped, for `most` at most. Returns whether it is.
    pub fn flush(&self, most: Duration) -> bool {
        let end = Instant::now() + most;
        let mut state = self.shared.queue.state.lock();
        while state.writing_since.is_some() || !state.names.is_empty() {
            if self.shared.queue.emptied.wait_until(&mut state, end).timed_out() {
                return false;
            }
        }
        true
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.finish();
        self.shared.queue.state.lock().is_closed = true;
        self.shared.queue.filled.notify_all();
    }
}

/// Writes blobs until the cache is closed.
fn run(shared: &Shared) {
    let queue = &shared.queue;
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
        let Some(waiting) = state.waiting.get(&hash) else {
            drop(state);
            queue.emptied.notify_all();
            continue;
        };
        let (key, part, payload) = (waiting.key.clone(), waiting.part.clone(), waiting.kept.payload());
        // The page cache absorbs more at once than a slow disk that is behind.
        let is_behind = known.is_slow && state.bytes > shared.limits.queue / 2;
        let past_page_cache = !is_behind;
        state.writing_since = Some(Instant::now());
        drop(state);
        let begun = Instant::now();
        let stored = payload.filter(|payload| {
            let name = (&*key, &hash, part.as_ref());
            shared.is_writable() && store(shared, &mut known, name, (**payload).as_ref(), past_page_cache)
        });
        if let Some(payload) = stored {
            let length = (*payload).as_ref().len() as u64;
            shared.counters.written.fetch_add(1, Relaxed);
            shared.counters.written_bytes.fetch_add(length, Relaxed);
            if past_page_cache {
                known.is_slow = begun.elapsed() > SLOW.mul_f64(length as f64);
            }
        } else {
            shared.counters.dropped.fetch_add(1, Relaxed);
            shared.counters.unwritten.fetch_add(1, Relaxed);
        }
        let mut state = queue.state.lock();
        let was_removed = !state.waiting.contains_key(&hash);
        state.take_out(&hash);
        let lost = state.hold_next(shared.limits.queue);
        state.writing_since = None;
        drop(state);
        shared.counters.dropped.fetch_add(lost, Relaxed);
        if was_removed {
            shared.folder.remove(&hash);
        }
        queue.emptied.notify_all();
    }
}

/// What this process knows of the folder's size.
#[derive(Debug, Default)]
struct Known {
    /// Bytes of all blobs at the last count, and bytes that were written since.
    bytes: Option<u64>,
    written: u64,
    /// Whether the last write past the page cache was slow.
    is_slow: bool,
}

/// Makes room and writes a blob or plain file. Returns whether it is stored now; errors are counted and logged.
fn store(
    shared: &Shared,
    known: &mut Known,
    (key, hash, part): (&[u8], &Hash, Option<&Part>),
    payload: &[u8],
    past_page_cache: bool,
) -> bool {
    let size = match part {
        Some(part) => plain::space(key, part, payload),
        None => scan::space(blob::file_size(key, payload)),
    };
    let stored = make_room(shared, known, size).and_then(|has_room| {
        match part {
            _ if !has_room => {}
            Some(part) => shared.write_plain(key, part, payload, past_page_cache)?,
            None => shared.write(hash, |file| blob::write(file, key, payload, past_page_cache))?,
        }
        Ok(has_room)
    });
    let is_there = stored.unwrap_or_else(|error| {
        shared.not_written(&error);
        false
    });
    known.written += if is_there { size } else { 0 };
    shared.used.store(known.bytes.map_or(u64::MAX, |bytes| bytes + known.written), Relaxed);
    is_there
}

/// Evicts until a blob has room within both limits. Returns whether it has.
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
        // Other processes may have evicted since.
        true => look(shared, known)?.saturating_add(size).saturating_sub(limits.size),
        false => 0,
    };
    let needed = limits.free.saturating_add(size);
    let short = needed.saturating_sub(shared.folder.free()?);
    if over == 0 && short == 0 {
        return Ok(true);
    }
    // One process evicts at a time. The others drop their blob instead of waiting.
    let Some(_lock) = shared.folder.lock()? else { return Ok(false) };
    let freed = scan::evict(&shared.folder, over.max(short).saturating_add(limits.size / ROOM_PART))?;
    shared.counters.evicted.fetch_add(freed.blobs, Relaxed);
    let left = look(shared, known)?;
    if shared.folder.free()? < needed {
        return Err(io::Error::from_raw_os_error(libc::ENOSPC));
    }
    Ok(left.saturating_add(size) <= limits.size)
}

/// Counts all files. Returns their bytes.
fn look(shared: &Shared, known: &mut Known) -> io::Result<u64> {
    scan::clean(&shared.folder)?;
    let bytes = scan::usage(&shared.folder)?.bytes;
    (known.bytes, known.written) = (Some(bytes), 0);
    Ok(bytes)
}

impl Shared {
    /// Writes a file under a temporary name and renames it to its place.
    pub(super) fn write(&self, hash: &Hash, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
        let (mut file, temporary) = self.folder.temporary()?;
        let kept = write(&mut file).and_then(|()| self.folder.keep(&temporary, hash));
        if kept.is_err() {
            self.folder.discard(&temporary);
        }
        kept
    }
}
