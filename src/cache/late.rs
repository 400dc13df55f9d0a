//! Blocks that turn out to be damaged after bytes of them were served. The thread that finds it announces it at once.

use std::sync::Arc;

use super::{Cache, Key};

/// What is called when a block fails late.
pub(crate) type OnLateFailure = Arc<dyn Fn() + Send + Sync>;

/// Until it is dropped, late failures of a container's blocks are announced (`Cache::on_late_failure`).
pub struct LateFailures {
    cache: Arc<Cache>,
    container: u64,
}

impl Drop for LateFailures {
    fn drop(&mut self) {
        self.cache.late_failures.lock().remove(&self.container);
    }
}

impl Cache {
    /// Has `call` called whenever a block of this container fails of which some bytes may have been handed out before.
    pub(crate) fn on_late_failure(self: &Arc<Self>, container: u64, call: OnLateFailure) -> LateFailures {
        self.late_failures.lock().insert(container, call);
        LateFailures { cache: self.clone(), container }
    }

    /// What announces that a block of this container failed which is handed out while it is being decoded or checked.
    pub(super) fn late_failure(&self, key: Key) -> Option<OnLateFailure> {
        key.container().and_then(|container| self.late_failures.lock().get(&container).cloned())
    }
}
