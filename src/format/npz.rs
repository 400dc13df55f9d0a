//! npz files (`docs/formats/npz.md`): zip archives whose members are all `.npy` files.

use super::{
    Class, FormatError, Front, Recognition,
    zip::{self, Archive},
};
use crate::source::{Memory, Source};

/// What the name of every member ends with.
pub const SUFFIX: &[u8] = b".npy";

/// Recognises npz files by the name of their first member, or by their own.
pub fn recognise(front: &Front<'_>) -> Recognition {
    match zip::first_name(front.bytes) {
        _ if front.has_suffix(&[".npz"]) => Recognition::Meant,
        Some(name) if name.ends_with(SUFFIX) => Recognition::Maybe,
        _ => Recognition::No,
    }
}

/// Reads the directory (section 4).
///
/// # Errors
/// `Refused` if it is not an npz file; `Source` if it cannot be read or there is not enough memory.
pub fn parse_within(source: &dyn Source, memory: &dyn Memory) -> Result<Archive, FormatError> {
    let archive = zip::parse_within(source, memory)?;
    if archive.members.is_empty() {
        return Err(FormatError::refused(Class::NoMembers, "the archive is empty"));
    }
    if let Some(other) = archive.members.iter().find(|member| !member.name.ends_with(SUFFIX)) {
        let name = String::from_utf8_lossy(&other.name);
        return Err(FormatError::refused(Class::NotNpy, format!("{name:?} is no .npy file")));
    }
    Ok(archive)
}
