//! Descriptors of protobuf: a `FileDescriptorSet` (`docs/formats/mcap.md`, section 7, Protobuf).

use std::collections::{HashMap, HashSet};

use super::{
    Absent, Count, DEPTH, Encoding, Field, Kind, Message, Number, PartError, Schema,
    schema::Stored,
    wire::{Value, kind_of, records},
};

/// The descriptor of a message, with its full name.
struct Described<'a> {
    name: String,
    fields: Vec<&'a [u8]>,
    is_proto3: bool,
}

/// The definitions in the files of a set.
#[derive(Default)]
struct Files<'a> {
    messages: Vec<Described<'a>>,
    by_name: HashMap<String, u32>,
    /// The values of each enum: name and number.
    enums: HashMap<String, Vec<(&'a [u8], i32)>>,
}

/// A field's descriptor.
#[derive(Default)]
struct Descriptor<'a> {
    name: &'a [u8],
    number: u64,
    label: u64,
    stored_as: u64,
    type_name: &'a [u8],
    default: Option<&'a [u8]>,
    oneof: Option<u64>,
    is_optional: bool,
}

type Reason = String;

fn all<'a>(bytes: &'a [u8], each: impl FnMut(u32, Value<'a>) -> Result<(), PartError>) -> Result<(), Reason> {
    records(bytes, each).map_err(|error| format!("its schema is no descriptor: {error}"))
}

fn text(bytes: &[u8]) -> Result<&str, PartError> {
    std::str::from_utf8(bytes).map_err(|_| PartError::Damaged("a name is not UTF-8".into()))
}

/// Parses the descriptors of a message and of all messages in it.
pub(super) fn parse(name: &[u8], data: &[u8]) -> Result<Schema, Reason> {
    let (mut sets, mut seen) = (Vec::new(), HashSet::new());
    all(data, |number, value| {
        if let (1, Value::Bytes(file)) = (number, value) {
            sets.push(file);
        }
        Ok(())
    })?;
    let mut files = Files::default();
    for file in sets {
        let (mut name, mut package, mut syntax): (&[u8], &[u8], &[u8]) = (b"", b"", b"");
        let mut definitions = Vec::new();
        all(file, |number, value| {
            match (number, value) {
                (1, Value::Bytes(bytes)) => name = bytes,
                (2, Value::Bytes(bytes)) => package = bytes,
                (12, Value::Bytes(bytes)) => syntax = bytes,
                (4 | 5, Value::Bytes(bytes)) => definitions.push((number == 4, bytes)),
                _ => {}
            }
            Ok(())
        })?;
        let is_proto3 = match syntax {
            b"" | b"proto2" => false,
            b"proto3" => true,
            _ => return Err("its schema has a syntax other than proto2 and proto3".into()),
        };
        if !seen.insert(name) {
            return Err("its schema has a file twice".into());
        }
        let package = text(package).map_err(|error| error.to_string())?;
        for (is_message, bytes) in definitions {
            match is_message {
                true => files.message(bytes, package, is_proto3, 1)?,
                false => files.enumeration(bytes, package)?,
            }
        }
    }
    let top = std::str::from_utf8(name).ok().and_then(|name| files.by_name.get(name).copied());
    let top = top.ok_or_else(|| format!("its schema does not define {}", String::from_utf8_lossy(name)))?;
    let mut messages = Vec::new();
    for number in 0..files.messages.len() {
        messages.push(files.fields(number)?);
    }
    // The channel's message must be the first: the two change places.
    messages.swap(0, top as usize);
    let moved = |number: u32| match number {
        0 => top,
        number if number == top => 0,
        number => number,
    };
    for field in messages.iter_mut().flat_map(|message| &mut message.fields) {
        if let Kind::Message(inner) = &mut field.kind {
            *inner = moved(*inner);
        }
    }
    let mut schema = Schema { encoding: Encoding::Protobuf, messages };
    schema.count_leaves();
    Ok(schema)
}

fn join(scope: &str, name: &str) -> String {
    if scope.is_empty() { name.to_owned() } else { format!("{scope}.{name}") }
}

