//! Writes headers of pages and the footer, in Thrift's compact protocol.
//!
//! polars-parquet-format writes the structures that occur once, or once per column. It makes a string for the name of
//! every field, so a footer of 100,000 chunks would take 0.1 s. Therefore the few fields of chunks are written here.

use polars_parquet_format::{
    ColumnOrder, DataPageHeader, DictionaryPageHeader, Encoding, KeyValue, PageHeader, PageType, SchemaElement,
    thrift::protocol::TCompactOutputProtocol,
};

/// Types of fields and of elements of lists.
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

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

/// Returns an element of a schema with only a name.
pub(super) fn schema_element(name: &str) -> SchemaElement {
    SchemaElement {
        type_: None,
        type_length: None,
        repetition_type: None,
        name: name.into(),
        num_children: None,
        converted_type: None,
        scale: None,
        precision: None,
        field_id: None,
        logical_type: None,
    }
}

/// Returns the first fields of `ColumnMetaData`, which are the same in all chunks of a column.
pub(super) fn chunk_front(physical: i32, encodings: &[Encoding], path: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut meta = Struct::new(&mut out);
    meta.i32(1, physical);
    let listed = meta.list(2, I32, encodings.len());
    encodings.iter().for_each(|encoding| zigzag(listed, encoding.0.into()));
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
pub(super) fn footer_front(out: &mut Vec<u8>, schema: &[SchemaElement], rows: u64, groups: u64) {
    let mut footer = Struct::new(out);
    footer.i32(1, 1);
    let listed = footer.list(2, STRUCT, schema.len());
    schema.iter().for_each(|element| write(listed, |protocol| element.write_to_out_protocol(protocol)));
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
        let pair = KeyValue { key: (*key).into(), value: Some((*value).into()) };
        write(listed, |protocol| pair.write_to_out_protocol(protocol));
    }
    footer.binary(6, concat!("shardfs version ", env!("CARGO_PKG_VERSION")).as_bytes());
    // Without an order, readers ignore smallest and largest values.
    let listed = footer.list(7, STRUCT, columns);
    let order = ColumnOrder::TYPEORDER(polars_parquet_format::TypeDefinedOrder::default());
    (0..columns).for_each(|_| write(listed, |protocol| order.write_to_out_protocol(protocol)));
    footer.end();
}

/// Returns the header of a page of values. `size` is that of the page without this header.
pub(super) fn page_header(values: u64, size: u64, encoding: Encoding) -> Vec<u8> {
    let page = DataPageHeader {
        // The layout keeps pages below 2^31 bytes and 2^31 values.
        num_values: values as i32,
        encoding,
        definition_level_encoding: Encoding::RLE,
        repetition_level_encoding: Encoding::RLE,
        statistics: None,
    };
    header(size, PageHeader { data_page_header: Some(page), ..empty_header(PageType::DATA_PAGE) })
}

/// Returns the header of a dictionary.
pub(super) fn dictionary_header(values: u64, size: u64) -> Vec<u8> {
    let page = DictionaryPageHeader { num_values: values as i32, encoding: Encoding::PLAIN, is_sorted: None };
    header(size, PageHeader { dictionary_page_header: Some(page), ..empty_header(PageType::DICTIONARY_PAGE) })
}

fn empty_header(type_: PageType) -> PageHeader {
    PageHeader {
        type_,
        uncompressed_page_size: 0,
        compressed_page_size: 0,
        crc: None,
        data_page_header: None,
        index_page_header: None,
        dictionary_page_header: None,
        data_page_header_v2: None,
    }
}

fn header(size: u64, header: PageHeader) -> Vec<u8> {
    let size = size as i32;
    let header = PageHeader { uncompressed_page_size: size, compressed_page_size: size, ..header };
    let mut out = Vec::new();
    write(&mut out, |protocol| header.write_to_out_protocol(protocol));
    out
}

fn write(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut TCompactOutputProtocol<&mut Vec<u8>>) -> polars_parquet_format::thrift::Result<usize>,
) {
    // Writing to a `Vec` cannot fail.
    let _ = write(&mut TCompactOutputProtocol::new(out));
}
