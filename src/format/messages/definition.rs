//! Message definitions of ROS 1 and ROS 2 (`docs/formats/mcap.md`, section 7, Definitions).

use std::collections::{HashMap, HashSet};

use super::{Count, DEPTH, Encoding, Field, Kind, Message, Number, Schema, Time};

/// Most definitions in one text. ROS has a few hundred in total.
const DEFINITIONS: usize = 65_536;

/// A name as names are compared: package and last part.
type Name<'a> = (&'a str, &'a str);

/// The header of messages in ROS 1. Before ROS Diamondback it was in the package `roslib`.
const HEADER: Name<'static> = ("std_msgs", "Header");

/// The definitions of a schema by their names, and those that are parsed.
struct Definitions<'a> {
    encoding: Encoding,
    texts: HashMap<Name<'a>, Vec<&'a str>>,
    /// The places of parsed messages, with the depth of their nesting; 0 while they are being parsed.
    known: HashMap<Name<'a>, (u32, usize)>,
    messages: Vec<Message>,
}

/// Parses the definition of a message and of all messages in it.
pub(super) fn parse(name: &[u8], data: &[u8], encoding: Encoding) -> Result<Schema, String> {
    // Comments may be in another encoding. In types and names of fields, U+FFFD is refused below.
    let text = String::from_utf8_lossy(data);
    let top = std::str::from_utf8(name).map_err(|_| "the name of its schema is not UTF-8".to_owned())?;
    let top = split(top);
    let mut texts: HashMap<Name<'_>, Vec<&str>> = HashMap::new();
    let mut lines = lines(&text);
    let (mut current, mut is_first_of_name) = (top, true);
    texts.insert(top, Vec::new());
    while let Some(line) = lines.next() {
        let line = line.trim_matches([' ', '\t']);
        if line.len() >= 3 && line.bytes().all(|byte| byte == b'=') {
            let head = lines.next().map(|line| line.trim_matches([' ', '\t']));
            let Some(name) = head.and_then(|head| head.strip_prefix("MSG:")) else {
                return Err("its schema has a definition without a name".into());
            };
            current = match (encoding, split(name.trim_matches([' ', '\t']))) {
                (Encoding::Ros1, ("roslib", "Header")) => HEADER,
                (_, name) => name,
            };
            is_first_of_name = !texts.contains_key(&current);
            if texts.len() == DEFINITIONS {
                return Err(format!("its schema has more than {DEFINITIONS} definitions"));
            }
            texts.entry(current).or_default();
            continue;
        }
        let line = line.split('#').next().unwrap_or_default().trim_matches([' ', '\t']);
        if is_first_of_name && !line.is_empty() {
            texts.entry(current).or_default().push(line);
        }
    }
    let mut definitions = Definitions { encoding, texts, known: HashMap::new(), messages: Vec::new() };
    definitions.message(top, 1)?;
    let mut schema = Schema { encoding, messages: definitions.messages };
    schema.count_leaves();
    Ok(schema)
}

/// Iterates over lines, which end with LF, CR LF or CR.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n').flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r'))
}

/// Returns the first and the last part of a name. If it has only one part, the first is empty.
fn split(name: &str) -> Name<'_> {
    match (name.split_once('/'), name.rsplit_once('/')) {
        (Some((first, _)), Some((_, last))) => (first, last),
        _ => ("", name),
    }
}

fn is_field_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    bytes.next().is_some_and(is_first) && bytes.all(|byte| is_first(byte) || byte.is_ascii_digit())
}

impl<'a> Definitions<'a> {
    /// Parses a message at a depth. Returns its place and the depth of its nesting.
    fn message(&mut self, name: Name<'a>, depth: usize) -> Result<(u32, usize), String> {
        let shown = || format!("{}/{}", name.0, name.1);
        if depth > DEPTH {
            return Err(format!("more than {DEPTH} messages within each other"));
        }
        if let Some(&(place, inner)) = self.known.get(&name) {
            return match inner {
                0 => Err(format!("{} holds itself", shown())),
                inner if depth + inner - 1 > DEPTH => Err(format!("more than {DEPTH} messages within each other")),
                inner => Ok((place, inner)),
            };
        }
        let lines = self.texts.get(&name).cloned().ok_or_else(|| format!("there is no definition of {}", shown()))?;
        #[expect(clippy::cast_possible_truncation, reason = "a schema has fewer than 2^32 bytes")]
        let place = self.messages.len() as u32;
        self.messages.push(Message::default());
        self.known.insert(name, (place, 0));
        let (mut fields, mut names, mut least, mut inner) = (Vec::new(), HashSet::new(), 0u64, 1);
        for line in lines {
            let form =
                || format!("a line of another form in {}: {}", shown(), line.chars().take(80).collect::<String>());
            let (kind, rest) = line.split_once([' ', '\t']).ok_or_else(form)?;
            if rest.contains('=') {
                continue;
            }
            let field = rest.split_ascii_whitespace().next().filter(|name| is_field_name(name)).ok_or_else(form)?;
            if !names.insert(field) {
                return Err(format!("{} has two fields {field}", shown()));
            }
            let (base, count) = counted(kind).ok_or_else(form)?;
            let (kind, size, below) = self.kind(name, base, depth).map_err(|reason| reason.unwrap_or_else(form))?;
            inner = inner.max(below + 1);
            least = least.saturating_add(match count {
                Count::One => size,
                Count::Fixed(count) => size.saturating_mul(count.into()),
                Count::Many => 4,
            });
            fields.push(Field::new(field, kind, count));
        }
        if fields.is_empty() && self.encoding == Encoding::Cdr {
            least = 1;
        }
        if let Some(message) = self.messages.get_mut(place as usize) {
            *message = Message { fields, least, ..Message::default() };
        }
        self.known.insert(name, (place, inner));
        Ok((place, inner))
    }

