//! PyTorch checkpoints (`docs/formats/pt.md`): a zip archive with a pickle, and a member for each storage.
//!
//! The pickle is run by a machine that makes only descriptions of tensors, containers and plain values.

mod machine;
mod tensor;
#[cfg(test)]
mod tests;
mod value;

pub use machine::{latin1, run};
pub use tensor::{Storage, Tensor, Type};
pub use value::{Object, Pickled, Span, Value, decimal};

use super::{
    Class, FormatError, Front, Recognition,
    zip::{self, Archive, Member, MemberError},
};
use crate::{
    codec::Codec,
    limits,
    source::{Memory, Source, to_usize, zeros},
};

/// The suffixes of checkpoints. Other kinds of files use them, too.
pub const SUFFIXES: &[&str] = &[".pt", ".pth", ".ckpt", "pytorch_model*.bin"];

/// The suffix of the files of a distributed checkpoint (`torch.distributed.checkpoint`): what `torch.save` writes for
/// each tensor, one after the other.
const PARTS: &[&str] = &[".distcp"];

/// The first bytes of files of PyTorch before 1.6, which are not archives: a pickle of a number.
const LEGACY: [u8; 14] = [0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];

/// The name of the pickle below the root.
const PICKLE: &[u8] = b"/data.pkl";

/// The name of a member below the root that only programs in TorchScript have.
const CONSTANTS: &[u8] = b"/constants.pkl";

/// Largest `version` and `byteorder` that are read, in bytes.
const SHORT: u64 = 64;

/// A checkpoint.
#[derive(Debug)]
pub struct Checkpoint {
    /// The archive's members.
    pub archive: Archive,
    /// The folder that all members are in.
    pub root: Box<[u8]>,
    /// The text of the member `version`.
    pub version: Option<String>,
    /// Whether the elements of storages are big-endian.
    pub is_big: bool,
    /// The content of the pickle.
    pub pickled: Pickled,
}

/// Returns the root, if this is the name of the pickle in a folder.
fn root_of(name: &[u8]) -> Option<&[u8]> {
    root_before(name, PICKLE)
}

fn root_before<'a>(name: &'a [u8], end: &[u8]) -> Option<&'a [u8]> {
    name.strip_suffix(end).filter(|root| !root.is_empty() && !root.contains(&b'/'))
}

/// Recognises checkpoints by the name of their first member, and files of earlier versions.
pub fn recognise(front: &Front<'_>) -> Recognition {
    match zip::first_name(front.bytes) {
        _ if front.has_suffix(PARTS) => Recognition::No,
        Some(name) if root_of(name).is_some() => Recognition::Meant,
        Some(_) if front.has_suffix(SUFFIXES) => Recognition::Meant,
        None if front.bytes.starts_with(&LEGACY) => Recognition::Meant,
        _ => Recognition::No,
    }
}

fn refused<T>(class: Class, reason: impl Into<String>) -> Result<T, FormatError> {
    Err(FormatError::refused(class, reason))
}

/// Reads the directory and the pickle, in the order of section 2.
///
/// # Errors
/// `Refused` if it is not a checkpoint; `Source` if it cannot be read or there is not enough memory.
pub fn parse_within(source: &dyn Source, memory: &dyn Memory) -> Result<Checkpoint, FormatError> {
    let front = source.read(0..source.len().min(LEGACY.len() as u64))?;
    if front.starts_with(&LEGACY) {
        return refused(Class::Legacy, "a checkpoint of PyTorch before 1.6; load and save it again");
    }
    let mut archive = zip::parse_within(source, memory)?;
    archive.ignore_zero_checksums();
    let first = archive.members.iter().find(|member| member.offset == 0);
    let Some((pickle, root)) = first.and_then(|member| Some((member, root_of(&member.name)?))) else {
        // The first member of a program with weights is one of these.
        check_kind(&archive)?;
        return refused(Class::BadLayout, "the first member is not data.pkl in a folder");
    };
    check_layout(&archive, root, memory)?;
    let below = |name: &[u8]| [root, b"/", name].concat();
    let find = |name: &[u8]| {
        let name = below(name);
        archive.members.iter().find(|member| *member.name == *name)
    };
    let short = |name: &[u8]| match find(name) {
        Some(member) if member.size > SHORT => {
            refused(Class::BadLayout, format!("{} is too long", shown(&member.name)))
        }
        Some(member) => read(source, member, Class::BadLayout).map(Some),
        None => Ok(None),
    };
    let is_big = match short(b"byteorder")?.as_deref() {
        None | Some(b"little") => false,
        Some(b"big") => true,
        Some(other) => return refused(Class::BadLayout, format!("byte order {}", shown(other))),
    };
    let version = short(b"version")?;
    let version = version.map(|text| String::from_utf8_lossy(&text).split_whitespace().collect());
    if pickle.size > limits::PICKLE {
        return refused(Class::BadPickle, format!("{} bytes, the most is {}", pickle.size, limits::PICKLE));
    }
    memory.reserve(pickle.size.saturating_add(pickle.stored_size.min(pickle.size)))?;
    let bytes = read(source, pickle, Class::BadPickle)?;
    let pickled = run(bytes, memory)?;
    check_walk(&pickled)?;
    let root = root.into();
    Ok(Checkpoint { archive, root, version, is_big, pickled })
}

