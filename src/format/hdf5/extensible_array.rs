//! Extensible arrays: the chunk index of datasets that grow along one axis (section 6.2).
//!
//! The index block has the first elements, then the addresses of data blocks, then those of super blocks, which have
//! the addresses of more data blocks. Data blocks come in groups. From group to group, the number of blocks and the
//! number of elements in a block double in turn.

use std::collections::HashSet;

use super::{
    Place, Reader, Result, Structure,
    chunk::{Element, Numbers, StoredChunk},
    fixed_array::is_set,
};
use crate::source::to_usize;

/// In messages.
const DATA_BLOCK: &str = "a block of an extensible array";

/// Memory for the place of a block that was visited.
const VISITED: u64 = 48;

/// The content of the header.
struct Array<'r, 'a> {
    reader: &'r Reader<'a>,
    at: Place,
    element: Element,
    /// Elements of the index block and of the smallest data block.
    index_elements: u64,
    least: u64,
    /// Groups of data blocks; those before `first_super` have their addresses in the index block.
    groups: u32,
    first_super: u32,
    /// Elements of a page.
    in_page: u64,
    /// Bytes of the offset in a block's header.
    offset_width: u64,
    visited: HashSet<Place>,
}

/// A data block that is to be read.
struct Block {
    at: Place,
    /// The number of its first element, and the number of its elements.
    first: u64,
    count: u64,
}

/// Takes an element's number and the chunk.
type Each<'a> = &'a mut dyn FnMut(u64, StoredChunk) -> Result<()>;

/// Passes all stored chunks to `each`, with the place of each in the grid.
pub(super) fn visit(
    reader: &Reader<'_>,
    at: Place,
    element: Element,
    numbers: &Numbers,
    each: &mut dyn FnMut(&[u64], StoredChunk) -> Result<()>,
) -> Result<()> {
    let (offset, length) = (u64::from(reader.sizes.offset), u64::from(reader.sizes.length));
    let bytes = reader.checked(at, b"EAHD", 16 + 6 * length + offset)?;
    let mut head = reader.structure(at, &bytes);
    head.skip(4)?;
    head.version("an extensible array", 0..=0)?;
    let element = element.of_array(&mut head)?;
    let [bits, index_elements, least, pointers, page_bits] =
        [head.u8()?, head.u8()?, head.u8()?, head.u8()?, head.u8()?].map(u32::from);
    head.skip(6 * to_usize(length))?;
    let index = head.address()?;
    let is_known = least.is_power_of_two() && pointers.is_power_of_two() && (least.ilog2()..=62).contains(&bits);
    let groups = 1 + bits.saturating_sub(least.max(1).ilog2());
    let first_super = 2 * pointers.max(1).ilog2();
    if !is_known || page_bits > 62 || first_super > groups {
        let reason =
            format!("an extensible array of {bits} bits, {least} elements, {pointers} blocks, {page_bits} bits");
        return Err(reader.damaged(at, reason));
    }
    let Some(index) = index else { return Ok(()) };
    let mut array = Array {
        reader,
        at,
        element,
        index_elements: index_elements.into(),
        least: least.into(),
        groups,
        first_super,
        in_page: 1 << page_bits,
        offset_width: u64::from(bits).div_ceil(8),
        visited: HashSet::new(),
    };
    array.index(index, &mut |number, chunk| each(&numbers.place(number), chunk))
}

impl Array<'_, '_> {
    fn blocks(group: u32) -> u64 {
        1 << (group / 2)
    }

    fn elements(&self, group: u32) -> u64 {
        self.least << group.div_ceil(2)
    }

    fn visit(&mut self, at: Place) -> Result<()> {
        self.reader.memory.reserve(VISITED)?;
        match self.visited.insert(at) {
            true => Ok(()),
            false => Err(self.reader.damaged(at, "a block of an extensible array that is there twice")),
        }
    }

