//! The kdb parser alone: any bytes are an error or a container, in bounded time and memory.
#![no_main]

use shardfs::format::kdb;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let bytes = bytes.to_vec();
    let _ = kdb::probe(&bytes);
    let _ = kdb::parse(&bytes);
});
