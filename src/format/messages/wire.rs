//! Messages of protobuf (`docs/formats/mcap.md`, section 7, Protobuf).

use std::collections::HashMap;

use super::{Absent, Count, DEPTH, Field, Kind, Number, PartError, Schema, Sink, bad, schema::Stored};
use crate::{format::Fields, source::Memory};

/// Records of a message that need no reservation of memory.
const FEW: usize = 4096;

/// Values that a message may have in addition to 16 for each of its bytes. An inner message of two bytes has all fields
/// of its schema, which may be many.
const VALUES: u64 = 1 << 20;

/// A value as it is stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

/// Goes through the records of a message and skips groups. `each` gets the number and the value.
pub(super) fn records<'a>(
    mut bytes: &'a [u8],
    mut each: impl FnMut(u32, Value<'a>) -> Result<(), PartError>,
) -> Result<(), PartError> {
    let mut groups: Vec<u32> = Vec::new();
    while !bytes.is_empty() {
        let Some(key) = varint(&mut bytes).and_then(|key| u32::try_from(key).ok()) else {
            return bad("a key is not a number of 32 bits");
        };
        let number = key >> 3;
        if number == 0 {
            return bad("a field has the number 0");
        }
        let value = match key & 7 {
            0 => varint(&mut bytes).map(Value::Varint),
            1 => take(&mut bytes, 8).and_then(|bytes| bytes.u64(0)).map(Value::Fixed64),
            2 => varint(&mut bytes)
                .and_then(|length| usize::try_from(length).ok())
                .and_then(|length| take(&mut bytes, length))
                .map(Value::Bytes),
            5 => take(&mut bytes, 4).and_then(|bytes| bytes.u32(0)).map(Value::Fixed32),
            3 if groups.len() < DEPTH => {
                groups.push(number);
                continue;
            }
            4 if groups.pop() == Some(number) => continue,
            _ => return bad("a record of a wrong kind"),
        };
        let Some(value) = value else { return bad("it ends in a value") };
        if groups.is_empty() {
            each(number, value)?;
        }
    }
    if groups.is_empty() { Ok(()) } else { bad("it ends in a group") }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for place in 0..10 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(7 * place).unwrap_or(0);
        if *byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

pub(super) fn walk(schema: &Schema, bytes: &[u8], memory: &dyn Memory, sink: &mut dyn Sink) -> Result<(), PartError> {
    let left = (bytes.len() as u64).saturating_mul(16).saturating_add(VALUES);
    Walk { schema, memory, left }.message(0, bytes, 1, sink)
}

struct Walk<'a> {
    schema: &'a Schema,
    memory: &'a dyn Memory,
    /// How many more values are allowed.
    left: u64,
}

