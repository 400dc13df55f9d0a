//! The schema of a Parquet file: its leaves, and what their levels mean.

use super::{
    super::{DType, TimeUnit},
    thrift::{Broken, Compact, FALSE, STRUCT, TRUE},
};
use crate::limits;

/// How values are stored, by the numbers of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Physical {
    /// One bit.
    Boolean,
    /// 4 bytes.
    Int32,
    /// 8 bytes.
    Int64,
    /// 12 bytes, an old time stamp.
    Int96,
    /// 4 bytes.
    Float,
    /// 8 bytes.
    Double,
    /// Any bytes, after their length.
    Bytes,
    /// This many bytes.
    Fixed(u32),
}

impl Physical {
    fn of(number: i64, length: Option<u32>) -> Option<Self> {
        Some(match number {
            0 => Self::Boolean,
            1 => Self::Int32,
            2 => Self::Int64,
            3 => Self::Int96,
            4 => Self::Float,
            5 => Self::Double,
            6 => Self::Bytes,
            7 => Self::Fixed(length?),
            _ => return None,
        })
    }

    /// Returns the bytes of a decoded value (1 for a boolean); `None` if values differ in length.
    pub fn width(self) -> Option<usize> {
        Some(match self {
            Self::Boolean => 1,
            Self::Int32 | Self::Float => 4,
            Self::Int64 | Self::Double => 8,
            Self::Int96 => 12,
            Self::Bytes => return None,
            Self::Fixed(length) => length as usize,
        })
    }
}

/// Most digits behind the point of a decimal number that are shown: 16 bytes have 39 at most.
const MOST_DIGITS: u32 = 39;

/// What the values of a leaf are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Numbers of a type with the stored width: `INT_8` is `I32`. A boolean is one byte when decoded.
    Numbers(DType),
    /// Texts.
    Texts,
    /// Bytes.
    Bytes,
    /// Points in time: an `I32` or `I64` of this unit since 1970.
    Dates(TimeUnit),
    /// Signed numbers of which this many digits are behind the point: little-endian integers, or big-endian bytes.
    Decimals(u32),
    /// Times of day: an `I32` or `I64` of this unit since midnight.
    Times(TimeUnit),
    /// Something else.
    Other,
}

/// How the values of a leaf belong to the rows of a top-level column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One value a row.
    Scalar,
    /// A list of values a row, or lists of lists.
    List,
    /// A part of a structure that has one value a row.
    Member,
    /// Everything else: maps, lists of structures.
    Other,
}

/// What a definition level below the largest means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// A missing value.
    Null,
    /// A missing list.
    NullList,
    /// A list without elements.
    Empty,
}

/// A leaf of the schema: what is stored as one column.
#[derive(Debug)]
pub struct Leaf {
    /// The names from the top-level column down.
    pub path: Vec<Box<str>>,
    /// How values are stored.
    pub physical: Physical,
    /// What they are.
    pub values: Values,
    /// The type of integers of 8 or 16 bits, which are stored in more.
    pub narrow: Option<DType>,
    /// Whether they are stated to be points in time of UTC.
    pub is_utc: bool,
    /// How they belong to rows.
    pub form: Form,
    /// The largest repetition level.
    pub(super) most_repeated: u8,
    /// What each definition level below the largest means. The length is the largest level.
    pub(super) stops: Box<[Stop]>,
}

impl Leaf {
    /// Returns whether a row can have any number of values.
    pub fn has_lists(&self) -> bool {
        self.most_repeated > 0
    }

    /// Returns how many lists are within each other.
    pub fn depth(&self) -> usize {
        self.most_repeated.into()
    }

    /// Returns about how many bytes of memory it takes.
    pub(super) fn memory_usage(&self) -> u64 {
        let names: usize = self.path.iter().map(|name| name.len() + 32).sum();
        (size_of::<Self>() + names + self.stops.len()) as u64
    }

    /// Returns the largest definition level.
    #[expect(clippy::cast_possible_truncation, reason = "`PARQUET_DEPTH` bounds them")]
    pub(super) fn most_defined(&self) -> u8 {
        self.stops.len() as u8
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repetition {
    Required,
    Optional,
    Repeated,
}

/// An element as it is stored.
struct Element<'a> {
    physical: Option<i64>,
    length: Option<u32>,
    repetition: Repetition,
    name: &'a [u8],
    children: u32,
    converted: Option<i64>,
    scale: Option<u32>,
    logical: Option<Logical>,
}

/// The annotations that make a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Logical {
    Text,
    Integer(i8, bool),
    Half,
    Date(TimeUnit),
    Utc(TimeUnit),
    Time(TimeUnit),
    Decimal(u32),
    Other,
}

