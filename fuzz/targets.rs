//! What every fuzz target does with its bytes: the code of `fuzz/fuzz_targets`, which libFuzzer runs, and of
//! `tests/mutations.rs`, which runs the same in every test on a stable compiler.

use std::{collections::HashSet, io::Write, ops::ControlFlow, sync::Arc};

use shardfs::{
    cache::{Cache, Verify},
    codec::{
        Bitshuffle, BlockCodec, Chain, ChecksumKind, Codec, CrcKind, Delta, Filter, MOST_WINDOW, Nbit, Number,
        NumberKind, ScaleOffset, Scaled, Stream, Szip,
    },
    format::{
        Block, Class, FRONT, FormatError, Front, PartError, Recognition, gguf,
        hdf5::{self, chunks::Chunks},
        idv, kast, kastore, kdb, lerobot, mcap, messages, mp4, netcdf, npz,
        parquet::{self, page, values},
        pt, recording, rlds, rosbag, safetensors, tfrecord, wshard, zarr, zip,
    },
    source::{Memory, SourceError, Unlimited},
    tree::{self, Detected, NodeKind, names},
    view::ReadContext,
};

/// A target: any bytes are fine or an error; a panic is a finding.
pub type Target = fn(&[u8]);

/// All of them, by the names of their programs.
pub const ALL: [(&str, Target); 48] = [
    ("wshard", wshard),
    ("kastore", kastore),
    ("kast", kast),
    ("kdb", kdb),
    ("idv", idv),
    ("safetensors", safetensors),
    ("npz", npz),
    ("pt", pt),
    ("pickle", pickle),
    ("gguf", gguf),
    ("netcdf", netcdf),
    ("parquet", parquet),
    ("hdf5", hdf5),
    ("mcap", mcap),
    ("rosbag", rosbag),
    ("messages", messages),
    ("rlds", rlds),
    ("lerobot", lerobot),
    ("zarr", zarr),
    ("codecs", codecs),
    ("filters", filters),
    ("filter_deflate", filter_alone::<0>),
    ("filter_zlib", filter_alone::<1>),
    ("filter_gzip", filter_alone::<2>),
    ("filter_zstd", filter_alone::<3>),
    ("filter_bzip2", filter_alone::<4>),
    ("filter_lz4", filter_alone::<5>),
    ("filter_lz4_sized", filter_alone::<6>),
    ("filter_lz4_blocks", filter_alone::<7>),
    ("filter_lz4_frame", filter_alone::<8>),
    ("filter_lzf", filter_alone::<9>),
    ("filter_snappy", filter_alone::<10>),
    ("filter_blosc", filter_alone::<11>),
    ("filter_shuffle", filter_alone::<12>),
    ("filter_bitshuffle", filter_alone::<13>),
    ("filter_delta", filter_alone::<14>),
    ("filter_szip", filter_alone::<15>),
    ("filter_nbit", filter_alone::<16>),
    ("filter_scale_offset", filter_alone::<17>),
    ("filter_checksum", filter_alone::<18>),
    ("filter_zstd_frame", filter_alone::<19>),
    ("filter_bzip2_stream", filter_alone::<20>),
    ("filter_blosc_front", filter_alone::<21>),
    ("filter_blosc2", filter_alone::<22>),
    ("filter_scaled", filter_alone::<23>),
    ("filter_pack_bits", filter_alone::<24>),
    ("names", names),
    ("tree", tree),
];

/// The wshard parser alone: any bytes are an error or a container, in bounded time and memory.
pub fn wshard(bytes: &[u8]) {
    let bytes = bytes.to_vec();
    let _ = wshard::probe(&bytes, false);
    let _ = wshard::probe(&bytes, true);
    let _ = wshard::parse(&bytes);
}

/// The kastore parser alone: any bytes are an error or a container, in bounded time and memory.
pub fn kastore(bytes: &[u8]) {
    let bytes = bytes.to_vec();
    let _ = kastore::probe(&bytes);
    let _ = kastore::parse(&bytes);
}

/// The kast parser alone: any bytes are an error or a container, in bounded time and memory.
pub fn kast(bytes: &[u8]) {
    let bytes = bytes.to_vec();
    let front = &bytes[..bytes.len().min(FRONT)];
    let _ = kast::recognise(&Front { bytes: front, len: bytes.len() as u64, name: b"file" });
    let _ = kast::parse(&bytes);
}

/// The kdb parser alone: any bytes are an error or a container, in bounded time and memory.
pub fn kdb(bytes: &[u8]) {
    let bytes = bytes.to_vec();
    let _ = kdb::probe(&bytes);
    let _ = kdb::parse(&bytes);
}

/// The idv parser alone: any bytes are an error or a container, in bounded time and memory.
pub fn idv(bytes: &[u8]) {
    let bytes = bytes.to_vec();
    let _ = idv::probe(&bytes);
    let _ = idv::parse(&bytes);
}

