//! Messages of ROS 1, and of ROS 2 in CDR (`docs/formats/mcap.md`, section 7).

use super::{Count, Encoding, Field, Kind, Number, PartError, Schema, Sink, bad};
use crate::{format::Fields, source::to_usize};

/// Most messages without bytes in one message.
const EMPTY: u32 = 65_536;

/// A place in a message.
struct Walk<'a> {
    schema: &'a Schema,
    bytes: &'a [u8],
    at: usize,
    is_cdr: bool,
    is_big: bool,
    /// How many more messages without bytes are allowed.
    empty_left: u32,
}

pub(super) fn walk(schema: &Schema, bytes: &[u8], sink: &mut dyn Sink) -> Result<(), PartError> {
    let is_cdr = schema.encoding == Encoding::Cdr;
    let (bytes, is_big) = match (is_cdr, bytes) {
        (false, bytes) => (bytes, false),
        (true, [0, order @ 0..=1, _, _, rest @ ..]) => (rest, *order == 0),
        (true, _) => return bad("the head is not that of plain CDR"),
    };
    Walk { schema, bytes, at: 0, is_cdr, is_big, empty_left: EMPTY }.message(0, sink)
}

impl<'a> Walk<'a> {
    fn message(&mut self, number: u32, sink: &mut dyn Sink) -> Result<(), PartError> {
        let schema = self.schema;
        let message = schema.message(number);
        sink.begin(number);
        if message.least == 0 {
            self.empty_left = match self.empty_left.checked_sub(1) {
                Some(left) => left,
                None => return bad("more than 65,536 messages without bytes"),
            };
        }
        if message.fields.is_empty() && self.is_cdr {
            self.take(1)?;
        }
        for field in &message.fields {
            sink.field(field);
            self.value(field, sink)?;
        }
        sink.end();
        Ok(())
    }

    fn value(&mut self, field: &Field, sink: &mut dyn Sink) -> Result<(), PartError> {
        let count = match field.count {
            Count::One => return self.single(field.kind, sink),
            Count::Fixed(count) => u64::from(count),
            Count::Many => u64::from(self.u32()?),
        };
        let least = match field.kind {
            Kind::Number(number) => number.size() as u64,
            Kind::Time(_) => 8,
            Kind::Text | Kind::Bytes => 4,
            Kind::Message(number) => self.schema.message(number).least,
        };
        if least.saturating_mul(count) > (self.bytes.len() - self.at) as u64 {
            return bad("a list is longer than the message");
        }
        if let Kind::Number(number) = field.kind {
            if count > 0 {
                self.align(number.size());
            }
            let is_big = self.is_big;
            // Cannot overflow: the message has at least this many bytes left.
            let bytes = self.take(to_usize(count) * number.size())?;
            sink.numbers(number, bytes, is_big);
            return Ok(());
        }
        sink.begin_list();
        for _ in 0..count {
            self.single(field.kind, sink)?;
        }
        sink.end_list();
        Ok(())
    }

    fn single(&mut self, kind: Kind, sink: &mut dyn Sink) -> Result<(), PartError> {
        match kind {
            Kind::Number(number) => {
                self.align(number.size());
                let is_big = self.is_big;
                let bytes = self.take(number.size())?;
                sink.number(number, bits(number, bytes, is_big));
            }
            Kind::Time(time) => {
                let part = |bits: u32, is_signed| if is_signed { bits.cast_signed().into() } else { bits.into() };
                let [seconds, nanos] = time.signed;
                sink.time(time, part(self.u32()?, seconds), part(self.u32()?, nanos));
            }
            Kind::Text | Kind::Bytes => {
                let length = self.u32()? as usize;
                let bytes = self.take(length)?;
                sink.text(match bytes.split_last() {
                    Some((_, text)) if self.is_cdr => text,
                    _ => bytes,
                });
            }
            Kind::Message(number) => self.message(number, sink)?,
        }
        Ok(())
    }

    fn align(&mut self, size: usize) {
        if self.is_cdr {
            // At the end, the next field reports the missing bytes.
            self.at = self.at.next_multiple_of(size).min(self.bytes.len());
        }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], PartError> {
        let Some(bytes) = self.at.checked_add(length).and_then(|end| self.bytes.get(self.at..end)) else {
            return bad("it ends in a value");
        };
        self.at += length;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, PartError> {
        self.align(4);
        let bytes = self.take(4)?.first_chunk().copied().unwrap_or_default();
        Ok(if self.is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }
}

/// Returns the bits of a number. Signed numbers are sign-extended.
#[expect(clippy::cast_possible_truncation, clippy::indexing_slicing, reason = "up to 8 bytes, cut to their number")]
pub(super) fn bits(number: Number, bytes: &[u8], is_big: bool) -> u64 {
    let mut all = [0; 8];
    for (at, byte) in bytes.iter().take(8).enumerate() {
        let to = if is_big { number.size().saturating_sub(1 + at) } else { at };
        all[to & 7] = *byte;
    }
    let bits = all.u64(0).unwrap_or(0);
    match number {
        Number::I8 => i64::from(bits as i8) as u64,
        Number::I16 => i64::from(bits as i16) as u64,
        Number::I32 => i64::from(bits as i32) as u64,
        Number::Bool => u64::from(bits != 0),
        _ => bits,
    }
}