fn logical(compact: &mut Compact<'_>) -> Result<Logical, Broken> {
    let mut found = Logical::Other;
    compact.fields(|compact, number, kind| {
        if kind != STRUCT {
            return Ok(false);
        }
        found = match number {
            1 => Logical::Text,
            6 => Logical::Date(TimeUnit::Day),
            15 => Logical::Half,
            5 => {
                let mut scale = None;
                compact.fields(|compact, number, _| {
                    if number == 1 {
                        scale = Some(compact.size()?);
                    }
                    Ok(number == 1)
                })?;
                found = scale.map_or(Logical::Other, Logical::Decimal);
                return Ok(true);
            }
            7 | 8 => {
                let (mut unit, mut is_utc) = (None, false);
                compact.fields(|compact, number, kind| {
                    is_utc |= (number, kind) == (1, TRUE);
                    if (number, kind) != (2, STRUCT) {
                        return Ok(false);
                    }
                    compact.fields(|_, number, _| {
                        unit = match number {
                            1 => Some(TimeUnit::Milli),
                            2 => Some(TimeUnit::Micro),
                            3 => Some(TimeUnit::Nano),
                            _ => None,
                        };
                        Ok(false)
                    })?;
                    Ok(true)
                })?;
                let of_unit = match number {
                    7 => Logical::Time,
                    _ if is_utc => Logical::Utc,
                    _ => Logical::Date,
                };
                found = unit.map_or(Logical::Other, of_unit);
                return Ok(true);
            }
            10 => {
                let (mut bits, mut is_signed) = (0, true);
                compact.fields(|compact, number, kind| {
                    match (number, kind) {
                        (1, _) => bits = compact.small()?,
                        (2, TRUE | FALSE) => is_signed = kind == TRUE,
                        _ => return Ok(false),
                    }
                    Ok(true)
                })?;
                found = Logical::Integer(bits, is_signed);
                return Ok(true);
            }
            _ => Logical::Other,
        };
        Ok(false)
    })?;
    Ok(found)
}

