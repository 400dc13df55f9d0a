//! The codecs of an array, and the filters that undo them (`docs/formats/zarr.md` 6).

use super::{
    fill,
    json::Json,
    types::{Elements, Fixed, named},
};
use crate::{
    codec::{Chain, ChecksumKind, Codec, CrcKind, Delta, Filter, Number, NumberKind, Scaled},
    format::{DType, ElementType},
};

/// Most codecs of a chain.
const CODECS: usize = 16;

/// Most levels of nested sharding.
const SHARDINGS: usize = 4;

/// Most inner chunks of a shard.
const INNER: u64 = 4 << 20;

/// Codecs that have the same name with and without the prefix `numcodecs.`.
const CORE: [&str; 4] = ["gzip", "zstd", "blosc", "crc32c"];

/// How a chunk was encoded.
#[derive(Debug, Clone, Default)]
pub struct Written {
    /// Steps from elements to elements, in the order of writing.
    pub elements: Vec<Filter>,
    /// Steps from bytes to bytes, in the order of writing.
    pub bytes: Vec<Filter>,
    /// The axes of a chunk in the order in which they are stored, the outermost first; `None` is C order.
    pub order: Option<Vec<usize>>,
    /// Whether the values are big-endian after the steps of `elements`, although the type is little-endian.
    pub is_big: bool,
    /// The names of all codecs in the order of writing, joined by `+`.
    pub names: String,
    /// The kind of the checksum that was written last.
    pub checksum: Option<&'static str>,
    /// The shards that chunks are in, the outermost first.
    pub shards: Vec<Sharding>,
    /// Elements of the innermost chunk along each axis.
    pub chunk: Vec<u64>,
}

/// How a chunk is divided into inner chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sharding {
    /// Elements of the outer chunk along each axis.
    pub outer: Vec<u64>,
    /// Elements of an inner chunk along each axis. They divide those of the outer one.
    pub inner: Vec<u64>,
    /// Whether the numbers of the index are big-endian.
    pub is_big: bool,
    /// Whether a CRC-32C follows the index.
    pub has_crc: bool,
    /// Whether the index is before the chunks, not after them.
    pub is_in_front: bool,
}

impl Sharding {
    /// Returns the number of inner chunks along each axis.
    pub fn counts(&self) -> impl Iterator<Item = u64> {
        self.outer.iter().zip(&self.inner).map(|(outer, inner)| outer / (*inner).max(1))
    }

    /// Returns the bytes of the index.
    pub fn index_size(&self) -> u64 {
        self.counts().product::<u64>() * 16 + if self.has_crc { 4 } else { 0 }
    }
}

impl Written {
    /// Returns the codec that decodes a chunk to its elements.
    ///
    /// # Errors
    /// If there are too many steps.
    pub fn codec(&self) -> Result<Codec, String> {
        Chain::of(self.elements.iter().chain(&self.bytes).cloned()).ok_or_else(|| "too many codecs".into())
    }

    /// Returns the codec with `more` steps, which were written last; `None` if there are too many steps.
    pub fn with_bytes(&self, more: impl IntoIterator<Item = Filter>) -> Option<Codec> {
        Chain::of(self.elements.iter().chain(&self.bytes).cloned().chain(more))
    }

    fn add_bytes(&mut self, filter: Filter) {
        if let Filter::Checksum { kind, .. } = filter {
            self.checksum = Some(kind.name());
        }
        self.bytes.push(filter);
    }
}

/// What 0 as the element size of a shuffle means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeroSize {
    /// The size of the array's type: netCDF-C wrote it.
    OfType,
    /// That, or no shuffle, as in numcodecs: nothing says who wrote it.
    Unknown,
}

impl ZeroSize {
    /// Returns the size for elements of `size` bytes.
    fn resolve(self, size: Option<u64>) -> Result<u64, String> {
        match (self, size) {
            (_, Some(size @ ..=1)) | (Self::OfType, Some(size)) => Ok(size),
            (_, None) => Err("shuffle with elementsize 0 of elements without a size".into()),
            (Self::Unknown, _) => Err("shuffle with elementsize 0: netCDF-C means the size of the type by it and \
                                       numcodecs no shuffle, and no attribute of netCDF-C says which it is"
                .into()),
        }
    }
}

