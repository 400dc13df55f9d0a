//! `shardfs export`: the pictures of a camera as a video, made by ffmpeg.
//!
//! The pictures are found as a mount shows them, in a folder of numbered files, so every format that has such folders can
//! be exported.

mod frames;

use std::{
    fs::File,
    io::{self, Read, Write},
    os::{fd::AsRawFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::{self, Child, Stdio},
    thread,
};

use anyhow::{Context, anyhow, bail};
use clap::{Args, builder::NonEmptyStringValueParser};
use indicatif::ProgressBar;

use crate::{
    cli::{Destination, Interrupt, Place, ViewOptions, counted, log_to_stderr, one_line, progress, stdout},
    programs,
    volume::Entry,
};
use frames::{Camera, Frame, Pixels};

/// Most bytes that are kept of what ffmpeg says.
const SAID: u64 = 64 << 10;

/// Most frames of a video for each picture that is there.
const GAPS: u64 = 100;

/// Make a video of a camera's pictures, with ffmpeg
///
/// The pictures are piped to ffmpeg, which has to be installed. A step without a picture gets the one before it, or else
/// the first one, so that times stay right. The video is written under a temporary name and is there when it is whole.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shardfs export ep_001.wshard --mp4 cam0
  shardfs export demo.kdb/episodes/1 --mp4 front -o pick.mp4
  shardfs export robot.h5/data/demo_0 --mp4 obs/agentview_image --fps 20

Exit codes: 0 success, 1 the video could not be made, 2 a wrong command line.")]
pub(in crate::cli) struct Arguments {
    /// A container with pictures over time, or a folder in one, such as an episode
    #[arg(value_name = "PATH")]
    path: PathBuf,

    /// The camera: its name, the name of a topic with pictures, or the path of the folder of its pictures below PATH
    #[arg(long, value_name = "CAMERA", required = true, value_parser = NonEmptyStringValueParser::new())]
    mp4: String,

    /// The video [default: named after container, folder and camera, in the current folder]
    #[arg(short, long, value_name = "FILE", value_parser = crate::cli::local())]
    output: Option<PathBuf>,

    /// Frames a second [default: what the container states]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    fps: Option<f64>,

    /// Print only failures
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    view: ViewOptions,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| is_rate(*rate));
    rate.ok_or_else(|| "not a number above 0 and up to 1000".into())
}

/// Returns whether a video can have so many frames a second.
fn is_rate(rate: f64) -> bool {
    (1e-3..=1e3).contains(&rate)
}

