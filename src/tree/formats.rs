//! The container formats: one descriptor each, in one table.

use std::{ffi::OsStr, fmt, sync::Arc};

use super::{
    Container, Siblings, idv, kastore, kdb,
    memory::{WorkingMemory, refused},
    wshard,
};
use crate::{
    cache::Reservation,
    format::{self, FormatError, PartError},
    source::{Memory, Source, SourceError, Unlimited},
    view::ReadContext,
};

/// A container that was opened, or why it must be refused after all.
pub type OpenResult = Result<Arc<dyn Container>, FormatError>;

/// See [`Format::others`]; fails where memory ran out or the reader was killed.
pub(super) type Others = fn(&dyn Source, &dyn Memory) -> Result<Vec<Box<str>>, SourceError>;

/// See [`Format::probe`].
pub type Probe = fn(&dyn Source, name: &[u8], &dyn Memory) -> Result<(), FormatError>;

/// A container format: everything that the rest of the program knows of it. Two are equal if they have the same name.
pub struct Format {
    /// The name in `container.json`, and of the format's page below `docs/formats`.
    pub name: &'static str,
    /// The name in messages.
    pub title: &'static str,
    /// The first bytes of every such file.
    pub magic: &'static [u8],
    /// Suffixes that such files usually have. A container is recognised by its content, never by its name.
    pub suffixes: &'static [&'static str],
    /// Looks at the front of a file that begins with the magic, and fails for one that must be refused. The name is
    /// that of the file; memory in proportion to what it holds is asked for.
    pub probe: Probe,
    /// Whether a file that begins with the magic and was refused is meant to be such a container, so that the reason is
    /// worth reporting.
    pub is_meant: fn(&dyn Source) -> bool,
    /// Parses a container and makes its tree.
    pub open: fn(&ReadContext, Option<Arc<dyn Siblings>>, &WorkingMemory<'_>) -> OpenResult,
    /// The other files whose content a container shows too, as paths below its folder: the chunks of a manifest. What
    /// is damaged names none.
    pub others: Others,
    /// Fails for a container that another one of the same format can't show as a part of itself.
    pub check_part: fn(&dyn Source) -> Result<(), PartError>,
    /// The examples in `fixtures/`.
    pub fixtures: &'static [&'static str],
}

/// WShard episodes, manifests and all other Shard files.
pub static WSHARD: Format = Format {
    name: "wshard",
    title: "Shard",
    magic: b"SHRD",
    suffixes: &[".wshard", ".shard"],
    // Unfinished recordings count only when they are complete (`docs/TREE.md`, section 3).
    probe: |source, name, _| format::wshard::probe(source, name.ends_with(b".partial")),
    is_meant: |source| source.len() >= format::wshard::HEADER,
    open: |reader, siblings, memory| {
        let shard = format::wshard::parse_within(&*reader.source, memory)?;
        // Joining opens chunks, which reserve for themselves.
        if shard.chunks.is_some() {
            memory.hold();
        }
        Ok(Arc::new(wshard::open(shard, siblings, reader.cache.verify(), memory)?))
    },
    others: format::wshard::chunk_files,
    check_part: format::wshard::check_chunk,
    fixtures: &["ep_001.wshard", "ep_002_lz4.wshard", "stream.wshard", "weights.shard"],
};

/// kastore, tskit's `.trees` among them.
pub static KASTORE: Format = Format {
    name: "kastore",
    title: "kastore",
    magic: &format::kastore::SIGNATURE,
    suffixes: &[".kas", ".trees"],
    probe: |source, _, _| format::kastore::probe(source),
    is_meant: |source| source.len() >= format::kastore::HEADER,
    open: |reader, _, memory| {
        let source = &*reader.source;
        Ok(Arc::new(kastore::open_kastore(source, format::kastore::parse_within(source, memory)?)?))
    },
    others: no_others,
    check_part: no_part,
    fixtures: &["arrays.kas", "tree_sequence.trees"],
};

/// The KAST draft. Several unrelated formats begin with the same letters: a file is claimed only by rules that they all
/// fail (`docs/formats/kast.md` 5), and otherwise not worth a word.
pub static KAST: Format = Format {
    name: "kast",
    title: "KAST",
    magic: b"KAST",
    suffixes: &[".kast"],
    probe: |source, _, memory| format::kast::parse_within(source, memory).map(drop),
    is_meant: format::kast::claims,
    open: |reader, _, memory| Ok(Arc::new(kastore::open_kast(format::kast::parse_within(&*reader.source, memory)?))),
    others: no_others,
    check_part: no_part,
    fixtures: &["table.kast"],
};

/// KDB, recorded robot episodes.
pub static KDB: Format = Format {
    name: "kdb",
    title: "KDB",
    magic: &format::kdb::MAGIC,
    suffixes: &[".kdb"],
    probe: |source, _, _| format::kdb::probe(source),
    is_meant: |source| source.len() >= format::kdb::HEADER,
    open: |reader, _, _| Ok(Arc::new(kdb::open(format::kdb::parse(&*reader.source)?))),
    others: no_others,
    check_part: no_part,
    fixtures: &["demo.kdb"],
};

