//! The container formats: one descriptor each, in one table.

use std::{any::Any, ffi::OsStr, fmt, sync::Arc};

use super::{
    Beside, Container, Siblings, gguf, hdf5, idv, kastore, kdb, lerobot, mcap,
    memory::{Probed, WorkingMemory, no_memory, refused},
    netcdf, npz, pt, rlds, rosbag, safetensors, wshard, zarr,
};
use crate::{
    cache::{BlockError, Reservation},
    format::{self, FormatError, Front, PartError, Recognition},
    source::{Memory, Source, SourceError, Unlimited},
    view::{Fault, ReadContext},
};

/// A container that was opened, or why it must be refused after all.
pub type OpenResult = Result<Arc<dyn Container>, FormatError>;

/// See [`Format::others`]; fails if memory ran out or the reader was killed.
pub(super) type Others = fn(&dyn Source, &dyn Memory) -> Result<Vec<Box<str>>, SourceError>;

/// See [`Format::probe`].
pub type Probe = fn(&dyn Source, name: &[u8], &dyn Memory) -> Result<(), FormatError>;

/// See [`Format::check_others`].
pub(super) type CheckOthers = fn(&dyn Source, &dyn Beside, &dyn Memory) -> Result<(), FormatError>;

/// The suffix of a recording that is not finished.
const PARTIAL: &str = ".partial";

/// A container format: everything that the rest of the program knows of it. Formats of the same name are equal.
pub struct Format {
    /// The name in `container.json`, and of the format's page below `docs/formats`.
    pub name: &'static str,
    /// The name in messages.
    pub title: &'static str,
    /// What it is, in a few words for users.
    pub summary: &'static str,
    /// Suffixes of its files, in lower case (see [`format::has_suffix`]). A file that is read is recognised by its
    /// content, and by its name only if the format has no magic.
    pub suffixes: &'static [&'static str],
    /// Suffixes that its files share with files of other kinds. A file with one of them that is not a container is not
    /// reported.
    pub shared_suffixes: &'static [&'static str],
    /// Files that make a folder a container of this format, as paths below it. The first that is there is what
    /// [`Self::recognise`], [`Self::probe`] and [`Self::open`] get; other files are reached by [`Siblings::file`].
    /// Empty for a format whose containers are files.
    pub markers: &'static [&'static str],
    /// Whether files of this format are shown as folders unless the user says otherwise.
    pub is_default: bool,
    /// Returns whether a file may be of this format, by its front. Reads nothing.
    pub recognise: fn(&Front<'_>) -> Recognition,
    /// Looks closer at a recognised file, and fails if it must be refused. It reads only what identifies the file, such
    /// as a header or an index. The name is the file's; memory in proportion to its content is asked for. A format that
    /// parses all that [`Self::open`] needs keeps it ([`Memory::keep_parsed`]).
    pub probe: Probe,
    /// Parses a container and makes its tree.
    pub open: fn(&ReadContext, Option<Arc<dyn Siblings>>, &WorkingMemory<'_>) -> OpenResult,
    /// Returns the other files whose content a container shows too, such as the chunks of a manifest, as paths below
    /// its folder. A damaged container names none.
    pub others: Others,
    /// Fails for a recognised file that cannot be a container because its other files are missing or wrong. It is
    /// called again when they change.
    pub check_others: Option<CheckOthers>,
    /// Fails for a container that another one of the same format cannot show as a part of itself.
    pub check_part: fn(&dyn Source) -> Result<(), PartError>,
    /// The examples in `fixtures/`.
    pub fixtures: &'static [&'static str],
}

