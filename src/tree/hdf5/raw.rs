//! `.raw`: the chunks of datasets as they are stored, in folders like those of the groups (section 7.6).

use std::{ops::ControlFlow, sync::Arc};

use super::{
    Hdf5, chunks, elements,
    group::{Group, Hard},
    node::{Node, Part},
    shown,
    store::{Described, Held},
};
use crate::{
    format::hdf5::{Chunked, Dataset, Kind, Layout, Link, Object, Target},
    source::SourceError,
    tree::{NodeId, names},
    view::{
        Fault, ReadContext, View,
        grid::{chunk_name, parse_chunk_name},
    },
    wanted,
};

/// Returns the chunks of a dataset and its axes.
fn chunked(described: &Described) -> Option<(&Dataset, &Chunked, &[u64])> {
    let dataset = described.object.dataset()?;
    let Layout::Chunked(chunked) = &dataset.layout else { return None };
    let dims = dataset.space.dims.as_deref().filter(|dims| !dims.is_empty())?;
    (chunks::chunk_size(chunked).is_some()).then_some((dataset, chunked, dims))
}

/// Returns the place in the grid of the chunk with this number.
fn coordinates(chunked: &Chunked, dims: &[u64], mut number: u64) -> Vec<u64> {
    let mut at: Vec<u64> = (dims.iter().zip(&chunked.chunk).rev())
        .map(|(axis, chunk)| {
            let count = axis.div_ceil(*chunk).max(1);
            let here = number % count;
            number /= count;
            here
        })
        .collect();
    at.reverse();
    at
}

impl Hdf5 {
    /// Returns what a link is in `.raw`: the folder of a group, or that of a dataset in chunks.
    fn raw_part(&self, context: &ReadContext, group: &Arc<Group>, link: &Link<'_>) -> Result<Option<Part>, Fault> {
        let Target::Hard(at) = link.target else { return Ok(None) };
        let Hard::Object(at, object) = group.hard(&self.store, context, at)? else { return Ok(None) };
        Ok(match &object.found {
            Ok(Described { object: Object { kind: Kind::Group(_), .. }, .. }) => Some(Part::RawGroup),
            Ok(described) if chunked(described).is_some() => {
                self.store.chunks(context, at)?.found.is_ok().then_some(Part::RawDataset)
            }
            _ => None,
        })
    }

    /// Returns the dataset in chunks at a place.
    fn raw_dataset(&self, context: &ReadContext, node: Node) -> Result<Option<Arc<Held<Described>>>, Fault> {
        let object = self.dataset_at(context, node.place)?;
        Ok(object.filter(|object| object.found.as_ref().is_ok_and(|described| chunked(described).is_some())))
    }

