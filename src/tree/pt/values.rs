//! `values.json`: the values of a checkpoint that are not tensors (`docs/formats/pt.md` 5).

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{
    Serialize, Serializer,
    ser::{Error, SerializeMap},
};
use serde_json::value::RawValue;

use crate::{
    escape::escape,
    format::pt::{Object, Pickled, Value, decimal, latin1},
};

/// A value without its tensors and unknowns.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) pickled: &'a Pickled,
    pub(super) value: Value,
}

impl<'a> Known<'a> {
    fn of(self, value: Value) -> Self {
        Self { value, ..self }
    }

    fn object(self) -> Option<&'a Object> {
        if let Value::Object(number) = self.value { self.pickled.object(number) } else { None }
    }

    /// Returns whether a set has only plain values.
    fn is_plain(values: &[Value]) -> bool {
        !values.iter().any(|value| matches!(value, Value::Object(_) | Value::Global(_) | Value::Unknown(_)))
    }

    /// Returns whether it is unknown.
    pub(super) fn is_unknown(self) -> bool {
        match self.object() {
            Some(Object::Storage(_)) => true,
            Some(Object::Set(values)) => !Self::is_plain(values),
            Some(_) => false,
            None => matches!(self.value, Value::Unknown(_) | Value::Global(_) | Value::Object(_)),
        }
    }

    /// Returns whether any part of it is shown.
    pub(super) fn is_shown(self) -> bool {
        match self.object() {
            Some(Object::List(values) | Object::Tuple(values)) => {
                values.is_empty() || values.iter().any(|value| self.of(*value).is_shown())
            }
            Some(Object::Dict(pairs, _)) => {
                let shown = |(key, value): &(Value, Value)| self.pickled.is_key(*key) && self.of(*value).is_shown();
                pairs.is_empty() || pairs.iter().any(shown)
            }
            Some(Object::Tensor(_)) => false,
            _ => !self.is_unknown(),
        }
    }

    /// Returns whether all of it is shown, at any depth.
    fn is_whole(self) -> bool {
        match self.object() {
            Some(Object::List(values) | Object::Tuple(values)) => values.iter().all(|value| self.of(*value).is_whole()),
            Some(Object::Dict(pairs, _)) => pairs.iter().all(|(_, value)| self.of(*value).is_whole()),
            Some(Object::Tensor(_)) => false,
            _ => !self.is_unknown(),
        }
    }
}

fn bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map([("base64", STANDARD.encode(bytes))])
}

fn text<S: Serializer>(text: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    match std::str::from_utf8(text) {
        Ok(text) => serializer.serialize_str(text),
        Err(_) => bytes(text, serializer),
    }
}

impl Serialize for Known<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let pickled = self.pickled;
        match self.value {
            Value::None | Value::Global(_) | Value::Unknown(_) => serializer.serialize_unit(),
            Value::Bool(is) => serializer.serialize_bool(is),
            Value::Int(number) => serializer.serialize_i64(number),
            // Any number of digits is possible.
            Value::Long(span) => {
                RawValue::from_string(decimal(pickled.bytes(span))).map_err(S::Error::custom)?.serialize(serializer)
            }
            Value::Float(number) => serializer.serialize_f64(number),
            Value::Text(span) => text(pickled.bytes(span), serializer),
            Value::Bytes(span) => bytes(pickled.bytes(span), serializer),
            Value::Latin1(span) => bytes(&latin1(pickled.bytes(span)), serializer),
            Value::Type(known) => serializer.serialize_str(&known.shown()),
            Value::Object(_) => match self.object() {
                Some(Object::Made(text)) => serializer.serialize_str(text),
                Some(Object::Complex(re, im)) => serializer.collect_seq([re, im]),
                Some(Object::Set(values)) => serializer.collect_seq(values.iter().map(|value| self.of(*value))),
                Some(Object::List(values) | Object::Tuple(values)) if self.is_whole() => {
                    serializer.collect_seq(values.iter().map(|value| self.of(*value)))
                }
                Some(Object::List(values) | Object::Tuple(values)) => {
                    let left = values.iter().map(|value| self.of(*value)).enumerate();
                    serializer.collect_map(
                        left.filter(|(_, value)| value.is_shown()).map(|(at, value)| (at.to_string(), value)),
                    )
                }
                Some(Object::Dict(pairs, _)) => self.dict(pairs, serializer),
                Some(Object::Storage(_) | Object::Tensor(_)) | None => serializer.serialize_unit(),
            },
        }
    }
}

impl Known<'_> {
    fn dict<S: Serializer>(self, pairs: &[(Value, Value)], serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        // A text and an integer may have the same digits.
        let mut digits = std::collections::HashSet::new();
        for &(key, value) in pairs {
            let value = self.of(value);
            let Some(part) = value.is_shown().then(|| self.pickled.key(key)).flatten() else { continue };
            let mut name = std::str::from_utf8(&part).map_or_else(|_| escape(&part), ToOwned::to_owned);
            let is_number = name.strip_prefix('-').unwrap_or(&name).bytes().all(|byte| byte.is_ascii_digit());
            if is_number && !digits.insert(name.clone()) {
                name.push_str("%_2");
            }
            map.serialize_entry(&name, &value)?;
        }
        map.end()
    }
}
