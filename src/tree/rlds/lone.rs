//! Features that are shown by their stored kind: those of lone files, and those of a data set that cannot be
//! interpreted (`docs/formats/rlds.md` 4).

use super::{
    record::{File, Files, suffix},
    values::Making,
};
use crate::{
    format::{
        DType,
        tfrecord::example::{List, ListKind},
    },
    tree::paths::{NodeIndex, ROOT},
    view::{Array, Fault, View},
};

/// The leaf number of features without a leaf.
const NO_LEAF: u32 = (1 << 24) - 1;

/// Adds all features of a record.
pub(super) fn fill(files: &mut Files<'_>) -> Result<(), Fault> {
    let content = files.content.clone();
    (0..content.features.len() as u32).try_for_each(|feature| {
        let key = content.features.get(feature as usize).map_or(&[][..], |feature| &feature.key);
        add(files, ROOT, key, &[], feature)
    })
}

/// Adds a feature under a name whose parts are split at `/`.
pub(super) fn add(
    files: &mut Files<'_>,
    top: NodeIndex,
    name: &[u8],
    reserved: &[&str],
    feature: u32,
) -> Result<(), Fault> {
    let content = files.content.clone();
    let list = content.list(feature);
    let (folder, part) = files.builder.folders_of(top, name, reserved);
    match list.kind {
        ListKind::None => files.add(folder, part, ".bin", File::Bytes(View::default())),
        ListKind::Integers => {
            let made = content.made(feature, NO_LEAF, Making::Elements(DType::I64), list.count * 8);
            files.array(folder, part, Array::new(DType::I64, [list.count], made))
        }
        ListKind::Floats => {
            let stored = floats(files, feature, NO_LEAF);
            files.array(folder, part, Array::new(DType::F32, [list.count], stored))
        }
        ListKind::Bytes => bytes(files, (folder, part), feature, list),
    }
}

/// Returns floats of 32 bits. If they are in one piece, they are read as stored.
pub(super) fn floats(files: &Files<'_>, feature: u32, leaf: u32) -> View {
    let (content, list) = (&files.content, files.content.list(feature));
    match list.spans.as_slice() {
        [] => View::default(),
        [span] => content.stored([*span]),
        _ => content.made(feature, leaf, Making::Elements(DType::F32), list.count * 4),
    }
}

fn bytes(files: &mut Files<'_>, (folder, part): (NodeIndex, &[u8]), feature: u32, list: &List) -> Result<(), Fault> {
    if let [span] = list.spans.as_slice() {
        let value = files.part().get(span);
        let suffix = match suffix(value) {
            ".bin" if is_text(value) => ".txt",
            suffix => suffix,
        };
        let view = files.content.stored([*span]);
        return files.add(folder, part, suffix, File::Bytes(view));
    }
    if list.bytes(files.part()).all(is_text) {
        return files.texts(folder, part, feature, NO_LEAF);
    }
    let folder = files.folder(folder, part);
    files.numbered(folder, feature, false)
}

/// Returns whether bytes are a text: UTF-8 without control characters other than tabs and line ends.
fn is_text(bytes: &[u8]) -> bool {
    let is_control = |byte: &u8| matches!(byte, 0..=8 | 0x0B | 0x0C | 0x0E..=0x1F | 0x7F);
    !bytes.iter().any(is_control) && std::str::from_utf8(bytes).is_ok()
}