impl<'a> Files<'a> {
    fn message(&mut self, bytes: &'a [u8], scope: &str, is_proto3: bool, depth: usize) -> Result<(), Reason> {
        if depth > DEPTH {
            return Err(format!("its schema has more than {DEPTH} definitions within each other"));
        }
        let (mut name, mut fields, mut inner): (&[u8], _, _) = (b"", Vec::new(), Vec::new());
        all(bytes, |number, value| {
            match (number, value) {
                (1, Value::Bytes(bytes)) => name = bytes,
                (2, Value::Bytes(bytes)) => fields.push(bytes),
                (3 | 4, Value::Bytes(bytes)) => inner.push((number == 3, bytes)),
                _ => {}
            }
            Ok(())
        })?;
        let name = join(scope, text(name).map_err(|error| error.to_string())?);
        #[expect(clippy::cast_possible_truncation, reason = "a schema has fewer than 2^32 bytes")]
        let place = self.messages.len() as u32;
        if self.enums.contains_key(&name) || self.by_name.insert(name.clone(), place).is_some() {
            return Err(format!("its schema defines {name} twice"));
        }
        self.messages.push(Described { name: name.clone(), fields, is_proto3 });
        for (is_message, bytes) in inner {
            match is_message {
                true => self.message(bytes, &name, is_proto3, depth + 1)?,
                false => self.enumeration(bytes, &name)?,
            }
        }
        Ok(())
    }

    fn enumeration(&mut self, bytes: &'a [u8], scope: &str) -> Result<(), Reason> {
        let (mut name, mut values): (&[u8], _) = (b"", Vec::new());
        all(bytes, |number, value| {
            match (number, value) {
                (1, Value::Bytes(bytes)) => name = bytes,
                (2, Value::Bytes(bytes)) => {
                    let (mut name, mut number): (&[u8], i32) = (b"", 0);
                    records(bytes, |field, value| {
                        match (field, value) {
                            (1, Value::Bytes(bytes)) => name = bytes,
                            #[expect(clippy::cast_possible_truncation, reason = "negative ones are stored in 64 bits")]
                            (2, Value::Varint(value)) => number = value as i32,
                            _ => {}
                        }
                        Ok(())
                    })?;
                    values.push((name, number));
                }
                _ => {}
            }
            Ok(())
        })?;
        let name = join(scope, text(name).map_err(|error| error.to_string())?);
        if self.by_name.contains_key(&name) || self.enums.insert(name.clone(), values).is_some() {
            return Err(format!("its schema defines {name} twice"));
        }
        Ok(())
    }

    /// Finds what a name means in a scope.
    fn resolve<T>(&self, scope: &str, name: &str, find: impl Fn(&str) -> Option<T>) -> Option<T> {
        if let Some(full) = name.strip_prefix('.') {
            return find(full);
        }
        let mut scope = scope;
        loop {
            if let Some(found) = find(&join(scope, name)) {
                return Some(found);
            }
            if scope.is_empty() {
                return None;
            }
            scope = scope.rsplit_once('.').map_or("", |(above, _)| above);
        }
    }

