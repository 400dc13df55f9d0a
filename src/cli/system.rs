//! What commands ask the system: processes, filesystems that may never answer, secrets of a user.

pub(super) mod busy;
pub(super) mod number_key;
pub(super) mod probe;
pub(super) mod running;
