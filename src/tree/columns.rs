//! Reads columns of Parquet files that others wrote. Decoded pages are kept in the cache.

use std::{ops::Range, sync::Arc};

use super::memory::{WorkingMemory, with_memory};
use crate::{
    cache::{BlockError, Buffer, Key, Reservation, Tag, pair},
    codec::Codec as Decoder,
    format::{
        PartError,
        parquet::{
            Chunk, Codec, File, Leaf,
            page::{self, Kind, Pages, Place},
            values::{self, Decoded, Dictionary, NULL, NULL_LIST, SPAN, VALUE},
        },
    },
    source::{Memory, Source, SourceError},
    view::{Fault, ReadContext},
};

/// Tag of decoded pages in the cache. The key is the file's number and twice the page's place in it. No format with
/// columns uses this tag for anything else.
const PAGES: Tag = Tag::Own(255);

/// Tag of the places of pages in the cache: by the file's number, row group and column.
const WALKED: Tag = Tag::Parsed(255);

/// One file.
pub(super) struct Columns {
    file: File,
    name: Box<str>,
    source: Arc<dyn Source>,
    /// The file's number in the cache. No other file of the container has it.
    number: u64,
}

/// Decoded values of a page.
#[derive(Clone)]
pub(super) struct Page {
    starts: Arc<Buffer>,
    marks: Arc<Buffer>,
    slots: Arc<Buffer>,
    bytes: Arc<Buffer>,
}

/// The wanted rows in a page.
pub(super) struct Part<'a> {
    pub(super) page: &'a Page,
    /// The wanted rows that begin in it.
    pub(super) rows: Range<u64>,
    /// The wanted row that begins in an earlier page and continues in this one.
    pub(super) continued: Option<u64>,
    /// The first row that begins in it.
    first: u64,
    is_nested: bool,
}

/// The kind of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    Value,
    Null,
    NullList,
}

impl Page {
    fn start(&self, row: usize) -> usize {
        let at = self.starts.get(4 * row..).and_then(<[u8]>::first_chunk);
        at.map_or(0, |start| u32::from_le_bytes(*start) as usize)
    }

    pub(super) fn slot(&self, slot: usize) -> Slot {
        match self.marks.get(slot).copied().unwrap_or(VALUE) {
            NULL => Slot::Null,
            NULL_LIST => Slot::NullList,
            _ => Slot::Value,
        }
    }

    /// Returns whether some slots have no value.
    pub(super) fn has_gaps(&self) -> bool {
        !self.marks.is_empty()
    }

    /// Returns the values of some slots, each of `width` bytes.
    pub(super) fn numbers(&self, slots: Range<usize>, width: usize) -> &[u8] {
        self.slots.get(slots.start * width..slots.end * width).unwrap_or_default()
    }

    /// Returns where a value of any length is: the buffer, and the range in it.
    pub(super) fn span(&self, slot: usize) -> (&Arc<Buffer>, Range<usize>) {
        let (start, length) = values::span_of(self.slots.get(slot * SPAN..).unwrap_or_default());
        (&self.bytes, start..start + length)
    }

    /// Returns a value of any length.
    pub(super) fn bytes(&self, slot: usize) -> &[u8] {
        let (bytes, place) = self.span(slot);
        bytes.get(place).unwrap_or_default()
    }
}

impl Part<'_> {
    /// Returns the slots of a row that begins here.
    pub(super) fn slots(&self, row: u64) -> Range<usize> {
        let at = row.saturating_sub(self.first) as usize;
        if self.is_nested { self.page.start(at)..self.page.start(at + 1) } else { at..at + 1 }
    }

    /// Returns the slots of [`Self::continued`] that are here.
    pub(super) fn continued_slots(&self) -> Range<usize> {
        if self.continued.is_some() { 0..self.page.start(0) } else { 0..0 }
    }
}

/// Takes a row, and its value if it has one: a page and a slot.
pub(super) type Each<'a> = dyn FnMut(u64, Option<(&Page, usize)>) -> Result<(), Fault> + 'a;

/// Takes rows: the part of a page that has them, or why they cannot be read.
pub(super) type Visit<'a> = dyn FnMut(Range<u64>, Result<Part<'_>, Fault>) -> Result<(), Fault> + 'a;