    fn fields(&self, number: usize) -> Result<Message, Reason> {
        let Some(described) = self.messages.get(number) else { return Ok(Message::default()) };
        let (mut fields, mut names, mut numbers) = (Vec::new(), HashSet::new(), HashSet::new());
        for bytes in &described.fields {
            let mut field = Descriptor::default();
            all(bytes, |number, value| {
                match (number, value) {
                    (1, Value::Bytes(bytes)) => field.name = bytes,
                    (3, Value::Varint(value)) => field.number = value,
                    (4, Value::Varint(value)) => field.label = value,
                    (5, Value::Varint(value)) => field.stored_as = value,
                    (6, Value::Bytes(bytes)) => field.type_name = bytes,
                    (7, Value::Bytes(bytes)) => field.default = Some(bytes),
                    (9, Value::Varint(value)) => field.oneof = Some(value),
                    (17, Value::Varint(value)) => field.is_optional = value != 0,
                    _ => {}
                }
                Ok(())
            })?;
            let name = text(field.name).map_err(|error| error.to_string())?;
            let shown = || format!("{}.{name}", described.name);
            let number = u32::try_from(field.number).ok().filter(|number| (1..1 << 29).contains(number));
            let number = number.ok_or_else(|| format!("the number of {} is {}", shown(), field.number))?;
            if !names.insert(name) || !numbers.insert(number) {
                return Err(format!("{} is there twice", shown()));
            }
            // Groups are left out.
            if field.stored_as == 10 {
                continue;
            }
            let type_name = text(field.type_name).map_err(|error| error.to_string())?;
            let missing = || format!("its schema does not define {type_name}, the type of {}", shown());
            let mut first = 0;
            let kind = match field.stored_as {
                11 => {
                    let find = |name: &str| self.by_name.get(name).copied();
                    Kind::Message(self.resolve(&described.name, type_name, find).ok_or_else(missing)?)
                }
                14 => {
                    let find = |name: &str| self.enums.get(name);
                    let values = self.resolve(&described.name, type_name, find).ok_or_else(missing)?;
                    first = values.first().map_or(0, |(_, number)| *number);
                    if let Some(default) = field.default {
                        first = values.iter().find(|(name, _)| *name == default).map_or(first, |(_, number)| *number);
                    }
                    Kind::Number(Number::I32)
                }
                other => {
                    u8::try_from(other).ok().and_then(kind_of).ok_or_else(|| format!("{} has no type", shown()))?
                }
            };
            let is_repeated = field.label == 3;
            let has_presence = matches!(kind, Kind::Message(_))
                || !is_repeated && (!described.is_proto3 || field.is_optional || field.oneof.is_some());
            let absent = match kind {
                Kind::Number(_) if field.stored_as == 14 => Absent::Bits(i64::from(first) as u64),
                Kind::Number(number) => Absent::Bits(field.default.map_or(0, |default| bits_of(number, default))),
                Kind::Bytes => Absent::Bytes(unescaped(field.default.unwrap_or_default()).into()),
                _ => Absent::Bytes(field.default.unwrap_or_default().into()),
            };
            #[expect(clippy::cast_possible_truncation, reason = "the type is known")]
            let stored = Stored { number, stored_as: field.stored_as as u8, has_presence, oneof: field.oneof, absent };
            let count = if is_repeated { Count::Many } else { Count::One };
            fields.push(Field { name: name.into(), kind, count, stored: Some(stored) });
        }
        let number = |field: &Field| field.stored.as_ref().map_or(0, |stored| stored.number);
        let mut by_number: Vec<_> = fields.iter().map(number).zip(0..).collect();
        by_number.sort_unstable();
        let mut oneofs = HashSet::new();
        let mut in_oneof = fields.iter().filter_map(|field: &Field| field.stored.as_ref()?.oneof);
        let has_oneof = in_oneof.any(|oneof| !oneofs.insert(oneof));
        Ok(Message { fields, by_number, has_oneof, ..Message::default() })
    }
}

/// Returns the bits of a default, which is written as text; 0 if it cannot be read.
fn bits_of(number: Number, default: &[u8]) -> u64 {
    let text = std::str::from_utf8(default).unwrap_or_default();
    match number {
        Number::F64 => text.parse::<f64>().unwrap_or(0.0).to_bits(),
        Number::F32 => text.parse::<f32>().unwrap_or(0.0).to_bits().into(),
        Number::Bool => u64::from(text == "true"),
        Number::U64 => text.parse().unwrap_or(0),
        _ => text.parse::<i64>().unwrap_or(0) as u64,
    }
}

/// Returns the bytes of a default that is written with C escapes.
fn unescaped(default: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(default.len()), default);
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let Some((&kind, after)) = rest.split_first().filter(|_| byte == b'\\') else {
            out.push(byte);
            continue;
        };
        let digits = |rest: &[u8], radix: u32, most: usize| {
            let is_digit = |byte: &&u8| char::from(**byte).is_digit(radix);
            let count = rest.iter().take(most).take_while(is_digit).count();
            let value = rest
                .iter()
                .take(count)
                .fold(0, |value: u32, byte| value * radix + char::from(*byte).to_digit(radix).unwrap_or(0));
            (count, value.to_le_bytes()[0])
        };
        match kind {
            b'0'..=b'7' => {
                let (count, value) = digits(rest, 8, 3);
                out.push(value);
                rest = rest.get(count..).unwrap_or_default();
            }
            b'x' | b'X' => {
                let (count, value) = digits(after, 16, 2);
                out.push(value);
                rest = after.get(count..).unwrap_or_default();
            }
            _ => {
                out.push(match kind {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'a' => 7,
                    b'b' => 8,
                    b'f' => 12,
                    b'v' => 11,
                    other => other,
                });
                rest = after;
            }
        }
    }
    out
}
