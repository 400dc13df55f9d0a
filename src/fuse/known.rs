//! The last answers, used while a disk gives no newer ones.

use parking_lot::Mutex;

use crate::vfs::Attr;

/// The last answers, used while a disk gives no newer ones. `.shardfs` is reached through the root's attributes.
#[derive(Default)]
pub(super) struct Known {
    pub(super) root: LastKnown<Attr>,
    pub(super) space: LastKnown<Space>,
}

/// Answers from what is known already.
pub(super) type FromMemory<R> = Box<dyn FnOnce(R) + Send>;

/// The last answer, and whether a request for a newer one has waited too long and still waits.
pub(super) struct LastKnown<T>(Mutex<(Option<T>, bool)>);

impl<T> Default for LastKnown<T> {
    fn default() -> Self {
        Self(Mutex::new((None, false)))
    }
}

impl<T: Copy> LastKnown<T> {
    pub(super) fn is_known(&self) -> bool {
        self.0.lock().0.is_some()
    }

    pub(super) fn is_late(&self) -> bool {
        self.0.lock().1
    }

    /// Notes a new answer, or that there was none.
    pub(super) fn arrived(&self, answer: Option<T>) {
        let mut known = self.0.lock();
        *known = (answer.or(known.0), false);
    }

    /// Returns the last answer, to be used instead of a newer one.
    pub(super) fn late(&self) -> Option<T> {
        let mut known = self.0.lock();
        known.1 = known.0.is_some();
        known.0
    }
}

/// The answer of `statfs`: size of a block, blocks and files in use.
pub(super) type Space = (u64, u64, u64);
