//! Frames of videos, decoded in processes of their own, beside what ffmpeg decodes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use shardfs::{
    Verify,
    cache::{Cache, DiskTierOptions},
    format::mp4::{Track, VideoCodec},
    source::{Source, Unlimited},
    store::MappedFile,
    video,
    view::{Fault, ReadContext, video::Footage},
};

/// Only one test at a time may have decoders that are killed.
static ALONE: Mutex<()> = Mutex::new(());

fn start() -> MutexGuard<'static, ()> {
    // One test takes the program away, so each sets it once it is alone.
    let alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    video::set_program(video::Program {
        // Another build of it, such as one with assembly.
        path: std::env::var_os("SHARDFS").unwrap_or_else(|| env!("CARGO_BIN_EXE_shardfs").into()),
        name: Some("shardfs-video".into()),
        arguments: Vec::new(),
        environment: Vec::new(),
    });
    alone
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/video").join(name)
}

/// A video, and a way to read it, under a number of its own.
fn footage(bytes: Vec<u8>, budget: u64, container: u64) -> Option<(Arc<Footage>, ReadContext)> {
    let source: Arc<dyn Source> = Arc::new(bytes);
    let track = Arc::new(Track::read(&*source, &Unlimited).ok()?);
    let reader = ReadContext::new(source.clone(), Cache::new(budget, Verify::Lazy), container);
    Some((Footage::new(track, source, 0), reader))
}

/// All pixels of a frame.
fn all_pixels(footage: &Footage, reader: &ReadContext, frame: u64) -> Result<Vec<u8>, Fault> {
    let size = footage.track().frame_size();
    let mut all = vec![0; size as usize];
    footage.fill(reader, frame, 0..size, &mut all).map(|()| all)
}

/// The pixels by the formula of the page: BT.601 with the limited range.
fn rgb(planes: &[u8], width: usize, height: usize) -> Vec<u8> {
    let (luma, chroma) = planes.split_at(width * height);
    let (blue, red) = chroma.split_at(width * height / 4);
    let mut out = Vec::new();
    for y in 0..height {
        for x in 0..width {
            let at = y / 2 * (width / 2) + x / 2;
            let luma = (f64::from(luma[y * width + x]) - 16.0) * 255.0 / 219.0;
            let (cb, cr) =
                ((f64::from(blue[at]) - 128.0) * 255.0 / 224.0, (f64::from(red[at]) - 128.0) * 255.0 / 224.0);
            let (r, b) = (luma + 1.402 * cr, luma + 1.772 * cb);
            let g = (luma - 0.299 * r - 0.114 * b) / 0.587;
            out.extend([r, g, b].map(|value| value.round().clamp(0.0, 255.0) as u8));
        }
    }
    out
}

fn check_frames(name: &str, order: &[u64], budget: u64) {
    check_frames_at_once(name, &[order], budget);
}

/// Each order is that of a reader; all read at once.
fn check_frames_at_once(name: &str, orders: &[&[u64]], budget: u64) {
    let planes = fs::read(golden(&format!("{name}.yuv"))).unwrap();
    // Another container each time: decoders remember by its number which video they have open.
    static NUMBER: AtomicU64 = AtomicU64::new(10_000);
    let number = NUMBER.fetch_add(1, Relaxed);
    let (footage, reader) = footage(fs::read(golden(&format!("{name}.mp4"))).unwrap(), budget, number).unwrap();
    let frames: Vec<&[u8]> = planes.chunks(64 * 96).collect();
    assert_eq!(footage.track().frames(), frames.len() as u64);
    let check = |&frame: &u64| {
        let pixels =
            all_pixels(&footage, &reader, frame).unwrap_or_else(|fault| panic!("{name} {frame}: {}", fault.error));
        let expected = rgb(frames[frame as usize], 64, 64);
        let worst = pixels.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).max();
        assert!(pixels.len() == expected.len() && worst <= Some(1), "{name} {frame}: off by {worst:?}");
    };
    thread::scope(|scope| {
        for order in orders {
            scope.spawn(|| order.iter().for_each(check));
        }
    });
}

