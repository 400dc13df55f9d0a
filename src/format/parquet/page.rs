//! Headers of pages, and the pages of a column chunk.

use super::{
    super::PartError,
    Chunk,
    thrift::{Broken, Compact, FALSE, STRUCT, TRUE},
};
use crate::{
    limits,
    source::{Memory, Source, SourceError},
    wanted,
};

/// Bytes that are read for a header first, and at most. A header may contain statistics with the smallest and the
/// largest value.
const HEADER: u64 = 512;
const LONGEST_HEADER: u64 = 16 << 20;

/// Pages for which memory is reserved at once.
const TOGETHER: usize = 64;

/// What a page holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The values to which the indices of other pages refer.
    Dictionary,
    /// Values, whose levels are compressed with them.
    Data,
    /// Values, whose levels are not compressed.
    DataV2 {
        /// Rows that begin in it.
        rows: u32,
        /// Bytes of the definition levels.
        defined: u32,
        /// Bytes of the repetition levels, which come first.
        repeated: u32,
        /// Whether the values are compressed.
        is_compressed: bool,
    },
    /// Something that readers pass over.
    Other,
}

/// The header of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What it holds.
    pub kind: Kind,
    /// Bytes after the header: as stored, and decompressed.
    pub stored: u32,
    /// See [`Self::stored`].
    pub size: u32,
    /// CRC32 of the stored bytes.
    pub crc: Option<u32>,
    /// Number of values, missing ones and empty lists included.
    pub values: u32,
    /// The number of the encoding of its values.
    pub encoding: i32,
}

/// A page of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Where in the file the bytes after the header begin.
    pub at: u64,
    /// The header.
    pub header: Header,
    /// The number in the row group of the first row that begins in the page.
    pub first: u64,
    /// Rows that begin in it.
    pub rows: u32,
    /// Whether its first values belong to the previous row.
    pub continues: bool,
}

/// The pages of a chunk.
#[derive(Debug, Default)]
pub struct Pages {
    /// The dictionary, if there is one: where its bytes begin, and its header.
    pub dictionary: Option<(u64, Header)>,
    /// The others, in order.
    pub places: Vec<Place>,
    /// Where and why the rest of the chunk is lost.
    pub damage: Option<(u64, String)>,
}

impl Pages {
    /// Returns the number of rows that begin in known pages.
    pub fn rows(&self) -> u64 {
        self.places.last().map_or(0, |place| place.first + u64::from(place.rows))
    }

    /// Returns about how many bytes of memory they take.
    pub fn memory_usage(&self) -> u64 {
        (size_of::<Self>() + size_of_val(&*self.places)) as u64
            + self.damage.as_ref().map_or(0, |(_, reason)| reason.len() as u64)
    }
}

