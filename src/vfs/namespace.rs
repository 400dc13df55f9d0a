//! What has a name: SOURCE's folders and files, containers, inode numbers, attributes, listings.

pub(super) mod attributes;
pub(super) mod beside;
pub(super) mod container_id;
pub(super) mod folder_states;
pub(super) mod inodes;
pub(crate) mod listed;
pub(super) mod listing;
pub(super) mod node;
pub(super) mod number_key;
pub(super) mod siblings;
pub(super) mod source_files;
pub(super) mod source_tree;
pub(super) mod tag;