/// WShard episodes, manifests and all other Shard files.
pub static WSHARD: Format = Format {
    name: "wshard",
    title: "Shard",
    summary: "robot episodes and other Shard files",
    suffixes: &[".wshard", ".shard"],
    shared_suffixes: &[],
    markers: &[],
    is_default: true,
    recognise: |front| front.by_magic(b"SHRD", format::wshard::HEADER),
    // Unfinished recordings count only when they are complete (`docs/TREE.md`, section 3).
    probe: |source, name, _| format::wshard::probe(source, name.ends_with(b".partial")),
    open: |reader, siblings, memory| {
        let shard = format::wshard::parse_within(&*reader.source, memory)?;
        // Joining opens chunks, which reserve their own memory.
        if shard.chunks.is_some() {
            memory.hold();
        }
        Ok(Arc::new(wshard::open(shard, siblings, reader.cache.verify(), memory)?))
    },
    others: format::wshard::chunk_files,
    check_others: None,
    check_part: format::wshard::check_chunk,
    fixtures: &["ep_001.wshard", "ep_002_lz4.wshard", "stream.wshard", "weights.shard"],
};

/// kastore, including tskit's `.trees`.
pub static KASTORE: Format = Format {
    name: "kastore",
    title: "kastore",
    summary: "arrays, and tree sequences of tskit",
    suffixes: &[".kas", ".trees"],
    shared_suffixes: &[],
    markers: &[],
    is_default: true,
    recognise: |front| front.by_magic(&format::kastore::SIGNATURE, format::kastore::HEADER),
    probe: |source, _, _| format::kastore::probe(source),
    open: |reader, _, memory| {
        let source = &*reader.source;
        Ok(Arc::new(kastore::open_kastore(source, format::kastore::parse_within(source, memory)?)?))
    },
    others: no_others,
    check_others: None,
    check_part: no_part,
    fixtures: &["arrays.kas", "tree_sequence.trees"],
};

/// The KAST draft. Several unrelated formats begin with the same letters, so a file is claimed only by rules that they
/// all fail (`docs/formats/kast.md` 5), and is not reported otherwise.
pub static KAST: Format = Format {
    name: "kast",
    title: "KAST",
    summary: "arrays of the KAST draft",
    suffixes: &[".kast"],
    shared_suffixes: &[],
    markers: &[],
    is_default: true,
    recognise: format::kast::recognise,
    probe: |source, _, memory| keep(memory, format::kast::parse_within(source, memory)),
    open: |reader, _, memory| {
        let parsed = memory.parsed(|memory| format::kast::parse_within(&*reader.source, memory))?;
        Ok(Arc::new(kastore::open_kast(parsed)))
    },
    others: no_others,
    check_others: None,
    check_part: no_part,
    fixtures: &["table.kast"],
};

/// KDB, recorded robot episodes.
pub static KDB: Format = Format {
    name: "kdb",
    title: "KDB",
    summary: "recorded robot episodes with cameras",
    suffixes: &[".kdb"],
    shared_suffixes: &[],
    markers: &[],
    is_default: true,
    recognise: |front| front.by_magic(&format::kdb::MAGIC, format::kdb::HEADER),
    probe: |source, _, _| format::kdb::probe(source),
    open: |reader, _, _| Ok(Arc::new(kdb::open(format::kdb::parse(&*reader.source)?))),
    others: no_others,
    check_others: None,
    check_part: no_part,
    fixtures: &["demo.kdb"],
};

/// IDV, the binary data views of ML.NET.
pub static IDV: Format = Format {
    name: "idv",
    title: "IDV",
    summary: "binary data views of ML.NET",
    suffixes: &[".idv"],
    shared_suffixes: &[],
    markers: &[],
    is_default: true,
    recognise: |front| front.by_magic(&format::idv::MAGIC, format::idv::HEADER),
    probe: |source, _, _| format::idv::probe(source),
    open: |reader, _, memory| Ok(Arc::new(idv::open(format::idv::parse_within(&*reader.source, memory)?))),
    others: no_others,
    check_others: None,
    check_part: no_part,
    fixtures: &["table.idv"],
};