/// Reads a header. Returns it with its length.
fn header(bytes: &[u8]) -> Result<(Header, usize), Broken> {
    let mut compact = Compact::new(bytes);
    let (mut kind, mut stored, mut size, mut crc) = (None, None, None, None);
    let (mut values, mut encoding, mut second) = (None, None, None);
    compact.fields(|compact, number, field| {
        match number {
            1 => kind = Some(compact.integer()?),
            2 => size = Some(compact.size()?),
            3 => stored = Some(compact.size()?),
            #[expect(clippy::cast_possible_truncation, reason = "the integer has 32 bits")]
            4 => crc = Some(compact.integer()? as u32),
            // The headers of version 1 pages and of dictionaries have the same first fields.
            5 | 7 if field == STRUCT => compact.fields(|compact, number, _| {
                match number {
                    1 => values = Some(compact.size()?),
                    2 => encoding = Some(compact.integer()?),
                    _ => return Ok(false),
                }
                Ok(true)
            })?,
            8 if field == STRUCT => {
                let (mut rows, mut defined, mut repeated, mut is_compressed) = (0, 0, 0, true);
                compact.fields(|compact, number, kind| {
                    match number {
                        1 => values = Some(compact.size()?),
                        3 => rows = compact.size()?,
                        4 => encoding = Some(compact.integer()?),
                        5 => defined = compact.size()?,
                        6 => repeated = compact.size()?,
                        7 if matches!(kind, TRUE | FALSE) => is_compressed = kind == TRUE,
                        _ => return Ok(false),
                    }
                    Ok(true)
                })?;
                second = Some(Kind::DataV2 { rows, defined, repeated, is_compressed });
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let kind = match kind {
        Some(0) => Kind::Data,
        Some(2) => Kind::Dictionary,
        Some(3) => second.ok_or(Broken::Bad("a page of version 2 has no header of its own"))?,
        Some(_) => Kind::Other,
        None => return Err(Broken::Bad("a page does not say what it is")),
    };
    let (Some(stored), Some(size)) = (stored, size) else { return Err(Broken::Bad("a page does not say its size")) };
    if kind != Kind::Other && values.is_none() {
        return Err(Broken::Bad("a page does not say how many values it has"));
    }
    let encoding = encoding.and_then(|encoding| i32::try_from(encoding).ok()).unwrap_or(-1);
    Ok((Header { kind, stored, size, crc, values: values.unwrap_or(0), encoding }, compact.position()))
}

/// Reads the header at a place. Returns it with its length, or why there is none.
fn header_at(source: &dyn Source, at: u64, end: u64) -> Result<Result<(Header, u64), String>, SourceError> {
    let mut length = HEADER;
    loop {
        wanted::check()?;
        let until = end.min(at.saturating_add(length));
        let bytes = source.read(at..until)?;
        match header(&bytes) {
            Ok((header, size)) => return Ok(Ok((header, size as u64))),
            Err(Broken::Short) if until < end && length < LONGEST_HEADER => length = (8 * length).min(LONGEST_HEADER),
            Err(broken) => return Ok(Err(format!("the header of a page: {}", broken.reason()))),
        }
    }
}

/// Goes through the pages of a chunk. If rows can have any number of values, `rows_in` counts the rows that begin in a
/// page of version 1 and tells whether the page continues a row. If `rows_in` fails, the chunk ends there.
///
/// # Errors
/// `Source` if bytes cannot be read, or there is not enough memory. Damage is not an error; see [`Pages::damage`].
pub fn walk(
    source: &dyn Source,
    chunk: &Chunk,
    is_nested: bool,
    memory: &dyn Memory,
    mut rows_in: impl FnMut(&Pages, &Place) -> Result<(u32, bool), PartError>,
) -> Result<Pages, SourceError> {
    let mut pages = Pages::default();
    let (mut at, mut left, mut first) = (chunk.start, chunk.values, 0u64);
    while left > 0 {
        let mut lost = |reason: String| pages.damage = Some((at, reason));
        if at >= chunk.end {
            lost(format!("its pages end {left} values before the column does"));
            break;
        }
        let (header, length) = match header_at(source, at, chunk.end)? {
            Ok(found) => found,
            Err(reason) => {
                lost(reason);
                break;
            }
        };
        let body = at + length;
        let end = body + u64::from(header.stored);
        if end > chunk.end || u64::from(header.size) > limits::PARQUET_PAGE {
            let (stored, size) = (header.stored, header.size);
            lost(format!("a page of {stored} bytes ({size} decompressed) has no room in the column, or is too large"));
            break;
        }
        match header.kind {
            Kind::Dictionary if pages.dictionary.is_none() && pages.places.is_empty() => {
                pages.dictionary = Some((body, header));
            }
            Kind::Dictionary => {
                lost("a second dictionary".into());
                break;
            }
            Kind::Data | Kind::DataV2 { .. } => {
                if u64::from(header.values) > left || u64::from(header.values) > limits::PARQUET_VALUES {
                    lost(format!("a page of {} values; the column has {left} more", header.values));
                    break;
                }
                let mut place = Place { at: body, header, first, rows: header.values, continues: false };
                match header.kind {
                    Kind::DataV2 { rows, .. } if is_nested && rows <= header.values => place.rows = rows,
                    Kind::DataV2 { rows, .. } if rows != header.values => {
                        lost(format!("a page of {} values states {rows} rows", header.values));
                        break;
                    }
                    Kind::Data if is_nested => match rows_in(&pages, &place) {
                        Ok((rows, continues)) => (place.rows, place.continues) = (rows, continues),
                        Err(PartError::Source(error)) => return Err(error),
                        Err(PartError::Damaged(reason)) => {
                            pages.damage = Some((body, reason));
                            break;
                        }
                    },
                    _ => {}
                }
                if place.continues && first == 0 {
                    pages.damage = Some((body, "the first page begins inside a row".into()));
                    break;
                }
                if pages.places.len() == pages.places.capacity() {
                    let more = pages.places.len().max(TOGETHER);
                    memory.reserve(((pages.places.len() + more) * size_of::<Place>()) as u64)?;
                    pages.places.reserve_exact(more);
                }
                (first, left) = (first + u64::from(place.rows), left - u64::from(header.values));
                pages.places.push(place);
            }
            Kind::Other => {}
        }
        at = end;
    }
    Ok(pages)
}
