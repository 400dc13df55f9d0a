//! Fractal heaps, which store dense links, dense attributes and shared messages (section 5).
//!
//! Objects of usual size lie in direct blocks, to which indirect blocks lead. An object's offset counts the bytes of
//! all direct blocks as if they were consecutive.

use super::{Pipeline, Place, Reader, Result, btree2, btree2::width_of, header::Body};
use crate::source::to_usize;

/// The largest direct block. The library makes them of 64 KiB at most.
const BLOCK: u64 = 64 << 20;

/// Memory for the place of a large object.
const LARGE: u64 = 64;

/// A heap, and the blocks that were read last.
pub(super) struct Heap<'r, 'a> {
    reader: &'r Reader<'a>,
    at: Place,
    /// Bytes of an object's ID.
    id_size: usize,
    has_checksums: bool,
    pipeline: Pipeline,
    large_tree: Option<Place>,
    /// Blocks in a row of an indirect block.
    width: u64,
    /// Bytes of the smallest block and of the largest direct one.
    first: u64,
    most: u64,
    /// Bytes of an object's offset and of its length, in IDs.
    offset_width: usize,
    length_width: usize,
    root: Option<Child>,
    /// Rows of the root; 0 if it is a direct block.
    rows: u32,
    /// Large objects by their numbers; read when the first one is asked for.
    large: Option<Vec<(u64, Large)>>,
    /// The direct block that was read last: its offset in the heap, its place, and its bytes.
    last: Option<(u64, Place, Vec<u8>)>,
    /// Bytes of memory that are reserved for direct blocks.
    room: u64,
    /// The indirect blocks on the way to it.
    way: Vec<(Place, Vec<u8>)>,
}

/// A block as its parent names it.
#[derive(Debug, Clone, Copy)]
struct Child {
    at: Place,
    /// Stored bytes and mask, if it is filtered.
    filtered: Option<(u64, u32)>,
}

/// An object that has its own place in the file.
#[derive(Debug, Clone, Copy)]
struct Large {
    at: Place,
    stored: u64,
    /// Mask and decoded bytes, if it is filtered.
    filtered: Option<(u32, u64)>,
}

/// Orders IDs by the places of their objects.
pub(super) fn in_heap<const N: usize>(id: &[u8; N]) -> [u8; N] {
    let mut key = *id;
    // Offsets, and the lengths after them, are little-endian.
    key[1..].reverse();
    key
}

impl<'r, 'a> Heap<'r, 'a> {
    /// Reads the header at an address.
    pub(super) fn open(reader: &'r Reader<'a>, at: Place) -> Result<Self> {
        let (offset, length) = (u64::from(reader.sizes.offset), u64::from(reader.sizes.length));
        let fixed = 22 + 12 * length + 3 * offset;
        let front = reader.signed(at, b"FRHP", fixed)?;
        let mut head = reader.structure(at, &front);
        head.skip(4)?;
        head.version("a fractal heap", 0..=0)?;
        let (id_size, filters) = (usize::from(head.u16()?), u64::from(head.u16()?));
        let more = if filters == 0 { 4 } else { length + 4 + filters + 4 };
        let bytes = reader.checked(at, b"FRHP", fixed + more)?;
        let mut head = reader.structure(at, &bytes);
        head.skip(9)?;
        let (flags, most_object) = (head.u8()?, u64::from(head.u32()?));
        head.length()?;
        let large_tree = head.address()?;
        head.length()?;
        head.address()?;
        head.skip(8 * to_usize(length))?;
        let (width, first, most) = (u64::from(head.u16()?), head.length()?, head.length()?);
        let (bits, _) = (u64::from(head.u16()?), head.u16()?);
        let (root, rows) = (head.address()?, u32::from(head.u16()?));
        let is_power = |number: u64| number.is_power_of_two();
        if !is_power(width) || !is_power(first) || !is_power(most) || first > most || most > BLOCK || bits > 64 {
            let blocks = format!("{width} blocks of {first} to {most} bytes in a row, {bits} bits");
            return Err(reader.damaged(at, format!("a fractal heap of {blocks}")));
        }
        if id_size < 2 || rows > 64 {
            return Err(reader.damaged(at, format!("a fractal heap of {rows} rows, IDs of {id_size} bytes")));
        }
        let (filtered, pipeline) = match filters {
            0 => (None, Pipeline::default()),
            _ => (Some((head.length()?, head.u32()?)), Pipeline::parse(head.part(to_usize(filters))?)?),
        };
        Ok(Self {
            reader,
            at,
            id_size,
            has_checksums: flags & 2 != 0,
            pipeline,
            large_tree,
            width,
            first,
            most,
            offset_width: to_usize(bits.div_ceil(8)),
            length_width: to_usize(u64::from(most.ilog2()).div_ceil(8).min(width_of(most_object))),
            root: root.map(|at| Child { at, filtered }),
            rows,
            large: None,
            last: None,
            room: 0,
            way: Vec::new(),
        })
    }

