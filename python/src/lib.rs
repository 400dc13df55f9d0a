//! `shardfs._core`: the library's face for the Python package. What users see is written in Python on top of it
//! (`python/shardfs`); this module opens, walks, reads and decodes, without the interpreter's lock.
//!
//! Arrays are copied unless the user asks for `Array.mapped`. An array must not lie in an ordinary map of the file: truncating
//! the file would end the process by SIGBUS, and writing to it would change the array. `mapped` holds a lease, which holds
//! writers up and is not granted for other users' files. Before a fork such arrays are copied.
//!
//! `Entry::read_into` decodes a block to the place where the array has it (`Cache::read_whole`, `View::fill_kept`). The
//! cache keeps nothing of blocks, nor of arrays in chunks, that are read whole; so an array costs its own bytes and what
//! its decoder works with. Parts of a block come out of the cache, which keeps it for the next slice.
//!
//! One volume (`/`) stands for all files of this machine, so that the bounds on open containers and descriptors hold for
//! the process and not for each object. Each address of a store has one more, and all share one cache. Nothing is watched:
//! each read compares the version.

mod error;
mod memory;
mod module;
mod node;
mod owned;
mod video;
mod volume;
mod waiting;

use pyo3::prelude::*;

/// Opens, walks, reads and decodes containers.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module::fill(module)
}
