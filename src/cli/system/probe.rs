//! Asking a filesystem that may never answer.
//!
//! A system call that waits for a dead server or a stopped process cannot be ended, and a thread that waits in one can
//! keep its process from ending. So a process of its own asks, and is left behind if it takes too long.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value, json};

/// How long a mount may take to answer. It answers from memory.
pub(in crate::cli) const PATIENCE: Duration = Duration::from_secs(2);
/// How long a disk or server may take, which may have to wake up first.
const DISK_PATIENCE: Duration = Duration::from_secs(15);
/// Most bytes that are read of an answer.
const LONGEST: u64 = 1 << 20;

/// The name of the process that asks.
pub(in crate::cli) const NAME: &str = "shardfs-probe";
const READ: &str = "read";
const STAT: &str = "stat";

/// Prints the contents of files (`read`) or looks at them (`stat`), for the process that started this one. An error is
/// `{"errno": NUMBER}`.
pub(in crate::cli) fn run(mut arguments: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
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
            // The number distinguishes a dead mount from one of another user.
            Err(error) => writeln!(io::stdout(), "{}", json!({"errno": error.raw_os_error()}))?,
        }
    }
    Ok(())
}

/// State of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::cli) enum State {
    Answers,
    /// Its process is gone.
    Dead,
    /// It does not answer.
    Silent,
    /// Its process exists, but its source directory does not.
    Gone,
    /// It answers, but not to this user.
    Private,
    /// Another mount is on top of it or above it, so no path leads to it.
    Hidden,
}

/// A question under way.
pub(in crate::cli) struct Probe(Child);

impl Probe {
    /// Starts to ask a mount for its `config.json` and `stats.json`.
    ///
    /// # Errors
    /// If no process can be started.
    pub(in crate::cli) fn mount(at: &Path) -> anyhow::Result<Self> {
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

    /// Returns what it printed; `None` if it did not finish before `end`.
    ///
    /// # Errors
    /// If its output cannot be read.
    pub(in crate::cli) fn answer(mut self, end: Instant) -> anyhow::Result<Option<Vec<u8>>> {
        let Some(mut stdout) = self.0.stdout.take() else { return Ok(None) };
        let (give, take) = mpsc::channel();
        let read = move || {
            let mut said = Vec::new();
            give.send(stdout.read_to_end(&mut said).map(|_| said))
        };
        thread::Builder::new().name("probe".into()).spawn(read).context("starting a thread")?;
        let Ok(said) = take.recv_timeout(end.saturating_duration_since(Instant::now())) else {
            // It cannot be waited for. It ends when what it asks answers or is gone.
            let _ = self.0.kill();
            return Ok(None);
        };
        // It has closed its output, so it is about to end.
        let _ = thread::Builder::new().name("probe".into()).spawn(move || self.0.wait());
        said.context("reading from a probe").map(Some)
    }
}

/// Interprets the answer of [`Probe::mount`]; returns the state, `config.json` and `stats.json`.
pub(in crate::cli) fn understand(said: Option<Vec<u8>>) -> (State, Value, Value) {
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

/// Returns the state of whatever is mounted at a place.
///
/// # Errors
/// If it cannot be asked.
pub(in crate::cli) fn state_at(place: &Path) -> anyhow::Result<State> {
    Ok(understand(Probe::mount(place)?.answer(Instant::now() + PATIENCE)?).0)
}

/// Returns whether a file or folder can be looked at, or fails with a reason, in reasonable time.
///
/// # Errors
/// If it cannot be asked.
pub(in crate::cli) fn answers(path: &Path) -> anyhow::Result<bool> {
    Ok(look(path)?.is_some())
}

/// Looks at a file or folder; `None` if there is no answer in reasonable time.
///
/// # Errors
/// If it cannot be asked.
pub(in crate::cli) fn look(path: &Path) -> anyhow::Result<Option<io::Result<()>>> {
    let probe = Probe::start(STAT, [path.as_os_str().to_owned()])?;
    let said = probe.answer(Instant::now() + DISK_PATIENCE)?;
    let errno = |said: Vec<u8>| serde_json::from_slice::<Value>(&said).ok()?["errno"].as_i64();
    Ok(said.map(|said| match errno(said) {
        Some(errno) => Err(io::Error::from_raw_os_error(errno as i32)),
        None => Ok(()),
    }))
}
