//! What is read of a recording by its summary, and when its message indexes are looked at.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::{fs, ops::Range, path::Path, time::Duration};

use common::{bucket::Bucket, walk};
use shardfs::vfs::{Options, ROOT, Vfs};

const MAGIC: &[u8] = b"\x89MCAP0\r\n";

/// Channels of the recordings here.
const CHANNELS: u16 = 2;

/// Messages of each channel in a chunk.
const MESSAGES: u64 = 3;

fn record(op: u8, content: &[u8]) -> Vec<u8> {
    [&[op][..], &(content.len() as u64).to_le_bytes(), content].concat()
}

fn text(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes()[..], text].concat()
}

fn pairs(pairs: &[(u16, u64)]) -> Vec<u8> {
    text(
        &pairs
            .iter()
            .flat_map(|(key, value)| [&key.to_le_bytes()[..], &value.to_le_bytes()].concat())
            .collect::<Vec<_>>(),
    )
}

/// Bytes that do not repeat, a different row for each message.
fn data(channel: u16, number: u64, size: usize) -> Vec<u8> {
    let mut state = (u64::from(channel) << 32 | number).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..size).map(|_| next()).collect()
}

/// A recording, and where its parts are.
struct Written {
    bytes: Vec<u8>,
    /// Of each chunk: its record, and the message indexes after it.
    chunks: Vec<(Range<usize>, Range<usize>)>,
}

/// Writes a recording of compressed chunks. Message `n` of each channel has the time `time(n)`, and the chunk index states
/// `stated(first, last)`.
fn written(
    chunks: u64,
    size: usize,
    time: impl Fn(u64) -> u64,
    stated: impl Fn(usize, u64, u64) -> (u64, u64),
) -> Written {
    let mut bytes = [MAGIC, &record(1, &[text(b""), text(b"test")].concat())].concat();
    let (mut places, mut infos) = (Vec::new(), Vec::new());
    let channels: Vec<Vec<u8>> = (0..CHANNELS)
        .map(|id| {
            let topic = text(format!("/topic{id}").as_bytes());
            record(4, &[&id.to_le_bytes()[..], &0u16.to_le_bytes(), &topic, &text(b"raw"), &text(b"")].concat())
        })
        .collect();
    for chunk in 0..chunks {
        let mut records = if chunk == 0 { channels.concat() } else { Vec::new() };
        let mut entries = vec![Vec::new(); CHANNELS.into()];
        let numbers = chunk * MESSAGES..(chunk + 1) * MESSAGES;
        for number in numbers.clone() {
            for channel in 0..CHANNELS {
                let at = time(number).to_le_bytes();
                entries[usize::from(channel)].extend([at, (records.len() as u64).to_le_bytes()].concat());
                let head = [&channel.to_le_bytes()[..], &(number as u32).to_le_bytes(), &at, &at].concat();
                records.extend(record(5, &[head, data(channel, number, size)].concat()));
            }
        }
        let stored = zstd::encode_all(&records[..], 1).unwrap();
        let times: Vec<u64> = numbers.map(&time).collect();
        let (first, last) = (*times.iter().min().unwrap(), *times.iter().max().unwrap());
        let (first, last) = stated(chunk as usize, first, last);
        let times = [first.to_le_bytes(), last.to_le_bytes()].concat();
        let (size, crc) = ((records.len() as u64).to_le_bytes(), crc32fast::hash(&records).to_le_bytes());
        let length = (stored.len() as u64).to_le_bytes();
        let start = bytes.len();
        bytes.extend(record(6, &[&times[..], &size, &crc, &text(b"zstd"), &length, &stored].concat()));
        let end = bytes.len();
        let mut indexes = Vec::new();
        for (channel, entries) in (0..CHANNELS).zip(&entries) {
            indexes.push((channel, bytes.len() as u64));
            bytes.extend(record(7, &[&channel.to_le_bytes()[..], &text(entries)].concat()));
        }
        let place = [(start as u64).to_le_bytes(), ((end - start) as u64).to_le_bytes()].concat();
        let after = ((bytes.len() - end) as u64).to_le_bytes();
        infos.push(record(8, &[&times[..], &place, &pairs(&indexes), &after, &text(b"zstd"), &length, &size].concat()));
        places.push((start..end, end..bytes.len()));
    }
    bytes.extend(record(15, &[0; 4]));
    let summary = bytes.len() as u64;
    let all: Vec<u64> = (0..chunks * MESSAGES).map(&time).collect();
    let times = [*all.iter().min().unwrap(), *all.iter().max().unwrap()].map(u64::to_le_bytes).concat();
    let counts = [&[0; 2][..], &u32::from(CHANNELS).to_le_bytes(), &[0; 8], &(chunks as u32).to_le_bytes()].concat();
    let each: Vec<(u16, u64)> = (0..CHANNELS).map(|id| (id, chunks * MESSAGES)).collect();
    let messages = (chunks * MESSAGES * u64::from(CHANNELS)).to_le_bytes();
    bytes.extend([channels.concat(), infos.concat()].concat());
    bytes.extend(record(11, &[&messages[..], &counts, &times, &pairs(&each)].concat()));
    bytes.extend(record(2, &[&summary.to_le_bytes()[..], &[0; 12]].concat()));
    bytes.extend(MAGIC);
    Written { bytes, chunks: places }
}