impl Columns {
    /// Reads the footer of a file, and returns the memory that it takes. `name` is the file's name in messages.
    /// `number` must differ from that of all other files of the container.
    ///
    /// # Errors
    /// [`Fault`] if it cannot be read. The reason of damage is plain text.
    pub(super) fn open(
        reader: &ReadContext,
        source: Arc<dyn Source>,
        name: &str,
        number: u64,
    ) -> Result<(Self, Reservation), Fault> {
        reader.may_work()?;
        let (file, room) = with_memory(&reader.cache, |memory| {
            if source.reserves() {
                memory.hold();
            }
            let file = File::read(&*source, &memory).map_err(|error| fault_of(error, name, 0))?;
            let room = memory.keep(file.memory_usage())?;
            Ok((file, room))
        })?;
        Ok((Self { file, name: name.into(), source, number }, room))
    }

    /// Returns the footer.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    fn leaf(&self, leaf: usize) -> Result<&Leaf, Fault> {
        self.file.leaves.get(leaf).ok_or_else(|| Fault::refused("there is no such column"))
    }

    /// Fails if some rows of a column can never be decoded, because their compression is not supported.
    ///
    /// # Errors
    /// The reason.
    pub(super) fn check(&self, leaf: usize, rows: &Range<u64>) -> Result<(), String> {
        let mut at = self.file.group_of(rows.start).map_or(usize::MAX, |(at, _)| at);
        while let Some(group) = self.file.groups.get(at).filter(|group| group.first < rows.end) {
            if let Some(Chunk { codec: codec @ Codec::Other(_), .. }) = group.chunks.get(leaf) {
                return Err(format!("its compression is not supported: {codec}"));
            }
            at += 1;
        }
        Ok(())
    }

    /// Passes rows of a column to `each`, in order: the part in each page, or why rows cannot be read.
    ///
    /// # Errors
    /// Those of `each`; [`Fault`] if bytes cannot be read or there is not enough memory.
    pub(super) fn visit(
        &self,
        reader: &ReadContext,
        leaf: usize,
        rows: Range<u64>,
        each: &mut Visit<'_>,
    ) -> Result<(), Fault> {
        let is_nested = self.leaf(leaf)?.has_lists();
        let mut at = rows.start;
        while at < rows.end {
            let Some((number, group)) = self.file.group_of(at) else {
                return each(at..rows.end, Err(self.fault(0, refused("there are no such rows"))));
            };
            let end = rows.end.min(group.first + group.rows);
            self.visit_group(reader, (number, leaf), is_nested, at..end, each)?;
            at = end;
        }
        Ok(())
    }

    fn visit_group(
        &self,
        reader: &ReadContext,
        (number, leaf): (usize, usize),
        is_nested: bool,
        rows: Range<u64>,
        each: &mut Visit<'_>,
    ) -> Result<(), Fault> {
        let Some(group) = self.file.groups.get(number) else { return Ok(()) };
        let Some(chunk) = group.chunks.get(leaf) else { return Ok(()) };
        let pages = &*self.walked(reader, (number, leaf), chunk)?;
        let mut known = pages.rows();
        // The last row may continue in a page that is lost.
        let may_go_on = is_nested && pages.places.last().is_some_and(|last| last.header.kind == Kind::Data);
        if pages.damage.is_some() && may_go_on {
            known = known.saturating_sub(1);
        }
        let wanted = rows.start - group.first..rows.end - group.first;
        let inside = wanted.start..wanted.end.min(known);
        let first = pages.places.partition_point(|place| place.first + u64::from(place.rows) <= inside.start);
        for place in pages.places.get(first..).unwrap_or_default() {
            let goes_on = place.continues && (inside.start + 1..=inside.end).contains(&place.first);
            if inside.is_empty() || place.first >= inside.end && !goes_on {
                break;
            }
            let begin = place.first.max(inside.start)..inside.end.min(place.first + u64::from(place.rows));
            let begin = group.first + begin.start..group.first + begin.end.max(begin.start);
            let continued = goes_on.then(|| group.first + place.first - 1);
            let touched = continued.unwrap_or(begin.start)..begin.end.max(continued.map_or(0, |row| row + 1));
            match self.page(reader, leaf, &chunk.codec, pages, place) {
                Ok(page) => {
                    let first = group.first + place.first;
                    each(touched, Ok(Part { page: &page, rows: begin, continued, first, is_nested }))?;
                }
                Err(fault) => each(touched, Err(fault))?,
            }
        }
        if inside.end.max(wanted.start) < wanted.end {
            let (at, reason) = match &pages.damage {
                Some((at, reason)) => (*at, reason.clone()),
                None => (chunk.start, format!("the column has {known} of the {} rows of its group", group.rows)),
            };
            let lost = group.first + inside.end.max(wanted.start)..rows.end;
            each(lost, Err(self.fault(at, Arc::new(BlockError::Refused(reason)))))?;
        }
        Ok(())
    }

    /// Returns the pages of a chunk. Finds them only once while they are remembered.
    fn walked(&self, reader: &ReadContext, (group, leaf): (usize, usize), chunk: &Chunk) -> Result<Arc<Pages>, Fault> {
        let key = Key::new(reader.container, WALKED, self.number, pair(group as u32, leaf as u32));
        if let Some(known) = reader.cache.parsed(key) {
            return Ok(known);
        }
        reader.may_work()?;
        let is_nested = self.leaf(leaf)?.has_lists();
        let (pages, room) = with_memory(&reader.cache, |memory| {
            // Pages that are decoded to count their rows reserve memory for themselves.
            memory.hold();
            let mut failed = None;
            let pages = page::walk(&*self.source, chunk, is_nested, &memory, |pages, place| {
                match self.page(reader, leaf, &chunk.codec, pages, place) {
                    Ok(page) => {
                        let rows = (page.starts.len() / 4).saturating_sub(1) as u32;
                        let begins = rows > 0 && page.start(0) == 0;
                        Ok((rows, place.header.values > 0 && !begins))
                    }
                    Err(fault) if fault.error.is_damage() => Err(PartError::Damaged(plain(&fault.error))),
                    Err(fault) => {
                        failed = Some(fault);
                        Err(SourceError::WouldBlock.into())
                    }
                }
            });
            let pages = match (pages, failed) {
                (Ok(pages), None) => pages,
                (_, Some(fault)) => return Err(fault),
                (Err(error), None) => return Err(error.into()),
            };
            let room = memory.keep(pages.memory_usage())?;
            Ok((pages, room))
        })?;
        Ok(reader.cache.keep_parsed(key, pages, room))
    }

    /// Returns a page, decoded.
    fn page(
        &self,
        reader: &ReadContext,
        leaf: usize,
        codec: &Codec,
        pages: &Pages,
        place: &Place,
    ) -> Result<Page, Fault> {
        let parts = reader.get_or_insert_with(self.key(reader, 2 * place.at), || {
            let leaf = self.leaf(leaf).map_err(|fault| fault.error)?;
            let dictionary = match (place.header.encoding, &pages.dictionary) {
                (2 | 8, Some((at, header))) => Some(self.dictionary(reader, leaf, codec, *at, header)?),
                _ => None,
            };
            self.decode(reader, &place.header, codec, place.at, dictionary.as_ref(), |stored, memory| {
                let dictionary = dictionary.as_ref().map(|page| Dictionary { slots: &page.slots });
                values::page(leaf, &place.header, codec, stored, dictionary, memory)
            })
        });
        parts.map(Page::of).map_err(|error| self.fault(place.at, error))
    }

    /// Returns the dictionary of a chunk.
    fn dictionary(
        &self,
        reader: &ReadContext,
        leaf: &Leaf,
        codec: &Codec,
        at: u64,
        header: &page::Header,
    ) -> Result<Page, Arc<BlockError>> {
        let parts = reader.get_or_insert_with(self.key(reader, 2 * at + 1), || {
            self.decode(reader, header, codec, at, None, |stored, memory| {
                values::dictionary(leaf, header, codec, stored, memory)
            })
        });
        parts.map(Page::of)
    }

    fn key(&self, reader: &ReadContext, number: u64) -> Key {
        Key::new(reader.container, PAGES, self.number, number)
    }

    /// Reads and decodes a page.
    fn decode(
        &self,
        reader: &ReadContext,
        header: &page::Header,
        codec: &Codec,
        at: u64,
        dictionary: Option<&Page>,
        decode: impl Fn(&[u8], &dyn Memory) -> Result<Decoded, PartError>,
    ) -> Result<Vec<Arc<Buffer>>, Arc<BlockError>> {
        if let Codec::Known(codec) = codec {
            check_size(codec, header).map_err(|reason| Arc::new(BlockError::Refused(reason)))?;
        }
        let memory = WorkingMemory::new(&reader.cache);
        if self.source.reserves() {
            memory.hold();
        }
        memory.reserve(header.stored.into()).map_err(BlockError::from)?;
        let stored = self.source.read(at..at + u64::from(header.stored)).map_err(BlockError::from)?;
        let checked = values::check(header, &stored);
        if checked.is_ok() && header.crc.is_some() {
            self.source.note_checked(&(at..at + u64::from(header.stored)));
        }
        let decoded = checked.and_then(|()| decode(&stored, &memory));
        let decoded = decoded.map_err(|error| fault_of(error, &self.name, at).error)?;
        drop(stored);
        let mut room = memory.keep(decoded.memory_usage()).map_err(BlockError::from)?;
        let mut part = |bytes: Vec<u8>| {
            let own = room.split(bytes.capacity() as u64);
            Arc::new(Buffer::from(bytes).with_room(own))
        };
        let Decoded { starts, marks, slots, bytes, is_in_dictionary } = decoded;
        let bytes = match dictionary.filter(|_| is_in_dictionary) {
            Some(dictionary) => dictionary.bytes.clone(),
            None => part(bytes),
        };
        Ok(vec![part(starts), part(marks), bytes, part(slots)])
    }

    /// Returns an error with the name of this file.
    pub(super) fn named(&self, error: Arc<BlockError>) -> Arc<BlockError> {
        in_file(&self.name, error)
    }

    /// Returns an error at a place of this file.
    fn fault(&self, at: u64, error: Arc<BlockError>) -> Fault {
        Fault { block: None, offset: at, error: in_file(&self.name, error) }
    }
}

