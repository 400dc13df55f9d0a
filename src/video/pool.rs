//! Schedules the decoding of frames: a few threads, each with its own process, decode groups of pictures.
//!
//! One thread decodes a group for all readers. It puts each complete frame into the cache, and into the disk tier if
//! there is one, and wakes the readers that wait for it. While no other job waits, the thread continues to the end of the
//! group, or some frames further if a reader goes through the video.

use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    io,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use sha2::{Digest, Sha256};

use super::{
    process::{Failure, Pixels, Process},
    protocol::PAYLOAD,
};
use crate::{
    cache::{BlockError, Buffer, Cache, KeptName, Key, Tag},
    format::mp4::{Key as KeyPicture, Track, VideoCodec},
    per_process::PerProcess,
    single_flight::SingleFlight,
    source::{Source, SourceError},
    wanted,
};

/// How long an idle process is kept.
const IDLE: Duration = Duration::from_secs(10);
/// How often a waiting reader checks that its request is still wanted.
const LOOK: Duration = Duration::from_millis(100);
/// Most frames that are decoded after the wanted one, and the largest fraction (1/n) of the cache's budget that they
/// may take.
const AHEAD: u64 = 16;
const AHEAD_PART: u64 = 16;
/// What frames in the disk tier are called, with the version of their names.
const FRAME_KIND: &str = "frame of a video 1";
/// Most frames of H.264 that are decoded before the first of them is shown.
const REORDERED: u32 = 16;
/// From how many samples before a group decoding is tried, at most.
const BEFORE: u32 = 2048;
/// How often a reader starts again because its frame was evicted before it was taken.
const TRIES: usize = 8;

/// A frame that is wanted.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) track: Arc<Track>,
    pub(crate) source: Arc<dyn Source>,
    pub(crate) cache: Arc<Cache>,
    /// The container's number in the cache, and the video's in the container.
    pub(crate) container: u64,
    pub(crate) video: u64,
    pub(crate) frame: u64,
    /// Whether a reader has read the frames before it in order.
    pub(crate) is_next: bool,
}

/// A group of pictures: container, video, and the sample at which it begins.
type Group = (u64, u64, u32);

impl Wanted {
    /// Returns the cache's key of a frame of the same video.
    pub(crate) fn key(&self, frame: u64) -> Key {
        Key::new(self.container, Tag::Chunk, self.video, frame)
    }

    fn ready(&self, frame: u64) -> Option<Result<Arc<Buffer>, Arc<BlockError>>> {
        self.cache.get(self.key(frame))?.map(|parts| parts.into_iter().next()).transpose()
    }

    /// Fills `out` with the frame's pixels from byte `at` on, if the disk tier has the frame. Otherwise `out` holds
    /// anything. What is read this way is not put into memory: the kernel keeps files.
    pub(crate) fn read_spilled(&self, at: u64, out: &mut [u8]) -> bool {
        let size = self.track.frame_size();
        let read = |name: &KeptName<'_>| self.cache.read_spilled_block(&*self.source, name, size, at, out);
        self.on_disk(self.frame, read).unwrap_or(false)
    }

    /// Gives `use_name` what names a frame of the video in every process, if there is a disk tier. It is made of the bytes
    /// from the first sample of its group of pictures to the last.
    fn on_disk<T>(&self, frame: u64, use_name: impl FnOnce(&KeptName<'_>) -> T) -> Option<T> {
        self.cache.disk_tier()?;
        let (track, own) = (&self.track, self.track.sample_of(frame)?);
        let group = track.group(frame)?;
        let stored = track.sample(own)?.stored();
        let mut from = stored.clone();
        for sample in [group.start, group.end.checked_sub(1)?] {
            let stored = track.sample(sample)?.stored();
            from = from.start.min(stored.start)..from.end.max(stored.end);
        }
        let (width, height) = track.size();
        let numbers = [frame, own.into(), group.start.into(), group.end.into(), stored.start, stored.end];
        let mut name = Sha256::digest(track.configuration()).to_vec();
        name.extend(numbers.into_iter().chain([width, height].map(u64::from)).flat_map(u64::to_le_bytes));
        let is_there = from.end <= self.source.len();
        is_there.then(|| use_name(&KeptName { kind: FRAME_KIND, name: &name, from }))
    }

    fn group(&self) -> Result<Group, Arc<BlockError>> {
        match self.track.group(self.frame) {
            Some(samples) => Ok((self.container, self.video, samples.start)),
            None if self.frame < self.track.frames() => Err(refused("no key frame comes before this frame")),
            None => Err(refused("the video has no such frame")),
        }
    }

    /// Returns how many frames may be decoded after the wanted one.
    fn ahead(&self) -> u64 {
        let (budget, _) = self.cache.usage();
        AHEAD.min(budget / AHEAD_PART / self.track.frame_size().max(1))
    }
}

fn refused(reason: &str) -> Arc<BlockError> {
    Arc::new(BlockError::Refused(reason.to_owned()))
}

/// A frame that is being decoded, with others of its group.
struct Job {
    wanted: Wanted,
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Default)]
struct Progress {
    /// The wanted frame.
    frame: Option<Arc<Buffer>>,
    /// Set when no more frames will come.
    end: Option<Result<(), Arc<BlockError>>>,
}

