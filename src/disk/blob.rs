//! A blob's file: `payload | CRC32C of each piece | key | tail`.
//!
//! The tail is 32 bytes, little-endian: magic, length of the payload (u64), length of the key (u32), size of a piece as
//! a power of two (u32), zero (u32), CRC32C (u32) of everything between the payload and this number. A file that was
//! cut or written in part has no valid tail.

use std::{
    fs::{File, FileTimes, Metadata},
    io::{self, Write},
    ops::Range,
    os::unix::fs::FileExt,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, SystemTime},
};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::{Hash, LONGEST_KEY, Payload, Shared};

const MAGIC: [u8; 8] = *b"SFSBLOB1";
const TAIL: usize = 32;

/// Size of the pieces that have a checksum each: the power of two, and bytes.
const PIECE_LOG: u32 = 16;
const PIECE: usize = 1 << PIECE_LOG;

/// Bytes that are written at once.
const WRITTEN: usize = 16 * PIECE;

/// For writes past the page cache: what address, offset and length are multiples of, and the least bytes worth it.
const PAGE: usize = 4096;
const DIRECT: usize = 512 << 10;

/// Bytes that are read at once at the end of a file. For most blobs this is everything behind the payload.
const FRONT: usize = 4096;

/// The use of a blob is noted again only after this time.
const NOTED: Duration = Duration::from_secs(20);

/// A stored blob, readable as long as it is held.
pub struct Blob(pub(super) Inner);

pub(super) enum Inner {
    Memory(Payload),
    File { file: BlobFile, hash: Hash, shared: Arc<Shared> },
}

impl Blob {
    /// Returns the payload's length in bytes.
    pub fn len(&self) -> u64 {
        match &self.0 {
            Inner::Memory(payload) => (**payload).as_ref().len() as u64,
            Inner::File { file, .. } => file.length,
        }
    }

    /// Returns whether the payload is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` with the payload's bytes from `offset` on. Each touched piece is compared with its checksum first. A
    /// damaged blob is removed, counted and logged.
    ///
    /// # Errors
    /// `InvalidData` for a damaged blob, `InvalidInput` for a range that is not in it, and what the operating system
    /// says. The content of `buf` is then undefined.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.len()) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a range outside the blob"));
        }
        match &self.0 {
            Inner::Memory(payload) => {
                let payload = (**payload).as_ref();
                let from = offset as usize;
                buf.copy_from_slice(&payload[from..from + buf.len()]);
            }
            Inner::File { file, hash, shared } => {
                file.read_at(offset, buf).inspect_err(|error| shared.unreadable(hash, error))?;
                shared.counters.read_bytes.fetch_add(buf.len() as u64, Relaxed);
            }
        }
        Ok(())
    }

    /// Compares the whole payload with its checksums.
    ///
    /// # Errors
    /// As [`Self::read_at`].
    pub fn check(&self) -> io::Result<()> {
        let Inner::File { file, hash, shared } = &self.0 else { return Ok(()) };
        let _ = rustix::fs::fadvise(&file.file, 0, None, rustix::fs::Advice::WillNeed);
        let mut piece = vec![0; PIECE];
        let all = (0..file.sums.len()).try_for_each(|index| file.piece(index, &mut piece).map(drop));
        all.inspect_err(|error| shared.unreadable(hash, error))
    }

    /// Returns the whole payload, for small blobs.
    ///
    /// # Errors
    /// As [`Self::read_at`], and `OutOfMemory`.
    pub(super) fn whole(&self) -> io::Result<Vec<u8>> {
        let mut bytes = crate::source::zeros(usize::try_from(self.len()).unwrap_or(usize::MAX))?;
        self.read_at(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns its file, if it is written.
    pub(super) fn file(&self) -> Option<&File> {
        if let Inner::File { file, .. } = &self.0 { Some(&file.file) } else { None }
    }

    /// Returns its file, which begins with the payload, for maps and for the kernel. Reads of it compare no checksums;
    /// call [`Disk::check_file`](super::Disk::check_file) before. `None` for a blob that is still in memory.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn try_clone_file(&self) -> io::Result<Option<File>> {
        self.file().map(File::try_clone).transpose()
    }
}

