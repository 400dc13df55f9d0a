//! Copies files that are handed to it, on several threads, and counts.

use std::{
    fs::File,
    io::{self, IsTerminal, Write},
    path::Path,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::Receiver,
    },
};

use anyhow::{Context, anyhow, bail};
use indicatif::ProgressBar;
use parking_lot::Mutex;
use rustix::fs::FileType;

use super::{Folder, compress};
use crate::{
    cli::{
        Destination, complain, escape, options::select::Selected, output::destination::is_file_of, pieces,
        progress::interruptible_bar, say, stdout,
    },
    volume::EntryKind,
};

/// Says what would be copied.
pub(super) fn would_copy(from: &Path, to: &Path) -> io::Result<()> {
    let is_terminal = io::stdout().is_terminal();
    let [from, to] = [from, to].map(|path| escape::name(path.as_os_str(), is_terminal));
    writeln!(stdout(), "{} -> {}", from.display(), to.display())
}

/// Counters and progress of one `cp`.
pub(super) struct Copier {
    progress: ProgressBar,
    /// The folder that everything goes to, made when there is something to copy.
    pub(super) dest: OnceLock<Destination>,
    copied: AtomicU64,
    already_there: AtomicU64,
    failed: AtomicU64,
    /// Whether uncompressed pictures are copied as compressed ones.
    compress: bool,
    /// Nothing more can be written.
    pub(super) stop: AtomicBool,
}

impl Copier {
    pub(super) fn new(quiet: bool, compress: bool) -> Self {
        let style = "{bytes} of {total_bytes}  {binary_bytes_per_sec}  {eta} left  {wide_bar}";
        let progress = interruptible_bar(quiet, style);
        let (dest, copied, already_there, failed, stop) = Default::default();
        Self { progress, dest, copied, already_there, failed, compress, stop }
    }

    /// Bytes that will be copied.
    pub(super) fn expect(&self, bytes: u64) {
        self.progress.inc_length(bytes);
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
    pub(super) fn work(&self, tasks: &Mutex<Receiver<Selected>>) {
        loop {
            let task = tasks.lock().recv();
            let Ok(task) = task else { return };
            let Some(dest) = self.dest.get().filter(|_| !self.stop.load(Relaxed)) else { continue };
            let done = match task.entry.kind() {
                EntryKind::Link => self.link(&task, dest),
                _ => self.file(&task, dest),
            };
            if let Err(error) = done {
                self.failed(&error);
            }
        }
    }

    /// A whole copy under another name first: under its own name a file is complete or not there.
    fn file(&self, task: &Selected, dest: &Destination) -> anyhow::Result<()> {
        let Selected { entry, kept: to, .. } = task;
        let attr = entry.attr();
        let named = || dest.shown(to).display().to_string();
        match dest.stat(to).with_context(named)? {
            Some(there) if FileType::from_raw_mode(there.st_mode) == FileType::Directory => {
                bail!("{}: is a folder", named())
            }
            // How large a compressed picture is, only compressing it would tell.
            Some(there)
                if is_file_of(&there, attr.size, attr.mtime)
                    || self.compresses(task)
                        && is_file_of(&there, u64::try_from(there.st_size).unwrap_or(0), attr.mtime) =>
            {
                self.already_there.fetch_add(1, Relaxed);
                self.progress.inc(attr.size);
                return Ok(());
            }
            _ => {}
        }
        let mut filled = Ok(());
        let put = dest.put_file(to, Some(attr.mode.into()), Some(attr.mtime), |file| {
            filled = self.fill(task, dest, file);
            Ok::<_, io::Error>(filled.is_ok())
        });
        put.with_context(named)?;
        filled?;
        self.copied.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Whether a file is a picture that is compressed if that makes it smaller.
    fn compresses(&self, task: &Selected) -> bool {
        self.compress
            && task.kept.extension().is_some_and(|suffix| suffix == "png")
            && task.entry.size() <= compress::LARGEST
    }

    fn fill(&self, task: &Selected, dest: &Destination, mut file: &File) -> anyhow::Result<()> {
        let Selected { entry, kept: to, shown } = task;
        let size = entry.size();
        if self.compresses(task) {
            let _room = entry.vfs().cache().reserve(size * compress::MEMORY)?;
            let whole = entry.read().map_err(|error| anyhow!("{}: {}", shown.display(), error.detail()))?;
            let bytes = compress::compressed(&whole).unwrap_or(whole);
            file.write_all(&bytes).with_context(|| dest.shown(to).display().to_string())?;
            self.progress.inc(size);
            return Ok(());
        }
        pieces(entry, shown, 0..size, |bytes| {
            file.write_all(bytes).with_context(|| dest.shown(to).display().to_string())?;
            self.progress.inc(bytes.len() as u64);
            Ok(())
        })
    }

    fn link(&self, task: &Selected, dest: &Destination) -> anyhow::Result<()> {
        let Selected { entry, kept: to, .. } = task;
        let target = entry.link_target()?.into_os_string();
        if dest.link(to).is_some_and(|there| there == target) {
            self.already_there.fetch_add(1, Relaxed);
            return Ok(());
        }
        dest.put_link(to, &target, entry.attr().mtime).with_context(|| dest.shown(to).display().to_string())?;
        self.copied.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Gives a folder its mode and time.
    pub(super) fn finish_folder(&self, folder: &Folder) {
        let (Folder { path, mode, mtime }, Some(dest)) = (folder, self.dest.get()) else { return };
        // The copy is its owner's: without write permission he could not even delete what is in it.
        if let Err(error) = dest.finish_folder(path, *mode | 0o200, *mtime) {
            self.failed(&anyhow::Error::from(error).context(dest.shown(path).display().to_string()));
        }
    }

    /// Says what came of it, where it goes to a terminal or something failed.
    pub(super) fn finish(&self) -> anyhow::Result<()> {
        let (copied, there) = (self.copied.load(Relaxed), self.already_there.load(Relaxed));
        let is_seen = !self.progress.is_hidden();
        self.progress.finish_and_clear();
        let untried =
            if self.stop.load(Relaxed) { "; nothing more can be written, so the rest was not tried" } else { "" };
        let summary = format!("{copied} copied, {there} already there{untried}");
        match self.failed.load(Relaxed) {
            0 if is_seen => say(&summary),
            0 => {}
            failed => bail!("{failed} failed, {summary}"),
        }
        Ok(())
    }
}
