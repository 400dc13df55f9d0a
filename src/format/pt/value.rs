//! The values in a pickle of a checkpoint: plain values, containers, tensors, and unknown ones.
//!
//! Texts and bytes are ranges of the pickle, so they are not copied. Containers are numbers in a list of objects,
//! because a pickle may use a container in several places, and inside itself.

use std::{borrow::Cow, sync::Arc};

use super::tensor::{Storage, Tensor, Type};

/// A range of the pickle, which has fewer than 2^32 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub(super) start: u32,
    pub(super) end: u32,
}

/// A value.
#[derive(Debug, Clone, Copy)]
pub enum Value {
    /// Python's None.
    None,
    /// A boolean.
    Bool(bool),
    /// An integer of up to 64 bits.
    Int(i64),
    /// A longer integer: its two's complement, the least byte first, as short as possible.
    Long(Span),
    /// A floating-point number.
    Float(f64),
    /// A text: UTF-8, in which surrogates may stand alone.
    Text(Span),
    /// Bytes.
    Bytes(Span),
    /// Bytes, each stored as the character of its number in UTF-8.
    Latin1(Span),
    /// A type of elements.
    Type(&'static Type),
    /// A name of Python, by its number.
    Global(u32),
    /// An unknown value, with the number of the name that was called, if there was one.
    Unknown(Option<u32>),
    /// Anything else, by its number.
    Object(u32),
}

/// A value that contains others, or does not fit into a [`Value`].
#[derive(Debug, Clone)]
pub enum Object {
    /// A list.
    List(Vec<Value>),
    /// A tuple.
    Tuple(Vec<Value>),
    /// A set, in stored order.
    Set(Vec<Value>),
    /// A dict, in the order in which its keys were first set; whether `OrderedDict` made it.
    Dict(Vec<(Value, Value)>, bool),
    /// A complex number: real and imaginary part.
    Complex(f64, f64),
    /// A text that is not in the pickle.
    Made(Box<str>),
    /// A storage, which is not a value by itself.
    Storage(Arc<Storage>),
    /// A tensor.
    Tensor(Arc<Tensor>),
}

/// A pickle that was run.
#[derive(Debug)]
pub struct Pickled {
    pub(super) bytes: Vec<u8>,
    pub(super) objects: Vec<Object>,
    /// Module and name of each global.
    pub(super) globals: Vec<(Span, Span)>,
    /// The outermost value.
    pub root: Value,
}

impl Pickled {
    /// Returns the bytes of a place in the pickle.
    pub fn bytes(&self, span: Span) -> &[u8] {
        self.bytes.get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    /// Returns an object by its number.
    pub fn object(&self, number: u32) -> Option<&Object> {
        self.objects.get(number as usize)
    }

    /// Returns the name of a global: `module.name`.
    pub fn global(&self, number: u32) -> String {
        let Some(&(module, name)) = self.globals.get(number as usize) else { return String::new() };
        format!("{}.{}", String::from_utf8_lossy(self.bytes(module)), String::from_utf8_lossy(self.bytes(name)))
    }

    /// Returns a dict's key as a part of a path: the text's bytes, or the integer's digits. `None` for keys of other
    /// kinds.
    pub fn key(&self, key: Value) -> Option<Cow<'_, [u8]>> {
        match key {
            Value::Text(span) => Some(self.bytes(span).into()),
            Value::Type(known) => Some(known.shown().into_bytes().into()),
            Value::Int(number) => Some(number.to_string().into_bytes().into()),
            Value::Long(span) => Some(decimal(self.bytes(span)).into_bytes().into()),
            Value::Object(number) => match self.object(number)? {
                Object::Made(text) => Some(text.as_bytes().into()),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns whether [`Self::key`] returns a key. Faster, because it makes no digits of long integers.
    pub fn is_key(&self, key: Value) -> bool {
        matches!(key, Value::Long(_)) || self.key(key).is_some()
    }
}

/// Returns the decimal digits of an integer in two's complement, the least byte first.
pub fn decimal(bytes: &[u8]) -> String {
    let is_negative = bytes.last().is_some_and(|last| last & 0x80 != 0);
    // The absolute value in limbs of 32 bits, the least first.
    let mut limbs: Vec<u32> = bytes
        .chunks(4)
        .map(|chunk| {
            let mut limb = if is_negative { [0xff; 4] } else { [0; 4] };
            limb.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            u32::from_le_bytes(limb)
        })
        .collect();
    if is_negative {
        let mut carry = true;
        for limb in &mut limbs {
            (*limb, carry) = (!*limb).overflowing_add(u32::from(carry));
        }
        // The absolute value of the lowest number of a length needs one more bit.
        if carry {
            limbs.push(1);
        }
    }
    const BASE: u64 = 1_000_000_000;
    let mut groups = Vec::new();
    while limbs.last().is_some_and(|last| *last == 0) {
        limbs.pop();
    }
    while !limbs.is_empty() {
        let mut rest = 0;
        for limb in limbs.iter_mut().rev() {
            let value = rest << 32 | u64::from(*limb);
            #[expect(clippy::cast_possible_truncation, reason = "the rest is below the divisor")]
            let quotient = (value / BASE) as u32;
            (*limb, rest) = (quotient, value % BASE);
        }
        groups.push(rest);
        while limbs.last().is_some_and(|last| *last == 0) {
            limbs.pop();
        }
    }
    let Some(first) = groups.pop() else { return "0".into() };
    let mut text = if is_negative { format!("-{first}") } else { first.to_string() };
    groups.iter().rev().for_each(|group| text.push_str(&format!("{group:09}")));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_integers_have_their_digits() {
        // Python: n.to_bytes(length, "little", signed=True).
        assert_eq!(decimal(&[]), "0");
        assert_eq!(decimal(&[0, 0, 0, 0, 0]), "0");
        assert_eq!(decimal(&[255; 9]), "-1");
        for number in [i128::MIN, i128::MAX, 10i128.pow(30), -(10i128.pow(27)), 1_000_000_000, -(1 << 32), 1 << 64] {
            assert_eq!(decimal(&number.to_le_bytes()), number.to_string());
        }
        assert_eq!(decimal(&(1u128 << 127).to_le_bytes()), i128::MIN.to_string());
    }
}
