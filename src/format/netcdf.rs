//! NetCDF classic files (`docs/formats/netcdf.md`): CDF-1, CDF-2 and CDF-5. They have a big-endian header, then the
//! variables' values.
//!
//! The header is read once, in pieces. Values of attributes other than texts stay in the file.

#[cfg(test)]
mod tests;

use super::{Class, DType, FormatError, Front, Recognition, cursor::Cursor, packed::Asked, without_nuls};
use crate::{
    limits,
    source::{Memory, Source, Unlimited},
};

/// The usual suffixes. HDF5 and other formats use some of them, too.
pub const SUFFIXES: [&str; 4] = [".nc", ".nc3", ".cdf", ".nc2"];

/// Bytes before the version.
const MAGIC: &[u8] = b"CDF";

/// Tags of the lists.
const DIMENSIONS: u32 = 0x0a;
const VARIABLES: u32 = 0x0b;
const ATTRIBUTES: u32 = 0x0c;

/// The least bytes of an entry of a list.
const ENTRY: u64 = 8;

/// Bytes that an entry takes in memory in addition to its name, while the container is opened.
const ENTRY_MEMORY: u64 = 500;

/// The type of a variable or of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bytes of text.
    Char,
    /// Numbers.
    Number(DType),
}

impl Kind {
    /// Returns the type with a code (section 1). Unsigned and 64-bit integers exist only in CDF-5.
    fn of(code: u32, version: u8) -> Option<Self> {
        Some(Self::Number(match code {
            1 => DType::I8,
            2 => return Some(Self::Char),
            3 => DType::I16,
            4 => DType::I32,
            5 => DType::F32,
            6 => DType::F64,
            7 if version == 5 => DType::U8,
            8 if version == 5 => DType::U16,
            9 if version == 5 => DType::U32,
            10 if version == 5 => DType::I64,
            11 if version == 5 => DType::U64,
            _ => return None,
        }))
    }

    /// Returns the bytes of an element.
    pub fn size(self) -> u64 {
        match self {
            Self::Char => 1,
            Self::Number(dtype) => dtype.size(),
        }
    }
}

/// A dimension.
#[derive(Debug, Clone)]
pub struct Dimension {
    /// Its name.
    pub name: Box<[u8]>,
    /// Elements along it; of the record dimension, the number of records.
    pub length: u64,
    /// Whether it is the record dimension.
    pub is_unlimited: bool,
}

/// The values of an attribute.
#[derive(Debug, Clone)]
pub enum Values {
    /// A text, without the NULs at its end.
    Text(Box<[u8]>),
    /// Big-endian numbers: their type, their number, and where in the file they begin.
    Numbers(DType, u64, u64),
}

/// An attribute.
#[derive(Debug, Clone)]
pub struct Attribute {
    /// Its name.
    pub name: Box<[u8]>,
    /// Its values.
    pub values: Values,
}

/// A variable.
#[derive(Debug, Clone)]
pub struct Variable {
    /// Its name.
    pub name: Box<[u8]>,
    /// The numbers of its dimensions, the outermost first.
    pub dimensions: Box<[u32]>,
    /// Its attributes in stored order.
    pub attributes: Box<[Attribute]>,
    /// The type of its elements.
    pub kind: Kind,
    /// Whether its first dimension is the record dimension.
    pub is_record: bool,
    /// Bytes of all its elements.
    pub size: u64,
    /// Where its values are in the file.
    pub place: Place,
}

/// Where the values of a variable are: runs of `width` bytes at distances of `stride` bytes. They may lie beyond the
/// end of the file, and beyond the largest offset of any file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The first byte.
    pub start: u64,
    /// Bytes from the beginning of a run to that of the next.
    pub stride: u64,
    /// Bytes of a run.
    pub width: u64,
}

/// A file's header.
#[derive(Debug, Clone)]
pub struct NetCdf {
    /// 1, 2 or 5.
    pub version: u8,
    /// The dimensions.
    pub dimensions: Vec<Dimension>,
    /// The attributes of the file.
    pub attributes: Box<[Attribute]>,
    /// The variables in stored order.
    pub variables: Vec<Variable>,
}

