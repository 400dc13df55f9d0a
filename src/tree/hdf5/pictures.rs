//! Datasets that are pictures (section 7.5).

use std::sync::Arc;

use super::{
    Hdf5, elements,
    form::{Form, FormKind},
    rows::HeapRows,
    store::Described,
};
use crate::{
    format::{DType, hdf5::Layout, picture::suffix},
    limits,
    tree::{memory::WorkingMemory, rows::Rows},
    view::{Data, Fault, ReadContext, View, png::Png},
};

/// Largest height and width of a picture.
const SIDE: u64 = 65_535;

/// Fewest bytes of padded pictures.
const PADDED: u64 = 64;

/// Most bytes of the chunk that has to be decoded to know what a picture is.
const FIRST_CHUNK: u64 = 16 << 20;

/// Words in the names of datasets of pictures.
const NAMES: [&str; 7] = ["rgb", "depth", "video", "image", "img", "cam", "mask"];

/// How the pictures of a dataset are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pictures {
    /// As pixels: how many pictures, height, width, channels and bytes of a channel.
    Raw { count: u64, height: u32, width: u32, channels: u8, depth: u8 },
    /// As encoded rows of one length.
    Padded { count: u64, length: u64, suffix: &'static str },
    /// As encoded rows of any length.
    Rows { count: u64, suffix: &'static str },
}

/// Returns whether a dataset has pictures, by its name and that of its folder.
fn says_so(name: &[u8], folder: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    NAMES.iter().any(|known| name.contains(known)) || folder.eq_ignore_ascii_case(b"images")
}

impl Pictures {
    /// Returns how the pictures of a dataset are stored; `None` if it has none.
    pub(super) fn of(
        hdf5: &Hdf5,
        context: &ReadContext,
        described: &Described,
        form: &Form,
        name: &[u8],
        folder: &[u8],
    ) -> Result<Option<Self>, Fault> {
        let side = 1..=SIDE;
        match &form.kind {
            FormKind::Plain(plain) if plain.conversion.turn(plain.stored).is_some() && plain.name.is_none() => {
                let shape = form.shape();
                let (channels, depth) = match (plain.element.plain(), &*shape) {
                    (Some(DType::U8), [_, _, _, channels @ (1 | 3 | 4)]) => (*channels as u8, 1),
                    (Some(DType::U8), [_, _, width]) if *width > 4 && says_so(name, folder) => (1, 1),
                    (Some(DType::U16), [_, _, width]) if *width > 4 && says_so(name, folder) => (1, 2),
                    (Some(DType::U8), [count, length]) if *length >= PADDED && says_so(name, folder) => {
                        return Self::padded(hdf5, context, described, *count, *length);
                    }
                    _ => return Ok(None),
                };
                let [count, height, width, ..] = *shape else { return Ok(None) };
                let is_one = count > 0 && side.contains(&height) && side.contains(&width);
                let (height, width) = (height as u32, width as u32);
                Ok(is_one.then_some(Self::Raw { count, height, width, channels, depth }))
            }
            FormKind::Sequence(items)
                if items.element.plain() == Some(DType::U8) && items.name.is_none() && items.inner.is_empty() =>
            {
                let Some(rows) = hdf5.heap_rows(context, described)? else { return Ok(None) };
                Self::rows(context, &rows, form.elements)
            }
            _ => Ok(None),
        }
    }

    fn padded(
        hdf5: &Hdf5,
        context: &ReadContext,
        described: &Described,
        count: u64,
        length: u64,
    ) -> Result<Option<Self>, Fault> {
        let Some(dataset) = described.object.dataset() else { return Ok(None) };
        if let Layout::Chunked(chunked) = &dataset.layout
            && super::chunks::chunk_size(chunked).is_none_or(|size| size > FIRST_CHUNK)
        {
            return Ok(None);
        }
        let Some(array) = hdf5.array_of(context, described)?.filter(|_| count > 0) else { return Ok(None) };
        match array.data.copy_at(context, 0, 8) {
            Ok(first) => Ok(suffix(&first).map(|suffix| Self::Padded { count, length, suffix })),
            Err(fault) if fault.would_block_for().is_some() || !fault.error.is_damage() => Err(fault),
            // Its first row is damaged.
            Err(_) => Ok(None),
        }
    }

    fn rows(context: &ReadContext, rows: &HeapRows, count: u64) -> Result<Option<Self>, Fault> {
        if count > limits::PICTURES {
            return Ok(None);
        }
        let memory = WorkingMemory::of_reader(context);
        memory.hold();
        let (mut first, mut number) = (None, 0);
        // Find the first length that is not 0.
        const AT_ONCE: u64 = 4096;
        let mut looked = Ok(());
        while looked.is_ok() && first.is_none() && number < count {
            let rows_of = number..(number + AT_ONCE).min(count);
            looked = rows.lengths(context, &memory, rows_of, &mut |length| {
                if length > 0 && first.is_none() {
                    first = Some(number);
                }
                number += 1;
                Ok(())
            });
        }
        let row = looked.and_then(|()| first.map(|row| rows.row(context, &memory, row)).transpose());
        match row {
            Ok(row) => Ok(row.and_then(|row| suffix(&row)).map(|suffix| Self::Rows { count, suffix })),
            Err(fault) if fault.would_block_for().is_some() || !fault.error.is_damage() => Err(fault),
            Err(_) => Ok(None),
        }
    }

    /// Returns the number of rows, each of which may be a picture.
    pub(super) fn count(self) -> u64 {
        match self {
            Self::Raw { count, .. } | Self::Padded { count, .. } | Self::Rows { count, .. } => count,
        }
    }

    /// Returns their suffix.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Raw { .. } => ".png",
            Self::Padded { suffix, .. } | Self::Rows { suffix, .. } => suffix,
        }
    }

    /// Returns a picture's file.
    pub(super) fn view(
        self,
        hdf5: &Hdf5,
        context: &ReadContext,
        described: &Described,
        number: u64,
    ) -> Result<View, Fault> {
        match self {
            Self::Raw { height, width, channels, depth, .. } => {
                let Some(array) = hdf5.array_of(context, described)? else { return Ok(View::default()) };
                let size = u64::from(height) * u64::from(width) * u64::from(channels) * u64::from(depth);
                let start = number.saturating_mul(size);
                let pixels = Data::Rendered(Arc::new(elements::Whole(array.data)));
                Ok(Png::new(pixels, start, width, height, channels, depth).map_or_else(View::default, Png::view))
            }
            Self::Padded { length, .. } => {
                let Some(array) = hdf5.array_of(context, described)? else { return Ok(View::default()) };
                let start = number.saturating_mul(length);
                Ok(View::default().with_rendered(length, elements::Section { of: array.data, start }))
            }
            Self::Rows { .. } => {
                let Some(rows) = hdf5.heap_rows(context, described)? else { return Ok(View::default()) };
                let length = Self::length(context, &rows, number)?;
                Ok(View::default().with_rendered(length, elements::Row { rows, number }))
            }
        }
    }

    /// Returns the length of a row.
    pub(super) fn length(context: &ReadContext, rows: &HeapRows, number: u64) -> Result<u64, Fault> {
        let memory = WorkingMemory::of_reader(context);
        memory.hold();
        let mut found = 0;
        rows.lengths(context, &memory, number..number.saturating_add(1), &mut |length| {
            found = length;
            Ok(())
        })?;
        Ok(found)
    }
}
