//! Finds the chunks of an array: under their own keys, or in shards (`docs/formats/zarr.md` 3.5, 6.2).

use std::{
    collections::HashMap,
    fmt,
    ops::Range,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use super::store::{self, Place, Store};
use crate::{
    cache::{BlockError, Buffer, Key, Tag},
    codec::{Chain, Codec, Filter},
    format::{
        Block,
        zarr::{Keys, Sharding, Written},
    },
    source::{Memory, Source},
    tree::{WorkingMemory, describe},
    view::{
        Fault, ReadContext,
        grid::{Chunk, Chunks, Layout},
    },
};

/// Tags in the cache for what is kept of arrays in addition to decoded chunks: the indexes of shards of each level,
/// chunks before the steps on elements are undone, listings of chunks, and chunks of texts.
const INDEX: Tag = Tag::Own(0);
pub(super) const RAW: Tag = Tag::Own(1);
const LISTING: Tag = Tag::Own(2);
pub(super) const TEXTS: Tag = Tag::Own(3);

/// Most levels of shards.
const LEVELS: u64 = 4;

/// Tag in the cache of the sizes of files of chunks: by array, and the place of the first of [`TOGETHER`] chunks.
const SIZES: Tag = Tag::Parsed(0);
const TOGETHER: u64 = 64;

/// Sizes of the files of some chunks, by the chunks' numbers; `None` if there is no file.
type Sizes = HashMap<u64, Option<u64>>;

/// Tag in the cache of files of shards, by array and shard. While chunks in a shard are read, its file is opened only
/// once.
const SHARDS: Tag = Tag::Parsed(1);

/// What all arrays of a container share.
pub(super) struct Files {
    pub(super) store: Store,
}

impl Files {
    pub(super) fn new(store: Store) -> Arc<Self> {
        Arc::new(Self { store })
    }

    pub(super) fn memory_usage(&self) -> usize {
        self.store.memory_usage()
    }
}

/// The chunks of an array.
pub(super) struct Stored {
    pub(super) files: Arc<Files>,
    /// The number of the array.
    pub(super) number: u64,
    /// Its key.
    pub(super) path: Box<str>,
    pub(super) shape: Vec<u64>,
    pub(super) keys: Keys,
    pub(super) written: Written,
    /// All steps from shown elements to stored bytes, in the order of writing, and their codec.
    pub(super) steps: Vec<Filter>,
    pub(super) codec: Codec,
    /// Bytes of a decoded chunk; 0 for texts and rows of bytes, whose chunks differ.
    pub(super) size: u64,
    /// The steps from what `.raw` shows to stored bytes, if they differ.
    pub(super) raw_steps: Option<Vec<Filter>>,
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chunks of {}", self.path)
    }
}

impl Place {
    /// Returns the block of a chunk at this place, by its codec and the codec's steps in the order of writing. Returns
    /// `None` for too many steps.
    pub(super) fn block<'a>(&self, codec: &Codec, steps: impl Iterator<Item = &'a Filter>, size: u64) -> Option<Block> {
        let Self { range, written, crc, .. } = self;
        let (offset, stored_size) = (range.start, range.end - range.start);
        if written.is_empty() && (crc.is_none() || *codec == Codec::None) {
            return Some(Block { offset, stored_size, size, codec: codec.clone(), crc: *crc });
        }
        let known = crc.map(|crc| Filter::Known { size: stored_size, crc: crc.value });
        let codec = Chain::of(steps.cloned().chain(known).chain(written.iter().cloned()))?;
        Some(Block { offset, stored_size, size, codec, crc: None })
    }
}

/// A shard of the first level.
struct Shard {
    number: u64,
    /// As [`Stored::index`] returns it.
    index: Arc<Buffer>,
    /// Where its file is.
    place: Place,
}

/// Returns a number of the index of a shard.
fn word(index: &[u8], at: usize) -> Option<u64> {
    let word = index.get(8 * at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word))
}

