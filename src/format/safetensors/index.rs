//! The index of a model in several files (`docs/formats/safetensors.md` 5). It lists the file of each tensor.

use std::{borrow::Cow, collections::HashMap, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{
    Place, Safetensors,
    json::{Any, Seed, Text, parse_object},
    shown,
};
use crate::{
    format::{
        Class, FormatError,
        packed::{Asked, Packed},
    },
    limits,
    source::{Memory, Source},
};

/// The suffix. Only files with it are read as an index.
pub const SUFFIX: &str = ".safetensors.index.json";

/// Bytes that an entry takes in memory in addition to its name. Includes its place in the tree.
const ENTRY_MEMORY: u64 = 300;

/// The content of an index.
#[derive(Debug, Default)]
pub struct Index {
    names: Packed<u8>,
    /// The file of each tensor, by its number in `shards`.
    shard_of: Vec<u32>,
    /// The files, in the order of their first use.
    pub shards: Vec<Box<str>>,
    /// The value of `metadata`, as JSON, if it is an object with a key.
    pub metadata: Option<Vec<u8>>,
}

/// The tensors of all files of a model.
#[derive(Debug)]
pub struct Joined {
    /// The tensors in the order of the index. The place of each is that in its own file.
    pub tensors: Safetensors,
    /// The file of each tensor, by its number in `shards`.
    pub shard_of: Vec<u32>,
    /// The files.
    pub shards: Vec<Box<str>>,
    /// See [`Index::metadata`].
    pub metadata: Option<Vec<u8>>,
}

/// Gives the tensors of a file to a function.
pub type Shards<'a> =
    dyn FnMut(&str, &mut dyn FnMut(&Safetensors) -> Result<(), FormatError>) -> Result<(), FormatError> + 'a;

/// Reads an index.
///
/// # Errors
/// `bad_index`; `Source` if there is not enough memory.
pub fn parse_index(source: &dyn Source, memory: &dyn Memory) -> Result<Index, FormatError> {
    if source.len() > limits::TENSOR_HEADER {
        let reason = format!("{} bytes, the most is {}", source.len(), limits::TENSOR_HEADER);
        return Err(FormatError::refused(Class::BadIndex, reason));
    }
    memory.reserve(source.len())?;
    let json = source.read(0..source.len())?;
    super::reserve_unescaped(&json, memory)?;
    let mut parser =
        Parser { found: None, metadata: None, has_metadata: false, numbers: HashMap::new(), asked: Asked::new(memory) };
    parse_object(&json, Class::BadIndex, &mut parser)?;
    let refused = |reason: &str| Err(FormatError::refused(Class::BadIndex, reason));
    let Some(mut found) = parser.found else { return refused("there is no weight_map") };
    if found.shard_of.is_empty() {
        return refused("weight_map is empty");
    }
    drop(json);
    super::check_names(&found.names).map_err(|error| match error {
        FormatError::Refused { reason, .. } => FormatError::refused(Class::BadIndex, reason),
        error => error,
    })?;
    found.metadata = parser.metadata;
    Ok(found)
}

impl Index {
    /// Finds each tensor in its file.
    ///
    /// # Errors
    /// `not_in_shard`, and those of `open`.
    pub fn join(self, open: &mut Shards<'_>, memory: &dyn Memory) -> Result<Joined, FormatError> {
        let Self { names, shard_of, shards, metadata } = self;
        let mut asked = Asked::new(memory);
        let mut order: Vec<u32> = (0..).take(shard_of.len()).collect();
        let shard = |number: &u32| shard_of.get(*number as usize).copied().unwrap_or_default();
        order.sort_by_key(shard);
        let mut shapes = Packed::default();
        let mut places: Vec<Option<Place>> = vec![None; shard_of.len()];
        for group in order.chunk_by(|a, b| shard(a) == shard(b)) {
            let Some(file) = group.first().and_then(|first| shards.get(shard(first) as usize)) else { continue };
            open(file, &mut |found| {
                asked.take(40 * found.len() as u64)?;
                let numbers: HashMap<&[u8], usize> = found.iter().map(|tensor| tensor.name).zip(0..).collect();
                for &entry in group {
                    let name = names.get(entry as usize);
                    let number = numbers.get(name);
                    let place = number.and_then(|&number| Some((found.get(number)?, found.places.get(number)?)));
                    let Some((tensor, &place)) = place else {
                        let reason = format!("tensor {} is not in {file}", shown(name));
                        return Err(FormatError::refused(Class::NotInShard, reason));
                    };
                    #[expect(clippy::cast_possible_truncation, reason = "`TENSORS` bounds them")]
                    let shape = shapes.len() as u32;
                    shapes.push(tensor.shape.unwrap_or_default());
                    if let Some(slot) = places.get_mut(entry as usize) {
                        *slot = Some(Place { shape, ..place });
                    }
                }
                Ok(())
            })?;
        }
        let places = places.into_iter().flatten().collect();
        let tensors = Safetensors { names, shapes, places, metadata: Vec::new() };
        Ok(Joined { tensors, shard_of, shards, metadata })
    }
}

/// Collects the index while it is parsed.
struct Parser<'m> {
    found: Option<Index>,
    metadata: Option<Vec<u8>>,
    has_metadata: bool,
    /// The number of each file.
    numbers: HashMap<Box<str>, u32>,
    asked: Asked<'m>,
}

