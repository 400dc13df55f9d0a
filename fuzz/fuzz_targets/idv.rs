//! The idv parser alone: any bytes are an error or a container, in bounded time and memory.
#![no_main]

use shardfs::format::idv;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let bytes = bytes.to_vec();
    let _ = idv::probe(&bytes);
    let _ = idv::parse(&bytes);
});
