//! Zip archives (`docs/formats/npz.md` 1 to 3), for all formats that use them: the central directory, and where the
//! data of a member begin.

use std::{borrow::Cow, ops::Range};

use super::{Block, Class, Crc, Fields, FormatError};
use crate::{
    codec::Codec,
    limits,
    source::{Memory, Source, SourceError, check_room, to_usize},
};

/// The signature of a local header, with which every archive begins.
pub const LOCAL: [u8; 4] = *b"PK\x03\x04";
const ENTRY: [u8; 4] = *b"PK\x01\x02";
const END: [u8; 4] = *b"PK\x05\x06";
const END_64: [u8; 4] = *b"PK\x06\x06";
const LOCATOR_64: [u8; 4] = *b"PK\x06\x07";

/// Bytes of the fixed part of each record.
const LOCAL_SIZE: u64 = 30;
const ENTRY_SIZE: u64 = 46;
const END_SIZE: u64 = 22;
const END_64_SIZE: u64 = 56;
const LOCATOR_64_SIZE: u64 = 20;

/// Bytes at the end of the file that are searched for the end record: its own, and the longest comment.
const TAIL: u64 = END_SIZE + 0xffff;
/// Bytes that are searched first, because most archives have no comment.
const SHORT_TAIL: u64 = 4 << 10;

/// Bytes of the directory that are read at a time.
const PIECE: u64 = 256 << 10;
/// Bytes of the longest entry.
const LONGEST_ENTRY: u64 = ENTRY_SIZE + 3 * 0xffff;

/// The number of the extra field for 64-bit numbers.
const EXTRA_64: u16 = 1;

/// Flags: encrypted, strongly encrypted, and with a masked local header.
const ENCRYPTED: u16 = 1 | 1 << 6 | 1 << 13;
/// The flag of entries whose local header does not state sizes and checksum.
const DESCRIPTOR: u16 = 1 << 3;
/// The flag of entries whose name is UTF-8.
const UTF_8: u16 = 1 << 11;

/// Characters of code page 437 from 128 on.
const CP_437: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";

/// Bytes that a member takes in memory in addition to its name.
const MEMBER_MEMORY: u64 = size_of::<Member>() as u64 + 16;

/// An archive's directory.
#[derive(Debug)]
pub struct Archive {
    /// The members in the order of the directory.
    pub members: Vec<Member>,
}

/// A member, as the directory describes it.
#[derive(Debug)]
pub struct Member {
    /// Its name, as stored.
    pub name: Box<[u8]>,
    /// Bytes stored.
    pub stored_size: u64,
    /// Bytes when decoded, as stated.
    pub size: u64,
    /// CRC-32 of the decoded bytes.
    pub crc: u32,
    /// Whether that is a checksum. In archives of some formats, 0 means that there is none.
    pub has_crc: bool,
    method: u16,
    flags: u16,
    /// Where its local header is.
    pub offset: u64,
    /// Where the next member's local header begins, or the directory.
    limit: u64,
}

impl Archive {
    /// Treats checksums of 0 as missing.
    pub fn ignore_zero_checksums(&mut self) {
        self.members.iter_mut().for_each(|member| member.has_crc = member.crc != 0);
    }
}

