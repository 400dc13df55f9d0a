//! The commands, a file for each.

pub(super) mod cache_folders;
pub(super) mod cat;
pub(super) mod cp;
pub(super) mod doctor;
pub(super) mod export;
pub(super) mod find;
pub(super) mod formats;
pub(super) mod index;
pub(super) mod info;
pub(super) mod ls;
pub(super) mod mount;
pub(super) mod pages;
pub(super) mod refresh;
#[cfg(feature = "serve")]
pub(super) mod serve;
pub(super) mod status;
pub(super) mod umount;
pub(super) mod verify;
#[cfg(feature = "serve")]
pub(super) mod view;
pub(super) mod warm;
