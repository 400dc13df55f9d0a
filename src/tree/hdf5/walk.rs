//! The walk over all objects of a file: breadth-first by hard links, each object once. It gives every object one path,
//! for references and for `container.json` (section 7.3).

use std::collections::HashMap;

use super::store::{Damage, Described, Store, fault};
use crate::{
    cache::Reservation,
    format::hdf5::{Kind, Object, Place, Target},
    limits,
    source::{Memory, SourceError},
    tree::{memory::WorkingMemory, names},
    view::{Fault, ReadContext},
    wanted,
};

/// Most links that it follows.
const LINKS: usize = 1_000_000;

/// Number of links of a group whose objects are announced before the first of them is read.
const AHEAD: usize = 1024;

/// Most groups on the way from the root.
const DEPTH: u32 = 64;

/// An object that was met.
#[derive(Debug, Clone, Copy)]
pub(super) struct Met {
    pub(super) at: Place,
    /// The group in which it was met, by its number, and its name there.
    parent: u32,
    name: (u32, u32),
    depth: u32,
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
    by_address: HashMap<Place, u32>,
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
        let root = Met { at: store.superblock.root, parent: 0, name: (0, 0), depth: 0 };
        let mut walk = Self {
            met: vec![root],
            names: Vec::new(),
            by_address: HashMap::from([(root.at, 0)]),
            items: Vec::new(),
            outside: Vec::new(),
            is_cut: false,
            _room: None,
        };
        let (mut next, mut followed) = (0, 0);
        'walk: while let Some(&group) = walk.met.get(next) {
            let number = next as u32;
            next += 1;
            let object = store.object(context, group.at)?;
            if !matches!(&object.found, Ok(Described { object: Object { kind: Kind::Group(_), .. }, .. })) {
                walk.items.push(number);
                continue;
            }
            if group.depth > DEPTH {
                continue;
            }
            let links = store.all_links(context, group.at)?;
            let Ok(links) = &links.found else { continue };
            store.expect(context, links.objects(0..AHEAD));
            for link in links.iter() {
                let name = &*link.name;
                wanted::check().map_err(SourceError::from)?;
                followed += 1;
                if followed > LINKS {
                    walk.is_cut = true;
                    break 'walk;
                }
                match link.target {
                    Target::Hard(at) => walk.meet(&memory, at, number, name, group.depth + 1)?,
                    Target::Soft(_) => {}
                    Target::External(file, path) => {
                        walk.leave_out(&memory, number, name, Some((file.to_vec(), path.to_vec())))?;
                    }
                    Target::User(_) => walk.leave_out(&memory, number, name, None)?,
                }
            }
        }
        let usage = walk.memory_usage();
        walk._room = Some(memory.keep(usage as u64)?);
        Ok(walk)
    }

    fn meet(&mut self, memory: &dyn Memory, at: Place, parent: u32, name: &[u8], depth: u32) -> Result<(), Fault> {
        if self.by_address.contains_key(&at) {
            return Ok(());
        }
        memory.reserve((3 * size_of::<Met>() + 64 + 3 * name.len()) as u64)?;
        let start = self.names.len();
        let Ok(place) = u32::try_from(start + name.len()) else {
            return Err(fault(0, "names of more than 4 GiB"));
        };
        self.names.extend_from_slice(name);
        self.by_address.insert(at, self.met.len() as u32);
        self.met.push(Met { at, parent, name: (start as u32, place), depth });
        Ok(())
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
            + self.by_address.capacity() * 32
            + 4 * self.items.capacity()
            + self.outside.iter().map(outside).sum::<usize>()
    }

    /// Returns the names of the links to an object from the root on.
    fn parts(&self, number: u32) -> Vec<&[u8]> {
        let mut parts = Vec::new();
        let mut number = number;
        while let Some(met) = self.met.get(number as usize).filter(|_| number != 0) {
            parts.push(self.names.get(met.name.0 as usize..met.name.1 as usize).unwrap_or_default());
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
        match self.by_address.get(&at) {
            Some(number) => Ok(Some(self.path(*number))),
            None if self.is_cut => Err(Damage::new(0, "an object behind the first 1,000,000 links").fault()),
            None => Ok(None),
        }
    }

    /// Returns the items: for each, its number in the walk and its address.
    pub(super) fn items(&self) -> impl Iterator<Item = (u32, Place)> + Clone + '_ {
        self.items.iter().filter_map(|number| Some((*number, self.met.get(*number as usize)?.at)))
    }
}
