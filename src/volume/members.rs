//! What a group of a container holds: groups and arrays by their stored names, where a folder has files. The files that
//! show one object, such as `x.npy`, `x.jsonl`, `x/` and `x.attrs.json`, are one member.

use std::{
    collections::{HashMap, HashSet, hash_map},
    ffi::OsStr,
    ops::ControlFlow,
};

use super::{Entry, EntryKind, Error, ErrorKind};
use crate::{
    tree::{attributes, names},
    vfs::FileKind,
    view::attributes::key,
};

/// Suffixes of the files that show an array, in the order in which they count.
const SUFFIXES: [(&str, MemberKind); 4] = [
    (".npy", MemberKind::Array),
    (".jsonl", MemberKind::Lines),
    (".txt", MemberKind::Text),
    (".bin", MemberKind::Bytes),
];

/// What a member is, by what shows it first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemberKind {
    /// A group: a folder.
    Group,
    /// An array: a `.npy` file.
    Array,
    /// Values of varying length, such as texts: a `.jsonl` file with one on each line.
    Lines,
    /// One text: a `.txt` file.
    Text,
    /// Bytes of a type that no array has: a `.bin` file.
    Bytes,
    /// A type without elements and axes: an empty `.bin` file.
    Null,
    /// Rows of numbers of varying length: a folder with `offsets.npy` and `values.npy`.
    Rows,
    /// A link that leads nowhere, or to something that is no member.
    Link,
}

/// A group or an array in a group.
#[derive(Debug, Clone)]
pub struct Member {
    /// The stored name. Bytes that are not UTF-8 are `%` and two digits.
    pub name: String,
    /// What it is; of a link, what that leads to.
    pub kind: MemberKind,
    /// The file or folder that shows it first; of a link the link itself, which [`Entry::followed`] follows.
    pub entry: Entry,
}

/// A name in a folder that may be a member's.
struct Candidate {
    /// The name of the file or folder.
    shown: String,
    /// What its suffix says; of folders [`MemberKind::Group`].
    kind: MemberKind,
    is_link: bool,
    /// The stored name; `None` if that follows from the shown one.
    stored: Option<Vec<u8>>,
}

impl Candidate {
    /// Returns its place among the files that show one array: the first of them counts.
    fn rank(&self) -> usize {
        SUFFIXES.iter().position(|(_, kind)| *kind == self.kind).unwrap_or(SUFFIXES.len())
    }

    /// The name without its suffix.
    fn stem(&self) -> &str {
        let suffix = SUFFIXES.iter().find(|(_, kind)| *kind == self.kind).map_or("", |(suffix, _)| suffix);
        self.shown.strip_suffix(suffix).unwrap_or(&self.shown)
    }

    fn name(&self) -> String {
        self.stored.as_deref().map_or_else(|| key(&names::stored(self.stem())), key)
    }
}

impl Entry {
    /// Returns whether the container that contains this entry has groups of its own, as HDF5 has; in others folders follow
    /// from names. `false` outside of containers.
    ///
    /// # Errors
    /// Those of opening the container.
    pub fn has_groups(&self) -> Result<bool, Error> {
        Ok(self.ask(|tree, _, _| Ok(tree.has_groups()))?.unwrap_or(false))
    }

    /// Returns the groups and arrays in this folder of a container, in its order. Tables, pictures and documents are no
    /// members; neither is what is in the folder beside an array. One that cannot be looked at is an error of its own.
    ///
    /// # Errors
    /// Those of listing the folder.
    pub fn members(&self) -> Result<Vec<Result<Member, Error>>, Error> {
        let mut found = Vec::new();
        for candidate in self.candidates()? {
            crate::wanted::check().map_err(|error| Error::new(ErrorKind::Io, error.to_string()))?;
            found.extend(self.member_of(&candidate).transpose());
        }
        Ok(found)
    }

    /// Returns the names of [`Self::members`]. Most of them are not looked at.
    ///
    /// # Errors
    /// As [`Self::members`].
    pub fn member_names(&self) -> Result<Vec<String>, Error> {
        let mut found = Vec::new();
        for candidate in self.candidates()? {
            let is_certain = candidate.is_link || !matches!(candidate.kind, MemberKind::Lines | MemberKind::Text);
            // What cannot be looked at is there.
            if is_certain || !matches!(self.member_of(&candidate), Ok(None)) {
                found.push(candidate.name());
            }
        }
        Ok(found)
    }