impl Member {
    /// Returns how it is stored, as in `container.json`.
    pub fn codec_name(&self) -> Cow<'static, str> {
        match (self.flags & ENCRYPTED, self.method) {
            (0, 0) => "none".into(),
            (0, 8) => "deflate".into(),
            (0, method) => format!("method {method}").into(),
            _ => "encrypted".into(),
        }
    }

    /// Returns the name as a path with `/` between the parts; `None` for names of folders, and for names that lead
    /// elsewhere. A name without the flag for UTF-8 is in code page 437.
    pub fn key(&self) -> Option<Cow<'_, str>> {
        let key = match std::str::from_utf8(&self.name) {
            Ok(name) if self.flags & UTF_8 != 0 || name.is_ascii() => name.into(),
            _ if self.flags & UTF_8 != 0 => return None,
            _ => Cow::Owned(self.name.iter().map(|byte| code_page_437(*byte)).collect::<String>()),
        };
        let is_part = |part: &str| !matches!(part, "" | "." | "..");
        (!key.contains('\\') && key.split('/').all(is_part)).then_some(key)
    }

    /// Returns why it cannot be served, as far as the directory tells.
    pub fn error(&self) -> Option<String> {
        if self.flags & ENCRYPTED != 0 {
            return Some("it is encrypted".into());
        }
        // Nothing of a member without bytes is read, so this is its checksum's only comparison.
        if self.size == 0 && self.crc != 0 {
            return Some(format!("its size is 0, and its checksum {:08x} that of other bytes", self.crc));
        }
        match self.method {
            0 if self.stored_size != self.size => {
                Some(format!("it is stored as it is, in {} bytes, and has {}", self.stored_size, self.size))
            }
            8 if self.size > Codec::DeflateExact.max_size(self.stored_size) => {
                Some(format!("{} bytes can't be deflated to {}", self.size, self.stored_size))
            }
            0 | 8 => None,
            method => Some(format!("it is compressed by method {method}; 0 and 8 are known")),
        }
    }

    /// Returns the size of the file that shows it: at least one byte if it cannot be served, so that reading it fails.
    pub fn shown_size(&self) -> u64 {
        if self.size == 0 && self.error().is_some() { 1 } else { self.size }
    }

    /// Returns the block of a member that can be served. `data` is where its bytes begin.
    pub fn block(&self, data: u64) -> Block {
        let codec = if self.method == 0 { Codec::None } else { Codec::DeflateExact };
        Block {
            offset: data,
            // Bytes after the longest stream that any encoder writes are not read.
            stored_size: self.stored_size.min(codec.max_stored(self.size)),
            size: self.size,
            codec,
            crc: self.has_crc.then(|| Crc::crc32(self.crc)),
        }
    }

    /// Returns where the local header is, with the name, and its bytes. It has the name that the directory says.
    ///
    /// # Errors
    /// [`MemberError::Damaged`] if there is none, or it has another name.
    pub fn header(&self, source: &dyn Source) -> Result<(Range<u64>, Vec<u8>), MemberError> {
        let range = self.offset..self.offset + LOCAL_SIZE + self.name.len() as u64;
        let header = source.read(range.clone())?;
        if !header.starts_with(&LOCAL) {
            return Err(MemberError::Damaged(format!("there is no local header at byte {}", self.offset)));
        }
        let length = header.u16(26).map(usize::from);
        if length != Some(self.name.len()) || header.get(to_usize(LOCAL_SIZE)..) != Some(&*self.name) {
            return Err(MemberError::Damaged("its local header has another name than the directory".into()));
        }
        Ok((range, header))
    }

    /// Returns where the member's data begin, after its local header. The header is compared with the directory.
    ///
    /// # Errors
    /// [`MemberError::Damaged`] if they differ, or if the data would overlap the next member or the directory.
    pub fn data(&self, source: &dyn Source) -> Result<u64, MemberError> {
        let damaged = |reason: String| Err(MemberError::Damaged(reason));
        let (range, header) = self.header(source)?;
        let short = |at| header.u16(at).unwrap_or_default();
        let long = |at| header.u32(at).unwrap_or_default();
        let extra_length = u64::from(short(28));
        if short(8) != self.method || short(6) & 1 != self.flags & 1 {
            return damaged("its local header says that it is stored otherwise than the directory does".into());
        }
        let data = range.end + extra_length;
        if data.checked_add(self.stored_size).is_none_or(|end| end > self.limit) {
            return damaged(format!("its {} bytes from {data} on reach beyond byte {}", self.stored_size, self.limit));
        }
        if short(6) & DESCRIPTOR == 0 {
            let extra = source.read(range.end..data)?;
            let mut sizes = Sizes { size: long(22), stored: long(18), offset: None }.of(&extra);
            let same = sizes.next() == Some(Some(self.size)) && sizes.next() == Some(Some(self.stored_size));
            if !same || long(14) != self.crc {
                return damaged("its local header has other sizes or another checksum than the directory".into());
            }
        }
        Ok(data)
    }
}

