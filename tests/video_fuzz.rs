//! Damaged videos through the decoder's process: boxes, tables and samples are changed at random, and the process is
//! killed at any time. A few in every run; `scripts/fuzz_video SECONDS` tries others for a time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::{
    collections::BTreeMap,
    env, fs,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use shardfs::{
    Verify,
    cache::Cache,
    format::mp4::{Key, Track},
    source::{Source, Unlimited},
    video,
    view::{Fault, ReadContext, video::Footage},
};

/// Inputs of a run without a time, and the first of its numbers.
const FEW: u64 = 60;
/// Frames that are read of each input.
const FRAMES: u64 = 6;
/// Longest time for one input: a decoder that hangs is ended after 30 s.
const LONGEST: Duration = Duration::from_secs(120);
/// Largest peak of a decoder's memory. The pictures are small; damaged headers may say up to the bound of the process.
const PEAK: u64 = 2 << 30;

/// Random numbers that follow from one number.
struct Random(u64);

impl Random {
    fn new(number: u64) -> Self {
        Self(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// A video, its index, and the pixels of its frames where they can be decoded.
struct Seed {
    name: String,
    bytes: Vec<u8>,
    track: Track,
    frames: Vec<Option<Vec<u8>>>,
}

fn footage(bytes: Vec<u8>, container: u64) -> Option<(Arc<Footage>, ReadContext)> {
    let source: Arc<dyn Source> = Arc::new(bytes);
    let track = Arc::new(Track::read(&*source, &Unlimited).ok()?);
    video::check(&track).ok()?.ok()?;
    let reader = ReadContext::new(source.clone(), Cache::new(16 << 20, Verify::Lazy), container);
    Some((Footage::new(track, source, 0), reader))
}

/// All pixels of a frame.
fn all_pixels(footage: &Footage, reader: &ReadContext, frame: u64) -> Result<Vec<u8>, Fault> {
    let size = footage.track().frame_size();
    let mut all = vec![0; size as usize];
    footage.fill(reader, frame, 0..size, &mut all).map(|()| all)
}

fn seeds() -> Vec<Seed> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut paths = Vec::new();
    let mut folders = vec![golden.join("video"), golden.join("lerobot")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path if path.extension().is_some_and(|suffix| suffix == "mp4") => paths.push(path),
                _ => {}
            }
        }
    }
    paths.sort();
    let seed = |(number, path): (usize, &PathBuf)| {
        let bytes = fs::read(path).unwrap();
        let (footage, reader) = footage(bytes.clone(), 1 << 40 | number as u64)?;
        let track = Track::read(&bytes, &Unlimited).ok()?;
        let frames = (0..track.frames()).map(|frame| all_pixels(&footage, &reader, frame).ok()).collect();
        Some(Seed { name: path.strip_prefix(&golden).unwrap().to_string_lossy().into_owned(), bytes, track, frames })
    };
    let seeds: Vec<_> = paths.iter().enumerate().filter_map(seed).collect();
    assert!(seeds.len() > 3, "too few videos can be decoded");
    seeds
}

/// Changes a video. Returns the places of changed bytes if all others are where they were.
fn mutate(random: &mut Random, bytes: &mut Vec<u8>, seed: &Seed, other: &Seed) -> Option<Vec<usize>> {
    let samples: Vec<_> = (0..).map_while(|sample| seed.track.sample(sample)).map(|sample| sample.stored()).collect();
    let mut changed = Vec::new();
    let mut is_in_place = true;
    for _ in 0..=random.below(4) {
        // Half of all changes hit the bytes of a sample, mostly their first ones, which are headers.
        let within = match samples.get(random.below(samples.len() * 2)) {
            Some(sample) => sample.start as usize..sample.end as usize,
            None => 0..bytes.len(),
        };
        let within = within.start.min(bytes.len())..within.end.min(bytes.len());
        let length = if random.below(3) == 0 { within.len().min(24) } else { within.len() };
        let at = within.start + random.below(length);
        let mut put = |bytes: &mut Vec<u8>, at: usize, new: &[u8]| {
            for (at, new) in (at..).zip(new) {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = *new;
                    changed.push(at);
                }
            }
        };
        match random.below(8) {
            0 | 1 => {
                let flipped = bytes.get(at).map_or(0, |byte| byte ^ 1 << random.below(8));
                put(bytes, at, &[flipped]);
            }
            2 => put(bytes, at, &[random.next() as u8]),
            3 => put(bytes, at, &(random.next() as u32).to_be_bytes()),
            4 => {
                let telling = [0, 1, 0x7FFF_FFFF, 0x8000_0000, u32::MAX, 0xFFFF, bytes.len() as u32];
                put(bytes, at, &telling[random.below(telling.len())].to_be_bytes());
            }
            5 => {
                let from = random.below(bytes.len());
                let piece = bytes[from..(from + random.below(64)).min(bytes.len())].to_vec();
                put(bytes, at, &piece);
            }
            6 => {
                let from = random.below(other.bytes.len());
                let piece = &other.bytes[from..(from + random.below(256)).min(other.bytes.len())];
                put(bytes, at, piece);
            }
            _ => {
                is_in_place = false;
                match random.below(3) {
                    0 => bytes.truncate(at),
                    1 => drop(bytes.drain(at..(at + random.below(16)).min(bytes.len()))),
                    _ => drop(bytes.splice(at..at, (0..random.below(16)).map(|byte| byte as u8))),
                }
            }
        }
    }
    is_in_place.then_some(changed)
}

