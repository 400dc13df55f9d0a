//! The documents of Zarr alone: any bytes are an error or an array whose chunks are found by their keys.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| shardfs_fuzz::zarr(bytes));