/// Why a member's data cannot be found.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    /// The local header is wrong.
    #[error("{0}")]
    Damaged(String),
    /// It could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
}

fn code_page_437(byte: u8) -> char {
    let beyond = usize::from(byte).checked_sub(128).and_then(|at| CP_437.chars().nth(at));
    beyond.unwrap_or(char::from(byte))
}

fn bad(reason: impl Into<String>) -> FormatError {
    FormatError::refused(Class::BadDirectory, reason)
}

/// Returns the name of the first member, if these first bytes of a file are those of an archive and contain the name.
pub fn first_name(front: &[u8]) -> Option<&[u8]> {
    let length = usize::from(front.starts_with(&LOCAL).then(|| front.u16(26))??);
    front.get(to_usize(LOCAL_SIZE)..)?.get(..length)
}

/// The limits of a format's archives.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Most bytes of the directory.
    pub directory: u64,
    /// Most members.
    pub members: u64,
    /// Whether members may share bytes, and other bytes may come before the first member.
    pub may_overlap: bool,
}

/// The rules of section 2.
const STRICT: Rules = Rules { directory: limits::ZIP_DIRECTORY, members: limits::ZIP_MEMBERS, may_overlap: false };

/// Reads the central directory, in the order of section 2.
///
/// # Errors
/// `Refused` if it is not an archive by section 2; `Source` if it cannot be read or there is not enough memory.
pub fn parse_within(source: &dyn Source, memory: &dyn Memory) -> Result<Archive, FormatError> {
    parse_by(source, STRICT, memory)
}

/// Does the same as [`parse_within`] by other rules.
///
/// # Errors
/// As [`parse_within`].
pub fn parse_by(source: &dyn Source, rules: Rules, memory: &dyn Memory) -> Result<Archive, FormatError> {
    let directory = find_directory(source, rules)?;
    let mut members = read_directory(source, &directory, u64::MAX, memory)?;
    if !rules.may_overlap {
        set_limits(&mut members, directory.range.start, memory)?;
    }
    Ok(Archive { members })
}

/// Reads the entries in the first bytes of the central directory, which tell what the archive is.
///
/// # Errors
/// As [`parse_within`].
pub fn first_members(
    source: &dyn Source,
    rules: Rules,
    bytes: u64,
    memory: &dyn Memory,
) -> Result<Vec<Member>, FormatError> {
    read_directory(source, &find_directory(source, rules)?, bytes, memory)
}

/// Where the directory is, according to the end record.
struct Directory {
    range: Range<u64>,
    entries: u64,
}

/// Finds the last end record whose comment reaches to the end of the file. Returns its place, and its bytes to the end.
fn find_end(source: &dyn Source) -> Result<Option<(u64, Vec<u8>)>, SourceError> {
    let len = source.len();
    for length in [SHORT_TAIL.min(len), TAIL.min(len)] {
        let start = len - length;
        let tail = source.read(start..len)?;
        let is_end = |at: &usize| {
            let rest = tail.get(*at..).unwrap_or_default();
            let comment = rest.starts_with(&END).then(|| rest.u16(20)).flatten();
            comment.is_some_and(|comment| rest.len() as u64 == END_SIZE + u64::from(comment))
        };
        if let Some(at) = (0..tail.len()).rev().find(is_end) {
            return Ok(Some((start + at as u64, tail.get(at..).unwrap_or_default().to_vec())));
        }
    }
    Ok(None)
}

