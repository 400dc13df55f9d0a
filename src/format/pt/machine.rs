//! The pickle machine (`docs/formats/pt.md` 3). It calls no code: it recognises a few names of PyTorch, and makes
//! values and descriptions of tensors. Every other name makes an unknown value.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use super::{
    super::{Class, FormatError, packed::Asked},
    tensor::{Storage, Tensor, Type},
    value::{Object, Pickled, Span, Value},
};
use crate::{limits, source::Memory};

/// Longest integer in bytes.
const LONG: u64 = 1024;

/// Bytes that an entry of a list takes while lists grow.
const ENTRY: u64 = 2 * size_of::<Value>() as u64;
/// Bytes that an object takes in addition to its entries.
const OBJECT: u64 = 2 * size_of::<Object>() as u64;
/// Bytes that an entry of the memo, and the key of a dict, take.
const MAPPED: u64 = 128;

fn bad(reason: impl Into<String>) -> FormatError {
    FormatError::refused(Class::BadPickle, reason)
}

/// Runs a pickle. Its bytes are kept.
///
/// # Errors
/// `Refused` for a pickle outside sections 3 and 6; `Source` if there is not enough memory.
pub fn run(bytes: Vec<u8>, memory: &dyn Memory) -> Result<Pickled, FormatError> {
    let (objects, globals, root) = {
        let mut machine = Machine {
            bytes: &bytes,
            at: 0,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
            objects: Vec::new(),
            globals: Vec::new(),
            known: HashMap::new(),
            places: HashMap::new(),
            asked: Asked::new(memory),
        };
        let root = loop {
            let at = machine.at;
            let step = machine.step().map_err(|error| match error {
                FormatError::Refused { class, reason } => {
                    FormatError::refused(class, format!("{reason}, at byte {at} of the pickle"))
                }
                error @ FormatError::Source(_) => error,
            })?;
            if let Some(root) = step {
                break root;
            }
        };
        (machine.objects, machine.globals, root)
    };
    Ok(Pickled { bytes, objects, globals, root })
}

