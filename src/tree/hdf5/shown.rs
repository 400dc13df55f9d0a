//! The files and folders that show a link of a group, and the link that a name means (section 7).

use std::{ops::ControlFlow, sync::Arc};

use super::{
    Hdf5,
    form::{Form, FormKind},
    group::{Batch, Group, Located},
    node::{Node, Part, Place},
    pictures::Pictures,
    soft::{self, Arrived, Outside},
    store::{Described, Held, fault},
};
use crate::{
    format::hdf5::{self, AttributesAt, Kind, Link, Target},
    limits,
    source::SourceError,
    tree::{DESCRIPTION, NodeId, attributes, names},
    view::{Fault, ReadContext},
    wanted,
};

/// What a link of a group is shown as.
#[derive(Debug, Clone)]
pub(super) enum Shown {
    /// A group.
    Group,
    /// A link to the group this many levels above its own group.
    Ancestor(u32),
    /// Files of an object.
    Object(Arc<Held<Described>>),
    /// Links to the parts of a soft link's target.
    Link(Arrived),
    /// Links to the parts of an object in another file.
    Outside(Arc<Outside>),
    /// Nothing.
    Nothing,
}

/// A file or folder that shows a link: what it is, and what follows the link's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) part: Part,
    /// The part of the object that a link leads to.
    pub(super) item: u64,
    /// The suffix of a file; `None` for a folder.
    pub(super) suffix: Option<&'static str>,
}

/// The item of a link that leads to an ancestor or nowhere.
pub(super) const WHOLE: u64 = 255;

/// Number of links of a group whose objects are announced before the first of them is read.
const AHEAD: usize = 256;

/// Positions in a group's folder of each link.
const PER_LINK: u64 = 16;

/// Suffixes of files. If one ends in another, the longer one comes first.
const SUFFIXES: [&str; 6] = [attributes::BESIDE, ".npy", ".jsonl", ".txt", ".bin", ".parquet"];

impl Piece {
    fn file(part: Part, suffix: &'static str) -> Self {
        Self { part, item: 0, suffix: Some(suffix) }
    }

    pub(super) fn folder(part: Part) -> Self {
        Self { part, item: 0, suffix: None }
    }

    /// Returns the link to it.
    fn link(self) -> Self {
        Self { part: Part::Link, item: self.part as u64, ..self }
    }

    /// Returns its name.
    pub(super) fn name(self, link: &[u8]) -> String {
        match self.suffix {
            Some(suffix) => names::file(link, suffix, 1),
            None => names::folder(link, &names::RESERVED, 1),
        }
    }
}

/// Returns the position in a group's folder after an entry of the link at a position in the group. Each link takes 16.
pub(super) fn after(link: u64, entry: usize) -> Result<u64, Fault> {
    let after = link.checked_add(1).and_then(|link| link.checked_mul(PER_LINK)?.checked_add(entry as u64 + 1));
    after.filter(|after| *after < 1 << 62).ok_or_else(|| fault(0, "a link too far behind in its file to be listed"))
}

/// Returns the position of a link in a group by that in the group's folder, and the number of its entries before.
pub(super) fn position(from: u64) -> (u64, usize) {
    match from.checked_sub(PER_LINK) {
        Some(after) => (after / PER_LINK, (from % PER_LINK) as usize),
        None => (0, 0),
    }
}

/// Returns whether an object has attributes.
pub(super) fn has_attributes(described: &Described) -> bool {
    described.object.attributes != AttributesAt::Nowhere
}

/// Returns the files and folders of a dataset.
fn dataset(form: &Form, has_pictures: bool) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut file = |part, suffix| pieces.push(Piece::file(part, suffix));
    let mut has_folder = has_pictures;
    match &form.kind {
        FormKind::Plain(plain) => {
            file(Part::Array, ".npy");
            if plain.texts.is_some() {
                file(Part::Lines, ".jsonl");
                has_folder = true;
            }
            if form.is_table {
                file(Part::Table, ".parquet");
            }
        }
        FormKind::Text(_) => file(Part::Text, ".txt"),
        FormKind::Texts => {
            file(Part::Lines, ".jsonl");
            has_folder = true;
        }
        FormKind::Sequence(_) => has_folder = true,
        FormKind::Rows => {
            file(Part::Lines, ".jsonl");
            if form.is_table {
                file(Part::Table, ".parquet");
            }
        }
        FormKind::Stored(_) | FormKind::Broken(_) | FormKind::Null => file(Part::Stored, ".bin"),
    }
    if has_folder {
        pieces.push(Piece::folder(Part::Folder));
    }
    pieces
}