impl Job {
    fn new(wanted: Wanted) -> Arc<Self> {
        Arc::new(Self { wanted, progress: Mutex::default(), changed: Condvar::new() })
    }

    /// Waits for a frame; `None` if the job has ended and the frame is not kept. A failure is that of the job's own frame:
    /// others of the group may be decoded from another place.
    fn wait(&self, frame: u64) -> Option<Result<Arc<Buffer>, Arc<BlockError>>> {
        let mut progress = self.progress.lock();
        loop {
            if let Some(pixels) = progress.frame.clone().filter(|_| frame == self.wanted.frame) {
                return Some(Ok(pixels));
            }
            if let Some(ready) = self.wanted.ready(frame) {
                return Some(ready);
            }
            match &progress.end {
                Some(_) if frame != self.wanted.frame => return None,
                Some(Err(error)) => return Some(Err(error.clone())),
                Some(Ok(())) => return Some(Err(refused("the video ends before it"))),
                None => {}
            }
            if let Err(error) = wanted::check() {
                return Some(Err(Arc::new(SourceError::from(error).into())));
            }
            self.changed.wait_for(&mut progress, LOOK);
        }
    }

    fn has_frame(&self) -> bool {
        self.progress.lock().frame.is_some()
    }

    fn has_failed(&self) -> bool {
        matches!(self.progress.lock().end, Some(Err(_)))
    }
}

/// The threads of one process of this program.
#[derive(Default)]
struct Pool {
    state: Mutex<State>,
    work: Condvar,
    /// Whether AV1 and H.264 can be decoded, if known.
    known: [SingleFlight<Result<(), Arc<str>>>; 2],
}

#[derive(Default)]
struct State {
    queue: VecDeque<Arc<Job>>,
    /// The jobs that are queued or running, by the group that they decode.
    groups: HashMap<Group, Arc<Job>>,
    threads: usize,
    idle: usize,
}

/// Returns the threads of this process.
fn pool() -> &'static Pool {
    static POOL: PerProcess<Pool> = PerProcess::new();
    let Ok(pool) = POOL.get_or_try_init(|| Ok::<_, Infallible>(Pool::default()));
    pool
}

/// Returns whether a codec can be decoded. Tries it only once.
pub(super) fn check(codec: VideoCodec) -> Result<Result<(), Arc<str>>, SourceError> {
    let [av1, h264] = &pool().known;
    let known = if codec == VideoCodec::Av1 { av1 } else { h264 };
    let start = || Process::start(codec, 0);
    let again = |failure| if matches!(failure, Failure::Short(_)) { start() } else { Err(failure) };
    let tried = known.get_or_try_init(|| match start().or_else(again) {
        Ok(_) => Ok(Ok(())),
        Err(Failure::Refused(reason)) => Ok(Err(reason.into())),
        // Not remembered, because it may succeed the next time.
        Err(failure) => Err(failure),
    });
    tried.or_else(|failure| match failure {
        Failure::Refused(reason) | Failure::Lost(reason) => Ok(Err(reason.into())),
        Failure::Short(reason) => Err(io::Error::other(reason).into()),
    })
}

