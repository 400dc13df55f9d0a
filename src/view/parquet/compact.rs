//! Writes headers of pages and the footer, in Thrift's compact protocol. The numbers of fields and of enumeration
//! values are those of parquet.thrift.

/// Types of fields and of elements of lists.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// How values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Boolean = 0,
    Int32 = 1,
    Int64 = 2,
    Float = 4,
    Double = 5,
    Bytes = 6,
    FixedBytes = 7,
}

/// How values are encoded in a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Plain = 0,
    Rle = 3,
    RleDictionary = 8,
}

/// How often an element of the schema occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repetition {
    Required = 0,
    Optional = 1,
    Repeated = 2,
}

/// The meaning of stored values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Logical {
    Text,
    List,
    /// A time; the unit is 1 for milliseconds, 2 for microseconds and 3 for nanoseconds.
    Time {
        is_utc: bool,
        unit: u8,
    },
    Integer {
        bits: u8,
        is_signed: bool,
    },
}

impl Logical {
    /// Returns the legacy type with the same meaning. Legacy types can express neither times without a zone nor
    /// nanoseconds.
    fn converted(self) -> Option<i32> {
        match self {
            Self::Text => Some(0),
            Self::List => Some(3),
            Self::Time { .. } => None,
            Self::Integer { bits, is_signed } => Some((bits.ilog2() + if is_signed { 12 } else { 8 }) as i32),
        }
    }

    /// Writes a `LogicalType`.
    fn write(self, mut union: Struct<'_>) {
        match self {
            Self::Text => union.within(1).end(),
            Self::List => union.within(3).end(),
            Self::Time { is_utc, unit } => {
                let mut time = union.within(8);
                time.bool(1, is_utc);
                let mut of_unit = time.within(2);
                of_unit.within(unit).end();
                of_unit.end();
                time.end();
            }
            Self::Integer { bits, is_signed } => {
                let mut integer = union.within(10);
                integer.field(1, BYTE).push(bits);
                integer.bool(2, is_signed);
                integer.end();
            }
        }
        union.end();
    }
}

/// An element of the schema. The root and groups have `children`, columns a type.
#[derive(Debug, Default)]
pub(super) struct SchemaElement<'a> {
    pub(super) name: &'a str,
    pub(super) repetition: Option<Repetition>,
    pub(super) children: Option<usize>,
    pub(super) physical: Option<Type>,
    /// Bytes of a value, if its physical type does not give them.
    pub(super) length: Option<i32>,
    pub(super) logical: Option<Logical>,
}

impl SchemaElement<'_> {
    fn write(&self, mut element: Struct<'_>) {
        if let Some(physical) = self.physical {
            element.i32(1, physical as i32);
        }
        if let Some(length) = self.length {
            element.i32(2, length);
        }
        if let Some(repetition) = self.repetition {
            element.i32(3, repetition as i32);
        }
        element.binary(4, self.name.as_bytes());
        if let Some(children) = self.children {
            element.i32(5, children as i32);
        }
        if let Some(logical) = self.logical {
            if let Some(converted) = logical.converted() {
                element.i32(6, converted);
            }
            logical.write(element.within(10));
        }
        element.end();
    }
}

/// The footer's entry for a chunk. Sizes are in bytes and include headers of pages.
pub(super) struct Chunk {
    /// Offset in the file of its dictionary or, without one, of its page.
    pub(super) start: u64,
    pub(super) size: u64,
    /// Bytes of its dictionary, if it has one.
    pub(super) dictionary: u64,
    /// Number of values; each element of a list counts.
    pub(super) values: u64,
    /// Smallest and largest value, if known.
    pub(super) bounds: Option<[Vec<u8>; 2]>,
    /// Whether no value is missing. Readers then count values without reading them.
    pub(super) is_full: bool,
}

/// Writes the fields of a structure in order.
pub(super) struct Struct<'a> {
    out: &'a mut Vec<u8>,
    /// Number of the last field that was written.
    last: u8,
}

impl<'a> Struct<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, last: 0 }
    }

    /// Writes the head of a field. Numbers of fields rise by less than 16.
    fn field(&mut self, number: u8, kind: u8) -> &mut Vec<u8> {
        self.out.push((number - self.last) << 4 | kind);
        self.last = number;
        self.out
    }

    fn bool(&mut self, number: u8, value: bool) {
        self.field(number, if value { TRUE } else { FALSE });
    }

    pub(super) fn i32(&mut self, number: u8, value: i32) {
        zigzag(self.field(number, I32), value.into());
    }

    pub(super) fn i64(&mut self, number: u8, value: u64) {
        // Sizes and offsets in a file are below 2^63.
        zigzag(self.field(number, I64), value as i64);
    }

    fn binary(&mut self, number: u8, value: &[u8]) {
        bytes(self.field(number, BINARY), value);
    }

    fn list(&mut self, number: u8, kind: u8, count: usize) -> &mut Vec<u8> {
        list(self.field(number, LIST), kind, count)
    }

    fn within(&mut self, number: u8) -> Struct<'_> {
        Struct::new(self.field(number, STRUCT))
    }

    pub(super) fn end(self) {
        self.out.push(0);
    }
}

