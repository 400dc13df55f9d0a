//! Rows of varying length as files: texts as `.jsonl`, `offsets.npy` and `utf8.bin`, numbers as `offsets.npy` and
//! `values.npy` (`docs/TREE.md`, section 2).
//!
//! A format implements [`Rows`], or uses [`FixedTexts`]. The files are rendered for the range that is read. To compute
//! their sizes, the first `stat` walks over all rows and keeps an index in the cache: where about every thousandth row
//! begins. The size of `offsets.npy` needs no walk.

use std::{fmt::Debug, ops::Range, sync::Arc};

use super::{WorkingMemory, describe};
use crate::{
    cache::Buffer,
    format::{DType, ElementType, utf32, without_nuls},
    limits,
    source::{Memory, SourceError, zeros},
    view::{Array, Fault, ReadContext, Rendered, View, attributes::Text},
    wanted,
};

/// Most rows between two entries of an index.
const STEP: u64 = 1024;

/// Most bytes between two entries of an index.
const FAR: u64 = 256 << 10;

/// The error of a row whose length differs from the stated one.
const OTHER_LENGTH: &str = "a row has another length than stated";

/// Takes a row's bytes; `None` for a missing row.
pub(in crate::tree) type EachRow<'a> = &'a mut dyn FnMut(Option<&[u8]>) -> Result<(), Fault>;

/// Rows of bytes.
pub trait Rows: Debug + Send + Sync {
    /// Returns the number of rows.
    fn count(&self) -> u64;

    /// Passes some rows to `each`, in order; `None` for a missing one. The bytes that are read at a time are bounded by
    /// the longest row, and their memory is reserved.
    ///
    /// # Errors
    /// [`Fault`] for the first row that cannot be read, and what `each` returns.
    fn each(&self, reader: &ReadContext, memory: &dyn Memory, rows: Range<u64>, each: EachRow<'_>)
    -> Result<(), Fault>;

    /// Passes the lengths of some rows in bytes to `each`, in order; 0 for a missing one. A format that knows them
    /// without reading the rows should implement this.
    ///
    /// # Errors
    /// As [`Self::each`].
    fn lengths(
        &self,
        reader: &ReadContext,
        memory: &dyn Memory,
        rows: Range<u64>,
        each: &mut dyn FnMut(u64) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.each(reader, memory, rows, &mut |row| each(row.map_or(0, |row| row.len() as u64)))
    }

    /// Returns the end of a run at the beginning of some rows, and whether all rows of this run are the same. A format
    /// that knows such runs without reading the rows should implement this.
    ///
    /// # Errors
    /// [`Fault`] if that cannot be known now.
    fn run(&self, reader: &ReadContext, rows: Range<u64>) -> Result<(u64, bool), Fault> {
        let _ = reader;
        Ok((rows.end, false))
    }
}

/// How a file shows rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One after the other, without separators.
    Joined,
    /// A JSON string on each line; `null` for a missing row, `{"base64": "…"}` for one that is not UTF-8.
    TextLines,
    /// Each row, which already is JSON, on its own line; `null` for a missing one.
    JsonLines,
}

/// The files of some rows.
#[derive(Debug, Clone)]
pub struct RowFiles {
    rows: Arc<dyn Rows>,
    /// The first of two numbers of documents of the container that nothing else uses.
    document: u64,
}

impl RowFiles {
    /// Returns the files of rows. Their indexes are kept in the cache as the container's documents `document` and
    /// `document + 1`.
    pub fn new(rows: impl Rows + 'static, document: u64) -> Self {
        Self { rows: Arc::new(rows), document }
    }

    /// Returns the file of a form. To compute its size, walks over all rows, or only over their lengths if they are
    /// joined.
    ///
    /// # Errors
    /// Those of the rows, and a refusal if there are too many rows to walk over ([`limits::TEXT_ROWS`]).
    pub fn view(&self, reader: &ReadContext, form: Form) -> Result<View, Fault> {
        let shown = Shown { files: self.clone(), form };
        let size = shown.index(reader)?.end();
        Ok(View::default().with_rendered(size, shown))
    }

