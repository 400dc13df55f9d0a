//! Types of elements (section 6.1).

use super::{Result, Structure};
use crate::source::to_usize;

/// Most levels of nested types, members of a compound, and types in total.
const DEPTH: u32 = 32;
const MEMBERS: usize = 65_535;
const NODES: u32 = 65_536;

/// The type of elements, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datatype {
    /// Bytes of an element.
    pub size: u64,
    /// What it is.
    pub class: Class,
}

/// Byte order of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "their names say it")]
pub enum Order {
    Little,
    Big,
}

/// How a fixed-length text ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// At the first NUL.
    Terminated,
    /// NULs at the end are padding.
    Nulls,
    /// Spaces at the end are padding.
    Spaces,
}

/// What a reference leads to, and how it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference {
    /// The address of an object.
    Object,
    /// An object and a region of it, in the global heap.
    Region,
    /// An object, as HDF5 1.12 stores references.
    Token,
    /// A region of an object or an attribute of it, as HDF5 1.12 stores references.
    Heap,
}

/// The bits of a floating-point number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Float {
    /// Byte order; `None` for VAX order.
    pub order: Option<Order>,
    /// 0: no normalisation, 1: the first bit of the mantissa is stored, 2: it is implied.
    pub normalisation: u8,
    /// Place of the sign.
    pub sign: u8,
    /// First bit that counts.
    pub offset: u16,
    /// Number of bits that count.
    pub precision: u16,
    /// Place and size of the exponent, in bits.
    pub exponent: (u8, u8),
    /// Place and size of the mantissa, in bits.
    pub mantissa: (u8, u8),
    /// What is added to the exponent.
    pub bias: u32,
}

/// A member of a compound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: Box<[u8]>,
    /// Its place among the members as they are stored, which may be in any order.
    pub number: usize,
    /// Where it begins in the compound, in bytes.
    pub offset: u64,
    /// Its type.
    pub datatype: Datatype,
}

/// Names of an enum with their values as stored.
type Names = Box<[(Box<[u8]>, Box<[u8]>)]>;

/// Kinds of types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Class {
    /// An integer.
    Integer {
        /// Byte order.
        order: Order,
        /// Whether it has a sign.
        is_signed: bool,
        /// First bit that counts.
        offset: u16,
        /// Number of bits that count.
        precision: u16,
    },
    /// A floating-point number.
    Float(Float),
    /// A time, which PyTables makes and libhdf5 does not convert.
    Time,
    /// A text of fixed size, and whether it is stated to be UTF-8. Otherwise it is stated to be ASCII, also if it is
    /// bytes of any value.
    Text(Padding, bool),
    /// Bits.
    BitField {
        /// Byte order.
        order: Order,
        /// First bit that counts.
        offset: u16,
        /// Number of bits that count.
        precision: u16,
    },
    /// Bytes that only the tag describes.
    Opaque(Box<[u8]>),
    /// Members, by their offsets.
    Compound(Box<[Member]>),
    /// A reference.
    Reference(Reference),
    /// Integers with names: the type of the integers, and names with values as stored.
    Enum(Box<Datatype>, Names),
    /// A sequence of elements of a type, of any length.
    Sequence(Box<Datatype>),
    /// A text of any length, in the same way.
    VaryingText(Padding, bool),
    /// An array of a shape.
    Array(Box<[u64]>, Box<Datatype>),
    /// A complex number of two floating-point numbers.
    Complex(Box<Datatype>),
}

/// What parsing may still use.
struct Limits {
    depth: u32,
    nodes: u32,
}

impl Datatype {
    /// Parses a message of type 0x03. Bytes after the type are ignored.
    ///
    /// # Errors
    /// Damage.
    pub fn parse(message: &mut Structure<'_>) -> Result<Self> {
        parse(message, &mut Limits { depth: DEPTH, nodes: NODES })
    }

    /// Returns whether elements are texts that are stated to be UTF-8.
    pub fn is_utf8(&self) -> bool {
        matches!(self.class, Class::Text(_, true) | Class::VaryingText(_, true))
    }

    /// Returns whether elements lead to other places in the file: texts and sequences of any length, and references.
    pub fn is_in_heap(&self) -> bool {
        match &self.class {
            Class::Sequence(_) | Class::VaryingText(..) | Class::Reference(_) => true,
            Class::Array(_, of) => of.is_in_heap(),
            Class::Compound(members) => members.iter().any(|member| member.datatype.is_in_heap()),
            _ => false,
        }
    }

    /// Returns whether it is a boolean as h5py writes it: an enumeration of one byte.
    pub fn is_bool(&self) -> bool {
        let Class::Enum(_, names) = &self.class else { return false };
        self.size == 1
            && matches!(&**names, [(a, x), (b, y)] if matches!((&**a, &**x, &**b, &**y),
                (b"FALSE", [0], b"TRUE", [1]) | (b"TRUE", [1], b"FALSE", [0])))
    }

