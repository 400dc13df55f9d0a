//! The metadata of one array: `.zarray` of v2, `zarr.json` of v3 (`docs/formats/zarr.md` 3.3 to 3.5).

use super::{
    chain::{self, Written, ZeroSize},
    fill,
    json::Json,
    types::{self, Elements, named},
};
use crate::limits;

/// Most bytes of a chunk (section 5.1).
pub const CHUNK: u64 = (1 << 31) - 1;

/// Most texts or rows of bytes of an array, and of a chunk.
pub const TEXTS: u64 = 1 << 28;

/// Most bytes of all elements.
const LARGEST: u64 = 1 << 60;

/// The metadata of an array.
#[derive(Debug)]
pub struct Array {
    /// Its type as stored.
    pub dtype: Json,
    /// Elements along each axis, if the shape is sound.
    pub shape: Option<Vec<u64>>,
    /// The kind of its elements, if known.
    pub elements: Option<Elements>,
    /// The keys of its chunks, if known.
    pub keys: Option<Keys>,
    /// The names of its dimensions as stored.
    pub dimension_names: Option<Json>,
    /// How its chunks are stored, or why it cannot be shown.
    pub chunks: Result<Chunks, String>,
}

/// How the chunks of an array are stored.
#[derive(Debug, Clone)]
pub struct Chunks {
    /// How they were encoded.
    pub written: Written,
    /// The fill value: an element, little-endian, or a row for texts and rows of bytes.
    pub fill: Vec<u8>,
}

/// The keys of chunks, below the array's own key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// Elements of a stored chunk along each axis. With sharding, those of a whole shard.
    pub chunk: Vec<u64>,
    /// Whether they begin with `c`.
    has_prefix: bool,
    separator: char,
}

impl Keys {
    /// Returns the key of a chunk.
    pub fn key(&self, at: impl Iterator<Item = u64>) -> String {
        let numbers = at.map(|number| number.to_string());
        let parts: Vec<String> = self.has_prefix.then(|| "c".to_owned()).into_iter().chain(numbers).collect();
        if parts.is_empty() { "0".into() } else { parts.join(&self.separator.to_string()) }
    }

    /// Returns the place of the chunk with a key; `None` if it is not a key of an array with this many axes. Each chunk
    /// has exactly one key.
    pub fn parse(&self, key: &str, axes: usize) -> Option<Vec<u64>> {
        let numbers = match (self.has_prefix, axes) {
            (true, 0) => return (key == "c").then(Vec::new),
            (true, _) => key.strip_prefix('c')?.strip_prefix(self.separator)?,
            (false, 0) => return (key == "0").then(Vec::new),
            (false, _) => key,
        };
        let at: Vec<u64> = numbers.split(self.separator).map(|number| number.parse().ok()).collect::<Option<_>>()?;
        (at.len() == axes && self.key(at.iter().copied()) == key).then_some(at)
    }

    /// Returns the number of folders between the array's folder and the files of its chunks.
    pub fn folders(&self, axes: usize) -> usize {
        match (self.separator, self.has_prefix) {
            ('/', true) => axes,
            ('/', false) => axes.saturating_sub(1),
            _ => 0,
        }
    }
}

impl Array {
    /// Returns an array without any known metadata.
    pub fn unknown(reason: impl Into<String>) -> Self {
        Self {
            dtype: Json::Null,
            shape: None,
            elements: None,
            keys: None,
            dimension_names: None,
            chunks: Err(reason.into()),
        }
    }

    /// Reads the metadata of an array of version 3. Errors are part of the result.
    pub fn parse_v3(document: &Json) -> Self {
        Self::parse(|array| array.v3(document))
    }

    /// Does the same for version 2. `zero_size` says what 0 as the element size of a shuffle means.
    pub fn parse_v2(document: &Json, zero_size: ZeroSize) -> Self {
        Self::parse(|array| array.v2(document, zero_size))
    }

    fn parse(read: impl FnOnce(&mut Self) -> Result<Chunks, String>) -> Self {
        let mut array = Self::unknown("");
        let chunks = read(&mut array);
        array.chunks = chunks.and_then(|chunks| array.check(&chunks).map(|()| chunks));
        array
    }