/// A key of a dict as Python compares it: 1, 1.0 and True are one.
#[derive(PartialEq, Eq, Hash)]
enum Key<'a> {
    None,
    Int(i64),
    Long(&'a [u8]),
    Float(u64),
    Text(Cow<'a, [u8]>),
    Bytes(Cow<'a, [u8]>),
    Global(u32),
    /// An object that is only equal to itself.
    Object(u32),
    /// A key that is equal to no other: the number of the entry.
    Other(usize),
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Value>,
    /// The length of the stack at each mark.
    marks: Vec<usize>,
    memo: HashMap<u32, Value>,
    objects: Vec<Object>,
    globals: Vec<(Span, Span)>,
    /// The number of each global.
    known: HashMap<(&'a [u8], &'a [u8]), u32>,
    /// Where each key of each dict is, and each element of each set.
    places: HashMap<(u32, Key<'a>), usize>,
    asked: Asked<'a>,
}

type Step<T> = Result<T, FormatError>;

impl<'a> Machine<'a> {
    /// Runs one instruction. Returns the value at the end.
    fn step(&mut self) -> Step<Option<Value>> {
        let opcode = self.take(1)?;
        match self.get(opcode).first().copied().unwrap_or_default() {
            0x80 => {
                let version = self.number(1)?;
                if version > 5 {
                    return Err(bad(format!("protocol {version}; 0 to 5 are known")));
                }
            }
            0x95 => {
                self.take(8)?;
            }
            b'.' => return self.pop().map(Some),
            b'(' => {
                self.count()?;
                self.marks.push(self.stack.len());
            }
            b'0' => {
                if self.stack.len() > self.fence() {
                    self.stack.pop();
                } else if self.marks.pop().is_none() {
                    return Err(bad("the stack is empty"));
                }
            }
            b'1' => drop(self.pop_mark()?),
            b'2' => {
                let top = self.top()?;
                self.push(top)?;
            }
            b'N' => self.push(Value::None)?,
            0x88 => self.push(Value::Bool(true))?,
            0x89 => self.push(Value::Bool(false))?,
            b'J' => {
                let bits = self.take(4)?;
                let number = self.get(bits).first_chunk().map_or(0, |bits| i32::from_le_bytes(*bits));
                self.push(Value::Int(number.into()))?;
            }
            b'K' => self.push_int(1)?,
            b'M' => self.push_int(2)?,
            0x8a => self.long(1)?,
            0x8b => self.long(4)?,
            b'G' => {
                let bits = self.take(8)?;
                let bits = self.get(bits).first_chunk().map_or(0, |bits| u64::from_be_bytes(*bits));
                self.push(Value::Float(f64::from_bits(bits)))?;
            }
            0x8c => self.text(1)?,
            b'X' => self.text(4)?,
            0x8d => self.text(8)?,
            b'C' => self.byte_string(1)?,
            b'B' => self.byte_string(4)?,
            0x8e | 0x96 => self.byte_string(8)?,
            b'U' => self.old_string(1)?,
            b'T' => self.old_string(4)?,
            b']' => self.make(Object::List(Vec::new()))?,
            b')' => self.make(Object::Tuple(Vec::new()))?,
            b'}' => self.make(Object::Dict(Vec::new(), false))?,
            0x8f => self.make(Object::Set(Vec::new()))?,
            b'a' => {
                let value = self.pop()?;
                self.append(&[value])?;
            }
            b'e' => {
                let values = self.pop_mark()?;
                self.append(&values)?;
            }
            b't' => {
                let values = self.pop_mark()?;
                self.make(Object::Tuple(values))?;
            }
            opcode @ 0x85..=0x87 => {
                let mut values = vec![Value::None; usize::from(opcode - 0x84)];
                for value in values.iter_mut().rev() {
                    *value = self.pop()?;
                }
                self.asked.take(values.len() as u64 * ENTRY)?;
                self.make(Object::Tuple(values))?;
            }
            b's' => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.set_items(&[key, value])?;
            }
            b'u' => {
                let pairs = self.pop_mark()?;
                self.set_items(&pairs)?;
            }
            0x90 => {
                let values = self.pop_mark()?;
                match self.top()? {
                    Value::Object(number) if matches!(self.object(number), Some(Object::Set(_))) => {
                        self.add_items(number, &values)?;
                    }
                    Value::Unknown(_) | Value::Global(_) => {}
                    _ => return Err(bad("elements are added to what is no set")),
                }
            }
            0x91 => {
                let values = self.pop_mark()?;
                self.set(&values)?;
            }
            b'q' => self.put(1)?,
            b'r' => self.put(4)?,
            0x94 => {
                #[expect(clippy::cast_possible_truncation, reason = "`PICKLE_ENTRIES` bounds them")]
                let number = self.memo.len() as u32;
                self.memoize(number)?;
            }
            b'h' => self.fetch(1)?,
            b'j' => self.fetch(4)?,
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(module, name)?;
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let (Value::Text(module), Value::Text(name)) = (module, name) else {
                    return Err(bad("the name of a global is no text"));
                };
                self.global(module, name)?;
            }
            b'R' => {
                let (arguments, called) = (self.pop()?, self.pop()?);
                let made = self.reduce(called, arguments)?;
                self.push(made)?;
            }
            opcode @ (0x81 | 0x92) => {
                // The class and its arguments. NEWOBJ_EX also has named arguments.
                for _ in 0..if opcode == 0x81 { 1 } else { 2 } {
                    self.pop()?;
                }
                let made = match self.pop()? {
                    Value::Global(number) => Value::Unknown(Some(number)),
                    unknown @ Value::Unknown(_) => unknown,
                    _ => Value::Unknown(None),
                };
                self.push(made)?;
            }
            b'b' => {
                self.pop()?;
                let is_fine = match self.top()? {
                    Value::Unknown(_) | Value::Global(_) => true,
                    Value::Object(number) => matches!(self.object(number), Some(Object::Dict(_, true))),
                    _ => false,
                };
                if !is_fine {
                    return Err(bad("a state is given to what has none"));
                }
            }
            b'Q' => {
                let id = self.pop()?;
                match self.storage(id) {
                    Some(storage) => self.make(Object::Storage(Arc::new(storage)))?,
                    None => self.push(Value::Unknown(None))?,
                }
            }
            opcode => return Err(bad(format!("instruction 0x{opcode:02x} is not known"))),
        }
        Ok(None)
    }

    fn get(&self, span: Span) -> &'a [u8] {
        self.bytes.get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    fn object(&self, number: u32) -> Option<&Object> {
        self.objects.get(number as usize)
    }

    /// Takes the next bytes of the pickle.
    fn take(&mut self, length: u64) -> Step<Span> {
        let end = usize::try_from(length).ok().and_then(|length| self.at.checked_add(length));
        let Some(end) = end.filter(|end| *end <= self.bytes.len()) else { return Err(bad("it ends early")) };
        #[expect(clippy::cast_possible_truncation, reason = "`PICKLE` bounds them")]
        let span = Span { start: self.at as u32, end: end as u32 };
        self.at = end;
        Ok(span)
    }

    /// Takes a little-endian number of up to 8 bytes.
    fn number(&mut self, width: u64) -> Step<u64> {
        let span = self.take(width)?;
        Ok(self.get(span).iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// Takes bytes up to a line end, which must be UTF-8.
    fn line(&mut self) -> Step<Span> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(length) = rest.iter().position(|byte| *byte == b'\n') else { return Err(bad("it ends early")) };
        let span = self.take(length as u64)?;
        self.take(1)?;
        if std::str::from_utf8(self.get(span)).is_err() {
            return Err(bad("a name is not UTF-8"));
        }
        Ok(span)
    }

    /// Fails if there are too many entries, before one more is made.
    fn count(&mut self) -> Step<()> {
        let entries = self.stack.len() + self.marks.len() + self.memo.len();
        if entries >= limits::PICKLE_ENTRIES {
            return Err(FormatError::refused(
                Class::TooMany,
                format!("more than {} entries of stack and memo", limits::PICKLE_ENTRIES),
            ));
        }
        Ok(())
    }

    fn push(&mut self, value: Value) -> Step<()> {
        self.count()?;
        if self.stack.len() == self.stack.capacity() {
            self.asked.take((self.stack.len() as u64 + 16) * ENTRY)?;
        }
        self.stack.push(value);
        Ok(())
    }

    /// Returns where the entries above the last mark begin.
    fn fence(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Step<Value> {
        let popped = if self.stack.len() > self.fence() { self.stack.pop() } else { None };
        popped.ok_or_else(|| bad("the stack is empty"))
    }

    fn top(&self) -> Step<Value> {
        let top = if self.stack.len() > self.fence() { self.stack.last() } else { None };
        top.copied().ok_or_else(|| bad("the stack is empty"))
    }

    /// Takes all entries above the last mark, and the mark.
    fn pop_mark(&mut self) -> Step<Vec<Value>> {
        let at = self.marks.pop().ok_or_else(|| bad("there is no mark"))?;
        self.asked.take(self.stack.len().saturating_sub(at) as u64 * ENTRY)?;
        Ok(self.stack.split_off(at.min(self.stack.len())))
    }

    fn add(&mut self, object: Object) -> Step<u32> {
        if self.objects.len() >= limits::PICKLE_ENTRIES {
            let reason = format!("more than {} objects", limits::PICKLE_ENTRIES);
            return Err(FormatError::refused(Class::TooMany, reason));
        }
        self.asked.take(OBJECT)?;
        #[expect(clippy::cast_possible_truncation, reason = "`PICKLE_ENTRIES` bounds them")]
        let number = self.objects.len() as u32;
        self.objects.push(object);
        Ok(number)
    }

    fn make(&mut self, object: Object) -> Step<()> {
        let number = self.add(object)?;
        self.push(Value::Object(number))
    }

    fn push_int(&mut self, width: u64) -> Step<()> {
        let number = self.number(width)?;
        self.push(Value::Int(number.cast_signed()))
    }

    fn long(&mut self, width: u64) -> Step<()> {
        let length = self.number(width)?;
        if length > LONG {
            return Err(bad(format!("an integer of {length} bytes")));
        }
        let mut span = self.take(length)?;
        let mut bytes = self.get(span);
        // Cut bytes at the end that only repeat the sign.
        while let [rest @ .., last] = bytes
            && let Some(before) = rest.last()
            && matches!((last, before & 0x80), (0, 0) | (0xff, 0x80))
        {
            bytes = rest;
            span.end -= 1;
        }
        let value = match bytes {
            [] => Value::Int(0),
            [.., last] if bytes.len() <= 8 => {
                let mut all = [if last & 0x80 == 0 { 0 } else { 0xff }; 8];
                all.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
                Value::Int(i64::from_le_bytes(all))
            }
            _ => Value::Long(span),
        };
        self.push(value)
    }

    fn text(&mut self, width: u64) -> Step<()> {
        let length = self.number(width)?;
        let span = self.take(length)?;
        match is_text(self.get(span)) {
            true => self.push(Value::Text(span)),
            false => Err(bad("a text is not UTF-8")),
        }
    }

    fn byte_string(&mut self, width: u64) -> Step<()> {
        let length = self.number(width)?;
        let span = self.take(length)?;
        self.push(Value::Bytes(span))
    }

    /// Pushes a string of Python 2, which may be text or bytes.
    fn old_string(&mut self, width: u64) -> Step<()> {
        let length = self.number(width)?;
        let span = self.take(length)?;
        let is_text = std::str::from_utf8(self.get(span)).is_ok();
        self.push(if is_text { Value::Text(span) } else { Value::Bytes(span) })
    }

    fn put(&mut self, width: u64) -> Step<()> {
        #[expect(clippy::cast_possible_truncation, reason = "it has at most 4 bytes")]
        let number = self.number(width)? as u32;
        self.memoize(number)
    }

    fn memoize(&mut self, number: u32) -> Step<()> {
        let top = self.top()?;
        self.count()?;
        self.asked.take(MAPPED)?;
        self.memo.insert(number, top);
        Ok(())
    }

    fn fetch(&mut self, width: u64) -> Step<()> {
        #[expect(clippy::cast_possible_truncation, reason = "it has at most 4 bytes")]
        let number = self.number(width)? as u32;
        let found = self.memo.get(&number).copied().ok_or_else(|| bad(format!("the memo has no entry {number}")))?;
        self.push(found)
    }

    fn append(&mut self, values: &[Value]) -> Step<()> {
        match self.top()? {
            Value::Unknown(_) | Value::Global(_) => return Ok(()),
            Value::Object(number) => {
                self.asked.take(values.len() as u64 * ENTRY)?;
                if let Some(Object::List(list)) = self.objects.get_mut(number as usize) {
                    list.extend_from_slice(values);
                    return Ok(());
                }
            }
            _ => {}
        }
        Err(bad("elements are appended to what is no list"))
    }

    /// Sets keys and values of the dict on the stack.
    fn set_items(&mut self, pairs: &[Value]) -> Step<()> {
        let (pairs, rest) = pairs.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(bad("a key has no value"));
        }
        match self.top()? {
            Value::Unknown(_) | Value::Global(_) => Ok(()),
            Value::Object(number) if matches!(self.object(number), Some(Object::Dict(..))) => {
                self.insert(number, pairs)
            }
            _ => Err(bad("keys are set of what is no dict")),
        }
    }

    fn insert(&mut self, number: u32, pairs: &[[Value; 2]]) -> Step<()> {
        for &[key, value] in pairs {
            self.asked.take(2 * ENTRY + MAPPED + self.copied(key))?;
            let length = if let Some(Object::Dict(pairs, _)) = self.object(number) { pairs.len() } else { 0 };
            let place = *self.places.entry((number, key_of(self.bytes, &self.objects, key, length))).or_insert(length);
            let Some(Object::Dict(pairs, _)) = self.objects.get_mut(number as usize) else { continue };
            match pairs.get_mut(place) {
                Some(pair) => pair.1 = value,
                None => pairs.push((key, value)),
            }
        }
        Ok(())
    }

    fn add_items(&mut self, number: u32, values: &[Value]) -> Step<()> {
        for &value in values {
            self.asked.take(ENTRY + MAPPED + self.copied(value))?;
            let length = if let Some(Object::Set(set)) = self.object(number) { set.len() } else { 0 };
            let place =
                *self.places.entry((number, key_of(self.bytes, &self.objects, value, length))).or_insert(length);
            if let Some(Object::Set(set)) = self.objects.get_mut(number as usize)
                && place == set.len()
            {
                set.push(value);
            }
        }
        Ok(())
    }

    fn set(&mut self, values: &[Value]) -> Step<()> {
        let number = self.add(Object::Set(Vec::new()))?;
        self.add_items(number, values)?;
        self.push(Value::Object(number))
    }

    fn global(&mut self, module: Span, name: Span) -> Step<()> {
        let (module_bytes, name_bytes) = (self.get(module), self.get(name));
        if module_bytes == b"torch"
            && let Some(known) = Type::of_name(name_bytes)
        {
            return self.push(Value::Type(known));
        }
        self.asked.take(MAPPED)?;
        #[expect(clippy::cast_possible_truncation, reason = "each has a place in the pickle")]
        let next = self.globals.len() as u32;
        let number = *self.known.entry((module_bytes, name_bytes)).or_insert(next);
        if number == next {
            self.globals.push((module, name));
        }
        self.push(Value::Global(number))
    }

    /// Returns module and name of a global.
    fn name(&self, number: u32) -> (&'a [u8], &'a [u8]) {
        let (module, name) =
            self.globals.get(number as usize).map_or((&b""[..], &b""[..]), |at| (self.get(at.0), self.get(at.1)));
        (if module == b"__builtin__" { b"builtins" } else { module }, name)
    }

    fn tuple(&self, value: Value) -> Option<&[Value]> {
        match value {
            Value::Object(number) => match self.object(number)? {
                Object::Tuple(values) => Some(values),
                _ => None,
            },
            _ => None,
        }
    }

    fn list(&self, value: Value) -> Option<&[Value]> {
        match value {
            Value::Object(number) => match self.object(number)? {
                Object::Tuple(values) | Object::List(values) => Some(values),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the storage that a persistent id names.
    fn storage(&self, id: Value) -> Option<Storage> {
        let &[Value::Text(word), Value::Global(class), Value::Text(key), Value::Text(_), Value::Int(count)] =
            self.tuple(id)?
        else {
            return None;
        };
        let kind = match self.name(class) {
            (b"torch.storage", b"UntypedStorage") => None,
            (b"torch", class) => Some(Type::of_class(class)?),
            _ => return None,
        };
        let count = u64::try_from(count).ok()?;
        (self.get(word) == b"storage").then(|| Storage { key: self.get(key).into(), kind, count })
    }

    /// Calls a global.
    fn reduce(&mut self, called: Value, arguments: Value) -> Step<Value> {
        let global = match called {
            Value::Global(number) => number,
            Value::Unknown(_) => return Ok(called),
            _ => return Ok(Value::Unknown(None)),
        };
        let unknown = Value::Unknown(Some(global));
        let Some(arguments) = self.tuple(arguments) else { return Ok(unknown) };
        // Copied, because objects are added below. No known call has more arguments.
        let mut copy = [Value::None; 8];
        let Some(room) = copy.get_mut(..arguments.len()) else { return Ok(unknown) };
        room.copy_from_slice(arguments);
        let arguments = &*room;
        let copied: u64 = arguments.iter().map(|argument| self.copied(*argument)).sum();
        self.asked.take(copied)?;
        let made = match (self.name(global), arguments) {
            ((b"collections", b"OrderedDict") | (b"builtins", b"dict"), [] | [_]) => {
                return self.dict(global, arguments.first().copied());
            }
            ((b"torch._utils", b"_rebuild_tensor_v2"), [storage, offset, size, stride, _, _, rest @ ..])
                if rest.len() < 2 =>
            {
                self.tensor([*storage, *offset, *size, *stride], None, rest)
            }
            (
                (b"torch._utils", b"_rebuild_tensor_v3"),
                [storage, offset, size, stride, _, _, Value::Type(kind), rest @ ..],
            ) if rest.len() < 2 => self.tensor([*storage, *offset, *size, *stride], Some(kind), rest),
            ((b"torch._utils", b"_rebuild_parameter"), [tensor @ Value::Object(number), _, _])
            | ((b"torch._utils", b"_rebuild_parameter_with_state"), [tensor @ Value::Object(number), _, _, _])
                if matches!(self.object(*number), Some(Object::Tensor(_))) =>
            {
                return Ok(*tensor);
            }
            ((b"torch._tensor", b"_rebuild_from_type_v2"), [called @ Value::Global(inner), _, arguments, _])
                if matches!(self.name(*inner), (b"torch._utils", b"_rebuild_tensor_v2" | b"_rebuild_tensor_v3")) =>
            {
                let made = self.reduce(*called, *arguments)?;
                return Ok(if let Value::Object(_) = made { made } else { unknown });
            }
            ((b"builtins", b"set" | b"frozenset"), [] | [_]) => {
                let Some(values) = arguments.first().map_or(Some(&[][..]), |list| self.list(*list)) else {
                    return Ok(unknown);
                };
                let values = values.to_vec();
                let number = self.add(Object::Set(Vec::new()))?;
                self.add_items(number, &values)?;
                return Ok(Value::Object(number));
            }
            ((b"torch", b"Size") | (b"builtins", b"tuple"), [list]) => {
                self.list(*list).map(|values| Object::Tuple(values.to_vec()))
            }
            ((b"builtins", b"list"), [list]) => self.list(*list).map(|values| Object::List(values.to_vec())),
            ((b"builtins", b"list"), []) => Some(Object::List(Vec::new())),
            ((b"builtins", b"tuple"), []) => Some(Object::Tuple(Vec::new())),
            ((b"torch", b"device"), [text @ Value::Text(_)]) => return Ok(*text),
            ((b"torch", b"device"), [Value::Text(text), Value::Int(index)]) if *index >= 0 => {
                std::str::from_utf8(self.get(*text)).ok().map(|text| Object::Made(format!("{text}:{index}").into()))
            }
            ((b"_codecs", b"encode"), [Value::Text(text), Value::Text(encoding)])
                if self.get(*encoding) == b"latin1" && is_latin1(self.get(*text)) =>
            {
                return Ok(Value::Latin1(*text));
            }
            ((b"builtins", b"bytes" | b"bytearray"), []) => return Ok(Value::Bytes(Span { start: 0, end: 0 })),
            ((b"builtins", b"bytearray"), [bytes @ (Value::Bytes(_) | Value::Latin1(_))]) => return Ok(*bytes),
            ((b"builtins", b"complex"), [re, im]) => real(*re).zip(real(*im)).map(|(re, im)| Object::Complex(re, im)),
            _ => None,
        };
        let Some(made) = made else { return Ok(unknown) };
        self.add(made).map(Value::Object)
    }

    /// Returns how many bytes a copy of a list or a text takes.
    fn copied(&self, value: Value) -> u64 {
        match value {
            Value::Text(span) | Value::Latin1(span) => u64::from(span.end - span.start),
            Value::Object(number) => match self.object(number) {
                Some(Object::List(values) | Object::Tuple(values)) => values.len() as u64 * 2 * ENTRY,
                Some(Object::Made(text)) => text.len() as u64,
                _ => 0,
            },
            _ => 0,
        }
    }

    /// Makes a dict from a list of pairs.
    fn dict(&mut self, global: u32, list: Option<Value>) -> Step<Value> {
        let is_ordered = self.name(global).1 == b"OrderedDict";
        let mut pairs = Vec::new();
        if let Some(list) = list {
            let pair = |pair: &Value| <[Value; 2]>::try_from(self.list(*pair)?).ok();
            match self.list(list).and_then(|list| list.iter().map(pair).collect()) {
                Some(found) => pairs = found,
                None => return Ok(Value::Unknown(Some(global))),
            }
        }
        let number = self.add(Object::Dict(Vec::new(), is_ordered))?;
        self.insert(number, &pairs)?;
        Ok(Value::Object(number))
    }

    /// Returns the tensor that a call describes, if it is sound.
    fn tensor(
        &self,
        [storage, offset, shape, strides]: [Value; 4],
        kind: Option<&'static Type>,
        metadata: &[Value],
    ) -> Option<Object> {
        let Value::Object(number) = storage else { return None };
        let Object::Storage(storage) = self.object(number)? else { return None };
        let is_plain = match metadata.first() {
            None | Some(Value::None) => true,
            Some(Value::Object(number)) => {
                matches!(self.object(*number), Some(Object::Dict(pairs, _)) if pairs.is_empty())
            }
            Some(_) => false,
        };
        if !is_plain {
            return None;
        }
        let count = |value: &Value| if let Value::Int(number) = value { u64::try_from(*number).ok() } else { None };
        let counts = |value: Value| -> Option<Box<[u64]>> {
            self.list(value).filter(|list| list.len() <= limits::DIMENSIONS)?.iter().map(count).collect()
        };
        let kind = kind.or(storage.kind)?;
        let tensor = Tensor::new(storage.clone(), kind, count(&offset)?, [counts(shape)?, counts(strides)?])?;
        Some(Object::Tensor(Arc::new(tensor)))
    }
}

/// Returns a key in a form that compares as in Python. `other` is a number that no other key of its dict has.
fn key_of<'a>(bytes: &'a [u8], objects: &[Object], key: Value, other: usize) -> Key<'a> {
    let get = |span: Span| bytes.get(span.start as usize..span.end as usize).unwrap_or_default();
    match key {
        Value::None => Key::None,
        Value::Bool(is) => Key::Int(is.into()),
        Value::Int(number) => Key::Int(number),
        Value::Long(span) => Key::Long(get(span)),
        Value::Float(number) if number.is_nan() => Key::Other(other),
        #[expect(clippy::cast_possible_truncation, reason = "a whole number below 2^63")]
        Value::Float(number) if number.trunc() == number && number.abs() < 9e18 => Key::Int(number as i64),
        Value::Float(number) => Key::Float(number.to_bits()),
        Value::Text(span) => Key::Text(get(span).into()),
        Value::Bytes(span) => Key::Bytes(get(span).into()),
        Value::Latin1(span) => Key::Bytes(latin1(get(span)).into()),
        Value::Type(known) => Key::Text(known.shown().into_bytes().into()),
        Value::Global(number) => Key::Global(number),
        Value::Unknown(_) => Key::Other(other),
        Value::Object(number) => match objects.get(number as usize) {
            Some(Object::Made(text)) => Key::Text(text.as_bytes().to_vec().into()),
            _ => Key::Object(number),
        },
    }
}

fn real(value: Value) -> Option<f64> {
    match value {
        Value::Float(number) => Some(number),
        Value::Int(number) => Some(number as f64),
        _ => None,
    }
}

/// Returns whether bytes are UTF-8 in which surrogates may stand alone.
fn is_text(mut bytes: &[u8]) -> bool {
    while let Err(error) = std::str::from_utf8(bytes) {
        match bytes.get(error.valid_up_to()..) {
            Some([0xed, 0xa0..=0xbf, 0x80..=0xbf, rest @ ..]) => bytes = rest,
            _ => return false,
        }
    }
    true
}

fn is_latin1(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| text.chars().all(|c| u32::from(c) < 256))
}

/// Returns the bytes that a text shows as characters of Latin-1.
pub fn latin1(text: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(text).chars().map(|c| c as u8).collect()
}
