//! The index of the names of a group of many links (section 4). It finds a link by its name or number, and lists all in
//! pages, so that memory never holds all of them.

use std::{cmp::Ordering, ops::ControlFlow};

use super::{
    LinksAt, Place, Reader, Result, Structure, btree1, btree2,
    fractal_heap::{Heap, in_heap},
    links::Links,
    lookup3,
    symbol_table::{AT_ONCE, Text, each_entry, entry_at},
};
use crate::source::to_usize;

/// The most links in dense storage, and bytes of names of a symbol table, that are read when a group is opened.
const FEW: u64 = 1 << 16;
const FEW_NAMES: u64 = 1 << 20;

/// Bytes of a link's ID in a fractal heap.
pub(super) const ID: usize = 7;

/// Number of links of a page of a symbol table.
const TABLE_PAGE: usize = 256;

/// Number of dense links of the first page, which must be there soon, and of the largest ones. Neighbours in the index
/// are anywhere in the heap, so a page reads most of the heap's blocks. Few large pages read each block a few times.
const FIRST_PAGE: u64 = 1 << 6;
const LARGEST_PAGE: u64 = 1 << 15;

/// The index of the names of a group of many links. It gives each link a number that leads to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkIndex {
    /// A B-tree of version 2 and its heap. The number is the link's ID in the heap.
    Dense { tree: Place, heap: Place },
    /// A B-tree of version 1, and the data of the heap of names. The number is the address of the link's entry.
    Table { tree: Place, names: Text, end: Place },
}

/// Consecutive links of a group of many, in the order of its index.
#[derive(Debug)]
pub struct Page {
    /// The links. Their places are those in the page.
    pub links: Links,
    /// The position of the page after this one, if there are more links.
    pub next: Option<u64>,
    /// The position of the first link. `None` if positions are the numbers of links.
    first: Option<u64>,
}

impl Page {
    /// Returns the position of the link at a place of the page.
    pub fn position(&self, place: usize) -> u64 {
        match self.first {
            Some(first) => first.saturating_add(place as u64),
            None => self.links.nth(place).map_or(u64::MAX, |link| link.number),
        }
    }

    /// Returns the place of the first link at or after a position, which is in this page.
    pub fn place(&self, position: u64) -> usize {
        match self.first {
            Some(first) => to_usize(position.saturating_sub(first)),
            // The page begins there.
            None => 0,
        }
    }
}

impl LinkIndex {
    /// Returns the index of a group, and whether it has many links. `None` if the links are in its header.
    pub(super) fn stored(reader: &Reader<'_>, stored: LinksAt) -> Result<Option<(Self, bool)>> {
        Ok(match stored {
            LinksAt::Messages => None,
            LinksAt::Dense(heap, tree) => {
                let count = btree2::count(reader, tree, &[5])?;
                Some((Self::Dense { tree, heap }, count > FEW))
            }
            LinksAt::Table(tree, heap) => {
                reader.expect([tree, heap], AT_ONCE);
                let names = Text::of(reader, heap)?;
                let end = reader.source.len().saturating_sub(reader.sizes.base);
                Some((Self::Table { tree, names, end }, names.size > FEW_NAMES))
            }
        })
    }

    /// Returns a number that is greater than that of each link.
    pub(super) fn bound(self) -> u64 {
        match self {
            Self::Dense { .. } => 1 << (8 * ID - 4),
            Self::Table { end, .. } => end,
        }
    }

