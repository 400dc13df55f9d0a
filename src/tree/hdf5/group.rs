//! Groups with their places in the tree.

use std::{ops::ControlFlow, sync::Arc};

use super::{
    node::{Place, ROOT_PLACE},
    store::{Damage, Described, Held, Paged, Store, fault},
};
use crate::{
    format::hdf5::{self, Kind, Link, Links, Object, Target},
    source::SourceError,
    tree::names,
    view::{Fault, ReadContext},
    wanted,
};

/// Most groups on the way from the root (section 7.3).
const DEPTH: u32 = 64;

/// The group that a place is in, and the number of its link; `None` for the root itself.
pub(super) type Located = (Arc<Group>, Option<u64>);

/// A group at its place.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) place: Place,
    /// The factor of the number of a link of this group in a place.
    weight: u128,
    /// Its header.
    pub(super) at: hdf5::Place,
    pub(super) depth: u32,
    links: Arc<Held<Links>>,
    /// Its parent, and the name of the link to it.
    pub(super) parent: Option<(Arc<Self>, Box<[u8]>)>,
}

/// Consecutive links of a group, in their order: all if they are few.
pub(super) struct Batch {
    found: Found,
    /// The place of the first link that was asked for.
    pub(super) from: usize,
    /// The position of the next batch, if there are more links.
    next: Option<u64>,
    /// The header of the group.
    at: hdf5::Place,
}

enum Found {
    Few(Arc<Held<Links>>),
    Many(Arc<Paged>),
}

impl Batch {
    /// Returns the links from a position on of the group at an address.
    fn of(
        store: &Store,
        context: &ReadContext,
        (at, links): (hdf5::Place, &Arc<Held<Links>>),
        position: u64,
    ) -> Result<Self, Fault> {
        let known = links.found.as_ref().map_err(Damage::fault)?;
        if !known.are_many() {
            let from = usize::try_from(position).unwrap_or(usize::MAX);
            return Ok(Self { at, found: Found::Few(links.clone()), from, next: None });
        }
        let paged = store.page(context, at, known, position)?;
        let (from, next) = (paged.page.place(position), paged.page.next);
        Ok(Self { at, found: Found::Many(paged), from, next })
    }

    /// Returns the position of the batch after this one, if there are more links. This one is then no longer kept.
    pub(super) fn finish(self, store: &Store, context: &ReadContext) -> Option<u64> {
        if self.next.is_some() {
            store.forget_page(context, self.at, self.position(0));
        }
        self.next
    }

    /// Returns the links. Those before the first one that was asked for are among them.
    pub(super) fn links(&self) -> &Links {
        static NONE: Links = Links::new();
        match &self.found {
            Found::Few(links) => links.found.as_ref().unwrap_or(&NONE),
            Found::Many(paged) => &paged.page.links,
        }
    }

    /// Returns the position of the link at a place.
    pub(super) fn position(&self, place: usize) -> u64 {
        match &self.found {
            Found::Few(_) => place as u64,
            Found::Many(paged) => paged.page.position(place),
        }
    }
}

