//! `container.json` of an IDV file: what its front matter says (`docs/TREE.md`, sections 2 and 6).

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{IDV, Idv, names::Names, part_fault};
use crate::{
    cache::{BlockError, Buffer},
    escape,
    format::idv::{Column, Type, Unusable, Version, compression},
    limits,
    source::Memory,
    tree::{
        ItemInfo,
        describe::{self, document},
        overview,
        tables::described_tables,
    },
    view::{Fault, ReadContext},
};

/// Bytes of memory that describing a column takes, in addition to several times its texts.
const COLUMN: u64 = 2048;

/// Most blocks whose sizes are added up. For more, no sums are given.
const SUMMED: u64 = 1 << 16;

/// Returns `container.json`.
///
/// # Errors
/// Only for what cannot be read; damage is described.
pub(super) fn describe(idv: &Idv, reader: &ReadContext, memory: &dyn Memory) -> Result<Buffer, Fault> {
    let file = &idv.file;
    let described = file.columns().min(limits::IDV_DESCRIBED);
    let room = u64::from(described) * COLUMN + 8 * file.entry_size(0..described);
    memory.reserve(room)?;
    let (names, columns) = columns(idv, reader)?;
    let items: Vec<_> = columns.iter().map(|column| item(idv, reader, names, column)).collect::<Result<_, _>>()?;
    let mut description = Map::new();
    description.insert("format".into(), IDV.name.into());
    description.insert("version".into(), file.version.to_string().into());
    description.insert("compatible_version".into(), file.compatible.to_string().into());
    description.insert("rows".into(), file.rows.into());
    description.insert("columns".into(), file.columns().into());
    if described < file.columns() {
        description.insert("columns_left_out".into(), (file.columns() - described).into());
    }
    description.insert("missing_values".into(), missing(file.version));
    let table = readable(idv.described_table(reader, memory))?.flatten();
    document(&description, items.iter(), &described_tables(table.into_iter().collect()), memory)
}

/// Returns the bytes of memory that [`overview`] takes, about.
pub(super) fn overview_memory(idv: &Idv) -> u64 {
    let described = idv.file.columns().min(limits::IDV_DESCRIBED);
    u64::from(described).saturating_mul(COLUMN / 2).saturating_add(4 * idv.file.entry_size(0..described))
}

/// Returns an overview for people.
///
/// # Errors
/// As [`describe`].
pub(super) fn overview(idv: &Idv, reader: &ReadContext) -> Result<overview::Table, Fault> {
    let (names, columns) = columns(idv, reader)?;
    let columns = columns.iter().map(|column| {
        let (meaning, unusable) = (column.codec.meaning.as_ref().ok(), column.unusable());
        let sums = sums(idv, reader, column)?;
        Ok(overview::Column {
            name: String::from_utf8_lossy(&column.name).into_owned(),
            kind: meaning.map_or_else(|| String::from_utf8_lossy(&column.codec.name).into_owned(), Type::describe),
            path: names.map_or_else(String::new, |names| path_of(names, column)),
            key: meaning.and_then(|ty| ty.key),
            key_names: names.map(|names| format!("{}/metadata/KeyValues.jsonl", path_of(names, column))),
            blocks: column.blocks,
            rows_per_block: column.rows_per_block,
            compression: compression(column.compression).map(|codec| codec.kind()),
            compression_kind: column.compression,
            stored_size: sums.map(|sums| sums.0),
            size: sums.map(|sums| sums.1),
            hidden: names.is_some_and(|names| names.is_hidden(column.index)),
            unusable: unusable.as_ref().map(|unusable| (status(Some(unusable)), unusable.reason().into())),
        })
    });
    Ok(overview::Table {
        version: idv.file.version.to_string(),
        compatible_version: idv.file.compatible.to_string(),
        rows: idv.file.rows,
        column_count: idv.file.columns(),
        columns: columns.collect::<Result<_, Fault>>()?,
        left_out: u64::from(idv.file.columns().saturating_sub(limits::IDV_DESCRIBED)),
    })
}