impl<'de> Visitor<'de> for Seed<'_, Parser<'_>> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a weight_map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { state, refusal } = self;
        let mut others: Vec<String> = Vec::new();
        while let Some(key) = map.next_key_seed(Text)? {
            let is_again = match &*key {
                "weight_map" => {
                    let is_again = state.found.is_some();
                    map.next_value_seed(WeightMap(Seed { state: &mut *state, refusal: &mut *refusal }))?;
                    is_again
                }
                "metadata" => {
                    let mut json = Vec::new();
                    let mut room = Room { asked: &mut state.asked, refusal: &mut *refusal };
                    map.next_value_seed(Copied { out: &mut json, room: &mut room, depth: 0, is_first: None })?;
                    json.push(b'\n');
                    state.metadata = Some(json).filter(|json| json.starts_with(b"{\n"));
                    std::mem::replace(&mut state.has_metadata, true)
                }
                _ => {
                    map.next_value_seed(Any)?;
                    state.asked.take(key.len() as u64 + 64).map_err(|error| refusal.fail(error))?;
                    others.push(key.to_string());
                    false
                }
            };
            if is_again {
                return Err(
                    refusal.refuse(Class::BadIndex, format!("key {} stands there twice", shown(key.as_bytes())))
                );
            }
        }
        others.sort_unstable();
        if let Some([key, _]) = others.windows(2).find(|pair| pair.first() == pair.last()) {
            let reason = format!("key {} stands there twice", shown(key.as_bytes()));
            return Err(refusal.refuse(Class::BadIndex, reason));
        }
        Ok(())
    }
}

/// `weight_map`.
struct WeightMap<'a, 'm>(Seed<'a, Parser<'m>>);

impl<'de> DeserializeSeed<'de> for WeightMap<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for WeightMap<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of file names as weight_map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Seed { state, refusal } = self.0;
        let mut found = Index::default();
        while let Some(name) = map.next_key_seed(Text)? {
            let file: Cow<'de, str> = map.next_value_seed(Text)?;
            let is_name = !matches!(&*file, "" | "." | "..") && file.len() <= 255 && !file.contains(['/', '\0']);
            if !is_name {
                let reason = format!("{} is no file of this folder", shown(file.as_bytes()));
                return Err(refusal.refuse(Class::BadIndex, reason));
            }
            if found.shard_of.len() >= limits::TENSORS {
                return Err(refusal.refuse(Class::BadIndex, format!("more than {} tensors", limits::TENSORS)));
            }
            let taken = ENTRY_MEMORY + 4 * name.len() as u64;
            state.asked.take(taken).map_err(|error| refusal.fail(error))?;
            let number = match state.numbers.get(&*file) {
                Some(&number) => number,
                None if found.shards.len() >= limits::SHARDS => {
                    return Err(refusal.refuse(Class::BadIndex, format!("more than {} files", limits::SHARDS)));
                }
                None => {
                    #[expect(clippy::cast_possible_truncation, reason = "`SHARDS` bounds them")]
                    let number = found.shards.len() as u32;
                    state.asked.take(2 * file.len() as u64 + 100).map_err(|error| refusal.fail(error))?;
                    state.numbers.insert((&*file).into(), number);
                    found.shards.push(file.into());
                    number
                }
            };
            found.names.push(name.as_bytes());
            found.shard_of.push(number);
        }
        found.names.shrink();
        found.shard_of.shrink_to_fit();
        state.found = Some(found);
        Ok(())
    }
}

