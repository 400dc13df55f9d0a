//! The superblock: where a file begins, and where its root is (sections 1 and 2).

use super::{Error, Object, Place, Reader, Sizes, Structure, header, lookup3, open_links};
use crate::{
    format::{Class, FormatError, Front, PartError, Recognition},
    source::{Memory, Source, Unlimited, to_usize},
};

/// The signature, which stands at one of several places.
pub(super) const SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";

/// Suffixes that only HDF5 has.
pub const SUFFIXES: [&str; 8] = [".h5", ".hdf5", ".he5", ".h5ad", ".h5mu", ".loom", ".nwb", ".nc4"];

/// Suffixes that other files have, too.
pub const SHARED_SUFFIXES: [&str; 4] = [".hdf", ".nc", ".cdf", ".mat"];

/// Where the signature is looked for in any file, and the last place where it is looked for if the name has one of the
/// suffixes.
const PLACES: [u64; 4] = [0, 512, 1024, 2048];
const LAST: u64 = 1 << 20;

/// The most bytes of a superblock: version 1 with sizes of 8 bytes.
const MOST: u64 = 104;

/// The content of the superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// Its version, 0 to 3.
    pub version: u8,
    /// Sizes of addresses and lengths, and where addresses count from.
    pub sizes: Sizes,
    /// Whether a writer has the file open.
    pub is_writing: bool,
    /// The address of the superblock's extension.
    pub extension: Option<Place>,
    /// The address of the root group.
    pub root: Place,
}

/// Returns whether a file may be HDF5, by its front and name.
pub fn recognise(front: &Front<'_>) -> Recognition {
    let has = |at: u64| front.bytes.get(to_usize(at)..).is_some_and(|bytes| bytes.starts_with(&SIGNATURE));
    if PLACES.into_iter().any(has) {
        return Recognition::Meant;
    }
    let is_classic = front.bytes.starts_with(b"CDF") && matches!(front.bytes.get(3), Some(1 | 2 | 5));
    if front.has_suffix(&SUFFIXES) && !is_classic && front.len > 0 {
        return Recognition::Meant;
    }
    let may_be_later = front.has_suffix(&SHARED_SUFFIXES) && front.len > 2 * PLACES[3];
    if may_be_later { Recognition::Maybe } else { Recognition::No }
}

/// Returns whether a name allows the signature beyond the usual places.
fn has_name(name: &[u8]) -> bool {
    Front { bytes: &[], len: 0, name }.has_suffix(&SUFFIXES)
        || Front { bytes: &[], len: 0, name }.has_suffix(&SHARED_SUFFIXES)
}

/// Returns where the signature is, in a file with this name. Without a name, all places are searched.
fn find(source: &dyn Source, name: Option<&[u8]>) -> Result<u64, FormatError> {
    let mut at = 0;
    let last = if name.is_none_or(has_name) { LAST } else { PLACES[3] };
    while at <= last && at.saturating_add(8) <= source.len() {
        if source.read(at..at + 8)? == SIGNATURE {
            return Ok(at);
        }
        at = if at == 0 { 512 } else { 2 * at };
    }
    Err(FormatError::refused(Class::NoSignature, "no signature of HDF5 where one should be"))
}

