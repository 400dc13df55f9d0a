//! Fixed arrays: the chunk index of datasets whose axes are all limited (section 6.2).

use super::{
    Place, Reader, Result, Structure,
    chunk::{Element, Numbers, StoredChunk},
};
use crate::source::to_usize;

/// Passes all stored chunks to `each`, with the place of each in the grid.
pub(super) fn visit(
    reader: &Reader<'_>,
    at: Place,
    element: Element,
    numbers: &Numbers,
    each: &mut dyn FnMut(&[u64], StoredChunk) -> Result<()>,
) -> Result<()> {
    let (offset, length) = (u64::from(reader.sizes.offset), u64::from(reader.sizes.length));
    let bytes = reader.checked(at, b"FAHD", 12 + length + offset)?;
    let mut head = reader.structure(at, &bytes);
    head.skip(4)?;
    head.version("a fixed array", 0..=0)?;
    let element = element.of_array(&mut head)?;
    let (page_bits, count) = (u32::from(head.u8()?), head.length()?);
    if numbers.count() != Some(count) {
        return Err(head.damaged(format!("a fixed array of {count} chunks, where the dataset has another number")));
    }
    let Some(block) = head.address()? else { return Ok(()) };
    let front = 6 + offset;
    let mut each_of = |first: u64, count: u64, elements: &mut Structure<'_>| {
        for number in first..first + count {
            if let Some(chunk) = element.read(elements)? {
                each(&numbers.place(number), chunk)?;
            }
        }
        Ok(())
    };
    let in_page = 1u64.checked_shl(page_bits).unwrap_or(u64::MAX);
    if count <= in_page {
        let size = element.size.checked_mul(count).and_then(|size| size.checked_add(front + 4)).unwrap_or(u64::MAX);
        let bytes = reader.checked(block, b"FADB", size)?;
        let mut elements = reader.structure(block, &bytes);
        elements.start_of_block("a block of a fixed array", element.kind(), at)?;
        return each_of(0, count, &mut elements);
    }
    // The bit map of the pages that were ever written.
    let pages = count.div_ceil(in_page);
    let bytes = reader.checked(block, b"FADB", front + pages.div_ceil(8) + 4)?;
    reader.structure(block, &bytes).start_of_block("a block of a fixed array", element.kind(), at)?;
    let written = bytes.get(to_usize(front)..).unwrap_or_default();
    let page_size = element.size.checked_mul(in_page).and_then(|size| size.checked_add(4));
    let first = block.saturating_add(bytes.len() as u64 + 4);
    for page in (0..pages).filter(|page| is_set(written, *page)) {
        let start = page * in_page;
        let here = in_page.min(count - start);
        let place = page_size.and_then(|size| size.checked_mul(page)).and_then(|at| at.checked_add(first));
        let place = place.ok_or_else(|| reader.damaged(block, "pages that pass the end of any file"))?;
        let bytes = reader.summed(place, element.size.saturating_mul(here).saturating_add(4))?;
        each_of(start, here, &mut reader.structure(place, &bytes))?;
    }
    Ok(())
}

/// Returns a bit of a bit map. The highest bit of a byte is its first.
pub(super) fn is_set(map: &[u8], number: u64) -> bool {
    let byte = usize::try_from(number / 8).ok().and_then(|at| map.get(at));
    byte.is_some_and(|byte| byte >> (7 - number % 8) & 1 != 0)
}
