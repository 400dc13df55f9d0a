//! Copies files that are handed to it, on several threads, and counts.

use std::{
    ffi::OsStr,
    fs::{self, File, Permissions},
    io::{self, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::Receiver,
    },
};

use anyhow::{Context, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use xxhash_rust::xxh64::xxh64;

use super::{super::complain, Folder};
use crate::{
    limits::PIECE,
    vfs::{Attr, FileKind, Vfs},
};

/// One file or link to be copied.
pub(super) struct Task {
    pub(super) vfs: Arc<Vfs>,
    pub(super) ino: u64,
    pub(super) attr: Attr,
    /// Its path in messages.
    pub(super) shown: PathBuf,
    pub(super) to: PathBuf,
}

/// Counters and progress of one `cp`.
pub(super) struct Copier {
    progress: ProgressBar,
    copied: AtomicU64,
    already_there: AtomicU64,
    failed: AtomicU64,
    /// Nothing more can be written.
    pub(super) stop: AtomicBool,
}

impl Copier {
    pub(super) fn new(quiet: bool) -> Self {
        // Draws on stderr, and nothing at all where that is no terminal.
        let progress = if quiet { ProgressBar::hidden() } else { ProgressBar::new(0) };
        if !progress.is_hidden() {
            super::super::progress::end_line_on_interrupt();
        }
        let style = "{bytes} of {total_bytes}  {binary_bytes_per_sec}  {eta} left  {wide_bar}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            progress.set_style(style);
        }
        let (copied, already_there, failed) = Default::default();
        Self { progress, copied, already_there, failed, stop: AtomicBool::new(false) }
    }

    /// Bytes that will be copied.
    pub(super) fn expect(&self, bytes: u64) {
        self.progress.inc_length(bytes);
    }

    /// Says what would be copied.
    pub(super) fn would_copy(&self, from: &Path, to: &Path) {
        use std::io::Write as _;
        // Of a closed pipe there is nothing to say: nothing is written anyway.
        let _ = writeln!(io::stdout(), "{} -> {}", from.display(), to.display());
    }

    /// Reports something that could not be copied.
    pub(super) fn failed(&self, error: &anyhow::Error) {
        self.failed.fetch_add(1, Relaxed);
        self.progress.suspend(|| complain(error));
        let full = |e: &io::Error| matches!(e.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EROFS));
        if error.chain().filter_map(|e| e.downcast_ref()).any(full) {
            self.stop.store(true, Relaxed);
        }
    }

    /// Copies until there is no more.
    pub(super) fn work(&self, tasks: &Mutex<Receiver<Task>>) {
        loop {
            let task = tasks.lock().recv();
            let Ok(task) = task else { return };
            if self.stop.load(Relaxed) {
                continue;
            }
            let done = match task.attr.kind {
                FileKind::Link => self.link(&task),
                _ => self.file(&task),
            };
            if let Err(error) = done {
                self.failed(&error);
            }
            task.vfs.forget(task.ino, 1);
        }
    }

    /// A whole copy under another name first: under its own name a file is complete or not there.
    fn file(&self, task: &Task) -> anyhow::Result<()> {
        let Task { attr, to, .. } = task;
        let named = || to.display().to_string();
        match fs::symlink_metadata(to) {
            Ok(there) if there.is_dir() => bail!("{}: is a folder", to.display()),
            Ok(there) if there.is_file() && there.len() == attr.size && mtime(&there) == attr.mtime => {
                self.already_there.fetch_add(1, Relaxed);
                self.progress.inc(attr.size);
                return Ok(());
            }
            _ => {}
        }
        let part = part_name(to);
        // Left over by a copy that was interrupted.
        let _ = fs::remove_file(&part);
        let file = File::options().write(true).create_new(true).open(&part).with_context(named)?;
        let done = self.fill(task, &file).and_then(|()| {
            file.set_permissions(Permissions::from_mode(attr.mode.into())).with_context(named)?;
            rustix::fs::futimens(&file, &times(attr.mtime)).map_err(io::Error::from).with_context(named)?;
            fs::rename(&part, to).with_context(named)
        });
        if done.is_err() {
            let _ = fs::remove_file(&part);
        } else {
            self.copied.fetch_add(1, Relaxed);
        }
        done
    }

    fn fill(&self, task: &Task, mut file: &File) -> anyhow::Result<()> {
        let Task { vfs, ino, attr, shown, to } = task;
        let mut offset = 0;
        while offset < attr.size {
            let read = vfs.read(*ino, offset, PIECE as u64);
            let read = read.map_err(|e| anyhow!("{}: {}", shown.display(), e.to_problem().detail()))?;
            // They may be a mapped file's: only a system call may look at them.
            let bytes = read.as_syscall_buf();
            if bytes.is_empty() {
                bail!("{}: ended at byte {offset} of {}", shown.display(), attr.size);
            }
            file.write_all(bytes).with_context(|| to.display().to_string())?;
            offset += bytes.len() as u64;
            self.progress.inc(bytes.len() as u64);
        }
        Ok(())
    }

    fn link(&self, task: &Task) -> anyhow::Result<()> {
        let Task { vfs, ino, attr, to, .. } = task;
        let named = || to.display().to_string();
        let target = vfs.read_link(*ino)?;
        if fs::read_link(to).is_ok_and(|there| there == target) {
            self.already_there.fetch_add(1, Relaxed);
            return Ok(());
        }
        let part = part_name(to);
        let _ = fs::remove_file(&part);
        symlink(&target, &part).with_context(named)?;
        utimensat(CWD, &part, &times(attr.mtime), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(io::Error::from)
            .with_context(named)?;
        fs::rename(&part, to).with_context(named)?;
        self.copied.fetch_add(1, Relaxed);
        Ok(())
    }

    /// A folder that can be written to until [`Self::finish_folder`].
    pub(super) fn make_folder(&self, path: &Path) -> anyhow::Result<()> {
        let named = || path.display().to_string();
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {
                let mode = fs::metadata(path).with_context(named)?.permissions().mode();
                if mode & 0o700 != 0o700 {
                    fs::set_permissions(path, Permissions::from_mode(mode & 0o7777 | 0o700)).with_context(named)?;
                }
                Ok(())
            }
            other => other.with_context(named),
        }
    }

    /// Gives a folder its mode and time.
    pub(super) fn finish_folder(&self, folder: &Folder) {
        let Folder { path, mode, mtime } = folder;
        let times = utimensat(CWD, path, &times(*mtime), AtFlags::empty()).map_err(io::Error::from);
        // The copy is its owner's: without write permission he could not even delete what is in it.
        let done = times.and_then(|()| fs::set_permissions(path, Permissions::from_mode(*mode | 0o200)));
        if let Err(error) = done {
            self.failed(&anyhow::Error::from(error).context(path.display().to_string()));
        }
    }

    /// Says what came of it, where it goes to a terminal or something failed.
    pub(super) fn finish(&self) -> anyhow::Result<()> {
        let (copied, there) = (self.copied.load(Relaxed), self.already_there.load(Relaxed));
        let is_seen = !self.progress.is_hidden();
        self.progress.finish_and_clear();
        let summary = format!("{copied} copied, {there} already there");
        match self.failed.load(Relaxed) {
            0 if is_seen => eprintln!("{summary}"),
            0 => {}
            failed => bail!("{failed} failed, {summary}"),
        }
        Ok(())
    }
}

/// The name that a file has while it is being copied: short, whatever its own is.
fn part_name(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or(OsStr::new(""));
    path.with_file_name(format!(".shardfs-part-{:016x}", xxh64(name.as_bytes(), 0)))
}

fn mtime(meta: &fs::Metadata) -> (i64, u32) {
    (meta.mtime(), meta.mtime_nsec() as u32)
}

fn times((seconds, nanos): (i64, u32)) -> Timestamps {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos.into() };
    Timestamps { last_access: time, last_modification: time }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stand_beside_their_file() {
        let long = PathBuf::from("/out").join("x".repeat(255));
        let part = part_name(&long);
        assert_eq!(part.parent(), Some(Path::new("/out")));
        assert!(part.file_name().unwrap().len() < 64);
        assert_ne!(part, part_name(Path::new("/out/y")));
    }
}
