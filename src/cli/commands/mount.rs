//! `shardfs mount`: in the background by default, and back when the mount answers.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, IsTerminal, Read, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, mpsc},
    thread,
};

use anyhow::{Context, bail};
use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};

use super::{status, umount};
use crate::{
    cache::limit_heap,
    cli::{
        ViewOptions, absolute, escape, is_url, logging, mounts, octal, one_line, probe, remote,
        running::{self, RunningOptions},
        say, spill,
        system::number_key,
    },
    fuse::{Mount, MountConfig, raise_readahead},
    vfs::{self, Vfs},
};

/// Set for the process that stays in the background. Its stdout is a pipe on which it says that the mount answers.
const CHILD: &str = "SHARDFS_IN_BACKGROUND";
const READY: &[u8] = b"ready\n";

/// Default read-ahead of the kernel, in bytes. A page fault in a mapped file asks for as much around the page, and all
/// blocks that this touches are decoded before the reader goes on. More makes no read in order faster, except of bytes
/// that need no decoding.
const READAHEAD: u64 = 256 << 10;

/// The same for a bucket or web server: requests that are made ahead hide its latency.
const READAHEAD_FAR: u64 = 4 << 20;

/// Mount a folder of containers, or one container
///
/// The mount mirrors SOURCE, recursively: containers appear as folders of the same name, all other files as themselves.
/// The command returns when the mount answers. `shardfs umount`, `umount` and SIGTERM end the mount.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shardfs mount data/ /mnt/shards
  shardfs mount --cache-size 2G --foreground episode.wshard /mnt/episode
  shardfs mount --mkdir --rmdir --idle-timeout 600 data/ ~/shards

In /etc/fstab, with a link to shardfs at /sbin/mount.shardfs (options as above, with _ or -):
  /srv/data  /mnt/shards  shardfs  ro,allow_other,cache_size=2G,_netdev,nofail  0 0

While mounted:
  MOUNTPOINT/.shardfs/     stats.json, metrics.prom, problems.jsonl, config.json (hidden)
  SIGTERM, SIGINT          end the mount
  SIGHUP                   opens the log file again, and forgets listings of a bucket; in the foreground on a terminal,
                           without a log file, ends the mount
  SIGUSR1                  raises the level of the log

Exit codes: 0 the mount answers (in the foreground: has ended), 1 it could not be made, 2 a wrong command line. As
mount.shardfs: 0, 32 and 1.")]
pub(in crate::cli) struct Arguments {
    /// A folder, a container, or a URL
    source: PathBuf,

    /// A folder outside SOURCE; its own files are hidden while this is mounted
    mountpoint: PathBuf,

    /// Stay in the foreground, with the log on stderr
    #[arg(short, long)]
    foreground: bool,

    /// Show everything as owned by this user, by number or name
    #[arg(long, value_name = "USER", value_parser = crate::cli::user)]
    uid: Option<u32>,

    /// Show everything as owned by this group, by number or name
    #[arg(long, value_name = "GROUP", value_parser = crate::cli::group)]
    gid: Option<u32>,

    /// Permission bits to take away, in octal
    #[arg(long, value_name = "MASK", value_parser = octal, default_value = "000")]
    umask: u32,

    /// Let other users read what the modes of the files permit
    #[arg(long)]
    allow_other: bool,

    /// How opened files are served
    #[arg(long, alias = "serve", value_name = "MODE", value_enum, default_value_t)]
    io_mode: vfs::IoMode,

    /// How far the kernel reads ahead, in bytes or with K or M [default: 256K, for URLs 4M; without root 128K, which
    /// cannot be raised]
    #[arg(long, value_name = "SIZE", value_parser = crate::cli::size)]
    readahead: Option<u64>,

    /// Threads that take requests from the kernel [default: half the number of cores, 1 to 8]
    #[arg(long, value_name = "N", value_parser = crate::cli::threads)]
    threads: Option<usize>,

