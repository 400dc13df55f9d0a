//! The log: to stderr or a file, at a level that a signal can raise while the mount runs.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::SystemTime,
};

use anyhow::Context;
use chrono::{DateTime, Utc};
use clap::ValueEnum;
use log::{Log, Metadata, Record};
use parking_lot::Mutex;

use super::{destination, escape};

/// How much is logged. Each level includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(in crate::cli) enum Level {
    /// Nothing
    Off,
    /// Errors that end the mount
    Error,
    /// Also problems of containers and slow operations
    Warn,
    /// Also mounting and unmounting
    Info,
    /// Also each request that fails
    Debug,
    /// Everything
    Trace,
}

impl Level {
    /// Returns the level in the form of `RUST_LOG`. fuser is one level quieter, because its messages are about itself;
    /// other libraries log only errors.
    fn directives(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "error,shardfs=warn",
            Self::Info => "error,shardfs=info,fuser=warn",
            Self::Debug => "error,shardfs=debug,fuser=info",
            Self::Trace => "error,shardfs=trace,fuser=debug",
        }
    }
}

/// The log of this process. It is never replaced.
static LOG: OnceLock<Switching> = OnceLock::new();

/// Starts the log at `level`, or else at `RUST_LOG`, or else at `default`. It goes to `file`, or to stderr. A second
/// start, which only tests do, changes nothing.
///
/// # Errors
/// If the file cannot be opened for appending.
pub(in crate::cli) fn start(level: Option<Level>, default: Level, file: Option<&Path>) -> anyhow::Result<()> {
    let file = file.map(LogFile::open).transpose()?;
    let asked = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty() && level.is_none());
    let first = match asked {
        // A level alone is meant for this program. A list that names modules is used as it is.
        Some(list) => Level::from_str(&list, true).map_or(list, |level| level.directives().to_owned()),
        None => level.unwrap_or(default).directives().to_owned(),
    };
    let logger = |directives: &str| env_logger::Builder::new().parse_filters(directives).build();
    let first = logger(&first);
    let louder = [Level::Warn, Level::Info, Level::Debug, Level::Trace].map(|level| logger(level.directives()));
    let louder = louder.into_iter().filter(|logger| logger.filter() > first.filter()).collect::<Vec<_>>();
    let loggers = std::iter::once(first).chain(louder).collect();
    let log = LOG.get_or_init(|| Switching { loggers, current: AtomicUsize::new(0), file });
    if log::set_logger(log).is_ok() {
        log::set_max_level(log.current().filter());
    }
    Ok(())
}

/// Switches to the next level; after the highest to the one that the log began with.
pub(in crate::cli) fn raise() {
    let Some(log) = LOG.get() else { return };
    let next = (log.current.load(Relaxed) + 1) % log.loggers.len();
    log.current.store(next, Relaxed);
    let level = log.current().filter();
    log::set_max_level(level);
    let text = format_args!("the log level is {level} now");
    log.write(&Record::builder().level(log::Level::Info).target(module_path!()).args(text).build());
}

/// Opens the log file again by its name, because it may have been moved away.
pub(in crate::cli) fn reopen() {
    let Some(log) = LOG.get() else { return };
    let Some(file) = &log.file else { return };
    match file.reopen() {
        Ok(()) => log::info!("the log goes on here"),
        Err(error) => log::error!("{}: {error}; the log stays where it was", file.path.display()),
    }
}

/// Returns the log file, for a process without a stderr of its own.
pub(in crate::cli) fn file() -> Option<File> {
    LOG.get()?.file.as_ref()?.file.lock().try_clone().ok()
}

/// A filter for each level, one of them in use.
struct Switching {
    loggers: Vec<env_logger::Logger>,
    current: AtomicUsize,
    file: Option<LogFile>,
}

impl Switching {
    fn current(&self) -> &env_logger::Logger {
        &self.loggers[self.current.load(Relaxed) % self.loggers.len()]
    }

    /// Writes one line, whatever the level. Text that it quotes (names on a disk, messages of decoders) cannot begin
    /// another line.
    fn write(&self, record: &Record<'_>) {
        let time = DateTime::<Utc>::from(SystemTime::now()).format("%Y-%m-%dT%H:%M:%SZ");
        let (level, from, text) = (record.level(), record.target(), escape::escaped(&record.args().to_string()));
        let line = format!("[{time} {level:<5} {from}] {text}\n");
        // There is no place to say that it failed.
        let _ = match &self.file {
            Some(log) => log.file.lock().write_all(line.as_bytes()),
            None => io::stderr().write_all(line.as_bytes()),
        };
    }
}

impl Log for Switching {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.current().enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if self.current().matches(record) {
            self.write(record);
        }
    }

    fn flush(&self) {}
}

struct LogFile {
    path: PathBuf,
    file: Mutex<File>,
}

impl LogFile {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let open = || Ok((std::path::absolute(path)?, destination::append(path)?));
        let (path, file) = open().map_err(|e: io::Error| e).with_context(|| path.display().to_string())?;
        Ok(Self { path, file: Mutex::new(file) })
    }

    fn reopen(&self) -> io::Result<()> {
        let file = destination::append(&self.path)?;
        // A process in the background also uses the file as its stderr.
        if !io::IsTerminal::is_terminal(&io::stderr()) {
            rustix::stdio::dup2_stderr(&file)?;
        }
        *self.file.lock() = file;
        Ok(())
    }
}
