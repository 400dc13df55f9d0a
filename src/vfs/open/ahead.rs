//! Files read in order: the block of the next one is decoded while a program still works with the one before.
//!
//! The next block of one file is `View::decode_ahead`'s. Which file comes next is told by paths: `ep_0007/rgb.npy`,
//! `ep_0008/rgb.npy`, or `block_7.bin`, `block_8.bin`, differ by a number that grows by one (`sequence`). The third file
//! of such a run has the fourth decoded, into room that nothing in use takes.

use std::{ffi::OsStr, ops::Range, os::unix::ffi::OsStrExt, path::Path, sync::Arc};

use parking_lot::Mutex;

use super::sequence::{Limits, SequenceDetector};
use crate::{
    pool::{Place, pool},
    source::Wait,
    tree,
    vfs::{Node, Vfs},
};

/// A path with numbers has a run for each of them, because any may be the one that grows.
const LIMITS: Limits = Limits { runs: 32, reach: 1, ahead: 1 };

/// Most digits of a number.
const DIGITS: usize = 18;

/// Most numbers of a path that are looked at, the last ones.
const NUMBERS: usize = 4;

/// The files that were begun most recently.
#[derive(Debug)]
pub(crate) struct Begun(Mutex<Files>);

#[derive(Debug)]
struct Files {
    last: Vec<u8>,
    runs: SequenceDetector<Others>,
}

/// A path without one of its numbers: what is before it, and what is after it.
type Others = (Vec<u8>, Vec<u8>);

impl Default for Begun {
    fn default() -> Self {
        Self(Mutex::new(Files { last: Vec::new(), runs: SequenceDetector::new(LIMITS) }))
    }
}

impl Begun {
    /// Notes a file. Returns where the path of the next one differs, if this file continues a run.
    fn note(&self, path: &[u8]) -> Option<Step> {
        let mut files = self.0.lock();
        if files.last == path {
            return None;
        }
        files.last = path.to_vec();
        let mut found = None;
        for digits in numbers(path) {
            let others = (path[..digits.start].to_vec(), path[digits.end..].to_vec());
            let Some(number) = std::str::from_utf8(&path[digits.clone()]).ok().and_then(|text| text.parse().ok())
            else {
                continue;
            };
            let next = files.runs.note(others, number);
            if !next.is_empty() {
                found = Some(Step { next: format!("{:0width$}", next.start, width = digits.len()), digits });
            }
        }
        found
    }
}

/// The number that grew: its place in the path, and the number after it.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    digits: Range<usize>,
    next: String,
}

/// Returns where the last numbers of a path are.
fn numbers(path: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut end = path.len();
    let next = move || {
        end = path[..end].iter().rposition(u8::is_ascii_digit)? + 1;
        let start = path[..end].iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |at| at + 1);
        let found = start..end;
        end = start;
        Some(found)
    };
    std::iter::from_fn(next).filter(|digits| digits.len() <= DIGITS).take(NUMBERS)
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
        let Ok(Some((Node::InContainer(id, _), _))) = self.source.find_path(container) else { return None };
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

    /// The path that is expected after each of these.
    fn next(begun: &Begun, paths: &[&str]) -> Vec<Option<String>> {
        let next = |path: &&str| {
            let Step { digits, next } = begun.note(path.as_bytes())?;
            Some(format!("{}{next}{}", &path[..digits.start], &path[digits.end..]))
        };
        paths.iter().map(next).collect()
    }

    #[test]
    fn the_third_of_a_run_goes_on() {
        for (paths, expected) in [
            (["a/ep_0007/rgb.npy", "a/ep_0008/rgb.npy", "a/ep_0009/rgb.npy"], Some("a/ep_0010/rgb.npy")),
            (["e/b_7.bin", "e/b_8.bin", "e/b_9.bin"], Some("e/b_10.bin")),
            (["b_9.bin", "b_10.bin", "b_11.bin"], Some("b_12.bin")),
            (["s3/097.png", "s3/098.png", "s3/099.png"], Some("s3/100.png")),
            (["ep_1/a", "ep_1/a", "ep_1/a"], None),
            (["ep_1/a", "ep_3/a", "ep_5/a"], None),
            (["ep_3/a", "ep_2/a", "ep_1/a"], None),
            (["ep_1/a", "ep_2/b", "ep_3/c"], None),
            (["ep_1/a1", "ep_2/a2", "ep_3/a3"], None),
            (["a", "b", "c"], None),
            (["a1", "a", "a2"], None),
            (["", "1", ""], None),
            (["a9999999999999999997", "a9999999999999999998", "a9999999999999999999"], None),
        ] {
            let got = next(&Begun::default(), &paths);
            assert_eq!(got, [None, None, expected.map(str::to_owned)], "{paths:?}");
        }
    }

    #[test]
    fn runs_of_several_readers_are_told_apart() {
        let begun = Begun::default();
        let got = next(&begun, &["a1", "b7", "a2", "a3", "a3", "b8", "a4", "x", "b9", "a9", "a5"]);
        let expected = [None, None, None, Some("a4"), None, None, Some("a5"), None, Some("b10"), None, Some("a6")];
        assert_eq!(got, expected.map(|path| path.map(str::to_owned)));
        for other in 0..40 {
            next(&begun, &[&format!("{other}x{other}")]);
        }
        assert_eq!(next(&begun, &["a6"]), [None], "forgotten for other files");
    }
}
