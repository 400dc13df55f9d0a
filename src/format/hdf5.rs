//! HDF5, and NetCDF-4, which is HDF5 (`docs/formats/hdf5.md`; sections below are those of that page).
//!
//! When a file is opened, only the superblock and the root are read. Everything else is read when it is needed, through
//! a [`Reader`], which checks that a structure lies in the file before it takes memory for it.

pub mod attribute;
mod btree1;
mod btree2;
mod checksum;
mod chunk;
pub mod chunks;
mod dataspace;
mod datatype;
mod extensible_array;
mod fixed_array;
mod fractal_heap;
pub mod global_heap;
mod header;
mod layout;
mod link_index;
mod links;
mod mapping;
mod object;
mod pipeline;
mod reader;
mod selection;
mod shared_messages;
mod superblock;
mod symbol_table;

pub use attribute::AttributesAt;
pub use checksum::lookup3;
pub use dataspace::Dataspace;
pub use datatype::{Class, Datatype, Float, Member, Order, Padding, Reference};
pub use layout::{Chunked, Index, Layout};
pub use link_index::Page;
pub use links::{Link, Links, Stored as LinksAt, Target};
pub use mapping::{External, Mapping, Slot, mappings, plain_name};
pub use object::{Dataset, Kind, Object, open_links, reason_of};
pub use pipeline::{Pipeline, Step};
pub use reader::{Place, Reader, Sizes, Structure};
pub use selection::{Axis, Found, Places, Selection};
pub use superblock::{SHARED_SUFFIXES, SUFFIXES, Superblock, check_part, parse, probe, recognise};

use crate::source::SourceError;

/// Why something in a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes are wrong, or of a kind that is not supported.
    #[error("{reason}")]
    Damaged {
        /// Where in the file, in bytes from its start.
        place: u64,
        /// What is wrong.
        reason: String,
    },
    /// The bytes could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl Error {
    /// Returns damage at a place of the file.
    pub fn damaged(place: u64, reason: impl Into<String>) -> Self {
        Self::Damaged { place, reason: reason.into() }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Source(error.into())
    }
}

/// The result of reading a part of a file.
pub type Result<T> = std::result::Result<T, Error>;
