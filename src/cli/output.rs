//! What commands print and write: colours, messages, progress, files at a destination.

pub(super) mod color;
pub(super) mod destination;
pub(super) mod escape;
pub(super) mod logging;
pub(super) mod progress;
pub(super) mod stderr;
pub(super) mod stdout;