/// Returns the pixels of a frame, and decodes them unless the cache has them.
///
/// # Errors
/// [`BlockError`]. A failure is not remembered.
pub(crate) fn decode(wanted: &Wanted) -> Result<Arc<Buffer>, Arc<BlockError>> {
    let group = wanted.group()?;
    let mut tries = 0;
    while tries < TRIES {
        if let Some(ready) = wanted.ready(wanted.frame) {
            return ready;
        }
        let job = pool().job(group, wanted)?;
        if let Some(done) = job.as_ref().and_then(|job| job.wait(wanted.frame)) {
            return done;
        }
        tries += usize::from(!job.is_some_and(|job| job.has_failed()));
    }
    Err(refused("the cache is too small for the frames that are read; a larger --cache-size helps"))
}

/// Starts to decode the frames from the wanted one on that the cache does not have, unless there is other work.
pub(crate) fn decode_ahead(wanted: &Wanted) {
    if let (Ok(group), true) = (wanted.group(), wanted.ahead() > 0) {
        let pool = pool();
        if pool.state.lock().queue.is_empty() {
            // Nobody waits for it.
            let _ = pool.job(group, wanted);
        }
    }
}

impl Pool {
    /// Returns the job that decodes a group. Starts one if there is none; `None` if the cache has the frame by now.
    fn job(&'static self, group: Group, wanted: &Wanted) -> Result<Option<Arc<Job>>, Arc<BlockError>> {
        let mut state = self.state.lock();
        if let Some(job) = state.groups.get(&group) {
            return Ok(Some(job.clone()));
        }
        // A job may have ended since the cache was asked.
        if wanted.ready(wanted.frame).is_some() {
            return Ok(None);
        }
        let job = Job::new(wanted.clone());
        if state.idle <= state.queue.len() && state.threads < most_threads() {
            let started = thread::Builder::new().name("video".into()).spawn(|| self.run());
            match started {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => {
                    let reason = format!("a thread for its decoder cannot be started: {error}");
                    return Err(Arc::new(SourceError::from(io::Error::other(reason)).into()));
                }
                Err(_) => {}
            }
        }
        state.groups.insert(group, job.clone());
        state.queue.push_back(job.clone());
        self.work.notify_one();
        Ok(Some(job))
    }

    /// Decodes until there is nothing to do.
    fn run(&'static self) {
        let mut decoder = Decoder::default();
        while let Some(job) = self.next(&decoder) {
            // After a panic, the job fails and its process is dropped.
            let done = catch_unwind(AssertUnwindSafe(|| decoder.decode(&job, self)));
            let end = done.unwrap_or_else(|_| {
                decoder = Decoder::default();
                Err(refused("an error in the program itself; see the log"))
            });
            if end.is_err() {
                (decoder.video, decoder.place) = (None, None);
            }
            self.state.lock().groups.retain(|_, other| !Arc::ptr_eq(other, &job));
            job.progress.lock().end = Some(end);
            job.changed.notify_all();
        }
    }

    /// Waits for a job. Prefers one that continues where the decoder is. Returns `None` if no job comes.
    fn next(&self, decoder: &Decoder) -> Option<Arc<Job>> {
        let mut state = self.state.lock();
        loop {
            let fitting = state.queue.iter().position(|job| decoder.can_go_on(&job.wanted));
            if let Some(job) = state.queue.remove(fitting.unwrap_or(0)) {
                return Some(job);
            }
            state.idle += 1;
            let waited = self.work.wait_for(&mut state, IDLE);
            state.idle -= 1;
            if waited.timed_out() && state.queue.is_empty() {
                state.threads -= 1;
                return None;
            }
        }
    }

    /// Takes one more group for a job. Returns `false` if another job has it.
    fn take(&self, group: Group, job: &Arc<Job>) -> bool {
        let mut state = self.state.lock();
        let owner = state.groups.entry(group).or_insert_with(|| job.clone());
        Arc::ptr_eq(owner, job)
    }

    fn has_work(&self) -> bool {
        !self.state.lock().queue.is_empty()
    }
}

fn most_threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// A process, and its place in a video.
#[derive(Default)]
struct Decoder {
    process: Option<Process>,
    /// The video that is open: container and number.
    video: Option<(u64, u64)>,
    /// The place in a group that is not decoded to its end.
    place: Option<Place>,
}

