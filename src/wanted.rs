//! Whether anybody still waits for what a thread works on.
//!
//! Work that takes long in proportion to what a file holds, and of which nothing is shared with other readers until it
//! is done (joining the chunks of a manifest, walking an index, adding up sizes), asks now and then, and ends with
//! EINTR when its reader was killed. Nothing of it is remembered.

use std::{
    cell::RefCell,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

thread_local! {
    static GIVEN_UP: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Restores the previous flag on drop, also after a panic.
struct Restore(Option<Arc<AtomicBool>>);

impl Drop for Restore {
    fn drop(&mut self) {
        GIVEN_UP.set(self.0.take());
    }
}

/// Runs work that is given up once the flag is set.
pub fn until<T>(is_given_up: Arc<AtomicBool>, work: impl FnOnce() -> T) -> T {
    let _restore = Restore(GIVEN_UP.replace(Some(is_given_up)));
    work()
}

/// Checks whether to go on.
///
/// # Errors
/// `EINTR` if nobody waits for the work of this thread any more.
pub fn check() -> io::Result<()> {
    let is_given_up = GIVEN_UP.with_borrow(|flag| flag.as_ref().is_some_and(|flag| flag.load(Relaxed)));
    if is_given_up { Err(io::Error::from_raw_os_error(libc::EINTR)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_ends_when_it_is_given_up() {
        let flag = Arc::<AtomicBool>::default();
        check().unwrap();
        until(flag.clone(), || {
            check().unwrap();
            flag.store(true, Relaxed);
            assert_eq!(check().unwrap_err().raw_os_error(), Some(libc::EINTR));
            until(Arc::default(), || check().unwrap());
            assert!(check().is_err());
        });
        check().unwrap();
    }
}