fn element<'a>(compact: &mut Compact<'a>) -> Result<Element<'a>, Broken> {
    let mut element = Element {
        physical: None,
        length: None,
        repetition: Repetition::Required,
        name: &[],
        children: 0,
        converted: None,
        scale: None,
        logical: None,
    };
    compact.fields(|compact, number, kind| {
        match number {
            1 => element.physical = Some(compact.integer()?),
            2 => element.length = Some(compact.size()?),
            3 => {
                element.repetition = match compact.integer()? {
                    0 => Repetition::Required,
                    1 => Repetition::Optional,
                    2 => Repetition::Repeated,
                    _ => return Err(Broken::Bad("an element of the schema has an unknown repetition")),
                }
            }
            4 => element.name = compact.binary()?,
            5 => element.children = compact.size()?,
            6 => element.converted = Some(compact.integer()?),
            7 => element.scale = Some(compact.size()?),
            10 if kind == STRUCT => element.logical = Some(logical(compact)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(element)
}

impl Element<'_> {
    /// Returns the annotation of integers: their bits, and whether they are signed.
    fn integer(&self) -> Option<(i8, bool)> {
        match (self.logical, self.converted) {
            (Some(Logical::Integer(bits, is_signed)), _) => Some((bits, is_signed)),
            (Some(_), _) => None,
            (None, Some(kind @ 11..=14)) => Some((8 << (kind - 11), false)),
            (None, Some(kind @ 15..=18)) => Some((8 << (kind - 15), true)),
            _ => None,
        }
    }

    fn narrow(&self, physical: Physical) -> Option<DType> {
        Some(match self.integer().filter(|_| physical == Physical::Int32)? {
            (8, true) => DType::I8,
            (8, false) => DType::U8,
            (16, true) => DType::I16,
            (16, false) => DType::U16,
            _ => return None,
        })
    }

    fn values(&self, physical: Physical) -> Values {
        let integer = self.integer();
        let is_plain = self.converted.is_none() && self.logical.is_none();
        let logical = self.logical.or(match self.converted {
            Some(5) => Some(Logical::Decimal(self.scale.unwrap_or(0))),
            Some(6) => Some(Logical::Date(TimeUnit::Day)),
            Some(7) => Some(Logical::Time(TimeUnit::Milli)),
            Some(8) => Some(Logical::Time(TimeUnit::Micro)),
            Some(9) => Some(Logical::Date(TimeUnit::Milli)),
            Some(10) => Some(Logical::Date(TimeUnit::Micro)),
            _ => None,
        });
        match (physical, integer) {
            (Physical::Boolean, _) => Values::Numbers(DType::Bool),
            (Physical::Float, _) => Values::Numbers(DType::F32),
            (Physical::Double, _) => Values::Numbers(DType::F64),
            (Physical::Int32, Some((32, false))) => Values::Numbers(DType::U32),
            (Physical::Int32, Some((8 | 16 | 32, _))) => Values::Numbers(DType::I32),
            (Physical::Int64, Some((64, false))) => Values::Numbers(DType::U64),
            (Physical::Int64, Some((64, true))) => Values::Numbers(DType::I64),
            (Physical::Int32, None) if is_plain => Values::Numbers(DType::I32),
            (Physical::Int64, None) if is_plain => Values::Numbers(DType::I64),
            (Physical::Fixed(2), _) if self.logical == Some(Logical::Half) => Values::Numbers(DType::F16),
            (Physical::Bytes, _) if self.logical == Some(Logical::Text) || self.converted == Some(0) => Values::Texts,
            (Physical::Bytes, _) if is_plain => Values::Bytes,
            (Physical::Int32, _) if logical == Some(Logical::Date(TimeUnit::Day)) => Values::Dates(TimeUnit::Day),
            (Physical::Int64, _) if let Some(Logical::Date(unit) | Logical::Utc(unit)) = logical => Values::Dates(unit),
            (Physical::Int32 | Physical::Int64, _) if let Some(Logical::Time(unit)) = logical => Values::Times(unit),
            (Physical::Int32 | Physical::Int64 | Physical::Fixed(_) | Physical::Bytes, _)
                if let Some(Logical::Decimal(scale @ 0..=MOST_DIGITS)) = logical =>
            {
                Values::Decimals(scale)
            }
            _ => Values::Other,
        }
    }
}

/// A group that is open while its children are read.
struct Open {
    children: u32,
    left: u32,
    repetition: Repetition,
    name: Box<str>,
}

/// Reads the list of elements. Calls `reserve` before it takes memory.
pub(super) fn read<E: From<Broken>>(
    compact: &mut Compact<'_>,
    mut reserve: impl FnMut(u64) -> Result<(), E>,
) -> Result<Vec<Leaf>, E> {
    let (count, _) = compact.list()?;
    let mut leaves = Vec::new();
    // The root has no repetition of its own.
    let mut open: Vec<Open> = Vec::new();
    for number in 0..count {
        let element = element(compact)?;
        let bad = |reason| E::from(Broken::Bad(reason));
        if number == 0 {
            let (name, repetition) = (Box::default(), Repetition::Required);
            open.push(Open { children: element.children, left: element.children, repetition, name });
            continue;
        }
        while open.last().is_some_and(|group| group.left == 0) {
            open.pop();
        }
        let Some(parent) = open.last_mut() else { return Err(bad("the schema has more elements than its groups")) };
        parent.left -= 1;
        let name: Box<str> = String::from_utf8_lossy(element.name).into();
        let Some(physical) = element.physical else {
            if open.len() > limits::PARQUET_DEPTH {
                return Err(bad("the schema is nested too deeply"));
            }
            let children = element.children;
            open.push(Open { children, left: children, repetition: element.repetition, name });
            continue;
        };
        let physical = Physical::of(physical, element.length).ok_or_else(|| bad("a column has an unknown type"))?;
        let leaf = leaf(open.get(1..).unwrap_or_default(), name, physical, &element);
        if leaves.len() >= limits::PARQUET_CHUNKS {
            return Err(bad("the schema has too many columns"));
        }
        reserve(leaf.memory_usage())?;
        leaves.push(leaf);
    }
    match open.iter().all(|group| group.left == 0) {
        true => Ok(leaves),
        false => Err(E::from(Broken::Bad("the schema has fewer elements than its groups"))),
    }
}

fn leaf(groups: &[Open], name: Box<str>, physical: Physical, element: &Element<'_>) -> Leaf {
    let own = [element.repetition];
    let repetitions: Vec<Repetition> = groups.iter().map(|group| group.repetition).chain(own).collect();
    let mut stops = Vec::new();
    for (at, repetition) in repetitions.iter().enumerate() {
        let has_list = repetitions.get(at + 1..).is_some_and(|below| below.contains(&Repetition::Repeated));
        match repetition {
            Repetition::Required => {}
            Repetition::Optional => stops.push(if has_list { Stop::NullList } else { Stop::Null }),
            Repetition::Repeated => stops.push(Stop::Empty),
        }
    }
    #[expect(clippy::cast_possible_truncation, reason = "`PARQUET_DEPTH` bounds them")]
    let most_repeated = repetitions.iter().filter(|repetition| **repetition == Repetition::Repeated).count() as u8;
    let form = match most_repeated {
        0 if groups.is_empty() => Form::Scalar,
        0 => Form::Member,
        _ if is_list(groups, element.repetition) => Form::List,
        _ => Form::Other,
    };
    let path = groups.iter().map(|group| group.name.clone()).chain([name]).collect();
    let (values, narrow) = (element.values(physical), element.narrow(physical));
    let is_utc = matches!(element.logical, Some(Logical::Utc(_)));
    Leaf { path, physical, values, narrow, is_utc, form, most_repeated, stops: stops.into() }
}

/// Returns whether all groups above a leaf are lists. A list is a group with one repeated child, which is the element
/// or has the element as its only child.
fn is_list(groups: &[Open], leaf: Repetition) -> bool {
    let mut groups = groups;
    loop {
        match groups {
            [] => return leaf == Repetition::Repeated,
            [list] if list.repetition != Repetition::Repeated && list.children == 1 => {
                return leaf == Repetition::Repeated;
            }
            [list, repeated, rest @ ..]
                if list.repetition != Repetition::Repeated
                    && repeated.repetition == Repetition::Repeated
                    && list.children == 1
                    && repeated.children == 1 =>
            {
                if rest.is_empty() {
                    return leaf != Repetition::Repeated;
                }
                groups = rest;
            }
            _ => return false,
        }
    }
}
