//! What a container notices while its parts are used, until it is reported.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

use super::NodeId;

/// Most notices that wait to be reported. More are left out.
const MOST: usize = 1024;

/// Damage in a part of a container that was found on the way and failed no operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The part.
    pub node: NodeId,
    /// Offset in the file in bytes, if it is known.
    pub offset: Option<u64>,
    /// What is wrong.
    pub message: String,
}

/// Notices that were not reported yet.
#[derive(Debug, Default)]
pub struct Notices {
    all: Mutex<Vec<Notice>>,
    has_any: AtomicBool,
}

impl Notices {
    /// Adds one.
    pub fn add(&self, notice: Notice) {
        let mut all = self.all.lock();
        if all.len() < MOST {
            all.push(notice);
            self.has_any.store(true, Relaxed);
        }
    }

    /// Takes all.
    pub fn drain(&self) -> Vec<Notice> {
        // Asked after each operation, and nearly always without any.
        if !self.has_any.load(Relaxed) {
            return Vec::new();
        }
        let mut all = self.all.lock();
        self.has_any.store(false, Relaxed);
        std::mem::take(&mut *all)
    }
}