/// Returns the filter of a codec from bytes to bytes; `None` for an unknown codec, `Some(None)` if there is nothing to
/// undo. `zero_size` gives the element size of a shuffle that has 0.
fn of_bytes(
    name: &str,
    setting: &dyn Fn(&str) -> Option<Json>,
    zero_size: &dyn Fn() -> Result<u64, String>,
) -> Result<Option<Option<Filter>>, String> {
    let checksum = |kind, is_usually_in_front| {
        let place = setting("location");
        let is_in_front = match place.as_ref().map(Json::as_str) {
            None | Some(Some("")) => is_usually_in_front,
            Some(Some("start")) => true,
            Some(Some("end")) => false,
            Some(_) => return Err(format!("the location of {name}")),
        };
        Ok(Filter::Checksum { kind, is_in_front })
    };
    Ok(Some(Some(match name {
        "gzip" => Filter::Gzip,
        "zlib" => Filter::Zlib,
        "bz2" => Filter::Bzip2,
        "lz4" => Filter::Lz4Sized,
        "zstd" => Filter::Zstd,
        "blosc" => Filter::Blosc,
        "shuffle" => {
            let width = match setting("elementsize") {
                None => 4,
                Some(width) => match width.as_size().ok_or("the elementsize of shuffle")? {
                    0 => zero_size()?,
                    width => width,
                },
            };
            match u32::try_from(width) {
                Ok(0 | 1) => return Ok(Some(None)),
                Ok(width) => Filter::Shuffle(width),
                Err(_) => return Err("the elementsize of shuffle".into()),
            }
        }
        "crc32" => checksum(ChecksumKind::Crc(CrcKind::Crc32), true)?,
        "adler32" => checksum(ChecksumKind::Adler32, true)?,
        "crc32c" => checksum(ChecksumKind::Crc(CrcKind::Crc32c), false)?,
        "fletcher32" => Filter::Checksum { kind: ChecksumKind::Fletcher32, is_in_front: false },
        _ => return Ok(None),
    })))
}

/// A type of numbers between two steps, and whether they are big-endian.
type Current = (DType, bool);

fn number((dtype, is_big): Current) -> Option<Number> {
    let kind = match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => NumberKind::Signed,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => NumberKind::Unsigned,
        DType::F16 | DType::F32 | DType::F64 => NumberKind::Float,
        _ => return None,
    };
    Some(Number { kind, width: u8::try_from(dtype.size()).ok()?, is_big: is_big && dtype.size() > 1 })
}

/// Returns the type that a setting names in one of numpy's ways: `<f4`, `=f4`, `f4`, `float32`. Without a byte order it
/// is little-endian.
fn dtype_of(setting: &Json) -> Option<Current> {
    let text = setting.as_str()?;
    if let Some(dtype) = DType::of_name(text).filter(|dtype| *dtype != DType::Bf16) {
        return Some((dtype, false));
    }
    let descr = match text.strip_prefix('=') {
        Some(kind) => format!("<{kind}"),
        None if text.starts_with(['<', '>', '|']) => text.to_owned(),
        None => format!("<{text}"),
    };
    let (dtype, is_big) = DType::of_descr(&descr)?;
    (!descr.starts_with('|') || dtype.size() == 1).then_some((dtype, is_big && dtype.size() > 1))
}

/// Returns the filter of a codec from elements to elements, and the type after it; `None` if the codec is not one.
/// There may be nothing to undo.
fn of_elements(
    name: &str,
    setting: &dyn Fn(&str) -> Option<Json>,
    current: Current,
) -> Result<Option<(Option<Filter>, Current)>, String> {
    match name {
        "bitround" => return Ok(Some((None, current))),
        "packbits" if current.0 == DType::Bool => return Ok(Some((Some(Filter::PackBits), (DType::U8, false)))),
        "packbits" => return Err("packbits of another type".into()),
        "delta" | "fixedscaleoffset" | "quantize" => {}
        _ => return Ok(None),
    }
    let type_of = |key: &str| setting(key).filter(|found| !found.is_null()).map(|found| dtype_of(&found));
    let said = |key: &str| fill::shown(&setting(key).unwrap_or(Json::Null));
    let unknown = || format!("{name} with dtype {} and astype {}", said("dtype"), said("astype"));
    let values = type_of("dtype").flatten().ok_or_else(unknown)?;
    let stored = type_of("astype").unwrap_or(Some(values)).ok_or_else(unknown)?;
    if values != current {
        return Err(unknown());
    }
    if name == "quantize" {
        return if stored == values { Ok(Some((None, current))) } else { Err(unknown()) };
    }
    let (from, to) = number(stored).zip(number(values)).ok_or_else(unknown)?;
    let filter = match name {
        "delta" => Filter::Delta(Delta::new(from, to).ok_or_else(unknown)?),
        _ => {
            let double = |key: &str| setting(key).and_then(|value| value.as_double());
            let (scale, offset) = double("scale").zip(double("offset")).ok_or("scale and offset")?;
            Filter::Scaled(Scaled::new(from, to, scale, offset).ok_or_else(unknown)?)
        }
    };
    Ok(Some((Some(filter), stored)))
}

