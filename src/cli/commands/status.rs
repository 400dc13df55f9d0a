//! `shardfs status`: what is mounted, and how it does.

use std::{
    io::Write,
    path::PathBuf,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};

use crate::cli::{
    ColorOption, buffered, color, counted, escape,
    mounts::{self, Mount, without_asking},
    paint,
    probe::{PATIENCE, Probe, State, understand},
    user_name,
};

/// Say what is mounted, and how it does
///
/// Lists the mounts of shardfs: what they show, since when, their process, cache, requests and problems. It also says
/// which mounts have no process any more, or do not answer within two seconds.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shardfs status
  shardfs status --json | jq -r '.[] | select(.state != \"answers\") | .mountpoint'

Exit codes: 0 every mount answers (or there is none), 1 one does not, or nothing is mounted at a MOUNTPOINT.")]
pub(in crate::cli) struct Arguments {
    /// Only these mounts [default: all]
    #[arg(value_name = "MOUNTPOINT")]
    mountpoints: Vec<PathBuf>,

    /// Print JSON: an array with an object for each mount
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    color: ColorOption,
}

/// A mount with its `config.json` and `stats.json`.
pub(in crate::cli) struct Report {
    pub(in crate::cli) mount: Mount,
    pub(in crate::cli) state: State,
    /// The place of the mount that hides it.
    hidden_by: Option<PathBuf>,
    config: Value,
    stats: Value,
}

/// Returns the wanted mounts of shardfs, each asked once. Others are not asked, because one that does not answer would
/// be waited for and be in use meanwhile.
///
/// # Errors
/// If the kernel's table cannot be read, or no process can be started.
pub(in crate::cli) fn reports(is_wanted: impl Fn(&Mount) -> bool) -> anyhow::Result<Vec<Report>> {
    let all = mounts::all()?;
    // All are asked at once, so several that do not answer take no longer than one.
    let asked = all.iter().filter(|mount| mount.is_ours() && is_wanted(mount)).map(|mount| {
        // A path would lead to the mount that hides it.
        let hidden_by = mounts::hidden_by(mount, &all).map(|other| other.at.clone());
        let probe = if hidden_by.is_some() { None } else { Some(Probe::mount(&mount.at)?) };
        Ok((mount.clone(), hidden_by, probe))
    });
    let asked = asked.collect::<anyhow::Result<Vec<_>>>()?;
    let end = Instant::now() + PATIENCE;
    let reports = asked.into_iter().map(|(mount, hidden_by, probe)| {
        let (state, config, stats) = match probe {
            Some(probe) => understand(probe.answer(end)?),
            None => (State::Hidden, Value::Null, Value::Null),
        };
        Ok(Report { mount, state, hidden_by, config, stats })
    });
    reports.collect()
}

pub(in crate::cli) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let wanted = arguments.mountpoints.iter().map(|place| Ok((place, without_asking(place)?)));
    let wanted = wanted.collect::<anyhow::Result<Vec<_>>>()?;
    let reports = reports(|mount| wanted.is_empty() || wanted.iter().any(|(_, place)| mount.at == *place))?;
    for (typed, place) in &wanted {
        if !reports.iter().any(|report| report.mount.at == *place) {
            bail!("{}: no shardfs is mounted here", escape::path(typed));
        }
    }
    let (mut out, is_terminal) = buffered();
    let is_coloured = arguments.color.is_on(is_terminal);
    if arguments.json {
        let all: Vec<Value> = reports.iter().map(Report::json).collect();
        escape::write_json(&mut out, &all)?;
    } else {
        if reports.is_empty() {
            writeln!(out, "no shardfs is mounted")?;
        }
        for report in &reports {
            report.print(&mut out, is_coloured)?;
        }
    }
    out.flush()?;
    let lost: Vec<String> =
        reports.iter().filter_map(|report| Some(format!("{} {}", report.at(), report.lost()?))).collect();
    if lost.is_empty() { Ok(()) } else { bail!("{}", lost.join("; ")) }
}