/// The safetensors parser alone: any bytes are an error or a container, in bounded time and memory.
pub fn safetensors(bytes: &[u8]) {
    let bytes = bytes.to_vec();
    let front = &bytes[..bytes.len().min(FRONT)];
    let recognised = safetensors::recognise(&Front { bytes: front, len: bytes.len() as u64, name: b"file" });
    let Ok(found) = safetensors::parse(&bytes) else { return };
    assert_eq!(recognised, Recognition::Maybe);
    for tensor in found.iter() {
        assert!(tensor.data().start <= tensor.data().end && tensor.data().end <= bytes.len() as u64);
    }
}

/// The npz parser alone, with the directory of the archive and the local header of each member: any bytes are an error
/// or a container, in bounded time and memory.
pub fn npz(bytes: &[u8]) {
    let bytes = bytes.to_vec();
    let front = &bytes[..bytes.len().min(FRONT)];
    let _ = npz::recognise(&Front { bytes: front, len: bytes.len() as u64, name: b"file" });
    let _ = npz::parse_within(&bytes, &Unlimited);
    let Ok(archive) = zip::parse_within(&bytes, &Unlimited) else { return };
    for member in &archive.members {
        if let (None, Ok(data)) = (member.error(), member.data(&bytes)) {
            let block = member.block(data);
            assert!(block.stored().end <= bytes.len() as u64);
        }
    }
}

/// The parser of checkpoints alone: any bytes are an error or a container, in bounded time and memory.
pub fn pt(bytes: &[u8]) {
    let bytes = bytes.to_vec();
    let front = &bytes[..bytes.len().min(FRONT)];
    let _ = pt::recognise(&Front { bytes: front, len: bytes.len() as u64, name: b"file.pt" });
    let _ = pt::parse_within(&bytes, &Unlimited);
    pickle(&bytes);
}

/// The pickle machine alone: tensors that it makes lie in their storages.
pub fn pickle(bytes: &[u8]) {
    let Ok(found) = pt::run(bytes.to_vec(), &Unlimited) else { return };
    let _ = pt::check_walk(&found);
    for number in 0.. {
        let Some(object) = found.object(number) else { break };
        if let pt::Object::Tensor(tensor) = object {
            assert!(tensor.size() <= tensor.storage_size.saturating_mul(1024));
            assert!(tensor.range().is_none_or(|range| tensor.size() == 0 || range.end <= tensor.storage_size));
        }
    }
}

/// The gguf parser alone: any bytes are an error or a container, in bounded time and memory.
pub fn gguf(bytes: &[u8]) {
    let bytes = bytes.to_vec();
    let Ok(found) = gguf::parse(&bytes) else { return };
    for tensor in found.iter() {
        assert!(tensor.data().start <= tensor.data().end && tensor.data().end <= bytes.len() as u64);
    }
    for (_, value) in found.pairs() {
        if let gguf::Value::Texts(count, place) = value {
            let read = gguf::each_text(&bytes, found.is_big, (*count, place), |_| Ok(()), |_| Ok::<_, FormatError>(()));
            assert!(read.is_ok());
        }
    }
}

/// Some memory, as a budget gives it out.
struct Some64(std::cell::Cell<u64>);

impl Memory for Some64 {
    fn reserve(&self, bytes: u64) -> Result<(), SourceError> {
        let left = self.0.get().checked_sub(bytes);
        self.0.set(left.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::OutOfMemory))?);
        Ok(())
    }
}

/// Footers and pages of Parquet files: any bytes are an error or values, in bounded time and memory.
pub fn parquet(bytes: &[u8]) {
    let memory = Some64(std::cell::Cell::new(64 << 20));
    let source = bytes.to_vec();
    let Ok(file) = parquet::File::read(&source, &memory) else { return };
    let stored = |at: u64, header: &page::Header| {
        let end = usize::try_from(at + u64::from(header.stored)).ok()?;
        bytes.get(usize::try_from(at).ok()?..end)
    };
    for group in file.groups.iter().take(4) {
        assert!(group.first + group.rows <= file.rows);
        for (leaf, chunk) in file.leaves.iter().zip(&group.chunks) {
            let walked =
                page::walk(&source, chunk, leaf.has_lists(), &memory, |_, place| Ok((place.header.values, false)));
            let Ok(pages) = walked else { return };
            let dictionary = pages.dictionary.and_then(|(at, header)| {
                values::dictionary(leaf, &header, &chunk.codec, stored(at, &header)?, &memory).ok()
            });
            for place in &pages.places {
                let Some(stored) = stored(place.at, &place.header) else { panic!("a page outside of the file") };
                let _ = values::check(&place.header, stored);
                let dictionary = dictionary.as_ref().map(|dictionary| values::Dictionary { slots: &dictionary.slots });
                let _ = values::page(leaf, &place.header, &chunk.codec, stored, dictionary, &memory);
            }
        }
    }
}