    /// Returns the member of a stored name; `None` if there is none.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn member(&self, name: &str) -> Result<Option<Member>, Error> {
        // Names that were made of bytes, and those that are shown, are found as well.
        let stored = [name.as_bytes().to_vec(), names::stored(name)];
        for part in stored.iter().take(if stored[0] == stored[1] { 1 } else { 2 }) {
            // A name that is reserved at this place has its first byte escaped; what is shown by the name is no member.
            let own = String::from_utf8_lossy(part).into_owned();
            let escaped = if own.is_ascii() { names::folder(part, &[own.as_str()], 1) } else { own.clone() };
            let folders = [escaped, names::folder(part, &names::RESERVED, 1), own];
            let found = self.first_of(|suffix| names::file(part, suffix, 1), folders, part)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        // Names that do not follow from a stored one: shortened ones, and duplicates.
        if name.contains('%') {
            return self.first_of(|suffix| names::beside(name, suffix), [name.to_owned()], name.as_bytes());
        }
        Ok(None)
    }

    /// Returns the member that files of these names, or one of these folders, show; `None` if there is none.
    fn first_of<const N: usize>(
        &self,
        file: impl Fn(&str) -> String,
        folders: [String; N],
        stored: &[u8],
    ) -> Result<Option<Member>, Error> {
        let files = SUFFIXES.iter().map(|(suffix, kind)| (file(suffix), *kind));
        for (shown, kind) in files.chain(folders.map(|folder| (folder, MemberKind::Group))) {
            let Some(entry) = self.child_or_none(&shown)? else { continue };
            let stored = Some(stored.to_vec());
            let candidate = Candidate { shown, kind, is_link: entry.kind() == EntryKind::Link, stored };
            let is_folder = entry.is_folder();
            if (!candidate.is_link && is_folder != (kind == MemberKind::Group)) || self.is_beside(&candidate)? {
                continue;
            }
            if let Some(member) = self.member_of(&candidate)? {
                return Ok(Some(member));
            }
        }
        Ok(None)
    }

    /// Returns the names in the folder that may be those of members.
    fn candidates(&self) -> Result<Vec<Candidate>, Error> {
        let mut found: Vec<Candidate> = Vec::new();
        let (mut stems, mut documents) = (HashMap::new(), HashSet::new());
        self.names(&mut |name, kind| {
            // Names of containers are UTF-8.
            let Some(name) = name.to_str() else { return ControlFlow::Continue(()) };
            let (shown, is_link, stored) = (name.to_owned(), kind == FileKind::Link, None);
            let suffix = SUFFIXES.iter().find(|(suffix, _)| kind != FileKind::Folder && name.ends_with(suffix));
            if let Some((_, kind)) = suffix {
                let candidate = Candidate { shown, kind: *kind, is_link, stored };
                match stems.entry(names::common(candidate.stem()).into_owned()) {
                    hash_map::Entry::Vacant(free) => {
                        free.insert(found.len());
                        found.push(candidate);
                    }
                    hash_map::Entry::Occupied(first) => {
                        if let Some(first) = found.get_mut(*first.get())
                            && candidate.rank() < first.rank()
                        {
                            *first = candidate;
                        }
                    }
                }
            } else if kind == FileKind::Folder || (is_link && !names::has_suffix(name)) {
                found.push(Candidate { shown, kind: MemberKind::Group, is_link, stored });
            } else if name == attributes::OF_GROUP || name.ends_with(attributes::BESIDE) {
                documents.insert(shown);
            }
            ControlFlow::Continue(())
        })?;
        let has_groups = self.has_groups()?;
        let has_long = has_groups && found.iter().any(|candidate| names::is_shortened(candidate.stem()));
        let mut stored = if has_long { self.long_names()? } else { HashMap::new() };
        let mut kept = Vec::with_capacity(found.len());
        for mut candidate in found {
            let is_folder = candidate.kind == MemberKind::Group;
            let is_beside = is_folder && stems.contains_key(&*names::common(&candidate.shown));
            let is_array = || document_of(&candidate).is_some_and(|document| documents.contains(&document));
            if is_beside || is_array() && self.has_attributes_in(&candidate)? {
                continue;
            }
            if names::is_shortened(candidate.stem()) {
                candidate.stored = stored.remove(&candidate.shown);
                if is_folder && has_groups && candidate.stored.is_none() {
                    continue;
                }
            }
            kept.push(candidate);
        }
        Ok(kept)
    }