    #[command(flatten)]
    running: RunningOptions,

    /// Options in the form of mount(8), separated by commas: cache_size=2G,allow_other
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub(in crate::cli) options: Vec<String>,

    // Last, because its heading in the help text would also stand above what follows.
    #[command(flatten)]
    view: ViewOptions,
}

/// Mounts. `command_line` is what `arguments` were parsed from.
pub(in crate::cli) fn run(arguments: &Arguments, command_line: &[OsString]) -> anyhow::Result<()> {
    let in_background = std::env::var_os(CHILD).is_some();
    if !arguments.foreground && !in_background {
        return start_in_background(command_line);
    }
    raise_descriptor_limit();
    limit_heap();
    // First of all, because a dead mount there would block everything below.
    umount::repair(&mounts::without_asking(&arguments.mountpoint)?)?;
    for place in [&arguments.source, &arguments.mountpoint].into_iter().filter(|place| !is_url(place)) {
        if !probe::answers(place)? {
            bail!("{}: does not answer; check its disk or server", escape::path(place));
        }
    }
    let running = &arguments.running;
    let mut place = running.mountpoint(&arguments.mountpoint)?;
    let (source, mountpoint) = (absolute(&arguments.source)?, absolute(&arguments.mountpoint)?);
    if arguments.allow_other {
        check_allow_other()?;
    }
    check_mountpoint(&source, &mountpoint)?;
    let options = vfs::Options {
        io_mode: arguments.io_mode,
        uid: arguments.uid,
        gid: arguments.gid,
        umask: arguments.umask,
        for_others: arguments.allow_other,
        slow: Some(running.slow).filter(|slow| !slow.is_zero()),
        xattrs: running.xattrs,
        number_key: number_key::kept(),
        ..arguments.view.checked()
    };
    let disk_cache = is_url(&arguments.source).then(|| remote::usual_disk_cache(&options.remote)).flatten();
    let vfs = Arc::new(Vfs::open(&arguments.source, options)?);
    check_source(&vfs)?;
    if let Some(trouble) = vfs.options().spill.as_ref().and_then(spill::trouble) {
        say(&format!("shardfs: {}; decoded blocks are kept in memory only", one_line(&trouble)));
    }
    // From here on. Before, problems of SOURCE itself are this command's own error.
    running.start_log(arguments.foreground)?;

    let config = MountConfig {
        allow_other: arguments.allow_other,
        // The other cores are for readers. One thread that never waits is faster than two that take turns.
        threads: arguments
            .threads
            .unwrap_or_else(|| thread::available_parallelism().map_or(1, |n| (n.get() / 2).clamp(1, 8))),
    };
    check_descriptors().context("starting to serve")?;
    let mount = Mount::new(vfs.clone(), &mountpoint, &config).map_err(|error| explain(&error, &mountpoint))?;
    let own = mounts::just_made(&mountpoint)?;
    let starting = Starting(&own);

    // Everything that ends the mount is sent here.
    let (ended, end) = mpsc::channel();
    let by_signal = ended.clone();
    // Without a terminal to hang up, or with a log to open again, SIGHUP does not end the mount.
    let stays = in_background || running.log_file.is_some() || !io::stderr().is_terminal();
    let mut caught = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1]).context("signals")?;
    let to_refresh = Arc::downgrade(&vfs);
    let by_signals = move || {
        for signal in caught.forever() {
            match signal {
                SIGUSR1 => logging::raise(),
                SIGHUP if stays => {
                    logging::reopen();
                    if let Some(vfs) = to_refresh.upgrade() {
                        vfs.refresh();
                    }
                }
                signal => drop(by_signal.send(End::Signal(signal))),
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(by_signals).context("starting a thread")?;
    let session = move || drop(ended.send(End::Session(mount.serve())));
    thread::Builder::new().name("session".into()).spawn(session).context("starting a thread")?;

    let begin = || -> anyhow::Result<()> {
        // The first answer shows that the mount works. Another process asks: if this one ended meanwhile, a thread that
        // waits for its own mount would keep it.
        let answer = probe::look(&mountpoint)?.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()));
        answer.with_context(|| format!("{}: mounted, but no answer", mountpoint.display()))?;
        place.is_mounted();
        let default = if is_url(&arguments.source) { READAHEAD_FAR } else { READAHEAD };
        let readahead = arguments.readahead.unwrap_or(default);
        if let Err(error) = raise_readahead(own.device, readahead >> 10) {
            if arguments.readahead.is_some() {
                say("shardfs: --readahead needs root; the kernel reads ahead 128K");
            }
            log::debug!("the kernel reads ahead 128 KiB, for more cannot be set: {error}");
        }
        if let (vfs::IoMode::Passthrough, Some(reason)) = (arguments.io_mode, &vfs.serving().reason) {
            say(&format!("shardfs: not in passthrough mode: {reason}"));
        }
        if let Some((folder, size)) = disk_cache
            && remote::is_first_mount(&folder)
        {
            let (folder, size) = (escape::path(&folder), status::bytes(size));
            say(&format!(
                "shardfs: bytes of objects are kept in {folder}, up to {size}; --disk-cache-size and --no-disk-cache change that"
            ));
        }
        log::info!("{} is mounted on {}", vfs.source().display(), mountpoint.display());
        running.begin(&vfs, &own)?;
        if in_background { leave_terminal() } else { Ok(()) }
    };
    begin()?;
    std::mem::forget(starting);
    let end = end.recv().context("the mount's threads are gone")?;
    running::notify("STOPPING=1");
    let ended = match end {
        End::Session(result) => result.with_context(|| mountpoint.display().to_string()),
        End::Signal(signal) => {
            log::info!("signal {signal}: unmounting {}", mountpoint.display());
            // It may still be in use: its users get errors from now on. A thread that waited for its own mount would keep
            // this process from ending, as only the end of the connection wakes it.
            let _ = umount::abort(&own).inspect_err(|error| log::debug!("{error:#}"));
            umount::detach(&own)
        }
    };
    vfs.finish();
    ended
}