/// The NetCDF classic parser alone: any bytes are an error or a container, in bounded time and memory.
pub fn netcdf(bytes: &[u8]) {
    let bytes = bytes.to_vec();
    let Ok(found) = netcdf::parse(&bytes) else { return };
    for variable in &found.variables {
        let elements = found.shape(variable).into_iter().try_fold(variable.kind.size(), u64::checked_mul);
        assert_eq!(elements, Some(variable.size));
        assert!(variable.place.width <= variable.place.stride);
    }
    for netcdf::Attribute { values, .. } in &found.attributes {
        if let netcdf::Values::Numbers(dtype, count, at) = values {
            assert!(at + count * dtype.size() <= bytes.len() as u64);
        }
    }
}

/// The HDF5 parser alone: any bytes are an error or a container, in bounded time and memory.
pub fn hdf5(bytes: &[u8]) {
    let bytes = bytes.to_vec();
    let Ok(superblock) = hdf5::parse(&bytes, None, &Unlimited) else { return };
    let reader = superblock.reader(&bytes, &Unlimited);
    let (mut next, mut seen) = (vec![superblock.root], HashSet::from([superblock.root]));
    while let Some(at) = next.pop() {
        let Ok(object) = hdf5::Object::read(&reader, at) else { continue };
        let _ = hdf5::attribute::read(&reader, at, object.attributes);
        if let Ok(links) = hdf5::open_links(&reader, &object) {
            let mut take = |links: &hdf5::Links| {
                for link in links.iter() {
                    if let hdf5::Target::Hard(at) = link.target
                        && seen.insert(at)
                    {
                        next.push(at);
                    }
                }
            };
            take(&links);
            let mut from = links.are_many().then_some(0);
            while let Some(position) = from {
                let Ok(page) = links.page(&reader, position) else { break };
                take(&page.links);
                from = page.next;
            }
        }
        let Some(dataset) = object.dataset() else { continue };
        if let hdf5::Layout::Chunked(chunked) = &dataset.layout {
            let chunk_size = chunked.chunk.iter().try_fold(chunked.element, |size, axis| size.checked_mul(*axis));
            let is_filtered = !dataset.pipeline.steps.is_empty();
            let chunks = Chunks { space: &dataset.space, chunked, chunk_size: chunk_size.unwrap_or(1), is_filtered };
            let _ = hdf5::chunks::visit(&reader, chunks, &mut |_, _| Ok(()));
        }
    }
}

/// The MCAP parser alone: any bytes are an error or a recording, in bounded time and memory. Chunks that are compressed
/// count as damaged.
pub fn mcap(bytes: &[u8]) {
    let bytes = bytes.to_vec();
    let Ok(found) = mcap::parse(&bytes, &Unlimited) else { return };
    let found = match found.is_indexed {
        true => found,
        false => match mcap::scan::scan(&bytes, &Unlimited, found, &mut |_, block, each| plain(&bytes, block, each)) {
            Ok(found) => found,
            Err(_) => return,
        },
    };
    entries(&bytes, &found.recording, &found.places, false);
}

/// The parser of bags alone, like [`mcap`].
pub fn rosbag(bytes: &[u8]) {
    let bytes = bytes.to_vec();
    let Ok(mut found) = rosbag::parse(&bytes, &Unlimited) else { return };
    let Ok(chunks) = found.find(&bytes, &Unlimited) else { return };
    let counts = chunks.count(&Unlimited, &mut |_, block, each| plain(&bytes, block, each));
    if counts.is_ok_and(|counts| found.add(chunks, counts, &Unlimited).is_ok()) {
        entries(&bytes, &found.recording, &found.places, true);
    }
}

/// Passes on the records of a chunk that is not compressed.
fn plain(bytes: &[u8], block: &Block, each: &mut recording::EachChunk<'_>) -> Result<(), PartError> {
    let range = block.offset as usize..(block.offset + block.stored_size) as usize;
    match (&block.codec, bytes.get(range)) {
        (Codec::None, Some(records)) if block.size == block.stored_size => {
            let records = records.to_vec();
            each(&recording::InFile::new(&records, 0..block.size))
        }
        _ => Err(PartError::Damaged("it is compressed".into())),
    }
}

/// Goes through all messages of a recording. If the indexes of chunks were read when it was opened (`are_checked`), they
/// are sound and have as many messages as its folders say. Otherwise the chunk counts where its index is not right.
fn entries(bytes: &Vec<u8>, found: &recording::Recording, places: &dyn recording::Layout, are_checked: bool) {
    for (number, folder) in (0..).zip(&found.folders) {
        assert_eq!(folder.messages, folder.runs.iter().map(|run| u64::from(run.count)).sum::<u64>());
        for run in folder.runs.iter().filter(|run| places.is_indexed(run.chunk)) {
            let mut listed = Vec::new();
            let read = places.entries(bytes, run.chunk, number, &mut |entry| listed.push(entry));
            let is_right = read.is_ok() && listed.len() == run.count as usize;
            assert!(is_right || !are_checked);
            if !is_right {
                continue;
            }
            let Ok(block) = places.block(bytes, run.chunk) else { continue };
            let range = block.offset..block.offset.saturating_add(block.stored_size);
            let chunk = recording::InFile::new(bytes, range);
            for entry in listed.iter().filter(|_| block.codec == Codec::None) {
                if let Ok(placed) = places.place(&chunk, entry) {
                    assert!(placed.data.start <= placed.data.end && placed.data.end <= block.size);
                }
            }
        }
    }
}

