//! Bodies of files: read piece by piece, each when the client has taken the one before.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;

use super::{Refusal, Site};
use crate::{limits::PIECE, volume::Entry};

/// The bytes of a file from `start` to `end`. A body that fails ends before its length, and the connection with it.
pub(super) fn of_range(site: Arc<Site>, entry: Entry, start: u64, end: u64) -> Body {
    let pieces = stream::try_unfold(start, move |at| {
        let (site, entry) = (site.clone(), entry.clone());
        async move {
            if at >= end {
                return Ok(None);
            }
            let piece = site.run(move |_| read(&entry, at, end)).await.map_err(|refusal| refusal.text)?;
            let next = at + piece.len() as u64;
            Ok::<_, String>(Some((piece, next)))
        }
    });
    Body::from_stream(pieces)
}

fn read(entry: &Entry, at: u64, end: u64) -> Result<Bytes, Refusal> {
    let piece = entry.read_range(at, (end - at).min(PIECE as u64))?;
    if piece.is_empty() {
        return Err(crate::vfs::Error::short((entry.path().into(), String::new()), at, end).into());
    }
    Ok(piece.into())
}
