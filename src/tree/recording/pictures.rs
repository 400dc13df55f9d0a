//! Pictures in messages (`docs/formats/mcap.md`, section 11).

use std::{ops::Range, sync::Arc};

use super::{Core, Decoder, Part, batch::take_columns, chunks::only_damage};
use crate::{
    cache::{BlockError, Buffer},
    codec::Codec,
    format::{
        PartError,
        messages::{
            self, Number, Schema,
            flat::{Element, Flat, Shape, Take},
        },
        picture,
    },
    source::{Memory, SourceError, to_usize},
    tree::WorkingMemory,
    view::{Bytes, Data, Fault, ReadContext, Rendered, View, png::Png},
};

/// Most messages that are tried and do not decode, and most chunks that are damaged. The first message that decodes decides
/// what the pictures are.
const FIRST: u32 = 16;

/// How the pictures of a channel are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Pixels: the columns of height, width, step, encoding, byte order and data.
    Raw([usize; 6]),
    /// An encoded picture in this column.
    Encoded(usize),
}

const NUMBER: Shape = Shape::One(Element::Number(Number::U32));

/// Returns how the messages of a schema store pictures; `None` if they do not.
pub(super) fn kind(name: &[u8], schema: &Schema, flat: &Flat) -> Option<Kind> {
    let is_protobuf = schema.encoding == crate::format::messages::Encoding::Protobuf;
    let find = |name: &str, shape: Shape| flat.leaves.iter().position(|leaf| leaf.name == name && leaf.shape == shape);
    match name {
        b"sensor_msgs/Image" | b"sensor_msgs/msg/Image" if !is_protobuf => Some(Kind::Raw([
            find("height", NUMBER)?,
            find("width", NUMBER)?,
            find("step", NUMBER)?,
            find("encoding", Shape::Text)?,
            find("is_bigendian", Shape::One(Element::Number(Number::U8)))?,
            find("data", Shape::Bytes)?,
        ])),
        b"sensor_msgs/CompressedImage" | b"sensor_msgs/msg/CompressedImage" if !is_protobuf => {
            Some(Kind::Encoded(find("data", Shape::Bytes)?))
        }
        b"foxglove.CompressedImage" if is_protobuf => Some(Kind::Encoded(find("data", Shape::Bytes)?)),
        _ => None,
    }
}

/// Where the fields of a picture are in its message.
struct Places<'a> {
    message: Range<usize>,
    wanted: &'a [usize],
    found: [(u64, Range<usize>); 6],
    encoding: Vec<u8>,
}

impl Take for Places<'_> {
    fn take(&mut self, leaf: usize, bytes: &[u8]) {
        let Some(at) = self.wanted.iter().position(|wanted| *wanted == leaf) else { return };
        let address = bytes.as_ptr() as usize;
        let start = address.wrapping_sub(self.message.start);
        // Values outside of the message are defaults, which are not stored.
        let is_inside = self.message.contains(&address) && start + bytes.len() <= self.message.len();
        let range = if is_inside { start..start + bytes.len() } else { 0..0 };
        let number = bytes.iter().take(4).rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        if at == 3 {
            self.encoding = bytes.iter().take(16).copied().collect();
        }
        if let Some(place) = self.found.get_mut(at) {
            *place = (number, range);
        }
    }
}

/// A picture in a message.
pub(super) struct Picture {
    view: View,
    suffix: &'static str,
}

