//! A value that one thread computes and all others that want it wait for. Tested in `tests/interleavings.rs`.

use std::time::Duration;

use crate::sync::{Condvar, Mutex};

/// How often a thread that waits looks whether its reader still does.
const LOOK: Duration = Duration::from_millis(200);

/// A value that is computed on first use. No lock is held while it is computed: other threads that need it wait for the
/// one that computes it, and threads that only look find no value.
#[derive(Debug)]
pub(crate) struct SingleFlight<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
enum State<T> {
    Unknown,
    Running,
    Known(T),
}

impl<T> Default for SingleFlight<T> {
    fn default() -> Self {
        Self { state: Mutex::new(State::Unknown), changed: Condvar::new() }
    }
}

impl<T: Clone> SingleFlight<T> {
    /// Returns the value, if it was computed.
    pub(crate) fn get(&self) -> Option<T> {
        match &*self.state.lock() {
            State::Known(value) => Some(value.clone()),
            State::Unknown | State::Running => None,
        }
    }

    /// Sets the value, unless one is known or being computed.
    pub(crate) fn set(&self, value: T) {
        let mut state = self.state.lock();
        if matches!(*state, State::Unknown) {
            *state = State::Known(value);
        }
    }

    /// Returns the value, and computes it if it is not known. After a failure or a panic the next caller computes it.
    ///
    /// # Errors
    /// Those of `compute`.
    pub(crate) fn get_or_try_init<E>(&self, compute: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.get_or_try_init_while(|| Ok(()), compute)
    }

    /// Does the same. A thread that waits for another one calls `wants` now and then, and gives up if it fails.
    ///
    /// # Errors
    /// Those of `compute` and `wants`.
    pub(crate) fn get_or_try_init_while<E>(
        &self,
        wants: impl Fn() -> Result<(), E>,
        compute: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut state = self.state.lock();
        loop {
            match &*state {
                State::Known(value) => return Ok(value.clone()),
                State::Running => {
                    wants()?;
                    self.changed.wait_for(&mut state, LOOK);
                }
                State::Unknown => break,
            }
        }
        *state = State::Running;
        drop(state);
        let mut running = Running { flight: self, result: None };
        let value = compute()?;
        running.result = Some(value.clone());
        Ok(value)
    }
}

/// Ends a computation on drop, and wakes the threads that wait for it.
struct Running<'a, T> {
    flight: &'a SingleFlight<T>,
    result: Option<T>,
}

impl<T> Drop for Running<'_, T> {
    fn drop(&mut self) {
        *self.flight.state.lock() = self.result.take().map_or(State::Unknown, State::Known);
        self.flight.changed.notify_all();
    }
}
