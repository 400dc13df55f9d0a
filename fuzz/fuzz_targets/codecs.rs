//! Every codec: what decodes has exactly the stated size, and its front is the front of the whole.
#![no_main]

use shardfs::codec::{Codec, Stream};

const LARGEST: u64 = 1 << 20;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&[which, a, b, c, width, height], stored)) = bytes.split_first_chunk() else { return };
    let size = u64::from(u32::from_le_bytes([a, b, c, 0])) % LARGEST;
    let (width, height) = (u32::from(width) + 1, u32::from(height) + 1);
    let channels = which / 7 % 4 + 1;
    let codec = match which % 7 {
        0 => Codec::None,
        1 => Codec::Zstd,
        2 => Codec::Lz4,
        3 => Codec::Deflate,
        4 => Codec::Zlib,
        5 => Codec::Jpeg(width, height, channels),
        _ => Codec::Png(width, height, channels),
    };
    let size = match codec {
        Codec::None => stored.len() as u64,
        Codec::Jpeg(..) | Codec::Png(..) => u64::from(width) * u64::from(height) * u64::from(channels),
        _ => size,
    };
    let whole = codec.decode(stored, size).ok();
    if let Some(whole) = &whole {
        assert_eq!(whole.len() as u64, size);
    }
    if let Ok(front) = codec.decode_front(stored, 100) {
        assert!(front.len() <= 100);
        if let Some(whole) = &whole {
            // What DEFLATE holds behind the stated size is no part of the whole (formats/idv.md 12).
            assert_eq!(front[..front.len().min(whole.len())], whole[..whole.len().min(100)]);
        }
    }
    // Only blocks of some size are streamed; of zstd nothing at all may also stand for nothing, without a frame.
    if let (true, Some(whole)) = (codec.is_stream() && !stored.is_empty(), &whole) {
        let mut stream = Stream::new(codec, stored).unwrap();
        let mut pieces = vec![0; whole.len()];
        for piece in pieces.chunks_mut(777) {
            assert_eq!(stream.fill(piece).unwrap(), piece.len());
        }
        stream.finish(size, size).unwrap();
        assert_eq!(&pieces, whole);
    }
});
