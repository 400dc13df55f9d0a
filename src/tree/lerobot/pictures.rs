//! Encoded pictures of a camera in the row files (`docs/formats/lerobot.md` 6): their kinds, their bytes, and all
//! pictures as one array.

use std::{fmt, ops::Range, sync::Arc};

use crate::{
    cache::{BlockError, Buffer, Key, Tag},
    codec::Codec,
    format::{
        Block, Fields,
        picture::{JPEG, PNG, Size, jpeg_size, png_size},
    },
    source::{Memory, Source, SourceError, Wait},
    tree::{
        WorkingMemory,
        columns::{Columns, Slot},
        frames::{each_frame, threads},
    },
    view::{Bytes, Fault, ReadContext, Rendered},
};

/// The index's entry for a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Picture {
    pub(super) kind: Kind,
    /// Bytes.
    pub(super) length: u32,
    /// The size in its header; zeros if there is none, or a stack cannot have that size.
    width: u32,
    height: u32,
    channels: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Missing,
    /// Its page is damaged.
    Lost,
    Jpeg,
    Png,
    Opaque,
}

const KINDS: [Kind; 5] = [Kind::Missing, Kind::Lost, Kind::Jpeg, Kind::Png, Kind::Opaque];

/// Tags in the cache: the index of pictures, by feature and episode; decoded pictures, by feature, episode and frame.
const INDEX: Tag = Tag::Own(1);
const PIXELS: Tag = Tag::Own(2);

/// Bytes of a picture in the index.
const ENTRY: usize = 16;

impl Picture {
    const NONE: Self = Self { kind: Kind::Missing, length: 0, width: 0, height: 0, channels: 0 };

    /// Returns the suffix of its file; `None` if it is missing.
    pub(super) fn suffix(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Missing => None,
            Kind::Jpeg => Some(".jpg"),
            Kind::Png => Some(".png"),
            Kind::Lost | Kind::Opaque => Some(".bin"),
        }
    }

    fn of(bytes: &[u8]) -> Self {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let (kind, size) = if bytes.is_empty() {
            (Kind::Missing, None)
        } else if bytes.starts_with(&JPEG) {
            let get = |at: u64| Ok(usize::try_from(at).ok().and_then(|at| bytes.array(at)));
            (Kind::Jpeg, jpeg_size(get).ok().flatten())
        } else if bytes.starts_with(&PNG) {
            (Kind::Png, png_size(bytes))
        } else {
            (Kind::Opaque, None)
        };
        let Size { width, height, channels } = size.unwrap_or(Size { width: 0, height: 0, channels: 0 });
        Self { kind, length, width, height, channels }
    }

    fn to_bytes(self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.width.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.height.to_le_bytes());
        (bytes[12], bytes[13]) = (self.kind as u8, self.channels);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let kind = *KINDS.get(usize::from(*bytes.get(12)?))?;
        let (length, width, height) = (bytes.u32(0)?, bytes.u32(4)?, bytes.u32(8)?);
        Some(Self { kind, length, width, height, channels: *bytes.get(13)? })
    }
}

/// The pictures of a camera in an episode.
#[derive(Clone)]
pub(super) struct Pictures {
    columns: Arc<Columns>,
    leaf: usize,
    rows: Range<u64>,
    index: Arc<Buffer>,
}