/// safetensors, the format of most models.
pub static SAFETENSORS: Format = Format {
    name: "safetensors",
    title: "safetensors",
    summary: "tensors of models",
    suffixes: &[format::safetensors::SUFFIX, format::safetensors::INDEX_SUFFIX],
    shared_suffixes: &[],
    markers: &[],
    is_default: true,
    recognise: format::safetensors::recognise,
    probe: |source, name, memory| keep(memory, format::safetensors::probe(source, name, memory)),
    open: |reader, siblings, memory| {
        match memory.parsed(|memory| format::safetensors::parse_any(&*reader.source, memory))? {
            format::safetensors::Parsed::Tensors(tensors) => Ok(Arc::new(safetensors::open(tensors, memory)?)),
            format::safetensors::Parsed::Index(index) => {
                // Opening its files reserves their own memory.
                memory.hold();
                Ok(Arc::new(safetensors::open_joined(index, siblings, memory)?))
            }
        }
    },
    others: format::safetensors::shard_files,
    check_others: Some(safetensors::check_shards),
    check_part: format::safetensors::check_shard,
    fixtures: &["model.safetensors"],
};

/// npz, arrays that numpy saved together.
pub static NPZ: Format = Format {
    name: "npz",
    title: "NumPy",
    summary: "arrays that numpy saved together",
    suffixes: &[".npz"],
    shared_suffixes: &[],
    markers: &[],
    is_default: true,
    recognise: format::npz::recognise,
    probe: |source, _, memory| keep(memory, format::npz::parse_within(source, memory)),
    open: |reader, _, memory| {
        let parsed = memory.parsed(|memory| format::npz::parse_within(&*reader.source, memory))?;
        Ok(Arc::new(npz::open(parsed, memory)?))
    },
    others: no_others,
    check_others: None,
    check_part: no_part,
    fixtures: &["arrays.npz"],
};

/// PyTorch checkpoints. Their pickles are never executed. Python has files of other kinds with the same suffixes.
pub static PT: Format = Format {
    name: "pt",
    title: "PyTorch",
    summary: "checkpoints of PyTorch",
    suffixes: &[],
    shared_suffixes: format::pt::SUFFIXES,
    markers: &[],
    is_default: true,
    recognise: format::pt::recognise,
    probe: |source, _, memory| keep(memory, format::pt::parse_within(source, memory)),
    open: |reader, _, memory| {
        let parsed = memory.parsed(|memory| format::pt::parse_within(&*reader.source, memory))?;
        Ok(Arc::new(pt::open(parsed, memory)?))
    },
    others: no_others,
    check_others: None,
    check_part: no_part,
    fixtures: &["checkpoint.pt"],
};

/// GGUF, models for llama.cpp.
pub static GGUF: Format = Format {
    name: "gguf",
    title: "GGUF",
    summary: "models of llama.cpp",
    suffixes: &[format::gguf::SUFFIX],
    shared_suffixes: &[],
    markers: &[],
    is_default: true,
    recognise: format::gguf::recognise,
    probe: |source, _, memory| keep(memory, format::gguf::parse_within(source, memory)),
    open: |reader, _, memory| {
        let parsed = memory.parsed(|memory| format::gguf::parse_within(&*reader.source, memory))?;
        Ok(Arc::new(gguf::open(parsed)))
    },
    others: no_others,
    check_others: None,
    check_part: no_part,
    fixtures: &["model.gguf"],
};

/// NetCDF classic, grids of climate and weather. HDF5 and others have its suffixes, too.
pub static NETCDF: Format = Format {
    name: "netcdf",
    title: "NetCDF classic",
    summary: "grids of climate and weather",
    suffixes: &[],
    shared_suffixes: &format::netcdf::SUFFIXES,
    markers: &[],
    is_default: true,
    recognise: format::netcdf::recognise,
    probe: |source, _, memory| keep(memory, format::netcdf::parse_within(source, memory)),
    open: |reader, _, memory| {
        let parsed = memory.parsed(|memory| format::netcdf::parse_within(&*reader.source, memory))?;
        Ok(Arc::new(netcdf::open(parsed, reader)))
    },
    others: no_others,
    check_others: None,
    check_part: no_part,
    fixtures: &["weather.nc"],
};

