//! Where a request is worked on: on the thread that took it, where that takes no waiting, and otherwise in the pool.

use std::{ffi::OsStr, sync::Arc};

use fuser::{INodeNo, Request};

use super::{
    Adapter,
    awake::Awake,
    filesystems::Filesystems,
    guard::guarded,
    known::{FromMemory, LastKnown},
    notify::Behind,
    pending::{Fails, Slot},
    reply::errno,
};
use crate::{
    pool::pool,
    source::Wait,
    vfs::{Error, Vfs},
};

/// What a request is about: its reader, and the node it looks at.
#[derive(Clone, Copy)]
pub(super) struct About<'a> {
    reader: u32,
    ino: u64,
    name: Option<&'a OsStr>,
}

impl<'a> About<'a> {
    pub(super) fn node(request: &Request, ino: INodeNo) -> Self {
        Self { reader: request.pid(), ino: ino.0, name: None }
    }

    pub(super) fn name(request: &Request, ino: INodeNo, name: &'a OsStr) -> Self {
        Self { name: Some(name), ..Self::node(request, ino) }
    }
}

impl Behind {
    /// Answers a request that was worked on.
    fn answer<R: Fails, T>(
        &self,
        vfs: &Vfs,
        slot: &Slot<R>,
        done: Result<T, Error>,
        answer: impl FnOnce(&Vfs, Option<R>, T),
    ) {
        match self.checked(vfs, done) {
            Ok(done) => answer(vfs, slot.take(), done),
            Err(error) => slot.fail(errno(&error)),
        }
    }
}

impl Adapter {
    pub(super) fn new(vfs: Arc<Vfs>, awake: Option<Awake>) -> Self {
        let behind = Behind {
            filesystems: Arc::new(Filesystems::new(vfs.source())),
            pending: Arc::default(),
            notifier: Arc::default(),
            pages: Arc::default(),
        };
        Self { vfs, handles: None, behind, root: Arc::default(), space: Arc::default(), awake }
    }

    /// Answers a request: on this thread if that needs no waiting, otherwise in the pool. `work` is tried with
    /// [`Wait::Never`] first, and may fill the reply.
    pub(super) fn run<R: Fails, T>(
        &self,
        about: About<'_>,
        reply: R,
        work: impl Fn(&Vfs, &Slot<R>, Wait) -> Result<T, Error> + Send + 'static,
        answer: impl FnOnce(R, T) + Send + 'static,
    ) {
        let answer = |_: &Vfs, reply: Option<R>, done| reply.map_or((), |reply| answer(reply, done));
        self.run_counted(about, reply, work, answer);
    }

    /// Does the same for an answer that the kernel counts: `answer` gets no reply if the request was answered meanwhile.
    pub(super) fn run_counted<R: Fails, T>(
        &self,
        about: About<'_>,
        reply: R,
        work: impl Fn(&Vfs, &Slot<R>, Wait) -> Result<T, Error> + Send + 'static,
        answer: impl FnOnce(&Vfs, Option<R>, T) + Send + 'static,
    ) {
        let slot = Slot::new(reply);
        guarded(&self.vfs, |vfs| match work(vfs, &slot, Wait::Never) {
            Err(error) if error.is_would_block() => {
                let Some(reply) = slot.take() else { return };
                let behind = self.behind.clone();
                self.wait(about, reply, None, move |vfs, slot| {
                    let done = work(vfs, slot, Wait::Always);
                    behind.answer(vfs, slot, done, answer);
                });
            }
            done => {
                self.behind.answer(vfs, &slot, done, answer);
                self.answered();
            }
        });
    }

    /// Answers a request in the pool, and from memory if the disk gives no answer or has given none to the request before.
    pub(super) fn run_known<R: Fails, T: Copy + Send + 'static>(
        &self,
        about: About<'_>,
        reply: R,
        known: &Arc<LastKnown<T>>,
        ask: impl FnOnce(&Vfs) -> Result<T, Error> + Send + 'static,
        answer: impl Fn(R, T) + Copy + Send + 'static,
    ) {
        let last = known.clone();
        let from_memory = move |reply| last.late().map_or((), |value| answer(reply, value));
        if known.is_late() {
            return from_memory(reply);
        }
        let from_memory = known.is_known().then(|| -> FromMemory<R> { Box::new(from_memory) });
        let known = known.clone();
        self.wait(about, reply, from_memory, move |vfs, slot| {
            let found = ask(vfs);
            known.arrived(found.as_ref().ok().copied());
            match found {
                Ok(value) => slot.take().map_or((), |reply| answer(reply, value)),
                Err(error) => slot.fail(errno(&error)),
            }
        });
    }

    /// Called after an answer on the spot.
    pub(super) fn answered(&self) {
        self.awake.iter().for_each(Awake::wait);
    }

    /// Works on a request in the pool. `from_memory` gives the answer to use if the disk gives none.
    pub(super) fn wait<R: Fails>(
        &self,
        about: About<'_>,
        reply: R,
        from_memory: Option<FromMemory<R>>,
        work: impl FnOnce(&Vfs, &Slot<R>) + Send + 'static,
    ) {
        let place = self.behind.filesystems.place(&self.vfs.path_on_disk(about.ino, about.name));
        let slot = Arc::new(Slot::new(reply));
        let from_memory = from_memory.map(|answer| -> Box<dyn FnOnce() + Send> {
            let slot = slot.clone();
            Box::new(move || slot.take().map_or((), answer))
        });
        let ticket = self.behind.pending.begin((about.ino, about.reader), &slot, from_memory);
        let is_given_up = ticket.is_given_up.clone();
        let vfs = self.vfs.clone();
        pool().run(place, is_given_up, move || {
            let _ticket = ticket;
            guarded(&vfs, |vfs| work(vfs, &slot));
        });
    }
}