impl Page {
    /// Makes a page of its parts. The values are the last part, because the cache counts its size as decoded.
    fn of(parts: Vec<Arc<Buffer>>) -> Self {
        let mut parts = parts.into_iter();
        let mut next = || parts.next().unwrap_or_default();
        let (starts, marks, bytes, slots) = (next(), next(), next(), next());
        Self { starts, marks, slots, bytes }
    }
}

/// Refuses sizes that the stored bytes cannot decode to, before memory is reserved.
fn check_size(codec: &Decoder, header: &page::Header) -> Result<(), String> {
    let front = match header.kind {
        Kind::DataV2 { defined, repeated, .. } => u64::from(defined) + u64::from(repeated),
        _ => 0,
    };
    let (stored, size) = (u64::from(header.stored).saturating_sub(front), u64::from(header.size).saturating_sub(front));
    match size > codec.max_size(stored) {
        true => Err(format!("{} cannot expand {stored} stored bytes to the stated {size}", codec.name())),
        false => Ok(()),
    }
}

fn refused(reason: &str) -> Arc<BlockError> {
    Arc::new(BlockError::Refused(reason.to_owned()))
}

/// Adds the name of the damaged file to an error. Errors that are not damage stay unchanged.
pub(super) fn in_file(name: &str, error: Arc<BlockError>) -> Arc<BlockError> {
    match *error {
        BlockError::Part { .. } => error,
        _ if error.is_damage() => Arc::new(BlockError::Part { file: name.into(), path: String::new(), error }),
        _ => error,
    }
}