/// HDF5, and NetCDF-4. Other formats' magics at the start win over a signature behind a user block.
pub static HDF5: Format = Format {
    name: "hdf5",
    title: "HDF5",
    summary: "groups and datasets of robots, cells, climate and MATLAB",
    suffixes: &format::hdf5::SUFFIXES,
    shared_suffixes: &format::hdf5::SHARED_SUFFIXES,
    markers: &[],
    is_default: true,
    recognise: format::hdf5::recognise,
    probe: format::hdf5::probe,
    open: |reader, siblings, memory| {
        let superblock = format::hdf5::parse(&*reader.source, None, memory)?;
        memory.hold();
        Ok(Arc::new(hdf5::open(superblock, reader, siblings)?))
    },
    others: no_others,
    check_others: None,
    check_part: format::hdf5::check_part,
    fixtures: &["robot.h5"],
};

/// LeRobot, data sets of robot learning: folders.
pub static LEROBOT: Format = Format {
    name: "lerobot",
    title: "LeRobot",
    summary: "data sets of robot episodes: folders",
    suffixes: &[],
    shared_suffixes: &[],
    markers: &[format::lerobot::MARKER],
    is_default: true,
    recognise: format::lerobot::recognise,
    probe: |source, _, memory| keep(memory, format::lerobot::parse(source, memory)),
    open: |reader, siblings, memory| {
        let info = memory.parsed(|memory| format::lerobot::parse(&*reader.source, memory))?;
        Ok(lerobot::open(info, reader, siblings, memory).map_err(failed)?)
    },
    others: no_others,
    check_others: None,
    check_part: no_part,
    fixtures: &["pick_and_place"],
};

/// Returns the failure to read another file of a folder as a reason why it cannot be opened.
fn failed(fault: Fault) -> FormatError {
    match &*fault.error {
        BlockError::WouldBlock | BlockError::Source(SourceError::WouldBlock) => SourceError::WouldBlock.into(),
        BlockError::Source(SourceError::Changed) => SourceError::Changed.into(),
        error => match error.refused_memory() {
            Some(refused) => no_memory(refused).into(),
            None => FormatError::Source(std::io::Error::other(fault.error.to_string()).into()),
        },
    }
}
/// Zarr: folders of chunks and of documents that describe them.
pub static ZARR: Format = Format {
    name: zarr::NAME,
    title: "Zarr",
    summary: "arrays in chunks: climate, imaging, genomics",
    suffixes: &[".zarr"],
    shared_suffixes: &[],
    markers: &zarr::MARKERS,
    is_default: true,
    recognise: zarr::recognise_marker,
    probe: zarr::probe_marker,
    open: |reader, siblings, memory| Ok(Arc::new(zarr::open_folder(reader, siblings, memory)?)),
    others: no_others,
    check_others: None,
    check_part: no_part,
    fixtures: &["cells.zarr"],
};

/// tszip: tree sequences of tskit in an archive of Zarr, shown as the files that they were made of.
pub static TSZIP: Format = Format {
    name: "tszip",
    title: "tszip",
    summary: "compressed tree sequences of tskit",
    suffixes: &[".tsz"],
    shared_suffixes: &[],
    markers: &[],
    is_default: true,
    recognise: zarr::recognise_archive,
    probe: zarr::probe_tszip,
    open: |reader, _, memory| Ok(Arc::new(zarr::open_tszip(reader, memory)?)),
    others: no_others,
    check_others: None,
    check_part: no_part,
    fixtures: &["genealogy.tsz"],
};

/// Zarr stores in a zip archive: the same format, in files.
pub static ZARR_ZIP: Format = Format {
    name: zarr::NAME,
    title: "Zarr",
    summary: "the same in a zip archive",
    suffixes: &zarr::SUFFIXES,
    shared_suffixes: &[],
    markers: &[],
    is_default: true,
    recognise: zarr::recognise,
    probe: zarr::probe_zip,
    open: |reader, _, memory| Ok(Arc::new(zarr::open_zip(reader, memory)?)),
    others: no_others,
    check_others: None,
    check_part: no_part,
    fixtures: &["cells.zarr.zip"],
};

