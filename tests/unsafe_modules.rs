//! `unsafe` stands in the modules whose job it is, and the pages name them.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::{fs, path::Path};

const MODULES: [&str; 7] = [
    "cache/buffer.rs",
    "memfd.rs",
    "source/leased.rs",
    "store/mapped.rs",
    "video/child/av1.rs",
    "video/child/confine.rs",
    "video/child/h264.rs",
];

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

/// A panic that reaches PyO3 becomes an exception that `except Exception` misses.
#[test]
fn the_python_package_works_only_where_panics_are_caught() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/src");
    let mut found = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if fs::read_to_string(&path).unwrap().contains(".detach(") {
            found.push(path.file_name().unwrap().to_owned());
        }
    }
    assert_eq!(found, ["error.rs"]);
}
