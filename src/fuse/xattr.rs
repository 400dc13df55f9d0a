//! What is known of stored items as extended attributes, where the mount was asked for them.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use fuser::{Errno, ReplyXattr};

use crate::{
    source::Wait,
    tree::ItemInfo,
    vfs::{Error, Vfs},
};

const PREFIX: &str = "user.shardfs.";
const NAMES: [&str; 6] = ["dtype", "shape", "codec", "stored_size", "crc32c", "inferred"];

/// Returns the value of an attribute, by its name without the prefix.
fn value(info: &ItemInfo, name: &str) -> Option<String> {
    match name {
        "dtype" => info.dtype.as_ref().map(|dtype| dtype.name().into_owned()),
        "shape" => info.shape_text(),
        "codec" => info.codec.as_deref().map(str::to_owned),
        "stored_size" => info.stored_size.map(|size| size.to_string()),
        "crc32c" => info.crc32c.map(|crc| format!("0x{crc:08x}")),
        "inferred" => info.inferred.then(|| "true".to_owned()),
        _ => None,
    }
}

/// Returns whether a name may be one of ours. Programs ask for others (ACLs, capabilities) for each file that they
/// list; these are answered without looking at the file.
pub(super) fn is_ours(name: &OsStr) -> bool {
    name.as_bytes().starts_with(PREFIX.as_bytes())
}

/// Returns the value of an attribute; `None` if the item does not have it.
pub(super) fn get(vfs: &Vfs, ino: u64, name: &OsStr, wait: Wait) -> Result<Option<Vec<u8>>, Error> {
    let info = vfs.item_info(ino, wait)?.unwrap_or_default();
    let value = name.to_str().and_then(|name| value(&info, name.strip_prefix(PREFIX)?));
    Ok(value.map(String::into_bytes))
}

pub(super) fn list(vfs: &Vfs, ino: u64, wait: Wait) -> Result<Option<Vec<u8>>, Error> {
    vfs.item_info(ino, wait).map(|info| Some(names(&info.unwrap_or_default())))
}

/// Returns the names of an item's attributes, each ended by a zero byte.
fn names(info: &ItemInfo) -> Vec<u8> {
    let has = |name: &&&str| value(info, name).is_some();
    NAMES.iter().filter(has).flat_map(|name| format!("{PREFIX}{name}\0").into_bytes()).collect()
}

/// Answers with the value, or with its length if the size is 0.
pub(super) fn answer(value: Option<Vec<u8>>, size: u32, reply: ReplyXattr) {
    let Some(value) = value else { return reply.error(Errno::NO_XATTR) };
    match u32::try_from(value.len()) {
        Ok(length) if size == 0 => reply.size(length),
        Ok(length) if length <= size => reply.data(&value),
        _ => reply.error(Errno::ERANGE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::DType;

    #[test]
    fn only_what_is_known_is_listed() {
        let (dtype, shape) = (Some(DType::F32.into()), Some(vec![24, 7]));
        let info = ItemInfo { dtype, shape, crc32c: Some(0xbeef), ..ItemInfo::default() };
        assert_eq!(names(&info), b"user.shardfs.dtype\0user.shardfs.shape\0user.shardfs.crc32c\0");
        assert_eq!(value(&info, "shape").as_deref(), Some("[24,7]"));
        assert_eq!(value(&info, "crc32c").as_deref(), Some("0x0000beef"));
        assert_eq!(value(&info, "inferred"), None);
        assert!(names(&ItemInfo::default()).is_empty());
    }
}
