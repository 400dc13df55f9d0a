//! Names in addresses: percent-encoding, both ways, for names of any bytes.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Component, Path},
};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use crate::{
    serve::Refusal,
    vfs::Attr,
    volume::{Entry, Volume},
};

/// All but the unreserved characters of RFC 3986, 2.3.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Returns the entry at an address, given without `/files` or `/dav`. Empty names are ignored, so that a folder may
/// have a slash behind it, and so is `.`, which clients put before a name with a colon (RFC 3986, 4.2).
///
/// # Errors
/// [`Refusal`] if it leads nowhere, or to an entry that the user who started the server may not read.
pub(crate) fn find(volume: &Volume, address: &str) -> Result<Entry, Refusal> {
    let mut entry = volume.root()?;
    let is_name = |name: &&str| !matches!(*name, "" | ".");
    for name in address.split('/').filter(is_name) {
        let name: Vec<u8> = percent_decode_str(name).collect();
        // No file has a slash, NUL or only dots as its name. Each part stays one name, never a path.
        if name.contains(&b'/') || name.contains(&0) || name == b"." || name == b".." {
            return Err(Refusal::not_found());
        }
        entry = entry.get(Path::new(OsStr::from_bytes(&name)))?;
    }
    let is_file_as_folder = !address.rsplit('/').next().is_some_and(|last| is_name(&last)) && !entry.is_folder();
    if is_file_as_folder || !is_shown(&entry) { Err(Refusal::not_found()) } else { Ok(entry) }
}

/// Encodes a name for an address.
pub(crate) fn encode_name(name: &OsStr) -> String {
    percent_encode(name.as_bytes(), ESCAPED).to_string()
}

/// Encodes a path below the top for an address, without a slash in front.
pub(crate) fn encode(path: &Path) -> String {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(encode_name(name)),
        _ => None,
    });
    names.collect::<Vec<_>>().join("/")
}

/// Returns the address of an entry on this server: `/files/…`, with a slash behind folders.
pub(crate) fn address(entry: &Entry) -> String {
    address_below("/files", entry.path(), entry.is_folder())
}

/// Returns the same as [`address`] by a path, behind another prefix.
pub(crate) fn address_below(prefix: &str, path: &Path, is_folder: bool) -> String {
    let path = encode(path);
    let slash = if is_folder && !path.is_empty() { "/" } else { "" };
    format!("{prefix}/{path}{slash}")
}

/// Returns whether the user who started the server may read an entry, by its mode.
pub(crate) fn is_shown(entry: &Entry) -> bool {
    is_readable(entry.attr())
}

/// Returns the same as [`is_shown`], from attributes.
pub(crate) fn is_readable(attr: &Attr) -> bool {
    let user = rustix::process::geteuid();
    let bit = if user.is_root() {
        return true;
    } else if attr.uid == user.as_raw() {
        0o400
    } else if is_member(attr.gid) {
        0o040
    } else {
        0o004
    };
    attr.mode & bit != 0
}

fn is_member(group: u32) -> bool {
    rustix::process::getegid().as_raw() == group
        || rustix::process::getgroups().is_ok_and(|groups| groups.iter().any(|gid| gid.as_raw() == group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_bytes() {
        let name = OsStr::from_bytes(b"a b%/\xff<\xc3\xa9>.npy");
        assert_eq!(encode_name(name), "a%20b%25%2F%FF%3C%C3%A9%3E.npy");
        assert_eq!(encode(Path::new("a/b c/d")), "a/b%20c/d");
    }

    #[test]
    fn addresses_lead_nowhere_else() {
        let volume = Volume::open("fixtures").unwrap();
        let found = |address: &str| find(&volume, address).map(|entry| crate::serve::http::paths::address(&entry));
        assert_eq!(found("/").as_deref(), Ok("/files/"));
        assert_eq!(found("/ep_001.wshard").as_deref(), Ok("/files/ep_001.wshard/"));
        assert_eq!(
            found("/ep_001.wshard//signal/joint%5Fpos.npy").as_deref(),
            Ok("/files/ep_001.wshard/signal/joint_pos.npy")
        );
        assert_eq!(found("/./ep_001.wshard/.").as_deref(), Ok("/files/ep_001.wshard/"));
        let wrong = [
            "/..",
            "/%2e%2e",
            "/%2E%2E/Cargo.toml",
            "/ep_001.wshard/..%2f..%2fCargo.toml",
            "/ep_001.wshard%2Fsignal",
            "/%2e",
            "/notes.txt/",
            "/notes.txt/.",
            "/notes.txt/x",
            "/nothing",
            "/notes.txt%00",
        ];
        for address in wrong {
            assert_eq!(find(&volume, address).unwrap_err(), Refusal::not_found(), "{address}");
        }
    }
}