/// Returns an error's message without the name of the file.
pub(super) fn plain(error: &BlockError) -> String {
    if let BlockError::Part { error, .. } = error { error.to_string() } else { error.to_string() }
}

fn fault_of(error: PartError, name: &str, at: u64) -> Fault {
    match error {
        PartError::Source(error) => error.into(),
        PartError::Damaged(reason) => {
            Fault { block: None, offset: at, error: in_file(name, Arc::new(BlockError::Refused(reason))) }
        }
    }
}

impl Columns {
    /// Passes the values of a column with one value a row to `each`, from a row on: a page and a slot, or `None` for a
    /// missing value.
    ///
    /// # Errors
    /// [`Fault`] at the first damaged row.
    pub(super) fn scalars(
        &self,
        reader: &ReadContext,
        leaf: usize,
        rows: Range<u64>,
        each: &mut Each<'_>,
    ) -> Result<(), Fault> {
        self.lists(reader, leaf, rows, &mut |row, values| {
            let slot = values.slots.start;
            let is_one = values.slots.len() == 1 && values.page.slot(slot) == Slot::Value;
            each(row, is_one.then_some((values.page, slot)))
        })
    }

    /// Passes the slots of each row to `each`. A row in several pages is passed several times.
    ///
    /// # Errors
    /// [`Fault`] at the first damaged row.
    pub(super) fn lists(
        &self,
        reader: &ReadContext,
        leaf: usize,
        rows: Range<u64>,
        each: &mut dyn FnMut(u64, Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.visit(reader, leaf, rows, &mut |_, part| {
            let part = part?;
            if let Some(row) = part.continued {
                each(row, Row { page: part.page, slots: part.continued_slots() })?;
            }
            for row in part.rows.clone() {
                each(row, Row { page: part.page, slots: part.slots(row) })?;
            }
            Ok(())
        })
    }
}

/// Slots of a row.
pub(super) struct Row<'a> {
    pub(super) page: &'a Page,
    pub(super) slots: Range<usize>,
}

#[cfg(test)]
mod tests;
