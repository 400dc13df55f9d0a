//! Whole containers of any format, from detection to the bytes of every file: the tree is a tree, sizes are true, any
//! range is the slice of the whole.
#![no_main]

use std::{collections::HashSet, ops::ControlFlow, sync::Arc};

use shardfs::{
    cache::{Cache, Verify},
    format::{self, Detected},
    tree::{self, NodeKind},
    view::Reader,
};

const FILES: usize = 400;
const LONGEST: u64 = 256 << 10;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let bytes = bytes.to_vec();
    let Ok(Detected::Container(format)) = format::detect(&bytes, b"file") else { return };
    let reader = Reader { source: Arc::new(bytes), cache: Cache::new(1 << 20, Verify::Strict), container: 0 };
    let Ok(tree) = tree::open(format, &reader, None) else { return };
    let _ = tree.description();
    let (mut folders, mut seen, mut files) = (vec![tree::ROOT], HashSet::from([tree::ROOT]), 0);
    while let Some(folder) = folders.pop() {
        let mut children = Vec::new();
        let listed = tree.list(&reader, folder, 0, &mut |child| {
            assert!(!child.name.is_empty() && !child.name.contains('/'));
            children.push((child.name.to_owned(), child.node, child.is_folder));
            if children.len() < FILES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if listed.is_err() {
            continue;
        }
        if let Ok(Some(hidden)) = tree.lookup(&reader, folder, ".raw") {
            children.push((".raw".into(), hidden, true));
        }
        for (name, node, is_folder) in children {
            assert!(seen.insert(node), "{node:?} is there twice");
            assert_eq!(tree.lookup(&reader, folder, &name).ok().flatten(), Some(node), "{name}");
            assert_eq!(tree.parent(node), folder);
            assert_eq!(matches!(tree.kind(node), Some(NodeKind::Folder { .. })), is_folder);
            if is_folder {
                folders.push(node);
                continue;
            }
            files += 1;
            if files > FILES {
                return;
            }
            let Ok(view) = tree.view(&reader, node) else { continue };
            let length = view.size().min(LONGEST);
            let Ok(whole) = view.copy_at(&reader, 0, length) else { continue };
            assert_eq!(whole.len() as u64, length);
            let (from, to) = (length / 3, length / 3 * 2);
            let part = view.copy_at(&reader, from, to - from).unwrap();
            assert_eq!(part, whole[from as usize..to as usize], "{name}");
        }
    }
    let _ = tree.noticed();
});
