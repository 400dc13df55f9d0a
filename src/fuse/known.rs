//! Last answers, for when a disk gives no newer ones.

use parking_lot::Mutex;

use crate::vfs::Attr;

/// Last answers, which do when a disk gives no newer ones: `.shardfs` is reached through the root's attributes.
#[derive(Default)]
pub(super) struct Known {
    pub(super) root: LastKnown<Attr>,
    pub(super) space: LastKnown<Space>,
}

/// Answers with what is known already.
pub(super) type FromMemory<R> = Box<dyn FnOnce(R) + Send>;

/// A last answer, and whether the request for a newer one has waited too long and still does.
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

    /// Takes note of a new answer, or that there was none.
    pub(super) fn arrived(&self, answer: Option<T>) {
        let mut known = self.0.lock();
        *known = (answer.or(known.0), false);
    }

    /// The last answer, given in place of a newer one.
    pub(super) fn late(&self) -> Option<T> {
        let mut known = self.0.lock();
        known.1 = known.0.is_some();
        known.0
    }
}

/// What `statfs` says: the size of a block, blocks and files in use.
pub(super) type Space = (u64, u64, u64);
