//! Footers and pages of Parquet files: any bytes are an error or values, in bounded time and memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| shardfs_fuzz::parquet(bytes));
