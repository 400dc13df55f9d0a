//! Values that each process makes for itself: a child of `fork` has none of its parent's threads, and the parent's locks
//! in whatever state other threads had left them.

use std::{process, sync::OnceLock};

/// A value of this process, made when it is first needed, followed by those of processes that were forked from it.
pub(crate) struct PerProcess<T>(OnceLock<Box<Own<T>>>);

struct Own<T> {
    process: u32,
    value: T,
    forked: PerProcess<T>,
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Returns the place of this process's value: that of the first process without one, if it has none.
    fn place(&self) -> &Self {
        let mut place = self;
        while let Some(own) = place.0.get().filter(|own| own.process != process::id()) {
            place = &own.forked;
        }
        place
    }

    /// Returns the value of this process, if it was made.
    pub(crate) fn get(&self) -> Option<&T> {
        self.place().0.get().map(|own| &own.value)
    }

    /// Returns the value of this process, and makes it if necessary. If several threads make one at once, the first is
    /// kept.
    ///
    /// # Errors
    /// Those of `make`.
    pub(crate) fn get_or_try_init<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let place = self.place();
        if let Some(own) = place.0.get() {
            return Ok(&own.value);
        }
        let own = Own { process: process::id(), value: make()?, forked: Self::new() };
        Ok(&place.0.get_or_init(|| Box::new(own)).value)
    }
}
