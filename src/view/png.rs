//! Raw pixels as a PNG file whose size follows from width, height and channels alone (`docs/TREE.md`, section 2,
//! Pictures).
//!
//! The file has no filter and *stored* deflate blocks of up to 65535 bytes. It has one IDAT chunk while the zlib stream
//! is shorter than 2^31 bytes, and otherwise several of that size. All bytes except the checksums map straight to
//! pixels.

use std::ops::Range;

use super::{Data, Fault, ReadContext, Rendered, View, pieces::Pieces};

/// Longest PNG chunk, and largest width and height.
const LONGEST: u64 = (1 << 31) - 1;
/// Upper bound for the bytes of all rows of a picture; twice as much still fits a file size.
const LARGEST: u128 = 1 << 62;
/// Data of a stored deflate block, in bytes; the bytes before it.
const BLOCK: u64 = 65_535;
const BLOCK_HEAD: u64 = 5;
/// Sizes in bytes: signature and IHDR; length and type of a chunk; its checksum; IEND.
const FRONT: u64 = 33;
const CHUNK_HEAD: u64 = 8;
const CHUNK_TAIL: u64 = 4;
const END: &[u8; 12] = b"\0\0\0\0IEND\xAE\x42\x60\x82";
/// Most pixels of a PNG that is made immediately, because a thread of the pool would cost more.
const FEW_PIXELS: u64 = 1 << 20;
/// Header of the zlib stream, and the size of its Adler-32 at the end.
const ZLIB_HEAD: [u8; 2] = [0x78, 0x01];
const ZLIB_TAIL: u64 = 4;

/// Copies bytes of the pixels' data from an offset on.
type Read<'a, E> = dyn Fn(u64, &mut [u8]) -> Result<(), E> + 'a;

/// One picture.
#[derive(Debug, Clone)]
pub struct Png {
    /// Source of the pixels: rows from the top, channels interleaved, 16-bit ones little-endian.
    pixels: Data,
    /// Offset of the first pixel in `pixels`.
    start: u64,
    width: u32,
    height: u32,
    channels: u8,
    /// Bytes per channel.
    depth: u8,
}

impl Png {
    /// Returns a picture of the pixels that begin at `start` of `pixels`. `None` for what PNG cannot represent (no
    /// pixels, too many in a row or column, other than 1 to 4 channels of 1 or 2 bytes), and for more pixels than a
    /// file can have.
    pub fn new(pixels: Data, start: u64, width: u32, height: u32, channels: u8, depth: u8) -> Option<Self> {
        let side = 1..=LONGEST as u32;
        let sound = side.contains(&width) && side.contains(&height) && (1..=4).contains(&channels);
        if !sound || !matches!(depth, 1 | 2) {
            return None;
        }
        let png = Self { pixels, start, width, height, channels, depth };
        // Below 2^31 * (1 + 2^31 * 8), so it fits. All numbers computed for a picture are below twice the bytes of its
        // rows.
        let rows = u128::from(height) * u128::from(png.row());
        let end = rows.checked_add(start.into())?;
        (end < LARGEST).then_some(png)
    }

    /// Returns the file.
    pub fn view(self) -> View {
        View::default().with_rendered(self.size(), self)
    }

    /// Returns the size of the file in bytes.
    pub fn size(&self) -> u64 {
        FRONT + self.zlib() + self.chunks() * (CHUNK_HEAD + CHUNK_TAIL) + END.len() as u64
    }

    /// Returns the range of `pixels` that a part of the file needs: all if it contains a checksum.
    fn needs(&self, part: &Range<u64>) -> Range<u64> {
        let whole = self.filtered();
        if self.has_checksum(part) {
            return self.source_range(&(0..whole));
        }
        let to_filtered = |at: u64| {
            let zlib = at.saturating_sub(FRONT + CHUNK_HEAD).saturating_sub(ZLIB_HEAD.len() as u64);
            let (block, inside) = (zlib / (BLOCK + BLOCK_HEAD), zlib % (BLOCK + BLOCK_HEAD));
            (block * BLOCK + inside.saturating_sub(BLOCK_HEAD)).min(whole)
        };
        self.source_range(&(to_filtered(part.start)..to_filtered(part.end)))
    }