    /// Returns an object by its ID. Objects are read fastest in the order of their IDs.
    pub(super) fn object(&mut self, id: &[u8]) -> Result<Body<'static>> {
        let Some((&kind, rest)) = id.get(..self.id_size).and_then(<[u8]>::split_first) else {
            return Err(self.damaged("an ID in it that is too short"));
        };
        match kind >> 4 {
            0 => self.managed(rest),
            1 => self.large(rest),
            2 => self.tiny(kind, rest),
            _ => Err(self.damaged(format!("an ID in it of kind {kind:#04x}"))),
        }
    }

    fn damaged(&self, reason: impl std::fmt::Display) -> super::Error {
        self.reader.damaged(self.at, format!("a fractal heap, and {reason}"))
    }

    fn tiny(&self, kind: u8, rest: &[u8]) -> Result<Body<'static>> {
        let low = usize::from(kind & 0x0f);
        let bytes = match rest.split_first() {
            Some((next, rest)) if self.id_size > 18 => rest.get(..(low << 8 | usize::from(*next)) + 1),
            _ => rest.get(..low + 1),
        };
        let bytes = bytes.ok_or_else(|| self.damaged("an ID in it that is shorter than its object"))?;
        Ok(Body { bytes: bytes.to_vec().into(), place: self.reader.place(self.at) })
    }

    fn large(&mut self, id: &[u8]) -> Result<Body<'static>> {
        let reader = self.reader;
        let (offset, length) = (usize::from(reader.sizes.offset), usize::from(reader.sizes.length));
        let is_filtered = !self.pipeline.steps.is_empty();
        let direct = offset + length + if is_filtered { 4 + length } else { 0 };
        let mut fields = reader.structure(self.at, id);
        let large = if direct <= id.len() {
            let (at, stored) = (fields.defined()?, fields.length()?);
            let filtered = is_filtered.then(|| Ok((fields.u32()?, fields.length()?))).transpose();
            Large { at, stored, filtered: filtered.map_err(|error: super::Error| error)? }
        } else {
            let number = fields.uint(id.len().min(8))?;
            let all = match self.large.take() {
                Some(all) => self.large.insert(all),
                None => {
                    let all = self.read_large()?;
                    self.large.insert(all)
                }
            };
            let found =
                all.binary_search_by_key(&number, |(number, _)| *number).ok().and_then(|at| all.get(at)).copied();
            found.ok_or_else(|| self.damaged(format!("no large object {number}")))?.1
        };
        let bytes = reader.read(large.at, large.stored)?;
        let bytes = match large.filtered {
            None => bytes,
            Some((mask, size)) => self.decode(large.at, bytes, mask, size)?,
        };
        Ok(Body { bytes: bytes.into(), place: reader.place(large.at) })
    }

    /// Returns all large objects by their numbers.
    fn read_large(&self) -> Result<Vec<(u64, Large)>> {
        let tree = self.large_tree.ok_or_else(|| self.damaged("a large object without an index"))?;
        let mut all = Vec::new();
        btree2::walk(self.reader, tree, &[1, 2], &mut |kind, mut record| {
            self.reader.memory.reserve(LARGE)?;
            let (at, stored) = (record.defined()?, record.length()?);
            let filtered = if kind == 2 { Some((record.u32()?, record.length()?)) } else { None };
            all.push((record.length()?, Large { at, stored, filtered }));
            Ok(())
        })?;
        all.sort_unstable_by_key(|(number, _)| *number);
        Ok(all)
    }

    fn decode(&self, at: Place, stored: Vec<u8>, mask: u32, size: u64) -> Result<Vec<u8>> {
        if size > BLOCK {
            return Err(self.damaged(format!("{size} bytes together")));
        }
        let codec = self.pipeline.codec(mask, size).map_err(|reason| self.reader.damaged(at, reason))?;
        let working = codec.working_memory(0, stored.len() as u64, size);
        codec.check_size(stored.len() as u64, size).map_err(|error| self.reader.damaged(at, error.to_string()))?;
        self.reader.memory.reserve(working.saturating_add(size))?;
        codec.decode(&stored, size).map_err(|error| self.reader.damaged(at, error.to_string()))
    }

    fn managed(&mut self, id: &[u8]) -> Result<Body<'static>> {
        let mut fields = self.reader.structure(self.at, id);
        let (offset, length) = (fields.uint(self.offset_width)?, fields.uint(self.length_width)?);
        let is_last =
            |(start, _, bytes): &(u64, Place, Vec<u8>)| offset >= *start && offset - start < bytes.len() as u64;
        let (start, place, bytes) = match self.last.take().filter(is_last) {
            Some(last) => self.last.insert(last),
            None => {
                let found = self.block(offset)?;
                self.last.insert(found)
            }
        };
        let from = to_usize(offset - *start);
        let object = usize::try_from(length).ok().and_then(|length| bytes.get(from..from.checked_add(length)?));
        match object {
            Some(object) => {
                let place = self.reader.place(*place).saturating_add(from as u64);
                Ok(Body { bytes: object.to_vec().into(), place })
            }
            None => Err(self.damaged(format!("an object of {length} bytes at {offset} that passes its block"))),
        }
    }

    /// Returns the direct block that contains an offset: the offset where it begins, its address, and its bytes.
    fn block(&mut self, offset: u64) -> Result<(u64, Place, Vec<u8>)> {
        let missing = |heap: &Self| heap.damaged(format!("no block for offset {offset}"));
        let (mut child, mut rows) = (self.root.ok_or_else(|| missing(self))?, self.rows);
        let (mut start, mut depth) = (0, 0);
        if rows == 0 {
            let size = self.first;
            return match offset < size {
                true => Ok((0, child.at, self.direct(child, size)?)),
                false => Err(missing(self)),
            };
        }
        // Rows up to this one have direct blocks.
        let direct_rows = self.most.ilog2() - self.first.ilog2() + 2;
        loop {
            let inner = offset - start;
            let row = match inner / (self.width * self.first) {
                0 => 0,
                rest => rest.ilog2() + 1,
            };
            if row >= rows {
                return Err(missing(self));
            }
            // The first two rows have blocks of one size; each later one has blocks of twice the size.
            let too_large = || self.damaged("offsets of more than 64 bits");
            let size = self.first.checked_mul(1 << row.saturating_sub(1)).ok_or_else(too_large)?;
            let row_start = if row == 0 { 0 } else { size * self.width };
            let column = (inner - row_start) / size;
            start += row_start + column * size;
            let next = self.child(child, rows, direct_rows, depth, u64::from(row) * self.width + column)?;
            child = next.ok_or_else(|| missing(self))?;
            if row < direct_rows {
                return Ok((start, child.at, self.direct(child, size)?));
            }
            // The child has fewer rows, because it has no larger blocks than this row.
            rows = (size / (self.width * self.first)).checked_ilog2().map_or(0, |rows| rows + 1);
            depth += 1;
        }
    }

    /// Returns a child of an indirect block by its number, if it is there.
    fn child(&mut self, block: Child, rows: u32, direct_rows: u32, depth: usize, number: u64) -> Result<Option<Child>> {
        let reader = self.reader;
        let is_filtered = !self.pipeline.steps.is_empty();
        let (offset, length) = (u64::from(reader.sizes.offset), u64::from(reader.sizes.length));
        let head = 5 + offset + self.offset_width as u64;
        let direct = offset + if is_filtered { length + 4 } else { 0 };
        let directs = u64::from(rows.min(direct_rows)) * self.width;
        let indirects = u64::from(rows.saturating_sub(direct_rows)) * self.width;
        if self.way.get(depth).is_none_or(|(at, _)| *at != block.at) {
            let size = head + directs * direct + indirects * offset + 4;
            let bytes = reader.checked(block.at, b"FHIB", size)?;
            self.way.truncate(depth);
            self.way.push((block.at, bytes));
        }
        let Some((at, bytes)) = self.way.get(depth) else { return Ok(None) };
        let mut fields = reader.structure(*at, bytes);
        fields.start_of_block("a block of a fractal heap", None, self.at)?;
        let place = match number.checked_sub(directs) {
            None => head + number * direct,
            Some(number) => head + directs * direct + number * offset,
        };
        fields.skip(to_usize(place - 5 - offset))?;
        let Some(at) = fields.address()? else { return Ok(None) };
        let filtered = if is_filtered && number < directs { Some((fields.length()?, fields.u32()?)) } else { None };
        Ok(Some(Child { at, filtered }))
    }

    /// Reads a direct block of a size.
    fn direct(&mut self, block: Child, size: u64) -> Result<Vec<u8>> {
        let reader = self.reader;
        let bytes = match block.filtered {
            None => reader.read_into_room(block.at, size, &mut self.room)?,
            Some((stored, mask)) => self.decode(block.at, reader.read(block.at, stored)?, mask, size)?,
        };
        reader.check_signature(block.at, b"FHDB", &bytes)?;
        reader.structure(block.at, &bytes).start_of_block("a block of a fractal heap", None, self.at)?;
        if self.has_checksums {
            // The checksum is that of the block with zeros instead of the checksum.
            let at = 5 + usize::from(reader.sizes.offset) + self.offset_width;
            let mut copy = bytes.clone();
            let sum = copy.get_mut(at..at + 4).ok_or_else(|| self.damaged("a block without room for its head"))?;
            let stored = sum.iter().rev().fold(0u32, |sum, byte| sum << 8 | u32::from(*byte));
            sum.fill(0);
            let computed = super::lookup3(&copy);
            if stored != computed {
                let reason = format!("a block of a fractal heap with checksum {computed:08x}, stored is {stored:08x}");
                return Err(reader.damaged(block.at, reason));
            }
        }
        Ok(bytes)
    }
}