fn find_directory(source: &dyn Source, rules: Rules) -> Result<Directory, FormatError> {
    let mut front = [0; 4];
    let present = usize::try_from(source.len()).map_or(4, |len| len.min(4));
    source.fill(0, front.get_mut(..present).unwrap_or_default())?;
    if front != LOCAL {
        return Err(FormatError::refused(Class::BadMagic, "it does not begin with a local header"));
    }
    let Some((at, end)) = find_end(source)? else {
        return Err(FormatError::refused(Class::NoEnd, "no end of the directory is found: incomplete copy?"));
    };
    let locator = match at.checked_sub(LOCATOR_64_SIZE) {
        Some(from) => Some((from, source.read(from..at)?)).filter(|(_, bytes)| bytes.starts_with(&LOCATOR_64)),
        None => None,
    };
    let (place, disks, entries, size, offset) = if let Some((from, locator)) = locator {
        let at = locator.u64(8).unwrap_or_default();
        if at.checked_add(END_64_SIZE).is_none_or(|end| end > from) {
            return Err(bad(format!("the zip64 end at byte {at} is not in front of its locator")));
        }
        let end = source.read(at..at + END_64_SIZE)?;
        let (int, long) = (|at| end.u32(at).unwrap_or_default(), |at| end.u64(at).unwrap_or_default());
        if !end.starts_with(&END_64) {
            return Err(bad(format!("there is no zip64 end at byte {at}")));
        }
        let one_disk = locator.u32(4) == Some(0) && locator.u32(16).is_some_and(|disks| disks <= 1);
        (at, one_disk && int(16) == 0 && int(20) == 0 && long(24) == long(32), long(32), long(40), long(48))
    } else {
        let (short, int) = (|at| end.u16(at).unwrap_or_default(), |at| u64::from(end.u32(at).unwrap_or_default()));
        (at, short(4) == 0 && short(6) == 0 && short(8) == short(10), short(10).into(), int(12), int(16))
    };
    if !disks {
        return Err(bad("it is a part of an archive of several files"));
    }
    if offset.checked_add(size) != Some(place) {
        return Err(bad(format!(
            "the directory of {size} bytes at {offset} does not end at its end record at {place}"
        )));
    }
    if size > rules.directory || entries > rules.members || entries > size / ENTRY_SIZE {
        return Err(bad(format!("{entries} entries in {size} bytes")));
    }
    Ok(Directory { range: offset..place, entries })
}

/// Reads the entries that begin and end in the first bytes of the directory.
fn read_directory(
    source: &dyn Source,
    directory: &Directory,
    bytes: u64,
    memory: &dyn Memory,
) -> Result<Vec<Member>, FormatError> {
    let Directory { range, entries } = directory;
    let mut members: Vec<Member> = Vec::new();
    let mut at = range.start;
    let wanted = range.end.min(range.start.saturating_add(bytes));
    memory.reserve((PIECE + LONGEST_ENTRY).min(range.end - range.start))?;
    while at < wanted {
        let piece = source.read(at..range.end.min(at + PIECE.max(LONGEST_ENTRY)))?;
        let is_last = at + piece.len() as u64 == range.end;
        let room = piece.len() as u64 / ENTRY_SIZE * MEMBER_MEMORY;
        check_room(room, 1).map_err(SourceError::from)?;
        let mut rest = &piece[..];
        // An entry that does not end here begins the next piece.
        while !rest.is_empty() && (is_last || rest.len() as u64 >= LONGEST_ENTRY) {
            if members.len() as u64 == *entries {
                return Err(bad(format!("more bytes than those of {entries} entries")));
            }
            let (member, length) = read_entry(rest, members.len(), range.start)?;
            memory.reserve(MEMBER_MEMORY + member.name.len() as u64)?;
            members.push(member);
            rest = rest.get(length..).unwrap_or_default();
        }
        at += (piece.len() - rest.len()) as u64;
    }
    if at == range.end && members.len() as u64 != *entries {
        return Err(bad(format!("{} entries where the end says {entries}", members.len())));
    }
    Ok(members)
}