    /// Fills `out` with a part of the file. `read` copies bytes of `pixels` from an offset on.
    fn fill_from<E>(&self, part: Range<u64>, out: &mut [u8], read: &Read<'_, E>) -> Result<(), E> {
        let mut pieces = Pieces { part, out };
        pieces.take(0, &self.front());
        let mut at = FRONT;
        for chunk in 0..self.chunks() {
            let zlib = chunk * LONGEST..self.zlib().min((chunk + 1) * LONGEST);
            let length = zlib.end - zlib.start;
            pieces.take(at, &[(length as u32).to_be_bytes(), *b"IDAT"].concat());
            at += CHUNK_HEAD;
            let data = at..at + length;
            let tail = data.end..data.end + CHUNK_TAIL;
            // The stream's last bytes are also a checksum, of everything before.
            let checksum = self.zlib() - ZLIB_TAIL;
            let adler_here =
                pieces.touches(&(at + checksum.saturating_sub(zlib.start)..data.end)) && zlib.end > checksum;
            let sums = if adler_here || pieces.touches(&tail) { Some(self.checksums(&zlib, read)?) } else { None };
            if let Some(wanted) = pieces.overlap(&data) {
                let stream = zlib.start + (wanted.start - at)..zlib.start + (wanted.end - at);
                self.fill_zlib(stream, pieces.slot(&wanted), sums.map_or(0, |(adler, _)| adler), read)?;
            }
            if let Some((_, crc)) = sums {
                pieces.take(tail.start, &crc.to_be_bytes());
            }
            at = tail.end;
        }
        pieces.take(at, END);
        Ok(())
    }

    fn row(&self) -> u64 {
        1 + u64::from(self.width) * u64::from(self.channels) * u64::from(self.depth)
    }

    /// Returns the bytes of all rows, each with its filter byte.
    fn filtered(&self) -> u64 {
        u64::from(self.height) * self.row()
    }

    fn blocks(&self) -> u64 {
        self.filtered().div_ceil(BLOCK)
    }

    /// Returns the bytes of the zlib stream.
    fn zlib(&self) -> u64 {
        ZLIB_HEAD.len() as u64 + self.filtered() + BLOCK_HEAD * self.blocks() + ZLIB_TAIL
    }

    fn chunks(&self) -> u64 {
        self.zlib().div_ceil(LONGEST)
    }

    /// Returns signature and IHDR.
    fn front(&self) -> Vec<u8> {
        let color = match self.channels {
            1 => 0,
            2 => 4,
            3 => 2,
            _ => 6,
        };
        let mut front = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
        front.extend(self.width.to_be_bytes());
        front.extend(self.height.to_be_bytes());
        front.extend([8 * self.depth, color, 0, 0, 0]);
        front.extend(crc32fast::hash(&front[12..]).to_be_bytes());
        front
    }

    /// Returns whether a part of the file contains checksums.
    fn has_checksum(&self, part: &Range<u64>) -> bool {
        self.chunks() > 1 || part.end > FRONT + CHUNK_HEAD + self.zlib() - ZLIB_TAIL && part.start < self.size() - 12
    }

    /// Returns the head of a deflate block, and the length of its data.
    fn block_head(&self, block: u64) -> ([u8; 5], u64) {
        let length = BLOCK.min(self.filtered() - block * BLOCK);
        let [l0, l1] = (length as u16).to_le_bytes();
        ([u8::from(block + 1 == self.blocks()), l0, l1, !l0, !l1], length)
    }

