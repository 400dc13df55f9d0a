//! Files that cannot be shown.

use std::ops::Range;

use crate::view::{Fault, ReadContext, Rendered};

/// Bytes that fail with a reason when they are read.
#[derive(Debug)]
pub(super) struct Refused(pub(super) Box<str>);

impl Rendered for Refused {
    fn fill(&self, _: &ReadContext, _: Range<u64>, _: &mut [u8]) -> Result<(), Fault> {
        Err(Fault::refused(&*self.0))
    }
}
