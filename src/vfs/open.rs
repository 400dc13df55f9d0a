//! Open containers and files: recognition, opening, reading, opening and decoding ahead.

pub(super) mod ahead;
pub(super) mod containers;
pub(super) mod detection;
pub(super) mod io_mode;
pub(super) mod opened;
pub(super) mod opener;
pub(super) mod reading;
pub(super) mod sequence;
pub(super) mod waiting;
