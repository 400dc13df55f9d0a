//! `shardfs status`: what is mounted, and how it does.
//!
//! A mount that does not answer must not keep us waiting, and a thread that waits for one can keep its process from
//! ending. So a process of its own asks each mount, and is left behind if it takes too long.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, BufWriter, Read, Write},
    os::{
        fd::AsFd,
        unix::{ffi::OsStrExt, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail};
use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use super::mounts::{self, Mount, without_asking};

/// How long a mount may take to answer. It answers from memory.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most that is read of an answer.
const LONGEST: u64 = 1 << 20;

/// Say what is mounted, and how it does
///
/// Lists the mounts of shardfs: what they show, since when, their process, cache, requests and problems. A mount whose
/// process is gone, or that does not answer within two seconds, is listed as that.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shardfs status
  shardfs status --json | jq -r '.[] | select(.state != \"answers\") | .mountpoint'

Exit codes: 0 every mount answers (or there is none), 1 one does not, or nothing is mounted at a MOUNTPOINT.")]
pub(super) struct Arguments {
    /// Only these [default: all]
    mountpoints: Vec<PathBuf>,

    /// As JSON: an array with an object for each mount
    #[arg(long)]
    json: bool,
}

/// The name that this program calls itself by to have a mount asked.
pub(super) const PROBE: &str = "shardfs-probe";

/// Prints files, for the process that started this one and reads as long as it cares to.
pub(super) fn probe(files: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    for file in files {
        let mut bytes = Vec::new();
        match File::open(file).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes)) {
            Ok(_) => io::stdout().write_all(&bytes)?,
            // The number is what tells a dead mount from one that belongs to somebody else.
            Err(error) => writeln!(io::stdout(), "{}", json!({"errno": error.raw_os_error()}))?,
        }
    }
    Ok(())
}

/// What a mount said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Answers,
    /// Its process is gone.
    Dead,
    /// It does not answer.
    Silent,
    /// It answers, but not to this user.
    Private,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Answers => "answers",
            Self::Dead => "dead",
            Self::Silent => "silent",
            Self::Private => "private",
        }
    }
}

/// A mount with what it said: `config.json` and `stats.json`.
pub(super) struct Report {
    pub(super) mount: Mount,
    pub(super) state: State,
    config: Value,
    stats: Value,
}

/// All mounts of shardfs, each asked once.
///
/// # Errors
/// When the kernel's table can't be read, or no process started.
pub(super) fn reports() -> anyhow::Result<Vec<Report>> {
    let mounts: Vec<Mount> = mounts::all()?.into_iter().filter(Mount::is_ours).collect();
    // All are asked at once: several that do not answer take no longer than one.
    let asked = mounts.into_iter().map(|mount| Ok((ask(&mount.at)?, mount))).collect::<anyhow::Result<Vec<_>>>()?;
    let end = Instant::now() + PATIENCE;
    asked.into_iter().map(|(child, mount)| Ok(understand(mount, answer(child, end)?))).collect()
}

fn ask(mountpoint: &Path) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("finding this program")?;
    let control = mountpoint.join(".shardfs");
    let mut command = Command::new(program);
    command.arg0(PROBE).args(["config.json", "stats.json"].map(|name| control.join(name)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("starting a probe")
}

/// What a probe printed until the end of our patience; `None` if it did not end by then.
fn answer(mut child: Child, end: Instant) -> anyhow::Result<Option<Vec<u8>>> {
    let Some(mut stdout) = child.stdout.take() else { return Ok(None) };
    let mut said = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        if poll(&mut [PollFd::new(&stdout.as_fd(), PollFlags::IN)], Some(&left)).context("waiting for a mount")? == 0 {
            // It can't be waited for; it ends when its mount does.
            let _ = child.kill();
            return Ok(None);
        }
        match stdout.read(&mut piece).context("reading from a probe")? {
            0 => break,
            count => said.extend_from_slice(&piece[..count]),
        }
    }
    // It has closed its output, so it is at its end.
    thread::spawn(move || child.wait());
    Ok(Some(said))
}

fn understand(mount: Mount, said: Option<Vec<u8>>) -> Report {
    let Some(said) = said else {
        return Report { mount, state: State::Silent, config: Value::Null, stats: Value::Null };
    };
    let mut values = serde_json::Deserializer::from_slice(&said).into_iter::<Value>().map_while(Result::ok);
    let (config, stats) = (values.next().unwrap_or_default(), values.next().unwrap_or_default());
    let state = match config["errno"].as_i64().map(|errno| errno as i32) {
        None if config.is_object() => State::Answers,
        Some(libc::EACCES | libc::EPERM) => State::Private,
        Some(libc::ENOTCONN | libc::ECONNABORTED) => State::Dead,
        _ => State::Silent,
    };
    let (config, stats) = if state == State::Answers { (config, stats) } else { (Value::Null, Value::Null) };
    Report { mount, state, config, stats }
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut reports = reports()?;
    if !arguments.mountpoints.is_empty() {
        let wanted = arguments.mountpoints.iter().map(|place| Ok((place, without_asking(place)?)));
        let wanted = wanted.collect::<anyhow::Result<Vec<_>>>()?;
        for (typed, place) in &wanted {
            if !reports.iter().any(|report| report.mount.at == *place) {
                bail!("{}: no shardfs is mounted here", typed.display());
            }
        }
        reports.retain(|report| wanted.iter().any(|(_, place)| report.mount.at == *place));
    }
    let mut out = BufWriter::new(io::stdout().lock());
    if arguments.json {
        let all: Vec<Value> = reports.iter().map(Report::json).collect();
        serde_json::to_writer_pretty(&mut out, &all)?;
        writeln!(out)?;
    } else {
        if reports.is_empty() {
            writeln!(out, "no shardfs is mounted")?;
        }
        for report in &reports {
            report.print(&mut out)?;
        }
    }
    out.flush()?;
    let lost: Vec<String> =
        reports.iter().filter_map(|report| Some(format!("{} {}", report.at(), report.lost()?))).collect();
    if lost.is_empty() { Ok(()) } else { bail!("{}", lost.join("; ")) }
}