    /// Returns the names of an enumeration with their numbers, in stored order; `None` for all other types.
    pub fn names(&self) -> Option<Vec<(&[u8], i128)>> {
        let Class::Enum(base, names) = &self.class else { return None };
        let Class::Integer { order, is_signed, .. } = base.class else { return None };
        let number = |bytes: &[u8]| {
            let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
            let number = match order {
                Order::Little => bytes.iter().rev().fold(0, add),
                Order::Big => bytes.iter().fold(0, add),
            };
            let unused = 64 - 8 * bytes.len().clamp(1, 8);
            match is_signed {
                true => i128::from((number << unused) as i64 >> unused),
                false => i128::from(number),
            }
        };
        Some(names.iter().map(|(name, value)| (&**name, number(value))).collect())
    }

    /// Returns the bytes of memory that it takes in addition to its own size.
    pub fn memory_usage(&self) -> usize {
        let base = |base: &Self| size_of::<Self>() + base.memory_usage();
        match &self.class {
            Class::Compound(members) => {
                let each = |member: &Member| size_of_val(member) + member.name.len() + member.datatype.memory_usage();
                members.iter().map(each).sum()
            }
            Class::Enum(of, names) => {
                base(of) + names.iter().map(|(name, value)| 64 + name.len() + value.len()).sum::<usize>()
            }
            Class::Array(dims, of) => 8 * dims.len() + base(of),
            Class::Sequence(of) | Class::Complex(of) => base(of),
            Class::Opaque(tag) => tag.len(),
            _ => 0,
        }
    }
}

fn order(bits: u32) -> Order {
    if bits & 1 == 0 { Order::Little } else { Order::Big }
}

fn padding(message: &Structure<'_>, bits: u32) -> Result<Padding> {
    match bits & 15 {
        0 => Ok(Padding::Terminated),
        1 => Ok(Padding::Nulls),
        2 => Ok(Padding::Spaces),
        kind => Err(message.damaged(format!("texts padded in way {kind}"))),
    }
}

/// Reads a name and its NUL. In old versions it is padded to a multiple of 8 bytes.
fn name<'a>(message: &mut Structure<'a>, is_padded: bool) -> Result<&'a [u8]> {
    let before = message.passed();
    let name = message.text()?;
    if is_padded {
        let length = message.passed() - before;
        message.skip(length.next_multiple_of(8) - length)?;
    }
    Ok(name)
}

fn parse(message: &mut Structure<'_>, limits: &mut Limits) -> Result<Datatype> {
    if limits.depth == 0 || limits.nodes == 0 {
        return Err(message.damaged("types are nested too deeply, or there are too many"));
    }
    limits.depth -= 1;
    limits.nodes -= 1;
    let datatype = parse_one(message, limits);
    limits.depth += 1;
    datatype
}