impl Report {
    fn at(&self) -> String {
        escape::path(&self.mount.at)
    }

    /// Returns SOURCE as the mount itself names it. The name in the kernel's table may be changed to be safe.
    fn source(&self) -> String {
        match self.config["source"].as_str() {
            Some(source) => source.to_owned(),
            None => self.mount.source.to_string_lossy().into_owned(),
        }
    }

    /// Returns when it was mounted, in seconds since 1970.
    fn since(&self) -> Option<f64> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
        Some(now - self.stats["uptime_seconds"].as_f64()?)
    }

    /// Returns what is wrong and what to do: a command that works in this state.
    pub(in crate::cli) fn lost(&self) -> Option<String> {
        let word = escape::shell_word(&self.mount.at);
        match (self.state, &self.hidden_by) {
            (State::Answers | State::Private, _) => None,
            (State::Dead, _) => {
                Some(format!("is dead: its process is gone; take it down with: shardfs umount --lazy {word}"))
            }
            (State::Hidden, Some(other)) => Some(format!(
                "is hidden by another mount; to reach it take that one down with: umount {}",
                escape::shell_word(other)
            )),
            (State::Gone, _) => {
                Some(format!("shows nothing: the source directory is gone; take it down with: shardfs umount {word}"))
            }
            (State::Silent | State::Hidden, _) => {
                let way = crate::cli::commands::umount::way_out(&self.mount);
                Some(format!("does not answer; if it stays like this: shardfs umount {way} {word}"))
            }
        }
    }

    fn json(&self) -> Value {
        let Self { mount, config, stats, .. } = self;
        json!({
            "mountpoint": mount.at.to_string_lossy(),
            "source": self.source(),
            "state": self.state,
            "user": mount.user,
            "pid": config["pid"],
            "since": self.since(),
            "uptime_seconds": stats["uptime_seconds"],
            "version": config["version"],
            "config": config,
            "requests": stats["requests"],
            "bytes_read": stats["bytes_read"],
            "containers_open": stats["containers_open"],
            "containers_closed": stats["containers_closed"],
            "cache": stats["cache"],
            "spill": stats["spill"],
            "remote": stats["remote"],
            "problems": stats["problems"],
        })
    }

    fn print(&self, out: &mut impl Write, is_coloured: bool) -> anyhow::Result<()> {
        let Self { mount, config, stats, .. } = self;
        writeln!(out, "{}\n  source    {}", self.at(), escape::escaped(&self.source()))?;
        if let Some(lost) = self.lost() {
            return Ok(writeln!(out, "  state     {}", paint(is_coloured, color::BAD, &lost))?);
        }
        if self.state == State::Private {
            let user = mount.user.map_or_else(String::new, |user| format!(" by {}", user_name(user)));
            return Ok(writeln!(out, "  state     mounted{user}, who can see more")?);
        }
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let uptime = Duration::try_from_secs_f64(stats["uptime_seconds"].as_f64().unwrap_or(0.0)).unwrap_or_default();
        let since = self.since().map_or_else(String::new, |since| crate::cli::commands::ls::date(since as i64));
        let pid = config["pid"].as_u64().map_or_else(String::new, |pid| format!(", pid {pid}"));
        let answers = paint(is_coloured, color::GOOD, "answers");
        writeln!(out, "  state     {answers}, since {since} UTC ({}){pid}", span(uptime))?;
        let cache = &stats["cache"];
        let (used, budget) = (bytes(number(&cache["used"])), bytes(number(&cache["budget"])));
        let hits = counted(number(&cache["hits"]), "hit");
        let (misses, what) = (number(&cache["misses"]), if cache["misses"] == 1 { "miss" } else { "misses" });
        writeln!(out, "  cache     {used} of {budget}; {hits}, {misses} {what}")?;
        let spill = &stats["spill"];
        if spill.is_object() {
            let parts = [
                match spill["used"].as_u64() {
                    Some(used) => format!("{} of {}", bytes(used), bytes(number(&spill["size"]))),
                    None => format!("at most {}", bytes(number(&spill["size"]))),
                },
                counted(number(&spill["hits"]), "hit"),
                format!("{} written", bytes(number(&spill["written_bytes"]))),
                format!("{} dropped", number(&spill["dropped"])),
                format!("{} evicted", number(&spill["evicted"])),
                format!("{} damaged", number(&spill["corrupt"])),
            ];
            writeln!(out, "  spill     {}", wrapped(&parts))?;
        }
        let requests = stats["requests"].as_object().into_iter().flatten();
        let requests = requests.filter(|(_, count)| **count != 0);
        let mut requests: Vec<String> =
            requests.map(|(name, count)| escape::escaped(&format!("{count} {name}"))).collect();
        requests.push(format!("{} read", bytes(number(&stats["bytes_read"]))));
        writeln!(out, "  requests  {}", wrapped(&requests))?;
        let remote = &stats["remote"];
        if remote.is_object() {
            let (disk, count) = (&remote["disk"], |key: &str| number(&remote[key]));
            let mut parts = vec![
                format!("{} requests", count("requests")),
                format!("{} repeated", count("retries")),
                format!("{} received", bytes(count("bytes"))),
            ];
            if disk.is_object() {
                parts.push(format!("{} from disk", bytes(count("bytes_from_disk"))));
                parts.push(format!("{} blobs dropped", number(&disk["dropped"])));
                parts.push(format!("{} corrupt", number(&disk["corrupt"])));
            } else if let Some(why) = remote["without_disk"].as_str() {
                parts.push(format!("no disk cache: {}", escape::escaped(why)));
            }
            writeln!(out, "  server    {}", wrapped(&parts))?;
        }
        match number(&stats["problems"]) {
            0 => writeln!(out, "  problems  none")?,
            count => {
                let problems = paint(is_coloured, color::WARNING, &count.to_string());
                writeln!(out, "  problems  {problems}: {}/.shardfs/problems.jsonl", self.at())?;
            }
        }
        Ok(())
    }
}