impl Report {
    fn at(&self) -> String {
        self.mount.at.display().to_string()
    }

    /// When it was mounted, in seconds since 1970.
    fn since(&self) -> Option<f64> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
        Some(now - self.stats["uptime_seconds"].as_f64()?)
    }

    /// What is wrong, and what to do.
    pub(super) fn lost(&self) -> Option<String> {
        let at = self.at();
        match self.state {
            State::Answers | State::Private => None,
            State::Dead => Some(format!("is dead: its process is gone; take it down with: shardfs umount --lazy {at}")),
            State::Silent => Some(format!("does not answer; if that stays so: shardfs umount --lazy {at}")),
        }
    }

    fn json(&self) -> Value {
        let Self { mount, config, stats, .. } = self;
        let or_null = |value: &Value, key: &str| value.get(key).cloned().unwrap_or_default();
        json!({
            "mountpoint": mount.at.to_string_lossy(),
            "source": mount.source.to_string_lossy(),
            "state": self.state.name(),
            "user": mount.user,
            "pid": or_null(config, "pid"),
            "since": self.since(),
            "uptime_seconds": or_null(stats, "uptime_seconds"),
            "version": or_null(config, "version"),
            "config": config,
            "requests": or_null(stats, "requests"),
            "bytes_read": or_null(stats, "bytes_read"),
            "containers_open": or_null(stats, "containers_open"),
            "cache": or_null(stats, "cache"),
            "problems": or_null(stats, "problems"),
        })
    }

    fn print(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let Self { mount, config, stats, .. } = self;
        out.write_all(mount.at.as_os_str().as_bytes())?;
        writeln!(out, "\n  source    {}", mount.source.display())?;
        if let Some(lost) = self.lost() {
            return Ok(writeln!(out, "  state     {lost}")?);
        }
        if self.state == State::Private {
            let user = mount.user.map_or_else(String::new, |user| format!(", by user id {user}"));
            return Ok(writeln!(out, "  state     mounted{user}; more is for whoever mounted it")?);
        }
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let uptime = Duration::try_from_secs_f64(stats["uptime_seconds"].as_f64().unwrap_or(0.0)).unwrap_or_default();
        let since = self.since().map_or_else(String::new, |since| super::ls::date(since as i64));
        let pid = config["pid"].as_u64().map_or_else(String::new, |pid| format!(", pid {pid}"));
        writeln!(out, "  state     answers, since {since} UTC ({}){pid}", span(uptime))?;
        let cache = &stats["cache"];
        let (used, budget) = (bytes(number(&cache["used"])), bytes(number(&cache["budget"])));
        let (hits, misses) = (number(&cache["hits"]), number(&cache["misses"]));
        writeln!(out, "  cache     {used} of {budget}; {hits} hits, {misses} misses")?;
        let requests = stats["requests"].as_object().into_iter().flatten();
        let requests: Vec<String> = requests.map(|(name, count)| format!("{count} {name}")).collect();
        writeln!(out, "  requests  {}; {} read", requests.join(", "), bytes(number(&stats["bytes_read"])))?;
        match number(&stats["problems"]) {
            0 => writeln!(out, "  problems  none")?,
            count => writeln!(out, "  problems  {count}: {}/.shardfs/problems.jsonl", mount.at.display())?,
        }
        Ok(())
    }
}

/// Days and hours, hours and minutes, minutes and seconds.
fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// `12.3 MiB` and the like.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (count.max(1).ilog2() as usize / 10).min(UNITS.len() - 1);
    let value = count as f64 / (1u64 << (10 * unit)) as f64;
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_for_people() {
        assert_eq!((bytes(0), bytes(1023), bytes(1536)), ("0 B".into(), "1023 B".into(), "1.5 KiB".into()));
        assert_eq!(bytes(3 << 40), "3.0 TiB");
        assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
        let spans = [5, 65, 3720, 90_000].map(|seconds| span(Duration::from_secs(seconds)));
        assert_eq!(spans, ["5 s", "1 min 5 s", "1 h 2 min", "1 d 1 h"]);
    }
}
