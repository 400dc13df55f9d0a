//! The wshard parser alone: any bytes are an error or a container, in bounded time and memory.
#![no_main]

use shardfs::format::wshard;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let bytes = bytes.to_vec();
    let _ = wshard::probe(&bytes, false);
    let _ = wshard::probe(&bytes, true);
    let _ = wshard::parse(&bytes);
});
