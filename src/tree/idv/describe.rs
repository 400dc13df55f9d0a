//! `container.json` of an IDV file: what its front matter says (contract, sections 2 and 6).

use serde_json::{Map, Value, json};

use super::{Idv, names::Names, part_fault};
use crate::{
    cache::BlockError,
    codec::Codec,
    format::{
        Format,
        idv::{Column, Item, Type, Unusable, Version, compression},
    },
    limits, tree,
    view::Fault,
};

/// Blocks whose sizes are added up; of more, none are given.
const SUMMED: u64 = 1 << 16;

/// # Errors
/// Only for what can't be read; what is damaged is described as such.
pub(super) fn describe(idv: &Idv) -> Result<Value, Fault> {
    let file = &idv.file;
    let described = file.columns().min(limits::IDV_DESCRIBED);
    let names = readable(idv.names())?;
    let mut items: Vec<Value> = Vec::new();
    for index in 0..described {
        if let Some(column) = readable(file.column(&*idv.source, index).map_err(part_fault))?.flatten() {
            items.push(item(idv, names, &column)?.into());
        }
    }
    let mut description = Map::new();
    description.insert("format".into(), Format::Idv.name().into());
    description.insert("version".into(), file.version.to_string().into());
    description.insert("compatible_version".into(), file.compatible.to_string().into());
    description.insert("rows".into(), file.rows.into());
    description.insert("columns".into(), file.columns().into());
    if described < file.columns() {
        description.insert("columns_left_out".into(), (file.columns() - described).into());
    }
    description.insert("missing_values".into(), missing(file.version));
    description.insert("items".into(), items.into());
    Ok(description.into())
}

/// What could be read, be it damaged or not.
fn readable<T>(part: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match part {
        Ok(part) => Ok(Some(part)),
        Err(fault) if matches!(&*fault.error, BlockError::Source(_)) => Err(fault),
        Err(_) => Ok(None),
    }
}

/// What counts as missing in values of a version (`formats/idv.md` 8). The values are shown as they are stored.
fn missing(version: Version) -> Value {
    let least = version.has_missing().then_some("the least value");
    json!({
        "floats": "NaN",
        "keys": 0,
        "signed_integers": least,
        "unsigned_integers": null,
        "ticks": "-2^63",
        "DvBool": 2,
        "text": "missing.npy",
    })
}

fn item(idv: &Idv, names: Option<&Names>, column: &Column) -> Result<Map<String, Value>, Fault> {
    let folder = names.map_or_else(String::new, |names| names.folder_of(column.index, &column.name));
    let unusable = column.unusable();
    let meaning = column.codec.meaning.as_ref().ok();
    let shape = meaning.filter(|_| unusable.is_none()).and_then(|ty| {
        let mut shape = vec![idv.file.rows];
        if ty.slots() == Some(0) {
            return None;
        }
        shape.extend(ty.dims.iter().flatten());
        shape.extend((ty.item == Item::RowId).then_some(2));
        Some(shape)
    });
    let codec = String::from_utf8_lossy(&column.codec.name);
    let mut object = tree::Item {
        name: &column.name,
        path: format!("columns/{folder}"),
        dtype: meaning.filter(|_| unusable.is_none()).map(|ty| ty.item.dtype()),
        shape: shape.as_deref(),
        codec: &codec,
        stored_size: 0,
        size: 0,
        crc: None,
        inferred: false,
    }
    .into_json();
    let sums = sums(idv, column)?;
    object.insert("stored_size".into(), sums.map(|sums| sums.0).into());
    object.insert("size".into(), sums.map(|sums| sums.1).into());
    object.insert("index".into(), column.index.into());
    object.insert("type".into(), meaning.map(Type::describe).into());
    let hex: String = column.codec.parameters.iter().map(|byte| format!("{byte:02x}")).collect();
    object.insert("parameters".into(), hex.into());
    object.insert("dims".into(), meaning.and_then(|ty| ty.dims.clone()).into());
    let key = meaning.and_then(|ty| ty.key);
    let key = key.map(|key| json!({"count": key.count, "min": key.min, "contiguous": key.contiguous}));
    object.insert("key".into(), key.into());
    let name = compression(column.compression).map_or("unknown", Codec::name);
    object.insert("compression".into(), name.into());
    object.insert("compression_kind".into(), column.compression.into());
    object.insert("rows_per_block".into(), column.rows_per_block.into());
    object.insert("blocks".into(), column.blocks.into());
    object.insert("hidden".into(), names.is_some_and(|names| names.is_hidden(column.index)).into());
    let status = match &unusable {
        None => "ok",
        Some(Unusable::Dead(_)) => "dead",
        Some(Unusable::Bad(_)) => "bad",
    };
    object.insert("status".into(), status.into());
    if let Some(unusable) = &unusable {
        object.insert("reason".into(), unusable.reason().into());
    }
    Ok(object)
}

/// Bytes of all blocks as they are stored and decoded, by their table; `None` where it is long or says nonsense.
fn sums(idv: &Idv, column: &Column) -> Result<Option<(u64, u64)>, Fault> {
    if column.table.is_err() || column.blocks > SUMMED {
        return Ok(None);
    }
    let records = readable(column.records(&*idv.source, 0, column.blocks).map_err(|error| part_fault(error.into())))?;
    Ok(records.and_then(|records| {
        records.iter().try_fold((0, 0), |(stored, size), record| {
            let block = record.block(idv.file.tail, column.compression).ok()?;
            Some((stored + block.stored_size, size + block.size))
        })
    }))
}