    /// Returns the stored names of what the shortened names in this folder of a container show.
    fn long_names(&self) -> Result<HashMap<String, Vec<u8>>, Error> {
        let found = self.ask(|tree, reader, folder| {
            let mut shortened = Vec::new();
            tree.list(reader, folder, 0, &mut |child| {
                if names::is_shortened(child.name) {
                    shortened.push((child.name.to_owned(), child.node));
                }
                ControlFlow::Continue(())
            })?;
            let mut found = HashMap::new();
            for (name, node) in shortened {
                // One that cannot be read is known by the name that is shown.
                if let Ok(Some(stored)) = tree.stored_name(reader, node) {
                    found.insert(name, stored);
                }
            }
            Ok(found)
        })?;
        Ok(found.unwrap_or_default())
    }

    /// Returns whether a folder is beside an array, or holds arrays of attributes.
    fn is_beside(&self, candidate: &Candidate) -> Result<bool, Error> {
        if candidate.kind != MemberKind::Group {
            return Ok(false);
        }
        for (suffix, _) in SUFFIXES {
            if self.child_or_none(&names::beside(&candidate.shown, suffix))?.is_some() {
                return Ok(true);
            }
        }
        match document_of(candidate) {
            Some(document) if self.child_or_none(&document)?.is_some() => self.has_attributes_in(candidate),
            _ => Ok(false),
        }
    }

    /// Returns whether the document of attributes that a folder could belong to names it.
    fn has_attributes_in(&self, candidate: &Candidate) -> Result<bool, Error> {
        let Some(document) = document_of(candidate) else { return Ok(false) };
        let Some(document) = self.child_or_none(&document)? else { return Ok(false) };
        let values: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&document.read()?).unwrap_or_default();
        let folder = format!("{}/", candidate.shown);
        let is_in = |value: &serde_json::Value| {
            value.get("npy").and_then(|path| path.as_str()).is_some_and(|path| path.starts_with(&folder))
        };
        Ok(values.values().any(is_in))
    }

    /// Returns the member that a name is; `None` if it is none.
    fn member_of(&self, candidate: &Candidate) -> Result<Option<Member>, Error> {
        let Some(entry) = self.child_or_none(&candidate.shown)? else { return Ok(None) };
        let name = candidate.name();
        let there = match candidate.is_link {
            false => entry.clone(),
            true => match entry.followed() {
                Ok(there) => there,
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotAFolder) => {
                    return Ok(Some(Member { name, kind: MemberKind::Link, entry }));
                }
                Err(error) => return Err(error),
            },
        };
        let kind = match candidate.kind {
            // Documents and lists that are no arrays have these suffixes, too.
            MemberKind::Lines | MemberKind::Text if there.item_info()?.is_none() => return Ok(None),
            MemberKind::Group if there.item_info()?.is_some() => MemberKind::Rows,
            MemberKind::Bytes
                if there.size() == 0
                    && there
                        .item_info()?
                        .is_some_and(|info| info.shape.is_none() && info.stored_type == Some("null")) =>
            {
                MemberKind::Null
            }
            kind => kind,
        };
        Ok(Some(Member { name, kind, entry }))
    }

    fn child_or_none(&self, name: &str) -> Result<Option<Self>, Error> {
        if name.is_empty() || name.len() > names::NAME_MAX || name.contains(['/', '\0']) || matches!(name, "." | "..") {
            return Ok(None);
        }
        self.child(OsStr::new(name))
    }
}

/// Returns the name of the document of attributes that a folder could hold arrays of.
fn document_of(candidate: &Candidate) -> Option<String> {
    if candidate.kind != MemberKind::Group || candidate.is_link {
        return None;
    }
    let base = candidate.shown.rsplit_once("%_").map_or(&*candidate.shown, |(base, _)| base);
    if base == attributes::ARRAYS_OF_GROUP {
        return Some(attributes::OF_GROUP.to_owned());
    }
    base.strip_suffix(attributes::ARRAYS_BESIDE).map(|stem| names::beside(stem, attributes::BESIDE))
}
