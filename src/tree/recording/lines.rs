//! `messages.jsonl`: a line for each message.

use std::{ops::Range, sync::Arc};

use super::{Core, Part, chunks::Message, totals::NULL};
use crate::{
    cache::{BlockError, Buffer},
    view::{Fault, ReadContext, Rendered, View, pieces::Pieces},
};

/// The lines of a folder.
#[derive(Debug)]
struct Lines {
    core: Arc<Core>,
    folder: u32,
}

/// Returns the file. All messages are decoded to compute its size.
pub(super) fn view(core: &Arc<Core>, reader: &ReadContext, folder: u32) -> Result<View, Fault> {
    let totals = core.lines_totals(reader, folder)?;
    Ok(View::default().with_rendered(totals.all(0), Lines { core: core.clone(), folder }))
}

impl Core {
    /// Returns the lines between a mark and the next, which have `size` bytes.
    fn lines(
        &self,
        reader: &ReadContext,
        folder: u32,
        mark: u64,
        rows: Range<u64>,
        size: u64,
    ) -> Result<Arc<Buffer>, Fault> {
        let key = Part::Lines.key(reader, folder, mark);
        let parts = reader.get_or_insert_with(key, || {
            // Twice the size, because a part of a line may be written before the message turns out not to decode.
            let mut room = reader.cache.reserve(size.saturating_mul(2)).map_err(BlockError::from)?;
            room.hold();
            let mut text = Vec::with_capacity(size as usize);
            let made = self.each_message(reader, folder, rows.clone(), |Message { placed, .. }| {
                let start = text.len();
                if !self.write_line(reader, folder, placed?.1, &mut text)? {
                    text.truncate(start);
                    text.extend_from_slice(NULL);
                }
                text.push(b'\n');
                Ok(())
            });
            made.map_err(|fault| fault.error)?;
            if text.len() as u64 != size {
                return Err(Arc::new(BlockError::Refused("its messages have changed".into())));
            }
            Ok(vec![Arc::new(Buffer::from(text).with_room(room))])
        })?;
        Ok(parts.into_iter().next().unwrap_or_default())
    }
}

impl Rendered for Lines {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let totals = self.core.lines_totals(reader, self.folder)?;
        let mut pieces = Pieces { part, out };
        for mark in totals.find(0, pieces.part.start)..totals.marks() {
            let start = totals.at(mark, 0);
            if start >= pieces.part.end {
                break;
            }
            let rows = totals.rows_of(mark);
            let size = totals.at(mark + 1, 0).saturating_sub(start);
            if rows.is_empty() || !pieces.touches(&(start..start + size)) {
                continue;
            }
            pieces.take(start, &self.core.lines(reader, self.folder, mark, rows, size)?);
        }
        Ok(())
    }
}