/// Returns the number of a place in a grid, in C order.
pub(super) fn linear(at: impl Iterator<Item = u64>, counts: impl Iterator<Item = u64>) -> u64 {
    at.zip(counts).fold(0, |number, (at, count)| number * count + at)
}

/// Returns the place in a grid with a number.
pub(super) fn place(mut number: u64, counts: &[u64]) -> Vec<u64> {
    let mut at = vec![0; counts.len()];
    for (at, count) in at.iter_mut().zip(counts).rev() {
        *at = number % (*count).max(1);
        number /= (*count).max(1);
    }
    at
}

/// Returns the number of chunks along each axis.
pub(super) fn counts<'a>(shape: &'a [u64], chunk: &'a [u64]) -> impl Iterator<Item = u64> + 'a {
    shape.iter().zip(chunk).map(|(shape, chunk)| if *shape == 0 { 0 } else { shape.div_ceil((*chunk).max(1)) })
}

impl Stored {
    /// Makes only the front of chunks be decoded, if the array ends in their first rows. tszip writes such arrays, for
    /// example six elements in a chunk of eight million. `layout` gets the shape of the front.
    pub(super) fn leave_out_end(&mut self, layout: &mut Layout) {
        let Written { elements, bytes, order, shards, .. } = &self.written;
        let (Some(rows), Some(chunk)) = (self.shape.first(), layout.chunk.first_mut()) else { return };
        let is_simple = order.is_none() && shards.is_empty() && *bytes == [Filter::Blosc];
        let keeps_order = |step: &Filter| matches!(step, Filter::Delta(_) | Filter::Scaled(_));
        if !is_simple || *rows >= *chunk || !elements.iter().all(keeps_order) {
            return;
        }
        let whole = elements.iter().try_fold(self.size, |size, step| step.stored_size(size));
        let Some(whole) = whole else { return };
        let steps: Vec<_> = elements.iter().cloned().chain([Filter::BloscFront(whole)]).collect();
        let Some(codec) = Chain::of(steps.iter().cloned()) else { return };
        self.raw_steps = self.raw_steps.take().or_else(|| Some(self.steps.clone()));
        (self.size, *chunk) = (self.size / *chunk * rows, *rows);
        (self.steps, self.codec) = (steps, codec);
    }

    fn refused(&self, reason: impl fmt::Display) -> Fault {
        store::fault(BlockError::Refused(reason.to_string()), self.name())
    }

    /// Returns the name of the array in messages.
    pub(super) fn name(&self) -> &str {
        if self.path.is_empty() { super::ROOT_ARRAY } else { &self.path }
    }

    /// Returns the key of a stored chunk, which may be a shard.
    pub(super) fn key(&self, at: &[u64]) -> String {
        let key = self.keys.key(at.iter().copied());
        if self.path.is_empty() { key } else { format!("{}/{key}", self.path) }
    }

    /// Returns the file of a shard that others are reading, or this one if there is none.
    fn shared(&self, reader: &ReadContext, number: u64, file: Arc<dyn Source>) -> Arc<dyn Source> {
        let key = Key::new(reader.container, SHARDS, self.number, number);
        let shard = reader.cache.parsed_default::<Mutex<Option<Weak<dyn Source>>>>(key, 0);
        let mut shard = shard.lock();
        if let Some(known) = shard.as_ref().and_then(Weak::upgrade)
            && known.len() == file.len()
        {
            return known;
        }
        *shard = Some(Arc::downgrade(&file));
        file
    }

    /// Returns the known sizes of files of chunks whose numbers are near this one.
    fn sizes(&self, reader: &ReadContext, number: u64) -> Arc<Mutex<Sizes>> {
        let key = Key::new(reader.container, SIZES, self.number, number / TOGETHER);
        reader.cache.parsed_default(key, TOGETHER * 64)
    }