/// MCAP, recordings of robots.
pub static MCAP: Format = Format {
    name: "mcap",
    title: "MCAP",
    summary: "recordings of robots",
    suffixes: &[format::mcap::SUFFIX],
    shared_suffixes: &[],
    markers: &[],
    is_default: true,
    recognise: format::mcap::recognise,
    probe: |source, _, _| format::mcap::probe(source),
    open: |reader, _, memory| Ok(Arc::new(mcap::open(reader, memory)?)),
    others: no_others,
    check_others: None,
    check_part: no_part,
    fixtures: &["drive.mcap"],
};

/// ROS 1 bags. Other programs have files of the same suffix.
pub static ROSBAG: Format = Format {
    name: "rosbag",
    title: "ROS bag",
    summary: "recordings of ROS 1",
    suffixes: &[format::rosbag::SUFFIX],
    shared_suffixes: &[],
    markers: &[],
    is_default: true,
    recognise: format::rosbag::recognise,
    probe: |source, _, memory| format::rosbag::probe(source, memory),
    open: |reader, _, memory| Ok(Arc::new(rosbag::open(reader, memory)?)),
    others: no_others,
    check_others: None,
    check_part: no_part,
    fixtures: &["drive.bag"],
};

/// Data sets of TFDS, such as RLDS: folders.
pub static RLDS: Format = Format {
    name: "rlds",
    title: "RLDS",
    summary: "robot episodes and other data sets of TFDS",
    suffixes: &[],
    shared_suffixes: &[],
    markers: &[format::rlds::FEATURES],
    is_default: true,
    recognise: format::rlds::recognise,
    probe: format::rlds::probe,
    open: |reader, siblings, memory| Ok(Arc::new(rlds::open_set(reader, siblings, memory)?)),
    others: format::rlds::others,
    check_others: Some(rlds::check),
    check_part: no_part,
    fixtures: &["pick_rlds"],
};

/// TFRecord files that lie alone. They have the name of the data sets, whose shards have the same format.
pub static TFRECORD: Format = Format {
    name: "rlds",
    title: "TFRecord",
    summary: "records of TensorFlow",
    suffixes: format::tfrecord::SUFFIXES,
    shared_suffixes: &[],
    markers: &[],
    is_default: true,
    recognise: format::tfrecord::recognise,
    probe: format::tfrecord::probe,
    open: |reader, _, memory| Ok(Arc::new(rlds::open_lone(reader, memory)?)),
    others: no_others,
    check_others: None,
    check_part: no_part,
    fixtures: &["pictures.tfrecord"],
};

/// Keeps what a probe parsed for the opening that follows.
fn keep<T: Any + Send>(memory: &dyn Memory, parsed: Result<T, FormatError>) -> Result<(), FormatError> {
    memory.keep_parsed(Box::new(parsed?));
    Ok(())
}

/// Returns no files: the [`Format::others`] of a format whose containers are single files.
///
/// # Errors
/// None.
pub fn no_others(_: &dyn Source, _: &dyn Memory) -> Result<Vec<Box<str>>, SourceError> {
    Ok(Vec::new())
}

/// Always fails: the [`Format::check_part`] of a format whose containers are single files.
///
/// # Errors
/// Always.
pub fn no_part(_: &dyn Source) -> Result<(), PartError> {
    Err(PartError::Damaged("containers of its format are no parts of others".into()))
}

/// The formats that a mount recognises. If several recognise a file, the first whose probe accepts it has it.
pub type Formats = &'static [&'static Format];

