//! What the suites share: where the example files are, walks through the filesystem, containers made by hand.
#![allow(dead_code, reason = "each suite uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[cfg(feature = "remote")]
pub(crate) mod bucket;
pub(crate) mod container;
pub(crate) mod idv;
pub(crate) mod kastore;
pub(crate) mod kdb;
pub(crate) mod shard;
pub(crate) mod walk;

use std::{
    fs,
    path::{Path, PathBuf},
};

use shardfs::tree::FORMATS;

/// The folder of one format's golden files, by the format's name, and their `expected.json` (`tests/golden/README.md`).
pub(crate) fn golden(family: &str) -> PathBuf {
    // Tree sequences in Zarr are with the other stores.
    let family = if family == "tszip" { "zarr" } else { family };
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(family)
}

/// Fronts of the paths below one of [`sources`] that may fail with EIO: what is damaged on purpose by its name, and the
/// golden containers in which `expected.json` has a part that does. Tables of tszip may also need more memory than the
/// suites give (docs/formats/tszip.md).
pub(crate) fn may_fail(source: &Path) -> Vec<String> {
    fn fails(expected: &serde_json::Value) -> bool {
        match expected {
            // Of a stack of pictures one may be missing.
            serde_json::Value::Object(fields) => fields.iter().any(|(key, value)| {
                key == "eio" || key.ends_with("stack") && value.to_string().contains("null") || fails(value)
            }),
            serde_json::Value::Array(values) => values.iter().any(fails),
            value => value == "eio",
        }
    }
    let mut fronts = vec!["damaged".to_owned(), "v30_damaged/".to_owned(), "genealogy.tsz/".to_owned()];
    if let Ok(expected) = fs::read_to_string(source.join("expected.json")) {
        // Python writes names that are no UTF-8 with lone surrogates, which other parsers refuse.
        let expected: serde_json::Value = serde_json::from_str(&expected.replace("\\ud", "\\u0")).unwrap();
        let files = expected.get("files").unwrap_or(&expected).as_object().unwrap();
        fronts.extend(
            files
                .iter()
                .filter(|(name, file)| fails(file) || name.ends_with(".tsz"))
                .map(|(name, _)| format!("{name}/")),
        );
    }
    fronts
}

/// All folders that hold containers: those of the golden files, and the examples of this repository.
pub(crate) fn sources() -> Vec<(&'static str, PathBuf)> {
    let mut sources: Vec<_> = FORMATS.iter().map(|format| (format.name, golden(format.name))).collect();
    sources.dedup_by(|a, b| a.1 == b.1);
    sources.push(("fixtures", Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")));
    sources
}

/// The program's own source files, by path from the root of the project, with their text.
pub(crate) fn program() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut folders, mut found) = (vec![root.join("src")], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let file = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            found.push((file, fs::read_to_string(&path).unwrap()));
        }
    }
    found.sort();
    found
}

/// All files of fewer than `limit` bytes below the folders of [`sources`] that a parser would look at twice:
/// containers, and what only begins like one. By name, with their bytes.
pub(crate) fn small_files(limit: u64) -> Vec<(String, Vec<u8>)> {
    small_files_of(sources(), limit)
}

/// The same of other folders.
pub(crate) fn small_files_of(sources: Vec<(&'static str, PathBuf)>, limit: u64) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for (family, folder) in sources {
        let mut folders = vec![folder.clone()];
        while let Some(at) = folders.pop() {
            for entry in fs::read_dir(&at).unwrap() {
                let entry = entry.unwrap();
                let (path, meta) = (entry.path(), entry.metadata().unwrap());
                if meta.is_dir() {
                    folders.push(path);
                } else if meta.len() < limit && !is_text(&path) {
                    let name = format!("{family}/{}", path.strip_prefix(&folder).unwrap().display());
                    found.push((name, fs::read(&path).unwrap()));
                }
            }
        }
    }
    found.sort();
    assert!(found.len() >= 90, "only {} small container files found", found.len());
    found
}

fn is_text(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_string_lossy();
    name.starts_with("LICENSE") || [".md", ".json", ".txt"].iter().any(|suffix| name.ends_with(suffix))
}

/// Pseudo-random numbers, the same in each run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n.max(1)
    }
}
