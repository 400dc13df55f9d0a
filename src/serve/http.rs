//! HTTP and HTTPS: connections, who may see the site, paths, ranges, conditions, bodies.

pub(super) mod access;
pub(super) mod body;
pub(super) mod conditions;
pub(super) mod connections;
pub(super) mod files;
pub(super) mod listing;
pub(super) mod paths;
pub(super) mod ranges;
pub(super) mod recent;
pub(super) mod refusal;
pub(super) mod tls;
pub(super) mod types;
