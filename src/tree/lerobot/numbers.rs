//! The numbers of a feature as an array. They are read from the pages of a column and converted
//! (`docs/formats/lerobot.md` 4).

use std::{fmt, ops::Range, sync::Arc};

use crate::{
    cache::BlockError,
    format::{
        DType, Fields, half,
        parquet::{Form, Leaf, Values},
        to_half,
    },
    tree::columns::{Columns, Page, Slot},
    view::{Fault, ReadContext, Rendered, pieces::Pieces},
};

/// The values of a feature in some rows of a file.
pub(super) struct Numbers {
    pub(super) columns: Arc<Columns>,
    pub(super) leaf: usize,
    /// The first row.
    pub(super) first: u64,
    /// The stored type, and the shown type.
    pub(super) stored: DType,
    pub(super) shown: DType,
    /// Values of a row; not 0.
    pub(super) values: u64,
}

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Numbers").field("leaf", &self.leaf).field("first", &self.first).finish_non_exhaustive()
    }
}

/// Returns the type of a leaf's numbers, if a feature of this type and shape can be read from it.
pub(super) fn stored(leaf: &Leaf, shown: DType, is_scalar: bool) -> Option<DType> {
    let Values::Numbers(stored) = leaf.values else { return None };
    let fits = match leaf.form {
        Form::Scalar => is_scalar,
        Form::List => true,
        Form::Member | Form::Other => false,
    };
    let converts = match (stored, shown) {
        (DType::Bool, DType::Bool) => true,
        (DType::Bool, _) | (_, DType::Bool) => false,
        (_, shown) if shown.is_float() => true,
        (stored, _) => !stored.is_float(),
    };
    (fits && converts).then_some(stored)
}

/// A row whose values may continue in the next page.
struct Open {
    row: u64,
    values: u64,
}

impl Numbers {
    fn wrong(&self, row: u64, reason: &str) -> Fault {
        let reason = format!("row {row}: {reason}");
        self.columns.named(Arc::new(BlockError::Refused(reason))).into()
    }

    fn check(&self, open: &Open) -> Result<(), Fault> {
        match open.values == self.values {
            true => Ok(()),
            false => Err(self.wrong(open.row, &format!("{} values; a step has {}", open.values, self.values))),
        }
    }

    /// Writes elements of the array from number `at` on, from slots of a page.
    fn put(&self, page: &Page, slots: Range<usize>, at: u64, pieces: &mut Pieces<'_>) -> Result<(), Fault> {
        let width = self.shown.size();
        let Some(wanted) = pieces.overlap(&(at * width..(at + slots.len() as u64) * width)) else { return Ok(()) };
        // The whole elements that contain the wanted bytes.
        let (first, end) = (wanted.start / width, wanted.end.div_ceil(width));
        let slots = slots.start + (first - at) as usize..slots.start + (end - at) as usize;
        let bytes = page.numbers(slots.clone(), self.stored.size() as usize);
        if bytes.len() as u64 != (end - first) * self.stored.size() {
            return Err(Fault::refused("a page has fewer values than rows"));
        }
        if page.has_gaps() {
            for (number, slot) in (first..end).zip(slots.clone()) {
                match page.slot(slot) {
                    Slot::Value => {}
                    Slot::Null if self.shown.is_float() => {}
                    _ => return Err(self.wrong(self.first + number / self.values, "a value is missing")),
                }
            }
        }
        if self.stored == self.shown && !(page.has_gaps() && self.shown.is_float()) {
            pieces.take(first * width, bytes);
            return Ok(());
        }
        let mut element = [0; 8];
        let stored = bytes.chunks_exact(self.stored.size() as usize);
        for ((number, bytes), slot) in (first..end).zip(stored).zip(slots) {
            let found = if page.slot(slot) == Slot::Value { read(self.stored, bytes) } else { Number::Float(f64::NAN) };
            let element = &mut element[..width as usize];
            if !write(self.shown, found, element) {
                let reason = format!("{} does not fit {}", found.text(), self.shown);
                return Err(self.wrong(self.first + number / self.values, &reason));
            }
            pieces.take(number * width, element);
        }
        Ok(())
    }
}

impl Numbers {
    /// Returns the value of a row as a float, for a feature with one value in each row.
    ///
    /// # Errors
    /// As [`Rendered::fill`].
    pub(super) fn value(&self, reader: &ReadContext, row: u64) -> Result<f64, Fault> {
        let (width, mut bytes) = (self.shown.size(), [0; 8]);
        let bytes = &mut bytes[..width as usize];
        self.fill(reader, row * width..(row + 1) * width, bytes)?;
        let bits = bytes.iter().rev().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
        // Types of one or two bytes are integers or binary16.
        Ok(match (self.shown, read(self.shown, bytes)) {
            (DType::I8, _) => f64::from(bits as i8),
            (DType::I16, _) => f64::from(bits as i16),
            (DType::U16, _) => bits as f64,
            (_, Number::Signed(number)) => number as f64,
            (_, Number::Unsigned(number)) => number as f64,
            (_, Number::Float(number)) => number,
        })
    }
}

