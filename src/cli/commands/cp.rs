//! `shardfs cp`: files out of containers onto the disk, without a mount.

pub(in crate::cli) mod compress;
mod copier;

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::Ordering::Relaxed,
        mpsc::{SyncSender, sync_channel},
    },
    thread,
};

use anyhow::{Context, bail};
use clap::Args;
use glob::Pattern;
use parking_lot::Mutex;

use crate::{
    cli::{
        Destination, ViewOptions, closed_for, log_to_stderr, names,
        options::select::{Selected, Selection, select},
    },
    store::place_of,
};
use copier::{Copier, would_copy};

/// Files that may wait to be copied: enough to keep all workers busy, few enough to fit in memory.
const WAITING: usize = 256;

/// Copy files out of containers, without a mount
///
/// Wildcards (*, ?, [...], [!...], **/ for any folders) in paths also match inside containers; quote them, so that the
/// shell does not expand them. Copies keep their path from the container's name on, or from the first wildcard if that
/// comes earlier. Times and modes are those that a mount would show, except that folders are writable. Files that DEST
/// already has with the same size and time are skipped, so an interrupted copy can be continued. Damaged files are
/// reported, and all others are copied; where the disk is full, the copy ends. Pictures of raw pixels are uncompressed in
/// a mount, because their sizes are then known; --compress makes them smaller.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shardfs cp 'data/*.wshard/signal/joint_*.npy' out/
      out/ep_001.wshard/signal/joint_pos.npy, out/ep_002.wshard/signal/joint_pos.npy, ...
  shardfs cp -r data/ep_001.wshard /srv/unpacked/ep_002.wshard out/
  shardfs cp data/ep_001.wshard/signal/joint_pos.npy q.npy
  shardfs cp -rn --exclude '*.json' --exclude images data/ep_001.wshard out/

Braces are the shell's: {a,b} in a quoted pattern is not expanded.

Exit codes: 0 everything is there, 1 something could not be copied (the rest was,
unless the disk is full), 2 a wrong command line.")]
pub(in crate::cli) struct Arguments {
    /// Files and folders inside containers: the container's path, then the path in it
    #[arg(required = true, value_name = "PATH")]
    sources: Vec<PathBuf>,

    /// A folder, made if it does not exist; for a single file also the name of the copy
    #[arg(required = true, value_name = "DEST", value_parser = crate::cli::local())]
    destination: PathBuf,

    /// Copy folders with everything in them
    #[arg(short, long)]
    recursive: bool,

    /// Leave out files and folders whose name, or path below PATH, matches; may be given several times
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<Pattern>,

    /// Copy uncompressed PNG pictures as compressed ones, with the same pixels; those that DEST has with the same time
    /// are skipped
    #[arg(long)]
    compress: bool,

    /// Print what would be copied, and where to; write nothing
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Number of files copied at once [default: the number of cores]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,

    /// Do not show progress on a terminal
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    view: ViewOptions,
}

pub(in crate::cli) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    log_to_stderr("error");
    let jobs = arguments.jobs.map(usize::from);
    let jobs = jobs.or_else(|| thread::available_parallelism().ok().map(Into::into)).unwrap_or(2);
    let copier = Copier::new(arguments.quiet || arguments.dry_run, arguments.compress);
    let folders = thread::scope(|scope| {
        let (give, take) = sync_channel(WAITING);
        let take = Arc::new(Mutex::new(take));
        for _ in 0..jobs {
            let (take, copier) = (take.clone(), &copier);
            scope.spawn(move || copier.work(&take));
        }
        let mut walk = Walk { arguments, copier: &copier, give, taken: HashSet::new(), folders: vec![] };
        for source in &arguments.sources {
            if copier.stop.load(Relaxed) {
                break;
            }
            match walk.source(source) {
                Err(error) if closed_for(&error).is_some() => return Err(error),
                Err(error) => copier.failed(&error),
                Ok(()) => {}
            }
        }
        Ok(walk.folders)
    })?;
    // Inner folders first: one that is not to be written to can be finished when all in it is.
    for folder in folders.into_iter().rev() {
        copier.finish_folder(&folder);
    }
    copier.finish()
}

/// A folder that was made, to get its mode and time when it is full.
struct Folder {
    path: PathBuf,
    mode: u32,
    mtime: (i64, u32),
}

/// Goes through the sources and hands out what is to be copied.
struct Walk<'a> {
    arguments: &'a Arguments,
    copier: &'a Copier,
    give: SyncSender<Selected>,
    /// Where files of several sources go, to notice two that go to one place.
    taken: HashSet<PathBuf>,
    folders: Vec<Folder>,
}

