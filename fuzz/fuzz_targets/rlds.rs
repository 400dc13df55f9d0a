//! TFRecord, Example and MP4 parsers: any bytes are an error or a result whose places are in the file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| shardfs_fuzz::rlds(bytes));