    /// Returns the kind of a type without its count, the least bytes of a value, and the depth of its nesting. An error
    /// without a reason means a line of another form.
    fn kind(&mut self, within: Name<'a>, base: &'a str, depth: usize) -> Result<(Kind, u64, usize), Option<String>> {
        let is_ros1 = self.encoding == Encoding::Ros1;
        let (plain, bound) = match base.split_once("<=") {
            Some((plain, bound)) => (plain, Some(bound)),
            None => (base, None),
        };
        let is_bound = |bound: &str| !bound.is_empty() && bound.bytes().all(|byte| byte.is_ascii_digit());
        if bound.is_some_and(|bound| plain != "string" && plain != "wstring" || !is_bound(bound)) {
            return Err(None);
        }
        let number = match plain {
            "bool" => Some(Number::Bool),
            "int8" => Some(Number::I8),
            "uint8" | "char" => Some(Number::U8),
            "byte" if is_ros1 => Some(Number::I8),
            "byte" => Some(Number::U8),
            "int16" => Some(Number::I16),
            "uint16" => Some(Number::U16),
            "int32" => Some(Number::I32),
            "uint32" => Some(Number::U32),
            "int64" => Some(Number::I64),
            "uint64" => Some(Number::U64),
            "float32" => Some(Number::F32),
            "float64" => Some(Number::F64),
            _ => None,
        };
        if let Some(number) = number {
            return Ok((Kind::Number(number), number.size() as u64, 0));
        }
        match plain {
            "string" => return Ok((Kind::Text, 4, 0)),
            "wstring" => return Err(Some("it has a field of the type wstring".into())),
            "time" | "duration" if is_ros1 => {
                let is_duration = plain == "duration";
                let time = Time { is_duration, signed: [is_duration; 2], names: ["secs", "nsecs"] };
                return Ok((Kind::Time(time), 8, 0));
            }
            _ => {}
        }
        let is_part =
            |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !plain.split('/').all(is_part) {
            return Err(None);
        }
        let name = match (is_ros1, plain) {
            (true, "Header" | "roslib/Header") => HEADER,
            _ if plain.contains('/') => split(plain),
            _ => (within.0, plain),
        };
        if !is_ros1 && matches!(name, ("builtin_interfaces", "Time" | "Duration")) {
            let is_duration = name.1 == "Duration";
            let time = |is_signed| Time { is_duration, signed: [is_signed, false], names: ["sec", "nanosec"] };
            match self.texts.get(&name) {
                None => return Ok((Kind::Time(time(true)), 8, 0)),
                Some(lines) => {
                    if let Some(is_signed) = is_time(lines) {
                        return Ok((Kind::Time(time(is_signed)), 8, 0));
                    }
                }
            }
        }
        let (place, inner) = self.message(name, depth + 1).map_err(Some)?;
        let least = self.messages.get(place as usize).map_or(0, |message| message.least);
        Ok((Kind::Message(place), least, inner))
    }
}

/// Returns whether the seconds are signed; `None` if the definition is not that of a time.
fn is_time(lines: &[&str]) -> Option<bool> {
    let mut fields =
        lines.iter().filter_map(|line| line.split_once([' ', '\t'])).filter(|(_, rest)| !rest.contains('='));
    let mut field =
        || fields.next().map(|(kind, rest)| (kind, rest.split_ascii_whitespace().next().unwrap_or_default()));
    let is_signed = match field()? {
        ("int32", "sec") => true,
        ("uint32", "sec") => false,
        _ => return None,
    };
    (field()? == ("uint32", "nanosec") && field().is_none()).then_some(is_signed)
}

/// Splits the count off a type.
fn counted(kind: &str) -> Option<(&str, Count)> {
    let Some(open) = kind.strip_suffix(']') else { return Some((kind, Count::One)) };
    let (base, count) = open.rsplit_once('[')?;
    let digits = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let count = match count.strip_prefix("<=") {
        _ if count.is_empty() => Count::Many,
        Some(bound) => digits(bound).then_some(Count::Many)?,
        None => Count::Fixed(count.parse().ok().filter(|n| *n > 0 && digits(count))?),
    };
    Some((base, count))
}
