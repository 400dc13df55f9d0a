//! Reads JSON in one pass: the header of a file and the index of a joined model.

use std::{borrow::Cow, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::{
    format::{Class, FormatError},
    source::SourceError,
};

/// A visitor's own reason to stop, which is not an error of the JSON.
#[derive(Default)]
pub(super) struct Refusal(Option<FormatError>);

impl Refusal {
    /// Stops because a rule of the format is broken.
    pub(super) fn refuse<E: Error>(&mut self, class: Class, reason: String) -> E {
        self.0 = Some(FormatError::refused(class, reason));
        E::custom("refused")
    }

    /// Stops because of an error of the source, such as not enough memory.
    pub(super) fn fail<E: Error>(&mut self, error: SourceError) -> E {
        self.0 = Some(error.into());
        E::custom("no memory")
    }
}

/// The state of a visitor, and its reason to stop.
pub(super) struct Seed<'a, S> {
    pub(super) state: &'a mut S,
    pub(super) refusal: &'a mut Refusal,
}

/// Reads one object. Only white space may follow it.
///
/// # Errors
/// Those of the visitor; `class` if it is not a JSON object.
pub(super) fn parse_object<'j, S>(json: &'j [u8], class: Class, state: &mut S) -> Result<(), FormatError>
where
    for<'a> Seed<'a, S>: Visitor<'j, Value = ()>,
{
    let text = std::str::from_utf8(json).map_err(|error| FormatError::refused(class, format!("no UTF-8: {error}")))?;
    let mut refusal = Refusal::default();
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let seed = Seed { state, refusal: &mut refusal };
    let read = deserializer.deserialize_map(seed).and_then(|()| deserializer.end());
    match (refusal.0, read) {
        (Some(refused), _) => Err(refused),
        (None, Err(error)) => Err(FormatError::refused(class, error.to_string())),
        (None, Ok(())) => Ok(()),
    }
}

/// A string, borrowed if it has no escapes.
pub(super) struct Text;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Text {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// Any value, checked completely: an ignored value must be JSON too, and serde would skip its strings and numbers.
#[derive(Clone, Copy)]
pub(super) struct Any;

impl<'de> DeserializeSeed<'de> for Any {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Any {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_entry_seed(Text, self)?.is_some() {}
        Ok(())
    }
}
