//! Converts elements to JSON values (section 7.4).

use std::sync::Arc;

use super::{
    elements,
    form::Plain,
    rows::Lead,
    store::{Held, Store, fault},
};
use crate::{
    format::{
        DType,
        hdf5::{Class, Datatype, Padding, Place, Reference, attribute, global_heap::Collection},
    },
    source::Memory,
    view::{
        Fault, ReadContext,
        attributes::{INLINE, Value},
    },
};

/// Bytes of memory of a value.
const VALUE: u64 = size_of::<Value>() as u64;

/// Bytes of memory of an array beside its elements.
const ARRAY: u64 = 256;

/// Converts elements to values.
pub(super) struct Values<'a> {
    store: &'a Arc<Store>,
    context: &'a ReadContext,
    memory: &'a dyn Memory,
    last: Option<(Place, Arc<Held<Collection>>)>,
    /// Whether references are shown only as their paths.
    pub(super) has_paths_alone: bool,
    /// Bytes of the global heap that may still be taken. Sequences of sequences may lead to one object many times.
    left: u64,
}

/// Returns a text without its padding.
pub(super) fn text(bytes: &[u8], padding: Padding) -> &[u8] {
    let behind = |unused: u8| bytes.iter().rposition(|byte| *byte != unused).map_or(0, |last| last + 1);
    let end = match padding {
        Padding::Terminated => bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()),
        Padding::Nulls => behind(0),
        Padding::Spaces => behind(b' '),
    };
    bytes.get(..end).unwrap_or_default()
}

impl<'a> Values<'a> {
    pub(super) fn new(store: &'a Arc<Store>, context: &'a ReadContext, memory: &'a dyn Memory) -> Self {
        Self { store, context, memory, last: None, has_paths_alone: false, left: super::most_rows(context) }
    }

    /// Returns the value of an attribute.
    ///
    /// # Errors
    /// Damage, and failures of the read.
    pub(super) fn attribute(&mut self, stored: &attribute::Stored) -> Result<Value, Fault> {
        let attribute::Stored { datatype, space, data } = stored;
        let Some(dims) = &space.dims else { return Ok(Value::Null) };
        let plain = Plain::of_type(datatype);
        let elements = space.elements().unwrap_or(u64::MAX);
        if let Some(plain) = &plain
            && (elements > INLINE || !has_texts(datatype))
        {
            let inner = plain.inner.iter().fold(1u64, |count, axis| count.saturating_mul(*axis));
            if elements > INLINE || elements.saturating_mul(inner) <= INLINE {
                self.memory.reserve(2 * data.len() as u64)?;
                return Ok(Value::Array(elements::inline(plain, dims, data)));
            }
        }
        let all = self.list(datatype, data)?;
        Ok(Value::Nested(dims.clone().into(), all))
    }

    fn list(&mut self, datatype: &Datatype, data: &[u8]) -> Result<Vec<Value>, Fault> {
        let size = usize::try_from(datatype.size).unwrap_or(usize::MAX).max(1);
        let elements = data.chunks_exact(size);
        self.memory.reserve(VALUE.saturating_mul(elements.len() as u64))?;
        let mut found = Vec::with_capacity(elements.len());
        for element in elements {
            found.push(self.element(datatype, element)?);
        }
        Ok(found)
    }

    /// Returns the value of one element.
    ///
    /// # Errors
    /// Damage, and failures of the read.
    pub(super) fn element(&mut self, datatype: &Datatype, element: &[u8]) -> Result<Value, Fault> {
        crate::wanted::check().map_err(|error| Fault::from(crate::source::SourceError::from(error)))?;
        if !has_texts(datatype)
            && let Some(plain) = Plain::of_type(datatype)
        {
            return Ok(number(&plain, element).unwrap_or_else(|| Value::Array(elements::inline(&plain, &[], element))));
        }
        let copied = |values: &Self, bytes: &[u8]| -> Result<Box<[u8]>, Fault> {
            values.memory.reserve(bytes.len() as u64)?;
            Ok(bytes.into())
        };
        match &datatype.class {
            Class::Text(padding, _) => Ok(Value::Text(copied(self, text(element, *padding))?)),
            Class::VaryingText(..) => {
                let lead = self.lead(element)?;
                if lead.length == 0 {
                    return Ok(Value::Text(Box::default()));
                }
                let bytes = self.object(lead, u64::from(lead.length))?;
                Ok(Value::Text(bytes))
            }
            Class::Sequence(base) => {
                let lead = self.lead(element)?;
                let length = u64::from(lead.length);
                let bytes =
                    if length == 0 { Box::default() } else { self.object(lead, length.saturating_mul(base.size))? };
                match Plain::of_type(base).filter(|_| !has_texts(base)) {
                    Some(plain) => {
                        self.memory.reserve(ARRAY.saturating_add(length.saturating_mul(plain.shown())))?;
                        Ok(Value::Array(elements::inline(&plain, &[length], &bytes)))
                    }
                    None => Ok(Value::List(self.list(base, &bytes)?)),
                }
            }
            Class::Compound(members) => {
                let mut fields = Vec::with_capacity(members.len());
                for member in members {
                    let at = usize::try_from(member.offset).unwrap_or(usize::MAX);
                    let size = usize::try_from(member.datatype.size).unwrap_or(usize::MAX);
                    let bytes = element.get(at..).and_then(|rest| rest.get(..size)).unwrap_or_default();
                    self.memory.reserve(VALUE + member.name.len() as u64)?;
                    let name = crate::view::attributes::key(&member.name).into();
                    fields.push((name, self.element(&member.datatype, bytes)?));
                }
                Ok(Value::Record(fields))
            }
            Class::Array(dims, base) => Ok(Value::Nested(dims.clone(), self.list(base, element)?)),
            Class::Enum(base, _) | Class::Complex(base) => self.element(base, element),
            Class::Reference(kind) => self.reference(*kind, element),
            _ => Err(fault(0, "its type is not supported")),
        }
    }