impl Core {
    /// Returns the suffix of a folder's pictures; `None` if it has none.
    pub(super) fn pictures(&self, reader: &ReadContext, folder: u32) -> Result<Option<&'static str>, Fault> {
        let Some(kind) = self.decoder(folder).schema().and_then(|shown| shown.pictures) else { return Ok(None) };
        if let Some(known) = self.suffixes.lock().get(&folder) {
            return Ok(*known);
        }
        let (mut row, mut undecoded, mut damaged) = (0, 0, 0);
        let suffix = loop {
            if row >= self.messages(folder) || undecoded == FIRST || damaged == FIRST {
                // Damage hides nothing: it is said where a picture is read.
                break match kind {
                    _ if damaged == 0 || undecoded == FIRST => None,
                    Kind::Raw(_) => Some(".png"),
                    Kind::Encoded(_) => Some(".bin"),
                };
            }
            match only_damage(self.picture_in(reader, folder, kind, row))? {
                Ok(Some(picture)) => break picture.ok().map(|picture| picture.suffix),
                Ok(None) => (row, undecoded) = (row + 1, undecoded + 1),
                Err(_) => (row, damaged) = (self.after_damage(reader, folder, row)?, damaged + 1),
            }
        };
        self.suffixes.lock().insert(folder, suffix);
        Ok(suffix)
    }

    /// Returns the picture of a message.
    pub(super) fn picture(&self, reader: &ReadContext, folder: u32, row: u64) -> Result<View, Fault> {
        let kind = self.decoder(folder).schema().and_then(|shown| shown.pictures);
        let kind = kind.ok_or_else(|| Fault::refused("there are no pictures"))?;
        match self.picture_in(reader, folder, kind, row)? {
            Some(Ok(picture)) => Ok(picture.view),
            Some(Err(reason)) => Err(Fault::refused(format!("message {row} is no picture: {reason}"))),
            None => Err(self.why(reader, folder, row, super::batch::UNDECODED)),
        }
    }

    /// Returns a message that is compressed by itself, from the cache or newly decompressed; `None` for all others.
    fn decompressed(
        &self,
        reader: &ReadContext,
        folder: u32,
        row: u64,
        schema: &Schema,
        stored: &[u8],
    ) -> Result<Option<Arc<Buffer>>, Fault> {
        let size = match messages::compressed(schema, stored) {
            Ok(None) => return Ok(None),
            Ok(Some(size)) => size,
            Err(PartError::Damaged(reason)) => return Err(Fault::refused(reason)),
            Err(PartError::Source(error)) => return Err(error.into()),
        };
        let parts = reader.get_or_insert_with(Part::Message.key(reader, folder, row), || {
            let working = Codec::Zstd.working_memory(0, stored.len() as u64, size);
            let mut room = reader.cache.reserve(size.saturating_add(working)).map_err(BlockError::from)?;
            let mut message = Buffer::zeroed(to_usize(size)).map_err(SourceError::from).map_err(BlockError::from)?;
            Codec::Zstd.decode_into(stored, &mut message).map_err(BlockError::Decode)?;
            room.shrink_to(size);
            room.hold();
            Ok(vec![Arc::new(message.with_room(room))])
        });
        Ok(parts?.into_iter().next())
    }

    /// Returns the picture of a message, or why it has none; `None` if the message does not decode.
    fn picture_in(
        &self,
        reader: &ReadContext,
        folder: u32,
        kind: Kind,
        row: u64,
    ) -> Result<Option<Result<Picture, &'static str>>, Fault> {
        let Decoder::Schema(shown) = self.decoder(folder) else { return Ok(None) };
        let (chunk, placed) = self.find(reader, folder, row)?;
        let start = placed.data.start;
        let memory = WorkingMemory::held(&reader.cache);
        if chunk.is_in_file() {
            memory.reserve(placed.data.end - start)?;
        }
        chunk.with(reader, |bytes| {
            let damage = |error| super::fault_of(chunk.block.number, error);
            let stored = bytes.get(start, placed.data.end - start).map_err(damage)?;
            let Ok(decompressed) = only_damage(self.decompressed(reader, folder, row, &shown.schema, &stored))? else {
                return Ok(None);
            };
            let message = decompressed.as_ref().map_or(&*stored, |message| message);
            let base = message.as_ptr() as usize;
            let (wanted, raw): (&[usize], bool) = match &kind {
                Kind::Raw(leaves) => (leaves, true),
                Kind::Encoded(leaf) => (std::slice::from_ref(leaf), false),
            };
            let found = std::array::from_fn(|_| (0, 0..0));
            let mut places = Places { message: base..base + message.len(), wanted, found, encoding: Vec::new() };
            match take_columns(reader, &shown.schema, &shown.flat, message, &mut places) {
                Ok(()) => {}
                Err(PartError::Damaged(_)) => return Ok(None),
                Err(PartError::Source(error)) => return Err(error.into()),
            }
            let part = |range: Range<usize>| match &decompressed {
                Some(message) => Data::Rendered(Arc::new(PartOf(message.clone(), range))),
                None => chunk.data(start + range.start as u64..start + range.end as u64),
            };
            if !raw {
                let range = places.found[0].1.clone();
                let (suffix, from) = encoded(message.get(range.clone()).unwrap_or_default());
                let range = range.start + from..range.end;
                let view = View::default().with(range.len() as u64, part(range));
                return Ok(Some(Ok(Picture { view, suffix })));
            }
            let [(height, _), (width, _), (step, _), _, (order, _), (_, data)] = places.found;
            let Some(pixels) = Pixels::of(&places.encoding, order != 0) else { return Ok(Some(Err("its encoding"))) };
            let row_size = width.saturating_mul(pixels.size);
            let rows = height.saturating_sub(1).saturating_mul(step).saturating_add(row_size);
            if width == 0 || height == 0 || step < row_size || (data.len() as u64) < rows {
                return Ok(Some(Err("its size")));
            }
            let (channels, depth) = (pixels.channels, pixels.depth);
            let data = View::default().with(rows, part(data));
            let pixels = Data::Rendered(Arc::new(Rows { data, row_size, step, pixels }));
            let png = Png::new(pixels, 0, width as u32, height as u32, channels, depth);
            Ok(Some(png.map(|png| Picture { view: png.view(), suffix: ".png" }).ok_or("its size")))
        })
    }
}

