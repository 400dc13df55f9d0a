//! The table of the container formats, and which of them a file has.

use std::{ffi::OsStr, path::Path};

use super::descriptor::{Format, finished};
pub use super::{
    gguf::GGUF,
    hdf5::HDF5,
    idv::IDV,
    kastore::{KAST, KASTORE},
    kdb::KDB,
    lerobot::LEROBOT,
    mcap::MCAP,
    netcdf::NETCDF,
    npz::NPZ,
    pt::PT,
    rlds::{RLDS, TFRECORD},
    rosbag::ROSBAG,
    safetensors::SAFETENSORS,
    wshard::WSHARD,
    zarr::{TSZIP, ZARR, ZARR_ZIP},
};
use crate::{
    format::{self, FormatError, Front, Recognition},
    source::{Memory, Source, SourceError, Unlimited},
};

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
            // It is one, so it is none of another format: what that shows would be something else.
            Err(error @ FormatError::Refused { class: format::Class::NotReadable, .. }) => {
                return Ok(Detected::Refused(format, error));
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

/// Returns whether a path begins with such a name.
pub fn begins_with_container(formats: &[&'static Format], path: &Path) -> bool {
    path.iter().next().is_some_and(|name| is_container_name(formats, name))
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
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering::Relaxed},
        },
    };

    use super::*;
    use crate::{
        cache::{Cache, Verify},
        source::Wait,
        tree::{Probe, WorkingMemory},
        view::ReadContext,
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
            Format { name, recognise, probe, ..Format::DEFAULT }
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
