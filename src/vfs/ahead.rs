//! Files read in order: the block of the next one is decoded while a program still works with the one before.
//!
//! The next block of one file is `View::decode_ahead`'s. Which file comes next is told by paths: `ep_0007/rgb.npy`,
//! `ep_0008/rgb.npy`, or `block_7.bin`, `block_8.bin`, differ by a number that grows by one. The third file of such a row
//! has the fourth decoded, into room that nothing in use takes; a reader that goes elsewhere begins a new row.

use std::{collections::VecDeque, ffi::OsStr, ops::Range, os::unix::ffi::OsStrExt, path::Path, sync::Arc};

use parking_lot::Mutex;

use super::{Node, Vfs, source_tree::SourceEntry};
use crate::{
    pool::{Place, pool},
    source::Wait,
    tree,
};

/// Number of rows of files that are remembered. Readers that read side by side have a row each.
const ROWS: usize = 8;

/// After this many steps a row is expected to continue.
const STEPS: u32 = 2;

/// Most digits of a counter.
const DIGITS: usize = 18;

/// The files that were begun most recently.
#[derive(Debug, Default)]
pub(super) struct Begun(Mutex<VecDeque<Row>>);

#[derive(Debug)]
struct Row {
    path: Vec<u8>,
    steps: u32,
}

impl Begun {
    /// Notes a file. Returns the path of the next one if this file continues a row.
    fn note(&self, path: &[u8]) -> Option<Step> {
        let mut rows = self.0.lock();
        if rows.iter().any(|row| row.path == path) {
            return None;
        }
        let found = rows.iter().enumerate().find_map(|(at, row)| Some((at, step(&row.path, path)?)));
        let steps = found.as_ref().and_then(|(at, _)| rows.remove(*at)).map_or(0, |row| row.steps + 1);
        if rows.len() == ROWS {
            rows.pop_front();
        }
        rows.push_back(Row { path: path.to_vec(), steps });
        found.map(|(_, step)| step).filter(|_| steps >= STEPS)
    }
}

/// The number that grew: its place in the later path, and the number after it.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    digits: Range<usize>,
    next: String,
}

/// Returns the step if two paths differ only by one number, which grows by one.
fn step(before: &[u8], path: &[u8]) -> Option<Step> {
    let same = before.iter().zip(path).take_while(|(a, b)| a == b).count();
    let start = path[..same].iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |at| at + 1);
    let number = |path: &[u8]| -> Option<(usize, u64)> {
        let digits = path[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let text = std::str::from_utf8(&path[start..start + digits]).ok()?;
        Some((start + digits, text.parse().ok().filter(|_| digits <= DIGITS)?))
    };
    let ((end_before, smaller), (end, larger)) = (number(before)?, number(path)?);
    let is_next = smaller + 1 == larger && before[end_before..] == path[end..];
    is_next.then(|| Step { digits: start..end, next: format!("{:0width$}", larger + 1, width = end - start) })
}

impl Vfs {
    /// Notes that a file is read from its front. If files are read in order, starts to decode the next one's block.
    /// Waits for nothing.
    pub fn note_begun(self: &Arc<Self>, ino: u64) {
        let Some((path, container)) = self.path_of_block(ino) else { return };
        let Some(Step { digits, next }) = self.begun.note(&path) else { return };
        // The container's part of the path may then have another length.
        let longer = if digits.end <= container { next.len() - digits.len() } else { 0 };
        let next = [&path[..digits.start], next.as_bytes(), &path[digits.end..]].concat();
        let vfs = self.clone();
        pool().run_if_free(Place::Task("open ahead"), move || {
            let (container, inside) = next.split_at(container + longer);
            vfs.decode_front(Path::new(OsStr::from_bytes(container)), inside.strip_prefix(b"/").unwrap_or(inside));
        });
    }

    /// Returns the path of a file whose first block takes long to decode, and the length of the container's part of it.
    fn path_of_block(&self, ino: u64) -> Option<(Vec<u8>, usize)> {
        let Ok(Node::InContainer(id, file)) = self.node_with(ino, Wait::Never) else { return None };
        let opened = self.opened(&id, Wait::Never).ok()?;
        opened.readable(file, Wait::Never).ok()?.block_in_front()?;
        let mut path = id.shown().into_os_string().into_encoded_bytes();
        let container = path.len();
        path.push(b'/');
        path.extend_from_slice(opened.path(file, Wait::Never).ok()?.as_bytes());
        Some((path, container))
    }

    fn decode_front(&self, container: &Path, inside: &[u8]) -> Option<()> {
        let Ok(Some(SourceEntry::Container(id))) = self.source.find_path(container) else { return None };
        let opened = self.opened(&id, Wait::Always).ok()?;
        let mut node = tree::ROOT;
        for name in std::str::from_utf8(inside).ok()?.split('/') {
            node = opened.lookup(node, name, Wait::Always).ok()??;
        }
        let view = opened.readable(node, Wait::Always).ok()?;
        view.decode_front(&opened.reader);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_order() {
        let next = |before: &str, path: &str| {
            let Step { digits, next } = step(before.as_bytes(), path.as_bytes())?;
            Some(format!("{}{next}{}", &path[..digits.start], &path[digits.end..]))
        };
        assert_eq!(next("a/ep_0007/rgb.npy", "a/ep_0008/rgb.npy").as_deref(), Some("a/ep_0009/rgb.npy"));
        assert_eq!(next("e/b_8.bin", "e/b_9.bin").as_deref(), Some("e/b_10.bin"));
        assert_eq!(next("b_9.bin", "b_10.bin").as_deref(), Some("b_11.bin"));
        assert_eq!(next("098.png", "099.png").as_deref(), Some("100.png"));
        for (before, path) in [
            ("ep_1/a", "ep_1/a"),
            ("ep_1/a", "ep_3/a"),
            ("ep_2/a", "ep_1/a"),
            ("ep_1/a", "ep_2/b"),
            ("ep_1/a1", "ep_2/a2"),
            ("a", "b"),
            ("a1", "a"),
            ("", "1"),
            ("a9999999999999999999", "a10000000000000000000"),
        ] {
            assert_eq!(next(before, path), None, "{before} {path}");
        }
    }

    #[test]
    fn the_third_of_a_row_goes_on() {
        let begun = Begun::default();
        let note = |path: &str| begun.note(path.as_bytes()).map(|step| step.next);
        let got: Vec<_> = ["a1", "b7", "a2", "a3", "a3", "b8", "a4", "x", "b9", "a9", "a5"].map(note).into();
        let next = |text: &str| Some(text.to_owned());
        let none = None;
        assert_eq!(
            got,
            [
                none.clone(),
                none.clone(),
                none.clone(),
                next("4"),
                none.clone(),
                none.clone(),
                next("5"),
                none.clone(),
                next("10"),
                none,
                next("6")
            ]
        );
        for other in 0..20 {
            note(&format!("{other}x{other}"));
        }
        assert_eq!(note("a6"), None, "forgotten for other files");
    }
}