impl Hdf5 {
    /// Returns how a link is shown.
    pub(super) fn shown(&self, context: &ReadContext, group: &Arc<Group>, link: &Link<'_>) -> Result<Shown, Fault> {
        self.shown_in(context, group, link, true)
    }

    /// Does the same. `is_kept` is whether the object stays in the cache.
    fn shown_in(
        &self,
        context: &ReadContext,
        group: &Arc<Group>,
        link: &Link<'_>,
        is_kept: bool,
    ) -> Result<Shown, Fault> {
        Ok(match &link.target {
            Target::Hard(at) => match group.ancestor(*at) {
                Some(levels) => Shown::Ancestor(levels),
                None if link.is_group => Shown::Group,
                None => {
                    let object =
                        if is_kept { self.store.object(context, *at) } else { self.store.object_once(context, *at) }?;
                    match &object.found {
                        Ok(Described { object: hdf5::Object { kind: Kind::Group(_), .. }, .. }) => Shown::Group,
                        _ => Shown::Object(object),
                    }
                }
            },
            Target::Soft(path) => Shown::Link(soft::follow(self, context, group, path)?),
            Target::External(file, path) => match soft::outside(self, context, file, path)? {
                Some(outside) => Shown::Outside(Arc::new(outside)),
                None => Shown::Nothing,
            },
            Target::User(_) => Shown::Nothing,
        })
    }

    /// Returns the pictures of a dataset.
    pub(super) fn pictures_of(
        &self,
        context: &ReadContext,
        group: &Arc<Group>,
        link: &Link<'_>,
        described: &Described,
    ) -> Result<Option<Pictures>, Fault> {
        let Some(form) = &described.form else { return Ok(None) };
        let pictures = Pictures::of(self, context, described, form, &link.name, group.name())?;
        Ok(pictures.filter(|pictures| pictures.count() <= limits::PICTURES))
    }

    /// Returns the files and folders that show a link.
    pub(super) fn pieces(
        &self,
        context: &ReadContext,
        group: &Arc<Group>,
        link: &Link<'_>,
    ) -> Result<Vec<Piece>, Fault> {
        self.pieces_shown(context, group, link, &self.shown(context, group, link)?)
    }

    fn pieces_shown(
        &self,
        context: &ReadContext,
        group: &Arc<Group>,
        link: &Link<'_>,
        shown: &Shown,
    ) -> Result<Vec<Piece>, Fault> {
        Ok(match shown {
            Shown::Group => vec![Piece::folder(Part::Group)],
            Shown::Ancestor(_) => vec![Piece { part: Part::Link, item: WHOLE, suffix: None }],
            Shown::Nothing => Vec::new(),
            Shown::Object(object) => self.pieces_of(context, group, link, object)?,
            Shown::Outside(outside) => outside.pieces.iter().map(|(piece, _)| piece.link()).collect(),
            Shown::Link(Arrived::Nowhere(_)) => vec![Piece { part: Part::Link, item: WHOLE, suffix: None }],
            Shown::Link(Arrived::Group(_)) => vec![Piece::folder(Part::Group).link()],
            Shown::Link(Arrived::Object(group, number)) => {
                let Some(link) = group.link(&self.store, context, *number)? else { return Ok(Vec::new()) };
                let pieces = self.pieces(context, group, &link)?;
                pieces.into_iter().map(Piece::link).collect()
            }
        })
    }

    fn pieces_of(
        &self,
        context: &ReadContext,
        group: &Arc<Group>,
        link: &Link<'_>,
        object: &Held<Described>,
    ) -> Result<Vec<Piece>, Fault> {
        let Ok(described) = &object.found else { return Ok(vec![Piece::file(Part::Stored, ".bin")]) };
        let mut pieces = match &described.form {
            Some(form) => {
                // Sequences always have a folder. Its pictures are found when it is listed.
                let has_pictures = !matches!(form.kind, FormKind::Sequence(_))
                    && self.pictures_of(context, group, link, described)?.is_some();
                dataset(form, has_pictures)
            }
            None => Vec::new(),
        };
        if has_attributes(described) {
            pieces.push(Piece::file(Part::Attributes, attributes::BESIDE));
        }
        Ok(pieces)
    }

