//! The name mapping: whatever is stored, what comes out is a name, and a different one for each duplicate.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| shardfs_fuzz::names(bytes));
