//! A toy format of very many nodes: what a container needs whose tree is computed, and never in memory.

use std::{
    ops::{ControlFlow, Range},
    sync::Arc,
};

use shardfs::{
    cache::{BlockError, Buffer},
    format::{Class, DType, FormatError},
    source::{Memory, Source},
    tree::{
        Child, Container, DESCRIPTION, Format, ItemInfo, NodeId, NodeKind, Overview, ROOT, describe,
        overview::{Contents, Item},
    },
    view::{Array, Fault, ReadContext, View},
};

/// `FRST`, the number of groups and that of the arrays of each (u32), then an index: the names of the groups in order, each
/// filled up with NUL to 16 bytes. Array `a` of group `g` holds the two numbers.
pub(crate) static FOREST: Format = Format {
    name: "forest",
    title: "Forest",
    summary: "very many small arrays",
    suffixes: &[".forest"],
    recognise: |front| front.by_magic(b"FRST", HEAD),
    probe: |_, _, _| Ok(()),
    open: |reader, _, _| {
        let head = reader.source.read(0..HEAD)?;
        let number = |at: usize| u64::from(u32::from_le_bytes(head[at..at + 4].try_into().unwrap()));
        let forest = Forest { groups: number(4), arrays: number(8) };
        match HEAD + NAME * forest.groups <= reader.source.len() && forest.arrays > 0 {
            true => Ok(Arc::new(forest)),
            false => Err(FormatError::refused(Class::Truncated, "an index that is not there")),
        }
    },
    ..Format::DEFAULT
};

pub(crate) const HEAD: u64 = 12;
pub(crate) const NAME: u64 = 16;

/// Names of the index that are read at once.
pub(crate) const AT_ONCE: u64 = 256;

/// `container.json`. All other nodes are the number of their group, from 1, and that of the array, from 1, above it.
const DESCRIBED: NodeId = NodeId(1 << 96);

#[derive(Debug)]
struct Forest {
    groups: u64,
    arrays: u64,
}

impl Forest {
    fn place(node: NodeId) -> (Option<u64>, Option<u64>) {
        ((node.0 as u64).checked_sub(1), ((node.0 >> 64) as u64).checked_sub(1))
    }

    fn node(group: u64, array: Option<u64>) -> NodeId {
        NodeId(u128::from(group + 1) | u128::from(array.map_or(0, |array| array + 1)) << 64)
    }

    /// The names of some groups, which are in order.
    fn names(&self, source: &dyn Source, groups: Range<u64>) -> Result<Vec<String>, Fault> {
        // With the one before, which must be less.
        let first = groups.start.saturating_sub(1);
        let bytes = source.read(HEAD + first * NAME..HEAD + groups.end * NAME)?;
        let name = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
        let mut names: Vec<_> = bytes.chunks(NAME as usize).map(name).collect();
        let is_name = |name: &String| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !names.iter().all(is_name) || names.windows(2).any(|pair| pair[0] >= pair[1]) {
            let error = Arc::new(BlockError::Refused("an index that is not in order".into()));
            return Err(Fault { block: None, offset: HEAD + first * NAME, error });
        }
        Ok(names.split_off((groups.start - first) as usize))
    }

    /// The first so many arrays in order: their paths.
    fn first(&self, source: &dyn Source, count: u64) -> Result<Vec<(String, ItemInfo)>, Fault> {
        let groups = self.names(source, 0..count.div_ceil(self.arrays).min(self.groups))?;
        let arrays = |(number, group): (usize, String)| {
            (0..self.arrays).map(move |array| (format!("{group}/{array}.npy"), values(number as u64, array).into()))
        };
        Ok(groups.into_iter().enumerate().flat_map(arrays).take(count as usize).collect())
    }
}

fn values(group: u64, array: u64) -> Array {
    let bytes: Vec<u8> = [group as u32, array as u32].into_iter().flat_map(u32::to_le_bytes).collect();
    Array::new(DType::U32, [2], View::inline(bytes))
}

