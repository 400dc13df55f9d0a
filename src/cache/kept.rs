//! What was made of a file's bytes, kept on disk for the next process: a parsed index, or small parts of a far file.

use std::{ops::Range, sync::Arc, time::Duration};

use super::{Buffer, Cache};
use crate::{
    disk::{Disk, LONGEST_KEY},
    source::Source,
};

/// Names something that was made of a file's bytes.
#[derive(Debug, Clone)]
pub struct KeptName<'a> {
    /// What it is, with the version of its layout.
    pub kind: &'a str,
    /// Which of these it is, in a way that the kind knows.
    pub name: &'a [u8],
    /// The bytes of the file that it was made of. Of a local file they are hashed, so that what was made of other bytes
    /// is never found.
    pub from: Range<u64>,
}

impl Cache {
    /// Returns bytes that were kept under a name by this process or another one; at most `most`. They have the checksums
    /// of the disk, and otherwise are what was kept: a caller checks whatever it must not believe.
    ///
    /// May read the file and the disk.
    pub fn kept_bytes(&self, source: &dyn Source, name: &KeptName<'_>, most: u64) -> Option<Buffer> {
        let (disk, key) = self.kept_key(source, name)?;
        let blob = disk.contains(&key).then(|| disk.get(&key))?.filter(|blob| blob.len() <= most)?;
        let mut bytes = self.buffer(blob.len(), 0).ok()?;
        blob.read_at(0, &mut bytes).ok()?;
        Some(bytes)
    }

    /// Keeps bytes under a name on disk, if there is a disk for them: that of far files for a far one, and otherwise the
    /// disk tier. Returns whether they will be written. Never waits for the disk.
    pub fn keep_bytes(&self, source: &dyn Source, name: &KeptName<'_>, bytes: Vec<u8>) -> bool {
        self.kept_key(source, name).is_some_and(|(disk, key)| disk.contains(&key) || disk.put(&key, Arc::new(bytes)))
    }

    /// Returns whether bytes of a file can be kept: otherwise there is no need to make them.
    pub fn can_keep(&self, source: &dyn Source) -> bool {
        self.disk_for(source).is_some() && source.state_key().is_some()
    }

    /// Sets the disk on which a store keeps bytes of far files. What is made of them is kept there too.
    pub(crate) fn set_disk_of_store(&self, disk: Arc<Disk>) {
        // Several volumes that share a cache have one folder.
        let _ = self.disk_of_store.set(disk);
    }

    /// Fills `out` from byte `at` on of a block of `size` bytes that was made of a file's bytes, such as a frame of a
    /// video, if the disk tier has it. Otherwise `out` holds anything.
    ///
    /// May read the file and the disk.
    pub(crate) fn read_spilled_block(
        &self,
        source: &dyn Source,
        name: &KeptName<'_>,
        size: u64,
        at: u64,
        out: &mut [u8],
    ) -> bool {
        let Some(tier) = &self.disk else { return false };
        let Some(key) = self.key_of_made(source, name) else { return false };
        let blob = tier.disk().contains(&key).then(|| tier.disk().get(&key)).flatten();
        blob.is_some_and(|blob| tier.read_blob(&blob, size, at, out))
    }

    /// Keeps a block that was made of a file's bytes in the disk tier, if there is one and it is worth it. `took` is how
    /// long it took to make.
    pub(crate) fn spill_block(&self, source: &dyn Source, name: &KeptName<'_>, bytes: Arc<Buffer>, took: Duration) {
        let Some(tier) = self.disk.as_ref().filter(|tier| tier.is_worth(bytes.len() as u64, took)) else { return };
        if let Some(key) = self.key_of_made(source, name) {
            tier.keep_blob(&key, bytes);
        }
    }

    fn disk_for(&self, source: &dyn Source) -> Option<&Arc<Disk>> {
        let far = self.disk_of_store.get().filter(|_| source.filesystem().is_none());
        far.or_else(|| self.disk.as_ref().map(|tier| tier.disk()))
    }

    fn kept_key(&self, source: &dyn Source, name: &KeptName<'_>) -> Option<(&Arc<Disk>, Vec<u8>)> {
        Some((self.disk_for(source)?, self.key_of_made(source, name)?))
    }

    fn key_of_made(&self, source: &dyn Source, name: &KeptName<'_>) -> Option<Vec<u8>> {
        let state = self.name_of_state(source, name.from.clone(), true)?;
        let lengths = [name.kind.len() as u64, name.from.start, name.from.end].map(u64::to_le_bytes);
        let key = [b"made\0", name.kind.as_bytes(), lengths.as_flattened(), &state, name.name].concat();
        (key.len() <= LONGEST_KEY).then_some(key)
    }
}