    fn lead(&self, element: &[u8]) -> Result<Lead, Fault> {
        Lead::read(element, self.store.superblock.sizes.offset).ok_or_else(|| fault(0, "an element that is too short"))
    }

    fn object(&mut self, lead: Lead, size: u64) -> Result<Box<[u8]>, Fault> {
        self.left = self.left.checked_sub(size).ok_or_else(|| {
            fault(0, "the values take more bytes of the global heap than a file of this length can hold")
        })?;
        let memory = self.memory;
        lead.with(self.store, self.context, &mut self.last, size, |object| {
            memory.reserve(object.len() as u64)?;
            Ok(object.into())
        })
    }

    fn reference(&mut self, kind: Reference, element: &[u8]) -> Result<Value, Fault> {
        if element.iter().all(|byte| *byte == 0) || element.iter().all(|byte| *byte == 0xff) {
            return Ok(Value::Null);
        }
        let offset = usize::from(self.store.superblock.sizes.offset);
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        let short = || fault(0, "a reference that is too short");
        let address = match kind {
            Reference::Object => number(element.get(..offset).ok_or_else(short)?),
            Reference::Region => {
                // Stored like an element of varying length, without the length.
                let lead = Lead::read(&[&[0; 4], element].concat(), offset as u8).ok_or_else(short)?;
                number(&self.object(lead, offset as u64)?)
            }
            Reference::Token | Reference::Heap => match element {
                [2, _, size, token @ ..] => number(token.get(..usize::from(*size).min(8)).ok_or_else(short)?),
                [3 | 4, _, _, _, _, _, rest @ ..] => {
                    let lead = Lead::read(&[&[0; 4], rest].concat(), offset as u8).ok_or_else(short)?;
                    let object = self.object(lead, 1 + offset as u64)?;
                    number(object.get(1..1 + offset).ok_or_else(short)?)
                }
                _ => return Err(fault(0, "a reference of an unknown kind")),
            },
        };
        let walk = self.store.walk(self.context)?;
        let Some(path) = walk.path_of(address)? else { return Ok(Value::Null) };
        self.memory.reserve(path.len() as u64)?;
        let path = String::from_utf8_lossy(&path).into();
        Ok(if self.has_paths_alone { Value::Text(String::into_bytes(path).into()) } else { Value::Path(path.into()) })
    }
}

/// Returns whether a type contains texts of fixed size, whose padding is not shown.
pub(super) fn has_texts(datatype: &Datatype) -> bool {
    match &datatype.class {
        Class::Text(..) => true,
        Class::Compound(members) => members.iter().any(|member| has_texts(&member.datatype)),
        Class::Array(_, base) => has_texts(base),
        _ => false,
    }
}

/// Returns a number from its stored bytes.
fn number(plain: &Plain, element: &[u8]) -> Option<Value> {
    let dtype = plain.element.plain().filter(|_| plain.inner.is_empty())?;
    let mut bytes = [0; 8];
    let size = usize::try_from(dtype.size()).ok()?;
    plain.conversion.apply(element, bytes.get_mut(..size)?);
    let bits = u64::from_le_bytes(bytes);
    Some(match dtype {
        DType::Bool => Value::Bool(bits != 0),
        DType::I8 => Value::Int((bits as i8).into()),
        DType::I16 => Value::Int((bits as i16).into()),
        DType::I32 => Value::Int((bits as i32).into()),
        DType::I64 | DType::Date(_) | DType::Span(_) => Value::Int(bits as i64),
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => Value::Uint(bits),
        DType::F32 => Value::F32(f32::from_bits(bits as u32)),
        DType::F64 => Value::F64(f64::from_bits(bits)),
        _ => return None,
    })
}