/// All formats of this program.
pub static FORMATS: [&Format; 19] = [
    &WSHARD,
    &KASTORE,
    &KAST,
    &KDB,
    &IDV,
    &SAFETENSORS,
    &NPZ,
    &PT,
    &GGUF,
    &NETCDF,
    &HDF5,
    &LEROBOT,
    &TSZIP,
    &ZARR,
    &ZARR_ZIP,
    &MCAP,
    &ROSBAG,
    &RLDS,
    &TFRECORD,
];

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
    /// Returns whether a container of this format may show others as parts of itself. Reads nothing.
    pub fn may_join(&self) -> bool {
        // If the compiler merges functions of the same body, each of them names nothing.
        !std::ptr::fn_addr_eq(self.others, no_others as Others)
    }

    /// Iterates over all suffixes of its files.
    pub fn all_suffixes(&self) -> impl Iterator<Item = &'static str> {
        self.suffixes.iter().chain(self.shared_suffixes).copied()
    }

    /// Returns whether a file's name has a suffix of this format, or will have one when the file is finished.
    pub fn has_name(&self, name: &OsStr) -> bool {
        self.suffixes_of(name).any(|has_it| has_it)
    }

    /// Returns for each suffix of this format whether a name has it.
    pub(crate) fn suffixes_of(&self, name: &OsStr) -> impl Iterator<Item = bool> {
        let name = finished(name);
        self.all_suffixes().map(move |suffix| format::has_suffix(name, suffix))
    }

    /// Opens a container of this format. A manifest finds its chunks among `siblings`; without them it joins none.
    ///
    /// # Errors
    /// [`FormatError`] if the file must be refused after all, or cannot be read.
    pub fn open(&self, reader: &ReadContext, siblings: Option<Arc<dyn Siblings>>) -> OpenResult {
        self.open_within(reader, None, siblings).map(|(tree, _)| tree)
    }

    /// Like [`Self::open`], with what the probe of the same state parsed. Also returns the reservation of the open
    /// container in the cache's budget.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_within(
        &self,
        reader: &ReadContext,
        mut probed: Option<Probed>,
        siblings: Option<Arc<dyn Siblings>>,
    ) -> Result<(Arc<dyn Container>, Reservation), FormatError> {
        reader.cache.in_steps(refused, || {
            let memory = WorkingMemory::of_reader(reader).after(probed.take());
            let tree = (self.open)(reader, siblings.clone(), &memory)?;
            let room = memory.keep(tree.memory_usage() as u64)?;
            Ok((tree, room))
        })
    }
}

/// Returns a file's name without the suffix of unfinished files.
fn finished(name: &OsStr) -> &[u8] {
    let name = name.as_encoded_bytes();
    let length = name.len().saturating_sub(PARTIAL.len());
    if format::has_suffix(name, PARTIAL) { &name[..length] } else { name }
}