/// A part of a message that was compressed by itself.
#[derive(Debug)]
struct PartOf(Arc<Buffer>, Range<usize>);

impl Rendered for PartOf {
    fn is_copy(&self) -> bool {
        true
    }

    fn borrow(&self, _: &ReadContext, part: Range<u64>) -> Result<Option<Bytes>, Fault> {
        let start = self.1.start;
        Ok(Some(Bytes::Decoded(self.0.clone(), start + to_usize(part.start)..start + to_usize(part.end))))
    }

    fn fill(&self, _: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let bytes = self.0.get(self.1.clone()).and_then(|bytes| bytes.get(to_usize(part.start)..to_usize(part.end)));
        out.copy_from_slice(bytes.unwrap_or_default());
        Ok(())
    }
}

/// Returns the suffix of an encoded picture, and where it begins.
fn encoded(bytes: &[u8]) -> (&'static str, usize) {
    match picture::suffix(bytes) {
        Some(suffix) => (suffix, 0),
        None if bytes.get(12..).is_some_and(|bytes| bytes.starts_with(&picture::PNG)) => (".png", 12),
        None => (".bin", 0),
    }
}

/// How pixels are stored.
#[derive(Debug, Clone, Copy)]
struct Pixels {
    /// Bytes of a pixel.
    size: u64,
    channels: u8,
    /// Bytes of a channel.
    depth: u8,
    /// Whether red and blue are swapped.
    is_bgr: bool,
    /// Whether the two bytes of a channel are swapped.
    is_big: bool,
}

impl Pixels {
    fn of(encoding: &[u8], is_big: bool) -> Option<Self> {
        let of = |channels: u8, is_bgr| Self { size: channels.into(), channels, depth: 1, is_bgr, is_big: false };
        Some(match encoding {
            b"rgb8" => of(3, false),
            b"bgr8" => of(3, true),
            b"rgba8" => of(4, false),
            b"bgra8" => of(4, true),
            b"mono8" => of(1, false),
            b"mono16" | b"16UC1" => Self { size: 2, channels: 1, depth: 2, is_bgr: false, is_big },
            _ => return None,
        })
    }
}

/// Pixels without the padding of rows, in the order of a PNG.
#[derive(Debug)]
struct Rows {
    data: View,
    row_size: u64,
    step: u64,
    pixels: Pixels,
}

impl Rendered for Rows {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let size = self.pixels.size.max(1);
        let mut at = part.start;
        let mut rest = out;
        while at < part.end {
            let (row, from) = (at / self.row_size, at % self.row_size);
            let length = (self.row_size - from).min(part.end - at);
            let (here, after) = rest.split_at_mut(length as usize);
            // The whole pixels that contain the part.
            let (first, last) = (from / size * size, (from + length).div_ceil(size) * size);
            let mut pixels = vec![0; (last - first) as usize];
            self.data.fill_at(reader, row.saturating_mul(self.step).saturating_add(first), &mut pixels)?;
            for pixel in pixels.chunks_exact_mut(size as usize) {
                if self.pixels.is_bgr && pixel.len() >= 3 {
                    pixel.swap(0, 2);
                }
                if self.pixels.is_big && pixel.len() == 2 {
                    pixel.swap(0, 1);
                }
            }
            let skip = (from - first) as usize;
            here.copy_from_slice(pixels.get(skip..skip + here.len()).unwrap_or_default());
            (at, rest) = (at + length, after);
        }
        Ok(())
    }
}