impl Container for Forest {
    fn lookup(&self, reader: &ReadContext, folder: NodeId, name: &str) -> Result<Option<NodeId>, Fault> {
        if let (Some(group), None) = Self::place(folder) {
            let array = name.strip_suffix(".npy").and_then(|number| number.parse().ok());
            let array = array.filter(|array| *array < self.arrays && format!("{array}.npy") == name);
            return Ok(array.map(|array| Self::node(group, Some(array))));
        }
        if name == DESCRIPTION {
            return Ok(Some(DESCRIBED));
        }
        let (mut from, mut to) = (0, self.groups);
        while from < to {
            let middle = from.midpoint(to);
            match self.names(&*reader.source, middle..middle + 1)?[0].as_str().cmp(name) {
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Equal => return Ok(Some(Self::node(middle, None))),
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        Ok(None)
    }

    fn list(
        &self,
        reader: &ReadContext,
        folder: NodeId,
        from: u64,
        each: &mut dyn FnMut(Child<'_>) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        if let (Some(group), None) = Self::place(folder) {
            for array in from..self.arrays {
                let (name, node) = (format!("{array}.npy"), Self::node(group, Some(array)));
                if each(Child { next: array + 1, name: &name, node, is_folder: false }).is_break() {
                    break;
                }
            }
            return Ok(());
        }
        for start in (from..self.groups).step_by(AT_ONCE as usize) {
            let names = self.names(&*reader.source, start..(start + AT_ONCE).min(self.groups))?;
            for (group, name) in (start..).zip(names) {
                let node = Self::node(group, None);
                if each(Child { next: group + 1, name: &name, node, is_folder: true }).is_break() {
                    return Ok(());
                }
            }
        }
        if from <= self.groups {
            let _ = each(Child { next: self.groups + 1, name: DESCRIPTION, node: DESCRIBED, is_folder: false });
        }
        Ok(())
    }

    fn kind(&self, _: &ReadContext, node: NodeId) -> Result<Option<NodeKind>, Fault> {
        Ok(Some(match Self::place(node) {
            _ if node == DESCRIBED => NodeKind::File,
            (_, Some(_)) => NodeKind::File,
            (Some(_), None) => NodeKind::Folder { subfolders: Some(0) },
            (None, None) => NodeKind::Folder { subfolders: Some(self.groups as u32) },
        }))
    }

    fn parent(&self, _: &ReadContext, node: NodeId) -> Result<NodeId, Fault> {
        Ok(match Self::place(node) {
            (Some(group), Some(_)) => Self::node(group, None),
            _ => ROOT,
        })
    }

    fn path(&self, reader: &ReadContext, node: NodeId) -> Result<String, Fault> {
        let (Some(group), array) = Self::place(node) else {
            return Ok(if node == DESCRIBED { DESCRIPTION.into() } else { String::new() });
        };
        let name = self.names(&*reader.source, group..group + 1)?.remove(0);
        Ok(array.map_or_else(|| name.clone(), |array| format!("{name}/{array}.npy")))
    }

    fn array(&self, _: &ReadContext, file: NodeId) -> Result<Option<Array>, Fault> {
        Ok(match Self::place(file) {
            (Some(group), Some(array)) => Some(values(group, array)),
            _ => None,
        })
    }

    fn view(&self, reader: &ReadContext, file: NodeId) -> Result<View, Fault> {
        match self.array(reader, file)? {
            Some(array) => Ok(array.npy()),
            None => Ok(View::shared(self.description(reader)?)),
        }
    }

    fn description(&self, reader: &ReadContext) -> Result<Arc<Buffer>, Fault> {
        describe::kept(reader, 0, |memory| {
            memory.reserve(256 * shardfs::limits::DESCRIBED as u64)?;
            let items = self.first(&*reader.source, shardfs::limits::DESCRIBED as u64)?;
            let front = serde_json::Map::from_iter([("format".to_owned(), FOREST.name.into())]);
            let items = items
                .iter()
                .map(|(path, info)| describe::Item::of(path.as_bytes(), path.clone(), None, info.clone(), ()));
            describe::bounded(front, self.groups * self.arrays, items, &serde_json::Map::new(), memory)
        })
    }

    fn overview(&self, reader: &ReadContext) -> Result<Overview, Fault> {
        let items = self.first(&*reader.source, 100)?.into_iter();
        let items = items.map(|(path, info)| Item { path, info, ..Item::default() }).collect();
        let contents = Contents::Items { front: serde_json::Map::new(), items };
        Ok(Overview { format: FOREST.name, contents })
    }

    fn memory_usage(&self) -> usize {
        size_of::<Self>()
    }
}

pub(crate) fn name(group: u64) -> String {
    format!("tree{group:07}")
}

/// A file of so many groups and arrays.
pub(crate) fn file(groups: u64, arrays: u64) -> Vec<u8> {
    let mut file = b"FRST".to_vec();
    file.extend([groups as u32, arrays as u32].map(u32::to_le_bytes).concat());
    for group in 0..groups {
        let mut record = [0; NAME as usize];
        record[..11].copy_from_slice(name(group).as_bytes());
        file.extend(record);
    }
    file
}