/// A file whose checksums were read and are right.
#[derive(Debug)]
pub(super) struct BlobFile {
    file: File,
    /// Where in the file the payload begins.
    start: u64,
    /// Bytes of payload.
    length: u64,
    /// Bytes that have checksums, from the file's front on.
    checked: u64,
    /// CRC32C of each piece of them.
    sums: Box<[u32]>,
}

pub(super) fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl BlobFile {
    /// Reads the end of a file, and notes its use.
    ///
    /// # Errors
    /// `InvalidData` if it is not whole or has another key, and what the operating system says.
    pub(super) fn new(file: File, key: &[u8]) -> io::Result<Self> {
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(damaged("not a regular file"));
        }
        let size = meta.len();
        let short = || damaged("cut short");
        let mut end = vec![0; FRONT.min(usize::try_from(size).unwrap_or(FRONT))];
        let from = size - end.len() as u64;
        file.read_exact_at(&mut end, from)?;
        let tail = end.len().checked_sub(TAIL).and_then(|at| end.get(at..)).ok_or_else(short)?;
        let number = |at: usize| u32::from_le_bytes([tail[at], tail[at + 1], tail[at + 2], tail[at + 3]]);
        let length = u64::from(number(8)) | u64::from(number(12)) << 32;
        let (key_length, piece_log, crc) = (number(16) as usize, number(20), number(28));
        if tail[..8] != MAGIC || piece_log != PIECE_LOG || key_length > LONGEST_KEY {
            return Err(damaged("not the end of a blob"));
        }
        // The length of what is behind the payload is checked with the file's own size, so no stated number can
        // allocate more.
        let behind = size.checked_sub(length).ok_or_else(short)?;
        if behind != pieces(length).saturating_mul(4).saturating_add((key_length + TAIL) as u64) {
            return Err(short());
        }
        let behind = usize::try_from(behind).map_err(|_| short())?;
        if behind > end.len() {
            end = crate::source::zeros(behind)?;
            file.read_exact_at(&mut end, length)?;
        }
        let end = &end[end.len() - behind..];
        let (checked, rest) = end.split_at(behind - 4);
        if crc32c::crc32c(checked) != crc || rest != crc.to_le_bytes() {
            return Err(damaged("checksum of its end"));
        }
        let (sums, rest) = checked.split_at(behind - TAIL - key_length);
        if rest[..key_length] != *key {
            return Err(damaged("another key"));
        }
        note_use(&file, &meta);
        Ok(Self { file, start: 0, length, checked: length, sums: numbers(sums) })
    }

    /// Returns a part of a file of `length` bytes that holds only the payload, with these checksums. Notes its use.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(super) fn plain(file: File, part: Range<u64>, length: u64, sums: Box<[u32]>) -> io::Result<Self> {
        let meta = file.metadata()?;
        if !meta.is_file() || meta.len() != length {
            return Err(damaged("not of the size that it should have"));
        }
        note_use(&file, &meta);
        Ok(Self { file, start: part.start, length: part.end - part.start, checked: length, sums })
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut piece = Vec::new();
        let mut done = 0;
        while done < buf.len() {
            let at = self.start + offset + done as u64;
            let (index, within) = ((at >> PIECE_LOG) as usize, (at % PIECE as u64) as usize);
            let whole = usize::try_from(self.checked - (at - within as u64)).unwrap_or(PIECE).min(PIECE);
            if within == 0 && buf.len() - done >= whole {
                self.piece(index, &mut buf[done..done + whole])?;
                done += whole;
                continue;
            }
            piece.resize(PIECE, 0);
            let bytes = self.piece(index, &mut piece)?;
            let take = (whole - within).min(buf.len() - done);
            buf[done..done + take].copy_from_slice(&bytes[within..within + take]);
            done += take;
        }
        Ok(())
    }

    /// Reads a piece to the front of `buf`, which must have room for it, and compares its checksum.
    fn piece<'a>(&self, index: usize, buf: &'a mut [u8]) -> io::Result<&'a [u8]> {
        let start = (index as u64) << PIECE_LOG;
        let length = usize::try_from(self.checked - start).unwrap_or(PIECE).min(PIECE);
        let bytes = &mut buf[..length];
        self.file.read_exact_at(bytes, start).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => damaged("cut short"),
            _ => error,
        })?;
        match crc32c::crc32c(bytes) == self.sums[index] {
            true => Ok(bytes),
            false => Err(damaged(&format!("checksum of the bytes {start}..{}", start + length as u64))),
        }
    }
}