/// Recognises a file by its first four bytes.
pub fn recognise(front: &Front<'_>) -> Recognition {
    match version_of(front.bytes) {
        Some(_) => Recognition::Meant,
        None => Recognition::No,
    }
}

fn version_of(front: &[u8]) -> Option<u8> {
    let version = *front.strip_prefix(MAGIC)?.first()?;
    matches!(version, 1 | 2 | 5).then_some(version)
}

/// Reads the header.
///
/// # Errors
/// The class of section 2 that it fails.
pub fn parse(source: &dyn Source) -> Result<NetCdf, FormatError> {
    parse_within(source, &Unlimited)
}

/// Like [`parse`], for a caller that has to ask for memory.
///
/// # Errors
/// As [`parse`]; `Source` if there is not enough memory.
pub fn parse_within(source: &dyn Source, memory: &dyn Memory) -> Result<NetCdf, FormatError> {
    let front = source.read(0..source.len().min(4))?;
    let Some(version) = version_of(&front) else {
        return Err(FormatError::refused(Class::NoSignature, "the file does not begin with CDF and 1, 2 or 5"));
    };
    // Twice the header's limit, because pieces that are read ahead overlap.
    let cursor = Cursor::new(source, 4, true, 2 * limits::NETCDF_HEADER);
    let asked = Asked::new(memory);
    let mut header = Header { cursor, version, asked, memory };
    let records = header.count()?;
    let mut dimensions = header.dimensions()?;
    let attributes = header.attributes()?;
    let (mut variables, sizes) = header.variables(&dimensions)?;
    let layout = Records::of(&variables, &sizes, version, records, source.len())?;
    if let Some(dimension) = dimensions.iter_mut().find(|dimension| dimension.is_unlimited) {
        dimension.length = layout.count;
    }
    for (variable, size) in variables.iter_mut().zip(sizes) {
        layout.place(variable, size)?;
    }
    Ok(NetCdf { version, dimensions, attributes, variables })
}

fn bad_header(reason: impl Into<String>) -> FormatError {
    FormatError::refused(Class::BadHeader, reason)
}

/// Returns a name for a message, shortened.
fn shown(name: &[u8]) -> String {
    const MOST: usize = 100;
    format!("{:?}", String::from_utf8_lossy(name.get(..MOST).unwrap_or(name)))
}

/// Reads the parts of a header in their order.
struct Header<'a> {
    cursor: Cursor<'a>,
    version: u8,
    asked: Asked<'a>,
    memory: &'a dyn Memory,
}