/// Schemas and messages: a kind, the length of a schema, the schema, a message. What decodes has all its columns.
pub fn messages(bytes: &[u8]) {
    let Some((&[which, a, b], rest)) = bytes.split_first_chunk() else { return };
    let (schema, message) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes([a, b]))));
    let (encoding, kind, name): (&[u8], &[u8], &[u8]) = match which % 3 {
        0 => (b"ros1", b"ros1msg", b"pkg/Top"),
        1 => (b"cdr", b"ros2msg", b"pkg/msg/Top"),
        _ => (b"protobuf", b"protobuf", b"Top"),
    };
    let Ok(schema) = messages::parse(encoding, kind, name, schema) else { return };
    let flat = messages::flat::Flat::of(&schema);
    assert!(flat.leaves.len() <= messages::flat::COLUMNS);
    let mut line = messages::text::Counted::default();
    let walked = messages::walk(&schema, message, &Unlimited, &mut messages::text::Line::new(&mut line));
    let mut widths = Widths(vec![0; flat.leaves.len()]);
    let columns =
        messages::walk(&schema, message, &Unlimited, &mut messages::flat::Columns::new(&schema, &flat, &mut widths));
    assert_eq!(walked.is_ok(), columns.is_ok());
    for (leaf, width) in flat.leaves.iter().zip(&widths.0).filter(|_| walked.is_ok()) {
        assert!(leaf.shape.width().is_none_or(|wanted| wanted == *width), "{leaf:?} has {width} bytes");
    }
}

/// Counts the bytes of columns.
struct Widths(Vec<usize>);

impl messages::flat::Take for Widths {
    fn take(&mut self, leaf: usize, bytes: &[u8]) {
        self.0[leaf] += bytes.len();
    }
}

/// The TFRecord and Example parsers alone, and the index of videos, which is read in the same way: any bytes are an error
/// or a result whose places are in the file.
pub fn rlds(bytes: &[u8]) {
    let bytes = bytes.to_vec();
    let index = tfrecord::Index::read(&bytes, &Unlimited).unwrap_or_default();
    for record in 0..index.count() {
        let place = index.data(record).unwrap_or_default();
        assert!(place.start <= place.end && place.end + 4 <= bytes.len() as u64);
    }
    if let Ok(features) = tfrecord::example::parse(&bytes, &Unlimited) {
        for feature in &features {
            let hull = feature.list.hull();
            assert!(hull.start <= hull.end && hull.end as usize <= bytes.len());
        }
    }
    if let Ok(value) = rlds::read_object(&bytes, "document", Class::BadJson, &Unlimited) {
        let _ = rlds::parse_features(&value);
        if let Ok(info) = rlds::parse_info(value) {
            assert!(info.splits.iter().all(|split| split.place(split.records()).is_none()));
        }
    }
    if let Ok(track) = mp4::Track::read(&bytes, &Unlimited) {
        for frame in 0..track.frames().min(100) {
            let _ = (track.group(frame), track.nearest(frame as f64));
        }
    }
}

/// The documents of LeRobot alone: any bytes are an error or a data set whose files lie below its folder.
pub fn lerobot(bytes: &[u8]) {
    let bytes = bytes.to_vec();
    if let Ok(info) = lerobot::parse(&bytes, &Unlimited) {
        for template in std::iter::once(&info.data_path).chain(&info.video_path) {
            let path = template.path(|_| Some("1".into()));
            assert!(path.is_none_or(|path| !path.starts_with('/') && path.split('/').all(|part| part != "..")));
        }
    }
    let _ = lerobot::lines(&bytes, &Unlimited, |_, line| {
        let line = line.unwrap_or_default();
        let _ = (lerobot::object::<lerobot::EpisodeLine>(line), lerobot::object::<lerobot::TaskLine>(line));
        Ok::<_, SourceError>(())
    });
}

/// The documents of Zarr alone, of both versions: a chunk is found by its own key, and its codecs decode any bytes to an
/// error or to a whole chunk.
pub fn zarr(bytes: &[u8]) {
    let Ok(document) = zarr::Json::parse(bytes, &Unlimited) else { return };
    let _ = document.to_serde();
    for is_v3 in [false, true] {
        let array = match is_v3 {
            true => zarr::Array::parse_v3(&document),
            false => zarr::Array::parse_v2(&document, zarr::ZeroSize::OfType),
        };
        let (Some(keys), Ok(chunks)) = (&array.keys, &array.chunks) else { continue };
        let at: Vec<u64> = (0..keys.chunk.len() as u64).collect();
        assert_eq!(keys.parse(&keys.key(at.iter().copied()), at.len()), Some(at));
        for sharding in &chunks.written.shards {
            assert!(sharding.counts().all(|count| count > 0) && sharding.index_size() > 0);
        }
        let elements = chunks.written.chunk.iter().try_fold(1_u64, |size, axis| size.checked_mul(*axis));
        if let (Some(zarr::Elements::Fixed(fixed)), Some(elements)) = (&array.elements, elements) {
            let size = elements * fixed.size();
            if let (Ok(codec), true) = (chunks.written.codec(), size <= 1 << 20) {
                assert!(codec.decode(bytes, size).map_or(true, |decoded| decoded.len() as u64 == size));
            }
        }
    }
}

