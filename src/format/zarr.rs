//! Zarr stores of versions 2 and 3 (`docs/formats/zarr.md`): parses metadata documents. The tree finds documents and
//! chunks.

pub mod array;
pub mod chain;
mod fill;
pub mod json;
pub mod types;

pub use array::{Array, CHUNK, Chunks, Keys, TEXTS};
pub use chain::{Sharding, Written, ZeroSize};
pub use json::{Json, JsonError};
pub use types::{Bits, Elements, Fixed};
