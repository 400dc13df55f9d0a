//! Zarr stores of versions 2 and 3 (`docs/formats/zarr.md`): what metadata documents say. Where documents and chunks lie
//! is the business of the tree.

pub mod array;
pub mod chain;
mod fill;
pub mod json;
pub mod types;

pub use array::{Array, CHUNK, Chunks, Keys, TEXTS};
pub use chain::{Sharding, Written};
pub use json::{Json, JsonError};
pub use types::{Bits, Elements, Fixed};
