//! One filter, named by the program (`shardfs_fuzz::ALL`): what decodes has exactly the stated size.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let own = shardfs_fuzz::ALL.iter().find(|(name, _)| *name == env!("CARGO_BIN_NAME"));
    own.expect("a target of the list").1(bytes);
});
