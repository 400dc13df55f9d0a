//! Buckets and web servers as SOURCE.
//!
//! Which objects there are and how they are reached is here; how the bytes of one object are read, cached and
//! prefetched is in `file`. Both meet in [`object`]: an [`ObjectId`] names one state of one object, [`Fetch`] gets its
//! bytes.

// Until the store is here.
#![allow(dead_code, unused_imports)]

pub(crate) mod file;
pub(crate) mod object;

pub(crate) use object::{Fetch, FetchError, ObjectId};
