//! The runtime of everything that is asynchronous: requests to servers, connections of clients. One in a process.

use std::io;

use tokio::runtime::{Builder, Runtime};

use crate::per_process::PerProcess;

/// Most threads. They wait for nothing: work that waits for a disk or a decoder is the pool's.
const THREADS: usize = 8;

/// Returns the runtime of this process. Nothing that another process opened may be used on it.
///
/// # Errors
/// If its threads cannot be started.
pub(crate) fn runtime() -> io::Result<&'static Runtime> {
    static RUNTIME: PerProcess<Runtime> = PerProcess::new();
    RUNTIME.get_or_try_init(|| {
        let threads = std::thread::available_parallelism().map_or(2, usize::from).min(THREADS);
        Builder::new_multi_thread().worker_threads(threads).thread_name("network").enable_io().enable_time().build()
    })
}
