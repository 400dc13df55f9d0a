//! Opened files in passthrough mode: which way each inode is served while it is open.
//!
//! The kernel holds an inode either in its page cache or passes it through, never both (EIO), and wants one
//! registration for all handles of an inode. So the first handle decides, and the last one takes the decision back.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use fuser::{BackingId, FileHandle, FopenFlags, ReplyOpen};
use parking_lot::Mutex;

use crate::{
    cache::FileSlot,
    source::Wait,
    vfs::{Error, Growing, Opening, Vfs},
};

/// Number of handles whose reads bypass the kernel's cache; all others have 0.
pub(super) const DIRECT: FileHandle = FileHandle(1);

/// The files that are open.
#[derive(Default)]
pub(super) struct Handles(Mutex<State>);

#[derive(Default)]
struct State {
    open: HashMap<u64, Open>,
    /// Bytes of files in memory that cannot be given up while they are open.
    held: u64,
}

struct Open {
    count: u64,
    how: How,
}

enum How {
    /// The kernel asks for what it does not have, and keeps it.
    Cached,
    /// The kernel asks for everything and keeps nothing.
    Direct(Option<Arc<Growing>>),
    /// The kernel reads from a file by itself: from one in memory, which is kept while it is open, or from one of
    /// SOURCE.
    Passed(BackingId, Option<Arc<FileSlot>>),
}

impl Handles {
    /// Returns the best way to open a file; `None` if it is open already.
    ///
    /// # Errors
    /// As [`Vfs::opening`].
    pub(super) fn choose(&self, vfs: &Vfs, ino: u64, wait: Wait) -> Result<Option<Opening>, Error> {
        if self.0.lock().open.contains_key(&ino) {
            return Ok(None);
        }
        match vfs.opening(ino, wait) {
            // No descriptor is free for the kernel. It reads through its cache, which needs one only now and then.
            Err(error) if matches!(error.errno(), libc::EMFILE | libc::ENFILE) => Ok(Some(Opening::Parts)),
            opening => opening.map(Some),
        }
    }

    /// Answers an `open`.
    pub(super) fn open(&self, vfs: &Vfs, ino: u64, opening: Option<Opening>, reply: ReplyOpen) {
        let mut guard = self.0.lock();
        let state = &mut *guard;
        let open = state.open.entry(ino).or_insert_with(|| {
            // The last handle of an open file may have been closed meanwhile.
            let mut how = choose(opening.unwrap_or(Opening::Parts), vfs, &reply);
            // So much memory is held by open files that it could not be given up. The kernel's cache could.
            if how.held() > 0 && state.held + how.held() > vfs.cache().usage().0 / 2 {
                how = How::Cached;
            }
            state.held += how.held();
            Open { count: 0, how }
        });
        open.count += 1;
        match &open.how {
            How::Cached => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE),
            How::Direct(_) => reply.opened(DIRECT, FopenFlags::FOPEN_DIRECT_IO),
            How::Passed(backing, _) => {
                vfs.requests.passed.fetch_add(1, Relaxed);
                reply.opened_passthrough(FileHandle(0), FopenFlags::empty(), backing);
            }
        }
    }

    /// Takes a handle back. With the last one, the file in memory may be evicted again.
    pub(super) fn release(&self, ino: u64) {
        let mut state = self.0.lock();
        let Entry::Occupied(mut entry) = state.open.entry(ino) else { return };
        entry.get_mut().count -= 1;
        if entry.get().count == 0 {
            let open = entry.remove();
            state.held -= open.how.held();
        }
    }

    /// Returns the file that is read past the kernel's cache while it is finished in memory.
    pub(super) fn growing(&self, ino: u64) -> Option<Arc<Growing>> {
        match &self.0.lock().open.get(&ino)?.how {
            How::Direct(growing) => growing.clone(),
            How::Cached | How::Passed(..) => None,
        }
    }
}

impl How {
    fn held(&self) -> u64 {
        match self {
            Self::Passed(_, Some(slot)) => slot.memory().size(),
            _ => 0,
        }
    }
}

fn choose(opening: Opening, vfs: &Vfs, reply: &ReplyOpen) -> How {
    let passed = |registered: std::io::Result<BackingId>, slot| match registered {
        Ok(backing) => How::Passed(backing, slot),
        Err(error) => {
            log::debug!("the kernel would not take a file to serve: {error}");
            How::Cached
        }
    };
    match opening {
        Opening::Finished(slot) => passed(slot.memory().with_descriptor(|file| reply.open_backing(file)), Some(slot)),
        Opening::Own(file) => passed(reply.open_backing(&file), None),
        Opening::Growing(growing) if vfs.serving().maps_direct => How::Direct(Some(growing)),
        Opening::Growing(_) | Opening::Parts => How::Cached,
        Opening::Snapshot => How::Direct(None),
    }
}