/// Returns the entry at the beginning of these bytes, and its length.
fn read_entry(bytes: &[u8], number: usize, directory: u64) -> Result<(Member, usize), FormatError> {
    let entry = || format!("entry {number}");
    let fields = bytes.first_chunk::<{ to_usize(ENTRY_SIZE) }>().filter(|entry| entry.starts_with(&ENTRY));
    let Some(fields) = fields.map(|fields| &fields[..]) else {
        return Err(bad(format!("{} has no signature", entry())));
    };
    let (short, int) = (|at| fields.u16(at).unwrap_or_default(), |at| fields.u32(at).unwrap_or_default());
    let [name, extra, comment] = [28, 30, 32].map(|at| usize::from(short(at)));
    let length = to_usize(ENTRY_SIZE) + name + extra + comment;
    let behind = bytes.get(to_usize(ENTRY_SIZE)..length).and_then(|behind| behind.split_at_checked(name));
    let Some((name, behind)) = behind else {
        return Err(bad(format!("{} passes the end of the directory", entry())));
    };
    let extra = behind.get(..extra).unwrap_or_default();
    if name.is_empty() || name.contains(&0) {
        return Err(bad(format!("{} has no name, or one with a null", entry())));
    }
    let mut numbers = Sizes { size: int(24), stored: int(20), offset: Some(int(42)) }.of(extra);
    let mut number = || numbers.next().flatten();
    let (Some(size), Some(stored_size), Some(offset)) = (number(), number(), number()) else {
        return Err(bad(format!("{} has no numbers of 64 bits in its extra field", entry())));
    };
    if short(34) != 0 {
        return Err(bad(format!("{} is in another file of the archive", entry())));
    }
    let end = offset.checked_add(LOCAL_SIZE + name.len() as u64).and_then(|data| data.checked_add(stored_size));
    if end.is_none_or(|end| end > directory) {
        let reason = format!("{} at byte {offset} of {stored_size} bytes reaches into the directory", entry());
        return Err(FormatError::refused(Class::Overlap, reason));
    }
    let (method, flags, crc) = (short(10), short(8), int(16));
    let member =
        Member { name: name.into(), stored_size, size, crc, has_crc: true, method, flags, offset, limit: directory };
    Ok((member, length))
}

/// Numbers of 32 bits. For one that is all ones, the extra field has the 64-bit number.
struct Sizes {
    size: u32,
    stored: u32,
    offset: Option<u32>,
}

impl Sizes {
    /// Returns the numbers in this order; `None` for a missing one.
    fn of(self, extra: &[u8]) -> impl Iterator<Item = Option<u64>> {
        let mut long = extra_field(extra, EXTRA_64).unwrap_or_default().to_vec();
        let numbers = [Some(self.size), Some(self.stored), self.offset].into_iter().flatten();
        numbers.map(move |number| {
            if number != u32::MAX {
                return Some(number.into());
            }
            let value = long.u64(0)?;
            long.drain(..8);
            Some(value)
        })
    }
}

/// Returns the data of the first extra field with a number.
fn extra_field(mut extra: &[u8], number: u16) -> Option<&[u8]> {
    loop {
        let (found, length) = (extra.u16(0)?, usize::from(extra.u16(2)?));
        let data = extra.get(4..4 + length)?;
        if found == number {
            return Some(data);
        }
        extra = extra.get(4 + length..)?;
    }
}