/// IDV, the binary data views of ML.NET.
pub static IDV: Format = Format {
    name: "idv",
    title: "IDV",
    magic: &format::idv::MAGIC,
    suffixes: &[".idv"],
    probe: |source, _, _| format::idv::probe(source),
    is_meant: |source| source.len() >= format::idv::HEADER,
    open: |reader, _, memory| Ok(Arc::new(idv::open(format::idv::parse_within(&*reader.source, memory)?, reader))),
    others: no_others,
    check_part: no_part,
    fixtures: &["table.idv"],
};

/// [`Format::others`] of a format whose containers are single files.
///
/// # Errors
/// None.
pub fn no_others(_: &dyn Source, _: &dyn Memory) -> Result<Vec<Box<str>>, SourceError> {
    Ok(Vec::new())
}

/// [`Format::check_part`] of such a format.
///
/// # Errors
/// Always.
pub fn no_part(_: &dyn Source) -> Result<(), PartError> {
    Err(PartError::Damaged("containers of its format are no parts of others".into()))
}

/// The formats that a mount recognises. No magic is the beginning of another one.
pub type Formats = &'static [&'static Format];

/// All formats of this program.
pub static FORMATS: [&Format; 5] = [&WSHARD, &KASTORE, &KAST, &KDB, &IDV];

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Format {}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Format {
    /// Opens a container of this format. A manifest finds its chunks among `siblings`; without, it joins none.
    ///
    /// # Errors
    /// [`FormatError`] when the file must be refused after all, or can't be read.
    pub fn open(&self, reader: &ReadContext, siblings: Option<Arc<dyn Siblings>>) -> OpenResult {
        self.open_within(reader, siblings).map(|(tree, _)| tree)
    }

    /// As [`Self::open`], with what the open container takes of the cache's budget.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_within(
        &self,
        reader: &ReadContext,
        siblings: Option<Arc<dyn Siblings>>,
    ) -> Result<(Arc<dyn Container>, Reservation), FormatError> {
        reader.cache.in_steps(refused, || {
            let memory = WorkingMemory::of_reader(reader);
            let tree = (self.open)(reader, siblings.clone(), &memory)?;
            let room = memory.keep(tree.memory_usage() as u64)?;
            Ok((tree, room))
        })
    }
}

/// What a file turned out to be, by its content alone.
#[derive(Debug)]
pub enum Detected {
    /// A container that opens.
    Container(&'static Format),
    /// An ordinary file.
    Plain,
    /// It is meant to be a container and must be refused: an ordinary file, with a reason worth reporting.
    Refused(&'static Format, FormatError),
}

/// Looks at the front of a file and says which of the formats it has.
///
/// # Errors
/// [`SourceError`] when the front could not be read.
pub fn detect(formats: &[&'static Format], source: &dyn Source, name: &[u8]) -> Result<Detected, SourceError> {
    detect_within(formats, source, name, &Unlimited)
}

/// As [`detect`], where memory has to be asked for.
///
/// # Errors
/// As [`detect`]; also where there is not enough memory.
pub fn detect_within(
    formats: &[&'static Format],
    source: &dyn Source,
    name: &[u8],
    memory: &dyn Memory,
) -> Result<Detected, SourceError> {
    let longest = formats.iter().map(|format| format.magic.len() as u64).max().unwrap_or(0);
    let front = source.read(0..longest.min(source.len()))?;
    let Some(format) = formats.iter().find(|format| front.starts_with(format.magic)) else {
        return Ok(Detected::Plain);
    };
    match (format.probe)(source, name, memory) {
        Ok(()) => Ok(Detected::Container(format)),
        Err(FormatError::Source(error)) => Err(error),
        Err(error) if (format.is_meant)(source) => Ok(Detected::Refused(format, error)),
        Err(_) => Ok(Detected::Plain),
    }
}

/// Whether a file's name says that it should be a container, finished or not: one that is none, or can't be read, is
/// then worth reporting.
pub fn is_container_name(formats: &[&'static Format], name: &OsStr) -> bool {
    format_of_name(formats, name).is_some()
}

/// The format that a file should have by its name.
pub fn format_of_name(formats: &[&'static Format], name: &OsStr) -> Option<&'static Format> {
    let name = name.to_string_lossy().to_lowercase();
    let name = name.strip_suffix(".partial").unwrap_or(&name);
    formats.iter().copied().find(|format| format.suffixes.iter().any(|suffix| name.ends_with(suffix)))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    #[test]
    fn every_example_is_of_its_format_and_has_its_suffix() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
        let mut known = BTreeSet::new();
        for format in FORMATS {
            assert!(!format.fixtures.is_empty(), "{format:?}");
            for name in format.fixtures {
                let bytes = fs::read(folder.join(name)).unwrap();
                let found = detect(&FORMATS, &bytes, name.as_bytes()).unwrap();
                assert!(matches!(found, Detected::Container(found) if found == format), "{name}: {found:?}");
                assert!(is_container_name(&[format], OsStr::new(name)), "{name}");
                known.insert(*name);
            }
            let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/formats/{}.md", format.name));
            assert!(page.is_file(), "{} is missing", page.display());
        }
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let containers: BTreeSet<String> =
            entries.filter(|name| is_container_name(&FORMATS, OsStr::new(name))).collect();
        assert_eq!(containers.iter().map(String::as_str).collect::<BTreeSet<_>>(), known);
    }

    #[test]
    fn no_magic_is_the_beginning_of_another_one() {
        for a in FORMATS {
            let others = FORMATS.iter().filter(|b| b.magic.starts_with(a.magic));
            assert_eq!(others.count(), 1, "{a:?}");
        }
    }
}
