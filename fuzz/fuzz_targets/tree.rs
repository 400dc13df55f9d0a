//! Whole containers of any format, from detection to the bytes of every file: the tree is a tree, sizes are true, any
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| shardfs_fuzz::tree(bytes));
