//! Blocks for callers that do not wait: those that are decoded, and those that are decoded in less time than handing the
//! request to another thread takes.

use std::sync::Arc;

use super::{BlockError, Cache, Codec, Key, KeyedBlock, Slot, SlotInUse, decode::compare};
use crate::{
    format::Block,
    limits::QUICK,
    source::{Loaded, Source, Wait},
};

impl Cache {
    /// Fills `out` with an uncompressed block from `at` on and checks it, in one read; [`Cache::check`] and a copy take
    /// two. `None` if `out` is not almost all of the block, or the verdict is known. Callers that wait for nothing also
    /// get `None` if the block is large or not in memory.
    pub(crate) fn read_checked(
        &self,
        KeyedBlock { key, block, source }: KeyedBlock<'_>,
        at: u64,
        out: &mut [u8],
        wait: Wait,
    ) -> Option<Result<(), Arc<BlockError>>> {
        let end = at.checked_add(out.len() as u64).filter(|end| *end <= block.size)?;
        let rest = block.size - (end - at);
        let is_most = rest <= QUICK.min(out.len() as u64 / 4);
        let is_whole = block.codec == Codec::None && block.stored_size == block.size && is_most;
        let is_quick = wait == Wait::Always || block.size <= QUICK;
        let is_due = is_whole && is_quick && self.needs_slot(block, &(0..block.size)) && self.check_size(block).is_ok();
        let crc = block.crc.filter(|_| is_due && self.entries.find(&key).is_none())?;
        let no_wait = if wait == Wait::Always { wait } else { Wait::Never };
        // The checksum of all is that of what comes before, of `out`, and of what comes after.
        let mut small = vec![0; rest as usize];
        let (before, after) = small.split_at_mut(at as usize);
        let mut read = source.read_at(block.offset + at, out, no_wait);
        for (from, part) in [(0, &mut *before), (end, &mut *after)] {
            if read.is_ok() && !part.is_empty() {
                read = source.read_at(block.offset + from, part, no_wait);
            }
        }
        match read {
            Ok(()) => {}
            Err(error) if wait == Wait::Always => return Some(Err(Arc::new(error.into()))),
            // What cannot be read, or is not there, is reported by a read that waits.
            Err(_) => return None,
        }
        let sum = || {
            let front = crc.kind.combine(crc.kind.of(before), crc.kind.of(out), out.len() as u64);
            crc.kind.combine(front, crc.kind.of(after), after.len() as u64)
        };
        let (slot, is_new) = self.acquire(key, None);
        if is_new {
            slot.set_room(self.budget.reserve_small(0));
            self.finish(key, &slot, || compare(crc.value, sum()).map(|()| block.size));
            if slot.failure().is_ok() {
                self.note_checked(block, &**source);
            }
        }
        slot.verdict()
    }

    /// Returns the slot of a block, filled here if that is quick. `None` if a caller would have to wait for it.
    pub(super) fn ready_slot(self: &Arc<Self>, of: KeyedBlock<'_>, wait: Wait) -> Option<SlotInUse> {
        let KeyedBlock { key, block, source } = of;
        if let Some(entry) = self.entries.find(&key) {
            self.count_hit();
            let slot = entry.slot().cloned()?;
            return Some(SlotInUse { slot, _entry: entry });
        }
        let is_quick = wait == Wait::Never
            && block.size <= QUICK
            && block.stored_size <= QUICK
            && !matches!(block.codec, Codec::Jpeg(..) | Codec::Png(..))
            && self.check_size(block).is_ok();
        if !is_quick {
            return None;
        }
        // What cannot be read, or is not there, is reported by a read that waits.
        let stored: Arc<dyn Source> = Arc::new(Loaded::new(&**source, block.stored()).ok()?);
        let needs = self.needs(block, &*stored, 0);
        let room = match block.codec {
            Codec::None => self.budget.reserve_small(0),
            _ => self.try_reserve(needs.all())?,
        };
        let (slot, is_new) = self.acquire(key, None);
        if is_new {
            self.fill(KeyedBlock { source: &stored, ..of }, &slot, &needs, Ok(room));
            if slot.failure().is_ok() {
                self.note_checked(block, &**source);
            }
        }
        Some(slot)
    }

    /// Fails if a block whose verdict need not be waited for is known to be bad.
    pub(super) fn known_failure(&self, key: Key, block: &Block) -> Result<(), Arc<BlockError>> {
        if block.crc.is_none() {
            return Ok(());
        }
        self.peek(&key, |slot: &Arc<Slot>| slot.failure()).unwrap_or(Ok(()))
    }
}
