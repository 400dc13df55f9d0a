//! Where a request is worked on: on the thread that took it, where that takes no waiting, and otherwise in the pool.

use std::{ffi::OsStr, sync::Arc};

use fuser::{INodeNo, Request};

use super::{
    Adapter,
    awake::Awake,
    filesystems::Filesystems,
    guard::guarded,
    known::FromMemory,
    notify::Behind,
    pending::{Fails, Slot},
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

impl Adapter {
    pub(super) fn new(vfs: Arc<Vfs>, awake: Option<Awake>) -> Self {
        let behind = Behind {
            filesystems: Arc::new(Filesystems::new(vfs.source())),
            pending: Arc::default(),
            notifier: Arc::default(),
            pages: Arc::default(),
        };
        Self { vfs, handles: None, behind, known: Arc::default(), awake }
    }

    /// Answers a request: on this thread if that needs no waiting, otherwise in the pool. `work` is tried with
    /// [`Wait::Never`] first. The pool's result is dropped if the request was answered meanwhile.
    pub(super) fn run<R: Fails, T>(
        &self,
        about: About<'_>,
        reply: R,
        work: impl Fn(&Vfs, Wait) -> Result<T, Error> + Send + 'static,
        answer: impl FnOnce(&Vfs, Option<R>, Result<T, Error>) + Send + 'static,
    ) {
        guarded(&self.vfs, |vfs| match work(vfs, Wait::Never) {
            Err(error) if error.is_would_block() => {
                let behind = self.behind.clone();
                self.wait(about, reply, None, move |vfs, slot| {
                    let done = behind.checked(vfs, work(vfs, Wait::Always));
                    answer(vfs, slot.take(), done);
                });
            }
            done => {
                answer(vfs, Some(reply), self.behind.checked(vfs, done));
                self.answered();
            }
        });
    }

    /// Does the same for a listing, which fills its reply while it works. `list` returns whether it added anything;
    /// entries added before something has to be waited for make an answer.
    pub(super) fn list<R: Fails>(
        &self,
        about: About<'_>,
        reply: R,
        list: impl Fn(&Vfs, &Slot<R>, Wait) -> (bool, Result<(), Error>) + Send + 'static,
        answer: impl FnOnce(&Vfs, Option<R>, Result<(), Error>) + Send + 'static,
    ) {
        let slot = Slot::new(reply);
        guarded(&self.vfs, |vfs| match list(vfs, &slot, Wait::Never) {
            (false, Err(error)) if error.is_would_block() => {
                let Some(reply) = slot.take() else { return };
                self.wait(about, reply, None, move |vfs, slot| {
                    let listed = list(vfs, slot, Wait::Always).1;
                    answer(vfs, slot.take(), listed);
                });
            }
            (_, listed) => {
                let listed = listed.or_else(|error| if error.is_would_block() { Ok(()) } else { Err(error) });
                answer(vfs, slot.take(), listed);
                self.answered();
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
