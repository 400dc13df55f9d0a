//! shardfs shows container files (WShard and other Shard files, KDB, kastore, KAST, IDV, npz) as folders of ordinary files.
//!
//! The `shardfs` command mounts them. This library is the same without a mount: open a container or a folder of them,
//! walk it, read a range of a file, or an array with its type and shape.
//!
//! ```
//! use shardfs::{DType, Volume};
//!
//! # fn main() -> Result<(), shardfs::Error> {
//! let volume = Volume::open("fixtures")?;
//!
//! // What is in it: names as a mount shows them.
//! let episode = volume.get("ep_001.wshard")?;
//! for entry in episode.get("signal")?.entries() {
//!     let entry = entry?;
//!     println!("{:?}: {} bytes", entry.name(), entry.size());
//! }
//!
//! // An array, with its type and shape.
//! let joints = episode.get("signal/joint_pos.npy")?.array()?;
//! assert_eq!((joints.dtype(), joints.shape()), (&DType::F32.into(), &[24, 7][..]));
//! let values: Vec<f32> = joints.values()?;
//! assert_eq!(values.len(), 24 * 7);
//!
//! // A range of any file: only the blocks that it touches are decoded.
//! let picture = episode.get("images/cam0/rgb/023.png")?;
//! assert_eq!(picture.read_range(1, 3)?, b"PNG");
//!
//! // Damage is an error that says where.
//! let damaged = volume.get("damaged/bad_crc.wshard/signal/joint_pos.npy")?;
//! let error = damaged.read().unwrap_err();
//! assert_eq!(error.kind(), shardfs::ErrorKind::Damaged);
//! assert!(error.to_string().contains("signal/joint_pos"));
//! # Ok(())
//! # }
//! ```
//!
//! What stands where in a container, and what each file holds to the byte, is `docs/TREE.md` of the project.
//!
//! # What has to be installed
//!
//! To build: Rust 1.88 and a C compiler (zstd and lz4 are compiled along). To use the library: nothing. Only frames of
//! H.264 videos need the system's libavcodec (Debian: `libavcodec`), and mounting needs FUSE, for users other than root with
//! `fusermount3` (Debian: `fuse3`). Without them everything else works, and a message says what is missing.
//!
//! # Features
//!
//! - `cli` (default, with `remote`): the `shardfs` command.
//! - `fuse` (default, with `cli`): the adapter to the kernel.
//! - `remote` (default): buckets and web servers as SOURCE.
//! - `serve` (default): `shardfs serve`, the tree over HTTP and WebDAV.
//! - `video` (default): frames of AV1 and H.264 videos. They are decoded in a process of its own, so a program that uses
//!   this library says how to start one ([`set_decoder`]); otherwise frames are left out.
//! - `ndarray`: `Array::to_ndarray` gives arrays of the crate ndarray.
//! - `unstable-internals`: makes the modules public that all this is made of. They are for the project's own tests,
//!   fuzzing and benchmarks, and change without notice; `docs/ARCHITECTURE.md` describes them.
//!
//! Without the default features neither fuser nor clap is needed:
//! `shardfs = { version = "0.1", default-features = false }`.

// Without `unstable-internals`, items that are public only for it would be reported as unused or unreachable.
#![cfg_attr(not(feature = "unstable-internals"), allow(dead_code, unreachable_pub, unused_imports))]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("shardfs maps files of many gigabytes and needs a 64-bit machine");

// The layers, public only with `unstable-internals`.
#[cfg(feature = "unstable-internals")]
pub mod cache;
#[cfg(not(feature = "unstable-internals"))]
mod cache;
#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "unstable-internals")]
pub mod codec;
#[cfg(not(feature = "unstable-internals"))]
mod codec;
#[cfg(feature = "unstable-internals")]
pub mod disk;
#[cfg(not(feature = "unstable-internals"))]
mod disk;
mod escape;
mod filesystem;
mod float16;
#[cfg(feature = "unstable-internals")]
pub mod format;
#[cfg(not(feature = "unstable-internals"))]
mod format;
#[cfg(all(feature = "fuse", feature = "unstable-internals"))]
pub mod fuse;
#[cfg(all(feature = "fuse", not(feature = "unstable-internals")))]
mod fuse;
mod held;
#[cfg(feature = "unstable-internals")]
pub mod limits;
#[cfg(not(feature = "unstable-internals"))]
mod limits;
mod memfd;
#[cfg(feature = "fuse")]
mod mounts;
mod parallel;
mod per_process;
mod pool;
#[cfg(feature = "fuse")]
mod programs;
#[cfg(any(feature = "remote", feature = "serve"))]
mod runtime;
#[cfg(feature = "serve")]
mod serve;
mod single_flight;
#[cfg(feature = "unstable-internals")]
pub mod source;
#[cfg(not(feature = "unstable-internals"))]
mod source;
#[cfg(feature = "unstable-internals")]
pub mod store;
#[cfg(not(feature = "unstable-internals"))]
mod store;
mod sync;
#[cfg(feature = "unstable-internals")]
pub mod tree;
#[cfg(not(feature = "unstable-internals"))]
mod tree;
mod verify;
#[cfg(feature = "unstable-internals")]
pub mod vfs;
#[cfg(not(feature = "unstable-internals"))]
mod vfs;
#[cfg(feature = "unstable-internals")]
pub mod video;
#[cfg(not(feature = "unstable-internals"))]
mod video;
#[cfg(feature = "unstable-internals")]
pub mod view;
#[cfg(not(feature = "unstable-internals"))]
mod view;

mod volume;

#[cfg(feature = "unstable-internals")]
pub mod wanted;
#[cfg(not(feature = "unstable-internals"))]
mod wanted;

pub use cache::Verify;
pub use format::{DType, DateUnit, ElementType, Field, Record, TimeUnit};
// For the Python package only.
#[doc(hidden)]
pub use source::{Leased, before_fork, forked};
pub use store::FollowLinks;
#[cfg(feature = "unstable-internals")]
pub use tree::add_format;
pub use tree::{ItemInfo, ObjectField};
pub use vfs::Problem;
pub use video::{Program as DecoderProgram, run as run_decoder, set_program as set_decoder};
pub use volume::{
    Array, AttributeValue, Cache, Element, Entries, Entry, EntryKind, Error, ErrorKind, FormatInfo, Likeness, Member,
    MemberKind, OpenOptions, Reader, Slice, Volume, Walk, formats, likeness,
};
// For the Python package only.
#[doc(hidden)]
pub use wanted::until as until_given_up;

/// The `shardfs` command: what its `main` calls.
#[cfg(feature = "cli")]
#[doc(hidden)]
pub fn command() -> std::process::ExitCode {
    cli::guarded(cli::run)
}

/// Returns the URL of the folder that holds what a URL names, and the name by which that folder shows it. `None` for a
/// whole store, and for what is no URL.
#[doc(hidden)]
#[cfg(feature = "remote")]
pub fn parent(url: &std::path::Path) -> Option<(std::path::PathBuf, std::ffi::OsString)> {
    store::remote::parent(url)
}

/// Returns a path or URL as it may be shown: without a login or token.
#[doc(hidden)]
pub fn shown(source: &std::path::Path) -> std::path::PathBuf {
    vfs::Vfs::shown(source)
}
