//! The walk over all objects of a file: breadth-first by hard links, each object once. It gives every object one path,
//! for references and for `container.json` (section 7.3).

use std::{
    hash::{BuildHasher, RandomState},
    ops::ControlFlow,
};

use hashbrown::HashTable;

use super::{
    group::each_link,
    store::{Damage, Described, Store, fault},
};
use crate::{
    cache::Reservation,
    format::hdf5::{Kind, Object, Place, Target},
    limits,
    source::Memory,
    tree::{memory::WorkingMemory, names},
    view::{Fault, ReadContext},
};

/// Most links that it follows.
const LINKS: usize = 1_000_000;

/// Number of links of a group whose objects are announced before the first of them is read.
const AHEAD: usize = 1024;

/// Most objects that stay in the cache as they are walked over.
const KEPT: usize = 1 << 16;

/// Most groups on the way from the root.
const DEPTH: u32 = 64;

/// An object that was met.
#[derive(Debug, Clone, Copy)]
pub(super) struct Met {
    pub(super) at: Place,
    /// The group in which it was met, by its number, and where its name there begins. It ends where the next one begins.
    parent: u32,
    name: u32,
}

/// A link whose target is not shown.
#[derive(Debug)]
pub(super) struct LeftOut {
    /// The path of the link.
    pub(super) name: Vec<u8>,
    /// The file and the path in it; `None` for a user-defined link.
    pub(super) target: Option<(Vec<u8>, Vec<u8>)>,
}

/// All objects of a file.
#[derive(Debug)]
pub(super) struct Walk {
    met: Vec<Met>,
    names: Vec<u8>,
    /// The numbers of the objects that were met, by address.
    by_address: HashTable<u32>,
    hasher: RandomState,
    /// Datasets, committed types, and objects that cannot be read, in the order in which they were met.
    items: Vec<u32>,
    /// External links and user-defined links.
    pub(super) outside: Vec<LeftOut>,
    /// Whether there are more links than the walk follows.
    is_cut: bool,
    _room: Option<Reservation>,
}

impl Walk {
    /// Walks over a file.
    pub(super) fn new(store: &Store, context: &ReadContext) -> Result<Self, Fault> {
        context.may_work()?;
        let memory = WorkingMemory::held(&context.cache);
        let mut walk = Self {
            met: Vec::new(),
            names: Vec::new(),
            by_address: HashTable::new(),
            hasher: RandomState::new(),
            items: Vec::new(),
            outside: Vec::new(),
            is_cut: false,
            _room: None,
        };
        walk.meet(&memory, store.superblock.root, 0, b"")?;
        let (mut next, mut followed, mut expected) = (0, 0, 0);
        // Objects from this one on are a level below.
        let (mut depth, mut level) = (0, 1);
        while let Some(&group) = walk.met.get(next) {
            let number = next as u32;
            if next == level {
                (depth, level) = (depth + 1, walk.met.len());
            }
            if next == expected {
                let ahead = walk.met.get(next..).unwrap_or_default().iter().take(AHEAD);
                expected += ahead.len();
                store.expect(context, ahead.map(|met| met.at));
            }
            next += 1;
            // Of very many objects, the cache keeps none.
            let are_few = walk.met.len() <= KEPT;
            let object = match are_few {
                true => store.object(context, group.at)?,
                false => store.object_once(context, group.at)?,
            };
            let Ok(Described { object: object @ Object { kind: Kind::Group(_), .. }, .. }) = &object.found else {
                walk.items.push(number);
                continue;
            };
            if depth > DEPTH {
                continue;
            }
            let (links, _room) = match are_few {
                true => (store.links(context, group.at)?, None),
                false => store.links_once(context, object)?,
            };
            let walked = each_link(store, context, (group.at, &links), &mut |link| {
                followed += 1;
                if followed > LINKS {
                    walk.is_cut = true;
                    return Ok(ControlFlow::Break(()));
                }
                let name = &*link.name;
                match &link.target {
                    Target::Hard(at) => walk.meet(&memory, *at, number, name)?,
                    Target::Soft(_) => {}
                    Target::External(file, path) => {
                        walk.leave_out(&memory, number, name, Some((file.to_vec(), path.to_vec())))?;
                    }
                    Target::User(_) => walk.leave_out(&memory, number, name, None)?,
                }
                Ok(ControlFlow::Continue(()))
            });
            match walked {
                Err(fault) if fault.error.is_damage() => {}
                walked => walked?,
            }
            if walk.is_cut {
                break;
            }
        }
        let usage = walk.memory_usage();
        walk._room = Some(memory.keep(usage as u64)?);
        Ok(walk)
    }

