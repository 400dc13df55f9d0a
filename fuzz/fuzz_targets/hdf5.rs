//! The HDF5 parser and tree alone: any bytes are an error or a container, in bounded time and memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| shardfs_fuzz::hdf5(bytes));