    /// Returns whether shape and type allow a file of elements, or of texts.
    pub fn is_sized(&self) -> bool {
        if self.shape.as_ref().is_none_or(|shape| shape.len() > limits::DIMENSIONS) {
            return false;
        }
        match &self.elements {
            Some(Elements::Fixed(fixed)) => {
                let size = self.count().and_then(|count| count.checked_mul(fixed.size()));
                size.is_some_and(|size| size <= LARGEST)
            }
            Some(_) => true,
            None => false,
        }
    }

    /// Returns the number of elements, if known.
    pub fn count(&self) -> Option<u64> {
        if self.is_empty() { Some(0) } else { product(self.shape.as_ref()?) }
    }

    /// Returns whether the array is known to have no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.as_ref().is_some_and(|shape| shape.contains(&0))
    }

    fn sizes(&mut self, shape: Option<&Json>, chunk: Option<&Json>) -> Result<Vec<u64>, String> {
        let sizes = |list: &Json| list.as_list()?.iter().map(Json::as_size).collect::<Option<Vec<u64>>>();
        let shape = self.shape.insert(shape.and_then(sizes).ok_or("the shape")?);
        if shape.len() > limits::DIMENSIONS {
            return Err(format!("{} dimensions; at most {}", shape.len(), limits::DIMENSIONS));
        }
        let chunk = chunk.and_then(sizes).filter(|chunk| chunk.len() == shape.len());
        let is_sound = |chunk: &Vec<u64>| chunk.iter().zip(&*shape).all(|(chunk, shape)| *chunk > 0 || *shape == 0);
        chunk.filter(is_sound).ok_or_else(|| "the shape of chunks".into())
    }

    fn v2(&mut self, document: &Json, zero_size: ZeroSize) -> Result<Chunks, String> {
        let list = |key: &str| match document.get(key) {
            None | Some(Json::Null) => Ok(&[][..]),
            Some(found) => found.as_list().ok_or_else(|| format!("the {key}")),
        };
        self.dtype = document.get("dtype").cloned().unwrap_or(Json::Null);
        let filters = list("filters");
        let first = filters.as_ref().ok().and_then(|filters| filters.first()?.get("id")?.as_str());
        let elements = types::of_v2(&self.dtype, first);
        let separator = match document.get("dimension_separator").map(Json::as_str) {
            None | Some(Some(".")) => Ok('.'),
            Some(Some("/")) => Ok('/'),
            Some(_) => Err("the dimension_separator".to_owned()),
        };
        let chunk = self.sizes(document.get("shape"), document.get("chunks"));
        if let (Ok(chunk), Ok(separator)) = (&chunk, &separator) {
            self.keys = Some(Keys { chunk: chunk.clone(), has_prefix: false, separator: *separator });
        }
        let elements = self.elements.insert(elements?).clone();
        let (chunk, _) = (chunk?, separator?);
        let is_f = match document.get("order").and_then(Json::as_str) {
            Some("C") => false,
            Some("F") => true,
            _ => return Err("the order".into()),
        };
        let compressor = document.get("compressor").filter(|compressor| !compressor.is_null());
        let codecs: Vec<&Json> = filters?.iter().chain(compressor).collect();
        let written = chain::of_v2(&codecs, &elements, is_f, &chunk, zero_size)?;
        let fill = fill::of(document.get("fill_value").unwrap_or(&Json::Null), &elements, false)?;
        Ok(Chunks { written, fill })
    }

    fn v3(&mut self, document: &Json) -> Result<Chunks, String> {
        const KNOWN: [&str; 11] = [
            "zarr_format",
            "node_type",
            "shape",
            "data_type",
            "chunk_grid",
            "chunk_key_encoding",
            "fill_value",
            "codecs",
            "attributes",
            "dimension_names",
            "storage_transformers",
        ];
        self.dtype = document.get("data_type").cloned().unwrap_or(Json::Null);
        let extension =
            |key: &str| named(document.get(key).unwrap_or(&Json::Null)).map_err(|error| format!("{key}: {error}"));
        let elements = types::of_v3(&self.dtype);
        let grid = extension("chunk_grid");
        let chunk = match &grid {
            Ok(("regular", configuration)) => {
                let chunk = configuration.and_then(|configuration| configuration.get("chunk_shape"));
                self.sizes(document.get("shape"), chunk)
            }
            Ok((name, _)) => self.sizes(document.get("shape"), None).map_err(|error| match &self.shape {
                Some(_) => format!("chunk grid {name}"),
                None => error,
            }),
            Err(error) => self.sizes(document.get("shape"), None).map_err(|_| error.clone()),
        };
        let keys = extension("chunk_key_encoding").and_then(|(name, configuration)| {
            let has_prefix = match name {
                "default" => true,
                "v2" => false,
                _ => return Err(format!("chunk key encoding {name}")),
            };
            let separator = configuration.and_then(|configuration| configuration.get("separator"));
            match separator.map(Json::as_str) {
                None => Ok((has_prefix, if has_prefix { '/' } else { '.' })),
                Some(Some("/")) => Ok((has_prefix, '/')),
                Some(Some(".")) => Ok((has_prefix, '.')),
                Some(_) => Err("the separator of chunk keys".into()),
            }
        });
        if let (Ok(chunk), Ok((has_prefix, separator))) = (&chunk, &keys) {
            self.keys = Some(Keys { chunk: chunk.clone(), has_prefix: *has_prefix, separator: *separator });
        }
        let elements = self.elements.insert(elements?).clone();
        let (chunk, _) = (chunk?, keys?);
        for (key, value) in document.as_object().into_iter().flatten() {
            let is_known = KNOWN.iter().any(|known| known.as_bytes() == &**key);
            if !is_known && value.get("must_understand") != Some(&Json::Bool(false)) {
                return Err(format!("the unknown field {}", String::from_utf8_lossy(key)));
            }
        }
        match document.get("storage_transformers") {
            None | Some(Json::Null) => {}
            Some(Json::List(list)) if list.is_empty() => {}
            Some(_) => return Err("storage transformers".into()),
        }
        if let Some(names) = document.get("dimension_names").filter(|names| !names.is_null()) {
            let is_name = |name: &Json| name.is_null() || matches!(name, Json::Text(_));
            let is_sound = |names: &&[Json]| names.len() == chunk.len() && names.iter().all(is_name);
            names.as_list().filter(is_sound).ok_or("the dimension_names")?;
            self.dimension_names = Some(names.clone());
        }
        let codecs = document.get("codecs");
        let are_none = codecs.is_none_or(|codecs| codecs.as_list().is_some_and(<[Json]>::is_empty));
        let written = match &elements {
            // GDAL and zarrita.js write that for elements as they are, little-endian.
            Elements::Fixed(_) if are_none => Written { chunk, ..Written::default() },
            _ => chain::of_v3(codecs.ok_or("no codecs")?, &elements, &chunk)?,
        };
        if let (true, Elements::Fixed(fixed)) = (written.is_big, &elements) {
            self.elements = Some(Elements::Fixed(fixed.clone().into_big()?));
        }
        let fill = fill::of(document.get("fill_value").ok_or("no fill value")?, &elements, true)?;
        Ok(Chunks { written, fill })
    }

    fn check(&self, chunks: &Chunks) -> Result<(), String> {
        let count = product(&chunks.written.chunk);
        match &self.elements {
            Some(Elements::Fixed(fixed)) => {
                let size = count.and_then(|count| count.checked_mul(fixed.size()));
                match size.is_some_and(|size| size <= CHUNK) {
                    true => Ok(()),
                    false => Err(format!("chunks of more than {CHUNK} bytes")),
                }
            }
            _ if self.count().is_none_or(|all| all > TEXTS) => Err(format!("more than {TEXTS} texts")),
            _ if count.is_none_or(|count| count > TEXTS) => Err(format!("more than {TEXTS} texts in a chunk")),
            _ => Ok(()),
        }
    }
}

/// Returns the product of sizes; `None` if it does not fit 64 bits.
fn product(sizes: &[u64]) -> Option<u64> {
    sizes.iter().try_fold(1u64, |product, size| product.checked_mul(*size))
}