fn in_order(number: u64) -> u64 {
    1_000 + 10 * number
}

fn as_it_is(_: usize, first: u64, last: u64) -> (u64, u64) {
    (first, last)
}

fn read(vfs: &Vfs, path: &str) -> Result<Vec<u8>, i32> {
    let (folder, name) = path.rsplit_once('/').unwrap();
    let folder = walk::resolve(vfs, folder).unwrap();
    let attr = vfs.lookup(folder.ino, name.as_ref()).map_err(|error| error.errno())?.unwrap();
    walk::read(vfs, attr.ino, 0, u64::MAX)
}

fn times(vfs: &Vfs, topic: u16) -> Result<Vec<u64>, i32> {
    let bytes = read(vfs, &format!("a.mcap/topics/topic{topic}/time.npy"))?;
    Ok(bytes[128..].as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect())
}

fn message(vfs: &Vfs, topic: u16, number: u64) -> Result<Vec<u8>, i32> {
    read(vfs, &format!("a.mcap/.raw/topics/topic{topic}/{number:03}.bin"))
}

fn is_indexed(vfs: &Vfs) -> bool {
    let text = String::from_utf8(read(vfs, "a.mcap/container.json").unwrap()).unwrap();
    text.contains("\"indexed\": true")
}

fn local(bytes: &[u8]) -> (Vfs, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.mcap"), bytes).unwrap();
    // A file that was written a moment ago is not opened at once.
    std::thread::sleep(Duration::from_millis(150));
    (walk::open(folder.path(), Options::default()), folder)
}

#[test]
fn opening_reads_the_summary_and_a_message_its_chunk() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let written = written(40, 120_000, in_order, as_it_is);
    fs::write(folder.path().join("a.mcap"), &written.bytes).unwrap();
    let bucket = Bucket::of(folder.path());
    let mut options = Options::default();
    options.remote.endpoint_url = Some(bucket.endpoint().into());
    options.remote.region = Some("nowhere".into());
    options.remote.no_sign_request = true;
    options.remote.disk_cache = Some(disk.path().join("cache"));
    let vfs = walk::open(Path::new("s3://bucket"), options);
    assert_eq!(walk::list(&vfs, ROOT, 2, 1000, false).len(), 1);
    assert!(is_indexed(&vfs));
    let asked = bucket.asked();
    assert!(asked <= 2, "{asked} requests for the summary");
    assert!(message(&vfs, 1, 61).unwrap() == data(1, 61, 120_000));
    let then = bucket.asked() - asked;
    assert!(then <= 2, "{then} requests for a message");
    let (asked, sent) = (bucket.asked(), bucket.sent());
    assert_eq!(times(&vfs, 0).unwrap(), (0..120).map(in_order).collect::<Vec<_>>());
    let (asked, sent) = (bucket.asked() - asked, bucket.sent() - sent);
    // One piece for each index, or two where it lies on a border.
    assert!(asked <= 40 && sent <= 2 * 40 * (64 << 10), "{asked} requests, {sent} bytes for the times");
}