    /// Returns the Adler-32 of the whole stream and the CRC of the chunk with the range `chunk` of the stream, in one
    /// pass over the pixels.
    fn checksums<E>(&self, chunk: &Range<u64>, read: &Read<'_, E>) -> Result<(u32, u32), E> {
        let mut adler = simd_adler32::Adler32::new();
        let mut crc = crc32fast::Hasher::new();
        crc.update(b"IDAT");
        let mut at = 0;
        let mut add = |bytes: &[u8]| {
            let end = at + bytes.len() as u64;
            let (from, to) = (chunk.start.clamp(at, end) - at, chunk.end.clamp(at, end) - at);
            crc.update(&bytes[from as usize..to as usize]);
            at = end;
        };
        add(&ZLIB_HEAD);
        let mut buffer = vec![0; BLOCK as usize];
        for block in 0..self.blocks() {
            let (head, length) = self.block_head(block);
            let data = &mut buffer[..length as usize];
            self.fill_filtered(block * BLOCK..block * BLOCK + length, data, read)?;
            adler.write(data);
            add(&head);
            add(data);
        }
        add(&adler.finish().to_be_bytes());
        Ok((adler.finish(), crc.finalize()))
    }

    /// Fills `out` with a part of the zlib stream. `adler` is used only if the part reaches the stream's last bytes.
    fn fill_zlib<E>(&self, part: Range<u64>, out: &mut [u8], adler: u32, read: &Read<'_, E>) -> Result<(), E> {
        let mut pieces = Pieces { part, out };
        let head = ZLIB_HEAD.len() as u64;
        pieces.take(0, &ZLIB_HEAD);
        let first = pieces.part.start.saturating_sub(head) / (BLOCK + BLOCK_HEAD);
        for block in first..self.blocks() {
            let at = head + block * (BLOCK + BLOCK_HEAD);
            if at >= pieces.part.end {
                return Ok(());
            }
            let (bytes, length) = self.block_head(block);
            pieces.take(at, &bytes);
            let data = at + BLOCK_HEAD..at + BLOCK_HEAD + length;
            if let Some(wanted) = pieces.overlap(&data) {
                let from = block * BLOCK + (wanted.start - data.start);
                let filtered = from..from + (wanted.end - wanted.start);
                self.fill_filtered(filtered, pieces.slot(&wanted), read)?;
            }
        }
        pieces.take(self.zlib() - ZLIB_TAIL, &adler.to_be_bytes());
        Ok(())
    }

    /// Returns the offset of the pixel byte at or after a place of the filtered rows.
    fn source_at(&self, filtered: u64) -> u64 {
        let row = self.row();
        filtered / row * (row - 1) + (filtered % row).saturating_sub(1)
    }

    /// Returns the pixel bytes for a part of the filtered rows: contiguous, and whole channels.
    fn source_range(&self, filtered: &Range<u64>) -> Range<u64> {
        let (from, to) = (self.source_at(filtered.start), self.source_at(filtered.end));
        let depth = u64::from(self.depth);
        self.start + from / depth * depth..self.start + to.div_ceil(depth) * depth
    }

    /// Fills `out` with a part of the rows, each after a filter byte of 0.
    fn fill_filtered<E>(&self, part: Range<u64>, out: &mut [u8], read: &Read<'_, E>) -> Result<(), E> {
        let range = self.source_range(&part);
        // At most as long as the request, and one byte more at each end.
        let mut pixels = vec![0; (range.end - range.start) as usize];
        if !pixels.is_empty() {
            read(range.start, &mut pixels)?;
        }
        if self.depth == 2 {
            pixels.chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1));
        }
        let row = self.row();
        let (mut at, mut rest) = (part.start, out);
        let mut skip = (self.start + self.source_at(part.start) - range.start) as usize;
        while at < part.end {
            if at % row == 0 {
                let (filter, after) = rest.split_at_mut(1);
                filter.fill(0);
                (at, rest) = (at + 1, after);
                continue;
            }
            let length = (row - at % row).min(part.end - at) as usize;
            let (here, after) = rest.split_at_mut(length);
            here.copy_from_slice(&pixels[skip..skip + length]);
            (at, rest, skip) = (at + length as u64, after, skip + length);
        }
        Ok(())
    }
}