    /// Returns `offsets.npy`: where each row begins, and where the last one ends, in units of `unit` bytes.
    pub fn offsets(&self, unit: u64) -> Array {
        let offsets = Offsets { shown: Shown { files: self.clone(), form: Form::Joined }, unit: unit.max(1) };
        let count = self.rows.count().saturating_add(1);
        Array::new(DType::I64, [count], View::default().with_rendered(count.saturating_mul(8), offsets))
    }

    /// Returns `values.npy`: the elements of all rows. The outermost axis counts them, `shape` has the other axes.
    ///
    /// # Errors
    /// As [`Self::view`].
    pub fn values(&self, reader: &ReadContext, element: impl Into<ElementType>, shape: &[u64]) -> Result<Array, Fault> {
        let element = element.into();
        let data = self.view(reader, Form::Joined)?;
        let width = shape.iter().fold(element.size(), |size, axis| size.saturating_mul(*axis));
        let Some(count) = data.size().checked_div(width).filter(|count| count * width == data.size()) else {
            return Err(Fault::refused(format!("{} bytes are no whole number of elements of {width}", data.size())));
        };
        Ok(Array::new(element, [&[count], shape].concat(), data))
    }
}

/// Rows in a form.
#[derive(Debug)]
struct Shown {
    files: RowFiles,
    form: Form,
}

/// Where some of the rows begin: pairs of a row and a byte of the file, as little-endian numbers. The first pair is the
/// first row, and the last pair is the end of all rows.
struct Index(Arc<Buffer>);

impl Index {
    const PAIR: usize = 16;

    fn len(&self) -> usize {
        self.0.len() / Self::PAIR
    }

    /// Returns a row and where it begins.
    fn pair(&self, at: usize) -> (u64, u64) {
        let number =
            |at: usize| self.0.get(at..at + 8).map_or(0, |b| b.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)));
        (number(at * Self::PAIR), number(at * Self::PAIR + 8))
    }

    /// Returns the bytes of all rows.
    fn end(&self) -> u64 {
        self.len().checked_sub(1).map_or(0, |last| self.pair(last).1)
    }

    /// Returns the last entry for which `is_before` is true. It must be true for the first entries and false for the
    /// rest.
    fn last(&self, is_before: impl Fn((u64, u64)) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(self.pair(middle)) { low = middle + 1 } else { high = middle }
        }
        low.saturating_sub(1)
    }
}

impl Shown {
    /// Returns where some of the rows begin. The first request walks over all of them.
    fn index(&self, reader: &ReadContext) -> Result<Index, Fault> {
        let RowFiles { rows, document } = &self.files;
        let document = document.saturating_add(u64::from(self.form != Form::Joined));
        let made = describe::kept(reader, document, |memory| {
            let count = rows.count();
            if count > limits::TEXT_ROWS {
                return Err(Fault::refused(format!("{count} rows, the most is {}", limits::TEXT_ROWS)));
            }
            let mut index = Vec::new();
            let (mut row, mut end, mut noted) = (0u64, 0u64, None::<(u64, u64)>);
            let mut note = |row: u64, end: u64| -> Result<(), Fault> {
                memory.reserve(2 * Index::PAIR as u64)?;
                index.extend(row.to_le_bytes().into_iter().chain(end.to_le_bytes()));
                Ok(wanted::check().map_err(SourceError::from)?)
            };
            // Takes as many rows of a length as belong together.
            let mut take = |many: u64, length: u64| -> Result<u64, Fault> {
                if noted.is_none_or(|(from, begin)| row - from >= STEP || end - begin >= FAR) {
                    note(row, end)?;
                    noted = Some((row, end));
                }
                let taken = many.min(STEP).min((FAR / length.max(1)).max(1));
                (row, end) = (row + taken, end.saturating_add(length.saturating_mul(taken)));
                Ok(many - taken)
            };
            let mut at = 0;
            while at < count {
                let (behind, are_same) = rows.run(reader, at..count)?;
                let behind = behind.clamp(at + 1, count);
                let read = if are_same { at + 1 } else { behind };
                let (mut number, mut last) = (at, 0);
                self.each_length(reader, memory, at..read, &mut |length| {
                    (number, last) = (number + 1, length);
                    take(1, length).map(drop)
                })?;
                if number != read {
                    return Err(Fault::refused(format!("{number} rows, where {count} are stated")));
                }
                let mut left = behind - read;
                while left > 0 {
                    left = take(left, last)?;
                }
                at = behind;
            }
            note(row, end)?;
            Ok(Buffer::from(index))
        });
        Ok(Index(made?))
    }