/// Memory for a value that is copied.
struct Room<'a, 'm> {
    asked: &'a mut Asked<'m>,
    refusal: &'a mut super::Refusal,
}

impl Room<'_, '_> {
    /// Reserves memory before a text or a line at a depth is written. Twice its size, because the buffer grows by
    /// doubling.
    fn take<E: Error>(&mut self, text: usize, depth: usize) -> Result<(), E> {
        let bytes = 2 * (text as u64 + 4 * depth as u64 + 32);
        self.asked.take(bytes).map_err(|error| self.refusal.fail(error))
    }
}

/// Copies a value as JSON, indented by 2.
struct Copied<'a, 'r, 'm> {
    out: &'a mut Vec<u8>,
    room: &'a mut Room<'r, 'm>,
    depth: usize,
    /// Whether it is the first element, if it is in an array.
    is_first: Option<bool>,
}

impl Copied<'_, '_, '_> {
    fn write<E: Error>(self, value: impl serde::Serialize) -> Result<(), E> {
        serde_json::to_writer(self.out, &value).map_err(E::custom)
    }
}

/// Begins a line, after a comma if it is not the first.
fn begin_line(out: &mut Vec<u8>, depth: usize, is_first: bool) {
    if !is_first {
        out.push(b',');
    }
    out.push(b'\n');
    out.resize(out.len() + 2 * depth, b' ');
}

