//! Opens the container that a request needs, and opens ahead the next ones for programs that go through a folder.
//!
//! A walk is a series of containers that are used in the order of their folder's listing. From the third one on, the
//! next ones are opened on other threads, and more of them the longer the walk. Round trips to a server, or seeks of a
//! disk, then happen for many containers at once. A program that jumps about opens nothing ahead, and no thread opens
//! what a request can open on the spot.

use std::{collections::VecDeque, ops::Range, path::Path, sync::Arc};

use parking_lot::Mutex;

use super::{
    Error,
    container_id::ContainerId,
    containers::Containers,
    number_key::NumberKey,
    opened::Opened,
    siblings::Siblings,
    source_tree::{SourceEntry, SourceTree},
};
use crate::{
    pool::{Place, pool},
    source::Wait,
    tree,
};

/// Most walks that are followed. Programs that go through folders side by side have one each.
const WALKS: usize = 8;

/// Most containers that are opened ahead of one walk.
const MOST: usize = 16;

/// Fraction (1/n) of the containers that may be open, within which those ahead of a walk stay.
const PART: usize = 8;

/// How far out of order a walk may use containers, because several readers may share a folder.
const REACH: usize = 16;

/// Number of steps after which uses in order count as a walk.
const STEPS: usize = 2;

/// Opens containers for requests, and ahead of walks.
pub(super) struct Opener {
    source: Arc<SourceTree>,
    containers: Arc<Containers>,
    key: NumberKey,
    walks: Mutex<Walks>,
}

impl Opener {
    pub(super) fn new(source: Arc<SourceTree>, containers: Arc<Containers>, key: NumberKey) -> Arc<Self> {
        let walks = Walks { most: (containers.most() / PART).min(MOST), walks: VecDeque::new() };
        Arc::new(Self { source, containers, key, walks: Mutex::new(walks) })
    }

    /// The container, opened if it is not, for a request that waits for no more than `wait`.
    ///
    /// # Errors
    /// [`Error`] when the file is gone, has changed, or cannot be parsed; and one of which [`Error::is_would_block`] is
    /// true.
    pub(super) fn open(self: &Arc<Self>, id: &Arc<ContainerId>, wait: Wait) -> Result<Arc<Opened>, Error> {
        let open = self.containers.get(id)?;
        // Where opening takes no waiting, there is nothing to be gained ahead.
        let may_follow = wait != Wait::Never || open.is_some();
        let opened = open.map_or_else(|| self.open_now(id, wait), Ok)?;
        if opened.note_use() && may_follow {
            self.follow(id);
        }
        Ok(opened)
    }

    fn open_now(&self, id: &Arc<ContainerId>, wait: Wait) -> Result<Arc<Opened>, Error> {
        if wait != Wait::Never {
            self.source.confirm(id)?;
        }
        self.containers.open(id, wait, || self.source.looked_into(id.stat.version), || Some(self.siblings(id)))
    }

    /// Returns what finds the other files of a container's folder.
    fn siblings(&self, id: &Arc<ContainerId>) -> Arc<dyn tree::Siblings> {
        Arc::new(Siblings {
            container: id.clone(),
            store: self.source.store().clone(),
            folders: self.source.folders.clone(),
            containers: Arc::downgrade(&self.containers),
            key: self.key,
        })
    }

    /// Notes that a container is used for the first time, and opens those that its walk comes to next. Waits for
    /// nothing.
    fn follow(self: &Arc<Self>, id: &ContainerId) {
        let folder = id.path.folder();
        let Some(names) = self.source.listed(folder) else { return };
        let Some(at) = names.find(id.path.name()) else { return };
        let next = self.walks.lock().note(folder, at);
        for at in next.start..next.end.min(names.len()) {
            match self.source.find(folder, names.name(at), Wait::Never) {
                // As far as can be told, the ones after it need no waiting either.
                Ok(Some(SourceEntry::Container(id))) if self.open_now(&id, Wait::Never).is_ok() => break,
                Ok(Some(SourceEntry::Container(_))) | Err(_) => {}
                Ok(_) => continue,
            }
            let (opener, folder, name) = (self.clone(), folder.clone(), names.name(at).to_owned());
            // Errors are reported to the request that wants the container.
            let open = move || {
                if let Ok(Some(SourceEntry::Container(id))) = opener.source.find(&folder, &name, Wait::Always) {
                    drop(opener.open_now(&id, Wait::Always));
                }
            };
            // A server or disk that does not answer holds no more than its share of the threads.
            if !pool().run_if_free(Place::Task("open ahead"), open) {
                break;
            }
        }
    }
}

