//! Blocks that turn out to be damaged after bytes of them were served. The thread that finds it announces it at once.

use std::sync::Arc;

use super::{Cache, Key};

/// Called when a block fails late.
pub(crate) type OnLateFailure = Arc<dyn Fn() + Send + Sync>;

/// Announces late failures of a container's blocks until it is dropped (`Cache::on_late_failure`).
pub struct LateFailures {
    cache: Arc<Cache>,
    container: u64,
    call: OnLateFailure,
}

impl Drop for LateFailures {
    fn drop(&mut self) {
        let mut calls = self.cache.late_failures.lock();
        // The same container may have been opened again, with a call of its own.
        if calls.get(&self.container).is_some_and(|call| Arc::ptr_eq(call, &self.call)) {
            calls.remove(&self.container);
        }
    }
}

impl Cache {
    /// Calls `call` whenever a block of this container fails after bytes of it may have been served.
    pub(crate) fn on_late_failure(self: &Arc<Self>, container: u64, call: OnLateFailure) -> LateFailures {
        self.late_failures.lock().insert(container, call.clone());
        LateFailures { cache: self.clone(), container, call }
    }

    /// Returns what to call when a block of this container fails that is served while it is decoded or checked.
    pub(super) fn late_failure(&self, key: Key) -> Option<OnLateFailure> {
        key.container().and_then(|container| self.late_failures.lock().get(&container).cloned())
    }
}