impl<'de> DeserializeSeed<'de> for Copied<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.room.take(0, self.depth)?;
        if let Some(is_first) = self.is_first {
            begin_line(self.out, self.depth, is_first);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Copied<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.write(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.write(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.write(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.write(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.write(value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        // A control character of one byte is written as six.
        self.room.take(6 * value.len(), 0)?;
        self.write(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let (out, room, depth, mut is_first) = (self.out, self.room, self.depth + 1, true);
        out.push(b'[');
        while seq
            .next_element_seed(Copied { out: &mut *out, room: &mut *room, depth, is_first: Some(is_first) })?
            .is_some()
        {
            is_first = false;
        }
        if !is_first {
            begin_line(out, depth - 1, true);
        }
        out.push(b']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (out, room, depth, mut is_first) = (self.out, self.room, self.depth + 1, true);
        out.push(b'{');
        while let Some(key) = map.next_key_seed(Text)? {
            room.take(6 * key.len(), depth)?;
            begin_line(out, depth, is_first);
            serde_json::to_writer(&mut *out, &key).map_err(A::Error::custom)?;
            out.extend(b": ");
            map.next_value_seed(Copied { out: &mut *out, room: &mut *room, depth, is_first: None })?;
            is_first = false;
        }
        if !is_first {
            begin_line(out, depth - 1, true);
        }
        out.push(b'}');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        format::safetensors,
        source::{SourceError, Unlimited},
    };

    /// Counts the bytes that are reserved.
    struct Counted(std::cell::Cell<u64>);

    impl Memory for Counted {
        fn reserve(&self, bytes: u64) -> Result<(), SourceError> {
            self.0.set(self.0.get() + bytes);
            Ok(())
        }
    }

    #[test]
    fn metadata_that_grows_when_it_is_written_asks_for_its_memory() {
        let (depth, count) = (100, 10_000);
        let deep = format!("{}{}1{}", "[".repeat(depth), "1,".repeat(count), "]".repeat(depth));
        for metadata in [format!("{{\"a\":{deep}}}"), deep] {
            let json = format!("{{\"metadata\":{metadata},\"weight_map\":{{\"a\":\"b\"}}}}").into_bytes();
            let memory = Counted(std::cell::Cell::new(0));
            parse_index(&json, &memory).unwrap();
            // Each element is on a line of its own, indented by 2.
            assert!(memory.0.get() > (2 * depth * count) as u64, "{}", memory.0.get());
        }
    }

    fn parse(json: &str) -> Result<Index, FormatError> {
        parse_index(&json.as_bytes().to_vec(), &Unlimited)
    }

    #[test]
    fn indexes_that_are_none() {
        for json in [
            "",
            "[]",
            "{}",
            r#"{"weight_map":{}}"#,
            r#"{"weight_map":[]}"#,
            r#"{"weight_map":{"a":1}}"#,
            r#"{"weight_map":{"a":""}}"#,
            r#"{"weight_map":{"a":".."}}"#,
            r#"{"weight_map":{"a":"x/y"}}"#,
            r#"{"weight_map":{"a":"\u0000"}}"#,
            r#"{"weight_map":{"a":"x"}} x"#,
            r#"{"weight_map":{"a":"x","\u0061":"x"}}"#,
            r#"{"weight_map":{"a":"x"},"weight_map":{"b":"x"}}"#,
            r#"{"weight_map":{"a":"x"},"metadata":1,"metadata":1}"#,
            r#"{"weight_map":{"a":"x"},"y":1,"y":1}"#,
            &format!(r#"{{"weight_map":{{"a":"{}"}}}}"#, "x".repeat(256)),
        ] {
            let error = parse(json).unwrap_err();
            assert!(matches!(error, FormatError::Refused { class: Class::BadIndex, .. }), "{json}: {error}");
        }
    }

    #[test]
    fn metadata_keep_values_and_order() {
        let metadata = r#"{"z":[1,-2,1.5,[],{}],"a":{"b":null,"é":"\n"},"n":18446744073709551615}"#;
        let json = format!(r#"{{"metadata":{metadata},"weight_map":{{"a":"x","b":"y","c":"x"}},"more":1}}"#);
        let found = parse(&json).unwrap();
        assert_eq!(found.shards, ["x".into(), "y".into()]);
        assert_eq!(found.shard_of, [0, 1, 0]);
        let mut expected =
            serde_json::to_vec_pretty(&serde_json::from_str::<serde_json::Value>(metadata).unwrap()).unwrap();
        expected.push(b'\n');
        assert_eq!(String::from_utf8(found.metadata.unwrap()).unwrap(), String::from_utf8(expected).unwrap());
        for other in ["{}", "[1]", "7", "null"] {
            let found = parse(&format!(r#"{{"metadata":{other},"weight_map":{{"a":"x"}}}}"#)).unwrap();
            assert_eq!(found.metadata, None, "{other}");
        }
    }

    #[test]
    fn tensors_are_found_in_their_files() {
        let shard = |names: [&str; 2]| {
            let [a, b] = names.map(|name| format!(r#""{name}":{{"dtype":"U8","shape":["#));
            let json = format!(r#"{{{a}1],"data_offsets":[0,1]}},{b}2,1],"data_offsets":[1,3]}}}}"#);
            let bytes = [&(json.len() as u64).to_le_bytes()[..], json.as_bytes(), b"123"].concat();
            safetensors::parse(&bytes).unwrap()
        };
        let files = [("x", shard(["a", "b"])), ("y", shard(["c", "d"]))];
        let join = |json: &str| {
            let mut open = |name: &str, each: &mut dyn FnMut(&Safetensors) -> Result<(), FormatError>| {
                each(&files.iter().find(|(file, _)| *file == name).unwrap().1)
            };
            parse(json).unwrap().join(&mut open, &Unlimited)
        };
        let joined = join(r#"{"weight_map":{"d":"y","a":"x","c":"y","b":"x"}}"#).unwrap();
        let shapes: Vec<_> = joined.tensors.iter().map(|tensor| (tensor.name, tensor.shape.unwrap())).collect();
        assert_eq!(shapes, [(&b"d"[..], &[2, 1][..]), (b"a", &[1]), (b"c", &[1]), (b"b", &[2, 1])]);
        let error = join(r#"{"weight_map":{"a":"x","c":"x"}}"#).unwrap_err().to_string();
        assert_eq!(error, r#"not_in_shard: tensor "c" is not in x"#);
    }
}