/// A mount that is starting. Dropping this takes it away: nobody would serve it.
struct Starting<'a>(&'a mounts::Mount);

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        let _ = umount::detach(self.0).inspect_err(|error| log::debug!("{error:#}"));
    }
}

/// Fails if this process may open too few files to find and take away what it mounts.
fn check_descriptors() -> io::Result<()> {
    /// Descriptors that starting takes: of the session, of the signals, of the probe.
    const LEAST: usize = 16;
    (0..LEAST).map(|_| File::open("/dev/null")).collect::<io::Result<Vec<_>>>().map(drop)
}

enum End {
    Signal(i32),
    Session(io::Result<()>),
}

/// Starts this program again, away from the terminal, and waits until it says that the mount answers or why not.
fn start_in_background(command_line: &[OsString]) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut child = Command::new(program)
        // A fixed name, because as mount.shardfs it would expect another command line.
        .arg0("shardfs")
        .args(command_line.iter().skip(1))
        .env(CHILD, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // A group of its own, because Ctrl-C in this terminal is not meant for a mount that stays.
        .process_group(0)
        .spawn()
        .context("starting in the background")?;
    let mut said = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(READY.len() as u64).read_to_end(&mut said).context("waiting for the mount")?;
    }
    if said == READY {
        return Ok(());
    }
    // It has printed its reason itself, if it could.
    let status = child.wait().context("waiting for the mount")?;
    match status.code() {
        Some(_) => bail!(crate::cli::AlreadyReported),
        None => bail!("the process of the mount was ended ({status})"),
    }
}