/// Programs that go through folders.
#[derive(Debug)]
struct Walks {
    /// Most containers that are opened ahead of each.
    most: usize,
    /// The walks; the one that continued most recently is last.
    walks: VecDeque<Walk>,
}

#[derive(Debug)]
struct Walk {
    folder: Arc<Path>,
    /// The highest position in the listing that was reached.
    at: usize,
    steps: usize,
    /// End of the positions whose containers are opened or being opened.
    end: usize,
}

impl Walks {
    /// Notes that the container at this position of a folder's listing is used. Returns the positions to open.
    fn note(&mut self, folder: &Arc<Path>, at: usize) -> Range<usize> {
        let is_near = |walk: &Walk| walk.folder == *folder && walk.at.abs_diff(at) <= REACH;
        let found = self.walks.iter().position(is_near).and_then(|index| self.walks.remove(index));
        if self.walks.len() == WALKS {
            self.walks.pop_front();
        }
        let mut walk = found.unwrap_or_else(|| Walk { folder: folder.clone(), at, steps: 0, end: at + 1 });
        let is_step = walk.at < at;
        let begin = walk.end.max(at + 1);
        if is_step {
            walk.at = at;
            walk.steps += 1;
        }
        let ahead = if is_step && walk.steps >= STEPS { (2 * walk.steps).min(self.most) } else { 0 };
        let next = begin..(at + 1 + ahead).max(begin);
        walk.end = next.end;
        self.walks.push_back(walk);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(walks: &mut Walks, folder: &str, places: impl IntoIterator<Item = usize>) -> Vec<Range<usize>> {
        let folder = Arc::from(Path::new(folder));
        places.into_iter().map(|at| walks.note(&folder, at)).collect()
    }

    fn walks(most: usize) -> Walks {
        Walks { most, walks: VecDeque::new() }
    }

    #[test]
    fn a_walk_is_ahead_of_by_more_and_more() {
        let mut walks = walks(8);
        assert_eq!(notes(&mut walks, "a", 10..17), [11..11, 12..12, 13..17, 17..20, 20..23, 23..24, 24..25]);
    }

    #[test]
    fn each_place_is_opened_once_whatever_is_left_out() {
        let mut walks = walks(8);
        let opened: Vec<_> = notes(&mut walks, "a", (0..200).step_by(3)).into_iter().flatten().collect();
        assert!(opened.is_sorted() && opened.windows(2).all(|pair| pair[0] < pair[1]), "{opened:?}");
    }

    #[test]
    fn readers_that_share_a_folder_make_one_walk() {
        let mut walks = walks(8);
        let places = [0, 2, 1, 3, 5, 4, 7, 6];
        let opened: Vec<_> = notes(&mut walks, "a", places).into_iter().flatten().collect();
        assert_eq!(walks.walks.len(), 1);
        assert!(opened.iter().eq((4..16).collect::<Vec<_>>().iter()), "{opened:?}");
    }

    #[test]
    fn programs_that_jump_about_have_none_opened() {
        let mut walks = walks(8);
        let places = (0..500).map(|step| step * 389 % 10_000);
        assert!(notes(&mut walks, "a", places).into_iter().all(|next| next.is_empty()));
        let backwards = (0..500).rev();
        assert!(notes(&mut walks, "b", backwards).into_iter().all(|next| next.is_empty()));
    }

    #[test]
    fn walks_side_by_side_are_told_apart() {
        let mut walks = walks(4);
        for step in 0..5 {
            let next = ["a", "b"].map(|folder| notes(&mut walks, folder, [step]).remove(0));
            let far = notes(&mut walks, "a", [5000 + step]).remove(0);
            assert_eq!(next[0], next[1]);
            assert_eq!(far.len(), next[0].len());
            assert_eq!(next[0].is_empty(), step < 2);
        }
        assert_eq!(walks.walks.len(), 3);
        for other in 0..100 {
            notes(&mut walks, &format!("{other}"), [0]);
            assert!(walks.walks.len() <= WALKS);
        }
    }
}
