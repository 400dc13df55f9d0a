//! Tables as Parquet files, whose pages are computed when they are read (`docs/TREE.md`, section 7).
//!
//! The size and place of every page follow from lengths alone. There is one page for each column and row group. Pages
//! have version 1, PLAIN encoding and no compression. The page size of fixed-size values is one multiplication. If
//! values may be missing, the page has a level bit for each row; if keys stand for texts, it has an index for each row.
//! The present values come first, and zeros fill the page to the size that it would have if none were missing. Readers
//! stop at the number of values that the page states (`tests/python/test_tables_idv.py` checks that with duckdb,
//! polars, pyarrow and pandas).
//!
//! For pages without missing values, only the range that is read is made, or lent from a block. All other pages are
//! made whole at the first read and kept in the cache, as the footer is.

mod arrow;
mod column;
mod compact;
mod element;
mod levels;
mod strings;
mod varying;

use std::{collections::HashMap, ops::Range, sync::Arc};

use parking_lot::Mutex;
use serde_json::{Map, Value};

pub use column::{Bounds, Column, Missed, Missing};
pub use element::Element;
pub use strings::{Ragged, Strings};
pub use varying::{Elements, Starts};

use super::{Bytes, Data, Fault, ReadContext, Rendered, View, json, pieces::Pieces};
use crate::{
    cache::{BlockError, Buffer, Key, Tag},
    codec::DecodeError,
    limits,
    source::Memory,
};
use column::{Values, fill_page};

/// The footer's key for the description of a table.
const KEY: &str = "shardfs";

/// First and last bytes of every file.
const MAGIC: &[u8; 4] = b"PAR1";

/// Size in bytes of a page of memory. Large chunks begin at multiples of it.
const ALIGN: u64 = 4096;

/// Average size in bytes from which chunks count as large.
const LARGE: u64 = 32 << 10;

/// Bytes of zeros before the footer if chunks are large. Readers start with this many bytes from the end of a file.
const APART: u64 = 64 << 10;

/// Upper bound for the bytes and for the values of a page: both are signed 32-bit numbers.
const LONGEST: u64 = i32::MAX as u64;

/// What a table consists of.
#[derive(Debug)]
pub struct Table {
    /// The table's number in the container, for the cache.
    pub number: u64,
    /// Number of rows.
    pub rows: u64,
    /// Number of rows that are stored together. As far as possible, row groups begin where these units begin.
    pub unit: u64,
    /// The columns, at least one.
    pub columns: Vec<Column>,
    /// Description of the table: names and values.
    pub about: Map<String, Value>,
}

/// A table as a Parquet file.
#[derive(Debug)]
pub struct Parquet {
    number: u64,
    rows: u64,
    group_rows: u64,
    groups: u64,
    columns: Vec<Laid>,
    /// Where each group begins, and where the last one ends.
    starts: Vec<u64>,
    /// Whether chunks begin at multiples of [`ALIGN`].
    is_aligned: bool,
    footer: Range<u64>,
    /// Description of the table without its columns, and the same with them as JSON.
    about: Map<String, Value>,
    described: String,
    /// The place of the damage that made a page fail, by column and group. Later readers get the same error.
    failed: Mutex<HashMap<(u32, u64), Place>>,
}

/// Place of damage: the number of a block, and an offset in the container.
type Place = (Option<u32>, u64);

/// A column with the sizes of its pages.
#[derive(Debug)]
struct Laid {
    column: Column,
    /// Bytes of the dictionary with its header, which comes before each page.
    dictionary: u32,
    /// By the number of the group.
    pages: Vec<Page>,
}

/// Sizes of a page in bytes: its header and its body.
#[derive(Debug, Clone, Copy, Default)]
struct Page {
    header: u32,
    body: u32,
    /// Number of missing lists; if the length of lists varies, of levels.
    missing: u32,
}

impl Page {
    fn of(column: &Column, rows: u64, text: u64, missing: u64) -> Option<Self> {
        let body = column.page_size(rows, text, missing);
        let values = column.values_in(rows, missing);
        let is_short = body <= LONGEST && values <= LONGEST - 8;
        let header = is_short.then(|| compact::page_header(values, body, column.encoding()))?;
        Some(Self { header: header.len() as u32, body: body as u32, missing: missing as u32 })
    }
}

