//! Parsed schemas: messages, their fields, and the fields' types.

use crate::format::DType;

/// A number of a fixed width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "their names say it")]
pub enum Number {
    Bool,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

impl Number {
    /// Returns its size in bytes.
    pub fn size(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Returns the element type of arrays of this number.
    pub fn dtype(self) -> DType {
        match self {
            Self::Bool => DType::Bool,
            Self::I8 => DType::I8,
            Self::U8 => DType::U8,
            Self::I16 => DType::I16,
            Self::U16 => DType::U16,
            Self::I32 => DType::I32,
            Self::U32 => DType::U32,
            Self::I64 => DType::I64,
            Self::U64 => DType::U64,
            Self::F32 => DType::F32,
            Self::F64 => DType::F64,
        }
    }
}

/// A time or a duration: seconds, then nanoseconds, 4 bytes each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time {
    /// Whether it is a duration.
    pub is_duration: bool,
    /// Whether the two are signed.
    pub signed: [bool; 2],
    /// The names of the two in JSON.
    pub names: [&'static str; 2],
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Number(Number),
    /// A time or duration.
    Time(Time),
    /// A text.
    Text,
    /// A byte string of protobuf.
    Bytes,
    /// A message, by its place in [`Schema::messages`].
    Message(u32),
}

/// How many values a field has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// One.
    One,
    /// Always this many.
    Fixed(u32),
    /// Any number.
    Many,
}

/// The value of an absent protobuf field.
#[derive(Debug, Clone, PartialEq)]
pub enum Absent {
    /// The bits of a number.
    Bits(u64),
    /// A text or byte string.
    Bytes(Box<[u8]>),
}

/// How protobuf stores a field.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stored {
    /// The field's number.
    pub(super) number: u32,
    /// The number of its type in descriptors.
    pub(super) stored_as: u8,
    /// Whether an absent field differs from one with the default value.
    pub(super) has_presence: bool,
    /// The number of the oneof that it is in.
    pub(super) oneof: Option<u64>,
    pub(super) absent: Absent,
}

/// A field of a message.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: Box<str>,
    /// The type of its values.
    pub kind: Kind,
    /// How many it has.
    pub count: Count,
    pub(super) stored: Option<Stored>,
}

impl Field {
    pub(super) fn new(name: &str, kind: Kind, count: Count) -> Self {
        Self { name: name.into(), kind, count, stored: None }
    }

    /// Returns the value of a field that is absent.
    pub fn default_value(&self) -> Option<&Absent> {
        self.stored.as_ref().map(|stored| &stored.absent)
    }

    /// Returns whether its values are bytes, which JSON shows in base64.
    pub fn is_bytes(&self) -> bool {
        match self.count {
            Count::One => false,
            Count::Fixed(_) | Count::Many => self.kind == Kind::Number(Number::U8),
        }
    }
}

/// A type of messages.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Message {
    /// Its fields, in the order of their definition.
    pub fields: Vec<Field>,
    /// For protobuf: the number and place of each field, in the order of numbers.
    pub(super) by_number: Vec<(u32, u32)>,
    /// For protobuf: whether several of the fields are in one oneof.
    pub(super) has_oneof: bool,
    /// Least bytes of a message; not for protobuf.
    pub(super) least: u64,
    /// Number of its columns (see [`super::flat`]); `None` if it contains itself.
    pub(super) leaves: Option<u64>,
}

/// How messages are serialised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "their names say it")]
pub enum Encoding {
    Ros1,
    Cdr,
    Protobuf,
}

/// The schema of a channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Schema {
    /// How its messages are serialised.
    pub encoding: Encoding,
    /// The types of messages. The channel's own type is the first.
    pub messages: Vec<Message>,
}

impl Schema {
    /// Returns a type of messages.
    pub fn message(&self, number: u32) -> &Message {
        static NONE: Message =
            Message { fields: Vec::new(), by_number: Vec::new(), has_oneof: false, least: 0, leaves: Some(0) };
        self.messages.get(number as usize).unwrap_or(&NONE)
    }

    /// Returns about how many bytes of memory it takes.
    pub fn memory_usage(&self) -> usize {
        let of_field = |field: &Field| size_of::<Field>() + field.name.len() + 16;
        let of_message = |message: &Message| size_of::<Message>() + message.fields.iter().map(of_field).sum::<usize>();
        self.messages.iter().map(of_message).sum()
    }

    /// Counts the columns of all messages that do not contain themselves.
    #[expect(clippy::indexing_slicing, reason = "what is open or has a mark is a message")]
    pub(super) fn count_leaves(&mut self) {
        // Depth first: the messages of fields are counted before the message itself. A message that is reached again
        // while it is open contains itself.
        #[derive(Clone, Copy, PartialEq)]
        enum Mark {
            New,
            Open,
            Done,
        }
        let mut marks = vec![Mark::New; self.messages.len()];
        for first in 0..self.messages.len() {
            let mut open: Vec<(usize, usize, u64, bool)> = Vec::new();
            if marks[first] == Mark::New {
                marks[first] = Mark::Open;
                open.push((first, 0, 0, false));
            }
            while let Some((number, at, leaves, is_looped)) = open.pop() {
                let field = self.messages.get(number).and_then(|message| message.fields.get(at));
                let Some(field) = field else {
                    self.messages[number].leaves = (!is_looped).then_some(leaves);
                    marks[number] = Mark::Done;
                    if let Some(above) = open.last_mut() {
                        above.2 = above.2.saturating_add(leaves);
                        above.3 |= is_looped;
                    }
                    continue;
                };
                match (field.kind, field.count) {
                    (Kind::Message(inner), Count::One) => {
                        let inner = inner as usize;
                        let known = self.messages.get(inner).map(|message| message.leaves);
                        match marks.get(inner) {
                            Some(Mark::New) => {
                                marks[inner] = Mark::Open;
                                open.push((number, at + 1, leaves, is_looped));
                                open.push((inner, 0, 0, false));
                            }
                            Some(Mark::Done) => {
                                let inner = known.flatten();
                                let sum = leaves.saturating_add(inner.unwrap_or(0));
                                open.push((number, at + 1, sum, is_looped || inner.is_none()));
                            }
                            _ => open.push((number, at + 1, leaves, true)),
                        }
                    }
                    _ => open.push((number, at + 1, leaves.saturating_add(1), is_looped)),
                }
            }
        }
    }
}
