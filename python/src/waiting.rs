//! Calls of Python's main thread that may take long: another thread does the work, and signals are handled meanwhile.
//! Ctrl-C ends the call at once. The work has nothing of the caller's, so it may end later: it is told that nobody waits.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

use pyo3::{intern, prelude::*};
use shardfs::Error;

use crate::{
    error::{Panicked, caught, fault, guarded, to_python},
    owned::Owned,
};

/// Time between looks for signals.
const PATIENCE: Duration = Duration::from_millis(100);

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    /// The thread that works for this one, unless it works already. Starting one for each call costs ten times as much.
    static HELPER: RefCell<Option<Owned<Sender<Job>>>> = const { RefCell::new(None) };
}

/// Whether what belongs to a source may wait for a server.
pub(crate) fn is_far(source: &str) -> bool {
    source.contains("://")
}

/// Does what [`interruptible`] does, with the errors of [`crate::error::detached`].
pub(crate) fn waited<T: Send + 'static>(
    py: Python<'_>,
    source: &str,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    interruptible(py, Arc::default(), work)?.map_err(|error| to_python(py, &error, source))
}

/// Does something without the interpreter's lock. If a signal's handler raises an exception meanwhile, that is returned,
/// and `is_given_up` tells the work.
pub(crate) fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    is_given_up: Arc<AtomicBool>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    // Signals are handled in no other thread.
    if !is_main(py)? {
        return guarded(py, work);
    }
    let (answer, mut done) = channel();
    let flag = is_given_up.clone();
    let job = move || {
        // Once it is given up, nobody listens.
        let _ = answer.send(caught(|| shardfs::until_given_up(flag, work)));
    };
    let helper = HELPER.take().filter(|helper| helper.get().is_ok()).map_or_else(started, Ok)?;
    helper.get()?.send(Box::new(job)).map_err(|_| fault())?;
    loop {
        let result;
        (result, done) = guarded(py, move || (done.recv_timeout(PATIENCE), done))?;
        match result {
            Ok(result) => {
                HELPER.set(Some(helper));
                return result.map_err(|Panicked| fault());
            }
            Err(RecvTimeoutError::Disconnected) => return Err(fault()),
            Err(RecvTimeoutError::Timeout) => py.check_signals().inspect_err(|_| is_given_up.store(true, Relaxed))?,
        }
    }
}

/// Starts a thread that does what it is sent, and ends when its sender is dropped.
fn started() -> PyResult<Owned<Sender<Job>>> {
    let (sender, jobs) = channel::<Job>();
    thread::Builder::new().name("waiting".into()).spawn(move || jobs.into_iter().for_each(|job| job()))?;
    Ok(Owned::new(sender))
}

/// Whether this is the thread in which Python handles signals.
fn is_main(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import(intern!(py, "threading"))?;
    let main = threading.call_method0(intern!(py, "main_thread"))?.getattr(intern!(py, "ident"))?;
    threading.call_method0(intern!(py, "get_ident"))?.eq(main)
}
