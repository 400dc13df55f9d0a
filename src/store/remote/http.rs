//! Requests: connections, attempts, ranges of objects.

pub(super) mod client;
pub(super) mod connect;
pub(super) mod fetch;
pub(super) mod trouble;
mod trust;
