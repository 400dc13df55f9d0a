//! Containers of 2^49 bytes, nearly all of them a hole: blocks that state sizes near 2^64, as so many stored bytes
//! could decode to, have no file whose size has wrapped around.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod common;

use std::sync::Arc;

use common::{container, shard};
use shardfs::source::{Source, SourceError, Wait};

const LENGTH: u64 = 1 << 49;

/// A file that has bytes at its front only.
struct Sparse(Vec<u8>);

impl Source for Sparse {
    fn len(&self) -> u64 {
        LENGTH
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], _: Wait) -> Result<(), SourceError> {
        let end = offset.saturating_add(buf.len() as u64);
        if end > LENGTH {
            return Err(SourceError::OutOfRange { start: offset, end, len: LENGTH });
        }
        let front = self.0.get(offset as usize..).unwrap_or_default();
        let there = front.len().min(buf.len());
        buf[..there].copy_from_slice(&front[..there]);
        buf[there..].fill(0);
        Ok(())
    }
}

#[test]
fn sizes_do_not_wrap_around() {
    // A frame that does not say how long its content is; what the index says can't be compared with it.
    let mut frame = zstd::stream::encode_all(&[7u8; 100][..], 1).unwrap();
    frame.resize(4096, 0);
    let data_at = 8192;
    for size in [1 << 62, (1 << 62) + 1, i64::MAX as u64 - 63, 1 << 63, u64::MAX - 127, u64::MAX - 3, u64::MAX] {
        let blocks: Vec<_> = ["action/pos", "residual/pos/sign2nddiff", "latent_action_codebook/x", "other"]
            .iter()
            .map(|name| shard::Block {
                offset: Some(data_at),
                disk_size: Some(LENGTH - data_at),
                ..shard::Block::packed(name, shard::ZSTD, Vec::new(), size)
            })
            .collect();
        let mut bytes = shard::file(5, &blocks);
        assert!(bytes.len() as u64 <= data_at);
        bytes.resize(data_at as usize, 0);
        bytes.extend(&frame);
        let opened = container::open_source(Arc::new(Sparse(bytes))).unwrap();
        let files = opened.walk();
        assert!(files.len() > 2 * blocks.len(), "{} files", files.len());
        for file in files {
            let (path, shown) = (opened.path(file.node), file.view.size());
            assert!(i64::try_from(shown).is_ok(), "{path} of {size} bytes has {shown}");
            if path == "container.json" {
                assert!(file.view.copy_at(&opened.reader, 0, shown).is_ok());
                continue;
            }
            assert!(shown >= 1 << 59, "{path} of {size} bytes has only {shown}");
            assert!(file.view.copy_at(&opened.reader, shown - 1, 1).is_err(), "{path} of {size} bytes");
        }
    }
}
