//! Chains of filters: what decodes has exactly the stated size, and what has no stated size no more than the bound.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| shardfs_fuzz::filters(bytes));