fn parse_one(message: &mut Structure<'_>, limits: &mut Limits) -> Result<Datatype> {
    let head = message.u32()?;
    let (class, version, bits) = (head & 15, (head >> 4 & 15) as u8, head >> 8);
    if !(1..=5).contains(&version) {
        return Err(message.damaged(format!("a type of version {version}")));
    }
    let size = u64::from(message.u32()?);
    let class = match class {
        0 => {
            let (offset, precision) = (message.u16()?, message.u16()?);
            check_bits(message, size, offset, precision)?;
            Class::Integer { order: order(bits), is_signed: bits & 8 != 0, offset, precision }
        }
        1 => {
            let order = match bits & 0x41 {
                0 => Some(Order::Little),
                1 => Some(Order::Big),
                0x41 => None,
                _ => return Err(message.damaged("numbers in an unknown byte order")),
            };
            let (offset, precision) = (message.u16()?, message.u16()?);
            check_bits(message, size, offset, precision)?;
            Class::Float(Float {
                order,
                normalisation: (bits >> 4 & 3) as u8,
                sign: bits.to_le_bytes()[1],
                offset,
                precision,
                exponent: (message.u8()?, message.u8()?),
                mantissa: (message.u8()?, message.u8()?),
                bias: message.u32()?,
            })
        }
        2 => {
            message.skip(2)?;
            Class::Time
        }
        3 => Class::Text(padding(message, bits)?, bits >> 4 & 15 == 1),
        4 => {
            let (offset, precision) = (message.u16()?, message.u16()?);
            check_bits(message, size, offset, precision)?;
            Class::BitField { order: order(bits), offset, precision }
        }
        5 => {
            let tag = message.take((bits & 0xff) as usize)?;
            let length = tag.iter().position(|byte| *byte == 0).unwrap_or(tag.len());
            Class::Opaque(tag.get(..length).unwrap_or_default().into())
        }
        6 => compound(message, version, size, bits & 0xffff, limits)?,
        7 => {
            let kind = match bits & 15 {
                0 => Reference::Object,
                1 => Reference::Region,
                2 => Reference::Token,
                3 | 4 => Reference::Heap,
                kind => return Err(message.damaged(format!("references of kind {kind}"))),
            };
            let address = u64::from(message.sizes().offset);
            let fits = match kind {
                Reference::Object => size == address,
                Reference::Region => size == address + 4,
                Reference::Token | Reference::Heap => (3..=64).contains(&size),
            };
            if !fits {
                return Err(message.damaged(format!("references of {size} bytes")));
            }
            Class::Reference(kind)
        }
        8 => {
            let base = parse(message, limits)?;
            let count = (bits & 0xffff) as usize;
            if !matches!(base.class, Class::Integer { .. }) || base.size != size {
                return Err(message.damaged("an enumeration of no integers, or of another size"));
            }
            // Each name takes at least its NUL, and each value its bytes.
            if count.saturating_mul(1 + to_usize(size)) > message.left() {
                return Err(message.damaged(format!("an enumeration of {count} names")));
            }
            let names = (0..count).map(|_| name(message, version < 3)).collect::<Result<Vec<_>>>()?;
            let values = names.into_iter().map(|name| Ok((name.into(), message.take(to_usize(size))?.into())));
            Class::Enum(Box::new(base), values.collect::<Result<_>>()?)
        }
        9 => {
            let mut base = parse(message, limits)?;
            if matches!(base.class, Class::Reference(Reference::Token | Reference::Heap)) {
                // Their stated size is then that in memory.
                base.size = base.size.min(10 + u64::from(message.sizes().offset));
            }
            if size != 8 + u64::from(message.sizes().offset) {
                return Err(message.damaged(format!("elements of varying length of {size} bytes")));
            }
            match bits & 15 {
                0 => Class::Sequence(Box::new(base)),
                1 => Class::VaryingText(padding(message, bits >> 4)?, bits >> 8 & 15 == 1),
                kind => return Err(message.damaged(format!("varying lengths of kind {kind}"))),
            }
        }
        10 => {
            let rank = usize::from(message.u8()?);
            if version < 3 {
                message.skip(3)?;
            }
            let dims = (0..rank).map(|_| Ok(u64::from(message.u32()?))).collect::<Result<Box<[u64]>>>()?;
            if version < 3 {
                message.skip(4 * rank)?;
            }
            let base = parse(message, limits)?;
            let whole = dims.iter().try_fold(base.size, |size, axis| size.checked_mul(*axis));
            if rank == 0 || rank > 32 || whole != Some(size) {
                return Err(message.damaged(format!("an array of {size} bytes with the shape {dims:?}")));
            }
            Class::Array(dims, Box::new(base))
        }
        11 => {
            let base = parse(message, limits)?;
            if !matches!(base.class, Class::Float(_)) || base.size.checked_mul(2) != Some(size) {
                return Err(message.damaged("a complex number of no two floating-point numbers"));
            }
            Class::Complex(Box::new(base))
        }
        class => return Err(message.damaged(format!("a type of class {class}"))),
    };
    let has_size = !matches!(class, Class::Opaque(_));
    if size == 0 && has_size {
        return Err(message.damaged("a type of 0 bytes"));
    }
    Ok(Datatype { size, class })
}

fn check_bits(message: &Structure<'_>, size: u64, offset: u16, precision: u16) -> Result<()> {
    let is_inside = precision > 0 && u64::from(offset) + u64::from(precision) <= size.saturating_mul(8);
    if is_inside { Ok(()) } else { Err(message.damaged(format!("{precision} bits at {offset} in {size} bytes"))) }
}

fn compound(message: &mut Structure<'_>, version: u8, size: u64, count: u32, limits: &mut Limits) -> Result<Class> {
    let count = count as usize;
    // A member takes at least 11 bytes.
    if count == 0 || count > MEMBERS || count > message.left() / 11 {
        return Err(message.damaged(format!("a compound of {count} members")));
    }
    // Offsets are stored in the fewest bytes that the compound's size fits.
    let width = (1..8).find(|width| size >> (8 * width) == 0).unwrap_or(8);
    let mut members = Vec::with_capacity(count);
    for number in 0..count {
        let name = name(message, version < 3)?.into();
        let offset = message.uint(if version < 3 { 4 } else { width })?;
        let dims = if version == 1 {
            let rank = usize::from(message.u8()?);
            message.skip(3 + 4 + 4)?;
            let dims = (0..4).map(|_| Ok(u64::from(message.u32()?))).collect::<Result<Vec<u64>>>()?;
            dims.get(..rank).ok_or_else(|| message.damaged(format!("a member of {rank} axes")))?.to_vec()
        } else {
            Vec::new()
        };
        let mut datatype = parse(message, limits)?;
        if !dims.is_empty() {
            let whole = dims.iter().try_fold(datatype.size, |size, axis| size.checked_mul(*axis));
            let size = whole.ok_or_else(|| message.damaged("a member that is too large"))?;
            datatype = Datatype { size, class: Class::Array(dims.into(), Box::new(datatype)) };
        }
        members.push(Member { name, number, offset, datatype });
    }
    members.sort_by_key(|member| member.offset);
    let mut end = 0;
    for member in &members {
        let next = member.offset.checked_add(member.datatype.size).filter(|next| *next <= size);
        let Some(next) = next.filter(|_| member.offset >= end) else {
            return Err(message.damaged("members of a compound overlap, or lie outside"));
        };
        end = next;
    }
    Ok(Class::Compound(members.into()))
}
