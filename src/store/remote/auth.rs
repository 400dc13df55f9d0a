//! Addresses and credentials, from where users of each cloud keep them.

pub(super) mod address;
pub(super) mod credentials;
pub(super) mod profile;
