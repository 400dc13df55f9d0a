//! Every codec: what decodes has exactly the stated size, and its front is the front of the whole.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| shardfs_fuzz::codecs(bytes));