    /// Returns the link and the part of it that a name in a group means.
    pub(super) fn find(
        &self,
        context: &ReadContext,
        group: &Arc<Group>,
        name: &str,
    ) -> Result<Option<(u64, Piece)>, Fault> {
        let stems = SUFFIXES.iter().filter_map(|suffix| name.strip_suffix(suffix)).chain([name]);
        for stem in stems {
            if let Some(number) = group.find(&self.store, context, &names::stored(stem))?
                && let Some(link) = group.link(&self.store, context, number)?
                && let Some(found) = self.piece_of_name(context, group, &link, name)?
            {
                return Ok(Some((number, found)));
            }
        }
        // The names of long ones end in a hash.
        if name.contains("%~") {
            let mut found = None;
            group.each(&self.store, context, &mut |link| {
                let is_long = 3 * link.name.len() + 64 > names::NAME_MAX;
                if is_long && let Some(piece) = self.piece_of_name(context, group, link, name)? {
                    found = Some((link.number, piece));
                    return Ok(ControlFlow::Break(()));
                }
                Ok(ControlFlow::Continue(()))
            })?;
            return Ok(found);
        }
        Ok(None)
    }

    fn piece_of_name(
        &self,
        context: &ReadContext,
        group: &Arc<Group>,
        link: &Link<'_>,
        name: &str,
    ) -> Result<Option<Piece>, Fault> {
        // Most names do not belong to the link. The object is not read for them.
        let suffixes = SUFFIXES.iter().map(|suffix| names::file(&link.name, suffix, 1));
        if !suffixes.chain([names::folder(&link.name, &names::RESERVED, 1)]).any(|known| known == name) {
            return Ok(None);
        }
        let pieces = self.pieces(context, group, link)?;
        Ok(pieces.into_iter().find(|piece| piece.name(&link.name) == name))
    }

    /// Returns the name of the folder of the large attributes of a link's object, or of the group itself. If a stored
    /// object has the name, the object keeps it.
    pub(super) fn arrays_folder(
        &self,
        context: &ReadContext,
        group: &Arc<Group>,
        link: Option<&Link<'_>>,
    ) -> Result<String, Fault> {
        let part = match link {
            None => attributes::ARRAYS_OF_GROUP.as_bytes().to_vec(),
            Some(link) => [&link.name, attributes::ARRAYS_BESIDE.as_bytes()].concat(),
        };
        for copy in 1..=u32::MAX {
            let name = names::folder(&part, &names::RESERVED, copy);
            if self.find(context, group, &name)?.is_none() {
                return Ok(name);
            }
        }
        Ok(String::new())
    }

