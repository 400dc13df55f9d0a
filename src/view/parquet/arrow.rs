//! Arrow's form of the schema, for the footer's key `ARROW:schema`. Parquet has neither fixed-size lists nor metadata
//! of a column. Readers that are built on Arrow (pyarrow, polars, DataFusion) take both from here.
//!
//! The value is an encapsulated message of Arrow's IPC format in base64. The numbers of fields and types are those of
//! `Message.fbs` and `Schema.fbs`.

use base64::{Engine, prelude::BASE64_STANDARD};
use flatbuffers::{FlatBufferBuilder, ForwardsUOffset, TableFinishedWIPOffset, VOffsetT, Vector, WIPOffset};
use serde_json::{Map, Value};

/// The name of the elements of a list, which Parquet and Arrow share.
pub(super) const ELEMENT: &str = "element";

/// The footer's key.
pub(super) const KEY: &str = "ARROW:schema";

/// Comes before a message.
const CONTINUATION: u32 = u32::MAX;

/// `MetadataVersion` of Arrow 1.0 and later.
const VERSION_5: i16 = 4;

/// `MessageHeader`: a schema.
const SCHEMA: u8 = 1;

type Table = WIPOffset<TableFinishedWIPOffset>;
type Tables<'a> = WIPOffset<Vector<'a, ForwardsUOffset<TableFinishedWIPOffset>>>;

/// The type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArrowType {
    Int {
        bits: i32,
        is_signed: bool,
    },
    Single,
    Double,
    Bool,
    Text,
    Bytes,
    BytesOf(i32),
    /// Time since 1970 without a zone. The number is that of units in a second: 1000, 10^6 or 10^9.
    Time(u32),
    /// The same, UTC.
    Utc(u32),
}

/// How many values the lists of a column have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArrowLists {
    Of(u64),
    /// Each list has its own number of values, which may be missing.
    Varying {
        has_missing: bool,
    },
}

/// A column.
#[derive(Debug)]
pub(super) struct Field<'a> {
    pub(super) name: &'a str,
    pub(super) is_nullable: bool,
    pub(super) value: ArrowType,
    /// For lists, the number of values of each.
    pub(super) lists: Option<ArrowLists>,
    pub(super) about: &'a Map<String, Value>,
}

/// Returns the value of [`KEY`] for a table of these columns. `about` describes the table as a whole.
pub(super) fn schema<'a>(fields: impl Iterator<Item = Field<'a>>, about: &Map<String, Value>) -> String {
    let mut out = FlatBufferBuilder::new();
    let fields: Vec<_> = fields.map(|field| field.write(&mut out)).collect();
    let fields = tables(&mut out, &fields);
    let metadata = pairs(&mut out, about);
    let metadata = tables(&mut out, &metadata);
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

fn tables<'a>(out: &mut FlatBufferBuilder<'a>, tables: &[Table]) -> Tables<'a> {
    out.create_vector(tables)
}

impl Field<'_> {
    fn write(&self, out: &mut FlatBufferBuilder<'_>) -> Table {
        let metadata = pairs(out, self.about);
        let inner = self.value.write(out);
        let Some(lists) = self.lists else {
            return field(out, self.name, self.is_nullable, inner, &[], &metadata);
        };
        let has_missing = lists == ArrowLists::Varying { has_missing: true };
        let element = field(out, ELEMENT, has_missing, inner, &[], &[]);
        let start = out.start_table();
        let kind = match lists {
            // Lists are short (limits::TABLE_LIST).
            ArrowLists::Of(slots) => {
                out.push_slot_always(slot(0), slots as i32);
                16
            }
            ArrowLists::Varying { .. } => 12,
        };
        let list = (kind, out.end_table(start));
        field(out, self.name, self.is_nullable, list, &[element], &metadata)
    }
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
    let children = tables(out, children);
    let metadata = (!metadata.is_empty()).then(|| tables(out, metadata));
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

fn pairs(out: &mut FlatBufferBuilder<'_>, about: &Map<String, Value>) -> Vec<Table> {
    about.iter().map(|(key, value)| pair(out, key, value)).collect()
}

/// Writes a `KeyValue`. Values are texts; others are written as JSON.
fn pair(out: &mut FlatBufferBuilder<'_>, key: &str, value: &Value) -> Table {
    let text = match value {
        Value::String(text) => out.create_string(text),
        value => out.create_string(&value.to_string()),
    };
    let key = out.create_string(key);
    let start = out.start_table();
    out.push_slot_always(slot(0), key);
    out.push_slot_always(slot(1), text);
    out.end_table(start)
}

impl ArrowType {
    /// Writes the type. Returns its number and its table.
    fn write(self, out: &mut FlatBufferBuilder<'_>) -> (u8, Table) {
        let zone = matches!(self, Self::Utc(_)).then(|| out.create_string("UTC"));
        let start = out.start_table();
        let kind = match self {
            Self::Int { bits, is_signed } => {
                out.push_slot_always(slot(0), bits);
                out.push_slot(slot(1), is_signed, false);
                2
            }
            Self::Single => {
                out.push_slot_always(slot(0), 1i16);
                3
            }
            Self::Double => {
                out.push_slot_always(slot(0), 2i16);
                3
            }
            Self::Bytes => 4,
            Self::Text => 5,
            Self::Bool => 6,
            Self::Time(units) | Self::Utc(units) => {
                let unit: i16 = match units {
                    1000 => 1,
                    1_000_000 => 2,
                    _ => 3,
                };
                out.push_slot_always(slot(0), unit);
                if let Some(zone) = zone {
                    out.push_slot_always(slot(1), zone);
                }
                10
            }
            Self::BytesOf(width) => {
                out.push_slot_always(slot(0), width);
                15
            }
        };
        (kind, out.end_table(start))
    }
}
