//! The kastore parser alone: any bytes are an error or a container, in bounded time and memory.
#![no_main]

use shardfs::format::kastore;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let bytes = bytes.to_vec();
    let _ = kastore::probe(&bytes);
    let _ = kastore::parse(&bytes);
});