impl Header<'_> {
    /// Returns a count: 4 bytes, or 8 in CDF-5.
    fn count(&mut self) -> Result<u64, FormatError> {
        if self.version == 5 { self.cursor.u64() } else { self.cursor.u32().map(u64::from) }
    }

    /// Fails if the header is too long so far.
    fn check(&self) -> Result<(), FormatError> {
        match self.cursor.position() <= limits::NETCDF_HEADER {
            true => Ok(()),
            false => Err(bad_header(format!("a header of more than {} bytes", limits::NETCDF_HEADER))),
        }
    }

    /// Returns the bytes of `count` items of `size` bytes. Fails if the rest of the file is shorter.
    fn room(&self, count: u64, size: u64, what: &str) -> Result<u64, FormatError> {
        let bytes = count.checked_mul(size).filter(|bytes| *bytes <= limits::NETCDF_HEADER);
        let bytes = bytes.ok_or_else(|| bad_header(format!("{count} {what}, which no header has room for")))?;
        self.cursor.check(bytes)?;
        Ok(bytes)
    }

    /// Returns the number of entries of a list.
    fn list(&mut self, expected: u32, what: &str) -> Result<u64, FormatError> {
        let at = self.cursor.position();
        let tag = self.cursor.u32()?;
        let count = self.count()?;
        if tag != expected && (tag, count) != (0, 0) {
            return Err(bad_header(format!("tag 0x{tag:02x} of {count} {what} at {at}: expected 0x{expected:02x}")));
        }
        self.room(count, ENTRY, what)?;
        self.check()?;
        Ok(count)
    }

    /// Reads bytes and their padding to a multiple of 4.
    fn padded(&mut self, length: u64) -> Result<Box<[u8]>, FormatError> {
        let bytes = self.cursor.long(length, &|bytes| self.memory.reserve(bytes))?;
        self.cursor.skip(length.next_multiple_of(4) - length)?;
        Ok(bytes.into())
    }

    fn name(&mut self, what: &str) -> Result<Box<[u8]>, FormatError> {
        let at = self.cursor.position();
        let length = self.count()?;
        if length == 0 {
            return Err(bad_header(format!("{what} at {at} has no name")));
        }
        self.room(length, 1, "bytes of a name")?;
        self.asked.take(ENTRY_MEMORY + 3 * length)?;
        self.padded(length)
    }

    fn kind(&mut self, name: &[u8]) -> Result<Kind, FormatError> {
        let code = self.cursor.u32()?;
        Kind::of(code, self.version)
            .ok_or_else(|| bad_header(format!("{} has type {code}, which CDF-{} has not", shown(name), self.version)))
    }

    fn dimensions(&mut self) -> Result<Vec<Dimension>, FormatError> {
        let mut found: Vec<Dimension> = Vec::new();
        let mut has_records = false;
        for _ in 0..self.list(DIMENSIONS, "dimensions")? {
            let name = self.name("a dimension")?;
            let length = self.count()?;
            if i64::try_from(length).is_err() {
                return Err(bad_header(format!("dimension {} has {length} elements", shown(&name))));
            }
            let is_unlimited = length == 0;
            if is_unlimited && std::mem::replace(&mut has_records, true) {
                return Err(bad_header(format!("{} is a second record dimension", shown(&name))));
            }
            self.check()?;
            found.push(Dimension { name, length, is_unlimited });
        }
        Ok(found)
    }

    fn attributes(&mut self) -> Result<Box<[Attribute]>, FormatError> {
        let mut found = Vec::new();
        for _ in 0..self.list(ATTRIBUTES, "attributes")? {
            let name = self.name("an attribute")?;
            let kind = self.kind(&name)?;
            let count = self.count()?;
            let size = self.room(count, kind.size(), "values of an attribute")?;
            let values = match kind {
                Kind::Char => {
                    self.asked.take(2 * size)?;
                    Values::Text(without_nuls(&self.padded(size)?).into())
                }
                Kind::Number(dtype) => {
                    let place = self.cursor.position();
                    self.cursor.skip(size.next_multiple_of(4))?;
                    Values::Numbers(dtype, count, place)
                }
            };
            self.check()?;
            found.push(Attribute { name, values });
        }
        Ok(found.into())
    }

    /// Reads the variables, and returns the bytes of each without the record dimension.
    fn variables(&mut self, dimensions: &[Dimension]) -> Result<(Vec<Variable>, Vec<u64>), FormatError> {
        let (mut found, mut sizes) = (Vec::new(), Vec::new());
        let wide = if self.version == 5 { 8 } else { 4 };
        for _ in 0..self.list(VARIABLES, "variables")? {
            let name = self.name("a variable")?;
            let rank = self.count()?;
            let bytes = self.room(rank, wide, "dimensions of a variable")?;
            self.asked.take(bytes)?;
            let mut numbers = Vec::new();
            let mut is_record = false;
            for axis in 0..rank {
                let number = self.count()?;
                let dimension = usize::try_from(number).ok().and_then(|number| dimensions.get(number));
                let Some(dimension) = dimension else {
                    let known = dimensions.len();
                    return Err(bad_header(format!("{} has dimension {number} of {known}", shown(&name))));
                };
                if dimension.is_unlimited && axis > 0 {
                    return Err(bad_header(format!("the record dimension of {} is not its first", shown(&name))));
                }
                is_record |= dimension.is_unlimited;
                #[expect(clippy::cast_possible_truncation, reason = "`NETCDF_HEADER` bounds how many there are")]
                numbers.push(number as u32);
            }
            let attributes = self.attributes()?;
            let kind = self.kind(&name)?;
            // The stored size is redundant, and wrong for large variables.
            self.count()?;
            let start = if self.version == 1 { self.cursor.u32().map(u64::from)? } else { self.cursor.u64()? };
            self.check()?;
            let axes =
                numbers.iter().skip(usize::from(is_record)).filter_map(|number| dimensions.get(*number as usize));
            let size = product(kind.size(), axes.map(|axis| axis.length)).ok_or_else(|| too_large(&name))?;
            let place = Place { start, stride: size, width: size };
            found.push(Variable { name, dimensions: numbers.into(), attributes, kind, is_record, size, place });
            sizes.push(size);
        }
        Ok((found, sizes))
    }
}

