//! Values of a record as bytes of files: as stored, or converted when they are first read and then kept in the cache.

use std::{ops::Range, sync::Arc};

use super::shards::Shard;
use crate::{
    cache::{BlockError, Buffer, Key, Tag},
    codec::Codec,
    format::{
        Block, DType,
        tfrecord::example::{Feature, List, ListKind, Part, Span},
        to_bf16, to_half,
    },
    source::{Source, SourceError},
    tree::frames::Frames,
    view::{Fault, ReadContext, Rendered, View, attributes::Text, parquet::Strings},
};

/// Tags of what the cache keeps.
const MADE: Tag = Tag::Own(1);
const INFLATED: Tag = Tag::Own(2);

/// The features of a record, and where it is.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) shard: Arc<Shard>,
    /// The record's data in the file.
    pub(super) data: Range<u64>,
    /// The record's number in the container.
    pub(super) number: u64,
    /// In the order of their names' bytes.
    pub(super) features: Vec<Feature>,
}

impl Content {
    /// Returns the number of the feature of a name.
    pub(super) fn find(&self, key: &[u8]) -> Option<u32> {
        self.features.binary_search_by(|feature| (*feature.key).cmp(key)).ok().map(|at| at as u32)
    }

    /// Returns the values of a feature.
    pub(super) fn list(&self, feature: u32) -> &List {
        static NONE: List = List { kind: ListKind::None, spans: Vec::new(), count: 0 };
        self.features.get(feature as usize).map_or(&NONE, |feature| &feature.list)
    }

    /// Returns bytes of the record as they are stored.
    pub(super) fn stored(self: &Arc<Self>, spans: impl IntoIterator<Item = Span>) -> View {
        spans.into_iter().fold(View::default(), |view, span| {
            let place = span.in_file(&self.data);
            view.with_rendered(u64::from(span.length), Stretch { shard: self.shard.clone(), start: place.start })
        })
    }

    /// Returns bytes that are converted from a feature. `leaf` distinguishes several uses of one feature.
    pub(super) fn made(self: &Arc<Self>, feature: u32, leaf: u32, making: Making, size: u64) -> View {
        View::default().with_rendered(size, Made { content: self.clone(), feature, leaf, making, size })
    }

    /// Reads the part of the record that contains all values of a list.
    fn read(&self, reader: &ReadContext, list: &List, holding: u64) -> Result<(Buffer, u32), Arc<BlockError>> {
        let hull = list.hull();
        let mut bytes = reader.cache.buffer(u64::from(hull.end - hull.start), holding)?;
        let place = self.data.start + u64::from(hull.start);
        self.shard.source.fill(place, &mut bytes).map_err(|error| Arc::new(BlockError::from(error)))?;
        Ok((bytes, hull.start))
    }
}

/// A range of a file.
#[derive(Debug)]
pub(super) struct Stretch {
    pub(super) shard: Arc<Shard>,
    pub(super) start: u64,
}

impl Rendered for Stretch {
    fn is_copy(&self) -> bool {
        true
    }

    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        reader.with_source(self.shard.source.clone()).fill_stored(None, self.start + part.start, out)
    }
}

/// Bytes that cannot be read, with the reason.
#[derive(Debug)]
pub(super) struct Failing(pub(super) Arc<str>);

impl Rendered for Failing {
    fn fill(&self, _: &ReadContext, _: Range<u64>, _: &mut [u8]) -> Result<(), Fault> {
        Err(Fault::refused(&*self.0))
    }
}

/// The conversion of a feature's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Making {
    /// Elements of a type.
    Elements(DType),
    /// A JSON string on each line.
    Lines,
    /// Where each text begins in the bytes of all, and where the last one ends.
    Offsets,
    /// The texts, one after the other.
    Joined,
    /// Where each row begins, from the lengths of rows, and where the last one ends.
    Rows,
}