    /// Returns where the file or member of a stored chunk is, by its place in the grid of stored chunks.
    pub(super) fn outer(&self, reader: &ReadContext, at: &[u64]) -> Result<Option<Place>, Fault> {
        let number = linear(at.iter().copied(), counts(&self.shape, &self.keys.chunk));
        let known = self.sizes(reader, number).lock().get(&number).copied();
        if known == Some(None) {
            return Ok(None);
        }
        let found = self.files.store.place(reader, &self.key(at), known.flatten())?;
        if known.is_none() && self.files.store.zip().is_none() {
            let size = found.as_ref().map(|place| place.range.end);
            self.sizes(reader, number).lock().insert(number, size);
        }
        Ok(found)
    }

    /// Returns where a chunk is; `None` for an absent one.
    pub(super) fn find(&self, reader: &ReadContext, at: &[u64]) -> Result<Option<Place>, Fault> {
        self.find_beside(reader, at, &mut None)
    }

    /// Does the same as [`Self::find`]. `last` is the shard of the last chunk, and becomes the one of this chunk.
    fn find_beside(&self, reader: &ReadContext, at: &[u64], last: &mut Option<Shard>) -> Result<Option<Place>, Fault> {
        let Some(first) = self.written.shards.first() else {
            return self.outer(reader, at);
        };
        let chunk = &self.written.chunk;
        let start: Vec<u64> = at.iter().zip(chunk).map(|(at, chunk)| at * chunk).collect();
        let number = self.shard_number(first, &start);
        if last.as_ref().is_none_or(|shard| shard.number != number) {
            *last = self.shard(reader, first, &start)?;
        }
        let Some(shard) = last else { return Ok(None) };
        let mut found = self.inner(first, &shard.index, at, &start)?;
        for (level, sharding) in self.written.shards.iter().enumerate().skip(1) {
            let Some(range) = found else { return Ok(None) };
            let number = self.shard_number(sharding, &start);
            let key = Key::new(reader.container, INDEX, self.number * LEVELS + level as u64, number);
            let make =
                |memory: &WorkingMemory<'_>| self.index(&shard.place.reader(reader), sharding, range.clone(), memory);
            found = self.inner(sharding, &describe::kept_as(reader, key, make)?, at, &start)?;
        }
        let Place { file, written, .. } = &shard.place;
        Ok(found.map(|range| Place { file: file.clone(), range, crc: None, written: written.clone() }))
    }

    /// Returns the number of the shard of a level that contains an element.
    fn shard_number(&self, sharding: &Sharding, element: &[u64]) -> u64 {
        let shard = element.iter().zip(&sharding.outer).map(|(at, outer)| at / outer.max(&1));
        linear(shard, counts(&self.shape, &sharding.outer))
    }

    /// Returns the shard of the first level that contains an element; `None` for an absent one.
    fn shard(&self, reader: &ReadContext, first: &Sharding, element: &[u64]) -> Result<Option<Shard>, Fault> {
        let number = self.shard_number(first, element);
        let outer: Vec<u64> = element.iter().zip(&first.outer).map(|(at, outer)| at / outer.max(&1)).collect();
        let key = Key::new(reader.container, INDEX, self.number * LEVELS, number);
        let mut found = None;
        let index = describe::kept_as(reader, key, |memory| match self.outer(reader, &outer)? {
            Some(place) => {
                self.check_whole(reader, &outer, &place)?;
                let index = self.index(&place.reader(reader), first, place.range.clone(), memory)?;
                found = Some(place);
                Ok(index)
            }
            None => Ok(Buffer::from(Vec::new())),
        })?;
        let Some(end) = word(&index, 1) else { return Ok(None) };
        let file = linear(outer.iter().copied(), counts(&self.shape, &self.keys.chunk));
        if self.files.store.zip().is_none() {
            // The end of the range is the size of the file, which reading it needs.
            self.sizes(reader, file).lock().insert(file, Some(end));
        }
        // Its file is open already if its index was read just now.
        let found = found.map_or_else(|| self.outer(reader, &outer), |place| Ok(Some(place)))?;
        let Some(mut place) = found else { return Ok(None) };
        place.file = place.file.map(|opened| self.shared(reader, file, opened));
        Ok(Some(Shard { number, index, place }))
    }

