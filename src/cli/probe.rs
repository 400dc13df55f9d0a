//! Asking a filesystem that may never answer.
//!
//! A system call that waits for a dead server or a stopped process can't be ended, and a thread that waits in one can
//! keep its process from ending. So a process of its own asks, and is left behind if it takes too long.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read, Write},
    os::{fd::AsFd, unix::process::CommandExt},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

/// How long a mount may take to answer. It answers from memory.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// How long a disk or server may take that is only now woken up.
const DISK_PATIENCE: Duration = Duration::from_secs(15);
/// The most that is read of an answer.
const LONGEST: u64 = 1 << 20;

/// The name that this program calls itself by to ask.
pub(super) const NAME: &str = "shardfs-probe";
const READ: &str = "read";
const STAT: &str = "stat";

/// Prints the content of files (`read`) or looks at them (`stat`), for the process that started this one and listens as
/// long as it cares to. An error is `{"errno": NUMBER}`.
pub(super) fn run(mut arguments: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let reads = arguments.next().is_some_and(|what| what == READ);
    let look = |file: OsString| -> io::Result<Vec<u8>> {
        if !reads {
            return std::fs::metadata(file).map(|_| b"{}\n".to_vec());
        }
        let mut bytes = Vec::new();
        File::open(file)?.take(LONGEST).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    for file in arguments {
        match look(file) {
            Ok(bytes) => io::stdout().write_all(&bytes)?,
            // The number is what tells a dead mount from one that belongs to another user.
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
    /// Its process is there, its source directory is not.
    Gone,
    /// It answers, but not to this user.
    Private,
    /// Another mount stands on it or above it, so that no path leads to it.
    Hidden,
}

impl State {
    /// The word for it in JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Answers => "answers",
            Self::Dead => "dead",
            Self::Silent => "silent",
            Self::Gone => "gone",
            Self::Private => "private",
            Self::Hidden => "hidden",
        }
    }
}

/// A question under way.
pub(super) struct Probe(Child);

impl Probe {
    /// Begins to ask a mount for its `config.json` and `stats.json`.
    ///
    /// # Errors
    /// When no process can be started.
    pub(super) fn mount(at: &Path) -> anyhow::Result<Self> {
        let control = at.join(".shardfs");
        Self::start(READ, ["config.json", "stats.json"].map(|name| control.join(name).into_os_string()))
    }

    fn start(what: &str, files: impl IntoIterator<Item = OsString>) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
        command.arg0(NAME).arg(what).args(files);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().context("starting a probe").map(Self)
    }

    /// What it printed until `end`; `None` if it did not end by then.
    ///
    /// # Errors
    /// What reading from it says.
    pub(super) fn answer(mut self, end: Instant) -> anyhow::Result<Option<Vec<u8>>> {
        let Some(mut stdout) = self.0.stdout.take() else { return Ok(None) };
        let mut said = Vec::new();
        let mut piece = [0; 4096];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            if poll(&mut [PollFd::new(&stdout.as_fd(), PollFlags::IN)], Some(&left)).context("waiting for a mount")?
                == 0
            {
                // It can't be waited for; it ends when what it asks answers or is gone.
                let _ = self.0.kill();
                return Ok(None);
            }
            match stdout.read(&mut piece).context("reading from a probe")? {
                0 => break,
                count => said.extend_from_slice(&piece[..count]),
            }
        }
        // It has closed its output, so it is at its end.
        thread::spawn(move || self.0.wait());
        Ok(Some(said))
    }
}

/// What the answer of [`Probe::mount`] means, with `config.json` and `stats.json`.
pub(super) fn understand(said: Option<Vec<u8>>) -> (State, Value, Value) {
    let Some(said) = said else { return (State::Silent, Value::Null, Value::Null) };
    let mut values = serde_json::Deserializer::from_slice(&said).into_iter::<Value>().map_while(Result::ok);
    let (config, stats) = (values.next().unwrap_or_default(), values.next().unwrap_or_default());
    let state = match config["errno"].as_i64().map(|errno| errno as i32) {
        None if config.is_object() => return (State::Answers, config, stats),
        Some(libc::EACCES | libc::EPERM) => State::Private,
        Some(libc::ENOTCONN | libc::ECONNABORTED) => State::Dead,
        // The control files take their owner from the source directory.
        Some(libc::ESTALE) => State::Gone,
        // Another program's mount has no such file.
        Some(libc::ENOENT | libc::ENOTDIR) => State::Answers,
        _ => State::Silent,
    };
    (state, Value::Null, Value::Null)
}

/// Asks what is mounted at a place, of whatever type, how it is.
///
/// # Errors
/// When it can't be asked.
pub(super) fn state_at(place: &Path) -> anyhow::Result<State> {
    Ok(understand(Probe::mount(place)?.answer(Instant::now() + PATIENCE)?).0)
}

/// Whether a file or folder can be looked at, or the reason why not be had, in reasonable time.
///
/// # Errors
/// When it can't be asked.
pub(super) fn answers(path: &Path) -> anyhow::Result<bool> {
    let probe = Probe::start(STAT, [path.as_os_str().to_owned()])?;
    Ok(probe.answer(Instant::now() + DISK_PATIENCE)?.is_some())
}