fn setting_of<'a>(codec: Option<&'a Json>) -> impl Fn(&str) -> Option<Json> + 'a {
    move |key| codec?.get(key).cloned()
}

/// Returns how the filters and the compressor of a v2 array encode chunks.
///
/// # Errors
/// The codec that is unknown, or what is wrong with it.
pub fn of_v2(
    codecs: &[&Json],
    elements: &Elements,
    is_f: bool,
    chunk: &[u64],
    zero_size: ZeroSize,
) -> Result<Written, String> {
    if codecs.len() > CODECS {
        return Err("too many codecs".into());
    }
    let mut written = Written { chunk: chunk.to_vec(), ..Written::default() };
    if is_f && chunk.len() > 1 {
        written.order = Some((0..chunk.len()).rev().collect());
    }
    let mut current = match elements {
        Elements::Fixed(Fixed { element: ElementType::Plain(dtype), swapped, .. }) => {
            Some((*dtype, !swapped.is_empty()))
        }
        _ => None,
    };
    let zero_size = || match elements {
        Elements::Fixed(fixed) => zero_size.resolve(Some(fixed.size())),
        _ => zero_size.resolve(None),
    };
    let mut names = Vec::new();
    for (number, codec) in codecs.iter().enumerate() {
        let id = codec.get("id").and_then(Json::as_str).ok_or("a codec without an id")?;
        names.push(id);
        if number == 0 && matches!(elements, Elements::Text | Elements::Bytes) {
            continue;
        }
        let setting = setting_of(Some(codec));
        if let Some(filter) = of_bytes(id, &setting, &zero_size)? {
            filter.into_iter().for_each(|filter| written.add_bytes(filter));
            current = None;
        } else if let Some(before) = current
            && let Some((filter, after)) = of_elements(id, &setting, before)?
        {
            written.elements.extend(filter);
            current = Some(after);
        } else {
            return Err(format!("codec {id}"));
        }
    }
    written.names = names.join("+");
    Ok(written)
}

/// Returns the names of codecs of v2.
pub fn names_of_v2(codecs: &[&Json]) -> Vec<String> {
    let ids = codecs.iter().filter_map(|codec| codec.get("id").and_then(Json::as_str));
    ids.map(str::to_owned).collect()
}

/// Returns how the codecs of a v3 array encode chunks of a shape.
///
/// # Errors
/// As [`of_v2`].
pub fn of_v3(codecs: &Json, elements: &Elements, chunk: &[u64]) -> Result<Written, String> {
    let mut written = Written { chunk: chunk.to_vec(), ..Written::default() };
    let mut names = Vec::new();
    let mut codecs = codecs;
    let all = loop {
        let list = codecs.as_list().ok_or("codecs")?;
        if list.len() > CODECS {
            return Err("too many codecs".into());
        }
        let all = list.iter().map(named).collect::<Result<Vec<_>, _>>()?;
        names.extend(all.iter().map(|(name, _)| *name).filter(|name| *name != "bytes"));
        if !all.iter().any(|(name, _)| *name == "sharding_indexed") {
            break all;
        }
        let [(_, Some(configuration))] = all.as_slice() else { return Err("sharding beside other codecs".into()) };
        if written.shards.len() == SHARDINGS {
            return Err("sharding nested too deep".into());
        }
        let sharding = sharding(configuration, &written.chunk)?;
        written.chunk.clone_from(&sharding.inner);
        written.shards.push(sharding);
        codecs = configuration.get("codecs").ok_or("the codecs of a shard")?;
    };
    let mut chain = V3 { written, elements, current: None, has_bytes: false, has_filter: false };
    chain.current = match elements {
        Elements::Fixed(Fixed { element: ElementType::Plain(dtype), .. }) => Some((*dtype, false)),
        _ => None,
    };
    all.into_iter().try_for_each(|(name, configuration)| chain.add(name, configuration))?;
    if !chain.has_bytes {
        return Err("no codec from elements to bytes".into());
    }
    chain.written.names = names.join("+");
    Ok(chain.written)
}

/// The codecs of a v3 array, while they are read.
struct V3<'a> {
    written: Written,
    elements: &'a Elements,
    current: Option<Current>,
    /// Whether elements have become bytes.
    has_bytes: bool,
    /// Whether a filter was met that works on elements in their order.
    has_filter: bool,
}