    pub(super) fn lookup_raw(&self, context: &ReadContext, node: Node, name: &str) -> Result<Option<NodeId>, Fault> {
        if node.part == Part::RawGroup {
            let Some(group) = self.group_at(context, node.place)? else { return Ok(None) };
            let is_it = |link: &Link<'_>| names::folder(&link.name, &names::RESERVED, 1) == name;
            let found = match group.find(&self.store, context, &names::stored(name))? {
                Some(number) => group.link(&self.store, context, number)?.filter(is_it),
                None => None,
            };
            let mut number = found.map(|link| link.number);
            if number.is_none() && name.contains("%~") {
                group.each(&self.store, context, &mut |link| {
                    number = is_it(link).then_some(link.number);
                    Ok(if number.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
                })?;
            }
            let Some(number) = number else { return Ok(None) };
            let Some(link) = group.link(&self.store, context, number)? else { return Ok(None) };
            let Some(part) = self.raw_part(context, &group, &link)? else { return Ok(None) };
            return Ok(Node::of(part, group.child_place(number)?).pack());
        }
        let Some(object) = self.raw_dataset(context, node)? else { return Ok(None) };
        let Ok(described) = &object.found else { return Ok(None) };
        let Some((_, chunked, dims)) = chunked(described) else { return Ok(None) };
        let Some((at, is_stored)) = parse_chunk_name(name, dims.len()) else { return Ok(None) };
        let mut number = 0u64;
        for (at, (axis, chunk)) in at.iter().zip(dims.iter().zip(&chunked.chunk)) {
            let count = axis.div_ceil(*chunk);
            if *at >= count {
                return Ok(None);
            }
            number = number.saturating_mul(count).saturating_add(*at);
        }
        let table = self.store.chunks(context, described.object.at)?;
        let table = table.found.as_ref().map_err(super::refused)?;
        let Some(item) = table.find(number) else { return Ok(None) };
        let part = if is_stored { Part::RawStored } else { Part::RawChunk };
        Ok(Node::item(part, node.place, item as u64).pack())
    }

    pub(super) fn list_raw(
        &self,
        context: &ReadContext,
        node: Node,
        from: u64,
        each: &mut dyn FnMut(u64, &str, Node) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        if node.part == Part::RawGroup {
            let Some(group) = self.group_at(context, node.place)? else { return Ok(()) };
            let (first, skip) = shown::position(from);
            let mut next = Some(first);
            while let Some(start) = next {
                let batch = group.batch(&self.store, context, start)?;
                for at in batch.from..batch.links().len() {
                    wanted::check().map_err(SourceError::from)?;
                    let (Some(link), position) = (batch.links().nth(at), batch.position(at)) else { break };
                    if position == first && skip > 0 {
                        continue;
                    }
                    let Some(part) = self.raw_part(context, &group, &link)? else { continue };
                    let name = names::folder(&link.name, &names::RESERVED, 1);
                    let node = Node::of(part, group.child_place(link.number)?);
                    if each(shown::after(position, 0)?, &name, node).is_break() {
                        return Ok(());
                    }
                }
                next = batch.finish(&self.store, context);
            }
            return Ok(());
        }
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let Some(object) = self.raw_dataset(context, node)? else { return Ok(()) };
        let Ok(described) = &object.found else { return Ok(()) };
        let Some((_, chunked, dims)) = chunked(described) else { return Ok(()) };
        let table = self.store.chunks(context, described.object.at)?;
        let table = table.found.as_ref().map_err(super::refused)?;
        for position in from..2 * table.len() {
            let (item, is_stored) = (position / 2, position % 2 == 1);
            let Some((number, _)) = table.stored(item) else { break };
            let name = chunk_name(&coordinates(chunked, dims, number), is_stored);
            let part = if is_stored { Part::RawStored } else { Part::RawChunk };
            if each(position as u64 + 1, &name, Node::item(part, node.place, item as u64)).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Returns the name of a chunk's file.
    pub(super) fn raw_name(&self, context: &ReadContext, node: Node) -> Result<String, Fault> {
        let Some(object) = self.raw_dataset(context, node)? else { return Ok(String::new()) };
        let Ok(described) = &object.found else { return Ok(String::new()) };
        let Some((_, chunked, dims)) = chunked(described) else { return Ok(String::new()) };
        let table = self.store.chunks(context, described.object.at)?;
        let table = table.found.as_ref().map_err(super::refused)?;
        let Some((number, _)) = table.stored(node.item as usize) else { return Ok(String::new()) };
        Ok(chunk_name(&coordinates(chunked, dims, number), node.part == Part::RawStored))
    }

    /// Returns the bytes of a chunk.
    pub(super) fn raw_view(&self, context: &ReadContext, node: Node) -> Result<View, Fault> {
        let Some(object) = self.raw_dataset(context, node)? else { return Ok(View::default()) };
        let Ok(described) = &object.found else { return Ok(View::default()) };
        let Some((dataset, chunked, dims)) = chunked(described) else { return Ok(View::default()) };
        let table = self.store.chunks(context, described.object.at)?;
        let table = table.found.as_ref().map_err(super::refused)?;
        let Some((number, chunk)) = table.stored(node.item as usize) else { return Ok(View::default()) };
        let start = self.store.superblock.sizes.base.saturating_add(chunk.place);
        if node.part == Part::RawStored {
            return Ok(match start.checked_add(chunk.size).filter(|end| *end <= context.source.len()) {
                Some(end) => View::stored(start..end),
                None => {
                    let reason = format!("a chunk of {} bytes that is not in the file", chunk.size).into();
                    elements::Missing { place: start, reason }.view(chunk.size)
                }
            });
        }
        let (Some(form), at) = (&described.form, coordinates(chunked, dims, number)) else {
            return Ok(View::default());
        };
        let size = chunks::chunk_size(chunked).unwrap_or(1);
        let grid = elements::grid(&self.store, context, described.object.at, dataset, form)?;
        match grid.raw(context, &at) {
            Ok(view) => Ok(view.unwrap_or_default()),
            Err(fault) if fault.error.is_damage() => Ok(elements::Missing::of(&fault, size)),
            Err(fault) => Err(fault),
        }
    }
}