    /// Passes the lengths of rows as they are shown to `each`.
    fn each_length(
        &self,
        reader: &ReadContext,
        memory: &dyn Memory,
        rows: Range<u64>,
        each: &mut dyn FnMut(u64) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        match self.form {
            Form::Joined => self.files.rows.lengths(reader, memory, rows, each),
            _ => self.each_shown(reader, memory, rows, &mut |row| each(row.len() as u64)),
        }
    }

    /// Passes rows as they are shown to `each`.
    fn each_shown(
        &self,
        reader: &ReadContext,
        memory: &dyn Memory,
        rows: Range<u64>,
        each: &mut dyn FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let (mut line, mut reserved) = (Vec::new(), 0);
        self.files.rows.each(reader, memory, rows, &mut |row| {
            if self.form == Form::Joined {
                return each(row.unwrap_or_default());
            }
            line.clear();
            // A control character takes six bytes, and base64 less; a vector grows by half.
            let most = row.map_or(0, |row| row.len() as u64).saturating_mul(9);
            if most > reserved {
                memory.reserve(most - reserved)?;
                reserved = most;
            }
            match (row, self.form) {
                (Some(row), Form::JsonLines) => line.extend(row),
                (Some(row), _) => serde_json::to_writer(&mut line, &Text(row))
                    .map_err(|error| Fault::from(SourceError::from(std::io::Error::from(error))))?,
                (None, _) => line.extend(b"null"),
            }
            line.push(b'\n');
            each(&line)
        })
    }
}

impl Rendered for Shown {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let index = self.index(reader)?;
        reader.check_quick(part.end - part.start <= limits::QUICK)?;
        let memory = WorkingMemory::of_reader(reader);
        memory.hold();
        let mut written = 0;
        let mut entry = index.last(|(_, begin)| begin <= part.start);
        while entry + 1 < index.len() && index.pair(entry).1 < part.end {
            wanted::check().map_err(SourceError::from)?;
            let ((first, begin), (behind, end)) = (index.pair(entry), index.pair(entry + 1));
            let mut at = begin;
            let (mut rows, mut from) = (first..behind, begin);
            if self.form == Form::Joined {
                // Rows outside the range are not read, because their lengths are known.
                let mut row = first;
                (rows, from) = (behind..behind, end);
                self.each_length(reader, &memory, first..behind, &mut |length| {
                    let next = at.saturating_add(length);
                    if next > part.start && at < part.end && length > 0 {
                        if rows.is_empty() {
                            (rows.start, from) = (row, at);
                        }
                        rows.end = row + 1;
                    }
                    (row, at) = (row + 1, next);
                    Ok(())
                })?;
                if at != end {
                    return Err(Fault::refused(OTHER_LENGTH));
                }
            }
            let mut at = from;
            self.each_shown(reader, &memory, rows, &mut |row| {
                let next = at.saturating_add(row.len() as u64);
                let (start, stop) = (at.max(part.start), next.min(part.end));
                if start < stop {
                    let bytes = row.get((start - at) as usize..(stop - at) as usize).unwrap_or_default();
                    let place = (start - part.start) as usize..(stop - part.start) as usize;
                    if let Some(place) = out.get_mut(place) {
                        place.copy_from_slice(bytes);
                        written += place.len();
                    }
                }
                at = next;
                Ok(())
            })?;
            entry += 1;
        }
        if written == out.len() { Ok(()) } else { Err(Fault::refused(OTHER_LENGTH)) }
    }
}