/// The processes that this one has started: number, and peak of memory in bytes.
fn decoders() -> Vec<(u32, u64)> {
    let own = format!("\nPPid:\t{}\n", std::process::id());
    let process = |entry: fs::DirEntry| {
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        let number = entry.file_name().to_str()?.parse().ok()?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let peak: u64 = peak.trim().trim_end_matches(" kB").parse().ok()?;
        status.contains(&own).then_some((number, peak * 1024))
    };
    fs::read_dir("/proc").unwrap().flatten().filter_map(process).collect()
}

fn kill(process: u32) {
    let mut command = std::process::Command::new("kill");
    // It may have ended meanwhile.
    let _ = command.args(["-9", &process.to_string()]).stderr(std::process::Stdio::null()).status();
}

#[derive(Default)]
struct Counts {
    inputs: u64,
    no_video: u64,
    frames: u64,
    errors: u64,
    lost: u64,
    /// How processes ended, by what is told.
    ends: BTreeMap<String, u64>,
    slowest: Duration,
    kills: AtomicU64,
    peak: AtomicU64,
}

impl Counts {
    fn show(&self, since: Instant) {
        println!(
            "{} s: {} inputs, {} with an index that is refused; {} frames, {} errors of frames, of them {} by a process \
             that ended; {} processes killed; slowest input {:.2} s, largest peak of a process {} MiB",
            since.elapsed().as_secs(),
            self.inputs,
            self.no_video,
            self.frames,
            self.errors,
            self.lost,
            self.kills.load(Relaxed),
            self.slowest.as_secs_f64(),
            self.peak.load(Relaxed) >> 20,
        );
        for (end, count) in &self.ends {
            println!("  {count} × {end}");
        }
    }
}

/// Kills a decoder now and then, and notes their memory, until the end.
fn watch(counts: &Counts, is_over: &AtomicBool, kill_every: Duration) {
    let mut random = Random::new(1);
    let mut last = Instant::now();
    while !is_over.load(Relaxed) {
        thread::sleep(Duration::from_millis(20 + random.next() % 20));
        let decoders = decoders();
        for (_, peak) in &decoders {
            counts.peak.fetch_max(*peak, Relaxed);
        }
        if last.elapsed() > kill_every
            && let Some((process, _)) = decoders.get(random.below(decoders.len()))
        {
            kill(*process);
            counts.kills.fetch_add(1, Relaxed);
            last = Instant::now();
        }
    }
}

