//! Bodies of files. Each piece is read when the client has taken the previous one.
//!
//! A piece is a copy of decoded bytes, or lent from a mapped file. Only a system call touches lent bytes, possibly long
//! after they were looked up; so nothing is lent to a connection that is encrypted. So the last piece of a body is read, and the file's state compared, only when all lent
//! pieces have been sent. A body that fails ends before its length and closes the connection.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use axum::body::Body;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    limits::SERVED_PIECE,
    serve::{Refusal, Site},
    source::Wait,
    view::{self, Scratch},
    volume::Entry,
};

/// Most pieces lent at a time; hyper takes fewer.
const LENT: u32 = 64;
/// Bytes of a piece after one that was lent: lent pieces take no memory.
const LENT_PIECE: u64 = 2 << 20;

/// Most parts in one piece of a text.
const PIECE_PARTS: usize = 256;
/// Bytes at which such a piece ends.
const PIECE_BYTES: usize = 64 << 10;

/// Returns a body of `parts`, such as the entries of a listing. Several make a piece, when the client has taken the
/// previous one; they are made as in [`Site::make`]. The cache's budget counts each piece until it is sent. A failure
/// ends the body and closes the connection.
///
/// # Errors
/// [`Refusal`] if the first piece can't be made.
pub(in crate::serve) async fn made(
    site: &Arc<Site>,
    parts: impl Iterator<Item = Result<String, Refusal>> + Send + 'static,
) -> Result<Body, Refusal> {
    type Parts = Box<dyn Iterator<Item = Result<String, Refusal>> + Send>;
    let (site, parts) = (site.clone(), Box::new(parts) as Parts);
    // No parts are left behind the last piece.
    let next = async move |mut parts: Option<Parts>| {
        site.make(move |site| {
            let mut piece = String::new();
            for _ in 0..PIECE_PARTS {
                match parts.as_mut().filter(|_| piece.len() < PIECE_BYTES).map(Iterator::next) {
                    Some(Some(part)) => piece += &part?,
                    Some(None) => parts = None,
                    None => break,
                }
            }
            Ok((site.counted(piece.into_bytes())?, parts))
        })
        .await
    };
    let (first, rest) = next(Some(parts)).await?;
    if rest.is_none() {
        return Ok(Body::from(first));
    }
    let others = stream::try_unfold((rest, next), async |(rest, next)| {
        if rest.is_none() {
            return Ok(None);
        }
        let (bytes, rest) = next(rest).await.map_err(|refusal: Refusal| refusal.text)?;
        Ok::<_, String>(Some((bytes, (rest, next))))
    });
    Ok(Body::from_stream(stream::once(async { Ok(first) }).chain(others)))
}

/// A part of a body.
#[derive(Debug)]
pub(in crate::serve) enum Segment {
    /// Bytes in memory: text between two ranges, or a first piece that was already read.
    Text(Bytes),
    /// A range of the file.
    Range(Range<u64>),
}

impl Segment {
    /// Bytes of it.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Text(bytes) => bytes.len() as u64,
            Self::Range(range) => range.end - range.start,
        }
    }
}

/// A file that is being sent.
pub(in crate::serve) struct Sending {
    site: Arc<Site>,
    entry: Entry,
    /// The tag of the state that the headers describe.
    tag: Option<u128>,
    segments: VecDeque<Segment>,
    /// Most bytes of the next piece.
    most: u64,
    /// One permit for each piece that is lent.
    lent: Arc<Semaphore>,
}

/// Returns a copy of the first bytes of `range`, at most `SERVED_PIECE`, if the file still has this `tag`.
///
/// # Errors
/// [`Refusal`] if they can't be read, are of another state, or take longer than `wait` permits.
pub(in crate::serve) fn read(
    entry: &Entry,
    tag: Option<u128>,
    range: &Range<u64>,
    wait: Wait,
) -> Result<Bytes, Refusal> {
    let piece = entry.read_copied(range.start, SERVED_PIECE.min(range.end - range.start), wait)?;
    if piece.is_empty() && !range.is_empty() {
        return Err(crate::vfs::Error::short((entry.path().into(), String::new()), range.start, range.end).into());
    }
    // A container is read in one state or not at all. An ordinary file of SOURCE is what it is at that moment.
    if entry.tag()? != tag {
        return Err(Refusal::changed());
    }
    Ok(piece.into())
}

impl Sending {
    pub(in crate::serve) fn new(site: Arc<Site>, entry: Entry, tag: Option<u128>, segments: VecDeque<Segment>) -> Self {
        Self { site, entry, tag, segments, most: SERVED_PIECE, lent: Arc::new(Semaphore::new(LENT as usize)) }
    }

    /// Returns the body.
    pub(in crate::serve) fn into_body(self) -> Body {
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

    /// Reads a piece that is not the last. At least one byte is left for the last.
    async fn piece(&mut self, range: &Range<u64>) -> Result<Bytes, Refusal> {
        let has_others = self.segments.iter().any(|segment| matches!(segment, Segment::Range(_)));
        let left = range.end - range.start - u64::from(!has_others);
        let (start, length) = (range.start, self.most.min(left));
        self.most = SERVED_PIECE;
        let read = match self.site.tls {
            None => Entry::read_with,
            Some(_) => |entry: &Entry, start, length, wait| Ok(entry.read_copied(start, length, wait)?.into()),
        };
        // Bytes that are in memory need no other thread.
        let bytes = match read(&self.entry, start, length, Wait::Never) {
            Err(error) if error.is_would_block() => {
                let entry = self.entry.clone();
                self.site.run(move |_| Ok(read(&entry, start, length, Wait::Always)?)).await?
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

    /// Reads the last piece when nothing is lent any more.
    async fn last(&self, range: Range<u64>) -> Result<Bytes, Refusal> {
        let _all = self.lent.acquire_many(LENT).await.map_err(|_| Refusal::busy())?;
        let (entry, tag) = (self.entry.clone(), self.tag);
        self.site.run(move |_| read(&entry, tag, &range, Wait::Always)).await
    }
}

/// Bytes of a mapped file, which only system calls may touch.
struct Lent {
    bytes: view::Bytes,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_syscall_buf()
    }
}