/// Sets for each member where the next begins. Fails if members overlap.
fn set_limits(members: &mut [Member], directory: u64, memory: &dyn Memory) -> Result<(), FormatError> {
    memory.reserve((members.len() * size_of::<u32>()) as u64)?;
    check_room(members.len() as u64, size_of::<u32>()).map_err(SourceError::from)?;
    let mut order: Vec<u32> = (0..).take(members.len()).collect();
    order.sort_unstable_by_key(|&number| members.get(number as usize).map(|member| member.offset));
    if let Some(&first) = order.first()
        && members.get(first as usize).is_some_and(|member| member.offset != 0)
    {
        return Err(FormatError::refused(Class::BadMagic, "no member is at byte 0"));
    }
    let mut limit = directory;
    for &number in order.iter().rev() {
        let Some(member) = members.get_mut(number as usize) else { continue };
        let end = member.offset + LOCAL_SIZE + member.name.len() as u64 + member.stored_size;
        if end > limit {
            let name = String::from_utf8_lossy(&member.name).into_owned();
            let reason = format!("{name:?} ends at byte {end}, where the next member begins at {limit}");
            return Err(FormatError::refused(Class::Overlap, reason));
        }
        member.limit = limit;
        limit = member.offset;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Unlimited;

    /// An archive of stored members in which a test changes bytes.
    struct Zip {
        bytes: Vec<u8>,
        /// Where the entry of each member is, and the end.
        entries: Vec<usize>,
        end: usize,
    }

    fn zip(members: &[(&str, &[u8])]) -> Zip {
        let (mut bytes, mut directory, mut entries) = (Vec::new(), Vec::new(), Vec::new());
        for (name, data) in members {
            let offset = bytes.len() as u32;
            let mut fields = [20u16, 0, 0, 0, 0x21].map(u16::to_le_bytes).concat();
            let crc = crate::format::CrcKind::Crc32.of(data);
            fields.extend([crc, data.len() as u32, data.len() as u32].map(u32::to_le_bytes).concat());
            fields.extend([name.len() as u16, 0].map(u16::to_le_bytes).concat());
            bytes.extend([&LOCAL[..], &fields, name.as_bytes(), data].concat());
            entries.push(directory.len());
            directory
                .extend([&ENTRY[..], &[20, 0], &fields, &[0; 10], &offset.to_le_bytes(), name.as_bytes()].concat());
        }
        let start = bytes.len();
        entries.iter_mut().for_each(|entry| *entry += start);
        bytes.extend(&directory);
        let end = bytes.len();
        let count = (members.len() as u16).to_le_bytes();
        bytes.extend([&END[..], &[0; 4], &count, &count].concat());
        bytes.extend([directory.len() as u32, start as u32].map(u32::to_le_bytes).concat());
        bytes.extend([0, 0]);
        Zip { bytes, entries, end }
    }

    impl Zip {
        fn put(mut self, at: usize, bytes: &[u8]) -> Self {
            self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
            self
        }

        fn parse(&self) -> Result<Archive, String> {
            parse_within(&self.bytes, &Unlimited).map_err(|error| error.to_string())
        }

        /// The class of the refusal.
        fn refused(&self) -> String {
            self.parse().map(|_| ()).unwrap_err().split(':').next().unwrap().to_owned()
        }
    }

    fn two() -> Zip {
        zip(&[("a.npy", b"aaaa"), ("b.npy", b"bb")])
    }

    #[test]
    fn members_are_found() {
        let found = two();
        let archive = found.parse().unwrap();
        let names: Vec<_> = archive.members.iter().map(|member| &*member.name).collect();
        assert_eq!(names, [b"a.npy", b"b.npy"]);
        let places: Vec<_> = archive.members.iter().map(|member| member.data(&found.bytes).unwrap()).collect();
        assert_eq!(places, [35, 74]);
        assert_eq!(first_name(&found.bytes), Some(&b"a.npy"[..]));
        assert_eq!(first_name(&found.bytes[..34]), None);
        // Many of them, which are read in pieces.
        let names: Vec<String> = (0..20_000).map(|number| format!("{number:05}.npy")).collect();
        let members: Vec<_> = names.iter().map(|name| (&**name, &b"x"[..])).collect();
        let many = zip(&members).parse().unwrap();
        assert!(many.members.iter().zip(&names).all(|(member, name)| *member.name == *name.as_bytes()));
        assert_eq!(many.members.len(), 20_000);
    }

    #[test]
    fn the_end_is_the_last_one_whose_comment_fits() {
        let Zip { bytes, end, .. } = two();
        let with_comment = |comment: &[u8]| {
            let mut bytes = bytes.clone();
            bytes.truncate(end + 20);
            bytes.extend((comment.len() as u16).to_le_bytes());
            bytes.extend(comment);
            parse_within(&bytes, &Unlimited)
        };
        assert!(with_comment(&[b'x'; 0xffff]).is_ok());
        // A signature in the comment that does not reach to the end of the file.
        assert!(with_comment(&[&END[..], &[b'x'; 100]].concat()).is_ok());
        // One that does is the end, and is wrong about everything else.
        assert!(with_comment(&[&END[..], &[0; 18]].concat()).unwrap_err().to_string().starts_with("bad_directory"));
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(parse_within(&longer, &Unlimited).unwrap_err().to_string().starts_with("no_end"));
        assert!(parse_within(&bytes[..end].to_vec(), &Unlimited).unwrap_err().to_string().starts_with("no_end"));
    }

    #[test]
    fn directories_that_lie_are_refused() {
        let (end, entry) = (two().end, two().entries[1]);
        for (at, number) in [(4, 1u16), (6, 1), (8, 1), (10, 3), (10, 1)] {
            assert_eq!(two().put(end + at, &number.to_le_bytes()).refused(), "bad_directory", "{at} {number}");
        }
        for (at, number) in [(12, 0u32), (12, u32::MAX), (16, 0), (16, u32::MAX)] {
            assert_eq!(two().put(end + at, &number.to_le_bytes()).refused(), "bad_directory", "{at} {number}");
        }
        // Both counts state an entry that does not exist.
        assert_eq!(two().put(end + 8, &[3, 0, 3, 0]).refused(), "bad_directory");
        assert_eq!(two().put(end + 8, &[1, 0, 1, 0]).refused(), "bad_directory");
        for (at, bytes) in [(0, &b"XX"[..]), (28, &[0, 0]), (28, &[200, 0]), (34, &[1, 0]), (46, &[0])] {
            assert_eq!(two().put(entry + at, bytes).refused(), "bad_directory", "{at}");
        }
        // Numbers that the extra field should have.
        for at in [20, 24, 42] {
            assert_eq!(two().put(entry + at, &[0xff; 4]).refused(), "bad_directory", "{at}");
        }
        assert_eq!(two().put(0, b"MZ").refused(), "bad_magic");
        // No member begins at the first byte.
        let entry = two().entries[0];
        assert_eq!(two().put(entry + 42, &[1]).put(entry + 20, &[1]).refused(), "bad_magic");
    }

    #[test]
    fn members_that_share_bytes_are_refused() {
        let entry = two().entries[1];
        assert_eq!(two().put(entry + 42, &[38]).refused(), "overlap");
        assert_eq!(two().put(entry + 42, &[0]).refused(), "overlap");
        assert_eq!(two().put(entry + 20, &[3]).refused(), "overlap");
        assert!(two().put(entry + 20, &[1]).parse().is_ok());
    }

    #[test]
    fn what_is_wrong_with_one_member_is_said_of_that_one() {
        let local = 39;
        let said = |found: &Zip| {
            let member = &found.parse().unwrap().members[1];
            member
                .error()
                .or_else(|| member.data(&found.bytes).err().map(|error| error.to_string()))
                .unwrap_or_default()
        };
        let entry = two().entries[1];
        assert_eq!(said(&two()), "");
        for flag in [1u8, 0x40] {
            assert_eq!(said(&two().put(entry + 8, &[flag])), "it is encrypted");
        }
        assert_eq!(said(&two().put(entry + 9, &[0x20])), "it is encrypted");
        assert!(said(&two().put(entry + 10, &[12])).contains("method 12"));
        assert!(said(&two().put(entry + 24, &[3])).contains("in 2 bytes, and has 3"));
        assert!(said(&two().put(entry + 10, &[8]).put(entry + 24, &[0, 0, 1])).contains("can't be deflated"));
        assert!(said(&two().put(local, b"X")).contains("no local header"));
        assert!(said(&two().put(local + 30, b"X")).contains("another name"));
        assert!(said(&two().put(local + 8, &[8])).contains("otherwise"));
        assert!(said(&two().put(local + 6, &[1])).contains("otherwise"));
        for at in [14, 18, 22] {
            assert!(said(&two().put(local + at, &[0xee])).contains("other sizes"), "{at}");
            // With a descriptor, these fields are not used.
            assert_eq!(said(&two().put(local + at, &[0xee]).put(local + 6, &[8])), "");
        }
        assert!(said(&two().put(local + 28, &[1])).contains("reach beyond"));
        assert!(said(&two().put(entry + 20, &[0; 8])).contains("that of other bytes"));
        // A member without bytes that cannot be served is shown with one byte.
        let found = two().put(entry + 20, &[0; 8]).put(entry + 10, &[12]);
        assert_eq!(found.parse().unwrap().members[1].shown_size(), 1);
    }
}