impl V3<'_> {
    fn add(&mut self, full: &str, configuration: Option<&Json>) -> Result<(), String> {
        let unknown = || format!("codec {full}");
        let setting = setting_of(configuration);
        let (name, is_own) = full.strip_prefix("numcodecs.").map_or((full, false), |name| (name, true));
        let serializer = match self.elements {
            Elements::Fixed(_) => "bytes",
            Elements::Text => "vlen-utf8",
            Elements::Bytes => "vlen-bytes",
        };
        if self.has_bytes {
            let known = if is_own || CORE.contains(&name) { of_bytes(name, &setting, &|| Ok(0))? } else { None };
            known.ok_or_else(unknown)?.into_iter().for_each(|filter| self.written.add_bytes(filter));
            return Ok(());
        }
        match (name, is_own) {
            // The registry of extensions has it under this name, too. There is nothing to undo.
            ("bitround", false) if self.current.is_some() => Ok(()),
            ("transpose", false) => self.transpose(&setting("order").ok_or("transpose without an order")?),
            (name, _) if name == serializer && (!is_own || name != "bytes") => {
                self.has_bytes = true;
                if name != "bytes" {
                    return Ok(());
                }
                self.written.is_big = match setting("endian").as_ref().map(Json::as_str) {
                    None | Some(Some("little")) => false,
                    Some(Some("big")) => true,
                    Some(_) => return Err("the endian of bytes".into()),
                };
                // The filters make numbers of this order.
                if let (true, Some(last)) = (self.written.is_big, self.written.elements.last_mut()) {
                    last.set_big_endian();
                    self.written.is_big = false;
                }
                Ok(())
            }
            (name, true) => {
                let current = self.current.ok_or_else(unknown)?;
                let (filter, after) = of_elements(name, &setting, current)?.ok_or_else(unknown)?;
                self.has_filter |= matches!(filter, Some(Filter::Delta(_) | Filter::PackBits));
                self.written.elements.extend(filter);
                self.current = Some(after);
                Ok(())
            }
            _ => Err(unknown()),
        }
    }

    fn transpose(&mut self, order: &Json) -> Result<(), String> {
        let rank = self.written.chunk.len();
        let order: Option<Vec<usize>> =
            order.as_list().and_then(|order| order.iter().map(|axis| axis.as_size()?.try_into().ok()).collect());
        let order = order.filter(|order| {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            sorted.into_iter().eq(0..rank)
        });
        let order = order.ok_or("the order of transpose")?;
        if self.has_filter {
            return Err("transpose behind a filter that follows the order of elements".into());
        }
        let before = self.written.order.take().unwrap_or_else(|| (0..rank).collect());
        self.written.order = Some(order.into_iter().filter_map(|axis| before.get(axis).copied()).collect());
        Ok(())
    }
}

fn sharding(configuration: &Json, outer: &[u64]) -> Result<Sharding, String> {
    let inner = configuration.get("chunk_shape").and_then(Json::as_list);
    let inner: Option<Vec<u64>> = inner.and_then(|inner| inner.iter().map(Json::as_size).collect());
    let divides = |(outer, inner): (&u64, &u64)| *inner > 0 && outer.is_multiple_of(*inner);
    let inner = inner.filter(|inner| inner.len() == outer.len() && outer.iter().zip(inner).all(divides));
    let inner = inner.ok_or("the chunk_shape of a shard")?;
    let codecs = configuration.get("index_codecs").and_then(Json::as_list).ok_or("index_codecs")?;
    let codecs = codecs.iter().map(named).collect::<Result<Vec<_>, _>>()?;
    let has_crc = match codecs.get(1..) {
        Some([]) => false,
        Some([("crc32c", _)]) => true,
        _ => return Err("index_codecs".into()),
    };
    let endian = match codecs.first() {
        Some(("bytes", Some(configuration))) => configuration.get("endian").and_then(Json::as_str),
        _ => None,
    };
    let is_big = match endian {
        Some("little") => false,
        Some("big") => true,
        _ => return Err("index_codecs".into()),
    };
    let is_in_front = match configuration.get("index_location").map(Json::as_str) {
        None | Some(Some("end")) => false,
        Some(Some("start")) => true,
        Some(_) => return Err("index_location".into()),
    };
    let sharding = Sharding { outer: outer.to_vec(), inner, is_big, has_crc, is_in_front };
    let count = sharding.counts().try_fold(1u64, u64::checked_mul);
    match count.is_some_and(|count| count <= INNER) {
        true => Ok(sharding),
        false => Err(format!("more than {INNER} inner chunks in a shard")),
    }
}
