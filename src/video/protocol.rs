//! The protocol between a decoder's process and its owner: messages of 16 bytes over a socket, some with a payload.
//! Pixels go through shared memory.

use std::io::{self, Read, Write};

/// The kind of a message. The owner sends [`Kind::Open`], [`Kind::Sample`], [`Kind::End`] and [`Kind::Taken`]; the
/// decoder answers with the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Kind {
    /// Begin to decode a video: width and height; the payload is the configuration of its track.
    Open = 1,
    /// Decode a sample: its number; the payload is its bytes. The second number may be [`LEADING`].
    Sample = 2,
    /// Return all frames that are left.
    End = 3,
    /// The frame was copied out of the shared memory.
    Taken = 4,
    /// The decoder is confined and waits.
    Ready = 5,
    /// A frame is in the shared memory: the number of its sample.
    Frame = 6,
    /// The last message is done.
    Done = 7,
    /// It failed. The payload is the reason. The second number is [`ENDED`] if the process ends.
    Failed = 8,
}

impl Kind {
    fn of(number: u32) -> Option<Self> {
        use Kind::{Done, End, Failed, Frame, Open, Ready, Sample, Taken};
        [Open, Sample, End, Taken, Ready, Frame, Done, Failed].into_iter().find(|kind| *kind as u32 == number)
    }
}

/// Longest payload in bytes: a sample. A frame of 8K in the best quality takes a quarter of that.
pub(super) const PAYLOAD: u32 = 64 << 20;
/// The second number of a failure after which the process ends.
pub(super) const ENDED: u32 = 1;
/// The second number of a sample that may refer to frames that were not decoded.
pub(super) const LEADING: u32 = 1;
/// Longest reason of a failure in bytes.
pub(super) const REASON: u32 = 256;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) first: u32,
    pub(super) second: u32,
    pub(super) payload: Vec<u8>,
}

impl Message {
    /// Returns a message without a payload.
    pub(super) fn new(kind: Kind, first: u32, second: u32) -> Self {
        Self { kind, first, second, payload: Vec::new() }
    }

    /// Returns the same with a payload.
    pub(super) fn with(self, payload: Vec<u8>) -> Self {
        Self { payload, ..self }
    }

    /// Sends it.
    ///
    /// # Errors
    /// If the other end is gone or does not read.
    pub(super) fn send(&self, to: &mut impl Write) -> io::Result<()> {
        let mut header = [0; 16];
        let fields = [self.kind as u32, self.first, self.second, self.payload.len() as u32];
        for (bytes, field) in header.chunks_exact_mut(4).zip(fields) {
            bytes.copy_from_slice(&field.to_le_bytes());
        }
        to.write_all(&header)?;
        to.write_all(&self.payload)
    }

    /// Receives the next one, with a payload of at most `most` bytes.
    ///
    /// # Errors
    /// If the other end is gone or silent, or breaks the protocol.
    pub(super) fn receive(from: &mut impl Read, most: u32) -> io::Result<Self> {
        let mut header = [0; 16];
        from.read_exact(&mut header)?;
        let mut fields = header.chunks_exact(4).map(|four| four.try_into().map_or(0, u32::from_le_bytes));
        let mut next = || fields.next().unwrap_or(0);
        let (kind, first, second, length) = (Kind::of(next()), next(), next(), next());
        let kind = kind.filter(|_| length <= most).ok_or(io::ErrorKind::InvalidData)?;
        let mut payload = crate::source::zeros(length as usize)?;
        from.read_exact(&mut payload)?;
        Ok(Self { kind, first, second, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let mut wire = Vec::new();
        let sent = Message::new(Kind::Sample, 7, 9).with(b"bytes".to_vec());
        sent.send(&mut wire).unwrap();
        assert_eq!(Message::receive(&mut &wire[..], 5).unwrap(), sent);
        assert_eq!(Message::receive(&mut &wire[..], 4).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(Message::receive(&mut &wire[..20], 5).is_err());
        wire[0] = 99;
        assert_eq!(Message::receive(&mut &wire[..], 5).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