const FORWARD: [u64; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
const ANY: [u64; 14] = [7, 3, 11, 4, 4, 0, 10, 9, 1, 2, 8, 6, 5, 7];

#[test]
fn frames_of_av1_are_those_of_ffmpeg() {
    let _alone = start();
    assert_eq!(video::check_codec(VideoCodec::Av1), Ok(()));
    for budget in [16 << 20, 200_000] {
        check_frames("av1", &FORWARD, budget);
        check_frames("av1", &ANY, budget);
    }
}

/// Where no libavcodec is installed, the reason says so.
#[test]
fn frames_of_h264_are_those_of_ffmpeg() {
    let _alone = start();
    if let Err(reason) = video::check_codec(VideoCodec::H264) {
        assert_eq!(&*reason, "H.264: needs libavcodec (FFmpeg), which is not installed");
        return;
    }
    for budget in [16 << 20, 200_000] {
        check_frames("h264", &FORWARD, budget);
        check_frames("h264", &ANY, budget);
        check_frames("h264", &[13, 12, 8, 7, 0, 13], budget);
        // Alone, the last frames of a group are all that is left when the decoder ends.
        for order in [&FORWARD[..], &ANY, &[3], &[11], &[11, 3]] {
            check_frames("open_gop", order, budget);
        }
        for name in ["open_gop_of_4", "open_gop_of_6", "open_gop_of_9"] {
            [&FORWARD[..], &ANY].into_iter().for_each(|order| check_frames(name, order, budget));
            (0..12).for_each(|frame| check_frames(name, &[frame], budget));
        }
        let forward: Vec<_> = (0..24).collect();
        // From one group to another, when the first was left half done.
        let across = [14, 2, 23, 9, 8, 7, 6, 5, 20, 0, 19, 18, 17, 16, 15, 21];
        for name in ["open_groups", "intra_refresh"] {
            [&forward[..], &across].into_iter().for_each(|order| check_frames(name, order, budget));
            (0..24).for_each(|frame| check_frames(name, &[frame], budget));
        }
    }
}

/// What fails for one reader's frame may be well for the next one's, which is decoded from another place.
#[test]
fn readers_of_one_group_fail_for_themselves() {
    let _alone = start();
    if video::check_codec(VideoCodec::H264).is_err() {
        return;
    }
    for name in ["open_gop_of_4", "open_gop_of_6", "open_gop_of_9"].repeat(20) {
        check_frames_at_once(name, &[&FORWARD, &ANY, &[11, 10, 9, 8]], 16 << 20);
        check_frames_at_once(name, &[&[7, 8, 9, 10], &FORWARD], 200_000);
    }
}

#[test]
fn codecs_without_a_decoder_have_a_reason() {
    let reason = video::check_codec(VideoCodec::Other(*b"hvc1")).unwrap_err();
    assert_eq!(&*reason, "HEVC: there is no decoder for it");
}

#[test]
fn many_readers_get_the_same_frames() {
    let _alone = start();
    let (footage, reader) = footage(fs::read(golden("av1.mp4")).unwrap(), 16 << 20, 2).unwrap();
    let read = |offset: u64| {
        (0..24).map(|at| all_pixels(&footage, &reader, (at * 5 + offset) % 12).unwrap()).collect::<Vec<_>>()
    };
    let all: Vec<_> = thread::scope(|scope| {
        let readers: Vec<_> = (0..8).map(|offset| scope.spawn(move || read(offset))).collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    for (offset, frames) in all.iter().enumerate() {
        for (at, pixels) in frames.iter().enumerate() {
            let same = (at * 5 + offset) % 12;
            assert!(pixels[..] == all_pixels(&footage, &reader, same as u64).unwrap()[..]);
        }
    }
}

/// The processes of decoders that this one has started.
fn decoders() -> Vec<i32> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some((_, rest)) = stat.rsplit_once(") ") else { continue };
        let fields: Vec<&str> = rest.split(' ').collect();
        if fields[1] == own && fields[0] != "Z" {
            found.push(process);
        }
    }
    found
}

/// Bytes that each decoder has written: pixels, and messages of 16 bytes.
fn written() -> HashMap<i32, u64> {
    let of = |process: i32| {
        let io = fs::read_to_string(format!("/proc/{process}/io")).ok()?;
        let bytes = io.lines().find_map(|line| line.strip_prefix("wchar: "))?;
        Some((process, bytes.trim().parse().ok()?))
    };
    decoders().into_iter().filter_map(of).collect()
}

/// A group of two frames, as LeRobot writes them, is decoded to its end, whoever else waits.
#[test]
fn four_readers_decode_each_frame_once() {
    let _alone = start();
    let bytes = fs::read(golden("av1.mp4")).unwrap();
    for container in 200..210 {
        let (footage, reader) = footage(bytes.clone(), 16 << 20, container).unwrap();
        let track = footage.track().clone();
        assert!((0..12).all(|frame| track.group(frame).unwrap().len() == 2));
        let before = written();
        thread::scope(|scope| {
            for offset in 0..4 {
                let (footage, reader) = (&footage, &reader);
                scope.spawn(move || {
                    (0..12).for_each(|at| drop(all_pixels(footage, reader, (at * 5 + 3 * offset) % 12).unwrap()));
                });
            }
        });
        let after = written();
        let all: u64 = after.iter().map(|(process, bytes)| bytes - before.get(process).unwrap_or(&0)).sum();
        assert_eq!(all / track.frame_size(), 12, "{all} bytes");
    }
}

#[test]
fn a_decoder_that_is_killed_costs_one_request() {
    let _alone = start();
    let bytes = fs::read(golden("av1.mp4")).unwrap();
    let mut container = 100;
    for _ in 0..10 {
        container += 1;
        let (footage, reader) = footage(bytes.clone(), 16 << 20, container).unwrap();
        all_pixels(&footage, &reader, 0).unwrap();
        for process in decoders() {
            let _ = Command::new("kill").args(["-9", &process.to_string()]).status();
        }
        let failed = (2..12).filter(|&frame| all_pixels(&footage, &reader, frame).is_err()).count();
        assert!(failed <= 4, "{failed} requests failed");
        (0..12).for_each(|frame| drop(all_pixels(&footage, &reader, frame).unwrap()));
    }
}

/// It has nothing but its socket, the shared memory and `/dev/null`, and a bound on its memory.
#[test]
fn a_decoder_has_no_files() {
    let _alone = start();
    let (footage, reader) = footage(fs::read(golden("av1.mp4")).unwrap(), 16 << 20, 3).unwrap();
    all_pixels(&footage, &reader, 0).unwrap();
    let decoders = decoders();
    assert!(!decoders.is_empty());
    for process in decoders {
        let proc = PathBuf::from(format!("/proc/{process}"));
        let mut open: Vec<String> = fs::read_dir(proc.join("fd"))
            .unwrap()
            .flatten()
            .map(|entry| fs::read_link(entry.path()).unwrap().to_string_lossy().split(':').next().unwrap().to_owned())
            .collect();
        open.sort_unstable();
        assert_eq!(open, ["/dev/null", "/memfd", "socket"]);
        let status = fs::read_to_string(proc.join("status")).unwrap();
        assert!(status.contains("\nSeccomp:\t2\n") && status.contains("\nThreads:\t1\n"), "{status}");
        let limits = fs::read_to_string(proc.join("limits")).unwrap();
        let address_space = limits.lines().find(|line| line.starts_with("Max address space")).unwrap();
        let most: u64 = address_space.split_whitespace().nth(3).unwrap().parse().unwrap();
        assert!(most < 4 << 30, "{most}");
        assert_eq!(fs::read(proc.join("environ")).unwrap_or_default(), b"");
    }
}

/// Damage is an error of the frames that need it, and the decoder goes on.
#[test]
fn damaged_samples_cost_their_frames_and_nothing_else() {
    let _alone = start();
    let whole = fs::read(golden("av1.mp4")).unwrap();
    let good = footage(whole.clone(), 16 << 20, 4).unwrap();
    let samples = 48..1262usize;
    for (number, at) in samples.step_by(29).enumerate() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        let (footage, reader) = footage(bytes, 16 << 20, 1000 + number as u64).unwrap();
        for frame in 0..12 {
            let (sample, track) = (footage.track().sample_of(frame).unwrap(), footage.track());
            let group = track.group(frame).unwrap();
            let needed = group.start..=sample;
            let is_touched = needed.clone().any(|sample| track.sample(sample).unwrap().stored().contains(&(at as u64)));
            let read = all_pixels(&footage, &reader, frame);
            if !is_touched {
                assert!(read.unwrap()[..] == all_pixels(&good.0, &good.1, frame).unwrap()[..], "{at} {frame}");
            }
        }
    }
}

