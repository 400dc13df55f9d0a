//! JSON as Python reads and writes it (`docs/formats/zarr.md` 1). `NaN` and infinities are numbers. Numbers keep their
//! text. If a key occurs twice, the last value counts, at the place of the first.

use indexmap::IndexMap;

use crate::{
    source::{Memory, SourceError, to_usize},
    wanted,
};

/// Most levels of nesting.
const DEPTH: usize = 128;

/// Bytes of memory that a value takes in addition to its text: itself, and its place in an object.
const VALUE: u64 = 128;

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as it was written.
    Number(Box<str>),
    /// A string. A lone surrogate is three bytes, so the string may not be UTF-8.
    Text(Box<[u8]>),
    /// An array.
    List(Vec<Self>),
    /// An object.
    Object(IndexMap<Box<[u8]>, Self>),
}

/// Why a document could not be read.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// It is not JSON.
    #[error("not JSON: {what} at byte {at}")]
    Malformed {
        /// What is wrong.
        what: &'static str,
        /// Where.
        at: usize,
    },
    /// There is not enough memory.
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl Json {
    /// Reads a document, which may begin with a byte order mark.
    ///
    /// # Errors
    /// [`JsonError`].
    pub fn parse(bytes: &[u8], memory: &dyn Memory) -> Result<Self, JsonError> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        if let Err(error) = std::str::from_utf8(bytes) {
            return Err(JsonError::Malformed { what: "bytes that are not UTF-8", at: error.valid_up_to() });
        }
        let mut parser = Parser { bytes, at: 0, memory };
        let value = parser.value(0)?;
        parser.skip_space();
        if parser.at < bytes.len() { Err(parser.bad("something behind the value")) } else { Ok(value) }
    }

    /// Returns the value of a key of an object.
    pub fn get(&self, key: &str) -> Option<&Self> {
        if let Self::Object(map) = self { map.get(key.as_bytes()) } else { None }
    }

    /// Returns the text, if it is valid UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::Text(text) = self { std::str::from_utf8(text).ok() } else { None }
    }

    /// Returns the elements of an array.
    pub fn as_list(&self) -> Option<&[Self]> {
        if let Self::List(list) = self { Some(list) } else { None }
    }

    /// Returns the object.
    pub fn as_object(&self) -> Option<&IndexMap<Box<[u8]>, Self>> {
        if let Self::Object(map) = self { Some(map) } else { None }
    }

    /// Returns a number that is written as an integer.
    pub fn as_int(&self) -> Option<i128> {
        if let Self::Number(token) = self { token.parse().ok() } else { None }
    }

    /// Returns an integer of 0 or more.
    pub fn as_size(&self) -> Option<u64> {
        self.as_int().and_then(|number| number.try_into().ok())
    }

    /// Returns any number as a double.
    pub fn as_double(&self) -> Option<f64> {
        match self {
            Self::Number(token) => match &**token {
                "NaN" => Some(f64::NAN),
                "Infinity" => Some(f64::INFINITY),
                "-Infinity" => Some(f64::NEG_INFINITY),
                token => token.parse().ok(),
            },
            _ => None,
        }
    }

    /// Returns whether it is `null`.
    pub fn is_null(&self) -> bool {
        *self == Self::Null
    }

    /// Returns about how many bytes of memory it takes.
    pub fn memory_usage(&self) -> usize {
        let own = to_usize(VALUE);
        match self {
            Self::Null | Self::Bool(_) => own,
            Self::Number(token) => own + token.len(),
            Self::Text(text) => own + text.len(),
            Self::List(list) => own + list.iter().map(Self::memory_usage).sum::<usize>(),
            Self::Object(map) => own + map.iter().map(|(key, value)| key.len() + value.memory_usage()).sum::<usize>(),
        }
    }

    /// Returns the value for a document of serde_json, such as `container.json`.
    pub fn to_serde(&self) -> serde_json::Value {
        match self {
            Self::Null => serde_json::Value::Null,
            Self::Bool(value) => (*value).into(),
            Self::Number(token) => serde_json::from_str(token).unwrap_or_default(),
            Self::Text(text) => String::from_utf8_lossy(text).into(),
            Self::List(list) => list.iter().map(Self::to_serde).collect(),
            Self::Object(map) => {
                let pairs = map.iter().map(|(key, value)| (String::from_utf8_lossy(key).into(), value.to_serde()));
                serde_json::Value::Object(pairs.collect())
            }
        }
    }
}

struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
    memory: &'a dyn Memory,
}

impl Parser<'_> {
    fn bad(&self, what: &'static str) -> JsonError {
        JsonError::Malformed { what, at: self.at }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Passes over a token if it comes next. Returns whether it did.
    fn takes(&mut self, token: &[u8]) -> bool {
        let is_next = self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(token));
        self.at += if is_next { token.len() } else { 0 };
        is_next
    }

    fn value(&mut self, depth: usize) -> Result<Json, JsonError> {
        self.skip_space();
        self.memory.reserve(VALUE)?;
        match self.peek() {
            Some(b'{' | b'[') if depth == DEPTH => Err(self.bad("nested too deep")),
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.list(depth + 1),
            Some(b'"') => self.text().map(Json::Text),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ if self.takes(b"null") => Ok(Json::Null),
            _ if self.takes(b"true") => Ok(Json::Bool(true)),
            _ if self.takes(b"false") => Ok(Json::Bool(false)),
            _ if self.takes(b"NaN") => Ok(Json::Number("NaN".into())),
            _ if self.takes(b"Infinity") => Ok(Json::Number("Infinity".into())),
            _ => Err(self.bad("no value")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, JsonError> {
        self.at += 1;
        let mut map = IndexMap::new();
        self.skip_space();
        if self.takes(b"}") {
            return Ok(Json::Object(map));
        }
        loop {
            wanted::check().map_err(SourceError::from)?;
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.bad("no key"));
            }
            let key = self.text()?;
            self.skip_space();
            if !self.takes(b":") {
                return Err(self.bad("no colon"));
            }
            let value = self.value(depth)?;
            map.insert(key, value);
            self.skip_space();
            if self.takes(b"}") {
                return Ok(Json::Object(map));
            }
            if !self.takes(b",") {
                return Err(self.bad("no comma"));
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Json, JsonError> {
        self.at += 1;
        let mut list = Vec::new();
        self.skip_space();
        if self.takes(b"]") {
            return Ok(Json::List(list));
        }
        loop {
            list.push(self.value(depth)?);
            self.skip_space();
            if self.takes(b"]") {
                return Ok(Json::List(list));
            }
            if !self.takes(b",") {
                return Err(self.bad("no comma"));
            }
        }
    }

    fn number(&mut self) -> Result<Json, JsonError> {
        let start = self.at;
        let digits = |parser: &mut Self| {
            let from = parser.at;
            while matches!(parser.peek(), Some(b'0'..=b'9')) {
                parser.at += 1;
            }
            parser.at - from
        };
        self.takes(b"-");
        if self.takes(b"Infinity") {
            return Ok(Json::Number("-Infinity".into()));
        }
        if !self.takes(b"0") && digits(self) == 0 {
            return Err(self.bad("no digits"));
        }
        if self.takes(b".") && digits(self) == 0 {
            return Err(self.bad("no digits"));
        }
        if self.takes(b"e") || self.takes(b"E") {
            let _ = self.takes(b"+") || self.takes(b"-");
            if digits(self) == 0 {
                return Err(self.bad("no digits"));
            }
        }
        let token = std::str::from_utf8(self.bytes.get(start..self.at).unwrap_or_default()).unwrap_or_default();
        self.memory.reserve(token.len() as u64)?;
        Ok(Json::Number(token.into()))
    }

    fn text(&mut self) -> Result<Box<[u8]>, JsonError> {
        self.at += 1;
        let mut text = Vec::new();
        loop {
            let from = self.at;
            while matches!(self.peek(), Some(byte) if byte >= b' ' && byte != b'"' && byte != b'\\') {
                self.at += 1;
            }
            let plain = self.bytes.get(from..self.at).unwrap_or_default();
            self.memory.reserve(2 * plain.len() as u64)?;
            text.extend_from_slice(plain);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text.into());
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.memory.reserve(8)?;
                    self.escape(&mut text)?;
                }
                Some(_) => return Err(self.bad("a control character in a string")),
                None => return Err(self.bad("a string without an end")),
            }
        }
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Result<(), JsonError> {
        let plain = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => byte,
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => {
                self.at += 1;
                let first = self.unit()?;
                let mut code = u32::from(first);
                if (0xd800..0xdc00).contains(&first) {
                    let here = self.at;
                    let second = if self.takes(b"\\u") { self.unit().ok() } else { None };
                    match second {
                        Some(second @ 0xdc00..=0xdfff) => {
                            code = 0x10000 + (u32::from(first - 0xd800) << 10) + u32::from(second - 0xdc00);
                        }
                        _ => self.at = here,
                    }
                }
                match char::from_u32(code) {
                    Some(code) => text.extend_from_slice(code.encode_utf8(&mut [0; 4]).as_bytes()),
                    // A lone surrogate, as UTF-8 would have it.
                    None => {
                        text.extend_from_slice(&[0xed, 0x80 | (code >> 6 & 0x3f) as u8, 0x80 | (code & 0x3f) as u8])
                    }
                }
                return Ok(());
            }
            _ => return Err(self.bad("an escape that JSON has not")),
        };
        self.at += 1;
        text.push(plain);
        Ok(())
    }

    /// Returns the number of four hexadecimal digits.
    fn unit(&mut self) -> Result<u16, JsonError> {
        let digits = self.bytes.get(self.at..self.at + 4).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let number = digits.and_then(|digits| u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        let number = number.ok_or_else(|| self.bad("an escape without four digits"))?;
        self.at += 4;
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Unlimited;

    fn parse(text: &str) -> Result<Json, String> {
        Json::parse(text.as_bytes(), &Unlimited).map_err(|error| error.to_string())
    }

    #[test]
    fn numbers_keep_their_tokens_and_the_last_of_equal_keys_counts() {
        let found =
            parse("\u{feff} {\"a\": 1.0, \"b\": [NaN, -Infinity, 1180591620717411303424], \"a\": -0} ").unwrap();
        let keys: Vec<_> = found.as_object().unwrap().keys().map(|key| &**key).collect();
        assert_eq!(keys, [b"a", b"b"]);
        assert_eq!(found.get("a"), Some(&Json::Number("-0".into())));
        let list = found.get("b").unwrap().as_list().unwrap();
        assert!(list[0].as_double().unwrap().is_nan() && list[1].as_double() == Some(f64::NEG_INFINITY));
        assert_eq!(list[2].as_int(), Some(1 << 70));
        assert_eq!(list[2].as_size(), None);
    }

    #[test]
    fn escapes_are_those_of_python() {
        let text = |json: &str| match parse(json).unwrap() {
            Json::Text(text) => text.to_vec(),
            other => panic!("{other:?}"),
        };
        assert_eq!(text(r#""a\/\u00e9\ud83d\ude00\n""#), "a/\u{e9}\u{1f600}\n".as_bytes());
        // A high half alone, and one before something else.
        assert_eq!(text(r#""\ud800""#), [0xed, 0xa0, 0x80]);
        assert_eq!(text(r#""\ud800\u0041\udc00""#), [0xed, 0xa0, 0x80, b'A', 0xed, 0xb0, 0x80]);
    }

    #[test]
    fn what_is_no_json_is_refused_with_its_place() {
        for (json, reason) in [
            ("", "no value at byte 0"),
            ("{\"a\": 1,}", "no key at byte 8"),
            ("[1, 2", "no comma at byte 5"),
            ("01", "something behind the value at byte 1"),
            ("1.", "no digits at byte 2"),
            ("\"\n\"", "a control character in a string at byte 1"),
            (r#""\x""#, "an escape that JSON has not at byte 2"),
            (r#""\u12""#, "an escape without four digits at byte 3"),
            ("nul", "no value at byte 0"),
            ("{} x", "something behind the value at byte 3"),
        ] {
            assert_eq!(parse(json).unwrap_err(), format!("not JSON: {reason}"), "{json}");
        }
        assert!(Json::parse(b"\"\xff\"", &Unlimited).is_err());
        assert!(parse(&"[".repeat(129)).unwrap_err().contains("nested too deep"));
        assert!(parse(&format!("{}{}", "[".repeat(128), "]".repeat(128))).is_ok());
    }
}