impl Rendered for Png {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let needed = self.needs(&part);
        reader.check_quick(needed.end - needed.start <= FEW_PIXELS)?;
        self.fill_from(part, out, &|at, buf| reader.fill(&self.pixels, at..at + buf.len() as u64, buf))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(png: &Png, pixels: &[u8], part: Range<u64>) -> Vec<u8> {
        let mut out = vec![0xAA; (part.end - part.start) as usize];
        let needed = png.needs(&part);
        let read = |at: u64, buf: &mut [u8]| -> Result<(), ()> {
            assert!(needed.start <= at && at + buf.len() as u64 <= needed.end, "{at} is outside {needed:?}");
            buf.copy_from_slice(&pixels[at as usize..at as usize + buf.len()]);
            Ok(())
        };
        png.fill_from(part, &mut out, &read).unwrap();
        out
    }

    #[test]
    fn decoders_read_it_and_any_range_is_the_slice_of_the_whole() {
        for (width, height, channels, depth) in
            [(1, 1, 1, 1), (5, 3, 3, 1), (4, 4, 4, 1), (7, 2, 2, 1), (3, 3, 1, 2), (300, 200, 3, 1), (65_534, 2, 1, 1)]
        {
            let length = width as usize * height as usize * channels as usize * depth as usize;
            let pixels: Vec<u8> = (0..length + 3).map(|i| (i * 31 % 251) as u8).collect();
            let png = Png::new(Data::Stored(0..0), 3, width, height, channels, depth).unwrap();
            let whole = file(&png, &pixels, 0..png.size());
            let decoded = image::load_from_memory_with_format(&whole, image::ImageFormat::Png).unwrap();
            let expected: Vec<u8> = match depth {
                1 => pixels[3..].to_vec(),
                // Native endian in memory.
                _ => pixels[3..].chunks(2).flat_map(|b| u16::from_le_bytes([b[0], b[1]]).to_ne_bytes()).collect(),
            };
            assert_eq!((decoded.width(), decoded.height()), (width, height));
            assert!(decoded.as_bytes() == expected, "{width} {height} {channels} {depth}");
            let step = 1 + whole.len() / 60;
            for start in (0..=whole.len()).step_by(step) {
                for end in (start..=whole.len()).step_by(step).chain([whole.len()]) {
                    assert!(file(&png, &pixels, start as u64..end as u64) == whole[start..end], "{start}..{end}");
                }
            }
        }
    }

    #[test]
    fn sizes_follow_the_formula() {
        let size = |w, h, c| Png::new(Data::Stored(0..0), 0, w, h, c, 1).unwrap().size();
        assert_eq!(size(84, 84, 3), 8 + 25 + 12 + 2 + 84 * 253 + 5 + 4 + 12);
        // A zlib stream of 2^31 - 1 bytes or more takes another chunk.
        let (row, height) = (1 << 16, 40_000u64);
        let filtered = row * height;
        let zlib = 2 + filtered + 5 * filtered.div_ceil(65_535) + 4;
        assert_eq!(size(row as u32 - 1, height as u32, 1), 33 + 2 * 12 + zlib + 12);
        assert!(Png::new(Data::Stored(0..0), 0, 0, 1, 1, 1).is_none());
        assert!(Png::new(Data::Stored(0..0), 0, 1, 1, 5, 1).is_none());
        assert!(Png::new(Data::Stored(0..0), 0, 1 << 31, 1, 1, 1).is_none());
        // More bytes than a file can have: 2^64 and more.
        let longest = (1 << 31) - 1;
        assert!(Png::new(Data::Stored(0..0), 0, longest, longest, 4, 1).is_none());
        assert!(Png::new(Data::Stored(0..0), u64::MAX - 5, 4, 4, 1, 1).is_none());
        assert!(size(longest, 1 << 20, 1) > 1 << 51);
    }
}
