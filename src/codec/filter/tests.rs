use super::{
    super::{Chain, Number, NumberKind},
    *,
};

/// A vector of `tests/golden/filters`, written by the reference programs.
struct Vector {
    name: String,
    chain: Vec<Filter>,
    stored: Vec<u8>,
    decoded: Vec<u8>,
}

fn number(text: &str) -> Number {
    let kind = match text.as_bytes()[1] {
        b'i' => NumberKind::Signed,
        b'u' => NumberKind::Unsigned,
        _ => NumberKind::Float,
    };
    Number { kind, width: text[2..].parse().unwrap(), is_big: text.starts_with('>') }
}

fn numbers(text: &str) -> Vec<u32> {
    text.split(',').map(|number| number.parse().unwrap()).collect()
}

fn filter(text: &str) -> Filter {
    let parts: Vec<_> = text.split(':').collect();
    let checksum = |kind| Filter::Checksum { kind, is_in_front: parts.get(1) == Some(&"front") };
    match parts[0] {
        "shuffle" => Filter::Shuffle(parts[1].parse().unwrap()),
        "bitshuffle" => Filter::Bitshuffle(Bitshuffle {
            width: parts[1].parse().unwrap(),
            block: parts[2].parse().unwrap(),
            compressed: match parts[3] {
                "lz4" => Some(BlockCodec::Lz4),
                "zstd" => Some(BlockCodec::Zstd),
                _ => None,
            },
        }),
        "delta" => Filter::Delta(Delta::new(number(parts[1]), number(parts[2])).unwrap()),
        "crc32" => checksum(ChecksumKind::Crc(CrcKind::Crc32)),
        "crc32c" => checksum(ChecksumKind::Crc(CrcKind::Crc32c)),
        "adler32" => checksum(ChecksumKind::Adler32),
        "fletcher32" => checksum(ChecksumKind::Fletcher32),
        "szip" => Filter::Szip(Szip::new(&numbers(parts[1])).unwrap()),
        "nbit" => Filter::Nbit(Arc::new(Nbit::new(&numbers(parts[1])).unwrap())),
        "scaleoffset" => Filter::ScaleOffset(ScaleOffset::new(&numbers(parts[1])).unwrap()),
        "blosc" => Filter::Blosc,
        "blosc2" => Filter::Blosc2,
        "lz4" => Filter::Lz4Sized,
        "lz4_blocks" => Filter::Lz4Blocks,
        "lz4_frame" => Filter::Lz4Frame,
        "zstd" => Filter::Zstd,
        "gzip" => Filter::Gzip,
        "zlib" => Filter::Zlib,
        "deflate" => Filter::Deflate,
        "bzip2" => Filter::Bzip2,
        "snappy" => Filter::Snappy,
        "lzf" => Filter::Lzf,
        other => panic!("{other}"),
    }
}

fn vectors() -> Vec<Vector> {
    let bytes = include_bytes!("../../../tests/golden/filters/vectors.bin");
    let lines = include_str!("../../../tests/golden/filters/list.txt");
    let lines: Vec<Vec<&str>> = lines.lines().map(|line| line.splitn(5, ' ').collect()).collect();
    let part = |line: &[&str]| {
        let (start, length): (usize, usize) = (line[2].parse().unwrap(), line[3].parse().unwrap());
        bytes[start..start + length].to_vec()
    };
    let decoded = |name| part(lines.iter().find(|line| line[0] == name && line[1] == "raw").unwrap());
    let of_filters = lines.iter().filter(|line| line[1] != "raw");
    of_filters
        .map(|line| Vector {
            name: line[0].into(),
            chain: line[4].split(' ').map(filter).collect(),
            stored: part(line),
            decoded: decoded(line[1]),
        })
        .collect()
}

fn decode(chain: &[Filter], stored: &[u8], size: usize) -> Result<Vec<u8>, DecodeError> {
    Chain::of(chain.iter().cloned()).unwrap().decode(stored, size as u64)
}

