//! How a dataset is shown, by its type and shape (`docs/formats/hdf5.md`, section 7.2).

use std::{num::NonZeroU32, sync::Arc};

use super::{
    chunks,
    convert::{Conversion, Parts},
    store::Damage,
    tables,
};
use crate::{
    format::{
        DType, DateUnit, ElementType, Field, Record,
        hdf5::{Class, Dataset, Datatype, Float, Layout, Member, Order, Padding},
    },
    limits,
    tree::names,
};

/// Largest element that is converted or read as one, in bytes.
const LARGEST: u64 = 64 << 20;

/// How a dataset is shown.
#[derive(Debug)]
pub(super) struct Form {
    pub(super) kind: FormKind,
    /// Its axes; none for a scalar.
    pub(super) dims: Vec<u64>,
    /// The number of its elements.
    pub(super) elements: u64,
    /// Whether it is also a table: a compound of one axis.
    pub(super) is_table: bool,
}

/// The ways to show a dataset.
#[derive(Debug)]
pub(super) enum FormKind {
    /// An array.
    Plain(Plain),
    /// One text.
    Text(Texts),
    /// Texts of any length.
    Texts,
    /// Rows of any length.
    Sequence(Plain),
    /// One JSON value for each element.
    Rows,
    /// The stored bytes.
    Stored(&'static str),
    /// A file without bytes: it has no elements and no axes.
    Null,
    /// A file of one byte that cannot be read.
    Broken(Damage),
}

/// How one text is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Texts {
    /// In this many bytes.
    Fixed(u64, Padding),
    /// In the global heap.
    Varying,
}

/// A type that can be shown as an array.
#[derive(Debug, Clone)]
pub(super) struct Plain {
    /// The type of the elements that are shown.
    pub(super) element: ElementType,
    /// The axes of each stored element.
    pub(super) inner: Vec<u64>,
    /// How stored elements are converted.
    pub(super) conversion: Conversion,
    /// Bytes of a stored element.
    pub(super) stored: u64,
    /// The name of a type that numpy does not have.
    pub(super) name: Option<&'static str>,
    /// The padding of texts of one size.
    pub(super) texts: Option<Padding>,
}

/// A type that cannot be shown as an array.
enum Other {
    /// It contains texts, sequences or references.
    Rows,
    /// It contains something that is not supported.
    Unsupported(&'static str),
}

impl Form {
    /// Returns how a dataset is shown whose header is at a place of the file.
    pub(super) fn of(dataset: &Dataset, place: u64) -> Self {
        let Some(dims) = dataset.space.dims.clone() else {
            return Self { kind: FormKind::Null, dims: Vec::new(), elements: 0, is_table: false };
        };
        let elements = dataset.space.elements().unwrap_or(u64::MAX);
        let mut kind = match dataset.datatype.size {
            size if size > LARGEST => FormKind::Stored("unsupported"),
            _ => kind_of(&dataset.datatype, dims.is_empty()),
        };
        if let FormKind::Plain(plain) = &kind
            && dims.len() + plain.inner.len() > limits::DIMENSIONS
        {
            kind = FormKind::Stored("unsupported");
        }
        if let Layout::Chunked(chunked) = &dataset.layout {
            if chunks::chunk_size(chunked).is_none() {
                kind = FormKind::Broken(Damage::new(place, "a chunk that is too large"));
            } else if dims.is_empty() {
                kind = FormKind::Broken(Damage::new(place, "a scalar in chunks"));
            }
        }
        let is_table = dims.len() == 1
            && matches!(kind, FormKind::Plain(_) | FormKind::Rows)
            && tables::has_columns(dataset, &kind);
        Self { kind, dims, elements, is_table }
    }

    /// Returns the form of a dataset that cannot be read.
    pub(super) fn broken(damage: Damage) -> Self {
        Self { kind: FormKind::Broken(damage), dims: Vec::new(), elements: 0, is_table: false }
    }

