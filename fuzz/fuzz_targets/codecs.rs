//! Every codec: what decodes has exactly the stated size, and its front is the front of the whole.
#![no_main]

use shardfs::codec::{Codec, Stream};

const LARGEST: u64 = 1 << 20;

libfuzzer_sys::fuzz_target!(|input: (u8, u32, u16, u16, Vec<u8>)| {
    let (which, size, width, height, stored) = input;
    let size = u64::from(size) % LARGEST;
    let (width, height) = (u32::from(width) % 256 + 1, u32::from(height) % 256 + 1);
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
    let whole = codec.decode(&stored, size).ok();
    if let Some(whole) = &whole {
        assert_eq!(whole.len() as u64, size);
    }
    if let Ok(front) = codec.decode_front(&stored, 100) {
        assert!(front.len() <= 100);
        if let Some(whole) = &whole {
            assert_eq!(front, whole[..whole.len().min(100)]);
        }
    }
    if let (Codec::Zstd | Codec::Deflate | Codec::Zlib, Some(whole)) = (codec, &whole) {
        let mut stream = Stream::new(codec, &*stored).unwrap();
        let mut pieces = vec![0; whole.len()];
        for piece in pieces.chunks_mut(777) {
            assert_eq!(stream.fill(piece).unwrap(), piece.len());
        }
        stream.finish(size, size).unwrap();
        assert_eq!(&pieces, whole);
    }
});