    fn index(&mut self, at: Place, each: Each<'_>) -> Result<()> {
        let offset = u64::from(self.reader.sizes.offset);
        let blocks: u64 = (0..self.first_super).map(Self::blocks).sum();
        let addresses = blocks + u64::from(self.groups - self.first_super);
        let size = 6 + offset + self.index_elements * self.element.size + addresses * offset + 4;
        let bytes = self.reader.checked(at, b"EAIB", size)?;
        let mut fields = self.reader.structure(at, &bytes);
        fields.start_of_block("an index block", self.element.kind(), self.at)?;
        for number in 0..self.index_elements {
            if let Some(chunk) = self.element.read(&mut fields)? {
                each(number, chunk)?;
            }
        }
        let mut first = self.index_elements;
        for group in 0..self.groups {
            let (blocks, count) = (Self::blocks(group), self.elements(group));
            if group < self.first_super {
                for _ in 0..blocks {
                    if let Some(at) = fields.address()? {
                        self.whole(&Block { at, first, count }, each)?;
                    }
                    first += count;
                }
            } else {
                if let Some(at) = fields.address()? {
                    self.super_block(at, group, first, each)?;
                }
                first += blocks * count;
            }
        }
        Ok(())
    }

    /// Reads the addresses of a group's data blocks, and the blocks.
    fn super_block(&mut self, at: Place, group: u32, mut first: u64, each: Each<'_>) -> Result<()> {
        self.visit(at)?;
        let offset = u64::from(self.reader.sizes.offset);
        let (blocks, count) = (Self::blocks(group), self.elements(group));
        let is_paged = count > self.in_page;
        let pages = if is_paged { count / self.in_page } else { 0 };
        let map = blocks * pages.div_ceil(8);
        let front = 6 + offset + self.offset_width;
        let bytes = self.reader.checked(at, b"EASB", front + map + blocks * offset + 4)?;
        let mut fields = self.reader.structure(at, &bytes);
        fields.start_of_block("a super block", self.element.kind(), self.at)?;
        fields.skip(to_usize(self.offset_width))?;
        let written = fields.take(to_usize(map))?;
        for number in 0..blocks {
            if let Some(at) = fields.address()? {
                let block = Block { at, first, count };
                match is_paged {
                    false => self.whole(&block, each)?,
                    true => self.pages(&block, written, number * pages, each)?,
                }
            }
            first += count;
        }
        Ok(())
    }

    /// Reads a data block without pages.
    fn whole(&mut self, block: &Block, each: Each<'_>) -> Result<()> {
        self.visit(block.at)?;
        let front = 6 + u64::from(self.reader.sizes.offset) + self.offset_width;
        let size = self.element.size.saturating_mul(block.count).saturating_add(front + 4);
        let bytes = self.reader.checked(block.at, b"EADB", size)?;
        let mut fields = self.reader.structure(block.at, &bytes);
        fields.start_of_block(DATA_BLOCK, self.element.kind(), self.at)?;
        fields.skip(to_usize(self.offset_width))?;
        self.read(&mut fields, block.first, block.count, each)
    }

    /// Reads the pages of a data block that were ever written. The first bit of the map is that of the first page.
    fn pages(&mut self, block: &Block, written: &[u8], bit: u64, each: Each<'_>) -> Result<()> {
        self.visit(block.at)?;
        let front = 6 + u64::from(self.reader.sizes.offset) + self.offset_width;
        let bytes = self.reader.checked(block.at, b"EADB", front + 4)?;
        self.reader.structure(block.at, &bytes).start_of_block(DATA_BLOCK, self.element.kind(), self.at)?;
        let size = self.element.size.saturating_mul(self.in_page).saturating_add(4);
        for page in (0..block.count / self.in_page).filter(|page| is_set(written, bit + page)) {
            let at = size.checked_mul(page).and_then(|at| at.checked_add(front + 4)?.checked_add(block.at));
            let at = at.ok_or_else(|| self.reader.damaged(block.at, "pages that pass the end of any file"))?;
            let bytes = self.reader.summed(at, size)?;
            let mut fields = self.reader.structure(at, &bytes);
            self.read(&mut fields, block.first + page * self.in_page, self.in_page, each)?;
        }
        Ok(())
    }

    fn read(&self, fields: &mut Structure<'_>, first: u64, count: u64, each: Each<'_>) -> Result<()> {
        for number in first..first + count {
            if let Some(chunk) = self.element.read(fields)? {
                each(number, chunk)?;
            }
        }
        Ok(())
    }
}