/// Reads one damaged video. Frames that need no changed byte have the pixels of the whole one.
fn check_one(number: u64, seeds: &[Seed], counts: &mut Counts, may_be_killed: bool) {
    let mut random = Random::new(number);
    let (seed, other) = (&seeds[random.below(seeds.len())], &seeds[random.below(seeds.len())]);
    let mut bytes = seed.bytes.clone();
    let changed = mutate(&mut random, &mut bytes, seed, other);
    counts.inputs += 1;
    let start = Instant::now();
    let Some((footage, reader)) = footage(bytes, number) else {
        counts.no_video += 1;
        return;
    };
    let first_sample = (0..).map_while(|sample| seed.track.sample(sample)).map(|sample| sample.stored().start).min();
    let last_sample = (0..).map_while(|sample| seed.track.sample(sample)).map(|sample| sample.stored().end).max();
    let media = first_sample.unwrap_or(0) as usize..last_sample.unwrap_or(0) as usize;
    let frames = footage.track().frames();
    for _ in 0..FRAMES.min(frames) {
        let frame = random.next() % frames;
        let read = all_pixels(&footage, &reader, frame);
        counts.frames += 1;
        let reason = read.as_ref().err().map(|fault| fault.error.to_string());
        let lost = reason.filter(|reason| reason.contains("process ended"));
        counts.errors += u64::from(read.is_err());
        counts.lost += u64::from(lost.is_some());
        let is_lost = lost.is_some();
        *lost.map_or(&mut 0, |end| counts.ends.entry(end).or_default()) += 1;
        // Boxes that are as they were, and samples of this frame's group that are as they were.
        let Some(changed) = changed.as_ref().filter(|changed| changed.iter().all(|at| media.contains(at))) else {
            continue;
        };
        let is_touched = |samples: Range<u32>| {
            samples.filter_map(|sample| seed.track.sample(sample)).any(|sample| {
                let stored = sample.stored();
                changed.iter().any(|at| stored.contains(&(*at as u64)))
            })
        };
        let group = seed.track.group(frame).unwrap();
        let key = seed.track.sample(group.start).map(|sample| sample.stored()).unwrap();
        // A key picture may need pictures before it.
        let needed = match seed.track.key_of(&seed.bytes[key.start as usize..key.end as usize]) {
            Key::Part => 0..group.end,
            _ => group.clone(),
        };
        if is_touched(needed) || is_lost && may_be_killed {
            continue;
        }
        match (&read, &seed.frames[frame as usize]) {
            (Ok(pixels), Some(whole)) => {
                assert!(pixels[..] == whole[..], "input {number} ({}): frame {frame}", seed.name)
            }
            (Err(_), None) => {}
            // What libavcodec does not decode from the group's own key frame needs samples before it.
            (Err(_), Some(_)) if is_touched(0..group.start) => {}
            (Ok(_), None) => panic!("input {number} ({}): a frame {frame} that the whole video has not", seed.name),
            (Err(fault), Some(_)) => panic!("input {number} ({}): frame {frame}: {}", seed.name, fault.error),
        }
    }
    let took = start.elapsed();
    assert!(took < LONGEST, "input {number} ({}) took {took:?}", seed.name);
    counts.slowest = counts.slowest.max(took);
}

#[test]
fn damaged_videos_cost_their_frames_and_nothing_else() {
    video::set_program(video::Program {
        path: env::var_os("SHARDFS").unwrap_or_else(|| env!("CARGO_BIN_EXE_shardfs").into()),
        name: Some("shardfs-video".into()),
        arguments: Vec::new(),
        environment: Vec::new(),
    });
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = number("FUZZ_VIDEO_SECONDS").map(Duration::from_secs);
    let first = number("FUZZ_VIDEO_FIRST").unwrap_or(0);
    let seeds = seeds();
    let (start, mut shown) = (Instant::now(), Instant::now());
    let mut counts = Counts::default();
    let watched = Arc::new(Counts::default());
    let is_over = Arc::new(AtomicBool::new(false));
    // A short run kills nothing: which request loses its process depends on the time.
    let watcher = seconds.map(|_| {
        let (watched, is_over) = (watched.clone(), is_over.clone());
        thread::spawn(move || watch(&watched, &is_over, Duration::from_millis(700)))
    });
    for input in first.. {
        let is_done = seconds.map_or(input >= first + FEW, |seconds| start.elapsed() > seconds);
        if is_done {
            break;
        }
        check_one(input, &seeds, &mut counts, seconds.is_some());
        if shown.elapsed() > Duration::from_secs(60) {
            counts.kills = watched.kills.load(Relaxed).into();
            counts.peak = watched.peak.load(Relaxed).into();
            counts.show(start);
            shown = Instant::now();
        }
    }
    is_over.store(true, Relaxed);
    watcher.map(thread::JoinHandle::join);
    for (_, peak) in decoders() {
        watched.peak.fetch_max(peak, Relaxed);
    }
    counts.kills = watched.kills.load(Relaxed).into();
    counts.peak = watched.peak.load(Relaxed).into();
    counts.show(start);
    assert!(counts.peak.load(Relaxed) < PEAK, "a process took {} bytes", counts.peak.load(Relaxed));
    // The next whole video is decoded as ever.
    for (at, seed) in seeds.iter().enumerate() {
        let (footage, reader) = footage(seed.bytes.clone(), 2 << 40 | at as u64).unwrap();
        for (frame, whole) in (0..).zip(&seed.frames) {
            let pixels = all_pixels(&footage, &reader, frame).ok();
            assert!(pixels.as_ref().map(|all| &all[..]) == whole.as_ref().map(|all| &all[..]), "{} {frame}", seed.name);
        }
    }
}
