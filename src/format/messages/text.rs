//! A message as a line of JSON (`docs/formats/mcap.md`, section 8).

use base64::{Engine, prelude::BASE64_STANDARD};

use super::{Field, Number, Sink, Time, ros::bits};

/// Most bytes of an array that a line shows.
const SHOWN: usize = 4096;

/// Takes the bytes of a text in parts.
pub trait Out {
    /// Takes the next bytes.
    fn put(&mut self, bytes: &[u8]);
}

impl Out for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Counts bytes.
#[derive(Debug, Default)]
pub struct Counted(pub u64);

impl Out for Counted {
    fn put(&mut self, bytes: &[u8]) {
        self.0 = self.0.saturating_add(bytes.len() as u64);
    }
}

/// A [`Sink`] that writes a message as JSON, without spaces and without a line end.
pub struct Line<'a, O: Out> {
    out: &'a mut O,
    /// Whether the next value or key is the first of its object or list.
    is_first: bool,
    /// Whether the list that comes is one of bytes, which JSON shows as base64.
    is_bytes: bool,
}

impl<'a, O: Out> Line<'a, O> {
    /// Writes to `out`.
    pub fn new(out: &'a mut O) -> Self {
        Self { out, is_first: true, is_bytes: false }
    }

    /// Writes what comes before a value.
    fn value(&mut self) {
        if !self.is_first {
            self.out.put(b",");
        }
        self.is_first = false;
    }

    fn element(&mut self, number: Number, bits: u64) {
        match number {
            Number::Bool => self.out.put(if bits == 0 { b"false" } else { b"true" }),
            #[expect(clippy::cast_possible_truncation, reason = "the float is the low half")]
            Number::F32 => self.float(f32::from_bits(bits as u32)),
            Number::F64 => self.float(f64::from_bits(bits)),
            Number::U64 | Number::U32 | Number::U16 | Number::U8 => {
                self.out.put(itoa::Buffer::new().format(bits).as_bytes());
            }
            _ => self.out.put(itoa::Buffer::new().format(bits as i64).as_bytes()),
        }
    }

    fn float<F: ryu::Float + Copy + Into<f64>>(&mut self, value: F) {
        if !value.into().is_finite() {
            return self.out.put(b"null");
        }
        let mut buffer = ryu::Buffer::new();
        let text = buffer.format_finite(value);
        let mut laid = [0; 32];
        let length = lay_out(text.as_bytes(), &mut laid);
        self.out.put(laid.get(..length).unwrap_or_default());
    }
}

/// Writes the number in `text`, which may have any form, by the rule of that page. Returns the number of bytes.
fn lay_out(text: &[u8], out: &mut [u8; 32]) -> usize {
    let (is_negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let (number, exponent) = match text.iter().position(|byte| *byte == b'e') {
        Some(at) => {
            let (number, exponent) = text.split_at(at);
            let exponent = exponent.get(1..).and_then(|digits| std::str::from_utf8(digits).ok());
            (number, exponent.and_then(|digits| digits.parse().ok()).unwrap_or(0i32))
        }
        None => (text, 0),
    };
    // The digits without zeros around them, and the place of the point relative to the first digit.
    let (mut digits, mut count, mut point, mut seen_point) = ([0u8; 24], 0usize, exponent, false);
    for byte in number {
        match byte {
            b'.' => seen_point = true,
            b'0' if count == 0 => point -= i32::from(seen_point),
            digit => {
                if let Some(place) = digits.get_mut(count) {
                    *place = *digit;
                    count += 1;
                }
                point += i32::from(!seen_point);
            }
        }
    }
    let mut digits = digits.get(..count).unwrap_or_default();
    while let [rest @ .., b'0'] = digits {
        digits = rest;
    }
    let mut length = 0;
    let mut put = |byte: u8| {
        if let Some(place) = out.get_mut(length) {
            *place = byte;
            length += 1;
        }
    };
    if is_negative {
        put(b'-');
    }
    match point {
        _ if digits.is_empty() => b"0.0".iter().for_each(|byte| put(*byte)),
        1..=16 => {
            let whole = point as usize;
            (0..whole).for_each(|at| put(digits.get(at).copied().unwrap_or(b'0')));
            put(b'.');
            match digits.get(whole..).filter(|rest| !rest.is_empty()) {
                Some(rest) => rest.iter().for_each(|byte| put(*byte)),
                None => put(b'0'),
            }
        }
        -3..=0 => {
            b"0.".iter().for_each(|byte| put(*byte));
            (point..0).for_each(|_| put(b'0'));
            digits.iter().for_each(|byte| put(*byte));
        }
        _ => {
            digits.iter().take(1).for_each(|byte| put(*byte));
            if digits.len() > 1 {
                put(b'.');
                digits.iter().skip(1).for_each(|byte| put(*byte));
            }
            put(b'e');
            itoa::Buffer::new().format(point - 1).bytes().for_each(&mut put);
        }
    }
    length
}

/// Writes a text as a JSON string.
fn put_string(text: &str, out: &mut impl Out) {
    out.put(b"\"");
    let bytes = text.as_bytes();
    let mut from = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let mut code = *b"\\u0000";
        let escaped: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            8 => b"\\b",
            9 => b"\\t",
            10 => b"\\n",
            12 => b"\\f",
            13 => b"\\r",
            #[expect(clippy::indexing_slicing, reason = "it is a hexadecimal digit")]
            0..=0x1f => {
                code[4] = b'0' + (byte >> 4);
                code[5] = b"0123456789abcdef"[usize::from(byte & 15)];
                &code
            }
            _ => continue,
        };
        out.put(bytes.get(from..at).unwrap_or_default());
        out.put(escaped);
        from = at + 1;
    }
    out.put(bytes.get(from..).unwrap_or_default());
    out.put(b"\"");
}