fn too_large(name: &[u8]) -> FormatError {
    bad_header(format!("variable {} is larger than any file", shown(name)))
}

/// Returns a product of sizes; `None` if it is more than any block may have.
fn product(size: u64, lengths: impl IntoIterator<Item = u64>) -> Option<u64> {
    let product = lengths.into_iter().try_fold(size, u64::checked_mul);
    product.filter(|size| *size <= limits::LARGEST_BLOCK)
}

/// The layout of the records.
struct Records {
    /// The number of records.
    count: u64,
    /// Bytes from the beginning of a record to that of the next.
    size: u64,
}

impl Records {
    /// Returns the layout, given the bytes that each variable has in one record.
    fn of(variables: &[Variable], sizes: &[u64], version: u8, stated: u64, length: u64) -> Result<Self, FormatError> {
        let of_records = || variables.iter().zip(sizes).filter(|(variable, _)| variable.is_record);
        let is_alone = of_records().count() == 1;
        // If only one variable has records, its values follow each other without padding.
        let padded = |size: u64| if is_alone { size } else { size.next_multiple_of(4) };
        let size = of_records().try_fold(0u64, |sum, (_, size)| sum.checked_add(padded(*size)));
        let size = size.ok_or_else(|| bad_header("records are larger than any file"))?;
        let is_streaming = stated == if version == 5 { u64::MAX } else { u64::from(u32::MAX) };
        let count = match is_streaming {
            true => {
                let first = of_records().map(|(variable, _)| variable.place.start).min().unwrap_or(length);
                length.saturating_sub(first).checked_div(size).unwrap_or(0)
            }
            false => stated,
        };
        match i64::try_from(count) {
            Ok(_) => Ok(Self { count, size }),
            Err(_) => Err(bad_header(format!("{count} records"))),
        }
    }

    /// Completes the size and place of a variable that has `size` bytes in each record.
    fn place(&self, variable: &mut Variable, size: u64) -> Result<(), FormatError> {
        if variable.is_record {
            variable.size = product(size, [self.count]).ok_or_else(|| too_large(&variable.name))?;
            // If only one variable has records, they are one run.
            let width = if self.size == size { variable.size } else { size };
            let stride = if self.size == size { variable.size } else { self.size };
            variable.place = Place { stride, width, ..variable.place };
        }
        Ok(())
    }
}

impl NetCdf {
    /// Returns the elements along each axis of a variable, the outermost first.
    pub fn shape(&self, variable: &Variable) -> Vec<u64> {
        self.dimensions_of(variable).map(|dimension| dimension.length).collect()
    }

    /// Iterates over the dimensions of a variable.
    pub fn dimensions_of(&self, variable: &Variable) -> impl Iterator<Item = &Dimension> {
        variable.dimensions.iter().filter_map(|number| self.dimensions.get(*number as usize))
    }

    /// Returns how many bytes of memory it takes.
    pub fn memory_usage(&self) -> usize {
        let texts = |attributes: &[Attribute]| {
            let sizes = attributes.iter().map(|attribute| {
                let text = if let Values::Text(text) = &attribute.values { text.len() } else { 0 };
                size_of::<Attribute>() + attribute.name.len() + text
            });
            sizes.sum::<usize>()
        };
        let dimensions = self.dimensions.iter().map(|dimension| size_of::<Dimension>() + dimension.name.len());
        let variables = self.variables.iter().map(|variable| {
            let own = size_of::<Variable>() + variable.name.len() + size_of_val(&*variable.dimensions);
            own + texts(&variable.attributes)
        });
        dimensions.sum::<usize>() + variables.sum::<usize>() + texts(&self.attributes)
    }
}