struct Place {
    group: Group,
    /// The sample that comes next.
    next: u32,
    /// The last frame that it returned.
    last: Option<u64>,
    /// How long its samples took.
    took: Duration,
    /// What decoding began with, once it has.
    key: Option<KeyPicture>,
}

impl Decoder {
    /// Returns whether the frame comes after those of its group that were decoded.
    fn can_go_on(&self, wanted: &Wanted) -> bool {
        self.place.as_ref().is_some_and(|place| {
            wanted.group().is_ok_and(|group| group == place.group) && place.last.is_none_or(|last| wanted.frame > last)
        })
    }

    /// Decodes the wanted frame and those that come with it.
    fn decode(&mut self, job: &Arc<Job>, pool: &Pool) -> Result<(), Arc<BlockError>> {
        let wanted = &job.wanted;
        let last = wanted.frame.saturating_add(wanted.ahead()).min(wanted.track.frames() - 1);
        let mut frame = wanted.frame;
        loop {
            let group = wanted.track.group(frame).ok_or_else(|| refused("no key frame comes before this frame"))?;
            let mut done = self.decode_group(job, pool, group.start, &group, last);
            let is_short = matches!(&done, Err(error) if matches!(**error, BlockError::Source(_)));
            // Its process ended: one more try, in another one.
            if is_short && self.process.as_mut().is_some_and(|process| !process.is_for(&wanted.track)) {
                done = self.decode_group(job, pool, group.start, &group, last);
            }
            let is_done = self.decode_from_before(job, pool, &group, last, done)?;
            if !is_done || !wanted.is_next {
                return Ok(());
            }
            // The first frame after the group in the order of times, which belongs to the next group.
            frame = match group.end.checked_sub(1).and_then(|sample| wanted.track.frame_of(sample)) {
                Some(last_of_group) => last_of_group.max(frame) + 1,
                None => return Ok(()),
            };
            let is_on = frame <= last && wanted.ready(frame).is_none();
            let next = wanted.track.group(frame).map(|samples| (wanted.container, wanted.video, samples.start));
            if !is_on || !next.is_some_and(|next| pool.take(next, job)) {
                return Ok(());
            }
        }
    }

    /// Decodes a group again, from earlier key pictures on, and returns what came of that; `done` if there is nothing to
    /// try. Unless a group begins with an IDR picture, libavcodec 59 drops the frames that are left at the end until it
    /// has shown one, and refuses samples that name frames before the group as no longer needed.
    fn decode_from_before(
        &mut self,
        job: &Arc<Job>,
        pool: &Pool,
        group: &Range<u32>,
        last: u64,
        mut done: Result<bool, Arc<BlockError>>,
    ) -> Result<bool, Arc<BlockError>> {
        let track = &job.wanted.track;
        let is_done = |done: &Result<bool, Arc<BlockError>>| match done {
            Ok(is_whole) => !is_whole || job.has_frame(),
            Err(error) => matches!(**error, BlockError::Source(_)) || job.has_frame(),
        };
        let mut before = REORDERED;
        while before <= BEFORE && !is_done(&done) {
            let earlier = track.key_before(group.start.saturating_sub(before)).filter(|from| *from < group.start);
            let Some(from) = earlier else { break };
            if track.key_of(&stored(&job.wanted, group.start)?) == KeyPicture::Idr {
                break;
            }
            done = self.decode_group(job, pool, from, group, last);
            before = if from == 0 { break } else { (group.start - from) * 2 };
        }
        done
    }