#[test]
fn what_others_wrote_is_decoded() {
    let vectors = vectors();
    assert!(vectors.len() > 200);
    for Vector { name, chain, stored, decoded } in vectors {
        let got = decode(&chain, &stored, decoded.len()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(got == decoded, "{name}");
        let Codec::Chain(chain) = Chain::of(chain).unwrap() else { continue };
        // An LZF stream does not say how long it is.
        if chain.filters().first() != Some(&Filter::Lzf) {
            let got = chain.decode_up_to(&stored, decoded.len() as u64 + 100, true);
            assert!(got.unwrap_or_else(|error| panic!("{name}: {error}")) == decoded, "{name}");
            assert!(chain.decode_up_to(&stored, decoded.len() as u64 - 1, true).is_err(), "{name}");
        }
    }
}

#[test]
fn another_size_than_stored_is_an_error() {
    for Vector { name, chain, stored, decoded } in vectors() {
        // If zlib is a block's only codec, its bytes after the stated size are ignored.
        let is_lenient = chain == [Filter::Zlib];
        for size in [decoded.len() - 1, 0, 1] {
            assert!(is_lenient || decode(&chain, &stored, size).is_err(), "{name} to {size}");
        }
        for size in [decoded.len() + 1, 2 * decoded.len(), 1 << 20] {
            assert!(decode(&chain, &stored, size).is_err(), "{name} to {size}");
        }
    }
}

/// A vector that is cut, or has a byte changed, is an error or decodes to the stated number of bytes.
#[test]
fn damaged_vectors_never_panic() {
    for Vector { name, chain, stored, decoded } in vectors() {
        let codec = Chain::of(chain).unwrap();
        let mut out = vec![0; decoded.len()];
        // Every byte of the short vectors of one array, some bytes of the others.
        let step = if name.ends_with("i4") && stored.len() < 700 { 1 } else { stored.len().div_ceil(8) };
        for at in (0..stored.len()).step_by(step) {
            let cut = codec.decode_into(&stored[..at], &mut out);
            // A stream may end in bytes that add nothing, such as an empty zstd block.
            assert!(cut.is_err() || out == decoded, "{name} cut at {at}");
            for flip in [1, 0xff] {
                let mut damaged = stored.clone();
                damaged[at] ^= flip;
                let _ = codec.decode_into(&damaged, &mut out);
                if let Codec::Chain(chain) = &codec
                    && let Ok(bytes) = chain.decode_up_to(&damaged, decoded.len() as u64, true)
                {
                    assert!(bytes.len() <= decoded.len(), "{name}");
                }
            }
        }
    }
}

#[test]
fn a_checksum_finds_any_changed_byte_and_is_not_asked_where_none_is_wanted() {
    for Vector { name, chain, stored, decoded } in vectors() {
        let Codec::Chain(codec) = Chain::of(chain.clone()).unwrap() else { continue };
        // The checksum that was written last is that of the stored bytes.
        let (Some(Filter::Checksum { .. }), true) = (chain.last(), codec.is_checked()) else { continue };
        for at in 0..stored.len() {
            let mut damaged = stored.clone();
            damaged[at] ^= 0x10;
            let error = codec.decode_into(&damaged, &mut vec![0; decoded.len()], true).unwrap_err();
            assert!(matches!(error, DecodeError::Checksum { .. }), "{name}: {error}");
        }
        let mut damaged = stored.clone();
        let is_in_front = matches!(chain.last(), Some(Filter::Checksum { is_in_front: true, .. }));
        let sum = if is_in_front { 0 } else { stored.len() - 1 };
        damaged[sum] ^= 1;
        let mut out = vec![0; decoded.len()];
        codec.decode_into(&damaged, &mut out, false).unwrap();
        assert!(out == decoded, "{name}");
    }
}

#[test]
fn sizes_that_no_filter_makes_take_no_memory() {
    for Vector { name, chain, stored, .. } in vectors() {
        for size in [1u64 << 62, u64::MAX, 1 << 40] {
            let codec = Chain::of(chain.clone()).unwrap();
            let error = codec.decode(&stored, size).unwrap_err();
            assert!(matches!(error, DecodeError::Impossible { .. }), "{name}: {error}");
        }
    }
    // Sizes in headers are trusted no more than the stated size.
    let huge = [&u64::MAX.to_be_bytes()[..], &u32::MAX.to_be_bytes(), &[0; 40]].concat();
    for filter in
        [Filter::Lz4Blocks, filter("bitshuffle:4:0:lz4"), filter("bitshuffle:4:0:zstd"), Filter::Blosc, Filter::Blosc2]
    {
        let Codec::Chain(chain) = Chain::of([filter]).unwrap() else { panic!("a chain") };
        assert!(chain.decode_up_to(&huge, 1 << 20, true).is_err());
        assert!(chain.decode_into(&huge, &mut [0; 1000], true).is_err());
    }
}

#[test]
fn the_memory_of_each_step_is_counted() {
    let chain = |filters: &[Filter]| match Chain::of(filters.iter().cloned()).unwrap() {
        Codec::Chain(chain) => chain,
        codec => panic!("{codec:?}"),
    };
    let size = 1 << 20;
    // Unshuffling reads from a buffer of the chunk's size.
    let shuffled = chain(&[Filter::Shuffle(4), Filter::Zlib]).working_memory(1000, size);
    assert!((size..size + (1 << 20)).contains(&shuffled), "{shuffled}");
    // Two buffers: one is read, one is written.
    let twice = chain(&[Filter::Shuffle(4), Filter::Shuffle(2), Filter::Zlib]).working_memory(1000, size);
    assert!((2 * size..2 * size + (1 << 20)).contains(&twice), "{twice}");
    // What comes out of the first of two compressors is bounded by what the second one needs at most.
    let two = chain(&[Filter::Zlib, Filter::Gzip]).working_memory(1 << 30, size);
    assert!((size..10 * size).contains(&two), "{two}");
    assert_eq!(chain(&[Filter::Lzf]).working_memory(1000, size), 0);
    assert!(Chain::of(vec![Filter::Shuffle(4); 33]).is_none());
    assert_eq!(Chain::of([]), Some(Codec::None));
    assert_eq!(Chain::of([Filter::Zlib]), Some(Codec::ZlibExact));
    assert_eq!(Chain::of([Filter::Shuffle(4), Filter::Zlib]).unwrap().name(), "shuffle+zlib");
}
