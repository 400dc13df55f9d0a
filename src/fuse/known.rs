//! The last answers, used while a disk gives no newer ones. `.shardfs` is reached through the root's attributes.

use parking_lot::Mutex;

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
