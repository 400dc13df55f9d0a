//! Progress on a terminal, and work that a signal ends.

use std::{
    io::Write,
    sync::{
        Arc, Once,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use anyhow::bail;
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
    iterator::Signals,
    low_level,
};

/// Returns a progress bar on stderr, hidden if that is no terminal.
pub(in crate::cli) fn bar(quiet: bool, length: u64, template: &str) -> ProgressBar {
    let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(length) };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// Does the same as [`bar`], and makes Ctrl-C end the line of the bar before it ends the process, so that the shell's
/// prompt begins on a new line.
pub(in crate::cli) fn interruptible_bar(quiet: bool, template: &str) -> ProgressBar {
    static ONCE: Once = Once::new();
    let bar = bar(quiet, 0, template);
    if bar.is_hidden() {
        return bar;
    }
    ONCE.call_once(|| {
        // Without the handler, Ctrl-C still ends the process.
        let Ok(mut signals) = Signals::new([SIGINT]) else { return };
        thread::spawn(move || {
            if signals.forever().next().is_some() {
                // The cursor is at the end of the bar's line.
                let _ = std::io::stderr().write_all(b"\n");
                let _ = low_level::emulate_default_handler(SIGINT);
            }
        });
    });
    bar
}

/// Whether SIGINT, SIGTERM or SIGHUP has come. The first time stops the work, which leaves nothing behind; a second one
/// ends the process.
pub(in crate::cli) struct Interrupt {
    has_come: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Begins to watch.
    pub(in crate::cli) fn new() -> Self {
        let (has_come, signal) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let hangup = (!ignores_hangup()).then_some(SIGHUP);
        for number in [SIGINT, SIGTERM].into_iter().chain(hangup) {
            let _ = flag::register_conditional_default(number, has_come.clone());
            let _ = flag::register_usize(number, signal.clone(), usize::try_from(number).unwrap_or_default());
            let _ = flag::register(number, has_come.clone());
        }
        Self { has_come, signal }
    }

    pub(in crate::cli) fn has_come(&self) -> bool {
        self.has_come.load(Relaxed)
    }

    /// Ends the process as the signal does by default, if one has come.
    ///
    /// # Errors
    /// If it has come and the process goes on.
    pub(in crate::cli) fn check(&self) -> anyhow::Result<()> {
        if self.has_come() {
            let signal = i32::try_from(self.signal.load(Relaxed)).unwrap_or(SIGINT);
            let _ = low_level::emulate_default_handler(signal);
            bail!("interrupted");
        }
        Ok(())
    }
}

/// Whether this process was started to outlive its terminal, as by nohup.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 << (SIGHUP - 1) != 0)
}