    /// Returns the range of the next smaller chunk that contains an element, by the index of a shard. `at` is the place
    /// of the smallest one.
    fn inner(
        &self,
        sharding: &Sharding,
        index: &[u8],
        at: &[u64],
        element: &[u64],
    ) -> Result<Option<Range<u64>>, Fault> {
        let (Some(from), Some(end)) = (word(index, 0), word(index, 1)) else { return Ok(None) };
        let inside = element.iter().zip(sharding.outer.iter().zip(&sharding.inner));
        let inside = inside.map(|(at, (outer, inner))| at % outer.max(&1) / inner.max(&1));
        let number = linear(inside, sharding.counts()) as usize;
        let numbers = word(index, 2 + 2 * number).zip(word(index, 3 + 2 * number));
        let (offset, length) = numbers.ok_or_else(|| self.refused("the index of a shard is short"))?;
        if (offset, length) == (u64::MAX, u64::MAX) {
            return Ok(None);
        }
        let size = sharding.index_size();
        let (low, high) =
            if sharding.is_in_front { (size, end - from) } else { (0, (end - from).saturating_sub(size)) };
        let sound = offset.checked_add(length).filter(|end| offset >= low && *end <= high);
        let Some(until) = sound else {
            let reason = format!(
                "chunk {at:?} of {length} bytes at {offset} is not in its shard of {} bytes beside the index",
                end - from
            );
            return Err(self.refused(reason));
        };
        Ok(Some(from + offset..from + until))
    }

    /// Compares the checksum of a shard in an archive.
    fn check_whole(&self, reader: &ReadContext, at: &[u64], place: &Place) -> Result<(), Fault> {
        if !place.written.is_empty() {
            return Err(self.refused("the archive compresses shards, of which parts cannot be read"));
        }
        let Some(number) = self.files.store.zip().and_then(|zip| zip.number(&self.key(at))) else { return Ok(()) };
        let (offset, size) = (place.range.start, place.range.end - place.range.start);
        let block = Block { offset, stored_size: size, size, codec: Codec::None, crc: place.crc };
        let key = Key::new(reader.container, Tag::Block, number.into(), 0);
        let checked = reader.check_chunk(key, &block);
        checked.map_err(|error| Fault { block: Some(number), offset, error })
    }

    /// Reads the index of a shard, which is a range of the file that `reader` reads. Returns the start and end of the
    /// range, then offset and length of each inner chunk, all little-endian.
    fn index(
        &self,
        reader: &ReadContext,
        sharding: &Sharding,
        range: Range<u64>,
        memory: &dyn Memory,
    ) -> Result<Buffer, Fault> {
        let size = sharding.index_size();
        let length = range.end - range.start;
        let Some(behind) = length.checked_sub(size) else {
            return Err(self.refused(format!("a shard of {length} bytes, which has an index of {size}")));
        };
        let from = range.start + if sharding.is_in_front { 0 } else { behind };
        memory.reserve(2 * size + 16)?;
        let mut index = reader.source.read(from..from + size)?;
        if sharding.has_crc {
            let stored = index.split_off(index.len().saturating_sub(4));
            let (stored, computed) = (stored.try_into().map_or(0, u32::from_le_bytes), crc32c::crc32c(&index));
            if stored != computed {
                let reason = format!("the crc32c of a shard's index is {computed:08x}, stored is {stored:08x}");
                return Err(self.refused(reason));
            }
            reader.source.note_checked(&(from..from + size));
        }
        if sharding.is_big {
            index.as_chunks_mut::<8>().0.iter_mut().for_each(|word| word.reverse());
        }
        let mut bytes = [range.start.to_le_bytes(), range.end.to_le_bytes()].concat();
        bytes.extend(index);
        Ok(Buffer::from(bytes))
    }

    /// Returns the block of a chunk as `.raw` shows it.
    pub(super) fn raw_block(&self, place: &Place, size: u64) -> Result<Block, Fault> {
        let block = match &self.raw_steps {
            None => place.block(&self.codec, self.steps.iter(), size),
            Some(steps) => Chain::of(steps.iter().cloned()).and_then(|codec| place.block(&codec, steps.iter(), size)),
        };
        block.ok_or_else(|| self.refused("too many codecs"))
    }

