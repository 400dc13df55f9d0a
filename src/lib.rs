//! shardfs shows container files as folders of ordinary files.
//!
//! # Layout
//!
//! Each layer knows only those below it; `docs/ARCHITECTURE.md` follows one `read()` through them.
//!
//! - [`cli`]: commands and options
//! - [`fuse`]: the adapter to the kernel, the only module that names fuser
//! - [`verify`]: is everything in a container whole?
//! - [`vfs`]: look up, list, stat, read on own types; runs without a mount
//! - [`tree`]: names and nodes of one container
//! - [`view`]: how stored values become files
//! - [`cache`]: decoded blocks under one budget
//! - [`mod@format`]: parsers, one module a format
//! - [`codec`]: compressed bytes to bytes
//! - [`source`]: the bytes of one container, by range
//! - [`store`]: where the files of SOURCE come from
//! - [`memfd`]: finished files in memory, for the kernel to serve
//! - [`limits`]: every limit, in one place

#[cfg(not(target_pointer_width = "64"))]
compile_error!("shardfs maps files of many gigabytes and needs a 64-bit machine");

pub mod cache;
pub mod cli;
pub mod codec;
pub mod format;
pub mod fuse;
pub mod limits;
pub mod memfd;
pub mod source;
pub mod store;
pub mod tree;
pub mod verify;
pub mod vfs;
pub mod view;