pub(in crate::cli) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    log_to_stderr("error");
    let path = &arguments.path;
    let place = Place::find(path, arguments.view.checked())?;
    if !place.entry.is_folder() || !place.entry.is_inside() {
        bail!("{}: neither a container nor a folder in one", path.display());
    }
    let top = episode(&place.entry, path)?;
    let camera = frames::find(&top, &arguments.mp4).with_context(|| path.display().to_string())?;
    let (mut stated, mut steps) = (None, None);
    // Topics of a recording have rates and steps of their own.
    for place in Path::new(&camera.path).ancestors() {
        let folder = if place == Path::new("") { top.clone() } else { top.get(place)? };
        if let Some(timeline) = folder.timeline()? {
            stated = stated.or(timeline.rate.filter(|rate| is_rate(*rate)));
            steps = steps.or(timeline.steps);
        }
    }
    // Stated periods are rounded; a video's rate has few digits.
    let rate = arguments.fps.or(stated.map(|rate| (rate * 1e4).round() / 1e4));
    let Some(rate) = rate else {
        bail!("{}: frames a second are not stated; give them with --fps", path.display());
    };
    let output = arguments.output.clone().unwrap_or_else(|| name_of(&top, &camera).into());
    let shown = || output.display().to_string();
    let (to, name) = Destination::of_file(&output).with_context(shown)?;
    let exists = || anyhow!("{}: exists; remove it or choose another name with -o", output.display());
    if to.stat(&name).with_context(shown)?.is_some() {
        return Err(exists());
    }
    let mut ffmpeg = match programs::command("ffmpeg") {
        Ok(ffmpeg) => ffmpeg,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("ffmpeg is not in PATH; install it, for example with: apt-get install ffmpeg")
        }
        Err(error) => return Err(error.into()),
    };
    let interrupt = Interrupt::new();
    let style = "{pos} of {len} frames  {per_sec}  {eta} left  {wide_bar}";
    let bar = progress::bar(arguments.quiet, camera.frames.len() as u64, style);
    let in_path = || path.display().to_string();
    check_gaps(&camera.frames, steps).with_context(in_path)?;
    let first = frames::read(&camera.frames[0]).with_context(in_path)?;
    ffmpeg
        .args(["-hide_banner", "-loglevel", "error", "-xerror", "-nostdin", "-f", "rawvideo", "-pix_fmt", "rgb24"])
        .args(["-video_size", &format!("{}x{}", first.width, first.height), "-framerate", &rate.to_string()])
        // Players expect colours of half the resolution, which needs even sides.
        .args(["-i", "pipe:0", "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p"])
        .args(["-movflags", "+faststart", "-f", "mp4", "-y"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // Signals are for this process, which ends the other one.
        .process_group(0);
    let mut repeated = 0;
    let fill = |file: &File| -> anyhow::Result<bool> {
        let process = ffmpeg.arg(format!("/proc/{}/fd/{}", process::id(), file.as_raw_fd())).spawn();
        let mut process = Running(process.context("ffmpeg")?);
        let mut pipe = process.0.stdin.take().context("ffmpeg has no input")?;
        let mut errors = process.0.stderr.take().context("ffmpeg has no output")?;
        let said = thread::spawn(move || {
            let mut said = Vec::new();
            let _ = (&mut errors).take(SAID).read_to_end(&mut said);
            let _ = io::copy(&mut errors, &mut io::sink());
            said
        });
        let sent = send(&camera.frames, steps, first, &mut pipe, &interrupt, &bar);
        drop(pipe);
        let sent = sent.with_context(in_path)?;
        if interrupt.has_come() {
            return Ok(false);
        }
        let status = process.0.wait()?;
        // On a full disk, some versions say that the end could not be written, and succeed.
        let said = said.join().unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        if !status.success() || !said.trim().is_empty() {
            bail!("{}: ffmpeg ended with {status}: {}", output.display(), one_line(said.trim()));
        }
        repeated = sent;
        file.sync_all().with_context(shown)?;
        Ok(true)
    };
    let mut filled = Ok(false);
    let put = to.put_new(&name, |file| {
        filled = fill(file);
        Ok::<_, io::Error>(matches!(filled, Ok(true)))
    });
    match put {
        // Another program has made it meanwhile.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(exists()),
        put => put.with_context(shown)?,
    }
    filled?;
    bar.finish_and_clear();
    interrupt.check()?;
    if !arguments.quiet {
        let frames = counted(camera.frames.len() as u64 + repeated, "frame");
        let repeated = if repeated > 0 { format!(", {repeated} of them repeated") } else { String::new() };
        writeln!(stdout(), "{}: {frames} at {rate} a second{repeated}", output.display())?;
    }
    Ok(())
}

/// Refuses pictures with numbers that make a video without end.
fn check_gaps(frames: &[Frame], steps: Option<u64>) -> anyhow::Result<()> {
    let first = frames.first().filter(|_| steps.is_none()).map_or(0, |frame| frame.number);
    let end = frames.last().map_or(0, |frame| frame.number.saturating_add(1)).max(steps.unwrap_or(0));
    let (count, all) = (frames.len() as u64, end - first);
    if all > count.saturating_mul(GAPS) {
        bail!("{count} pictures are there for {all} frames: too many are missing");
    }
    Ok(())
}

/// A process that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Without effect if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes the pixels of all pictures, and those of a picture once more for each number that is missing after it, up to the
/// number of steps if that is known: then those of the first also for numbers before it. Returns how many that were; 0 if
/// nobody reads any more: then ffmpeg has ended, and says why.
fn send(
    frames: &[Frame],
    steps: Option<u64>,
    first: Pixels,
    to: &mut impl Write,
    interrupt: &Interrupt,
    bar: &ProgressBar,
) -> anyhow::Result<u64> {
    let (mut repeated, (width, height), mut next) = (0, (first.width, first.height), Some(first));
    for (at, frame) in frames.iter().enumerate() {
        let pixels = next.take().map_or_else(|| frames::read(frame), Ok)?;
        if (pixels.width, pixels.height) != (width, height) {
            let (w, h, shown) = (pixels.width, pixels.height, frame.entry.path().display());
            bail!("{shown}: has {w} x {h} pixels, the pictures before it {width} x {height}");
        }
        let from = if at == 0 && steps.is_some() { 0 } else { frame.number };
        let until = frames.get(at + 1).map_or(steps.unwrap_or(0), |after| after.number).max(frame.number + 1);
        for number in from..until {
            if interrupt.has_come() {
                return Ok(repeated);
            }
            repeated += u64::from(number != frame.number);
            if to.write_all(&pixels.rgb).is_err() {
                return Ok(0);
            }
        }
        bar.inc(1);
    }
    Ok(repeated)
}

/// Returns the folder in which the episode happens: the given one, or that of the only episode of a container.
fn episode(entry: &Entry, path: &Path) -> anyhow::Result<Entry> {
    let count = if entry.inside().is_empty() { entry.episodes()? } else { 0 };
    match count {
        0 => Ok(entry.clone()),
        1 => Ok(entry.get(entry.episode_folder(0)?)?),
        count => {
            let example = path.join(entry.episode_folder(0)?);
            bail!("{}: has {count} episodes; give the folder of one, such as {}", path.display(), example.display())
        }
    }
}

/// Returns the name of the video of a camera: `ep_001_cam0_rgb.mp4`.
fn name_of(top: &Entry, camera: &Camera) -> String {
    let (container, inside) = top.place();
    let container = if container == Path::new("") { top.vfs().source() } else { &container };
    let stem = container.file_stem().unwrap_or_default().to_string_lossy();
    let below = camera.path.strip_prefix("images/").unwrap_or(&camera.path);
    let parts = [&stem, inside.as_str(), below].into_iter().filter(|part| !part.is_empty());
    format!("{}.mp4", parts.collect::<Vec<_>>().join("_").replace('/', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_above_zero() {
        for good in ["30", "29.97", "0.5", "1e3"] {
            assert!(rate(good).is_ok(), "{good}");
        }
        for bad in ["0", "-1", "nan", "inf", "30/1", ""] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}