/// A part of the file.
enum Part<'a> {
    Magic,
    Zeros,
    /// The dictionary of a column with its header.
    Dictionary(&'a Laid),
    /// The header of the page of a column in a group.
    Header(&'a Laid, u64),
    /// The body of the page of the column with a number in a group.
    Body(usize, &'a Laid, u64),
    Footer,
}

impl Parquet {
    /// Lays a table out: chooses its row groups and computes all sizes. Texts are not read if the container says how
    /// long they are.
    ///
    /// # Errors
    /// [`Fault`] if a length cannot be read, or if the table is larger than a file can be.
    pub fn new(reader: &ReadContext, table: Table, memory: &dyn Memory) -> Result<Self, Fault> {
        let Table { number, rows, unit, columns, about } = table;
        let group_rows = group_rows(reader, rows, unit, &columns)?;
        let groups = rows.div_ceil(group_rows);
        let page_size = size_of::<Page>() * columns.len() + size_of::<u64>();
        memory.reserve(groups.saturating_mul(page_size as u64))?;
        let mut this = Self {
            number,
            rows,
            group_rows,
            groups,
            columns: Vec::with_capacity(columns.len()),
            starts: Vec::with_capacity(groups as usize + 1),
            is_aligned: false,
            footer: 0..0,
            about,
            described: String::new(),
            failed: Mutex::default(),
        };
        for column in columns {
            let (header, dictionary) = column.dictionary();
            let dictionary = (header.len() + dictionary.len()) as u32;
            let mut pages: Vec<Page> = Vec::with_capacity(groups as usize);
            for group in 0..groups {
                let (rows, count) = (this.rows_of(group), this.row_count(group));
                pages.push(match pages.last() {
                    Some(page) if count == group_rows && !column.is_sized_by_rows() => *page,
                    _ => {
                        let text = known(column.text_size(reader, rows.clone()))?;
                        let missing = column.missing(reader, rows)?;
                        Page::of(&column, count, text, missing).ok_or_else(|| too_long(&column))?
                    }
                });
            }
            this.columns.push(Laid { column, dictionary, pages });
        }
        this.describe();
        this.place()?;
        Ok(this)
    }

    /// Completes the description of the table and its columns.
    fn describe(&mut self) {
        let mut about = self.about.clone();
        let columns = self.columns.iter().filter(|laid| !laid.column.about.is_empty());
        let columns: Map<String, Value> =
            columns.map(|laid| (laid.column.name.clone(), laid.column.about.clone().into())).collect();
        about.insert("columns".into(), columns.into());
        self.described = String::from_utf8_lossy(&json::document(&about)).into_owned();
    }

    /// Computes the places of the groups and the footer.
    fn place(&mut self) -> Result<(), Fault> {
        let too_large = || Fault::refused("it would have more than 2^63 bytes");
        let chunks = self.columns.len() as u64;
        self.is_aligned = self.groups > 0 && self.group_size(0) >= chunks * LARGE;
        let mut end = self.front();
        self.starts.push(end);
        for group in 0..self.groups {
            let next = end.checked_add(self.group_room(group)).filter(|end| *end <= limits::LARGEST_BLOCK);
            end = next.ok_or_else(too_large)?;
            self.starts.push(end);
        }
        self.footer.start = if self.is_aligned { end + APART } else { end };
        let mut size = 0;
        self.write_footer(|bytes| size += bytes.len() as u64);
        if size > LONGEST {
            return Err(Fault::refused(format!("its footer would have {size} bytes")));
        }
        // The footer's length and the second magic follow.
        self.footer.end = self.footer.start + size + 8;
        Ok(())
    }

    /// Returns the number of bytes before the first chunk.
    fn front(&self) -> u64 {
        if self.is_aligned { ALIGN } else { MAGIC.len() as u64 }
    }

    /// Returns the size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.footer.end
    }

    /// Returns the numbers of rows and columns.
    pub fn shape(&self) -> [u64; 2] {
        [self.rows, self.columns.len() as u64]
    }

    /// Returns the file.
    pub fn view(self: &Arc<Self>) -> View {
        View::default().with(self.size(), Data::Rendered(self.clone()))
    }

    /// Returns about how many bytes of memory it takes.
    pub fn memory_usage(&self) -> usize {
        let of_column = |laid: &Laid| laid.column.memory_usage() + size_of_val(&*laid.pages);
        self.columns.iter().map(of_column).sum::<usize>() + 8 * self.starts.len() + self.described.len()
    }

    fn rows_of(&self, group: u64) -> Range<u64> {
        let start = group * self.group_rows;
        start..self.rows.min(start + self.group_rows)
    }

    fn row_count(&self, group: u64) -> u64 {
        let rows = self.rows_of(group);
        rows.end - rows.start
    }

    fn page(&self, laid: &Laid, group: u64) -> Page {
        laid.pages.get(group as usize).copied().unwrap_or_default()
    }

    /// Returns the number of values in the page of a column.
    fn values(&self, laid: &Laid, group: u64) -> u64 {
        laid.column.values_in(self.row_count(group), self.page(laid, group).missing.into())
    }

    fn chunk_size(&self, laid: &Laid, group: u64) -> u64 {
        let page = self.page(laid, group);
        u64::from(laid.dictionary) + u64::from(page.header) + u64::from(page.body)
    }

    fn group_size(&self, group: u64) -> u64 {
        // At most 10,000 chunks of less than 2^33 bytes.
        self.columns.iter().map(|laid| self.chunk_size(laid, group)).sum()
    }

    /// Returns the bytes of a chunk and of the zeros after it.
    fn chunk_room(&self, laid: &Laid, group: u64) -> u64 {
        self.chunk_size(laid, group).next_multiple_of(if self.is_aligned { ALIGN } else { 1 })
    }

    fn group_room(&self, group: u64) -> u64 {
        self.columns.iter().map(|laid| self.chunk_room(laid, group)).sum()
    }

    fn group_start(&self, group: u64) -> u64 {
        self.starts.get(group as usize).copied().unwrap_or_default()
    }

    /// Returns the parts of the file that a range touches: the start of each in the file, its size, and the part.
    fn parts(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, u64, Part<'_>)> {
        let (magic, front, end) = (MAGIC.len() as u64, self.front(), self.group_start(self.groups));
        let Range { start: first, end: last } = *range;
        let before = [(0, magic, Part::Magic), (magic, front - magic, Part::Zeros)];
        let first_group = self.starts.partition_point(|start| *start <= first).saturating_sub(1) as u64;
        let chunks = (first_group..self.groups)
            .flat_map(|group| self.columns.iter().enumerate().map(move |(column, laid)| (group, column, laid)));
        let chunks = chunks.scan(self.group_start(first_group), |at, (group, column, laid)| {
            let start = *at;
            *at += self.chunk_room(laid, group);
            Some((start..*at, group, column, laid))
        });
        let touched = chunks.skip_while(move |(room, ..)| room.end <= first);
        let pages = touched.flat_map(|(room, group, column, laid)| {
            let Page { header, body, .. } = self.page(laid, group);
            let (header_at, end) = (room.start + u64::from(laid.dictionary), room.start + self.chunk_size(laid, group));
            [
                (room.start, laid.dictionary.into(), Part::Dictionary(laid)),
                (header_at, header.into(), Part::Header(laid, group)),
                (end - u64::from(body), body.into(), Part::Body(column, laid, group)),
                (end, room.end - end, Part::Zeros),
            ]
        });
        let Range { start: footer, end: size } = self.footer;
        let after = [(end, footer - end, Part::Zeros), (footer, size - footer, Part::Footer)];
        let all = before.into_iter().chain(pages).chain(after);
        all.take_while(move |(at, ..)| *at < last).filter(move |(at, size, _)| at + size > first)
    }

    /// Writes the footer piece by piece.
    fn write_footer(&self, mut write: impl FnMut(&[u8])) {
        let mut out = Vec::new();
        let mut schema = Vec::with_capacity(1 + self.columns.len());
        let children = Some(self.columns.len());
        schema.push(compact::SchemaElement { name: "schema", children, ..Default::default() });
        self.columns.iter().for_each(|laid| laid.column.add_to(&mut schema));
        compact::footer_front(&mut out, &schema, self.rows, self.groups);
        drop(schema);
        let fronts: Vec<Vec<u8>> = self.columns.iter().map(|laid| laid.column.chunk_front()).collect();
        for group in 0..self.groups {
            let start = self.group_start(group);
            let (mut at, rows) = (start, self.rows_of(group));
            compact::group_front(&mut out, self.columns.len());
            for (laid, front) in self.columns.iter().zip(&fronts) {
                let size = self.chunk_size(laid, group);
                let chunk = compact::Chunk {
                    start: at,
                    size,
                    dictionary: laid.dictionary.into(),
                    values: self.values(laid, group),
                    bounds: laid.column.statistics(rows.clone()),
                    is_full: laid.column.is_full(),
                };
                compact::chunk(&mut out, front, &chunk);
                at += self.chunk_room(laid, group);
            }
            compact::group_back(&mut out, start, self.group_size(group), rows.end - rows.start);
            write(&out);
            out.clear();
        }
        // Readers take metadata of the whole file from Arrow's schema, if there is one.
        let about = Map::from_iter([(KEY.into(), self.about.clone().into())]);
        let arrow = arrow::schema(self.columns.iter().map(|laid| &laid.column), &about);
        compact::footer_back(&mut out, &[(KEY, &self.described), (arrow::KEY, &arrow)], self.columns.len());
        write(&out);
    }

    /// Returns the footer with its length and the magic after it.
    fn footer_bytes(&self, reader: &ReadContext) -> Result<Arc<Buffer>, Fault> {
        let key = Key::new(reader.container, Tag::TableFooter, self.number, 0);
        let parts = reader.get_or_insert_with(key, || {
            let mut footer = reader.cache.buffer(self.footer.end - self.footer.start, 0)?;
            let (mut at, length) = (0, footer.len() - 8);
            self.write_footer(|bytes| {
                footer[at..at + bytes.len()].copy_from_slice(bytes);
                at += bytes.len();
            });
            footer[length..length + 4].copy_from_slice(&(length as u32).to_le_bytes());
            footer[length + 4..].copy_from_slice(MAGIC);
            Ok(vec![Arc::new(footer)])
        })?;
        Ok(parts.into_iter().next().unwrap_or_default())
    }

    fn page_key(&self, reader: &ReadContext, column: usize, group: u64) -> Key {
        // There are at most 10,000 columns, and far fewer than 2^48 row groups.
        Key::new(reader.container, Tag::TablePage, self.number, (column as u64) << 48 | group)
    }

    /// Returns a page that is made whole.
    fn page_bytes(&self, reader: &ReadContext, column: usize, laid: &Laid, group: u64) -> Result<Arc<Buffer>, Fault> {
        let key = self.page_key(reader, column, group);
        let size = u64::from(self.page(laid, group).body);
        let parts = reader.get_or_insert_with(key, || {
            let mut room = reader.cache.reserve(size).map_err(BlockError::from)?;
            // Blocks are decoded while the page is made, so this memory is not free soon and others must not wait for
            // it.
            room.hold();
            let page = Buffer::zeroed(size as usize).map_err(|_| BlockError::from(DecodeError::Memory(size)))?;
            let mut page = page.with_room(room);
            let filled = fill_page(&laid.column.values, reader, self.rows_of(group), &mut page);
            filled.map_err(|Fault { block, offset, error }| {
                self.failed.lock().insert((column as u32, group), (block, offset));
                error
            })?;
            Ok(vec![Arc::new(page)])
        });
        match parts {
            Ok(parts) => Ok(parts.into_iter().next().unwrap_or_default()),
            Err(error) => {
                let place = self.failed.lock().get(&(column as u32, group)).copied();
                let (block, offset) = place.unwrap_or_default();
                Err(Fault { block, offset, error })
            }
        }
    }

    /// Returns the bytes of a part that is made whole; `None` for all others.
    fn whole(&self, reader: &ReadContext, part: &Part<'_>) -> Result<Option<Arc<Buffer>>, Fault> {
        match *part {
            Part::Footer => self.footer_bytes(reader).map(Some),
            Part::Body(column, laid, group) if !matches!(laid.column.values, Values::Fixed(_)) => {
                self.page_bytes(reader, column, laid, group).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn fill_part(&self, reader: &ReadContext, part: &Part<'_>, range: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let places = range.start as usize..range.end as usize;
        if let Some(bytes) = self.whole(reader, part)? {
            out.copy_from_slice(&bytes[places]);
            return Ok(());
        }
        match *part {
            Part::Magic => out.copy_from_slice(&MAGIC[places]),
            Part::Dictionary(laid) => {
                let (header, dictionary) = laid.column.dictionary();
                out.copy_from_slice(&[&header, dictionary].concat()[places]);
            }
            Part::Header(laid, group) => {
                let (values, body) = (self.values(laid, group), self.page(laid, group).body);
                let header = compact::page_header(values, body.into(), laid.column.encoding());
                out.copy_from_slice(&header[places]);
            }
            Part::Body(_, laid, group) => {
                if let Values::Fixed(fixed) = &laid.column.values {
                    fixed.fill(reader, self.rows_of(group), range, out)?;
                }
            }
            Part::Zeros | Part::Footer => out.fill(0),
        }
        Ok(())
    }
}

fn too_long(column: &Column) -> Fault {
    Fault::refused(format!("column {}: a page would have more than 2^31 bytes", column.name))
}

/// Returns the size of texts. If damage makes it unknown, the page has no room for texts, and reading that page reports
/// the damage. All other pages can be read.
fn known(size: Result<u64, Fault>) -> Result<u64, Fault> {
    match size {
        Err(fault) if fault.error.is_damage() => Ok(0),
        size => size,
    }
}

/// Returns the rows of a group: about [`limits::TABLE_GROUP`] or [`limits::TABLE_GROUP_OF_BLOCKS`], fewer if rows are
/// wide, more if there would be too many chunks, and a multiple of the rows that are stored together if possible.
fn group_rows(reader: &ReadContext, rows: u64, unit: u64, columns: &[Column]) -> Result<u64, Fault> {
    let widest = columns.iter().map(Column::row_width).max().unwrap_or(1).max(1);
    let group = if unit > 1 { limits::TABLE_GROUP_OF_BLOCKS } else { limits::TABLE_GROUP };
    let mut wanted = group.min(limits::TABLE_PAGE / widest).max(1);
    for column in columns.iter().filter(|column| column.is_sized_by_texts()) {
        let text = known(column.text_size(reader, 0..rows))? / rows.max(1);
        wanted = wanted.min(limits::TABLE_TEXT_PAGE / text.max(1)).max(1);
    }
    let most = limits::TABLE_CHUNKS / (columns.len() as u64).max(1);
    wanted = wanted.max(rows.div_ceil(most.max(1)));
    let unit = unit.max(1);
    Ok(match wanted / unit {
        0 if unit <= 8 * wanted && widest.saturating_mul(unit) <= LONGEST / 2 => unit,
        // A divisor of the unit, if there is one of about this size.
        0 => (unit.div_ceil(wanted)..)
            .take(64)
            .find(|parts| unit.is_multiple_of(*parts))
            .map_or(wanted, |parts| unit / parts),
        units => units * unit,
    })
}

impl Rendered for Parquet {
    fn borrow(&self, reader: &ReadContext, range: Range<u64>) -> Result<Option<Bytes>, Fault> {
        // Only ranges inside one part can be lent.
        let Some((at, _, part)) = self.parts(&range).next().filter(|(at, size, _)| range.end <= at + size) else {
            return Ok(None);
        };
        let wanted = range.start - at..range.end - at;
        if let Some(bytes) = self.whole(reader, &part)? {
            return Ok(Some(Bytes::Decoded(bytes, wanted.start as usize..wanted.end as usize)));
        }
        let Part::Body(_, Laid { column: Column { values: Values::Fixed(fixed), .. }, .. }, group) = part else {
            return Ok(None);
        };
        let stored = fixed.stored(&self.rows_of(group), &wanted);
        stored.map(|(data, stored)| data.read_at(reader, stored.start, stored.end - stored.start)).transpose()
    }

    fn fill(&self, reader: &ReadContext, range: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let mut pieces = Pieces { part: range.clone(), out };
        for (number, (at, size, part)) in self.parts(&range).enumerate() {
            reader.check_quick(number < FEW)?;
            if let Some(wanted) = pieces.overlap(&(at..at + size)) {
                let inside = wanted.start - at..wanted.end - at;
                self.fill_part(reader, &part, inside, pieces.slot(&wanted))?;
            }
        }
        Ok(())
    }
}

/// Most parts that a read may touch if it is answered immediately.
const FEW: usize = 16;