    fn meet(&mut self, memory: &dyn Memory, at: Place, parent: u32, name: &[u8]) -> Result<(), Fault> {
        if self.number_of(at).is_some() {
            return Ok(());
        }
        // Lists grow to twice their length, beside what they were.
        memory.reserve((3 * (size_of::<Met>() + name.len()) + 4 * size_of::<u32>()) as u64)?;
        let Ok(start) = u32::try_from(self.names.len()) else {
            return Err(fault(0, "names of more than 4 GiB"));
        };
        self.names.extend_from_slice(name);
        let number = self.met.len() as u32;
        self.met.push(Met { at, parent, name: start });
        let (met, hasher) = (&self.met, &self.hasher);
        let hash = |number: &u32| hasher.hash_one(met.get(*number as usize).map(|met| met.at));
        self.by_address.insert_unique(hash(&number), number, hash);
        Ok(())
    }

    /// Returns the number of the object at an address.
    fn number_of(&self, at: Place) -> Option<u32> {
        let is_it = |number: &u32| self.met.get(*number as usize).is_some_and(|met| met.at == at);
        self.by_address.find(self.hasher.hash_one(Some(at)), is_it).copied()
    }

    fn leave_out(
        &mut self,
        memory: &dyn Memory,
        parent: u32,
        name: &[u8],
        target: Option<(Vec<u8>, Vec<u8>)>,
    ) -> Result<(), Fault> {
        if self.outside.len() >= limits::DESCRIBED {
            return Ok(());
        }
        let mut path = self.path(parent);
        if path.len() > 1 {
            path.push(b'/');
        }
        path.extend(name);
        let texts = target.as_ref().map_or(0, |(file, path)| file.len() + path.len());
        memory.reserve((path.len() + texts + 128) as u64)?;
        self.outside.push(LeftOut { name: path, target });
        Ok(())
    }

    pub(super) fn memory_usage(&self) -> usize {
        let outside = |left: &LeftOut| {
            128 + left.name.len() + left.target.as_ref().map_or(0, |(file, path)| file.len() + path.len())
        };
        self.met.capacity() * size_of::<Met>()
            + self.names.capacity()
            + self.by_address.capacity() * 6
            + 4 * self.items.capacity()
            + self.outside.iter().map(outside).sum::<usize>()
    }

    /// Returns the names of the links to an object from the root on.
    fn parts(&self, number: u32) -> Vec<&[u8]> {
        let mut parts = Vec::new();
        let mut number = number;
        while let Some(met) = self.met.get(number as usize).filter(|_| number != 0) {
            let end = self.met.get(number as usize + 1).map_or(self.names.len(), |next| next.name as usize);
            parts.push(self.names.get(met.name as usize..end).unwrap_or_default());
            number = met.parent;
        }
        parts.reverse();
        parts
    }

    /// Returns the stored path of an object.
    pub(super) fn path(&self, number: u32) -> Vec<u8> {
        let parts = self.parts(number);
        if parts.is_empty() {
            return b"/".to_vec();
        }
        parts.into_iter().flat_map(|part| [b"/", part].concat()).collect()
    }

    /// Returns the path of the folder in which an object is shown, and the object's stored name.
    pub(super) fn place(&self, number: u32) -> (String, &[u8]) {
        let mut parts = self.parts(number);
        let last = parts.pop().unwrap_or_default();
        let folders: Vec<String> = parts.iter().map(|part| names::folder(part, &names::RESERVED, 1)).collect();
        (folders.join("/"), last)
    }

    /// Returns the stored path of the object at an address; `None` if there is none.
    pub(super) fn path_of(&self, at: Place) -> Result<Option<Vec<u8>>, Fault> {
        match self.number_of(at) {
            Some(number) => Ok(Some(self.path(number))),
            None if self.is_cut => Err(Damage::new(0, "an object behind the first 1,000,000 links").fault()),
            None => Ok(None),
        }
    }

    /// Returns the items: for each, its number in the walk and its address.
    pub(super) fn items(&self) -> impl Iterator<Item = (u32, Place)> + Clone + '_ {
        self.items.iter().filter_map(|number| Some((*number, self.met.get(*number as usize)?.at)))
    }
}