/// Returns the described columns, and the names of all.
fn columns<'a>(idv: &'a Idv, reader: &ReadContext) -> Result<(Option<&'a Names>, Vec<Column>), Fault> {
    let names = readable(idv.names(reader))?;
    let mut columns = Vec::new();
    for index in 0..idv.file.columns().min(limits::IDV_DESCRIBED) {
        columns.extend(readable(idv.file.column(&*reader.source, index).map_err(part_fault))?.flatten());
    }
    Ok((names, columns))
}

/// Returns the path of a column's folder.
fn path_of(names: &Names, column: &Column) -> String {
    format!("columns/{}", names.folder_of(column.index, &column.name))
}

/// Returns one word for whether the values of a column can be shown.
fn status(unusable: Option<&Unusable>) -> &'static str {
    match unusable {
        None => "ok",
        Some(Unusable::Dead(_)) => "dead",
        Some(Unusable::Bad(_)) => "bad",
    }
}

/// Returns what could be read, damaged or not.
fn readable<T>(part: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match part {
        Ok(part) => Ok(Some(part)),
        Err(fault) if matches!(&*fault.error, BlockError::Source(_)) => Err(fault),
        Err(_) => Ok(None),
    }
}

/// Returns what counts as missing in values of a version (`docs/formats/idv.md` 8). Values are shown as stored.
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

/// The keys of an item that only columns have.
#[derive(Serialize)]
struct Own {
    index: u32,
    r#type: Option<String>,
    parameters: String,
    dims: Option<Vec<u64>>,
    key: Option<Value>,
    compression: &'static str,
    compression_kind: u8,
    rows_per_block: u64,
    blocks: u64,
    hidden: bool,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

fn item<'a>(
    idv: &Idv,
    reader: &ReadContext,
    names: Option<&Names>,
    column: &'a Column,
) -> Result<describe::Item<'a, Own>, Fault> {
    let folder = names.map_or_else(String::new, |names| names.folder_of(column.index, &column.name));
    let unusable = column.unusable();
    let meaning = column.codec.meaning.as_ref().ok();
    let usable = meaning.filter(|_| unusable.is_none());
    let shape = usable.and_then(Type::row_shape).map(|row| [&[idv.file.rows], &*row].concat());
    let key = meaning.and_then(|ty| ty.key);
    let own = Own {
        index: column.index,
        r#type: meaning.map(Type::describe),
        parameters: escape::hex(&column.codec.parameters),
        dims: meaning.and_then(|ty| ty.dims.clone()),
        key: key.map(|key| json!({"count": key.count, "min": key.min, "contiguous": key.contiguous})),
        compression: compression(column.compression).map_or("unknown", |codec| codec.kind()),
        compression_kind: column.compression,
        rows_per_block: column.rows_per_block,
        blocks: column.blocks,
        hidden: names.is_some_and(|names| names.is_hidden(column.index)),
        status: status(unusable.as_ref()),
        reason: unusable.as_ref().map(|unusable| unusable.reason().into()),
    };
    let sums = sums(idv, reader, column)?;
    let info = ItemInfo { shape, stored_size: sums.map(|sums| sums.0), ..ItemInfo::default() };
    // numpy has no dtype for text.
    let dtype = usable.map(|ty| ty.item.name());
    let size = sums.map(|sums| sums.1);
    // Here `codec` is the codec of the values; `compression` is that of the blocks.
    let codec = String::from_utf8_lossy(&column.codec.name);
    Ok(describe::Item::of(&column.name, format!("columns/{folder}"), size, info, own)
        .with_names(dtype.map(Into::into), codec))
}

/// Returns the bytes of all blocks, stored and decoded, by their table; `None` if it is long or impossible.
fn sums(idv: &Idv, reader: &ReadContext, column: &Column) -> Result<Option<(u64, u64)>, Fault> {
    if column.table.is_err() || column.blocks > SUMMED {
        return Ok(None);
    }
    let records =
        readable(column.records(&*reader.source, 0, column.blocks).map_err(|error| part_fault(error.into())))?;
    Ok(records.and_then(|records| {
        records.iter().try_fold((0, 0), |(stored, size), record| {
            let block = record.block(idv.file.tail, column.compression).ok()?;
            Some((block.stored_size.checked_add(stored)?, block.size.checked_add(size)?))
        })
    }))
}