    /// Returns the number of the link with a name.
    pub(super) fn find(self, reader: &Reader<'_>, name: &[u8]) -> Result<Option<u64>> {
        let mut found = None;
        match self {
            Self::Dense { tree, heap } => {
                let sum = lookup3(name);
                let compare = |mut record: Structure<'_>| Ok(record.u32()?.cmp(&sum));
                let mut numbers = Vec::new();
                btree2::search(reader, tree, &[5], &compare, &mut |_, mut record| {
                    record.skip(4)?;
                    reader.memory.reserve(2 * size_of::<u64>() as u64)?;
                    numbers.push(number_of(&id_of(&record)?));
                    Ok(())
                })?;
                let mut heap = Heap::open(reader, heap)?;
                for number in numbers {
                    if one(reader, &mut heap, number)?.nth(0).is_some_and(|link| *link.name == *name) {
                        found = Some(number);
                    }
                }
            }
            Self::Table { tree, names, .. } => {
                let choose = |keys: &btree1::Keys<'_>| {
                    let from = first_child(reader, names, keys, name)?;
                    Ok(from..(from + 1).min(keys.children))
                };
                let length = reader.sizes.length.into();
                btree1::search(reader, tree, btree1::Kind::Group, length, &choose, &mut |_, at| {
                    each_entry(reader, at, &mut |place, entry| {
                        if names.get(reader, entry.name)? == name {
                            found = Some(place);
                        }
                        Ok(())
                    })?;
                    Ok(ControlFlow::Continue(()))
                })?;
            }
        }
        Ok(found)
    }

    /// Returns the link with a number as the only one.
    pub(super) fn get(self, reader: &Reader<'_>, number: u64) -> Result<Links> {
        match self {
            Self::Dense { heap, .. } => one(reader, &mut Heap::open(reader, heap)?, number),
            Self::Table { names, .. } => {
                let entry = entry_at(reader, number)?;
                let mut link = Links::new();
                link.add_entry(reader, names, number, &entry, &names.get(reader, entry.name)?)?;
                Ok(link)
            }
        }
    }

    /// Returns the position at which the page with a position begins. `None` if a page may begin anywhere.
    pub(super) fn page_start(self, position: u64) -> Option<u64> {
        match self {
            Self::Dense { .. } => Some(position - position % page_size(position)),
            Self::Table { .. } => None,
        }
    }

    /// Returns the page that begins at a position; 0 is that of the first link. Fails if the links are not in the order
    /// of the index, because listing them might never end, and look-ups would not find them.
    pub(super) fn page(self, reader: &Reader<'_>, from: u64) -> Result<Page> {
        match self {
            Self::Dense { tree, heap } => self.dense_page(reader, tree, heap, from),
            Self::Table { tree, names, .. } => self.table_page(reader, tree, names, from),
        }
    }

    fn dense_page(self, reader: &Reader<'_>, tree: Place, heap_at: Place, from: u64) -> Result<Page> {
        /// Memory for a link that is being sorted.
        const SORTED: u64 = 2 * (size_of::<(u32, [u8; ID])>() + size_of::<(u32, u32)>()) as u64;
        let until = from.saturating_add(page_size(from));
        let (mut found, mut first, mut last_sum) = (Vec::new(), None, 0);
        // With the one before, for the order at the start of the page.
        let all = btree2::range(reader, tree, &[5], from.saturating_sub(1)..until, &mut |mut record| {
            reader.memory.reserve(SORTED)?;
            let sum = record.u32()?;
            if sum < last_sum {
                return Err(record.damaged("an index of names that is not in the order of their hashes"));
            }
            last_sum = sum;
            let id = id_of(&record)?;
            first.get_or_insert(number_of(&id));
            found.push((sum, id));
            Ok(())
        })?;
        // In the order of the heap, so that each block is read once.
        found.sort_unstable_by_key(|(_, id)| in_heap(id));
        let mut links = Links::many(self);
        links.reserve(reader, found.len())?;
        let mut heap = Heap::open(reader, heap_at)?;
        let mut order = Vec::with_capacity(found.len());
        for (place, (sum, id)) in (0..).zip(&found) {
            let message = heap.object(id)?;
            let name = links.add_message(reader, message.structure(reader), number_of(id))?;
            if lookup3(name) != *sum {
                return Err(message.structure(reader).damaged("a link whose name has another hash in the index"));
            }
            order.push((*sum, place));
        }
        links.arrange(reader, heap_at, order)?;
        let next = (until < all).then_some(until);
        if from > 0 {
            if links.nth(0).map(|link| link.number) != first {
                return Err(reader.damaged(tree, "an index of names with equal hashes that is not in their order"));
            }
            links.remove_first();
        }
        Ok(Page { links, next, first: Some(from) })
    }

    fn table_page(self, reader: &Reader<'_>, tree: Place, names: Text, from: u64) -> Result<Page> {
        let least = match from {
            0 => Vec::new(),
            at => names.get(reader, entry_at(reader, at)?.name)?,
        };
        let choose = |keys: &btree1::Keys<'_>| Ok(first_child(reader, names, keys, &least)?..keys.children);
        let (mut links, mut next) = (Links::many(self), None);
        let mut last: Option<Vec<u8>> = None;
        let length = reader.sizes.length.into();
        btree1::search(reader, tree, btree1::Kind::Group, length, &choose, &mut |_, at| {
            each_entry(reader, at, &mut |place, entry| {
                if next.is_some() {
                    return Ok(());
                }
                let name = names.get(reader, entry.name)?;
                if last.as_ref().is_some_and(|last| *last >= name) {
                    return Err(reader.damaged(place, "a symbol table that is not in the order of its names"));
                }
                if name >= least {
                    match links.len() < TABLE_PAGE {
                        true => links.add_entry(reader, names, place, &entry, &name)?,
                        false => next = Some(place),
                    }
                }
                last = Some(name);
                Ok(())
            })?;
            Ok(if next.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(Page { links, next, first: None })
    }
}

/// Returns the number of dense links of the page with a position.
fn page_size(position: u64) -> u64 {
    match position {
        ..FIRST_PAGE => FIRST_PAGE,
        _ => (1 << position.ilog2()).min(LARGEST_PAGE),
    }
}

/// Returns the first child of a node that may have names from this one on: a child has the names after the key before it,
/// up to the key after it.
fn first_child(reader: &Reader<'_>, names: Text, keys: &btree1::Keys<'_>, name: &[u8]) -> Result<usize> {
    let (mut from, mut to) = (0, keys.children);
    while from < to {
        let middle = usize::midpoint(from, to);
        let key = keys.get(middle + 1)?.length()?;
        match names.get(reader, key)?.as_slice().cmp(name) {
            Ordering::Less => from = middle + 1,
            Ordering::Equal | Ordering::Greater => to = middle,
        }
    }
    Ok(from)
}

/// Reads the link with a number in a heap as the only one.
fn one(reader: &Reader<'_>, heap: &mut Heap<'_, '_>, number: u64) -> Result<Links> {
    let mut link = Links::new();
    link.add_message(reader, heap.object(&id_with(number))?.structure(reader), number)?;
    Ok(link)
}

/// Returns the number of a link by its ID: where it is in the heap, and the kind of its object.
fn number_of(id: &[u8; ID]) -> u64 {
    let rest = id.iter().skip(1).rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    rest << 4 | u64::from(id[0] >> 4)
}

/// Returns the ID of the link with a number.
fn id_with(number: u64) -> [u8; ID] {
    let mut id = [0; ID];
    let (kind, rest) = (number.to_le_bytes()[0] & 0x0f, (number >> 4).to_le_bytes());
    for (byte, value) in id.iter_mut().zip([kind << 4].into_iter().chain(rest)) {
        *byte = value;
    }
    id
}

/// Returns the ID at the end of a record.
pub(super) fn id_of(record: &Structure<'_>) -> Result<[u8; ID]> {
    record.rest().first_chunk().copied().ok_or_else(|| record.damaged("a link without an ID"))
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, fs, path::Path};

    use super::*;
    use crate::{
        format::hdf5::{Link, Object, Target, parse},
        source::Unlimited,
    };

    /// Returns all links of pages.
    fn listed(many: &Links, reader: &Reader<'_>) -> Result<Vec<Link<'static>>> {
        let (mut all, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next {
            let page = many.page(reader, from)?;
            for place in 0..page.links.len() {
                let position = page.position(place);
                let again = many.page(reader, many.page_start(position).unwrap_or(position))?;
                let link = page.links.nth(place).unwrap().into_owned();
                assert_eq!(again.links.nth(again.place(position)).unwrap(), link);
                all.push(link);
            }
            next = page.next;
        }
        Ok(all)
    }

    #[test]
    fn an_index_finds_each_link_of_the_golden_files() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/hdf5");
        let (mut dense, mut tables) = (0, 0);
        for entry in fs::read_dir(golden).unwrap() {
            let path = entry.unwrap().path();
            let Ok(bytes) = fs::read(&path) else { continue };
            let Ok(superblock) = parse(&bytes, None, &Unlimited) else { continue };
            let reader = superblock.reader(&bytes, &Unlimited);
            let (mut next, mut seen) = (vec![superblock.root], HashSet::new());
            while let Some(at) = next.pop().filter(|_| next.len() < 10_000) {
                let Some(stored) = Object::read(&reader, at).ok().and_then(|object| object.links()) else { continue };
                let (true, Ok(all)) = (seen.insert(at), Links::open(&reader, at, stored)) else { continue };
                assert!(!all.are_many());
                next.extend(all.objects(0..all.len()));
                next.extend(all.iter().filter(|link| link.is_group).filter_map(|link| match link.target {
                    Target::Hard(at) => Some(at),
                    _ => None,
                }));
                let Some((index, false)) = LinkIndex::stored(&reader, stored).unwrap() else { continue };
                let many = Links::many(index);
                let count = if matches!(stored, LinksAt::Dense(..)) { &mut dense } else { &mut tables };
                let mut numbers = HashSet::new();
                for link in all.iter() {
                    let number = many.find(&reader, &link.name).unwrap().unwrap();
                    assert!(number < many.bound() && numbers.insert(number));
                    let found = many.get(&reader, number).unwrap().unwrap();
                    assert_eq!(found, Link { number, ..link.clone() }, "{}", path.display());
                    let missing = [&*link.name, b"-"].concat();
                    assert_eq!(many.find(&reader, &missing).unwrap(), None);
                    *count += 1;
                }
                let pages = listed(&many, &reader).unwrap();
                let mut names: Vec<Vec<u8>> = all.iter().map(|link| link.name.to_vec()).collect();
                if let LinksAt::Dense(..) = stored {
                    names.sort_by_key(|name| (lookup3(name), name.clone()));
                }
                assert!(pages.iter().map(|link| &*link.name).eq(&names), "{}", path.display());
                for link in pages {
                    assert_eq!(many.find(&reader, &link.name).unwrap(), Some(link.number));
                }
            }
        }
        println!("{dense} dense links, {tables} in symbol tables");
        assert!(dense > 8 && tables > 100);
    }

    /// Returns the links of the first group of the file that has an index of a kind.
    fn first_index(bytes: &[u8], is_wanted: fn(&LinkIndex) -> bool) -> Option<Links> {
        let superblock = parse(&bytes.to_vec(), None, &Unlimited).ok()?;
        let bytes = bytes.to_vec();
        let reader = superblock.reader(&bytes, &Unlimited);
        let mut next = vec![superblock.root];
        while let Some(at) = next.pop() {
            let Some(stored) = Object::read(&reader, at).ok().and_then(|object| object.links()) else { continue };
            if let Some((index, _)) = LinkIndex::stored(&reader, stored).ok()?.filter(|(index, _)| is_wanted(index)) {
                return Some(Links::many(index));
            }
            next.extend(Links::open(&reader, at, stored).ok()?.objects(0..1000));
        }
        None
    }

    #[test]
    fn links_that_are_not_in_the_order_of_their_index_are_damage() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/hdf5");
        let find = |bytes: &[u8], signature: &[u8]| bytes.windows(4).position(|four| four == signature);
        let (mut dense, mut tables) = (0, 0);
        for entry in fs::read_dir(golden).unwrap() {
            let Ok(bytes) = fs::read(entry.unwrap().path()) else { continue };
            let leaf = bytes.windows(6).position(|six| six == b"BTLF\0\x05");
            if let (Some(leaf), Some(many)) =
                (leaf, first_index(&bytes, |index| matches!(index, LinkIndex::Dense { .. })))
            {
                let reader = parse(&bytes, None, &Unlimited).unwrap();
                let reader = reader.reader(&bytes, &Unlimited);
                let count = listed(&many, &reader).unwrap().len();
                let (start, end) = (leaf + 6, leaf + 6 + 11 * count);
                // Only if the leaf is that of the group, and the root.
                if bytes.get(end..end + 4) != Some(&lookup3(&bytes[leaf..end]).to_le_bytes()) {
                    continue;
                }
                let changed = |change: &dyn Fn(&mut [u8])| {
                    let mut changed = bytes.clone();
                    change(&mut changed[start..end]);
                    let sum = lookup3(&changed[leaf..end]).to_le_bytes();
                    changed[end..end + 4].copy_from_slice(&sum);
                    let superblock = parse(&changed, None, &Unlimited).unwrap();
                    listed(&many, &superblock.reader(&changed, &Unlimited))
                        .map(|all| all.len())
                        .map_err(|e| e.to_string())
                };
                assert_eq!(changed(&|_| ()), Ok(count));
                let swapped = changed(&|records| (0..11).for_each(|at| records.swap(at, at + 11))).unwrap_err();
                assert!(swapped.contains("order of their hashes"), "{swapped}");
                let twice = changed(&|records| records.copy_within(0..11, 11)).unwrap_err();
                assert!(twice.contains("two links of the name"), "{twice}");
                let other = changed(&|records| records[0] ^= 1).unwrap_err();
                assert!(other.contains("another hash"), "{other}");
                dense += 1;
            }
            if let (Some(node), Some(many)) =
                (find(&bytes, b"SNOD"), first_index(&bytes, |index| matches!(index, LinkIndex::Table { .. })))
                && u16::from_le_bytes([bytes[node + 6], bytes[node + 7]]) > 1
            {
                let mut changed = bytes.clone();
                (node + 8..node + 48).for_each(|at| changed.swap(at, at + 40));
                let superblock = parse(&changed, None, &Unlimited).unwrap();
                match listed(&many, &superblock.reader(&changed, &Unlimited)) {
                    Err(error) if error.to_string().contains("not in the order of its names") => tables += 1,
                    // The node is that of another group.
                    Ok(_) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
        assert!(dense > 0 && tables > 0, "{dense} {tables}");
    }

    #[test]
    fn pages_begin_at_fixed_positions() {
        let mut from = 0;
        while from < 1 << 18 {
            let size = page_size(from);
            assert!(
                (from..from + size).all(|position| page_size(position) == size && position - position % size == from)
            );
            from += size;
        }
    }

    #[test]
    fn ids_and_numbers_are_inverse() {
        for id in [[0, 1, 2, 3, 4, 5, 6], [0x10, 0xff, 0, 0, 0, 0, 0xff], [0; ID]] {
            assert_eq!(id_with(number_of(&id)), id);
        }
    }
}
