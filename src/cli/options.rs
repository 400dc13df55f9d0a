//! What commands take: places, patterns, and options that several of them have.

pub(super) mod fstab;
pub(super) mod place;
pub(super) mod remote;
pub(super) mod select;
pub(super) mod spill;