impl Walk<'_> {
    fn message(&mut self, number: u32, bytes: &[u8], depth: usize, sink: &mut dyn Sink) -> Result<(), PartError> {
        if depth > DEPTH {
            return bad("more than 64 messages within each other");
        }
        let message = self.schema.message(number);
        let find = |number: u32| {
            // Most messages have their fields in the order of their numbers, without gaps.
            let near = message.by_number.get((number as usize).wrapping_sub(1)).filter(|near| near.0 == number);
            let found = || message.by_number.binary_search_by_key(&number, |(number, _)| *number).ok();
            near.or_else(|| message.by_number.get(found()?)).map(|(_, place)| *place)
        };
        let mut count = 0usize;
        records(bytes, |_, _| {
            count += 1;
            Ok(())
        })?;
        if count > FEW {
            self.memory.reserve((count * size_of::<(u32, Value<'_>)>()) as u64)?;
        }
        let mut found: Vec<(u32, Value<'_>)> = Vec::new();
        found.try_reserve_exact(count).or_else(|_| bad("there is no memory for its values"))?;
        records(bytes, |number, value| {
            if let Some(at) = find(number) {
                found.push((at, value));
            }
            Ok(())
        })?;
        if message.has_oneof {
            keep_last_of_oneofs(&message.fields, &mut found);
        }
        // A stable sort keeps the values of a field in order.
        found.sort_by_key(|(at, _)| *at);
        sink.begin(number);
        let mut rest = &found[..];
        for (at, field) in message.fields.iter().enumerate() {
            self.left = match self.left.checked_sub(1) {
                Some(left) => left,
                None => return bad("it has too many values for its bytes"),
            };
            let end = rest.partition_point(|(found, _)| *found as usize <= at);
            let (mine, after) = rest.split_at(end);
            rest = after;
            sink.field(field);
            self.field(field, mine, depth, sink)?;
        }
        sink.end();
        Ok(())
    }

    fn field(
        &mut self,
        field: &Field,
        found: &[(u32, Value<'_>)],
        depth: usize,
        sink: &mut dyn Sink,
    ) -> Result<(), PartError> {
        let Some(stored) = &field.stored else { return bad("a field of no number") };
        let values = found.iter().map(|(_, value)| *value);
        let bytes = |value| if let Value::Bytes(bytes) = value { Some(bytes) } else { None };
        if field.count == Count::Many {
            sink.begin_list();
            match field.kind {
                Kind::Number(number) => {
                    for value in values {
                        match (value, single(stored, value)) {
                            (_, Some(bits)) => sink.number(number, bits),
                            (Value::Bytes(packed), None) => unpack(stored, packed, |bits| sink.number(number, bits))?,
                            _ => {}
                        }
                    }
                }
                Kind::Text => values.filter_map(bytes).for_each(|text| sink.text(text)),
                Kind::Bytes | Kind::Time(_) => values.filter_map(bytes).for_each(|bytes| sink.bytes(bytes)),
                Kind::Message(inner) => {
                    for bytes in values.filter_map(bytes) {
                        self.message(inner, bytes, depth + 1, sink)?;
                    }
                }
            }
            sink.end_list();
            return Ok(());
        }
        match field.kind {
            Kind::Message(inner) => {
                let mut parts = values.filter_map(bytes);
                match (parts.next(), parts.next()) {
                    (None, _) => sink.absent(field),
                    (Some(one), None) => self.message(inner, one, depth + 1, sink)?,
                    // Several messages of one field are merged, as if their bytes were one message.
                    (Some(first), Some(second)) => {
                        let length = first.len() + second.len() + parts.clone().map(<[u8]>::len).sum::<usize>();
                        self.memory.reserve(length as u64)?;
                        let mut merged = Vec::new();
                        merged.try_reserve_exact(length).or_else(|_| bad("there is no memory for a message"))?;
                        merged.extend_from_slice(first);
                        merged.extend_from_slice(second);
                        parts.for_each(|part| merged.extend_from_slice(part));
                        self.message(inner, &merged, depth + 1, sink)?;
                    }
                }
            }
            Kind::Number(number) => match values.rev().find_map(|value| single(stored, value)) {
                Some(bits) => sink.number(number, bits),
                None if stored.has_presence => sink.absent(field),
                None => absent(field, stored, sink),
            },
            Kind::Text | Kind::Bytes | Kind::Time(_) => match (values.rev().find_map(bytes), field.kind) {
                (Some(text), Kind::Text) => sink.text(text),
                (Some(bytes), _) => sink.bytes(bytes),
                (None, _) if stored.has_presence => sink.absent(field),
                (None, _) => absent(field, stored, sink),
            },
        }
        Ok(())
    }
}

/// Drops values of fields of a oneof that come before the value of another field of it. Values of one field may be parts
/// of a message, so all since then are kept.
fn keep_last_of_oneofs(fields: &[Field], found: &mut Vec<(u32, Value<'_>)>) {
    let mut last: HashMap<u64, (u32, usize)> = HashMap::new();
    let oneof_of = |at: u32, value: Value<'_>| {
        let field = fields.get(at as usize)?;
        let stored = field.stored.as_ref()?;
        let is_value = match field.kind {
            Kind::Number(_) => single(stored, value).is_some(),
            _ => matches!(value, Value::Bytes(_)),
        };
        stored.oneof.filter(|_| is_value)
    };
    for (place, (at, value)) in found.iter().enumerate() {
        if let Some(oneof) = oneof_of(*at, *value) {
            let (field, since) = last.entry(oneof).or_insert((*at, place));
            if field != at {
                (*field, *since) = (*at, place);
            }
        }
    }
    let mut place = 0..;
    found.retain(|(at, value)| {
        let place = place.next().unwrap_or(usize::MAX);
        let oneof = oneof_of(*at, *value).and_then(|oneof| last.get(&oneof));
        oneof.is_none_or(|(_, since)| place >= *since)
    });
}

/// Passes on the default of a field.
fn absent(field: &Field, stored: &Stored, sink: &mut dyn Sink) {
    match (field.kind, &stored.absent) {
        (Kind::Number(number), Absent::Bits(bits)) => sink.number(number, *bits),
        (Kind::Text, Absent::Bytes(text)) => sink.text(text),
        (_, Absent::Bytes(bytes)) => sink.bytes(bytes),
        _ => sink.absent(field),
    }
}

/// Returns the bits of a number of a field; `None` if the wire type does not fit the field.
fn single(field: &Stored, value: Value<'_>) -> Option<u64> {
    match (field.stored_as, value) {
        // f64, fixed64, sfixed64; f32 and fixed32; sfixed32.
        (1 | 6 | 16, Value::Fixed64(bits)) => Some(bits),
        (2 | 7, Value::Fixed32(bits)) => Some(bits.into()),
        (15, Value::Fixed32(bits)) => Some(i64::from(bits as i32) as u64),
        (stored_as, Value::Varint(value)) => of_varint(stored_as, value),
        _ => None,
    }
}

/// Cuts a varint to the width of its type.
#[expect(clippy::cast_possible_truncation, reason = "cutting is meant")]
fn of_varint(stored_as: u8, value: u64) -> Option<u64> {
    Some(match stored_as {
        3 | 4 => value,
        5 | 14 => i64::from(value as i32) as u64,
        8 => u64::from(value != 0),
        13 => u64::from(value as u32),
        17 => {
            let bits = value as u32;
            i64::from((bits >> 1) as i32 ^ -((bits & 1) as i32)) as u64
        }
        18 => (value >> 1) ^ (value & 1).wrapping_neg(),
        _ => return None,
    })
}

fn unpack(field: &Stored, mut packed: &[u8], mut each: impl FnMut(u64)) -> Result<(), PartError> {
    let width = match field.stored_as {
        1 | 6 | 16 => 8,
        2 | 7 | 15 => 4,
        _ => 0,
    };
    while !packed.is_empty() {
        let value = match width {
            0 => varint(&mut packed).map(Value::Varint),
            8 => take(&mut packed, 8).and_then(|bytes| bytes.u64(0)).map(Value::Fixed64),
            _ => take(&mut packed, 4).and_then(|bytes| bytes.u32(0)).map(Value::Fixed32),
        };
        match value.and_then(|value| single(field, value)) {
            Some(bits) => each(bits),
            None => return bad("it ends in a packed value"),
        }
    }
    Ok(())
}

/// Returns the kind of a type of descriptors, except for messages and groups.
pub(super) fn kind_of(stored_as: u8) -> Option<Kind> {
    Some(Kind::Number(match stored_as {
        1 => Number::F64,
        2 => Number::F32,
        3 | 16 | 18 => Number::I64,
        4 | 6 => Number::U64,
        5 | 14 | 15 | 17 => Number::I32,
        7 | 13 => Number::U32,
        8 => Number::Bool,
        9 => return Some(Kind::Text),
        12 => return Some(Kind::Bytes),
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use crate::{
        format::messages::{parse, text::Line, walk},
        source::Unlimited,
    };

    /// `oneof o { int32 a = 1; string b = 2; M m = 3; } repeated int32 r = 4;`
    const SCHEMA: &[u8] = b"\nK\n\x01t\">\n\x01M\x12\x0b\n\x01a\x18\x01 \x01(\x05H\x00\x12\x0b\n\x01b\x18\x02 \x01(\tH\x00\x12\x0f\n\x01m\
        \x18\x03 \x01(\x0b2\x02.MH\x00\x12\t\n\x01r\x18\x04 \x03(\x05B\x03\n\x01ob\x06proto3";

    #[test]
    fn the_last_of_a_oneof_counts() {
        let schema = parse(b"protobuf", b"protobuf", b"M", SCHEMA).unwrap();
        // What protobuf 7.36.2 on Python reads of these bytes.
        for (bytes, expected) in [
            (&b"\x08\x01\x12\x01x"[..], r#"{"a":null,"b":"x","m":null,"r":[]}"#),
            (b"\x12\x01x\x08\x01", r#"{"a":1,"b":null,"m":null,"r":[]}"#),
            (
                b"\x1a\x02\x20\x01\x08\x05\x1a\x02\x20\x02\x1a\x02\x20\x03",
                r#"{"a":null,"b":null,"m":{"a":null,"b":null,"m":null,"r":[2,3]},"r":[]}"#,
            ),
            (b"\x08\x05\x12\x01x\x15aaaa", r#"{"a":null,"b":"x","m":null,"r":[]}"#),
            (b"\x12\x01x\x0a\x00\x20\x07", r#"{"a":null,"b":"x","m":null,"r":[7]}"#),
            (b"\x08\x01\x08\x02", r#"{"a":2,"b":null,"m":null,"r":[]}"#),
        ] {
            let mut line = Vec::new();
            walk(&schema, bytes, &Unlimited, &mut Line::new(&mut line)).unwrap();
            assert_eq!(String::from_utf8(line).unwrap(), expected, "{bytes:?}");
        }
    }
}