    /// Returns the bytes of memory that it takes.
    pub(super) fn memory_usage(&self) -> usize {
        let plain = |plain: &Plain| {
            let record = plain.element.record().map_or(0, |record| 3 * record.memory_usage());
            8 * plain.inner.len() + record
        };
        8 * self.dims.len()
            + match &self.kind {
                FormKind::Plain(of) | FormKind::Sequence(of) => plain(of),
                FormKind::Broken(damage) => damage.reason.len(),
                _ => 0,
            }
    }

    /// Returns the shape of the array that is shown.
    pub(super) fn shape(&self) -> Vec<u64> {
        match &self.kind {
            FormKind::Plain(plain) => self.dims.iter().chain(&plain.inner).copied().collect(),
            _ => self.dims.clone(),
        }
    }
}

fn kind_of(datatype: &Datatype, is_scalar: bool) -> FormKind {
    match &datatype.class {
        Class::Text(padding, _) if is_scalar => FormKind::Text(Texts::Fixed(datatype.size, *padding)),
        Class::VaryingText(..) if is_scalar => FormKind::Text(Texts::Varying),
        Class::VaryingText(..) => FormKind::Texts,
        Class::Sequence(base) => match Plain::of(base) {
            Ok(plain) => FormKind::Sequence(plain),
            Err(Other::Rows) => FormKind::Rows,
            Err(Other::Unsupported(name)) => FormKind::Stored(name),
        },
        _ => match Plain::of(datatype) {
            Ok(plain) => FormKind::Plain(plain),
            Err(Other::Rows) => FormKind::Rows,
            Err(Other::Unsupported(name)) => FormKind::Stored(name),
        },
    }
}

impl Plain {
    fn new(element: impl Into<ElementType>, conversion: Conversion, stored: u64) -> Self {
        let element = element.into();
        Self { element, inner: Vec::new(), conversion, stored, name: None, texts: None }
    }

    /// Returns how a type is shown as an array; `None` if it is not.
    pub(super) fn of_type(datatype: &Datatype) -> Option<Self> {
        Self::of(datatype).ok()
    }

    fn of(datatype: &Datatype) -> Result<Self, Other> {
        let size = datatype.size;
        let number = |dtype, order| Ok(Self::new(dtype, ordered(order, size), size));
        match &datatype.class {
            Class::Integer { order, is_signed, offset, precision } => {
                let dtype = integer(size, *is_signed).ok_or(Other::Unsupported("unsupported"))?;
                if *offset == 0 && u64::from(*precision) == 8 * size {
                    return number(dtype, *order);
                }
                let (order, is_signed, offset, precision) = (*order, *is_signed, *offset, *precision);
                let conversion = Conversion::Bits { size: size as u8, order, is_signed, offset, precision };
                Ok(Self::new(dtype, conversion, size))
            }
            Class::BitField { order, offset, precision } => match integer(size, false) {
                Some(dtype) if *offset == 0 && u64::from(*precision) == 8 * size => number(dtype, *order),
                _ => Err(Other::Unsupported("bit field")),
            },
            Class::Float(float) => of_float(size, float),
            Class::Time => Err(Other::Unsupported("time")),
            Class::Text(padding, _) => {
                let width = NonZeroU32::new(size as u32).ok_or(Other::Unsupported("unsupported"))?;
                let plain = Self::new(DType::Bytes(width), Conversion::Copy(size), size);
                Ok(Self { texts: Some(*padding), ..plain })
            }
            Class::Opaque(tag) => {
                let width = NonZeroU32::new(size as u32).ok_or(Other::Unsupported("unsupported"))?;
                let dtype = date(tag, size).unwrap_or(DType::Void(width));
                Ok(Self::new(dtype, Conversion::Copy(size), size))
            }
            Class::Compound(members) => of_compound(size, members),
            Class::Enum(base, _) => {
                if datatype.is_bool() {
                    Ok(Self::new(DType::Bool, Conversion::Bool, 1))
                } else {
                    Self::of(base)
                }
            }
            Class::Array(dims, base) => {
                let base = Self::of(base)?;
                let count = dims.iter().product::<u64>();
                let inner = dims.iter().copied().chain(base.inner).collect();
                let conversion = base.conversion.repeated(count, base.stored);
                Ok(Self { inner, conversion, stored: size, ..base })
            }
            Class::Complex(base) => {
                let base = Self::of(base)?;
                let dtype = base.element.plain().and_then(complex).ok_or(Other::Unsupported("unsupported"))?;
                Ok(Self::new(dtype, base.conversion.repeated(2, base.stored), size))
            }
            Class::Sequence(base) => match Self::of(base) {
                Err(Other::Unsupported(name)) => Err(Other::Unsupported(name)),
                _ => Err(Other::Rows),
            },
            Class::VaryingText(..) | Class::Reference(_) => Err(Other::Rows),
        }
    }