#[test]
fn a_chunk_is_decoded_where_its_index_is_not_sound() {
    let mut written = written(6, 1000, in_order, as_it_is);
    let (_, indexes) = written.chunks[2].clone();
    // The length of the first index does not fit its record.
    written.bytes[indexes.start + 11] ^= 0xFF;
    let (vfs, _folder) = local(&written.bytes);
    assert!(is_indexed(&vfs));
    for topic in 0..CHANNELS {
        assert_eq!(times(&vfs, topic).unwrap(), (0..18).map(in_order).collect::<Vec<_>>());
        for number in 0..18 {
            assert!(message(&vfs, topic, number).unwrap() == data(topic, number, 1000), "{topic} {number}");
        }
    }
}

/// A reader that goes through messages in order holds no chunk while another one is decoded for its entries.
#[test]
fn chunks_without_sound_indexes_need_no_memory_for_two() {
    let mut written = written(6, 1 << 20, in_order, as_it_is);
    for (_, indexes) in written.chunks.clone() {
        written.bytes[indexes.start + 11] ^= 0xFF;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.mcap"), &written.bytes).unwrap();
    std::thread::sleep(Duration::from_millis(150));
    // Room for a chunk of 6 MiB and its stored bytes.
    let vfs = walk::open(folder.path(), Options { cache_size: 16 << 20, ..Options::default() });
    let bytes = read(&vfs, "a.mcap/topics/topic0/publish_time.npy").unwrap();
    let expected: Vec<u8> = (0..18).flat_map(|number| in_order(number).to_le_bytes()).collect();
    assert!(bytes[128..] == expected);
}

#[test]
fn only_the_messages_of_a_chunk_fail_if_its_index_is_lost_too() {
    let mut written = written(6, 1000, in_order, as_it_is);
    let (chunk, indexes) = written.chunks[2].clone();
    written.bytes[indexes].fill(0);
    written.bytes[chunk.end - 1000] ^= 1;
    let (vfs, _folder) = local(&written.bytes);
    assert!(is_indexed(&vfs));
    assert_eq!(times(&vfs, 0).unwrap_err(), libc::EIO);
    for number in 0..18 {
        let found = message(&vfs, 0, number);
        match (6..9).contains(&number) {
            true => assert_eq!(found.unwrap_err(), libc::EIO, "{number}"),
            false => assert!(found.unwrap() == data(0, number, 1000), "{number}"),
        }
    }
}

/// Overlapping chunks are put in order by their indexes; times that the summary states wrongly move no message.
#[test]
fn messages_are_in_order_of_time_whatever_the_chunks_overlap() {
    // Each chunk begins before the one in front of it ends.
    let time = |number: u64| 1_000 + 10 * number - 25 * (number % 3);
    let (vfs, _folder) = local(&written(6, 100, time, as_it_is).bytes);
    let mut expected: Vec<(u64, u64)> = (0..18).map(|number| (time(number), number)).collect();
    expected.sort_unstable();
    assert_eq!(times(&vfs, 1).unwrap(), expected.iter().map(|(time, _)| *time).collect::<Vec<_>>());
    for (row, (_, number)) in (0..).zip(&expected) {
        assert!(message(&vfs, 1, row).unwrap() == data(1, *number, 100), "{row}");
    }
}

#[test]
fn messages_outside_of_the_times_that_are_stated_fail() {
    let stated = |chunk, first, last| if chunk == 3 { (first, last - 1) } else { (first, last) };
    let (vfs, _folder) = local(&written(6, 100, in_order, stated).bytes);
    assert!(is_indexed(&vfs));
    for number in 0..18 {
        let found = message(&vfs, 0, number);
        match (9..12).contains(&number) {
            true => assert_eq!(found.unwrap_err(), libc::EIO, "{number}"),
            false => assert!(found.unwrap() == data(0, number, 100), "{number}"),
        }
    }
    let problems = vfs.problems();
    assert!(problems.iter().any(|problem| problem.message.contains("the times, that the file states")), "{problems:?}");
}

/// Where the times of all chunks contradict the statistics, or are not given, the indexes are read.
#[test]
fn times_are_not_trusted_where_they_cannot_be_right() {
    for stated in [|_, _, _| (0, 0), |_, first, last| (last, first), |_, _, _| (7, 8)] {
        let (vfs, _folder) = local(&written(6, 100, in_order, stated).bytes);
        assert_eq!(times(&vfs, 0).unwrap(), (0..18).map(in_order).collect::<Vec<_>>());
        assert!(message(&vfs, 0, 17).unwrap() == data(0, 17, 100));
    }
}