/// Writes a text as a string, or as `{"base64":"…"}`.
fn put_text(text: &[u8], out: &mut impl Out) {
    match std::str::from_utf8(text) {
        Ok(text) => put_string(text, out),
        Err(_) => {
            out.put(b"{\"base64\":");
            put_base64(text, out);
            out.put(b"}");
        }
    }
}

fn put_base64(bytes: &[u8], out: &mut impl Out) {
    out.put(b"\"");
    for piece in bytes.chunks(48) {
        let mut encoded = [0; 64];
        if let Ok(length) = BASE64_STANDARD.encode_slice(piece, &mut encoded) {
            out.put(encoded.get(..length).unwrap_or_default());
        }
    }
    out.put(b"\"");
}

fn put_bytes(bytes: &[u8], out: &mut impl Out) {
    match bytes.len() > SHOWN {
        false => put_base64(bytes, out),
        true => {
            out.put(b"{\"bytes\":");
            out.put(itoa::Buffer::new().format(bytes.len()).as_bytes());
            out.put(b"}");
        }
    }
}

impl<O: Out> Sink for Line<'_, O> {
    fn begin(&mut self, _: u32) {
        self.value();
        self.out.put(b"{");
        self.is_first = true;
    }

    fn field(&mut self, field: &Field) {
        self.value();
        put_string(&field.name, self.out);
        self.out.put(b":");
        self.is_first = true;
        self.is_bytes = field.is_bytes();
    }

    fn end(&mut self) {
        self.out.put(b"}");
        self.is_first = false;
    }

    fn absent(&mut self, _: &Field) {
        self.value();
        self.out.put(b"null");
    }

    fn begin_list(&mut self) {
        self.value();
        self.out.put(b"[");
        self.is_first = true;
    }

    fn end_list(&mut self) {
        self.out.put(b"]");
        self.is_first = false;
    }

    fn number(&mut self, number: Number, bits: u64) {
        self.value();
        self.element(number, bits);
    }

    fn numbers(&mut self, number: Number, bytes: &[u8], is_big: bool) {
        self.value();
        if self.is_bytes {
            return put_bytes(bytes, self.out);
        }
        self.out.put(b"[");
        for (at, element) in bytes.chunks_exact(number.size()).enumerate() {
            if at > 0 {
                self.out.put(b",");
            }
            self.element(number, bits(number, element, is_big));
        }
        self.out.put(b"]");
    }

    fn text(&mut self, text: &[u8]) {
        self.value();
        put_text(text, self.out);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.value();
        put_bytes(bytes, self.out);
    }

    fn time(&mut self, time: Time, seconds: i64, nanos: i64) {
        self.value();
        let [first, second] = time.names;
        for (mark, name, number) in [("{\"", first, seconds), (",\"", second, nanos)] {
            self.out.put(mark.as_bytes());
            self.out.put(name.as_bytes());
            self.out.put(b"\":");
            self.out.put(itoa::Buffer::new().format(number).as_bytes());
        }
        self.out.put(b"}");
    }
}