impl fmt::Debug for Pictures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pictures").field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl Pictures {
    /// Reads the kinds of the pictures in some rows. The feature and the episode are the key in the cache.
    pub(super) fn read(
        reader: &ReadContext,
        columns: &Arc<Columns>,
        leaf: usize,
        rows: Range<u64>,
        (feature, episode): (u64, u64),
    ) -> Result<Self, Fault> {
        let key = Key::new(reader.container, INDEX, feature, episode);
        let made = reader.get_or_insert_with(key, || make(reader, columns, leaf, &rows))?;
        let index = made.into_iter().next();
        Ok(Self { columns: columns.clone(), leaf, rows, index: index.unwrap_or_default() })
    }

    /// Returns the number of frames.
    pub(super) fn count(&self) -> u64 {
        self.rows.end - self.rows.start
    }

    /// Returns the index's entry for a picture.
    pub(super) fn get(&self, frame: u64) -> Picture {
        let at = usize::try_from(frame).unwrap_or(usize::MAX).saturating_mul(ENTRY);
        self.index.get(at..).and_then(Picture::from_bytes).unwrap_or(Picture::NONE)
    }

    /// Returns the bytes of a picture, and where they are.
    fn bytes(&self, reader: &ReadContext, frame: u64) -> Result<(Arc<Buffer>, Range<usize>), Fault> {
        let row = self.rows.start + frame;
        let mut found = None;
        self.columns.scalars(reader, self.leaf, row..row + 1, &mut |_, value| {
            found = value.map(|(page, slot)| {
                let (bytes, place) = page.span(slot);
                (bytes.clone(), place)
            });
            Ok(())
        })?;
        found.ok_or_else(|| Fault::refused(format!("the picture of row {row} is missing")))
    }

    /// Returns the number of pictures, their width, height and channels if all have the same, and their codecs.
    pub(super) fn described(&self) -> (u64, Option<(u32, u32, u8)>, String) {
        let all = (0..self.count()).map(|frame| self.get(frame)).filter(|picture| picture.kind != Kind::Missing);
        let (mut count, mut sizes, mut kinds) = (0, Vec::new(), Vec::new());
        for picture in all {
            count += 1;
            let size = (picture.width, picture.height, picture.channels);
            let kind = match picture.kind {
                Kind::Jpeg => "jpeg",
                Kind::Png => "png",
                Kind::Missing | Kind::Lost | Kind::Opaque => "unknown",
            };
            if sizes.len() < 2 && !sizes.contains(&size) {
                sizes.push(size);
            }
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        let size = if let [size] = sizes.as_slice() { Some(*size).filter(|size| size.0 > 0) } else { None };
        (count, size, kinds.join("+"))
    }

    /// Returns the file of a picture.
    pub(super) fn file(&self, frame: u64) -> Stored {
        Stored { pictures: self.clone(), frame }
    }
}

fn make(
    reader: &ReadContext,
    columns: &Columns,
    leaf: usize,
    rows: &Range<u64>,
) -> Result<Vec<Arc<Buffer>>, Arc<BlockError>> {
    // Pages reserve memory for themselves.
    let memory = WorkingMemory::held(&reader.cache);
    let size = (rows.end - rows.start).saturating_mul(ENTRY as u64);
    memory.reserve(size).map_err(BlockError::from)?;
    let mut index = Vec::with_capacity(size as usize);
    let visited = columns.visit(reader, leaf, rows.clone(), &mut |rows, part| {
        match part {
            Ok(part) => {
                for row in part.rows.clone() {
                    let slot = part.slots(row).start;
                    let is_there = part.page.slot(slot) == Slot::Value;
                    let picture = if is_there { Picture::of(part.page.bytes(slot)) } else { Picture::NONE };
                    index.extend(picture.to_bytes());
                }
            }
            Err(fault) if fault.error.is_damage() => {
                let lost = Picture { kind: Kind::Lost, length: 1, ..Picture::NONE };
                rows.for_each(|_| index.extend(lost.to_bytes()));
            }
            Err(fault) => return Err(fault),
        }
        Ok(())
    });
    visited.map_err(|fault| fault.error)?;
    let mut room = memory.keep(index.capacity() as u64).map_err(BlockError::from)?;
    let own = room.split(index.capacity() as u64);
    Ok(vec![Arc::new(Buffer::from(index).with_room(own))])
}

/// The bytes of one picture.
#[derive(Debug)]
pub(super) struct Stored {
    pictures: Pictures,
    frame: u64,
}