    /// Returns the node of a large attributes' folder of this name in a group.
    fn find_arrays(&self, context: &ReadContext, group: &Arc<Group>, name: &str) -> Result<Option<Node>, Fault> {
        let base = name.rsplit_once("%_").map_or(name, |(base, _)| base);
        if base == attributes::ARRAYS_OF_GROUP
            && self.has_large(context, group.place)?
            && self.arrays_folder(context, group, None)? == name
        {
            return Ok(Some(Node::of(Part::LargeAttributes, group.place)));
        }
        if let Some(stem) = base.strip_suffix(attributes::ARRAYS_BESIDE) {
            let Some(number) = group.find(&self.store, context, &names::stored(stem))? else { return Ok(None) };
            let Some(link) = group.link(&self.store, context, number)? else { return Ok(None) };
            return self.arrays_of(context, group, &link, name);
        }
        let mut found = None;
        if names::is_shortened(name) {
            group.each(&self.store, context, &mut |link| {
                let part = [&link.name, attributes::ARRAYS_BESIDE.as_bytes()].concat();
                if 3 * part.len() > names::NAME_MAX
                    && names::common(&names::folder(&part, &[], 1)) == names::common(base)
                {
                    found = self.arrays_of(context, group, link, name)?;
                }
                Ok(if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
        }
        Ok(found)
    }

    /// Returns the folder of the large attributes of a link's object if it has this name.
    fn arrays_of(
        &self,
        context: &ReadContext,
        group: &Arc<Group>,
        link: &Link<'_>,
        name: &str,
    ) -> Result<Option<Node>, Fault> {
        let place = group.child_place(link.number)?;
        let is_it = matches!(self.shown(context, group, link)?, Shown::Object(..))
            && self.has_large(context, place)?
            && self.arrays_folder(context, group, Some(link))? == name;
        Ok(is_it.then(|| Node::of(Part::LargeAttributes, place)))
    }

    /// Returns the entry of a name in a group's folder.
    pub(super) fn lookup_in(
        &self,
        context: &ReadContext,
        group: &Arc<Group>,
        name: &str,
    ) -> Result<Option<NodeId>, Fault> {
        if name == attributes::OF_GROUP && self.group_has_attributes(context, group)? {
            return Ok(Node::of(Part::Attributes, group.place).pack());
        }
        if let Some((number, piece)) = self.find(context, group, name)? {
            return Ok(Node::item(piece.part, group.child_place(number)?, piece.item).pack());
        }
        Ok(self.find_arrays(context, group, name)?.and_then(Node::pack))
    }

    /// Returns whether a group has attributes.
    pub(super) fn group_has_attributes(&self, context: &ReadContext, group: &Group) -> Result<bool, Fault> {
        Ok(self.store.object(context, group.at)?.found.as_ref().is_ok_and(has_attributes))
    }

    /// Lists a group's folder.
    pub(super) fn list_group(
        &self,
        context: &ReadContext,
        group: &Arc<Group>,
        from: u64,
        each: &mut dyn FnMut(u64, &str, Node) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        group.links()?;
        if from < 1 && self.group_has_attributes(context, group)? {
            let node = Node::of(Part::Attributes, group.place);
            if each(1, attributes::OF_GROUP, node).is_break() {
                return Ok(());
            }
        }
        if from < 2 && self.has_large(context, group.place)? {
            let name = self.arrays_folder(context, group, None)?;
            if each(2, &name, Node::of(Part::LargeAttributes, group.place)).is_break() {
                return Ok(());
            }
        }
        if group.parent.is_none() && from < 8 {
            if from < 3 && each(3, DESCRIPTION, Node::of(Part::Description, group.place)).is_break() {
                return Ok(());
            }
            for (next, (name, node)) in (4..).zip(self.profile_nodes(context)?) {
                if from < next && each(next, &name, node).is_break() {
                    return Ok(());
                }
            }
        }
        let (first, mut skip) = position(from);
        let mut next = Some(first);
        while let Some(start) = next {
            let batch = group.batch(&self.store, context, start)?;
            if self.list_batch(context, group, &batch, (first, &mut skip), each)?.is_break() {
                return Ok(());
            }
            next = batch.finish(&self.store, context);
        }
        Ok(())
    }

    /// Lists the links of a batch. At the first position, entries are left out.
    fn list_batch(
        &self,
        context: &ReadContext,
        group: &Arc<Group>,
        batch: &Batch,
        (first, skip): (u64, &mut usize),
        each: &mut dyn FnMut(u64, &str, Node) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Fault> {
        let links = batch.links();
        // Of very many objects, a listing needs each only once.
        let is_kept = !group.links()?.are_many();
        for at in batch.from..links.len() {
            wanted::check().map_err(SourceError::from)?;
            if (at - batch.from).is_multiple_of(AHEAD) {
                self.store.expect(context, links.objects(at..at.saturating_add(AHEAD)));
            }
            let Some(link) = links.nth(at) else { break };
            let position = batch.position(at);
            let place = group.child_place(link.number)?;
            let shown = self.shown_in(context, group, &link, is_kept)?;
            let pieces = self.pieces_shown(context, group, &link, &shown)?;
            let skip = if position == first { std::mem::take(skip) } else { 0 };
            let count = pieces.len();
            for (at, piece) in pieces.into_iter().enumerate().skip(skip) {
                let node = Node::item(piece.part, place, piece.item);
                if each(after(position, at)?, &piece.name(&link.name), node).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            if let Shown::Object(object) = &shown
                && skip <= count
                && self.object_has_large(context, object)?
            {
                let name = self.arrays_folder(context, group, Some(&link))?;
                if each(after(position, count)?, &name, Node::of(Part::LargeAttributes, place)).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns the name of a node in its folder.
    pub(super) fn name_of(
        &self,
        context: &ReadContext,
        group: &Arc<Group>,
        number: Option<u64>,
        node: Node,
    ) -> Result<String, Fault> {
        let Some(number) = number else {
            return Ok(match node.part {
                Part::Attributes => attributes::OF_GROUP.into(),
                Part::LargeAttributes => self.arrays_folder(context, group, None)?,
                _ => String::new(),
            });
        };
        let Some(link) = group.link(&self.store, context, number)? else { return Ok(String::new()) };
        if node.part == Part::LargeAttributes {
            return self.arrays_folder(context, group, Some(&link));
        }
        let link = &link.name;
        let folder = || names::folder(link, &names::RESERVED, 1);
        let part = if node.part == Part::Link { Part::of(node.item) } else { Some(node.part) };
        Ok(match part {
            Some(Part::Array) => names::file(link, ".npy", 1),
            Some(Part::Lines) => names::file(link, ".jsonl", 1),
            Some(Part::Text) => names::file(link, ".txt", 1),
            Some(Part::Stored) => names::file(link, ".bin", 1),
            Some(Part::Table) => names::file(link, ".parquet", 1),
            Some(Part::Attributes) => names::file(link, attributes::BESIDE, 1),
            _ => folder(),
        })
    }

    /// Returns the group that a place is in, and the number of the link.
    pub(super) fn at(&self, context: &ReadContext, place: Place) -> Result<Option<Located>, Fault> {
        Group::locate(&self.root, &self.store, context, place)
    }
}
