//! Recognition of files by formats, after one short read.

/// Bytes of a file's front that formats recognise it by.
pub const FRONT: usize = 4 << 10;

/// What formats recognise a file by, without reading more of it.
#[derive(Debug, Clone, Copy)]
pub struct Front<'a> {
    /// The first bytes: [`FRONT`] of them, or all that there are.
    pub bytes: &'a [u8],
    /// Bytes of the whole file.
    pub len: u64,
    /// The file's name, without its folder.
    pub name: &'a [u8],
}

/// Whether a file has a format, by its front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recognition {
    /// It is not of this format.
    No,
    /// It may be of this format. If a closer look refuses it, it is an ordinary file and is not reported.
    Maybe,
    /// It is meant to be of this format. If a closer look refuses it, the reason is worth reporting.
    Meant,
}

impl Front<'_> {
    /// Recognises files that begin with these bytes. A file that is shorter than the header is not reported.
    pub fn by_magic(&self, magic: &[u8], header: u64) -> Recognition {
        match self.bytes.starts_with(magic) {
            false => Recognition::No,
            true if self.len < header => Recognition::Maybe,
            true => Recognition::Meant,
        }
    }

    /// Returns whether the name has one of these suffixes, which are in lower case; see [`has_suffix`].
    pub fn has_suffix(&self, suffixes: &[&str]) -> bool {
        suffixes.iter().any(|suffix| has_suffix(self.name, suffix))
    }
}

/// Returns whether a name ends with a suffix, in upper or lower case. If the suffix is `begin*.end`, the name must also
/// start with what is before the star. `#` stands for five digits or more.
pub fn has_suffix(name: &[u8], suffix: &str) -> bool {
    // Most names differ in their last byte, and each is compared with the suffixes of all formats.
    if let (Some(last), Some(end)) = (name.last(), suffix.as_bytes().last())
        && *end != b'#'
        && !last.eq_ignore_ascii_case(end)
    {
        return false;
    }
    // What every name with the suffix ends with.
    let tail = suffix.as_bytes().rsplit(|byte| matches!(byte, b'*' | b'#')).next().unwrap_or_default();
    let end = name.len().checked_sub(tail.len()).and_then(|from| name.get(from..));
    if !end.is_some_and(|end| end.eq_ignore_ascii_case(tail)) {
        return false;
    }
    if tail.len() == suffix.len() {
        return true;
    }
    let (begin, end) = suffix.split_once('*').unwrap_or(("", suffix));
    let begin = begin.as_bytes();
    let split = name.split_at_checked(begin.len());
    let Some((_, mut rest)) = split.filter(|(front, _)| front.eq_ignore_ascii_case(begin)) else { return false };
    for (number, part) in end.rsplit('#').enumerate() {
        if number > 0 {
            let digits = rest.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
            if digits < DIGITS {
                return false;
            }
            rest = rest.get(..rest.len() - digits).unwrap_or_default();
        }
        match rest.len().checked_sub(part.len()).map(|from| rest.split_at(from)) {
            Some((front, end)) if end.eq_ignore_ascii_case(part.as_bytes()) => rest = front,
            _ => return false,
        }
    }
    true
}

/// Least digits of a number in a suffix.
const DIGITS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_compared_in_any_case_and_may_have_a_beginning() {
        assert!(has_suffix(b"a.KAS", ".kas") && has_suffix(b".kas", ".kas") && !has_suffix(b"akas", ".kas"));
        let both = "model*.bin";
        assert!(has_suffix(b"model.bin", both) && has_suffix(b"Model-00001-of-00002.BIN", both));
        assert!(!has_suffix(b"a model.bin", both) && !has_suffix(b"model.bin.txt", both));
        let numbered = ".rec-#-of-#";
        assert!(has_suffix(b"a.REC-00000-of-00012", numbered) && has_suffix(b".rec-000001-of-100000", numbered));
        assert!(!has_suffix(b"a.rec-0000-of-00012", numbered) && !has_suffix(b"a.rec-00000-of-00012x", numbered));
        assert!(!has_suffix(b"00000-of-00012", numbered) && !has_suffix(b"a.rec-0000a-of-00012", numbered));
        // The two do not share bytes.
        assert!(!has_suffix(b"aba", "ab*ba") && has_suffix(b"abba", "ab*ba"));
    }

    #[test]
    fn what_is_shorter_than_a_header_is_not_worth_a_word() {
        let front = |bytes, len| Front { bytes, len, name: b"" }.by_magic(b"MAGIC", 10);
        assert_eq!(front(b"MAGICAL", 10), Recognition::Meant);
        assert_eq!(front(b"MAGICAL", 9), Recognition::Maybe);
        assert_eq!(front(b"MAGI", 10), Recognition::No);
    }
}
