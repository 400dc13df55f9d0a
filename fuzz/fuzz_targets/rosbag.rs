//! The parser of ROS 1 bags alone: any bytes are an error or a recording, in bounded time and memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| shardfs_fuzz::rosbag(bytes));