/// Parses the superblock of a file. The name says where the signature is looked for.
///
/// # Errors
/// Why the file must be refused.
pub fn parse(source: &dyn Source, name: Option<&[u8]>, memory: &dyn Memory) -> Result<Superblock, FormatError> {
    let base = find(source, name)?;
    let bytes = source.read(base..source.len().min(base + MOST))?;
    let refused = |class, reason: String| Err(FormatError::refused(class, reason));
    let cut = |_| FormatError::refused(Class::Truncated, "the file ends inside its superblock");
    let field = |at: usize| bytes.get(at).copied().ok_or_else(|| cut(()));
    let version = field(8)?;
    let (offset, length, flags) = match version {
        0 | 1 => (field(13)?, field(14)?, 0),
        2 | 3 => (field(9)?, field(10)?, field(11)?),
        _ => return refused(Class::BadSuperblock, format!("superblock of version {version}; known are 0 to 3")),
    };
    if ![offset, length].iter().all(|size| [2, 4, 8].contains(size)) {
        return refused(Class::BadSuperblock, format!("addresses of {offset} bytes, lengths of {length}"));
    }
    let sizes = Sizes { base, offset, length };
    let mut rest = Structure::new(&bytes, base, sizes);
    let damaged = |error: Error| match error {
        Error::Damaged { .. } => cut(()),
        Error::Source(error) => error.into(),
    };
    let mut driver = None;
    let (stored_base, extension, end, root);
    if version < 2 {
        rest.skip(if version == 0 { 24 } else { 28 }).map_err(damaged)?;
        stored_base = rest.address().map_err(damaged)?;
        rest.address().map_err(damaged)?;
        end = rest.address().map_err(damaged)?;
        driver = rest.address().map_err(damaged)?;
        rest.length().map_err(damaged)?;
        root = rest.address().map_err(damaged)?;
        extension = None;
        rest.skip(24).map_err(damaged)?;
    } else {
        rest.skip(12).map_err(damaged)?;
        stored_base = rest.address().map_err(damaged)?;
        extension = rest.address().map_err(damaged)?;
        end = rest.address().map_err(damaged)?;
        root = rest.address().map_err(damaged)?;
        let computed = lookup3(bytes.get(..rest.passed()).unwrap_or_default());
        let stored = rest.u32().map_err(damaged)?;
        if stored != computed {
            let reason = format!("superblock with checksum {computed:08x}, stored is {stored:08x}");
            return refused(Class::Checksum, reason);
        }
    }
    let reader = Reader { source, memory, sizes, extension };
    if let Some(name) = driver_name(&reader, driver, extension)?
        && matches!(&name, b"NCSAfami" | b"NCSAmult")
    {
        return refused(Class::Driver, format!("one of several files ({})", String::from_utf8_lossy(&name)));
    }
    // The stored end counts from the start of the file that the stored base assumes.
    let end = end.unwrap_or(u64::MAX);
    let end = end.saturating_add(base).saturating_sub(stored_base.unwrap_or(0));
    let is_swmr = version == 3 && flags & 4 != 0;
    if end > source.len() && !is_swmr {
        let reason = format!("the file has {} bytes, and should have {end}: incomplete copy?", source.len());
        return refused(Class::Truncated, reason);
    }
    let Some(root) = root else { return refused(Class::BadRoot, "no root group".into()) };
    Ok(Superblock { version, sizes, is_writing: version == 3 && flags & 5 != 0, extension, root })
}

/// Fails for a file whose superblock, root group or links of the root group cannot be read.
///
/// # Errors
/// Why the file must be refused.
pub fn probe(source: &dyn Source, name: &[u8], memory: &dyn Memory) -> Result<(), FormatError> {
    let superblock = parse(source, Some(name), memory)?;
    let reader = superblock.reader(source, memory);
    let links = Object::read(&reader, superblock.root).and_then(|root| open_links(&reader, &root));
    match links {
        Ok(_) => Ok(()),
        Err(Error::Damaged { place, reason }) => {
            Err(FormatError::refused(Class::BadRoot, format!("the root group: {reason}, at byte {place}")))
        }
        Err(Error::Source(error)) => Err(error.into()),
    }
}

/// Checks that a file to which another one leads has a sound superblock.
///
/// # Errors
/// Damage of its superblock.
pub fn check_part(source: &dyn Source) -> Result<(), PartError> {
    match parse(source, None, &Unlimited) {
        Ok(_) => Ok(()),
        Err(FormatError::Refused { reason, .. }) => Err(PartError::Damaged(reason)),
        Err(FormatError::Source(error)) => Err(error.into()),
    }
}

/// Returns the name of the driver that wrote the file, if the file states one.
fn driver_name(
    reader: &Reader<'_>,
    block: Option<Place>,
    extension: Option<Place>,
) -> Result<Option<[u8; 8]>, FormatError> {
    let name = |bytes: &[u8], at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk().copied());
    let found = match (block, extension) {
        (Some(block), _) => reader.read(block, 16).map(|bytes| name(&bytes, 8)),
        (None, Some(extension)) => header::read(reader, extension).and_then(|header| {
            let message = header.messages.iter().find(|message| message.kind == header::DRIVER);
            message.map_or(Ok(None), |message| Ok(name(header.bytes(message), 1)))
        }),
        (None, None) => return Ok(None),
    };
    match found {
        Ok(name) => Ok(name),
        // A damaged extension affects only the parts that need it.
        Err(Error::Damaged { .. }) => Ok(None),
        Err(Error::Source(error)) => Err(error.into()),
    }
}

impl Superblock {
    /// Returns a reader of the file's structures.
    pub fn reader<'a>(&self, source: &'a dyn Source, memory: &'a dyn Memory) -> Reader<'a> {
        Reader { source, memory, sizes: self.sizes, extension: self.extension }
    }
}
