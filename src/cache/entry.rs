//! What the cache keeps under a key: a block, a file in memory, or a parsed value; and handles that keep it from being evicted.

use std::{
    ops::Deref,
    sync::{Arc, atomic::AtomicUsize},
};

use super::{
    FileSlot, Key, Piece, Slot,
    entries::{Entry, InUse},
    parsed::AnyParsed,
};

/// An entry of the cache.
#[derive(Debug, Clone)]
pub(super) enum Cached {
    Bytes(Arc<Slot>),
    File(Arc<FileSlot>),
    Parsed(Arc<AnyParsed>),
}

impl Cached {
    pub(super) fn slot(&self) -> Option<&Arc<Slot>> {
        match self {
            Self::Bytes(slot) => Some(slot),
            Self::File(_) | Self::Parsed(_) => None,
        }
    }

    /// Returns whether this is the given slot.
    pub(super) fn is(&self, slot: &Arc<Slot>) -> bool {
        self.slot().is_some_and(|own| Arc::ptr_eq(own, slot))
    }
}

impl Entry for Cached {
    fn users(&self) -> Option<&AtomicUsize> {
        self.slot().and_then(Entry::users)
    }

    fn is_idle(&self) -> bool {
        match self {
            Self::Bytes(slot) => slot.is_idle(),
            // Each user of a file holds a clone, and takes it under the lock that is held here.
            Self::File(file) => file.is_done() && Arc::strong_count(file) == 1,
            Self::Parsed(parsed) => parsed.is_idle(),
        }
    }

    fn cost(&self) -> u64 {
        match self {
            Self::Bytes(slot) => slot.cost(),
            Self::File(file) => file.cost(),
            Self::Parsed(parsed) => parsed.cost(),
        }
    }

    fn give_up(&self) {
        if let Self::Bytes(slot) = self {
            slot.give_up();
        }
    }
}

/// A slot that is not evicted while it is in use.
pub(super) struct SlotInUse {
    pub(super) slot: Arc<Slot>,
    pub(super) _entry: InUse<Cached>,
}

impl Deref for SlotInUse {
    type Target = Arc<Slot>;

    fn deref(&self) -> &Arc<Slot> {
        &self.slot
    }
}

/// A piece of a decoded block, in use.
pub(crate) struct Lent {
    pub(crate) piece: Piece,
    pub(super) key: Key,
    /// `None` for a piece that was read from the disk cache.
    pub(super) slot: Option<SlotInUse>,
}