/// Notes that a file is used, if that was noted longer ago than [`NOTED`].
fn note_use(file: &File, meta: &Metadata) {
    let now = SystemTime::now();
    let used = meta.accessed().and_then(|read| Ok(read.max(meta.modified()?)));
    if used.is_ok_and(|used| now.duration_since(used).map_or(true, |since| since > NOTED)) {
        // Filesystems that keep no access times by themselves store one that is set. The modification time must stay:
        // it shows whether a file has changed ([`super::plain`]).
        let _ = file.set_times(FileTimes::new().set_accessed(now));
    }
}

/// Returns how many pieces a payload of `length` bytes has.
pub(super) fn pieces(length: u64) -> u64 {
    length.div_ceil(PIECE as u64)
}

/// Returns how many bytes the checksums of a payload take.
pub(super) fn sums_size(payload: &[u8]) -> u64 {
    4 * pieces(payload.len() as u64)
}

/// Returns stored checksums as numbers.
pub(super) fn numbers(sums: &[u8]) -> Box<[u32]> {
    sums.chunks_exact(4).map(|sum| u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]])).collect()
}

/// Returns how many bytes a blob takes as a file.
pub(super) fn file_size(key: &[u8], payload: &[u8]) -> u64 {
    payload.len() as u64 + sums_size(payload) + (key.len() + TAIL) as u64
}

/// Writes a payload, past the page cache if asked and possible. Returns the checksums of its pieces.
///
/// # Errors
/// What the operating system says.
pub(super) fn write_payload(file: &mut File, payload: &[u8], past_page_cache: bool) -> io::Result<Vec<u8>> {
    let mut sums = Vec::with_capacity(sums_size(payload) as usize);
    if past_page_cache && let written @ 1.. = write_direct(file, payload)? {
        payload.chunks(PIECE).for_each(|piece| sums.extend(crc32c::crc32c(piece).to_le_bytes()));
        file.write_all(&payload[written..])?;
        return Ok(sums);
    }
    for part in payload.chunks(WRITTEN) {
        // Checksums come first: the write then finds the bytes in the processor's cache.
        for piece in part.chunks(PIECE) {
            sums.extend(crc32c::crc32c(piece).to_le_bytes());
        }
        file.write_all(part)?;
    }
    Ok(sums)
}

/// Writes the whole pages of a page-aligned payload straight to the disk (`O_DIRECT`). Returns how many bytes it wrote:
/// 0 if the payload is unaligned or small, or the filesystem cannot do it.
fn write_direct(file: &mut File, payload: &[u8]) -> io::Result<usize> {
    let flags = fcntl_getfl(&*file)?;
    let whole = payload.len() / PAGE * PAGE;
    if whole < DIRECT
        || !payload.as_ptr().addr().is_multiple_of(PAGE)
        || fcntl_setfl(&*file, flags | OFlags::DIRECT).is_err()
    {
        return Ok(0);
    }
    let mut written = 0;
    // After a write that ended inside a page or failed, the rest goes through the page cache.
    while written < whole && written.is_multiple_of(PAGE) {
        match file.write(&payload[written..whole]) {
            Ok(0) => break,
            Ok(length) => written += length,
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    fcntl_setfl(&*file, flags)?;
    Ok(written)
}

/// Writes a blob to an empty file; `past_page_cache` as in [`write_payload`].
///
/// # Errors
/// What the operating system says.
pub(super) fn write(file: &mut File, key: &[u8], payload: &[u8], past_page_cache: bool) -> io::Result<()> {
    let mut end = write_payload(file, payload, past_page_cache)?;
    end.extend(key);
    end.extend(MAGIC);
    end.extend((payload.len() as u64).to_le_bytes());
    for number in [key.len() as u32, PIECE_LOG, 0] {
        end.extend(number.to_le_bytes());
    }
    end.extend(crc32c::crc32c(&end).to_le_bytes());
    file.write_all(&end)
}