/// Every codec: what decodes has exactly the stated size, and its front is the front of the whole.
pub fn codecs(bytes: &[u8]) {
    const LARGEST: u64 = 1 << 20;
    let Some((&[which, a, b, c, width, height], stored)) = bytes.split_first_chunk() else { return };
    let size = u64::from(u32::from_le_bytes([a, b, c, 0])) % LARGEST;
    let (width, height) = (u32::from(width) + 1, u32::from(height) + 1);
    let channels = which / 7 % 4 + 1;
    let codec = match which % 7 {
        0 => Codec::None,
        1 => Codec::Zstd,
        2 => Codec::Lz4,
        3 if which >= 128 => Codec::DeflateExact,
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
            // What DEFLATE holds behind the stated size is no part of the whole (docs/formats/idv.md 12).
            assert_eq!(front[..front.len().min(whole.len())], whole[..whole.len().min(100)]);
        }
    }
    // Only blocks of some size are streamed; of zstd nothing at all may also stand for nothing, without a frame.
    if let (true, Some(whole)) = (codec.is_stream() && !stored.is_empty(), &whole) {
        let mut stream = Stream::new(&codec, stored, MOST_WINDOW).unwrap();
        let mut pieces = vec![0; whole.len()];
        for piece in pieces.chunks_mut(777) {
            assert_eq!(stream.fill(piece).unwrap(), piece.len());
        }
        stream.finish(size, size).unwrap();
        assert_eq!(&pieces, whole);
    }
}

/// Largest size that is stated for filters.
const LARGEST: u64 = 1 << 18;

/// One filter: a parameter, a size, and what is stored. What decodes has exactly the stated size, and what decodes
/// without a stated size decodes to the same bytes with it.
pub fn filter_alone<const WHICH: u8>(bytes: &[u8]) {
    let Some((&[parameter, a, b, c], stored)) = bytes.split_first_chunk() else { return };
    let size = u64::from(u32::from_le_bytes([a, b, c, 0])) % LARGEST;
    let Some(filter) = filter(WHICH, parameter) else { return };
    let Some(codec) = Chain::of([filter]) else { return };
    if let Ok(whole) = codec.decode(stored, size) {
        assert_eq!(whole.len() as u64, size);
    }
    let Codec::Chain(chain) = codec else { return };
    let Ok(bytes) = chain.decode_up_to(stored, size, true) else { return };
    assert!(bytes.len() as u64 <= size);
    let mut again = vec![0; bytes.len()];
    if chain.decode_into(stored, &mut again, true).is_ok() {
        assert!(bytes == again, "{}", chain.name());
    }
}

/// Chains of filters: what decodes has exactly the stated size, and what has no stated size no more than the bound.
pub fn filters(bytes: &[u8]) {
    let Some((&[count, a, b, c], mut rest)) = bytes.split_first_chunk() else { return };
    let size = u64::from(u32::from_le_bytes([a, b, c, 0])) % LARGEST;
    let mut filters = Vec::new();
    for _ in 0..count % 4 + 1 {
        let Some((&[which, parameter], after)) = rest.split_first_chunk() else { return };
        rest = after;
        filters.push(match filter(which, parameter) {
            Some(filter) => filter,
            None => return,
        });
    }
    let Some(codec) = Chain::of(filters) else { return };
    if let Ok(whole) = codec.decode(rest, size) {
        assert_eq!(whole.len() as u64, size);
    }
    if let Codec::Chain(chain) = codec
        && let Ok(bytes) = chain.decode_up_to(rest, size, false)
    {
        assert!(bytes.len() as u64 <= size);
    }
}