/// With a disk tier, a second process decodes nothing.
#[test]
fn frames_of_the_disk_tier_need_no_decoder() {
    let _alone = start();
    let folder = tempfile::tempdir().unwrap();
    let options = DiskTierOptions { folder: folder.path().join("tier"), size: 1 << 30, wait: true, all: true };
    let path = folder.path().join("av1.mp4");
    fs::copy(golden("av1.mp4"), &path).unwrap();
    let open = |container| {
        let source: Arc<dyn Source> = Arc::new(MappedFile::open(&path).unwrap());
        let track = Arc::new(Track::read(&*source, &Unlimited).unwrap());
        let cache = Cache::with_disk_tier(16 << 20, Verify::Lazy, options.open(16 << 20).unwrap());
        (Footage::new(track, source.clone(), 0), ReadContext::new(source, cache, container))
    };
    let (footage, reader) = open(6);
    let decoded: Vec<_> = (0..12).map(|frame| all_pixels(&footage, &reader, frame).unwrap()).collect();
    // A reader has its frame before the disk tier does.
    let disk = reader.cache.disk_tier().unwrap().disk();
    let begun = Instant::now();
    while disk.counters().written.load(Relaxed) < 12 {
        assert!(begun.elapsed() < Duration::from_secs(60));
        disk.finish();
        thread::sleep(Duration::from_millis(1));
    }
    for process in decoders() {
        let _ = Command::new("kill").args(["-9", &process.to_string()]).status();
    }
    let nothing =
        video::Program { path: "/nonexistent".into(), name: None, arguments: Vec::new(), environment: Vec::new() };
    video::set_program(nothing);
    let (footage, reader) = open(7);
    for (frame, pixels) in decoded.iter().enumerate().rev() {
        let mut all = vec![0; pixels.len()];
        let size = pixels.len() as u64;
        for part in [0..size, 100..7_000, size - 1..size, 5..5] {
            let out = &mut all[..(part.end - part.start) as usize];
            footage.fill(&reader, frame as u64, part.clone(), out).unwrap();
            assert!(out == &pixels[part.start as usize..part.end as usize], "{frame} {part:?}");
        }
    }
    // Another state of the file has other frames.
    fs::write(&path, fs::read(golden("h264.mp4")).unwrap()).unwrap();
    let (footage, reader) = open(8);
    assert!(footage.fill(&reader, 0, 0..1, &mut [0]).is_err());
}

#[test]
fn samples_outside_the_file_are_errors_of_their_frames() {
    let _alone = start();
    let whole = fs::read(golden("av1.mp4")).unwrap();
    // The media data are in front of the index; the place of the one chunk is moved so that the last samples are outside.
    let at = whole.windows(4).position(|four| four == b"stco").unwrap() + 12;
    let mut bytes = whole.clone();
    bytes[at..at + 4].copy_from_slice(&(whole.len() as u32 - 400).to_be_bytes());
    let (footage, reader) = footage(bytes, 16 << 20, 5).unwrap();
    let error = all_pixels(&footage, &reader, 11).unwrap_err();
    assert!(error.error.to_string().contains("of a file of 2092 bytes"), "{}", error.error);
}
