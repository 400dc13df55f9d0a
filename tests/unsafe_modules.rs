//! `unsafe` stands in the modules whose job it is, and the pages name them.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::{fs, path::Path};

const MODULES: [&str; 3] = ["cache/buffer.rs", "memfd.rs", "store/mapped.rs"];

#[test]
fn only_these_modules_use_unsafe_and_the_pages_name_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut folders, mut found) = (vec![root.join("src")], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if fs::read_to_string(&path).unwrap().contains("unsafe {") {
                found.push(path.strip_prefix(root.join("src")).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    assert_eq!(found, MODULES);
    for page in ["SECURITY.md", "CONTRIBUTING.md", "docs/ARCHITECTURE.md"] {
        let text = fs::read_to_string(root.join(page)).unwrap();
        for module in MODULES {
            assert!(text.contains(module), "{page} does not name {module}");
        }
    }
}