/// Returns a filter by its number; `None` for a parameter that it does not have.
pub fn filter(which: u8, parameter: u8) -> Option<Filter> {
    let width = u32::from(parameter % 40 + 1);
    let compressed = [None, Some(BlockCodec::Lz4), Some(BlockCodec::Zstd)];
    let crcs = [CrcKind::Crc32c, CrcKind::Crc32].map(ChecksumKind::Crc);
    let kinds = [crcs[0], crcs[1], ChecksumKind::Adler32, ChecksumKind::Fletcher32];
    let number = |bits: u8| Number {
        kind: [NumberKind::Signed, NumberKind::Unsigned, NumberKind::Float, NumberKind::Signed][usize::from(bits & 3)],
        width: 1 << (bits >> 2 & 3),
        is_big: parameter & 0x80 != 0,
    };
    let high = u32::from(parameter >> 4);
    Some(match which % FILTERS {
        0 => Filter::Deflate,
        1 => Filter::Zlib,
        2 => Filter::Gzip,
        3 => Filter::Zstd,
        4 => Filter::Bzip2,
        5 => Filter::Lz4,
        6 => Filter::Lz4Sized,
        7 => Filter::Lz4Blocks,
        8 => Filter::Lz4Frame,
        9 => Filter::Lzf,
        10 => Filter::Snappy,
        11 => Filter::Blosc,
        12 => Filter::Shuffle(width),
        13 => Filter::Bitshuffle(Bitshuffle { width, block: 0, compressed: compressed[usize::from(parameter) % 3] }),
        14 => Filter::Delta(Delta::new(number(parameter), number(parameter >> 3))?),
        15 => Filter::Szip(Szip::new(&[u32::from(parameter), 8, [8, 12, 16, 24, 32, 64][width as usize % 6], 300])?),
        16 if parameter >= WRITTEN => Filter::Nbit(Arc::new(Nbit::new(&written("nbit", parameter - WRITTEN)?)?)),
        16 => {
            // A record of a number and an array of bytes.
            let member = [0, 1, 4, high & 1, width.min(28), high >> 1 & 3];
            let rest = [4, 2, 6, 4, 2, 8, 1, 2, 0, 1 + high, 0];
            Filter::Nbit(Arc::new(Nbit::new(&[&[200, 3, 10, 2 + (high & 1)], &member[..], &rest].concat())?))
        }
        17 if parameter >= WRITTEN => {
            Filter::ScaleOffset(ScaleOffset::new(&written("scaleoffset", parameter - WRITTEN)?)?)
        }
        17 => {
            let (kind, class, size) =
                if high & 1 == 0 { (2, 0, 1 << (high >> 1 & 3)) } else { (0, 1, 4 << (high >> 1 & 1)) };
            Filter::ScaleOffset(ScaleOffset::new(&[kind, width, 300, class, size, 1, high >> 3, width & 1, 7, 0])?)
        }
        18 => Filter::Checksum { kind: kinds[usize::from(parameter) % 4], is_in_front: parameter & 0x80 != 0 },
        19 => Filter::ZstdFrame,
        20 => Filter::Bzip2Stream,
        21 => Filter::BloscFront(u64::from(parameter) * 100),
        22 => Filter::Blosc2,
        23 => {
            Filter::Scaled(Scaled::new(number(parameter), number(parameter >> 3), f64::from(high), f64::from(width))?)
        }
        _ => Filter::PackBits,
    })
}

/// The number of filters that [`filter`] makes.
const FILTERS: u8 = 25;

/// Returns the seeds of a target that has its own; the others are seeded with files.
pub fn seeds(target: &str) -> Option<Vec<Vec<u8>>> {
    match target {
        "codecs" | "names" => Some(payloads()),
        "filters" => Some(filtered()),
        _ => target.strip_prefix("filter_").map(alone),
    }
}

/// What reference programs have stored (`tests/golden/filters`), and the list of it.
const VECTORS: &[u8] = include_bytes!("../tests/golden/filters/vectors.bin");
const LIST: &str = include_str!("../tests/golden/filters/list.txt");

/// The first parameter of a filter that stands for the numbers with which reference programs have used it.
const WRITTEN: u8 = 128;

/// Returns the lines of the list whose chain is this one filter.
fn lines(filter: &str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = LIST.lines().map(|line| line.splitn(5, ' ').collect::<Vec<_>>());
    lines.filter(move |line| line[4] == filter || line[4].split(':').next() == Some(filter))
}

/// Returns the numbers of a filter in one of its lines.
fn written(filter: &str, line: u8) -> Option<Vec<u32>> {
    let line = lines(filter).nth(line.into())?;
    line[4].split(':').nth(1)?.split(',').map(|number| number.parse().ok()).collect()
}

