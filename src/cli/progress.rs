//! Progress on a terminal that is interrupted.

use std::{io::Write, sync::Once, thread};

use signal_hook::{consts::SIGINT, iterator::Signals, low_level};

/// Lets Ctrl-C end the line of a progress bar before it ends the process, so that the prompt of the shell begins on a
/// line of its own. To be called once something is drawn on stderr.
pub(super) fn end_line_on_interrupt() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Without the handler, Ctrl-C ends the process all the same.
        let Ok(mut signals) = Signals::new([SIGINT]) else { return };
        thread::spawn(move || {
            if signals.forever().next().is_some() {
                // The cursor stands in the line of the bar, at its end.
                let _ = std::io::stderr().write_all(b"\n");
                let _ = low_level::emulate_default_handler(SIGINT);
            }
        });
    });
}
