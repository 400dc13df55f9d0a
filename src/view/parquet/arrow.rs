//! Arrow's form of the schema, for the footer's key `ARROW:schema`. Parquet has neither fixed-size lists nor metadata
//! of a column. Readers that are built on Arrow (pyarrow, polars, DataFusion) take both from here.
//!
//! The value is an encapsulated message of Arrow's IPC format in base64. The numbers of fields and types are those of
//! `Message.fbs` and `Schema.fbs`.

use base64::{Engine, prelude::BASE64_STANDARD};
use flatbuffers::{FlatBufferBuilder, TableFinishedWIPOffset, VOffsetT, WIPOffset};
use serde_json::{Map, Value};

use super::{
    column::{Column, ELEMENT},
    compact::{Logical, Type},
    element::ValueType,
};

/// The footer's key.
pub(super) const KEY: &str = "ARROW:schema";

/// Comes before a message.
const CONTINUATION: u32 = u32::MAX;

/// `MetadataVersion` of Arrow 1.0 and later.
const VERSION_5: i16 = 4;

/// `MessageHeader`: a schema.
const SCHEMA: u8 = 1;

type Table = WIPOffset<TableFinishedWIPOffset>;

/// Returns the value of [`KEY`] for a table of these columns. `about` describes the table as a whole.
pub(super) fn schema<'a>(columns: impl Iterator<Item = &'a Column>, about: &Map<String, Value>) -> String {
    let mut out = FlatBufferBuilder::new();
    let fields: Vec<_> = columns.map(|column| column_field(&mut out, column)).collect();
    let fields = out.create_vector(&fields);
    let metadata = pairs(&mut out, about);
    let metadata = out.create_vector(&metadata);
    let start = out.start_table();
    out.push_slot_always(slot(1), fields);
    out.push_slot_always(slot(2), metadata);
    let schema = out.end_table(start);
    let start = out.start_table();
    out.push_slot_always(slot(0), VERSION_5);
    out.push_slot_always(slot(1), SCHEMA);
    out.push_slot_always(slot(2), schema);
    let message = out.end_table(start);
    out.finish_minimal(message);
    let message = out.finished_data();
    let length = message.len().next_multiple_of(8);
    let mut bytes = Vec::with_capacity(8 + length);
    bytes.extend(CONTINUATION.to_le_bytes());
    bytes.extend((length as u32).to_le_bytes());
    bytes.extend(message);
    bytes.resize(8 + length, 0);
    BASE64_STANDARD.encode(bytes)
}

/// Returns the offset of a table's field with a number.
fn slot(number: VOffsetT) -> VOffsetT {
    4 + 2 * number
}

fn column_field(out: &mut FlatBufferBuilder<'_>, column: &Column) -> Table {
    let metadata = pairs(out, &column.about);
    let inner = write_type(out, &column.value_type());
    if !column.is_list() {
        return field(out, &column.name, column.is_nullable(), inner, &[], &metadata);
    }
    let element = field(out, ELEMENT, column.has_missing_elements(), inner, &[], &[]);
    let start = out.start_table();
    let kind = match column.slots() {
        // Lists are short (limits::TABLE_LIST).
        Some(slots) => {
            out.push_slot_always(slot(0), slots as i32);
            16
        }
        None => 12,
    };
    let list = (kind, out.end_table(start));
    field(out, &column.name, column.is_nullable(), list, &[element], &metadata)
}

fn field(
    out: &mut FlatBufferBuilder<'_>,
    name: &str,
    is_nullable: bool,
    (kind, value): (u8, Table),
    children: &[Table],
    metadata: &[Table],
) -> Table {
    let name = out.create_string(name);
    let children = out.create_vector(children);
    let metadata = (!metadata.is_empty()).then(|| out.create_vector(metadata));
    let start = out.start_table();
    out.push_slot_always(slot(0), name);
    out.push_slot(slot(1), is_nullable, false);
    out.push_slot_always(slot(2), kind);
    out.push_slot_always(slot(3), value);
    out.push_slot_always(slot(5), children);
    if let Some(metadata) = metadata {
        out.push_slot_always(slot(6), metadata);
    }
    out.end_table(start)
}

/// Writes a `KeyValue` for each value. Values are texts; others are written as JSON.
fn pairs(out: &mut FlatBufferBuilder<'_>, about: &Map<String, Value>) -> Vec<Table> {
    let pair = |(key, value): (&String, &Value)| {
        let text = match value {
            Value::String(text) => out.create_string(text),
            value => out.create_string(&value.to_string()),
        };
        let key = out.create_string(key);
        let start = out.start_table();
        out.push_slot_always(slot(0), key);
        out.push_slot_always(slot(1), text);
        out.end_table(start)
    };
    about.iter().map(pair).collect()
}

/// Writes the type of a column's values. Returns its number and its table.
fn write_type(out: &mut FlatBufferBuilder<'_>, value: &ValueType) -> (u8, Table) {
    let zone = matches!(value.logical, Some(Logical::Time { is_utc: true, .. })).then(|| out.create_string("UTC"));
    let start = out.start_table();
    let kind = match (value.physical, value.logical) {
        // The numbers of the units are the same in Parquet.
        (_, Some(Logical::Time { unit, .. })) => {
            out.push_slot_always(slot(0), i16::from(unit));
            if let Some(zone) = zone {
                out.push_slot_always(slot(1), zone);
            }
            10
        }
        (Type::Int32 | Type::Int64, logical) => {
            let (bits, is_signed) = match logical {
                Some(Logical::Integer { bits, is_signed }) => (bits.into(), is_signed),
                _ => (if value.physical == Type::Int32 { 32 } else { 64 }, true),
            };
            out.push_slot_always::<i32>(slot(0), bits);
            out.push_slot(slot(1), is_signed, false);
            2
        }
        (Type::Float | Type::Double, _) => {
            out.push_slot_always(slot(0), if value.physical == Type::Float { 1i16 } else { 2 });
            3
        }
        (Type::Bytes, Some(_)) => 5,
        (Type::Bytes, None) => 4,
        (Type::Boolean, _) => 6,
        (Type::FixedBytes, _) => {
            out.push_slot_always(slot(0), value.length.unwrap_or_default());
            15
        }
    };
    (kind, out.end_table(start))
}