    /// Returns the numbers of all stored chunks in ascending order, as little-endian 64-bit numbers.
    ///
    /// # Errors
    /// [`Fault`] if the store cannot be listed.
    pub(super) fn listed(&self, reader: &ReadContext) -> Result<Arc<Buffer>, Fault> {
        let key = Key::new(reader.container, LISTING, self.number, 0);
        describe::kept_as(reader, key, |memory| {
            let mut numbers: Vec<u64> = Vec::new();
            self.each_stored(reader, !self.written.shards.is_empty(), &mut |number| {
                memory.reserve(3 * 8)?;
                numbers.push(number);
                Ok(())
            })?;
            numbers.sort_unstable();
            Ok(Buffer::from(numbers.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>()))
        })
    }

    /// Calls `each` with the numbers of all stored chunks of an array in shards, or of all outer ones.
    fn each_stored(
        &self,
        reader: &ReadContext,
        in_shards: bool,
        each: &mut dyn FnMut(u64) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let rank = self.shape.len();
        let outer: Vec<u64> = counts(&self.shape, &self.keys.chunk).collect();
        let mut found = Vec::new();
        self.files.store.keys_below(&self.path, self.keys.folders(rank), &mut |key| {
            let at = self.keys.parse(key, rank);
            let at = at.filter(|at| at.iter().zip(&outer).all(|(at, count)| at < count));
            let Some(at) = at else { return Ok(()) };
            match in_shards {
                true => found.push(at),
                false => each(linear(at.iter().copied(), outer.iter().copied()))?,
            }
            Ok(())
        })?;
        let inner: Vec<u64> = counts(&self.shape, &self.written.chunk).collect();
        for at in found {
            // The chunks of this shard that are in the array.
            let ratio = self.keys.chunk.iter().zip(&self.written.chunk).map(|(outer, inner)| outer / inner.max(&1));
            let ratio: Vec<u64> = ratio.collect();
            let first: Vec<u64> = at.iter().zip(&ratio).map(|(at, ratio)| at * ratio).collect();
            for number in 0..ratio.iter().product::<u64>() {
                crate::wanted::check().map_err(crate::source::SourceError::from)?;
                let own: Vec<u64> = place(number, &ratio).iter().zip(&first).map(|(at, first)| at + first).collect();
                if own.iter().zip(&inner).any(|(at, count)| at >= count) {
                    continue;
                }
                // A damaged chunk is listed; reading it reports the damage.
                match self.find(reader, &own) {
                    Ok(None) => {}
                    Err(fault) if fault.would_block_for().is_some() || !fault.error.is_damage() => return Err(fault),
                    Ok(Some(_)) | Err(_) => each(linear(own.iter().copied(), inner.iter().copied()))?,
                }
            }
        }
        Ok(())
    }
}

impl Stored {
    /// Returns the chunk at a place that was found.
    fn chunk_at(&self, place: Option<Place>) -> Result<Chunk, Fault> {
        let Some(place) = place else { return Ok(Chunk::Absent) };
        let block =
            place.block(&self.codec, self.steps.iter(), self.size).ok_or_else(|| self.refused("too many codecs"))?;
        Ok(match place.file {
            Some(file) => Chunk::Elsewhere(file, block),
            None => Chunk::Stored(block),
        })
    }
}

impl Chunks for Arc<Stored> {
    fn chunk(&self, reader: &ReadContext, at: &[u64]) -> Result<Chunk, Fault> {
        self.chunk_at(self.find(reader, at)?)
    }

    fn chunks(
        &self,
        reader: &ReadContext,
        places: &mut dyn Iterator<Item = &[u64]>,
        found: &mut dyn FnMut(Chunk) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut last = None;
        for at in places {
            found(self.chunk_at(self.find_beside(reader, at, &mut last)?)?)?;
        }
        Ok(())
    }

    fn at_once(&self) -> usize {
        self.files.store.at_once()
    }
}
