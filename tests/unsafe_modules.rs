//! `unsafe` stands in the modules whose job it is, and the pages name them.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::{fs, path::Path};

const MODULES: [&str; 4] = ["cache/buffer.rs", "memfd.rs", "store/leased.rs", "store/mapped.rs"];

#[test]
fn only_these_modules_use_unsafe_and_the_pages_name_them() {
    let uses = common::program().into_iter().filter(|(_, text)| text.contains("unsafe {"));
    let found: Vec<String> = uses.map(|(file, _)| file).collect();
    assert_eq!(found, MODULES.map(|module| format!("src/{module}")));
    for page in ["SECURITY.md", "CONTRIBUTING.md", "docs/ARCHITECTURE.md"] {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
        for module in MODULES {
            assert!(text.contains(module), "{page} does not name {module}");
        }
    }
}