    /// Returns the bytes of an element of the array that is shown, with its axes.
    pub(super) fn shown(&self) -> u64 {
        self.conversion.size()
    }
}

fn ordered(order: Order, size: u64) -> Conversion {
    match order {
        Order::Big if size > 1 => Conversion::Reverse(size, 1),
        _ => Conversion::Copy(size),
    }
}

fn integer(size: u64, is_signed: bool) -> Option<DType> {
    Some(match (size, is_signed) {
        (1, true) => DType::I8,
        (2, true) => DType::I16,
        (4, true) => DType::I32,
        (8, true) => DType::I64,
        (1, false) => DType::U8,
        (2, false) => DType::U16,
        (4, false) => DType::U32,
        (8, false) => DType::U64,
        _ => return None,
    })
}

fn of_float(size: u64, float: &Float) -> Result<Plain, Other> {
    let &Float { order, normalisation, sign, offset, precision, exponent, mantissa, bias } = float;
    if size == 1 {
        return Ok(Plain { name: Some("float8"), ..Plain::new(DType::U8, Conversion::Copy(1), 1) });
    }
    let order = order.ok_or(Other::Unsupported("unsupported"))?;
    let (dtype, name) = match (size, precision, sign, exponent, mantissa, bias) {
        (2, 16, 15, (10, 5), (0, 10), 15) => (DType::F16, None),
        (2, 16, 15, (7, 8), (0, 7), 127) => (DType::Bf16, Some("bfloat16")),
        (4, 32, 31, (23, 8), (0, 23), 127) => (DType::F32, None),
        (8, 64, 63, (52, 11), (0, 52), 1023) => (DType::F64, None),
        (16, 80 | 128, ..) => return Err(Other::Unsupported("long double")),
        _ => return of_parts(size, float, order),
    };
    if offset != 0 || normalisation != 2 {
        return Err(Other::Unsupported("unsupported"));
    }
    Ok(Plain { name, ..Plain::new(dtype, ordered(order, size), size) })
}

/// Returns how a float is shown that is none of numpy's: as the smallest type that has all its numbers, as h5py does.
fn of_parts(size: u64, float: &Float, order: Order) -> Result<Plain, Other> {
    let &Float { normalisation, sign, exponent, mantissa, bias, .. } = float;
    let is_inside = |(place, bits): (u8, u8)| bits > 0 && u64::from(place) + u64::from(bits) <= 8 * size;
    let is_known = size <= 8
        && normalisation == 2
        && is_inside((sign, 1))
        && is_inside(exponent)
        && is_inside(mantissa)
        && exponent.1 <= 11
        && bias < 1 << 12;
    if !is_known {
        return Err(Other::Unsupported("unsupported"));
    }
    // Bytes, bits of the mantissa, and the greatest and least exponents.
    let fits = |bytes: u64, bits: u8, most: i64, least: i64| {
        size <= bytes
            && mantissa.1 <= bits
            && (1 << exponent.1) - i64::from(bias) - 1 <= most
            && 1 - i64::from(bias) >= least
    };
    let dtype = match () {
        () if fits(2, 10, 16, -14) => return Err(Other::Unsupported("unsupported")),
        () if fits(4, 23, 128, -126) => DType::F32,
        () if fits(8, 52, 1024, -1022) => DType::F64,
        () => return Err(Other::Unsupported("unsupported")),
    };
    let (size, shown) = (size as u8, dtype.size() as u8);
    let parts = Parts { size, order, sign, exponent, mantissa, bias, shown };
    Ok(Plain::new(dtype, Conversion::Float(parts), size.into()))
}

fn complex(part: DType) -> Option<DType> {
    Some(match part {
        DType::F16 => DType::C32,
        DType::F32 => DType::C64,
        DType::F64 => DType::C128,
        _ => return None,
    })
}

/// Returns the date type in a tag of h5py.
fn date(tag: &[u8], size: u64) -> Option<DType> {
    let tag = std::str::from_utf8(tag).ok()?.strip_prefix("NUMPY:")?;
    let unit = |text: &str| DateUnit::parse(text.strip_prefix('[')?.strip_suffix(']')?);
    match tag.get(..3)? {
        "<M8" if size == 8 => Some(DType::Date(unit(tag.get(3..)?)?)),
        "<m8" if size == 8 => Some(DType::Span(unit(tag.get(3..)?)?)),
        _ => None,
    }
}

fn of_compound(size: u64, members: &[Member]) -> Result<Plain, Other> {
    let mut found = Vec::with_capacity(members.len());
    let mut other = None;
    for member in members {
        match Plain::of(&member.datatype) {
            Ok(plain) => found.push((member, plain)),
            Err(Other::Rows) => other = other.or(Some(Other::Rows)),
            // A type with an unsupported part is not shown.
            Err(Other::Unsupported(_)) => return Err(Other::Unsupported("unsupported")),
        }
    }
    if let Some(other) = other {
        return Err(other);
    }
    let in_stored_order = match found.as_slice() {
        [first, second] if first.0.number < second.0.number => Some((first, second)),
        [first, second] => Some((second, first)),
        _ => None,
    };
    // As in h5py, the real part is the member that is stored first, wherever in the element it is.
    if let Some(((r, real), (i, imaginary))) = in_stored_order
        && (&*r.name, &*i.name) == (b"r", b"i")
        && real.element == imaginary.element
        && real.inner.is_empty()
        && imaginary.inner.is_empty()
        && let Some(dtype) = real.element.plain().and_then(complex)
    {
        let parts = [(r.offset, real.conversion.clone()), (i.offset, imaginary.conversion.clone())];
        let conversion = match (&real.conversion, i.offset == r.offset + real.stored && r.offset == 0) {
            (one, true) if *one == imaginary.conversion => one.clone().repeated(2, real.stored),
            _ => Conversion::Members(parts.into()),
        };
        return Ok(Plain::new(dtype, conversion, size));
    }
    let mut taken = std::collections::HashSet::new();
    let mut fields = Vec::with_capacity(found.len());
    for (member, plain) in &found {
        let stored = std::str::from_utf8(&member.name).ok().filter(|name| !name.is_empty());
        let mut name = stored.map_or_else(|| names::file(&member.name, "", 1), str::to_owned);
        for number in 2.. {
            if taken.insert(name.clone()) {
                break;
            }
            name = names::file(&member.name, "", number);
        }
        fields.push(Field::of_shape(&name, plain.element.clone(), &plain.inner));
    }
    let record: Arc<Record> = Record::new(fields).map_err(|_| Other::Unsupported("unsupported"))?;
    let conversions = found.into_iter().map(|(member, plain)| (member.offset, plain.conversion));
    let mut conversion = Conversion::Members(conversions.collect());
    // Members that are shown as and where they are stored need no conversion.
    if matches!(conversion.turn(size), Some(crate::view::grid::Turn::No)) {
        conversion = Conversion::Copy(size);
    }
    Ok(Plain::new(record, conversion, size))
}