/// Tells that the mount answers, and releases everything of the process that started it.
fn leave_terminal() -> anyhow::Result<()> {
    let nowhere = File::options().read(true).write(true).open("/dev/null").context("/dev/null")?;
    let mut stdout = io::stdout();
    stdout.write_all(READY).and_then(|()| stdout.flush()).context("saying that the mount is ready")?;
    // Fails only for a process that leads its group, which is as good.
    let _ = rustix::process::setsid();
    rustix::stdio::dup2_stdout(&nowhere).context("closing stdout")?;
    let log = logging::file();
    rustix::stdio::dup2_stderr(log.as_ref().unwrap_or(&nowhere)).context("closing stderr")?;
    std::env::set_current_dir("/").context("leaving the folder")?;
    Ok(())
}

/// Refuses a source directory that this user cannot list. It could be mounted, but would show nothing but errors.
pub(in crate::cli) fn check_source(vfs: &Vfs) -> anyhow::Result<()> {
    // For a bucket, one page was listed when it was opened.
    if is_url(vfs.source()) {
        return Ok(());
    }
    match std::fs::read_dir(vfs.source()) {
        Err(error) if error.kind() != io::ErrorKind::NotADirectory => {
            bail!("{}: can't be read: {error}", vfs.source().display())
        }
        _ => Ok(()),
    }
}

fn check_mountpoint(source: &Path, mountpoint: &Path) -> anyhow::Result<()> {
    let shown = mountpoint.display();
    if !mountpoint.is_dir() {
        bail!("{shown}: not a folder; a mount needs an existing folder");
    }
    if mountpoint.starts_with(source) {
        let source = source.display();
        bail!("{shown}: lies inside {source}, so the mount would contain itself; choose a folder elsewhere");
    }
    if source.starts_with(mountpoint) {
        bail!("{shown}: contains the source, which the mount would hide; choose an empty folder");
    }
    if mounts::ours_at(mountpoint)?.is_some() {
        let (shown, word) = (escape::path(mountpoint), escape::shell_word(mountpoint));
        bail!("{shown}: a shardfs is mounted there already; take it down with: shardfs umount {word}");
    }
    // SOURCE and MOUNTPOINT are easily confused.
    if std::fs::read_dir(mountpoint).is_ok_and(|mut entries| entries.next().is_some()) {
        let shown = escape::path(mountpoint);
        say(&format!("shardfs: {shown}: not empty; what it holds is hidden while this is mounted"));
    }
    Ok(())
}

/// Raises the limit on descriptors to the hard limit. The number of open containers depends on it.
pub(in crate::cli) fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If that is not permitted, the limit stays and fewer containers are kept open.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Returns whether ordinary users may use `--allow-other`.
pub(in crate::cli) fn may_let_others_in() -> bool {
    let config = std::fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    config.lines().any(|line| line.trim() == "user_allow_other")
}

/// Checks whether `--allow-other` is permitted, because fusermount3 would refuse it later and less clearly.
fn check_allow_other() -> anyhow::Result<()> {
    if rustix::process::geteuid().is_root() || may_let_others_in() {
        return Ok(());
    }
    bail!("--allow-other needs the line 'user_allow_other' in /etc/fuse.conf; root can add it")
}

/// Explains the kernel's error, and says what to do.
fn explain(error: &io::Error, mountpoint: &Path) -> anyhow::Error {
    let remedy = if !Path::new("/dev/fuse").exists() {
        "/dev/fuse is missing; load the module with 'modprobe fuse', or start the container with --device /dev/fuse"
    } else if File::options().read(true).write(true).open("/dev/fuse").is_err() {
        "/dev/fuse can't be opened; root can let everybody use it with 'chmod 666 /dev/fuse', as is usual"
    } else {
        match error.kind() {
            io::ErrorKind::PermissionDenied => "not allowed; mount as root, or install fuse3 and use a folder of yours",
            io::ErrorKind::NotFound => "fusermount3 is missing; install fuse3",
            _ => "could not mount",
        }
    };
    anyhow::anyhow!("{}: {remedy} ({})", mountpoint.display(), error.to_string().trim())
}