impl Stored {
    fn place(&self, reader: &ReadContext, part: &Range<u64>) -> Result<(Arc<Buffer>, Range<usize>), Fault> {
        let (bytes, place) = self.pictures.bytes(reader, self.frame)?;
        let wanted = place.start + part.start as usize..place.start + part.end as usize;
        match wanted.end <= place.end && place.end <= bytes.len() {
            true => Ok((bytes, wanted)),
            false => Err(Fault::refused("a picture has another size than it had")),
        }
    }
}

impl Rendered for Stored {
    fn borrow(&self, reader: &ReadContext, part: Range<u64>) -> Result<Option<Bytes>, Fault> {
        let (bytes, wanted) = self.place(reader, &part)?;
        Ok(Some(Bytes::Decoded(bytes, wanted)))
    }

    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let (bytes, wanted) = self.place(reader, &part)?;
        out.copy_from_slice(bytes.get(wanted).unwrap_or_default());
        Ok(())
    }
}

/// All pictures of one size as an array.
#[derive(Debug)]
pub(super) struct Stack {
    pub(super) pictures: Pictures,
    /// Height, width and channels.
    pub(super) shape: [u64; 3],
    /// Feature and episode as one number.
    pub(super) camera: u64,
}

impl Stack {
    fn fill_frame(&self, reader: &ReadContext, frame: u64, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let picture = self.pictures.get(frame);
        let Picture { width, height, channels, .. } = picture;
        let row = self.pictures.rows.start + frame;
        let codec = match picture.kind {
            Kind::Jpeg => Codec::Jpeg(width, height, channels),
            Kind::Png => Codec::Png(width, height, channels),
            Kind::Missing => return Err(Fault::refused(format!("the picture of row {row} is missing"))),
            // Reading the page gives the reason.
            Kind::Lost => {
                self.pictures.bytes(reader, frame)?;
                return Err(Fault::refused(format!("the picture of row {row} was damaged")));
            }
            Kind::Opaque => return Err(Fault::refused(format!("the picture of row {row} is neither JPEG nor PNG"))),
        };
        if [u64::from(height), width.into(), channels.into()] != self.shape {
            let [h, w, c] = self.shape;
            let reason = format!("the picture of row {row} is {height} × {width} × {channels}, not {h} × {w} × {c}");
            return Err(Fault::refused(&reason));
        }
        let key = Key::new(reader.container, PIXELS, self.camera, frame);
        let block = Block {
            offset: 0,
            stored_size: picture.length.into(),
            size: self.shape.iter().product(),
            codec,
            crc: None,
        };
        // If the picture is already decoded, its stored bytes are not needed.
        if let Some(Ok(parts)) = reader.cache.get(key)
            && let [pixels] = parts.as_slice()
        {
            return copy(pixels, &part, out);
        }
        let (bytes, place) = self.pictures.bytes(reader, frame)?;
        let reader = reader.with_source(Arc::new(Encoded(bytes, place)));
        let piece = reader.piece(key, &block, &(0..block.size))?;
        copy(&piece.bytes, &part, out)
    }
}

/// Copies a part of a frame's pixels.
fn copy(pixels: &[u8], part: &Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
    let pixels = pixels.get(part.start as usize..part.end as usize);
    out.copy_from_slice(pixels.ok_or_else(|| Fault::refused("a picture decodes to another size"))?);
    Ok(())
}

impl Rendered for Stack {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        each_frame(threads(reader), self.shape.iter().product(), part, out, |frame, part, out| {
            self.fill_frame(reader, frame, part, out)
        })
    }
}

/// An encoded picture in memory.
struct Encoded(Arc<Buffer>, Range<usize>);

impl Source for Encoded {
    fn len(&self) -> u64 {
        self.1.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], _: Wait) -> Result<(), SourceError> {
        let end = offset.saturating_add(buf.len() as u64);
        let bytes = self.0.get(self.1.clone()).unwrap_or_default();
        let place = usize::try_from(offset).ok().zip(usize::try_from(end).ok());
        let found = place.and_then(|(start, end)| bytes.get(start..end));
        buf.copy_from_slice(found.ok_or(SourceError::OutOfRange { start: offset, end, len: self.len() })?);
        Ok(())
    }
}