/// Where rows begin.
#[derive(Debug)]
struct Offsets {
    shown: Shown,
    unit: u64,
}

impl Rendered for Offsets {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let index = self.shown.index(reader)?;
        reader.check_quick(part.end - part.start <= limits::QUICK)?;
        let memory = WorkingMemory::of_reader(reader);
        memory.hold();
        let wanted = part.start / 8..part.end.div_ceil(8);
        let (mut row, mut end) = index.pair(index.last(|(row, _)| row <= wanted.start));
        let mut write = |row: u64, end: u64| -> Result<(), Fault> {
            if wanted.contains(&row) {
                if !end.is_multiple_of(self.unit) {
                    return Err(Fault::refused(format!("a row of no whole number of elements of {} bytes", self.unit)));
                }
                let bytes = (end / self.unit).to_le_bytes();
                let first = (row * 8).max(part.start);
                let last = (row * 8 + 8).min(part.end);
                let place = (first - part.start) as usize..(last - part.start) as usize;
                if let (Some(place), Some(from)) = (out.get_mut(place), bytes.get((first - row * 8) as usize..)) {
                    place.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
                }
            }
            Ok(())
        };
        write(row, end)?;
        let behind = wanted.end.saturating_sub(1).max(row);
        self.shown.each_length(reader, &memory, row..behind, &mut |length| {
            (row, end) = (row + 1, end.saturating_add(length));
            write(row, end)
        })
    }
}

/// Where a text of fixed size ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// Before the NULs at its end.
    Nuls,
    /// Before the first NUL.
    FirstNul,
    /// Before the spaces at its end.
    Spaces,
    /// Before the NULs at its end, in characters of UTF-32.
    Utf32,
}

impl Padding {
    fn text(self, bytes: &[u8]) -> &[u8] {
        match self {
            Self::Nuls | Self::Utf32 => without_nuls(bytes),
            Self::FirstNul => bytes.split(|byte| *byte == 0).next().unwrap_or_default(),
            Self::Spaces => {
                let end = bytes.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
                bytes.get(..end).unwrap_or_default()
            }
        }
    }
}

/// Texts of fixed size, in any view.
#[derive(Debug)]
pub struct FixedTexts {
    /// Their bytes.
    data: View,
    /// Bytes of each.
    width: u64,
    padding: Padding,
}

impl FixedTexts {
    /// Returns the texts of `width` bytes that `data` consists of.
    pub fn new(data: View, width: u64, padding: Padding) -> Self {
        Self { data, width, padding }
    }
}

impl Rows for FixedTexts {
    fn count(&self) -> u64 {
        self.data.size().checked_div(self.width).unwrap_or(0)
    }

