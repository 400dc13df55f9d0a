//! Telling the kernel what to forget, from a thread of its own.
//!
//! A notification can wait in the kernel for a request that is under way (of a folder that is locked for a look-up, of
//! a page that is being read). Threads that answer requests therefore never send one, and never wait for this thread.

use std::{
    io,
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

use fuser::{INodeNo, Notifier};

use crate::vfs::{Change, Vfs};

/// How often the thread looks whether it is still wanted.
const LOOK_UP: Duration = Duration::from_secs(2);
/// How often containers that are gone are closed.
const SWEEP: Duration = Duration::from_secs(5);

/// Starts the thread. It ends when the filesystem does.
pub(super) fn start(vfs: &Arc<Vfs>, notifier: Notifier) -> io::Result<()> {
    let vfs = Arc::downgrade(vfs);
    thread::Builder::new().name("notify".into()).spawn(move || run(&vfs, &notifier)).map(drop)
}

fn run(vfs: &Weak<Vfs>, notifier: &Notifier) {
    let mut swept = Instant::now();
    while let Some(vfs) = vfs.upgrade() {
        for change in vfs.wait_for_changes(LOOK_UP) {
            let told = match &change {
                Change::Name(parent, name) => notifier.inval_entry(INodeNo(*parent), name),
                Change::Node(ino) => notifier.inval_inode(INodeNo(*ino), 0, 0),
            };
            if let Err(error) = told {
                // The mount is gone, or the kernel is too old for this: names run out by themselves.
                log::debug!("{change:?}: {error}");
            }
        }
        if swept.elapsed() > SWEEP {
            vfs.sweep();
            swept = Instant::now();
        }
    }
}
