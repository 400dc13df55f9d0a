//! A text feature of an episode: its lines, offsets and bytes (`docs/formats/lerobot.md` 10).

use std::{ops::Range, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::{
    cache::{BlockError, Buffer, Key, Tag},
    source::Memory,
    tree::{
        WorkingMemory,
        columns::{Columns, Slot},
    },
    view::{Fault, ReadContext},
};

/// Tag of texts in the cache, by feature and episode.
const TEXTS: Tag = Tag::Own(0);

/// The texts of an episode.
#[derive(Clone)]
pub(super) struct Texts {
    /// Where each text begins in the bytes, and where the last one ends.
    pub(super) offsets: Arc<Buffer>,
    /// All texts, without separators.
    pub(super) bytes: Arc<Buffer>,
    /// A JSON line for each text.
    pub(super) lines: Arc<Buffer>,
    /// The length of the text, if all are the same and none is missing.
    pub(super) same: Option<u64>,
}

/// Returns the texts of some rows, one in each. The feature and the episode are the key in the cache.
pub(super) fn read(
    reader: &ReadContext,
    columns: &Columns,
    leaf: usize,
    rows: &Range<u64>,
    (feature, episode): (u64, u64),
) -> Result<Texts, Fault> {
    let key = Key::new(reader.container, TEXTS, feature, episode);
    let mut parts = reader.get_or_insert_with(key, || make(reader, columns, leaf, rows))?.into_iter();
    let mut next = || parts.next().unwrap_or_default();
    let (offsets, bytes, lines, same) = (next(), next(), next(), next());
    let same = same.first_chunk().map(|same| u64::from_le_bytes(*same));
    Ok(Texts { offsets, bytes, lines, same })
}

fn make(
    reader: &ReadContext,
    columns: &Columns,
    leaf: usize,
    rows: &Range<u64>,
) -> Result<Vec<Arc<Buffer>>, Arc<BlockError>> {
    // Pages reserve memory for themselves.
    let memory = WorkingMemory::held(&reader.cache);
    let count = rows.end - rows.start;
    memory.reserve(8 * (count + 1)).map_err(BlockError::from)?;
    let mut offsets = Vec::with_capacity(8 * (count as usize + 1));
    let (mut bytes, mut lines) = (Vec::new(), Vec::new());
    let mut same: Option<Range<usize>> = None;
    let mut is_same = count > 0;
    offsets.extend(0u64.to_le_bytes());
    columns
        .lists(reader, leaf, rows.clone(), &mut |row, values| {
            let slot = values.slots.start;
            let text = match (values.slots.len(), values.page.slot(slot)) {
                (1, Slot::Value) => Some(values.page.bytes(slot)),
                (1, Slot::Null) => None,
                _ => return Err(Fault::refused(format!("row {row} has not one text"))),
            };
            let length = text.map_or(0, <[u8]>::len);
            // A vector grows to twice its size, and an escape takes six bytes.
            memory.reserve(16 * length as u64 + 64)?;
            let start = bytes.len();
            bytes.extend_from_slice(text.unwrap_or_default());
            offsets.extend((bytes.len() as u64).to_le_bytes());
            line(text, &mut lines);
            match (&same, text) {
                (None, Some(_)) => same = Some(start..bytes.len()),
                (Some(first), Some(text)) => is_same &= bytes.get(first.clone()) == Some(text),
                (_, None) => is_same = false,
            }
            Ok(())
        })
        .map_err(|fault| fault.error)?;
    if offsets.len() as u64 != 8 * (count + 1) {
        return Err(Arc::new(BlockError::Refused("its rows have not one text each".into())));
    }
    let length = same.map_or(0, |same| same.len());
    let is_text = std::str::from_utf8(bytes.get(..length).unwrap_or_default()).is_ok();
    let same = if is_same && is_text { (length as u64).to_le_bytes().to_vec() } else { Vec::new() };
    let parts = [offsets, bytes, lines, same];
    let mut room = memory.keep(parts.iter().map(|part| part.capacity() as u64).sum()).map_err(BlockError::from)?;
    Ok(parts
        .map(|part| {
            let own = room.split(part.capacity() as u64);
            Arc::new(Buffer::from(part).with_room(own))
        })
        .into())
}

fn line(text: Option<&[u8]>, out: &mut Vec<u8>) {
    match text.map(std::str::from_utf8) {
        None => out.extend(b"null"),
        // Writing to a vector cannot fail.
        Some(Ok(text)) => drop(serde_json::to_writer(&mut *out, text)),
        Some(Err(_)) => {
            out.extend(b"{\"base64\": \"");
            out.extend(STANDARD.encode(text.unwrap_or_default()).into_bytes());
            out.extend(b"\"}");
        }
    }
    out.push(b'\n');
}