impl Making {
    fn number(self) -> u64 {
        match self {
            Self::Elements(_) => 0,
            Self::Lines => 1,
            Self::Offsets => 2,
            Self::Joined => 3,
            Self::Rows => 4,
        }
    }
}

#[derive(Debug)]
struct Made {
    content: Arc<Content>,
    feature: u32,
    leaf: u32,
    making: Making,
    size: u64,
}

impl Rendered for Made {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let what = u64::from(self.feature) << 32 | u64::from(self.leaf) << 8 | self.making.number();
        let key = Key::new(reader.container, MADE, self.content.number, what);
        let parts = reader.get_or_insert_with(key, || Ok(vec![Arc::new(self.make(reader)?)]));
        let parts = parts.map_err(|error| Fault { block: None, offset: self.content.data.start, error })?;
        let made = parts.first().and_then(|made| made.get(part.start as usize..part.end as usize));
        out.copy_from_slice(made.ok_or_else(|| Fault::refused("the values have another size"))?);
        Ok(())
    }
}

impl Made {
    fn make(&self, reader: &ReadContext) -> Result<Buffer, Arc<BlockError>> {
        let list = self.content.list(self.feature);
        let mut out = reader.cache.buffer(self.size, 0)?;
        let (bytes, start) = self.content.read(reader, list, self.size)?;
        let part = Part { bytes: &bytes, start };
        let made = match self.making {
            Making::Elements(dtype) => elements(list, part, dtype, &mut out),
            Making::Lines => lines(list.bytes(part), &mut out),
            Making::Offsets => offsets(list.bytes(part).map(|text| Ok(text.len() as u64)), &mut out),
            Making::Joined => joined(list.bytes(part), &mut out),
            Making::Rows => offsets(list.integers(part).map(row), &mut out),
        };
        made.map_err(|reason| Arc::new(BlockError::Refused(reason)))?;
        Ok(out)
    }
}

fn row(length: i64) -> Result<u64, String> {
    u64::try_from(length).map_err(|_| format!("a row of {length} values"))
}

const LONGER: &str = "there are more values than were counted";

/// Writes numbers as elements of a type. Integers must fit; floats are rounded to nearest even.
pub(super) fn elements(list: &List, part: Part<'_>, dtype: DType, out: &mut [u8]) -> Result<(), String> {
    let size = dtype.size() as usize;
    let mut places = out.chunks_exact_mut(size);
    match list.kind {
        ListKind::Integers => {
            for (at, number) in list.integers(part).enumerate() {
                let place = places.next().ok_or(LONGER)?;
                let bytes =
                    integer(number, dtype).ok_or_else(|| format!("the value {number} at {at} is no {dtype}"))?;
                place.copy_from_slice(bytes.get(..size).unwrap_or_default());
            }
        }
        ListKind::Floats => {
            for number in list.floats(part) {
                let place = places.next().ok_or(LONGER)?;
                match dtype {
                    DType::F32 => place.copy_from_slice(&number.to_le_bytes()),
                    DType::F64 => place.copy_from_slice(&f64::from(number).to_le_bytes()),
                    DType::F16 => place.copy_from_slice(&to_half(number.into()).to_le_bytes()),
                    _ => place.copy_from_slice(&to_bf16(number).to_le_bytes()),
                }
            }
        }
        ListKind::None | ListKind::Bytes => {}
    }
    if places.next().is_some() { Err("there are fewer values than were counted".into()) } else { Ok(()) }
}

/// Returns an integer as an element of a type, little-endian; `None` if it does not fit.
pub(super) fn integer(number: i64, dtype: DType) -> Option<[u8; 8]> {
    let fits = match dtype {
        DType::Bool => return Some([u8::from(number != 0), 0, 0, 0, 0, 0, 0, 0]),
        DType::I8 => i8::try_from(number).is_ok(),
        DType::I16 => i16::try_from(number).is_ok(),
        DType::I32 => i32::try_from(number).is_ok(),
        DType::U8 => u8::try_from(number).is_ok(),
        DType::U16 => u16::try_from(number).is_ok(),
        DType::U32 => u32::try_from(number).is_ok(),
        // TFDS stores numbers from 2^63 on as negative numbers.
        DType::I64 | DType::U64 => true,
        _ => false,
    };
    fits.then(|| number.to_le_bytes())
}

