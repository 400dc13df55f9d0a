//! A value that one thread computes and all others that want it wait for.

use parking_lot::{Condvar, Mutex};

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
        let mut state = self.state.lock();
        loop {
            match &*state {
                State::Known(value) => return Ok(value.clone()),
                State::Running => self.changed.wait(&mut state),
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

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::{
            Barrier,
            atomic::{AtomicU32, Ordering::Relaxed},
        },
    };

    use super::*;

    #[test]
    fn one_thread_computes_and_all_have_the_value() {
        let (flight, count, start) = (SingleFlight::default(), AtomicU32::new(0), Barrier::new(8));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    let value = flight.get_or_try_init(|| {
                        assert!(flight.get().is_none(), "no lock is held meanwhile");
                        Ok::<_, ()>(count.fetch_add(1, Relaxed) + 7)
                    });
                    assert_eq!(value, Ok(7));
                });
            }
        });
        assert_eq!(count.load(Relaxed), 1);
    }

    #[test]
    fn after_a_failure_or_a_panic_the_next_caller_computes() {
        let flight = SingleFlight::default();
        assert_eq!(flight.get_or_try_init(|| Err("the disk failed")), Err("the disk failed"));
        let panicked =
            catch_unwind(AssertUnwindSafe(|| flight.get_or_try_init(|| -> Result<u32, ()> { panic!("bug") })));
        assert!(panicked.is_err());
        assert_eq!(flight.get_or_try_init(|| Ok::<_, ()>(5)), Ok(5));
        flight.set(6);
        assert_eq!(flight.get(), Some(5));
    }
}
