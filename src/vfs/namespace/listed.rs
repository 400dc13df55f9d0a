//! What a listing says of an entry, as JSON: `shardfs ls --json`, and folders over HTTP.

use std::path::Path;

use serde_json::{Value, json};

use crate::{
    escape,
    tree::ItemInfo,
    vfs::{Attr, FileKind},
};

/// Returns the entry at `path` as JSON. `attr` is `None` if its attributes could not be read; the entry is listed
/// anyway.
pub(crate) fn to_json(path: &Path, attr: Option<&Attr>, info: &ItemInfo) -> Value {
    let kind = attr.map(|attr| match attr.kind {
        FileKind::Folder => "folder",
        FileKind::File => "file",
        FileKind::Link => "link",
    });
    let mtime = attr.map(|attr| attr.mtime);
    let object = json!({
        "path": path.to_string_lossy(),
        "kind": kind,
        "size": attr.map(|attr| attr.size),
        "mtime": mtime.map(|(seconds, nanos)| seconds as f64 + f64::from(nanos) / 1e9),
        "mtime_ns": mtime.and_then(|(seconds, nanos)| seconds.checked_mul(1_000_000_000)?.checked_add(nanos.into())),
        "dtype": info.dtype,
        "shape": info.shape,
    });
    escape::with_hex(object, "path", path)
}