/// What a file turned out to be, by its content alone.
#[derive(Debug)]
pub enum Detected {
    /// A container that opens.
    Container(&'static Format),
    /// An ordinary file.
    Plain,
    /// An ordinary file that is meant to be a container, but must be refused. The reason is worth reporting.
    Refused(&'static Format, FormatError),
}

/// Why it is not known what a file is.
#[derive(Debug)]
pub struct Unread {
    /// Whether the front of the file says that it is a container.
    pub is_meant: bool,
    /// Why the rest could not be read.
    pub error: SourceError,
}

impl From<SourceError> for Unread {
    fn from(error: SourceError) -> Self {
        Self { is_meant: false, error }
    }
}

/// Returns which of the formats a file has, by its front and a closer look.
///
/// # Errors
/// [`SourceError`] if the file could not be read.
pub fn detect(formats: &[&'static Format], source: &dyn Source, name: &[u8]) -> Result<Detected, SourceError> {
    detect_within(formats, source, name, &Unlimited).map_err(|unread| unread.error)
}

/// Like [`detect`], for a caller that has to ask for memory.
///
/// # Errors
/// As [`detect`]; also if there is not enough memory.
pub fn detect_within(
    formats: &[&'static Format],
    source: &dyn Source,
    name: &[u8],
    memory: &dyn Memory,
) -> Result<Detected, Unread> {
    let mut front = [0; format::FRONT];
    let bytes = &mut front[..usize::try_from(source.len()).map_or(format::FRONT, |len| len.min(format::FRONT))];
    source.fill(0, bytes)?;
    let front = Front { bytes, len: source.len(), name };
    let mut refused = None;
    for format in formats {
        let recognised = (format.recognise)(&front);
        if recognised == Recognition::No {
            continue;
        }
        match (format.probe)(source, name, memory) {
            Ok(()) => return Ok(Detected::Container(format)),
            Err(FormatError::Source(error)) => {
                return Err(Unread { is_meant: recognised == Recognition::Meant, error });
            }
            Err(error) if recognised == Recognition::Meant && refused.is_none() => refused = Some((*format, error)),
            Err(_) => {}
        }
    }
    Ok(refused.map_or(Detected::Plain, |(format, error)| Detected::Refused(format, error)))
}

/// Returns whether a file's name has a suffix of containers, finished or not.
pub fn is_container_name(formats: &[&'static Format], name: &OsStr) -> bool {
    format_of_name(formats, name).is_some()
}

/// Returns whether a file should be a container by its name, finished or not. If it is not, or cannot be read, that is
/// worth reporting.
pub fn should_be_container(formats: &[&'static Format], name: &OsStr) -> bool {
    let name = finished(name);
    let mut files = formats.iter().filter(|format| format.markers.is_empty());
    files.any(|format| format.suffixes.iter().any(|suffix| format::has_suffix(name, suffix)))
}

/// Returns the format that a file should have by its name. Formats whose containers are folders have none.
pub fn format_of_name(formats: &[&'static Format], name: &OsStr) -> Option<&'static Format> {
    formats.iter().copied().find(|format| format.markers.is_empty() && format.has_name(name))
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        path::{Path, PathBuf},
        sync::atomic::{AtomicU64, Ordering::Relaxed},
    };

    use super::*;
    use crate::{
        cache::{Cache, Verify},
        source::Wait,
    };

    #[test]
    fn every_example_is_of_its_format_and_has_its_suffix() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
        let mut known = BTreeSet::new();
        for format in FORMATS {
            assert!(!format.fixtures.is_empty(), "{format:?}");
            for name in format.fixtures {
                let path = folder.join(name);
                let marker = format.markers.iter().find(|marker| path.join(marker).is_file());
                assert_eq!(marker.is_some(), !format.markers.is_empty(), "{name}");
                let bytes = fs::read(marker.map_or(path.clone(), |marker| path.join(marker))).unwrap();
                let formats = if marker.is_some() { vec![format] } else { in_files() };
                let found = detect(&formats, &bytes, marker.unwrap_or(name).as_bytes()).unwrap();
                assert!(matches!(found, Detected::Container(found) if found == format), "{name}: {found:?}");
                assert!(format.has_name(OsStr::new(name)) || format.all_suffixes().next().is_none(), "{name}");
                if marker.is_none() {
                    known.insert(*name);
                }
            }
            let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/formats/{}.md", format.name));
            assert!(page.is_file(), "{} is missing", page.display());
        }
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let containers: BTreeSet<String> =
            entries.filter(|name| is_container_name(&FORMATS, OsStr::new(name))).collect();
        assert_eq!(containers.iter().map(String::as_str).collect::<BTreeSet<_>>(), known);
    }

    /// The formats whose containers are files.
    fn in_files() -> Vec<&'static Format> {
        FORMATS.into_iter().filter(|format| format.markers.is_empty()).collect()
    }

    /// All example and golden files, the damaged ones and what lies beside them.
    fn files() -> Vec<PathBuf> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let (mut folders, mut files) = (vec![root.join("fixtures"), root.join("tests/golden")], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        assert!(files.len() > 150, "{}", files.len());
        files
    }

    #[test]
    fn no_file_is_claimed_by_two_formats() {
        for path in files() {
            let (bytes, name) = (fs::read(&path).unwrap(), path.file_name().unwrap().as_encoded_bytes());
            let alone = |format: &'static Format| detect(&[format], &bytes, name).unwrap();
            let claims = |format: &&'static Format| matches!(alone(format), Detected::Container(_));
            let mut claimed: Vec<_> = in_files().into_iter().filter(claims).collect();
            // A tree sequence in Zarr is a store of Zarr, too; the first has it.
            claimed.dedup_by(|a, b| (a.name, b.name) == (ZARR.name, TSZIP.name));
            assert!(claimed.len() < 2, "{}: {claimed:?}", path.display());
            let found = detect(&in_files(), &bytes, name).unwrap();
            let found = if let Detected::Container(found) = found { Some(found) } else { None };
            assert_eq!(found, claimed.first().copied(), "{}", path.display());
        }
    }

    /// Counts the bytes that are read of a file.
    struct Counting(Vec<u8>, AtomicU64);

    impl Source for Counting {
        fn len(&self) -> u64 {
            Source::len(&self.0)
        }

        fn read_at(&self, offset: u64, buf: &mut [u8], wait: Wait) -> Result<(), SourceError> {
            self.1.fetch_add(buf.len() as u64, Relaxed);
            self.0.read_at(offset, buf, wait)
        }
    }

    #[test]
    fn what_a_probe_parsed_is_not_parsed_again() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
        for format in [&SAFETENSORS, &NPZ, &PT, &GGUF, &NETCDF, &KAST] {
            let name = format.fixtures[0];
            let source = Arc::new(Counting(fs::read(folder.join(name)).unwrap(), AtomicU64::new(0)));
            let cache = Cache::new(64 << 20, Verify::Lazy);
            let reader = ReadContext::new(source.clone(), cache.clone(), 1);
            let probed = || {
                let memory = WorkingMemory::new(&cache);
                detect_within(&[format], &*source, name.as_bytes(), &memory).unwrap();
                memory.into_probed()
            };
            let read = |probed| {
                source.1.store(0, Relaxed);
                let (tree, room) = format.open_within(&reader, probed, None).unwrap();
                let description = tree.description(&reader).unwrap().to_vec();
                assert!(room.bytes() >= tree.memory_usage() as u64, "{name}");
                drop((tree, room));
                cache.forget(1);
                (source.1.load(Relaxed), description)
            };
            let kept = probed();
            assert!(kept.is_some(), "{name}");
            let (before, expected) = read(None);
            let (bytes, description) = read(kept);
            assert!(bytes == 0 && before > 8, "{name}: {bytes}, without it {before}");
            assert_eq!(description, expected, "{name}");
            // It counts until it is dropped.
            assert_eq!(cache.usage().1, 0, "{name}");
            let kept = probed();
            assert!(cache.usage().1 > 0, "{name}");
            drop(kept);
            assert_eq!(cache.usage().1, 0, "{name}");
        }
    }

    #[test]
    fn the_first_that_accepts_a_file_has_it_and_a_refusal_is_told_of_one_that_is_meant() {
        const fn toy(name: &'static str, recognise: fn(&Front<'_>) -> Recognition, probe: Probe) -> Format {
            Format {
                name,
                title: name,
                summary: "",
                suffixes: &[],
                shared_suffixes: &[],
                markers: &[],
                is_default: true,
                recognise,
                probe,
                open: |_, _, _| Err(FormatError::refused(format::Class::BadFormat, "no")),
                others: no_others,
                check_others: None,
                check_part: no_part,
                fixtures: &[],
            }
        }
        fn no(_: &dyn Source, _: &[u8], _: &dyn Memory) -> Result<(), FormatError> {
            Err(FormatError::refused(format::Class::BadFormat, "no"))
        }
        fn yes(_: &dyn Source, _: &[u8], _: &dyn Memory) -> Result<(), FormatError> {
            Ok(())
        }
        static MAY_NOT: Format = toy("may not", |_| Recognition::Maybe, no);
        static SHOULD_NOT: Format = toy("should not", |_| Recognition::Meant, no);
        static NEVER: Format = toy("never", |_| Recognition::No, yes);
        static DOES: Format = toy("does", |front| front.by_magic(b"P", 1), yes);
        let found = |formats: &[&'static Format]| match detect(formats, &b"PK".to_vec(), b"a").unwrap() {
            Detected::Container(format) => ("container", format.name),
            Detected::Refused(format, _) => ("refused", format.name),
            Detected::Plain => ("plain", ""),
        };
        assert_eq!(found(&[&NEVER, &MAY_NOT, &SHOULD_NOT, &DOES]), ("container", "does"));
        assert_eq!(found(&[&MAY_NOT, &SHOULD_NOT]), ("refused", "should not"));
        assert_eq!(found(&[&MAY_NOT, &NEVER]), ("plain", ""));
        assert!(matches!(detect(&[&DOES], &Vec::new(), b"a").unwrap(), Detected::Plain));
    }
}