/// Seeds for [`filter_alone`]: what reference programs have stored with that filter, behind a parameter and the size.
fn alone(name: &str) -> Vec<Vec<u8>> {
    // The filter in the list, and the parameter that stands for it.
    let (filter, parameter) = match name {
        "zstd_frame" => ("zstd", 0),
        "bzip2_stream" => ("bzip2", 0),
        "blosc_front" => ("blosc", 28),
        "lz4" => ("none", 0),
        "lz4_sized" => ("lz4", 0),
        "shuffle" => ("shuffle:4", 3),
        "bitshuffle" => ("bitshuffle:4:0:lz4", 43),
        "checksum" => ("fletcher32", 3),
        "szip" => ("szip:169,8,32,300", 169),
        "nbit" => ("nbit", WRITTEN),
        "scale_offset" => ("scaleoffset", WRITTEN),
        name => (name, 0),
    };
    let part = |line: &[&str]| {
        let place = [2, 3].map(|at| line.get(at).and_then(|number| number.parse::<usize>().ok()).unwrap_or_default());
        VECTORS.get(place[0]..place[0] + place[1]).unwrap_or_default()
    };
    let raw = |name: &str| lines("raw").find(|line| line[0] == name).map(|line| part(&line).len());
    let seed =
        |parameter: u8, size: usize, stored: &[u8]| [&[parameter], &(size as u32).to_le_bytes()[..3], stored].concat();
    // Short ones of several kinds.
    let all = lines(filter).enumerate().filter_map(|(number, line)| Some((number as u8, raw(line[1])?, part(&line))));
    let all: Vec<_> = all.filter(|(_, _, stored)| stored.len() < 4000).collect();
    let step = all.len().div_ceil(8).max(1);
    let own = |number: u8| if parameter == WRITTEN { parameter + number } else { parameter };
    let mut seeds: Vec<_> =
        all.into_iter().step_by(step).map(|(number, size, stored)| seed(own(number), size, stored)).collect();
    // What reads any bytes, or has no line.
    let data: Vec<u8> = (0..3000u32).map(|at| (at / 7) as u8).collect();
    match name {
        "lz4" => seeds.push(seed(0, data.len(), &lz4_flex::block::compress(&data))),
        "pack_bits" => seeds.push(seed(0, 8 * 256, &[&[0], &data[..256]].concat())),
        // Numbers of one byte that are stored in four.
        "delta" | "scaled" => seeds.push(seed(137, data.len() / 4, &data)),
        _ => {}
    }
    seeds
}

