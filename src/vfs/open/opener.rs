//! Opens the container that a request needs, and opens ahead the next ones for programs that go through a folder.
//!
//! A program that uses containers in the order of their folder's listing has the next ones opened on other threads
//! (`sequence`). Round trips to a server, or seeks of a disk, then happen for many containers at once. No thread opens
//! what a request can open on the spot.

use std::{path::Path, sync::Arc};

use parking_lot::Mutex;

use super::{
    containers::Containers,
    opened::Opened,
    sequence::{Limits, SequenceDetector},
};
use crate::{
    pool::{Place, pool},
    source::Wait,
    tree,
    vfs::{
        Error, Node,
        namespace::{beside::Ways, container_id::ContainerId, siblings::Siblings, source_tree::SourceTree},
    },
};

/// Programs that are followed. At most 16 containers are opened ahead of each.
const LIMITS: Limits = Limits { runs: 8, reach: 16, ahead: 16 };

/// Fraction (1/n) of the containers that may be open, within which those that are opened ahead stay.
const PART: u64 = 8;

/// Opens containers for requests, and ahead of programs that go through a folder.
pub(crate) struct Opener {
    source: Arc<SourceTree>,
    containers: Arc<Containers>,
    programs: Mutex<SequenceDetector<Arc<Path>>>,
}

impl Opener {
    pub(crate) fn new(source: Arc<SourceTree>, containers: Arc<Containers>) -> Arc<Self> {
        let ahead = (containers.most() as u64 / PART).min(LIMITS.ahead);
        let programs = Mutex::new(SequenceDetector::new(Limits { ahead, ..LIMITS }));
        Arc::new(Self { source, containers, programs })
    }

    /// The container, opened if it is not, for a request that waits for no more than `wait`.
    ///
    /// # Errors
    /// [`Error`] when the file is gone, has changed, or cannot be parsed; and one of which [`Error::is_would_block`] is
    /// true.
    pub(crate) fn open(self: &Arc<Self>, id: &Arc<ContainerId>, wait: Wait) -> Result<Arc<Opened>, Error> {
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
        let id = &if wait == Wait::Never { id.clone() } else { self.source.confirm(id)? };
        self.containers.open(id, wait, Some(self.siblings(id)))
    }

    /// Returns what finds the other files of a container's folder.
    fn siblings(&self, id: &Arc<ContainerId>) -> Arc<dyn tree::Siblings> {
        Arc::new(Siblings {
            container: id.clone(),
            source: self.source.clone(),
            containers: Arc::downgrade(&self.containers),
            ways: Ways::default(),
        })
    }

    /// Notes that a container is used for the first time, and opens those that the program comes to next. Waits for
    /// nothing.
    fn follow(self: &Arc<Self>, id: &ContainerId) {
        let folder = id.path.folder();
        let Some(names) = self.source.listed(folder) else { return };
        let Some(at) = names.find(id.path.name()) else { return };
        let next = self.programs.lock().note(folder.clone(), at as u64);
        for at in (next.start as usize)..(next.end as usize).min(names.len()) {
            match self.source.find(folder, names.name(at), Wait::Never) {
                // As far as can be told, the ones after it need no waiting either.
                Ok(Some((Node::InContainer(id, _), _))) if self.open_now(&id, Wait::Never).is_ok() => break,
                Ok(Some((Node::InContainer(..), _))) | Err(_) => {}
                Ok(_) => continue,
            }
            let (opener, folder, name) = (self.clone(), folder.clone(), names.name(at).to_owned());
            // Errors are reported to the request that wants the container.
            let open = move || {
                if let Ok(Some((Node::InContainer(id, _), _))) = opener.source.find(&folder, &name, Wait::Always) {
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
