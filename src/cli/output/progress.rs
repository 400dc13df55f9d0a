//! Progress on a terminal that is interrupted.

use std::{io::Write, sync::Once, thread};

use signal_hook::{consts::SIGINT, iterator::Signals, low_level};

/// Makes Ctrl-C end the line of a progress bar before it ends the process, so that the shell's prompt begins on a new
/// line. Called once something is drawn on stderr.
pub(in crate::cli) fn end_line_on_interrupt() {
    static ONCE: Once = Once::new();
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
}
