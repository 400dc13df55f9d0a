//! What the filesystem says of itself: errors, problems, counters, slow operations.

pub(super) mod control;
pub(super) mod coverage;
pub(super) mod error;
pub(super) mod metrics;
pub(super) mod problems;
pub(super) mod slow;
