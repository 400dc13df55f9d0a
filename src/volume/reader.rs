//! A file as a stream.

use std::io::{self, Read, Seek, SeekFrom};

use super::Entry;

/// The bytes of a file from a position on, with [`Read`] and [`Seek`]. Made by [`Entry::reader`].
///
/// Each read gets what it asks for, without a buffer in between: blocks that were decoded stay in the volume's cache. Wrap
/// it in a [`std::io::BufReader`] for many small reads.
#[derive(Debug, Clone)]
pub struct Reader {
    entry: Entry,
    position: u64,
}

impl Entry {
    /// Returns a reader of a file's bytes, which starts at the first one.
    ///
    /// ```
    /// # use std::io::{Read, Seek, SeekFrom};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut reader = shardfs::Volume::open("fixtures")?.get("ep_001.wshard/images/cam0/rgb/023.png")?.reader();
    /// reader.seek(SeekFrom::Start(1))?;
    /// let mut name = [0; 3];
    /// reader.read_exact(&mut name)?;
    /// assert_eq!(&name, b"PNG");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Reading a folder fails as [`Self::read_range`] does. Errors of reads hold an [`Error`](super::Error).
    pub fn reader(&self) -> Reader {
        Reader { entry: self.clone(), position: 0 }
    }
}

impl Read for Reader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = self.entry.size().saturating_sub(self.position);
        let wanted = out.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let bytes = self.entry.read_range(self.position, wanted as u64).map_err(io::Error::other)?;
        out[..bytes.len()].copy_from_slice(&bytes);
        self.position += bytes.len() as u64;
        Ok(bytes.len())
    }
}

impl Seek for Reader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(distance) => self.entry.size().checked_add_signed(distance),
            SeekFrom::Current(distance) => self.position.checked_add_signed(distance),
        };
        self.position =
            position.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a place before the file"))?;
        Ok(self.position)
    }
}