    fn each(
        &self,
        reader: &ReadContext,
        memory: &dyn Memory,
        rows: Range<u64>,
        each: &mut dyn FnMut(Option<&[u8]>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let width = self.width.max(1);
        // Whole texts, together about one piece.
        let together = (limits::PIECE as u64 / width).clamp(1, (rows.end - rows.start).max(1));
        let piece = width.saturating_mul(together);
        if piece > limits::PIECE as u64 && !rows.is_empty() {
            // Fails here if the file does not have the texts, before memory is taken for them.
            self.data.fill_at(reader, rows.end.saturating_mul(width).saturating_sub(1), &mut [0])?;
        }
        memory.reserve(piece)?;
        let mut piece = zeros(usize::try_from(piece).unwrap_or(usize::MAX)).map_err(SourceError::from)?;
        for first in rows.clone().step_by(together as usize) {
            wanted::check().map_err(SourceError::from)?;
            let count = together.min(rows.end - first);
            let Some(piece) = piece.get_mut(..(count * width) as usize) else { break };
            self.data.fill_at(reader, first.saturating_mul(width), piece)?;
            for text in piece.chunks_exact(width as usize) {
                match self.padding {
                    Padding::Utf32 => each(Some(utf32(text).as_bytes()))?,
                    padding => each(Some(padding.text(text)))?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use proptest::prelude::*;

    use super::*;
    use crate::cache::{Cache, Verify};

    /// Rows in memory, and how many of them were read.
    #[derive(Debug, Clone, Default)]
    struct InMemory(Vec<Option<Vec<u8>>>, Arc<AtomicU64>);

    impl Rows for InMemory {
        fn count(&self) -> u64 {
            self.0.len() as u64
        }

        fn each(
            &self,
            _: &ReadContext,
            _: &dyn Memory,
            rows: Range<u64>,
            each: &mut dyn FnMut(Option<&[u8]>) -> Result<(), Fault>,
        ) -> Result<(), Fault> {
            self.0[rows.start as usize..rows.end as usize].iter().try_for_each(|row| {
                self.1.fetch_add(1, Relaxed);
                each(row.as_deref())
            })
        }

        fn lengths(
            &self,
            _: &ReadContext,
            _: &dyn Memory,
            rows: Range<u64>,
            each: &mut dyn FnMut(u64) -> Result<(), Fault>,
        ) -> Result<(), Fault> {
            let rows = &self.0[rows.start as usize..rows.end as usize];
            rows.iter().try_for_each(|row| each(row.as_ref().map_or(0, |row| row.len() as u64)))
        }
    }

    fn reader(bytes: Vec<u8>) -> ReadContext {
        ReadContext::new(Arc::new(bytes), Cache::new(64 << 20, Verify::Lazy), 0)
    }

    fn read(view: &View, reader: &ReadContext) -> Vec<u8> {
        view.copy_at(reader, 0, view.size()).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_range_is_the_slice_of_the_whole(
            few in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..9)), 0..9),
            copies in prop_oneof![Just(1usize), Just(400)],
            ranges in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 8),
        ) {
            let rows: Vec<_> = std::iter::repeat_n(few, copies).flatten().collect();
            let files = RowFiles::new(InMemory(rows.clone(), Arc::default()), 1);
            let reader = reader(vec![]);
            let joined: Vec<u8> = rows.iter().flatten().flatten().copied().collect();
            let lines: String = rows.iter().map(|row| match row.as_deref().map(|row| (std::str::from_utf8(row), row)) {
                None => "null\n".into(),
                Some((Ok(text), _)) => serde_json::to_string(text).unwrap() + "\n",
                Some((Err(_), row)) => {
                    use base64::{Engine, prelude::BASE64_STANDARD};
                    format!("{{\"base64\":\"{}\"}}\n", BASE64_STANDARD.encode(row))
                }
            }).collect();
            let mut end = 0i64;
            let ends = rows.iter().map(|row| { end += row.as_ref().map_or(0, |row| row.len() as i64); end });
            let offsets: Vec<u8> = std::iter::once(0).chain(ends).flat_map(i64::to_le_bytes).collect();
            for (view, expected) in [
                (files.view(&reader, Form::Joined).unwrap(), joined),
                (files.view(&reader, Form::TextLines).unwrap(), lines.into_bytes()),
                (files.offsets(1).data, offsets),
            ] {
                prop_assert_eq!(&read(&view, &reader), &expected);
                for (one, other) in ranges.iter().filter(|_| !expected.is_empty()) {
                    let (one, other) = (one.index(expected.len()), other.index(expected.len()));
                    let (start, end) = (one.min(other), one.max(other) + 1);
                    let found = view.copy_at(&reader, start as u64, (end - start) as u64).unwrap();
                    prop_assert_eq!(&found[..], &expected[start..end]);
                }
            }
        }
    }

    #[test]
    fn a_range_reads_its_own_rows_alone() {
        let read_rows = Arc::<AtomicU64>::default();
        let files = RowFiles::new(InMemory(vec![Some(b"12345678".to_vec()); 100_000], read_rows.clone()), 1);
        let reader = reader(vec![]);
        let values = files.values(&reader, DType::U16, &[2]).unwrap();
        assert_eq!((values.shape, read_rows.load(Relaxed)), (vec![200_000, 2], 0));
        assert_eq!(values.data.copy_at(&reader, 400_001, 9).unwrap(), b"234567812");
        assert_eq!(read_rows.load(Relaxed), 2);
        assert_eq!(files.offsets(4).data.copy_at(&reader, 8 * 50_000, 8).unwrap(), 100_000u64.to_le_bytes());
        assert!(files.offsets(16).data.copy_at(&reader, 8, 8).is_err());
        let lines = files.view(&reader, Form::JsonLines).unwrap();
        read_rows.store(0, Relaxed);
        assert_eq!(lines.copy_at(&reader, 9 * 70_000, 9).unwrap(), b"12345678\n");
        assert!(read_rows.load(Relaxed) <= STEP);
    }

    #[test]
    fn texts_of_one_size_end_where_their_padding_says() {
        for (width, padding, expected) in [
            (4, Padding::Nuls, "\"a\\u0000b\"\n\"  x \"\n\"  c\"\n\"\"\n"),
            (4, Padding::FirstNul, "\"a\"\n\"  x \"\n\"  c\"\n\"\"\n"),
            (4, Padding::Spaces, "\"a\\u0000b\\u0000\"\n\"  x\"\n\"  c\\u0000\"\n\"\\u0000\\u0000\\u0000\\u0000\"\n"),
        ] {
            let files = RowFiles::new(FixedTexts::new(View::stored(0..16), width, padding), 2);
            // Another container's cache for each.
            let reader =
                ReadContext::new(Arc::new(b"a\0b\0  x   c\0\0\0\0\0".to_vec()), Cache::new(1 << 20, Verify::Lazy), 0);
            assert_eq!(
                String::from_utf8(read(&files.view(&reader, Form::TextLines).unwrap(), &reader)).unwrap(),
                expected
            );
        }
        let codes =
            ['日', '\0', 'x', 'y'].map(u32::from).iter().flat_map(|code| code.to_le_bytes()).collect::<Vec<u8>>();
        let reader = reader(codes);
        let files = RowFiles::new(FixedTexts::new(View::stored(0..16), 8, Padding::Utf32), 2);
        assert_eq!(read(&files.view(&reader, Form::Joined).unwrap(), &reader), "日xy".as_bytes());
        let none = RowFiles::new(FixedTexts::new(View::default(), 0, Padding::Nuls), 4);
        assert_eq!((none.view(&reader, Form::TextLines).unwrap().size(), none.offsets(1).shape), (0, vec![1]));
    }

    #[test]
    fn rows_that_lie_are_errors() {
        /// A row fewer than it says, or longer ones than it says.
        #[derive(Debug)]
        struct Lying(u64, &'static [u8]);

        impl Rows for Lying {
            fn count(&self) -> u64 {
                self.0
            }

            fn each(
                &self,
                _: &ReadContext,
                _: &dyn Memory,
                _: Range<u64>,
                each: &mut dyn FnMut(Option<&[u8]>) -> Result<(), Fault>,
            ) -> Result<(), Fault> {
                each(Some(self.1))
            }

            fn lengths(
                &self,
                _: &ReadContext,
                _: &dyn Memory,
                _: Range<u64>,
                each: &mut dyn FnMut(u64) -> Result<(), Fault>,
            ) -> Result<(), Fault> {
                each(4)
            }
        }
        let reader = reader(vec![]);
        assert!(RowFiles::new(Lying(2, b"abcd"), 1).view(&reader, Form::Joined).is_err());
        assert!(RowFiles::new(Lying(u64::MAX, b"abcd"), 3).view(&reader, Form::TextLines).is_err());
        for (document, text) in [(5, &b"abc"[..]), (7, b"")] {
            let view = RowFiles::new(Lying(1, text), document).view(&reader, Form::Joined).unwrap();
            assert!(view.copy_at(&reader, 0, 4).is_err());
        }
    }
}
