//! Members of zip archives as blocks. Where a member's data begin is looked up when it is first read.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::{
    format::zip::{Archive, Member, MemberError},
    view::{BlockRef, Blocks, Data, Fault, ReadContext, View},
};

/// The members of an archive.
#[derive(Debug)]
pub(super) struct Members {
    archive: Archive,
    /// Where the data of each member begin; 0 until that is looked up.
    places: Box<[AtomicU64]>,
}

impl Members {
    pub(super) fn new(archive: Archive) -> Arc<Self> {
        let places = archive.members.iter().map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { archive, places })
    }

    /// Returns all members, in the order of the directory.
    pub(super) fn all(&self) -> &[Member] {
        &self.archive.members
    }

    pub(super) fn get(&self, number: u32) -> Option<&Member> {
        self.archive.members.get(number as usize)
    }

    /// Returns the bytes of a whole member.
    pub(super) fn view(self: &Arc<Self>, number: u32) -> View {
        let size = self.get(number).map_or(0, Member::shown_size);
        View::default().with(size, Data::Sought(self.clone(), number, 0..size))
    }

    /// Returns a range of a member's bytes.
    pub(super) fn part(self: &Arc<Self>, number: u32, range: Range<u64>) -> View {
        View::default().with(range.end - range.start, Data::Sought(self.clone(), number, range))
    }

    /// Returns a member's name, for messages.
    pub(super) fn name(&self, number: u32) -> String {
        self.get(number).map_or_else(String::new, |member| String::from_utf8_lossy(&member.name).into_owned())
    }

    /// Returns how many bytes of memory it takes.
    pub(super) fn memory_usage(&self) -> usize {
        let names: usize = self.all().iter().map(|member| member.name.len() + super::HEAP).sum();
        names + size_of_val(self.all()) + size_of_val(&*self.places)
    }
}

impl Blocks for Members {
    fn block(&self, reader: &ReadContext, number: u32) -> Result<BlockRef, Fault> {
        let (Some(member), Some(place)) = (self.get(number), self.places.get(number as usize)) else {
            return Err(Fault::refused(format!("there is no member {number}")));
        };
        let refused = |reason: String| {
            let block = member.block(member.offset);
            Ok(BlockRef { number, block, error: Some(reason.into()) })
        };
        if let Some(reason) = member.error() {
            return refused(reason);
        }
        let data = match place.load(Relaxed) {
            0 => match member.data(&*reader.source) {
                Ok(data) => data,
                Err(MemberError::Damaged(reason)) => return refused(reason),
                Err(MemberError::Source(error)) => {
                    return Err(Fault { block: Some(number), offset: member.offset, error: Arc::new(error.into()) });
                }
            },
            known => known,
        };
        place.store(data, Relaxed);
        Ok(BlockRef { number, block: member.block(data), error: None })
    }
}
