//! Two small formats of matches and literals: LZF, and BloscLZ, which is level 2 of FastLZ.

use super::DecodeError;

/// The output, which matches read back from.
struct Output<'a> {
    codec: &'static str,
    bytes: &'a mut [u8],
    at: usize,
}

impl Output<'_> {
    fn bad(&self, reason: &str) -> DecodeError {
        DecodeError::Corrupt { codec: self.codec, reason: reason.to_owned() }
    }

    /// Makes room for `length` more bytes and returns where they begin.
    fn next(&mut self, length: usize) -> Result<usize, DecodeError> {
        let (from, size) = (self.at, self.bytes.len());
        match from.checked_add(length).filter(|end| *end <= size) {
            Some(end) => {
                self.at = end;
                Ok(from)
            }
            None => Err(DecodeError::Size { got: size as u64 + 1, size: size as u64 }),
        }
    }

    /// Appends literals.
    #[expect(clippy::indexing_slicing, reason = "`next` made room")]
    fn literals(&mut self, input: &mut &[u8], length: usize) -> Result<(), DecodeError> {
        let (literals, rest) = input.split_at_checked(length).ok_or_else(|| self.bad("it ends in its literals"))?;
        let from = self.next(length)?;
        self.bytes[from..from + length].copy_from_slice(literals);
        *input = rest;
        Ok(())
    }

    /// Appends a match that begins `distance` bytes before the end. It may overlap the bytes that it writes.
    #[expect(clippy::indexing_slicing, reason = "the match is in the output, and `next` made room")]
    fn repeat(&mut self, distance: usize, length: usize) -> Result<(), DecodeError> {
        if distance == 0 || distance > self.at {
            return Err(self.bad("a match reaches before the start"));
        }
        let to = self.next(length)?;
        if distance == 1 {
            let byte = self.bytes[to - 1];
            self.bytes[to..to + length].fill(byte);
            return Ok(());
        }
        // Each copy doubles what can be copied.
        let (from, mut done) = (to - distance, 0);
        while done < length {
            let here = (distance + done).min(length - done);
            self.bytes.copy_within(from..from + here, to + done);
            done += here;
        }
        Ok(())
    }

    fn finish(self) -> Result<(), DecodeError> {
        let (got, size) = (self.at as u64, self.bytes.len() as u64);
        if got == size { Ok(()) } else { Err(DecodeError::Size { got, size }) }
    }
}

fn take(input: &mut &[u8]) -> Option<usize> {
    let (&byte, rest) = input.split_first()?;
    *input = rest;
    Some(byte.into())
}

/// Decodes LZF to exactly the size of `out`.
pub(super) fn lzf(mut input: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
    let mut out = Output { codec: "lzf", bytes: out, at: 0 };
    while let Some(control) = take(&mut input) {
        if control < 32 {
            out.literals(&mut input, control + 1)?;
            continue;
        }
        let mut length = control >> 5;
        let mut next = || take(&mut input).ok_or_else(|| out.bad("it ends in a match"));
        if length == 7 {
            length += next()?;
        }
        let distance = ((control & 31) << 8) + next()? + 1;
        out.repeat(distance, length + 2)?;
    }
    out.finish()
}

/// Returns how many bytes LZF decodes to; `None` if it ends too early.
pub(super) fn lzf_size(mut input: &[u8]) -> Option<u64> {
    let mut size = 0u64;
    while let Some(control) = take(&mut input) {
        let mut length = control >> 5;
        if length == 0 {
            input = input.get(control + 1..)?;
            size += control as u64 + 1;
            continue;
        }
        if length == 7 {
            length += take(&mut input)?;
        }
        take(&mut input)?;
        size += length as u64 + 2;
    }
    Some(size)
}

/// Decodes BloscLZ to exactly the size of `out`.
pub(super) fn blosclz(mut input: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
    /// The distance from which the long form is used.
    const FAR: usize = 8191;
    let mut out = Output { codec: "blosclz", bytes: out, at: 0 };
    // The first sequence is always one of literals.
    let Some(mut control) = take(&mut input).map(|control| control & 31) else { return out.finish() };
    loop {
        if control < 32 {
            out.literals(&mut input, control + 1)?;
        } else {
            let (mut length, high) = ((control >> 5) + 2, control & 31);
            let mut next = || take(&mut input).ok_or_else(|| out.bad("it ends in a match"));
            if length == 9 {
                loop {
                    let more = next()?;
                    length += more;
                    if more != 255 {
                        break;
                    }
                }
            }
            let low = next()?;
            let distance = match (high, low) {
                (31, 255) => (next()? << 8) + next()? + FAR,
                _ => (high << 8) + low,
            };
            out.repeat(distance + 1, length)?;
        }
        match take(&mut input) {
            Some(next) => control = next,
            None => return out.finish(),
        }
    }
}