/// Passes the links of the group at an address to `each` in their order, until it breaks.
pub(super) fn each_link(
    store: &Store,
    context: &ReadContext,
    links: (hdf5::Place, &Arc<Held<Links>>),
    each: &mut dyn FnMut(&Link<'_>) -> Result<ControlFlow<()>, Fault>,
) -> Result<(), Fault> {
    let mut next = Some(0);
    while let Some(position) = next {
        let batch = Batch::of(store, context, links, position)?;
        for link in batch.links().iter() {
            wanted::check().map_err(SourceError::from)?;
            if each(&link)?.is_break() {
                return Ok(());
            }
        }
        next = batch.finish(store, context);
    }
    Ok(())
}

/// What a hard link leads to.
#[derive(Debug, Clone)]
pub(super) enum Hard {
    /// A group on the way to the link, this many levels above the link's own group.
    Ancestor(u32),
    /// Another object.
    Object(hdf5::Place, Arc<Held<Described>>),
}

impl Group {
    /// Returns the root.
    pub(super) fn root(store: &Store, context: &ReadContext) -> Result<Arc<Self>, Fault> {
        let at = store.superblock.root;
        let links = store.links(context, at)?;
        Ok(Arc::new(Self { place: ROOT_PLACE, weight: 1, at, depth: 0, links, parent: None }))
    }

    /// Returns its links; where their index is if they are many.
    pub(super) fn links(&self) -> Result<&Links, Fault> {
        if self.depth > DEPTH {
            return Err(fault(0, "there are more than 64 groups on the way here"));
        }
        self.links.found.as_ref().map_err(Damage::fault)
    }

    /// Returns the links from a position on; 0 is that of the first.
    pub(super) fn batch(&self, store: &Store, context: &ReadContext, position: u64) -> Result<Batch, Fault> {
        self.links()?;
        Batch::of(store, context, (self.at, &self.links), position)
    }

    /// Passes its links to `each` in their order, until it breaks.
    pub(super) fn each(
        &self,
        store: &Store,
        context: &ReadContext,
        each: &mut dyn FnMut(&Link<'_>) -> Result<ControlFlow<()>, Fault>,
    ) -> Result<(), Fault> {
        self.links()?;
        each_link(store, context, (self.at, &self.links), each)
    }

    /// Returns the link with a number.
    pub(super) fn link(&self, store: &Store, context: &ReadContext, number: u64) -> Result<Option<Link<'_>>, Fault> {
        let links = self.links()?;
        match links.are_many() {
            true => store.reading(context, |reader| links.get(reader, number)),
            false => Ok(usize::try_from(number).ok().and_then(|place| links.nth(place))),
        }
    }

    /// Returns the number of the link with a name.
    pub(super) fn find(&self, store: &Store, context: &ReadContext, name: &[u8]) -> Result<Option<u64>, Fault> {
        let links = self.links()?;
        store.reading(context, |reader| links.find(reader, name))
    }

    /// Returns the weight of the groups in it.
    fn inner_weight(&self) -> Option<u128> {
        let count = u128::from(self.links.found.as_ref().ok()?.bound()) + 1;
        self.weight.checked_mul(count)
    }

    /// Returns the place of a link.
    pub(super) fn child_place(&self, number: u64) -> Result<Place, Fault> {
        let place = self.place.child(self.weight, number);
        place.ok_or_else(|| fault(0, "there are too many groups on the way here"))
    }

    /// Returns the name of its own link; that of the root is empty.
    pub(super) fn name(&self) -> &[u8] {
        self.parent.as_ref().map_or(b"", |(_, name)| name)
    }

    /// Returns the groups from this one to the root.
    pub(super) fn ancestors(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Self>> {
        std::iter::successors(Some(self), |group| group.parent.as_ref().map(|(parent, _)| parent))
    }

    /// Returns how many levels above it the target of a hard link is, if that is a group on the way to it.
    pub(super) fn ancestor(self: &Arc<Self>, at: hdf5::Place) -> Option<u32> {
        (0..).zip(self.ancestors()).find_map(|(levels, group)| (group.at == at).then_some(levels))
    }

    /// Returns the target of a hard link in it.
    pub(super) fn hard(self: &Arc<Self>, store: &Store, context: &ReadContext, at: hdf5::Place) -> Result<Hard, Fault> {
        match self.ancestor(at) {
            Some(levels) => Ok(Hard::Ancestor(levels)),
            None => Ok(Hard::Object(at, store.object(context, at)?)),
        }
    }

    /// Returns the group that a link in it leads to directly; `None` if the target is not a group, or is an ancestor.
    pub(super) fn child(
        self: &Arc<Self>,
        store: &Store,
        context: &ReadContext,
        link: &Link<'_>,
    ) -> Result<Option<Arc<Self>>, Fault> {
        let Target::Hard(at) = link.target else { return Ok(None) };
        let Hard::Object(at, object) = self.hard(store, context, at)? else { return Ok(None) };
        if !matches!(&object.found, Ok(Described { object: Object { kind: Kind::Group(_), .. }, .. })) {
            return Ok(None);
        }
        let place = self.child_place(link.number)?;
        let weight = self.inner_weight().ok_or_else(|| fault(0, "there are too many groups on the way here"))?;
        let links = store.links(context, at)?;
        let parent = Some((self.clone(), Box::from(&*link.name)));
        Ok(Some(Arc::new(Self { place, weight, at, depth: self.depth + 1, links, parent })))
    }

    /// As [`Self::child`], for a link that is shown as a folder. What its link says to be a group is shown as one before it
    /// is read; if it is none, or damaged, that is a failure.
    pub(super) fn shown_child(
        self: &Arc<Self>,
        store: &Store,
        context: &ReadContext,
        link: &Link<'_>,
    ) -> Result<Option<Arc<Self>>, Fault> {
        let found = self.child(store, context, link)?;
        match link.target {
            Target::Hard(at) if found.is_none() && link.is_group && self.ancestor(at).is_none() => {
                Err(match &store.object(context, at)?.found {
                    Err(damage) => damage.fault(),
                    Ok(_) => {
                        let place = store.superblock.sizes.base.saturating_add(at);
                        fault(place, "an object that is no group, as its link says")
                    }
                })
            }
            _ => Ok(found),
        }
    }

    /// Returns the path of its folder below the container.
    pub(super) fn path(self: &Arc<Self>) -> String {
        let mut parts = Vec::new();
        for group in self.ancestors() {
            if let Some((_, name)) = &group.parent {
                parts.push(names::folder(name, &names::RESERVED, 1));
            }
        }
        parts.reverse();
        parts.join("/")
    }

    /// Returns the group or object at a place: its parent, and the number of its link. For the root, returns the root
    /// without a number. Returns `None` if nothing is there.
    pub(super) fn locate(
        root: &Arc<Self>,
        store: &Store,
        context: &ReadContext,
        place: Place,
    ) -> Result<Option<Located>, Fault> {
        let (mut group, mut rest) = (root.clone(), place.0);
        if rest == 0 {
            return Ok(Some((group, None)));
        }
        loop {
            let count = u128::from(group.links()?.bound()) + 1;
            let number = rest % count;
            rest /= count;
            let Some(number) = number.checked_sub(1) else { return Ok(None) };
            let number = number as u64;
            if rest == 0 {
                return Ok(Some((group, Some(number))));
            }
            let child = match group.link(store, context, number)? {
                Some(link) => group.child(store, context, &link)?,
                None => None,
            };
            let Some(child) = child else { return Ok(None) };
            group = child;
        }
    }
}