impl Rendered for Numbers {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let row = self.values * self.shown.size();
        let rows = self.first + part.start / row..self.first + part.end.div_ceil(row);
        let mut pieces = Pieces { part, out };
        let mut open: Option<Open> = None;
        self.columns.visit(reader, self.leaf, rows, &mut |_, part| {
            let part = part?;
            if let Some(row) = part.continued {
                let slots = part.continued_slots();
                let before = open.as_ref().filter(|open| open.row == row).map_or(0, |open| open.values);
                let at = (row - self.first) * self.values + before;
                open = Some(Open { row, values: before + slots.len() as u64 });
                self.put(part.page, slots, at, &mut pieces)?;
            }
            let Some(last) = part.rows.clone().next_back() else { return Ok(()) };
            if let Some(open) = open.take() {
                self.check(&open)?;
            }
            for row in part.rows.start..last {
                self.check(&Open { row, values: part.slots(row).len() as u64 })?;
            }
            open = Some(Open { row: last, values: part.slots(last).len() as u64 });
            let slots = part.slots(part.rows.start).start..part.slots(last).end;
            self.put(part.page, slots, (part.rows.start - self.first) * self.values, &mut pieces)
        })?;
        open.map_or(Ok(()), |open| self.check(&open))
    }
}

/// A number of any type.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Number {
    Signed(i64),
    Unsigned(u64),
    Float(f64),
}

impl Number {
    fn text(self) -> String {
        match self {
            Self::Signed(number) => number.to_string(),
            Self::Unsigned(number) => number.to_string(),
            Self::Float(number) => number.to_string(),
        }
    }
}

fn read(dtype: DType, bytes: &[u8]) -> Number {
    let (short, bits, long) = (bytes.u16(0).unwrap_or(0), bytes.u32(0).unwrap_or(0), bytes.u64(0).unwrap_or(0));
    match dtype {
        DType::I32 => Number::Signed((bits as i32).into()),
        DType::U32 => Number::Unsigned(bits.into()),
        DType::I64 => Number::Signed(long as i64),
        DType::U64 => Number::Unsigned(long),
        DType::F32 => Number::Float(f32::from_bits(bits).into()),
        DType::F64 => Number::Float(f64::from_bits(long)),
        DType::F16 => Number::Float(half(short).into()),
        _ => Number::Unsigned(bytes.first().copied().unwrap_or(0).into()),
    }
}

/// Writes a number in another type, and returns whether it fits.
fn write(dtype: DType, number: Number, out: &mut [u8]) -> bool {
    let mut put = |bytes: &[u8]| {
        out.copy_from_slice(bytes);
        true
    };
    match dtype {
        DType::F64 => put(&match number {
            Number::Signed(number) => number as f64,
            Number::Unsigned(number) => number as f64,
            Number::Float(number) => number,
        }
        .to_le_bytes()),
        DType::F32 => put(&match number {
            Number::Signed(number) => number as f32,
            Number::Unsigned(number) => number as f32,
            Number::Float(number) => number as f32,
        }
        .to_le_bytes()),
        DType::F16 => put(&to_half(match number {
            Number::Signed(number) => number as f64,
            Number::Unsigned(number) => number as f64,
            Number::Float(number) => number,
        })
        .to_le_bytes()),
        _ => {
            let number = match number {
                Number::Signed(number) => i128::from(number),
                Number::Unsigned(number) => i128::from(number),
                Number::Float(_) => return false,
            };
            let bits = 8 * dtype.size() as u32;
            let is_signed = matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
            let range = if is_signed { -(1 << (bits - 1))..1 << (bits - 1) } else { 0..1i128 << bits };
            range.contains(&number) && put(&number.to_le_bytes()[..dtype.size() as usize])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_must_fit() {
        let mut out = [0; 1];
        assert!(write(DType::I8, Number::Signed(-128), &mut out) && out == [0x80]);
        assert!(!write(DType::I8, Number::Signed(128), &mut out));
        assert!(write(DType::U8, Number::Signed(255), &mut out) && out == [0xff]);
        assert!(!write(DType::U8, Number::Signed(-1), &mut out));
        let mut out = [0; 8];
        assert!(write(DType::U64, Number::Unsigned(u64::MAX), &mut out) && out == [0xff; 8]);
        assert!(!write(DType::I64, Number::Unsigned(u64::MAX), &mut out));
        assert!(
            write(DType::F64, Number::Unsigned(u64::MAX), &mut out) && f64::from_le_bytes(out) == 1.8446744073709552e19
        );
    }
}