    /// Decodes the samples of a group until all are done (returns `true`), or enough. Decoding begins at sample `from`, a
    /// key picture at or before the group. Frames that may be made of others that were not decoded are not kept.
    fn decode_group(
        &mut self,
        job: &Arc<Job>,
        pool: &Pool,
        from: u32,
        samples: &Range<u32>,
        last: u64,
    ) -> Result<bool, Arc<BlockError>> {
        let wanted = &job.wanted;
        let group = (wanted.container, wanted.video, samples.start);
        let mut place = match self.place.take() {
            Some(place)
                if place.group == group && place.last.is_none_or(|last| job.has_frame() || wanted.frame > last) =>
            {
                place
            }
            _ => {
                self.open(wanted)?;
                Place { group, next: from, last: None, took: Duration::ZERO, key: None }
            }
        };
        let Some(process) = &mut self.process else { return Err(refused("no decoder")) };
        let is_leading = |sample| sample < samples.start || wanted.track.is_leading(sample, samples.start);
        while place.next < samples.end {
            // A group that is half done is finished: its frames would otherwise be decoded again for their readers.
            let is_long = samples.end - place.next > place.next.saturating_sub(samples.start);
            let is_enough = place.last.is_some_and(|shown| shown >= last) || is_long && pool.has_work();
            if job.has_frame() && is_enough {
                self.place = Some(place);
                return Ok(false);
            }
            let bytes = stored(wanted, place.next)?;
            let start = Instant::now();
            let before = place.took;
            let key = *place.key.get_or_insert_with(|| wanted.track.key_of(&bytes));
            if key == KeyPicture::Part {
                return Err(refused("no picture before it from which decoding can begin"));
            }
            let is_forgiven = key == KeyPicture::Open && is_leading(place.next);
            process.decode(place.next, is_forgiven, bytes, &mut |sample, pixels| {
                place.took = before + start.elapsed();
                if !is_leading(sample) {
                    place.last = keep(job, sample, pixels, place.took).or(place.last);
                }
            })?;
            place.next += 1;
        }
        // AV1 returns each frame with its sample.
        if wanted.track.codec() != VideoCodec::Av1 {
            self.video = None;
            let start = Instant::now();
            process.finish(&mut |sample, pixels| {
                if !is_leading(sample) {
                    keep(job, sample, pixels, place.took + start.elapsed());
                }
            })?;
        }
        Ok(true)
    }

    /// Makes a process ready for the first sample of a group.
    fn open(&mut self, wanted: &Wanted) -> Result<(), Arc<BlockError>> {
        let track = &wanted.track;
        if !self.process.as_mut().is_some_and(|process| process.is_for(track)) {
            (self.process, self.video) = (None, None);
            self.process = Some(Process::start(track.codec(), track.frame_size())?);
        }
        let video = Some((wanted.container, wanted.video));
        // A key frame of AV1 does not depend on what was decoded before it, so the video need not be opened again.
        if (self.video != video || track.codec() != VideoCodec::Av1)
            && let Some(process) = &mut self.process
        {
            self.video = None;
            process.open(track)?;
            self.video = video;
        }
        Ok(())
    }
}

/// Returns the bytes of a sample.
fn stored(wanted: &Wanted, number: u32) -> Result<Vec<u8>, Arc<BlockError>> {
    let sample = wanted.track.sample(number).ok_or_else(|| refused("the video has no such sample"))?;
    let (stored, length) = (sample.stored(), wanted.source.len());
    if sample.size > PAYLOAD {
        return Err(refused(&format!("sample {number} has {} bytes", sample.size)));
    }
    if stored.end > length {
        let (start, end) = (stored.start, stored.end);
        return Err(refused(&format!("sample {number} is at {start}..{end} of a file of {length} bytes")));
    }
    wanted.source.read(stored).map_err(|error| Arc::new(error.into()))
}

/// Keeps a frame for its readers. Returns its number. `took` is how long its group took to decode up to this frame: what a
/// reader waits for who wants it alone.
fn keep(job: &Job, sample: u32, pixels: &Pixels<'_>, took: Duration) -> Option<u64> {
    let wanted = &job.wanted;
    let frame = wanted.track.frame_of(sample)?;
    let size = wanted.track.frame_size();
    let is_wanted = frame == wanted.frame;
    if !is_wanted && wanted.ready(frame).is_some() {
        return Some(frame);
    }
    let room = match is_wanted {
        // Waiting for memory is safe: the reader holds none while it waits.
        true => wanted.cache.reserve(size).ok(),
        false => wanted.cache.try_reserve(size),
    };
    let copied = room.and_then(|room| {
        let mut buffer = Buffer::used(usize::try_from(size).ok()?, room).ok()?;
        pixels.copy_to(&mut buffer).ok()?;
        Some(wanted.cache.insert(wanted.key(frame), buffer))
    });
    if let Some(copied) = copied {
        let mut progress = job.progress.lock();
        if is_wanted {
            progress.frame = Some(copied.clone());
        }
        job.changed.notify_all();
        drop(progress);
        wanted.on_disk(frame, |name| wanted.cache.spill_block(&*wanted.source, name, copied, took));
    }
    Some(frame)
}