/// Joins parts by commas, on lines of at most 80 columns below a label of 12.
fn wrapped(parts: &[String]) -> String {
    let (mut text, mut column) = (String::new(), 12);
    for (number, part) in parts.iter().enumerate() {
        let width = part.chars().count() + 2;
        if number > 0 {
            text.push(',');
            if column + width > 80 {
                text.push_str("\n            ");
                column = 12;
            } else {
                text.push(' ');
            }
        }
        text.push_str(part);
        column += width;
    }
    text
}

/// Returns days and hours, hours and minutes, or minutes and seconds.
fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// Returns `12.3 MiB` and the like.
pub(in crate::cli) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (count.max(1).ilog2() as usize / 10).min(UNITS.len() - 1);
    let value = count as f64 / (1u64 << (10 * unit)) as f64;
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_a_terminal() {
        let parts: Vec<String> = (0..30).map(|number| format!("{number} requests")).collect();
        let lines = format!("  requests  {}", wrapped(&parts));
        assert!(lines.lines().count() > 3 && lines.lines().all(|line| line.len() <= 80), "{lines}");
        assert_eq!(lines.split_whitespace().count(), 61);
    }

    #[test]
    fn sizes_and_times_for_people() {
        assert_eq!((bytes(0), bytes(1023), bytes(1536)), ("0 B".into(), "1023 B".into(), "1.5 KiB".into()));
        assert_eq!(bytes(3 << 40), "3.0 TiB");
        assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
        let spans = [5, 65, 3720, 90_000].map(|seconds| span(Duration::from_secs(seconds)));
        assert_eq!(spans, ["5 s", "1 min 5 s", "1 h 2 min", "1 d 1 h"]);
    }
}