impl Walk<'_> {
    fn source(&mut self, source: &Path) -> anyhow::Result<()> {
        let Selection { found, is_pattern, failed } = select(source, self.arguments.view.checked())?;
        let destination = &self.arguments.destination;
        refuse_own_place(destination, &found)?;
        for error in &failed {
            self.copier.failed(error);
        }
        let mut skipped = 0;
        for mut found in found {
            found.entry = found.entry.if_entered();
            let is_folder = found.entry.is_folder();
            if is_folder && !self.arguments.recursive {
                if !is_pattern {
                    bail!("{}: is a folder; -r copies folders", source.display());
                }
                skipped += 1;
                continue;
            }
            let only_one = !is_pattern && self.arguments.sources.len() == 1;
            let mut top = destination.as_path();
            if only_one && !is_folder && !is_folder_name(destination) {
                let name = destination.file_name().with_context(|| format!("{}: no name", destination.display()))?;
                (top, found.kept) = (destination.parent().unwrap_or(Path::new("")), name.into());
            }
            self.below(found, top)?;
        }
        match skipped {
            0 => Ok(()),
            count => bail!("{}: matches {count} folders, left out; -r copies folders", source.display()),
        }
    }

    /// Whether the user wants to do without it: by its name, or by its path below the copy's top.
    fn is_excluded(&self, to: &Path, top: &Path) -> bool {
        let name = to.file_name().unwrap_or_default().to_string_lossy();
        let below = to.strip_prefix(top).unwrap_or(to).to_string_lossy();
        self.arguments.exclude.iter().any(|pattern| pattern.matches(&name) || pattern.matches(&below))
    }

    /// Makes the folder that everything goes to, and a folder below it, unless nothing is to be written.
    fn make_destination(&self, folder: &Path, below: &Path) -> anyhow::Result<()> {
        if self.arguments.dry_run {
            let there = folder.ancestors().find(|part| part.exists());
            return match there.filter(|part| !part.is_dir()) {
                Some(part) => bail!("{}: not a folder", part.display()),
                None => Ok(()),
            };
        }
        let dest = match self.copier.dest.get() {
            Some(dest) => dest,
            None => {
                let made = Destination::make(folder).with_context(|| folder.display().to_string())?;
                self.copier.dest.get_or_init(|| made)
            }
        };
        dest.make_all(below).with_context(|| dest.shown(below).display().to_string())
    }

    /// A file, or a folder with all that is in it, each to its `kept` below `folder`. Only a closed stdout is an error.
    fn below(&mut self, found: Selected, folder: &Path) -> anyhow::Result<()> {
        let top = found.kept.clone();
        if let Err(error) = self.make_destination(folder, top.parent().unwrap_or(Path::new(""))) {
            self.copier.failed(&error);
            return Ok(());
        }
        let dest = self.copier.dest.get();
        // A stack, not recursion: names in containers can be thousands of folders deep.
        let mut open = vec![found];
        while let Some(mut found) = open.pop() {
            if self.copier.stop.load(Relaxed) {
                return Ok(());
            }
            if self.is_excluded(&found.kept, &top) {
                continue;
            }
            found.entry = found.entry.if_entered();
            let Selected { entry, kept: to, shown } = &found;
            if !entry.is_folder() {
                let place = folder.join(to);
                if self.arguments.sources.len() > 1 && !self.taken.insert(to.clone()) {
                    let (shown, place) = (shown.display(), place.display());
                    self.copier.failed(&anyhow::anyhow!("{shown}: {place} is another's copy already"));
                    continue;
                }
                if dest.is_none() {
                    match place.is_dir() {
                        true => self.copier.failed(&anyhow::anyhow!("{}: is a folder", place.display())),
                        false => would_copy(shown, &place)?,
                    }
                    continue;
                }
                self.copier.expect(entry.size());
                // Only when all workers are gone, and then nothing is left to copy it.
                let _ = self.give.send(found);
                continue;
            }
            // The top of a whole store has no name: the destination is its copy.
            let is_new = to != Path::new("");
            let make = |dest: &Destination| dest.make_folder(to).with_context(|| dest.shown(to).display().to_string());
            let made = dest.filter(|_| is_new).map_or(Ok(()), make);
            let inside = made.and_then(|()| names(entry, shown)).inspect_err(|error| self.copier.failed(error));
            let Ok(inside) = inside else { continue };
            if is_new {
                self.folders.push(Folder { path: to.clone(), mode: entry.mode(), mtime: entry.attr().mtime });
            }
            for (name, _) in inside.into_iter().rev() {
                match found.child(&name) {
                    // What went away meanwhile is left out.
                    Ok(inner) => open.extend(inner),
                    Err(error) => self.copier.failed(&error),
                }
            }
        }
        Ok(())
    }
}

/// Whether a destination is, or is meant to be, a folder.
fn is_folder_name(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/") || path.is_dir()
}

/// Nothing is ever written where the data are.
fn refuse_own_place(destination: &Path, found: &[Selected]) -> anyhow::Result<()> {
    let Some(first) = found.first() else { return Ok(()) };
    let source = first.entry.vfs().source();
    // The name that the copy would have is the container's own.
    for Selected { kept, .. } in found {
        let copy = destination.join(kept.iter().next().unwrap_or_default());
        if source.is_file() && copy.canonicalize().is_ok_and(|copy| source.canonicalize().is_ok_and(|own| own == copy))
        {
            let copy = copy.display();
            bail!("{copy}: is the container itself, which its copy would overwrite; choose a place elsewhere");
        }
    }
    let real = place_of(destination).with_context(|| destination.display().to_string())?;
    if real.starts_with(source) {
        let (destination, source) = (destination.display(), source.display());
        bail!("{destination}: lies inside {source}, which is copied from; choose a place elsewhere");
    }
    Ok(())
}
