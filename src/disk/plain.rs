//! Plain files: nothing but a payload, so that the kernel can serve one by itself.
//!
//! Its checksums are in blobs of their own, one for each name of the file; a name may mean a part of it. The payload of
//! these blobs is little-endian: the file's own name (32 bytes), start and end of the part and length of the file (u64
//! each), CRC32C of each piece of the file. The file is written before these blobs. A process that is killed in between
//! leaves a file without a name, which is evicted like any other.
//!
//! Reading a part compares the checksums of that part. The kernel compares nothing, so it is only given a file that was
//! written or compared as a whole since the machine started, and not written to since. A separate blob notes that, with
//! the state of the file ([`state()`]).

use std::{
    fs::{self, File},
    io,
    ops::Range,
    sync::{Arc, LazyLock},
};

use rustix::fs::{AtFlags, StatxFlags, statx};
use sha2::{Digest, Sha256};

use super::{
    Blob, Disk, Hash, LONGEST_KEY, Payload, Shared, Way,
    blob::{self, BlobFile, damaged},
    hash,
};

/// Bytes before the checksums.
const HEAD: usize = 56;

/// A part of a plain file that has a name of its own.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) key: Box<[u8]>,
    pub(super) range: Range<u64>,
}

impl Disk {
    /// Stores a plain file soon, and gives a part of it a name too. Otherwise like [`Self::put_by`].
    pub fn put_file(&self, way: Way, key: &[u8], part: (&[u8], Range<u64>), payload: Payload) -> bool {
        let fits = part.0.len() <= LONGEST_KEY && part.1.end <= (*payload).as_ref().len() as u64;
        fits && self.take(key, payload, way, Some(Part { key: part.0.into(), range: part.1 }))
    }

    /// Returns the plain file of a name, or the part that the name means. [`Blob::try_clone_file`] returns the whole
    /// file.
    pub fn get_file(&self, key: &[u8]) -> Option<Blob> {
        self.find(key, Shared::open_plain)
    }

    /// Compares all of a plain file with its checksums, unless this or another process has compared or written it since
    /// the machine started.
    ///
    /// # Errors
    /// As [`Blob::check`].
    pub fn check_file(&self, key: &[u8], blob: &Blob) -> io::Result<()> {
        let now = blob.file().and_then(state);
        let marker = marker(key);
        let noted = self.look(&marker, Shared::open_blob).and_then(|noted| noted.whole().ok());
        if noted.is_none() || noted != now {
            blob.check()?;
            now.map(|now| self.put(&marker, Arc::new(now)));
        }
        Ok(())
    }
}

/// Returns the key of the blob that says in which state a file was right.
fn marker(key: &[u8]) -> Vec<u8> {
    [b"right\0", key].concat()
}

/// Returns the state of a file. It differs after a restart of the machine, for another file, and after a write. `None`
/// if restarts cannot be told apart, because a machine that lost its power may have lost what was written.
pub fn state(file: &File) -> Option<Vec<u8>> {
    static START: LazyLock<Option<String>> =
        LazyLock::new(|| fs::read_to_string("/proc/sys/kernel/random/boot_id").ok());
    let start = START.as_ref()?;
    let wanted = StatxFlags::INO | StatxFlags::BTIME | StatxFlags::MTIME | StatxFlags::SIZE;
    let stat = statx(file, c"", AtFlags::EMPTY_PATH, wanted).ok()?;
    let (born, written) = (stat.stx_btime, stat.stx_mtime);
    let numbers = [
        u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor),
        stat.stx_ino,
        born.tv_sec.cast_unsigned(),
        u64::from(born.tv_nsec),
        written.tv_sec.cast_unsigned(),
        u64::from(written.tv_nsec),
        stat.stx_size,
    ];
    Some([start.as_bytes(), numbers.map(u64::to_le_bytes).as_flattened()].concat())
}

impl Shared {
    fn open_plain(self: &Arc<Self>, key: &[u8], hash: &Hash) -> Option<Blob> {
        let named = self.open_blob(key, hash)?;
        let bytes = named.whole().ok()?;
        let Some((own, part, length, sums)) = parse(&bytes) else {
            self.unreadable(hash, &damaged("not the checksums of a file"));
            return None;
        };
        let file = self.opened(&own, |file| BlobFile::plain(file, part, length, sums));
        if file.is_none() && !self.folder.has(&own) {
            // It was evicted.
            self.folder.remove(hash);
        }
        file
    }

    /// Writes a plain file, and then the blobs of both names.
    pub(super) fn write_plain(&self, key: &[u8], part: &Part, payload: &[u8], past_page_cache: bool) -> io::Result<()> {
        let own: Hash = Sha256::new().chain_update(b"plain file\0").chain_update(key).finalize().into();
        let (mut sums, mut right) = (Vec::new(), None);
        self.write(&own, |file| {
            sums = blob::write_payload(file, payload, past_page_cache)?;
            right = state(file);
            Ok(())
        })?;
        let length = payload.len() as u64;
        for (key, range) in [(key, &(0..length)), (&part.key, &part.range)] {
            let numbers = [range.start, range.end, length].map(u64::to_le_bytes);
            let named = [&own, numbers.as_flattened(), &sums].concat();
            self.write(&hash(key), |file| blob::write(file, key, &named, false))?;
        }
        let (Some(right), marker) = (right, marker(key)) else { return Ok(()) };
        self.write(&hash(&marker), |file| blob::write(file, &marker, &right, false))
    }
}

/// Returns about how many bytes a plain file and the blobs of its names take.
pub(super) fn space(key: &[u8], part: &Part, payload: &[u8]) -> u64 {
    let named = HEAD as u64 + blob::sums_size(payload);
    let of = |key: &[u8]| super::scan::space(named + blob::sums_size(&[]) + key.len() as u64 + 64);
    // The marker is a block of the filesystem too.
    super::scan::space(payload.len() as u64) + of(key) + of(&part.key) + super::scan::space(1)
}

type Named = (Hash, Range<u64>, u64, Box<[u32]>);

fn parse(bytes: &[u8]) -> Option<Named> {
    let (head, sums) = bytes.split_at_checked(HEAD)?;
    let (own, numbers) = head.split_first_chunk::<32>()?;
    let number = |at: usize| Some(u64::from_le_bytes(numbers.get(at..at + 8)?.try_into().ok()?));
    let (start, end, length) = (number(0)?, number(8)?, number(16)?);
    let fits = start <= end && end <= length && sums.len() as u64 == blob::pieces(length).checked_mul(4)?;
    fits.then(|| (*own, start..end, length, blob::numbers(sums)))
}
