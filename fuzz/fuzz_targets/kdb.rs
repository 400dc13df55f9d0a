//! The kdb parser alone: any bytes are an error or a container, in bounded time and memory.
#![no_main]

use shardfs::format::kdb;

libfuzzer_sys::fuzz_target!(|bytes: Vec<u8>| {
    let _ = kdb::probe(&bytes);
    let _ = kdb::parse(&bytes);
});