/// Writes an unsigned number, seven bits per byte.
pub(super) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zigzag(out: &mut Vec<u8>, value: i64) {
    varint(out, (value << 1 ^ value >> 63) as u64);
}

fn bytes(out: &mut Vec<u8>, value: &[u8]) {
    varint(out, value.len() as u64);
    out.extend(value);
}

fn list(out: &mut Vec<u8>, kind: u8, count: usize) -> &mut Vec<u8> {
    if count < 15 {
        out.push((count as u8) << 4 | kind);
    } else {
        out.push(0xf0 | kind);
        varint(out, count as u64);
    }
    out
}

/// Returns the first fields of `ColumnMetaData`, which are the same in all chunks of a column.
pub(super) fn chunk_front(physical: Type, encodings: &[Encoding], path: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut meta = Struct::new(&mut out);
    meta.i32(1, physical as i32);
    let listed = meta.list(2, I32, encodings.len());
    encodings.iter().for_each(|encoding| zigzag(listed, *encoding as i64));
    let listed = meta.list(3, BINARY, path.len());
    path.iter().for_each(|part| bytes(listed, part.as_bytes()));
    // Not compressed.
    meta.i32(4, 0);
    out
}

/// Writes a `ColumnChunk`.
pub(super) fn chunk(out: &mut Vec<u8>, front: &[u8], chunk: &Chunk) {
    let mut column = Struct::new(out);
    column.i64(2, chunk.start);
    let mut meta = column.within(3);
    meta.out.extend(front);
    meta.last = 4;
    meta.i64(5, chunk.values);
    meta.i64(6, chunk.size);
    meta.i64(7, chunk.size);
    meta.i64(9, chunk.start + chunk.dictionary);
    if chunk.dictionary > 0 {
        meta.i64(11, chunk.start);
    }
    if chunk.is_full {
        let mut statistics = meta.within(12);
        statistics.i64(3, 0);
        if let Some([least, greatest]) = &chunk.bounds {
            statistics.binary(5, greatest);
            statistics.binary(6, least);
        }
        statistics.end();
    }
    meta.end();
    column.end();
}

/// Writes the front of a `FileMetaData`. Its row groups follow.
pub(super) fn footer_front(out: &mut Vec<u8>, schema: &[SchemaElement<'_>], rows: u64, groups: u64) {
    let mut footer = Struct::new(out);
    footer.i32(1, 1);
    let listed = footer.list(2, STRUCT, schema.len());
    schema.iter().for_each(|element| element.write(Struct::new(listed)));
    footer.i64(3, rows);
    footer.list(4, STRUCT, groups as usize);
}

/// Writes the front of a `RowGroup`. Its columns follow.
pub(super) fn group_front(out: &mut Vec<u8>, columns: usize) {
    Struct::new(out).list(1, STRUCT, columns);
}

/// Writes what follows the columns of a `RowGroup`.
pub(super) fn group_back(out: &mut Vec<u8>, start: u64, size: u64, rows: u64) {
    let mut group = Struct { out, last: 1 };
    group.i64(2, size);
    group.i64(3, rows);
    group.i64(5, start);
    group.i64(6, size);
    group.end();
}

/// Writes what follows the row groups of a `FileMetaData`.
pub(super) fn footer_back(out: &mut Vec<u8>, about: &[(&str, &str)], columns: usize) {
    let mut footer = Struct { out, last: 4 };
    let listed = footer.list(5, STRUCT, about.len());
    for (key, value) in about {
        let mut pair = Struct::new(listed);
        pair.binary(1, key.as_bytes());
        pair.binary(2, value.as_bytes());
        pair.end();
    }
    footer.binary(6, concat!("shardfs version ", env!("CARGO_PKG_VERSION")).as_bytes());
    // Without an order, readers ignore smallest and largest values.
    let listed = footer.list(7, STRUCT, columns);
    for _ in 0..columns {
        // The order of the column's own type.
        let mut order = Struct::new(listed);
        order.within(1).end();
        order.end();
    }
    footer.end();
}

/// Returns the header of a page of values. `size` is that of the page without this header.
pub(super) fn page_header(values: u64, size: u64, encoding: Encoding) -> Vec<u8> {
    header(size, 0, 5, |page| {
        // The layout keeps pages below 2^31 bytes and 2^31 values.
        page.i32(1, values as i32);
        page.i32(2, encoding as i32);
        // The encodings of definition and repetition levels.
        page.i32(3, Encoding::Rle as i32);
        page.i32(4, Encoding::Rle as i32);
    })
}

/// Returns the header of a dictionary.
pub(super) fn dictionary_header(values: u64, size: u64) -> Vec<u8> {
    header(size, 2, 7, |page| {
        page.i32(1, values as i32);
        page.i32(2, Encoding::Plain as i32);
    })
}

/// Writes a `PageHeader` of a type. The type's own fields are in the field with this number.
fn header(size: u64, kind: i32, number: u8, fill: impl FnOnce(&mut Struct<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    let mut header = Struct::new(&mut out);
    header.i32(1, kind);
    header.i32(2, size as i32);
    header.i32(3, size as i32);
    let mut page = header.within(number);
    fill(&mut page);
    page.end();
    header.end();
    out
}
