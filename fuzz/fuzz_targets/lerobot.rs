//! The documents of LeRobot alone: any bytes are an error or a data set whose files lie below its folder.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| shardfs_fuzz::lerobot(bytes));