/// Seeds for [`filters`]: a payload of each behind its head.
pub fn filtered() -> Vec<Vec<u8>> {
    let data: Vec<u8> = (0..3000u32).map(|at| (at / 7) as u8).collect();
    let size = (data.len() as u32).to_le_bytes();
    let seed = |filters: &[[u8; 2]], stored: &[u8]| {
        [&[filters.len() as u8 - 1, size[0], size[1], size[2]], filters.as_flattened(), stored].concat()
    };
    let lz4 = lz4_flex::block::compress(&data);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    // Into memory, which takes everything.
    let _ = gzip.write_all(&data);
    let gzip = gzip.finish().unwrap_or_default();
    let zstd = zstd::bulk::compress(&data, 3).unwrap_or_default();
    let blocks = [&3000u64.to_be_bytes()[..], &3000u32.to_be_bytes(), &(lz4.len() as u32).to_be_bytes(), &lz4].concat();
    // A stream in one block that is not split, of lz4 and shuffled.
    let stream = [&20u32.to_le_bytes()[..], &(lz4.len() as u32).to_le_bytes(), &lz4].concat();
    let head = [[2, 1, 0x31, 4], size, size, (16 + stream.len() as u32).to_le_bytes()].concat();
    // The same as a chunk of Blosc 2, with differences in front.
    let long = [
        &[5, 1, 0x3d, 4][..],
        &size,
        &size,
        &(32 + stream.len() as u32).to_le_bytes(),
        &[3, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &36u32.to_le_bytes(),
        &stream[4..],
    ];
    vec![
        seed(&[[11, 0]], &long.concat()),
        seed(&[[2, 0]], &gzip),
        seed(&[[12, 3], [3, 0]], &zstd),
        seed(&[[5, 0]], &lz4),
        seed(&[[6, 0]], &[&size[..], &lz4].concat()),
        seed(&[[7, 0]], &blocks),
        seed(&[[13, 4]], &blocks),
        seed(&[[11, 0]], &[head, stream].concat()),
        seed(&[[10, 0]], &snap::raw::Encoder::new().compress_vec(&data).unwrap_or_default()),
        seed(&[[14, 4], [18, 0], [3, 0]], &zstd),
        seed(&[[4, 0]], &gzip),
        seed(&[[9, 0]], &data),
        seed(&[[8, 0]], &lz4),
        // A size of 3000 and blocks; numbers of 9 bits.
        seed(&[[15, 0x20]], &[&size[..], &[0x55; 900]].concat()),
        [&[0, 0xd0, 7, 0, 16, 8][..], &data].concat(),
        [&[0, 0x60, 9, 0, 17, 0x20][..], &9u32.to_le_bytes(), &[8], &data].concat(),
    ]
}

/// The name mapping: whatever is stored, what comes out is a name, and a different one for each duplicate.
pub fn names(bytes: &[u8]) {
    let Some((&[suffix, a, b, c, d], part)) = bytes.split_first_chunk() else { return };
    let number = u32::from_le_bytes([a, b, c, d]);
    let suffix = [".npy", ".json", ".jsonl", ".txt", ".bin", ".png", ".jpg"][usize::from(suffix) % 7];
    let number = number.max(1);
    for name in [names::file(part, suffix, number), names::folder(part, &names::RESERVED, number)] {
        assert!(!name.is_empty() && name.len() <= names::NAME_MAX, "{name:?}");
        assert!(name != "." && name != ".." && !name.contains('/'), "{name:?}");
        assert!(!name.bytes().any(|byte| byte < 0x20 || byte == 0x7f), "{name:?}");
    }
    let file = names::file(part, suffix, number);
    assert!(file.ends_with(suffix), "{file:?}");
    assert_ne!(file, names::file(part, suffix, number.wrapping_add(1).max(1)));
    let folder = names::folder(part, &names::RESERVED, 1);
    assert!(!names::RESERVED.contains(&&*folder), "{folder:?}");
}

/// Whole containers of any format, from detection to the bytes of every file: the tree is a tree, sizes are true, any
/// range is the slice of the whole.
pub fn tree(bytes: &[u8]) {
    const FILES: usize = 400;
    const LONGEST: u64 = 256 << 10;
    let bytes = bytes.to_vec();
    let Ok(Detected::Container(format)) = tree::detect(&tree::FORMATS, &bytes, b"file") else { return };
    let reader = ReadContext::new(Arc::new(bytes), Cache::new(1 << 20, Verify::Strict), 0);
    let Ok(tree) = format.open(&reader, None) else { return };
    let _ = tree.description(&reader);
    let (mut folders, mut seen, mut files) = (vec![tree::ROOT], HashSet::from([tree::ROOT]), 0);
    while let Some(folder) = folders.pop() {
        let mut children = Vec::new();
        let listed = tree.list(&reader, folder, 0, &mut |child| {
            assert!(!child.name.is_empty() && !child.name.contains('/'));
            children.push((child.name.to_owned(), child.node, child.is_folder));
            if children.len() < FILES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if listed.is_err() {
            continue;
        }
        if let Ok(Some(hidden)) = tree.lookup(&reader, folder, ".raw") {
            children.push((".raw".into(), hidden, true));
        }
        for (name, node, is_folder) in children {
            assert!(seen.insert(node), "{node:?} is there twice");
            assert_eq!(tree.lookup(&reader, folder, &name).ok().flatten(), Some(node), "{name}");
            assert_eq!(tree.parent(&reader, node).ok(), Some(folder));
            assert_eq!(matches!(tree.kind(&reader, node), Ok(Some(NodeKind::Folder { .. }))), is_folder);
            if is_folder {
                folders.push(node);
                continue;
            }
            files += 1;
            if files > FILES {
                return;
            }
            let Ok(view) = tree.view(&reader, node) else { continue };
            let length = view.size().min(LONGEST);
            let Ok(whole) = view.copy_at(&reader, 0, length) else { continue };
            assert_eq!(whole.len() as u64, length);
            let (from, to) = (length / 3, length / 3 * 2);
            let part = view.copy_at(&reader, from, to - from).unwrap();
            assert_eq!(part, whole[from as usize..to as usize], "{name}");
        }
    }
    let _ = tree.notices().map(|notices| notices.drain());
}

/// Seeds for [`codecs`]: a payload of every codec behind the six bytes that it takes for codec, size, width and height.
pub fn payloads() -> Vec<Vec<u8>> {
    let noise = |length: usize| -> Vec<u8> {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..length).map(|_| next()).collect()
    };
    let mut seeds = Vec::new();
    let mut seed = |which: u8, size: usize, (width, height): (u8, u8), stored: &[u8]| {
        let size = (size as u32).to_le_bytes();
        seeds.push([&[which, size[0], size[1], size[2], width - 1, height - 1], stored].concat());
    };
    let counted = (0..=255).cycle().take(2048).collect();
    for data in [Vec::new(), b"a".to_vec(), counted, vec![0; 70_000], noise(3000)] {
        let none = (1, 1);
        seed(0, data.len(), none, &data);
        let zstd = |data: &[u8]| zstd::bulk::compress(data, 3).unwrap_or_default();
        seed(1, data.len(), none, &zstd(&data));
        let (front, back) = data.split_at(data.len() / 3);
        seed(1, data.len(), none, &[zstd(front), zstd(back)].concat());
        seed(2, data.len(), none, &lz4_flex::block::compress(&data));
        let mut deflate = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        // Into memory, which takes everything.
        let _ = (deflate.write_all(&data), zlib.write_all(&data));
        seed(3, data.len(), none, &deflate.finish().unwrap_or_default());
        seed(4, data.len(), none, &zlib.finish().unwrap_or_default());
    }
    let (width, height) = (40u8, 30u8);
    for (channels, colour) in
        [(1, image::ExtendedColorType::L8), (3, image::ExtendedColorType::Rgb8), (4, image::ExtendedColorType::Rgba8)]
    {
        let pixels = noise(usize::from(width) * usize::from(height) * channels);
        for (codec, format) in [(5, image::ImageFormat::Jpeg), (6, image::ImageFormat::Png)] {
            let mut file = std::io::Cursor::new(Vec::new());
            let made = image::write_buffer_with_format(&mut file, &pixels, width.into(), height.into(), colour, format);
            // JPEG has no alpha.
            if made.is_ok() {
                seed(codec + 7 * (channels as u8 - 1), pixels.len(), (width, height), file.get_ref());
            }
        }
    }
    seeds
}