fn shown(name: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(name))
}

/// Fails if the archive is a program.
fn check_kind(archive: &Archive) -> Result<(), FormatError> {
    match archive.members.iter().any(|member| root_before(&member.name, CONSTANTS).is_some()) {
        true => refused(Class::Torchscript, "it is a program in TorchScript"),
        false => Ok(()),
    }
}

/// Fails if members lie outside the root, there is another pickle, or two have one name.
fn check_layout(archive: &Archive, root: &[u8], memory: &dyn Memory) -> Result<(), FormatError> {
    memory.reserve(archive.members.len() as u64 * 40)?;
    let mut seen = std::collections::HashSet::with_capacity(archive.members.len());
    let mut pickles = 0;
    for Member { name, .. } in &archive.members {
        pickles += usize::from(name.ends_with(PICKLE));
        if !seen.insert(&**name) {
            return refused(Class::TwoPickles, format!("two members are called {}", shown(name)));
        }
    }
    if pickles > 1 {
        return refused(Class::TwoPickles, format!("{pickles} members are called data.pkl"));
    }
    for Member { name, .. } in &archive.members {
        if !name.strip_prefix(root).is_some_and(|rest| rest.starts_with(b"/")) {
            return refused(Class::BadLayout, format!("{} is outside {}", shown(name), shown(root)));
        }
    }
    check_kind(archive)
}

/// Reads and checks a small member.
fn read(source: &dyn Source, member: &Member, class: Class) -> Result<Vec<u8>, FormatError> {
    let name = || shown(&member.name);
    if let Some(reason) = member.error() {
        return refused(class, format!("{}: {reason}", name()));
    }
    let block = match member.data(source) {
        Ok(data) => member.block(data),
        Err(MemberError::Damaged(reason)) => return refused(class, format!("{}: {reason}", name())),
        Err(MemberError::Source(error)) => return Err(error.into()),
    };
    // Decoding takes as long as reading this many bytes.
    source.admit(block.size)?;
    let stored = source.read(block.stored())?;
    let bytes = if block.codec == Codec::None {
        stored
    } else {
        let mut bytes = zeros(to_usize(block.size)).map_err(crate::source::SourceError::from)?;
        match block.codec.decode_into(&stored, &mut bytes) {
            Ok(()) => bytes,
            Err(error) => match error.of_source() {
                Ok(error) => return Err(error.into()),
                Err(error) => return refused(class, format!("{}: {error}", name())),
            },
        }
    };
    match block.crc {
        Some(crc) if crc.kind.of(&bytes) != crc.value => {
            refused(Class::BadCrc, format!("{}: the checksum is not that of its bytes", name()))
        }
        _ => Ok(bytes),
    }
}

/// Fails if the content of a pickle is nested too deep, has too many values, or shows too many bytes of text (section
/// 6). Later walks through the values need no bounds of their own.
pub fn check_walk(pickled: &Pickled) -> Result<(), FormatError> {
    Walk { pickled, nodes: 0, text: 0 }.visit(pickled.root, 0, 0)
}

struct Walk<'a> {
    pickled: &'a Pickled,
    nodes: usize,
    /// Bytes of texts and names, counted each time they occur.
    text: u64,
}

impl Walk<'_> {
    fn visit(&mut self, value: Value, depth: usize, path: u64) -> Result<(), FormatError> {
        let too_many = |reason: String| refused(Class::TooMany, reason);
        self.nodes += 1;
        if self.nodes > limits::PICKLE_NODES {
            return too_many(format!("more than {} values", limits::PICKLE_NODES));
        }
        let object = if let Value::Object(number) = value { self.pickled.object(number) } else { None };
        let is_tensor = matches!(object, Some(Object::Tensor(_)));
        if depth > limits::PICKLE_DEPTH && !is_tensor {
            return too_many(format!("values deeper than {}", limits::PICKLE_DEPTH));
        }
        self.text += weight(value);
        match object {
            Some(Object::List(values) | Object::Tuple(values)) => {
                for &value in values {
                    self.visit(value, depth + 1, path + 20)?;
                }
            }
            Some(Object::Set(values)) => self.text += values.iter().copied().map(weight).sum::<u64>(),
            Some(Object::Dict(pairs, _)) => {
                for &(key, value) in pairs {
                    self.text += weight(key);
                    self.visit(value, depth + 1, path + 1 + weight(key))?;
                }
            }
            Some(Object::Made(text)) => self.text += text.len() as u64,
            Some(Object::Tensor(_) | Object::Storage(_)) => self.text += path,
            None if matches!(value, Value::Unknown(_) | Value::Global(_)) => self.text += path,
            Some(Object::Complex(..)) | None => {}
        }
        if self.text > limits::PICKLE_TEXT {
            return too_many(format!("names and texts of more than {} bytes", limits::PICKLE_TEXT));
        }
        Ok(())
    }
}

/// Returns about how many bytes of text a value is shown as. Long integers weigh more, because their digits take time.
fn weight(value: Value) -> u64 {
    match value {
        Value::Text(span) | Value::Bytes(span) | Value::Latin1(span) => u64::from(span.end - span.start),
        Value::Long(span) => 64 * u64::from(span.end - span.start),
        _ => 20,
    }
}