/// Returns the size in bytes of texts as JSON lines.
pub(super) fn lines_size<'a>(texts: impl Iterator<Item = &'a [u8]>) -> u64 {
    struct Count(u64);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    for text in texts {
        // Writing to a counter cannot fail.
        let _ = serde_json::to_writer(&mut count, &Text(text));
        count.0 += 1;
    }
    count.0
}

fn lines<'a>(texts: impl Iterator<Item = &'a [u8]>, mut out: &mut [u8]) -> Result<(), String> {
    for text in texts {
        serde_json::to_writer(&mut out, &Text(text)).map_err(|error| error.to_string())?;
        std::io::Write::write_all(&mut out, b"\n").map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn offsets(lengths: impl Iterator<Item = Result<u64, String>>, out: &mut [u8]) -> Result<(), String> {
    let (mut places, mut end) = (out.chunks_exact_mut(8), 0u64);
    places.next().ok_or(LONGER)?.copy_from_slice(&end.to_le_bytes());
    for length in lengths {
        end = end.saturating_add(length?);
        places.next().ok_or(LONGER)?.copy_from_slice(&end.to_le_bytes());
    }
    Ok(())
}

fn joined<'a>(texts: impl Iterator<Item = &'a [u8]>, mut out: &mut [u8]) -> Result<(), String> {
    for text in texts {
        std::io::Write::write_all(&mut out, text).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The encoded pictures of a feature as one array.
#[derive(Debug)]
pub(super) struct Pictures {
    pub(super) content: Arc<Content>,
    pub(super) feature: u32,
    /// Width, height and channels of each.
    pub(super) size: (u32, u32, u8),
    /// For each: whether it is a PNG. Otherwise it is a JPEG.
    pub(super) are_png: Vec<bool>,
}

impl Frames for Pictures {
    fn frame_size(&self) -> u64 {
        let (width, height, channels) = self.size;
        u64::from(width) * u64::from(height) * u64::from(channels)
    }

    fn frame(&self, number: u64) -> Option<Block> {
        let at = usize::try_from(number).ok()?;
        let place = self.content.list(self.feature).spans.get(at)?.in_file(&self.content.data);
        let (width, height, channels) = self.size;
        let codec = match self.are_png.get(at)? {
            true => Codec::Png(width, height, channels),
            false => Codec::Jpeg(width, height, channels),
        };
        let (offset, stored_size) = (place.start, place.end - place.start);
        Some(Block { offset, stored_size, size: self.frame_size(), codec, crc: None })
    }

    fn file(&self) -> Option<(&Arc<dyn Source>, u64)> {
        Some((&self.content.shard.source, self.content.shard.number))
    }
}

/// Tensors of the same size, each stored as a byte string or a zlib stream. A stream is inflated when it is first read.
#[derive(Debug)]
pub(super) struct Tensors {
    pub(super) content: Arc<Content>,
    pub(super) feature: u32,
    pub(super) leaf: u32,
    /// Bytes of a tensor, at least 1.
    pub(super) size: u64,
    pub(super) is_zlib: bool,
}

impl Rendered for Tensors {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let (mut at, mut rest) = (part.start, out);
        while at < part.end {
            let (tensor, from) = (at / self.size, at % self.size);
            let length = (self.size - from).min(part.end - at);
            let (here, after) = rest.split_at_mut(length as usize);
            if !self.is_zlib {
                let span = self.span(tensor).ok_or_else(|| Fault::refused("the tensor is not there"))?;
                let place = span.in_file(&self.content.data).start + from;
                reader.with_source(self.content.shard.source.clone()).fill_stored(None, place, here)?;
                (at, rest) = (at + length, after);
                continue;
            }
            let key = Key::new(
                reader.container,
                INFLATED,
                self.content.number,
                u64::from(self.leaf) << 32 | tensor & u64::from(u32::MAX),
            );
            let parts = reader.get_or_insert_with(key, || Ok(vec![Arc::new(self.inflate(reader, tensor)?)]));
            let parts = parts.map_err(|error| Fault { block: None, offset: self.content.data.start, error })?;
            let tensor = parts.first().and_then(|whole| whole.get(from as usize..(from + length) as usize));
            here.copy_from_slice(tensor.ok_or_else(|| Fault::refused("a tensor has another size"))?);
            (at, rest) = (at + length, after);
        }
        Ok(())
    }
}

impl Tensors {
    fn span(&self, tensor: u64) -> Option<&Span> {
        self.content.list(self.feature).spans.get(usize::try_from(tensor).ok()?)
    }

    /// Inflates a tensor. Fails unless its stream has exactly the tensor's size.
    fn inflate(&self, reader: &ReadContext, tensor: u64) -> Result<Buffer, Arc<BlockError>> {
        let refused = |reason: String| Arc::new(BlockError::Refused(format!("the tensor {tensor}: {reason}")));
        let span = self.span(tensor).ok_or_else(|| refused("is not there".into()))?;
        let mut out = reader.cache.buffer(self.size, 0)?;
        let mut stored = reader.cache.buffer(span.length.into(), self.size)?;
        let place = span.in_file(&self.content.data).start;
        self.content.shard.source.fill(place, &mut stored).map_err(|error| Arc::new(BlockError::from(error)))?;
        let mut inflate = flate2::Decompress::new(true);
        let status = inflate
            .decompress(&stored, &mut out, flate2::FlushDecompress::Finish)
            .map_err(|error| refused(error.to_string()))?;
        // If a stream ends exactly at the end of the buffer, the decoder may report its end only at the next call.
        let status = match status {
            flate2::Status::StreamEnd => status,
            _ => inflate
                .decompress(
                    stored.get(inflate.total_in() as usize..).unwrap_or_default(),
                    &mut [],
                    flate2::FlushDecompress::Finish,
                )
                .map_err(|error| refused(error.to_string()))?,
        };
        let is_exact = inflate.total_out() == self.size && inflate.total_in() == u64::from(span.length);
        match status {
            flate2::Status::StreamEnd if is_exact => Ok(out),
            _ => Err(refused(format!("its zlib stream does not give exactly {} bytes", self.size))),
        }
    }
}

/// Texts of a feature as a column.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) content: Arc<Content>,
    pub(super) feature: u32,
}

impl Column {
    fn spans(&self, rows: &Range<u64>) -> &[Span] {
        let spans = &self.content.list(self.feature).spans;
        spans.get(rows.start as usize..rows.end as usize).unwrap_or_default()
    }
}

impl Strings for Column {
    fn size(&self, _: &ReadContext, rows: Range<u64>) -> Result<u64, Fault> {
        Ok(self.spans(&rows).iter().map(|span| u64::from(span.length)).sum())
    }

    fn fill(
        &self,
        reader: &ReadContext,
        rows: Range<u64>,
        out: &mut [u8],
        each: &mut dyn FnMut(Option<u64>),
    ) -> Result<(), Fault> {
        let (reader, mut rest) = (reader.with_source(self.content.shard.source.clone()), out);
        for span in self.spans(&rows) {
            let short = || SourceError::from(std::io::Error::from(std::io::ErrorKind::UnexpectedEof));
            let (here, after) = rest.split_at_mut_checked(span.length as usize).ok_or_else(short)?;
            reader.fill_stored(None, span.in_file(&self.content.data).start, here)?;
            rest = after;
            each(Some(span.length.into()));
        }
        Ok(())
    }
}
