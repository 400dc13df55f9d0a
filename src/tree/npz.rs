//! npz files: each member is a file (`docs/formats/npz.md` 5).

use std::{collections::HashMap, sync::Arc};

use serde_json::{Map, Value, json};

use super::{
    Content, Entry, ItemInfo, Table,
    describe::{self, Item},
    descriptor::{Format, keep},
    members::Members,
    overview::{self, Contents, Overview},
    paths::{Builder, NodeIndex, Paths, ROOT},
};
use crate::{
    cache::Buffer,
    format::{
        FormatError,
        npz::{self, SUFFIX},
        zip::Archive,
    },
    source::{Memory, SourceError, check_room},
    view::{Array, Fault, ReadContext, View},
};

/// npz, arrays that numpy saved together.
pub static NPZ: Format = Format {
    name: "npz",
    title: "NumPy",
    summary: "arrays that numpy saved together",
    suffixes: &[".npz"],
    recognise: npz::recognise,
    probe: |source, _, memory| keep(memory, npz::parse_within(source, memory)),
    open: |reader, _, memory| {
        let parsed = memory.parsed(|memory| npz::parse_within(&*reader.source, memory))?;
        Ok(Arc::new(open(parsed, memory)?))
    },
    fixtures: &["arrays.npz"],
    ..Format::DEFAULT
};

/// Bytes that a member takes in memory in addition to what the parser has reserved: its node, and the node's name.
const NODE_MEMORY: u64 = 400;

/// The members of an npz file.
pub(super) struct Npz {
    members: Arc<Members>,
    /// The node of each.
    nodes: Vec<NodeIndex>,
    front: Map<String, Value>,
}

/// Returns the tree of an npz file.
///
/// # Errors
/// `Source` if there is not enough memory.
fn open(archive: Archive, memory: &dyn Memory) -> Result<Table<Npz>, FormatError> {
    let names: u64 = archive.members.iter().map(|member| member.name.len() as u64).sum();
    let needed = archive.members.len() as u64 * NODE_MEMORY + 2 * names;
    memory.reserve(needed)?;
    check_room(needed, 1).map_err(SourceError::from)?;
    let members = Members::new(archive);
    let mut builder = Builder::default();
    let mut nodes = vec![ROOT; members.all().len()];
    let mut add = |number: u32, name: &[u8]| {
        let (folder, part) = builder.folders_of(ROOT, name.strip_suffix(SUFFIX).unwrap_or(name), &[]);
        nodes[number as usize] = builder.file(folder, part, ".npy", Entry::Of(number));
    };
    // If several members have the same name, the last is shown, as in numpy.
    let last: HashMap<&[u8], u32> = (0..).zip(members.all()).map(|(number, member)| (&*member.name, number)).collect();
    let is_last = |number: u32, member: &[u8]| last.get(member) == Some(&number);
    for visible in [true, false] {
        for (number, member) in (0..).zip(members.all()) {
            if is_last(number, &member.name) == visible {
                add(number, &member.name);
            }
        }
    }
    drop(last);
    let front = json!({"format": NPZ.name, "version": null});
    let front = if let Value::Object(front) = front { front } else { Map::new() };
    Ok(Table::new(builder, Npz { members, nodes, front }))
}

impl Content for Npz {
    type File = u32;

    /// Returns `None`: the type and shape of a member are only known when it is inflated.
    fn array(&self, _: u32) -> Option<Array> {
        None
    }

    fn view(&self, number: u32) -> View {
        self.members.view(number)
    }

    fn describe(
        &self,
        _: &ReadContext,
        paths: &Paths<Entry<u32>>,
        _: &[NodeIndex],
        memory: &dyn Memory,
    ) -> Result<Buffer, Fault> {
        let described = self.members.all().iter().zip(&self.nodes);
        let items = described.map(|(member, &node)| {
            let info = ItemInfo { stored_size: Some(member.stored_size), ..ItemInfo::default() };
            let item = Item::of(&member.name, paths.path(node), Some(member.size), info, ());
            item.with_names(None, member.codec_name()).with_checksum(Some("crc32"))
        });
        let count = self.nodes.len() as u64;
        describe::bounded(self.front.clone(), count, items, &Map::new(), memory)
    }

    fn overview(&self, paths: &Paths<Entry<u32>>) -> Overview {
        let items = (0..).zip(&self.nodes).map(|(number, &node)| overview::Item {
            path: paths.path(node),
            size: self.members.get(number).map(|member| member.size),
            info: self.item_info(number).unwrap_or_default(),
            ..overview::Item::default()
        });
        let contents = Contents::Items { front: self.front.clone(), items: items.collect() };
        Overview { format: NPZ.name, contents }
    }

    fn memory_usage(&self) -> usize {
        self.members.memory_usage() + size_of_val(&*self.nodes)
    }

    fn block_name(&self, block: u32) -> String {
        self.members.name(block)
    }

    fn item_info(&self, number: u32) -> Option<ItemInfo> {
        let member = self.members.get(number)?;
        let codec = Some(member.codec_name());
        Some(ItemInfo { codec, stored_size: Some(member.stored_size), ..ItemInfo::default() })
    }
}
