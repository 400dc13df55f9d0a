//! Bodies of files: read piece by piece, each when the client has taken the one before.
//!
//! A piece is a copy of decoded bytes, or lent from the map of a file. What is lent leaves this process by a system
//! call only, which may be long after it was read; so the last piece of a body is read, with a look at the file's
//! state, when all that was lent has been sent. A body that fails ends before its length, and the connection with it.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use axum::body::Body;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Refusal, Site};
use crate::{
    limits::SERVED_PIECE,
    source::Wait,
    view::{self, Scratch},
    volume::Entry,
};

/// Pieces that may be lent at a time: hyper takes fewer.
const LENT: u32 = 64;
/// Bytes of a piece where the one before was lent: it takes no memory.
const LENT_PIECE: u64 = 2 << 20;

/// Entries that are looked at together for a list of them.
pub(super) const PIECE_ENTRIES: usize = 256;
/// Bytes at which such a piece ends.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// A piece of a body, and what is left of it.
pub(super) type Piece<R> = (Vec<u8>, Option<R>);

/// A body that is made by a function from what is left of it, piece by piece, each when the client has taken the one
/// before. The function runs as [`Site::make`] has it, and the cache's budget counts what it made until it is sent. A
/// failure ends the body, and the connection with it.
///
/// # Errors
/// [`Refusal`] where the first piece can't be made.
pub(super) async fn made<R: Send + 'static>(
    site: &Arc<Site>,
    begin: R,
    make: fn(R) -> Result<Piece<R>, Refusal>,
) -> Result<Body, Refusal> {
    let site = site.clone();
    let next = async move |rest: R| {
        site.make(move |site| {
            let (bytes, rest) = make(rest)?;
            Ok((site.counted(bytes)?, rest))
        })
        .await
    };
    let (first, rest) = next(begin).await?;
    let Some(rest) = rest else { return Ok(Body::from(first)) };
    let others = stream::try_unfold((Some(rest), next), async |(rest, next)| {
        let Some(rest) = rest else { return Ok(None) };
        let (bytes, rest) = next(rest).await.map_err(|refusal: Refusal| refusal.text)?;
        Ok::<_, String>(Some((bytes, (rest, next))))
    });
    Ok(Body::from_stream(stream::once(async { Ok(first) }).chain(others)))
}

/// A part of a body.
#[derive(Debug)]
pub(super) enum Segment {
    /// These bytes: what stands between two ranges.
    Text(Bytes),
    /// A range of the file.
    Range(Range<u64>),
}

/// A file that is being sent.
pub(super) struct Sending {
    site: Arc<Site>,
    entry: Entry,
    /// The tag of the state that the headers told of.
    tag: Option<u128>,
    segments: VecDeque<Segment>,
    /// Bytes that the next piece may have.
    most: u64,
    /// One permit for each piece that is lent.
    lent: Arc<Semaphore>,
}

/// The bytes of `entry` from `range.start` on, at most as many as a piece has, as memory of their own; and whether the
/// file is still in the state of that `tag`.
///
/// # Errors
/// [`Refusal`] where they can't be read, are of another state, or would have to be waited for longer than `wait`.
pub(super) fn read(entry: &Entry, tag: Option<u128>, range: &Range<u64>, wait: Wait) -> Result<Bytes, Refusal> {
    let (vfs, ino) = (entry.vfs(), entry.ino());
    let piece = vfs.read_copied_with(ino, range.start, SERVED_PIECE.min(range.end - range.start), wait)?;
    if piece.is_empty() && !range.is_empty() {
        return Err(crate::vfs::Error::short((entry.path().into(), String::new()), range.start, range.end).into());
    }
    // A container is read in one state or not at all. An ordinary file of SOURCE is what it is at that moment.
    if vfs.tag(ino)? != tag {
        return Err(Refusal::changed());
    }
    Ok(piece.into())
}

impl Sending {
    pub(super) fn new(site: Arc<Site>, entry: Entry, tag: Option<u128>, segments: VecDeque<Segment>) -> Self {
        Self { site, entry, tag, segments, most: SERVED_PIECE, lent: Arc::new(Semaphore::new(LENT as usize)) }
    }

    /// The body.
    pub(super) fn into_body(self) -> Body {
        Body::from_stream(stream::try_unfold(self, async |mut this: Self| {
            let piece = this.next().await.map_err(|refusal| {
                log::debug!("{}: {}", this.entry.path().display(), refusal.text);
                refusal.text
            })?;
            Ok::<_, String>(piece.map(|piece| (piece, this)))
        }))
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        let range = match self.segments.pop_front() {
            None => return Ok(None),
            Some(Segment::Text(bytes)) => return Ok(Some(bytes)),
            Some(Segment::Range(range)) => range,
        };
        let is_last = range.end - range.start <= SERVED_PIECE
            && !self.segments.iter().any(|segment| matches!(segment, Segment::Range(_)));
        let piece = if is_last { self.last(range.clone()).await? } else { self.piece(&range).await? };
        let rest = range.start + piece.len() as u64..range.end;
        if !rest.is_empty() {
            self.segments.push_front(Segment::Range(rest));
        }
        Ok(Some(piece))
    }

    /// A piece that others follow, be it of one byte.
    async fn piece(&mut self, range: &Range<u64>) -> Result<Bytes, Refusal> {
        let has_others = self.segments.iter().any(|segment| matches!(segment, Segment::Range(_)));
        let left = range.end - range.start - u64::from(!has_others);
        let (start, length) = (range.start, self.most.min(left));
        self.most = SERVED_PIECE;
        // What is in memory already needs no other thread.
        let bytes = match self.entry.vfs().read_with(self.entry.ino(), start, length, Wait::Never) {
            Err(error) if error.is_would_block() => {
                let entry = self.entry.clone();
                self.site.run(move |_| Ok(entry.vfs().read(entry.ino(), start, length)?)).await?
            }
            bytes => bytes?,
        };
        let piece = match bytes {
            view::Bytes::Owned(bytes) => Bytes::from_owner(bytes),
            // A client that takes nothing must not keep a block in the cache.
            view::Bytes::Decoded(..) | view::Bytes::Shared(..) => {
                let bytes = bytes.as_syscall_buf();
                Bytes::from_owner(Scratch::copy_of(&bytes[..bytes.len().min(SERVED_PIECE as usize)]))
            }
            view::Bytes::Mapped(_) | view::Bytes::Memory(..) => {
                self.most = LENT_PIECE;
                let permit = self.lent.clone().acquire_owned().await.map_err(|_| Refusal::busy())?;
                Bytes::from_owner(Lent { bytes, _permit: permit })
            }
        };
        if piece.is_empty() { Err(Refusal::changed()) } else { Ok(piece) }
    }

    /// The last piece, read when nothing is lent any more.
    async fn last(&self, range: Range<u64>) -> Result<Bytes, Refusal> {
        let _all = self.lent.acquire_many(LENT).await.map_err(|_| Refusal::busy())?;
        let (entry, tag) = (self.entry.clone(), self.tag);
        self.site.run(move |_| read(&entry, tag, &range, Wait::Always)).await
    }
}

/// Bytes of a map, which only system calls may look at.
struct Lent {
    bytes: view::Bytes,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_syscall_buf()
    }
}
