//! Decodes blocks from the front, as far as is wanted. shardfs serves large blocks while they are decoded.

use std::{cell::RefCell, io::Read};

use zstd::zstd_safe::{self, DCtx, DParameter, InBuffer, OutBuffer};

use super::{Codec, DecodeError, LEAST_WINDOW, MOST_WINDOW, ZSTD_HEADER, deflate::Inflater, to_usize, window};
use crate::source::check_room;

/// Bytes of memory taken before anything is decoded.
const FIRST: u64 = 1 << 20;

/// A block being decoded, from the front.
pub struct Stream<R: Read>(Decoder<R>);

enum Decoder<R: Read> {
    Zstd(Frames<R>),
    Inflate(Inflater<R>),
}

/// Stored bytes that are read at once.
const INPUT: usize = 128 << 10;

/// Consecutive zstd frames as one stream.
struct Frames<R: Read> {
    context: DCtx<'static>,
    /// The largest window in bytes that it may use.
    window: u64,
    stored: R,
    input: Vec<u8>,
    /// Offset of the bytes in `input` that are not used yet.
    from: usize,
    to: usize,
    /// Whether it is between two frames.
    is_between: bool,
}

thread_local! {
    /// A context of this thread. Making one takes longer than decoding a block of a few KiB.
    static CONTEXT: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// Decodes consecutive zstd frames in one go. Returns the number of bytes.
pub(super) fn decompress(out: &mut [u8], stored: &[u8]) -> zstd_safe::SafeResult {
    CONTEXT.with_borrow_mut(|context| match context {
        Some(context) => context.decompress(out, stored),
        None => match DCtx::try_create() {
            Some(made) => context.insert(made).decompress(out, stored),
            None => zstd_safe::decompress(out, stored),
        },
    })
}

/// Numbers of zstd errors (`zstd_errors.h`); error codes are these numbers, negated.
const NO_MEMORY: usize = 64;
const TOO_LITTLE_ROOM: usize = 70;

/// Returns what an error code of zstd means, for `size` bytes that were to be decoded with a window.
pub(super) fn failed(code: usize, size: u64, window: u64) -> DecodeError {
    match code.wrapping_neg() {
        NO_MEMORY => DecodeError::Memory(Codec::Zstd.working_memory(window, 0, size)),
        TOO_LITTLE_ROOM => DecodeError::Size { got: size + 1, size },
        _ => Codec::Zstd.corrupt(zstd_safe::get_error_name(code)),
    }
}

impl<R: Read> Frames<R> {
    fn new(stored: R, window: u64) -> Result<Self, DecodeError> {
        let mut context = DCtx::try_create().ok_or(DecodeError::Memory(window))?;
        // A power of two, and not below zstd's minimum.
        let log = window.clamp(LEAST_WINDOW, MOST_WINDOW).next_power_of_two().trailing_zeros();
        set(&mut context, DParameter::WindowLogMax(log))?;
        Ok(Self { context, window, stored, input: Vec::new(), from: 0, to: 0, is_between: true })
    }

    /// Reads more stored bytes after those that are not used yet.
    fn read(&mut self) -> Result<(), DecodeError> {
        self.input.resize(INPUT, 0);
        self.input.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        let free = self.input.get_mut(self.to..).unwrap_or_default();
        self.to += self.stored.read(free).map_err(|e| Codec::Zstd.failed(e))?;
        Ok(())
    }

    /// Reads the header of the next frame and checks the window that it asks for.
    fn begin_frame(&mut self) -> Result<(), DecodeError> {
        while self.to - self.from < ZSTD_HEADER {
            let before = self.to - self.from;
            self.read()?;
            if self.to - self.from == before {
                break;
            }
        }
        match window(self.input.get(self.from..self.to).unwrap_or_default()) {
            // The block is decoded again with a larger window. A power of two, so that frames which ask for a little
            // more each do not restart it each time.
            Some(window) if window > self.window && window <= MOST_WINDOW => {
                Err(DecodeError::Window(window.next_power_of_two()))
            }
            // The decoder refuses windows beyond the bound.
            _ => Ok(()),
        }
    }

    /// Decodes into `out[filled..]` until it is full, a frame ends, or all input is used. Returns how far `out` is
    /// filled, and whether there was anything to decode.
    fn step(&mut self, out: &mut [u8], filled: usize) -> Result<(usize, bool), DecodeError> {
        if self.is_between {
            self.begin_frame()?;
        } else if self.from == self.to {
            self.read()?;
        }
        if self.from == self.to && self.is_between {
            return Ok((filled, false));
        }
        let size = out.len() as u64;
        let mut input = InBuffer::around(self.input.get(self.from..self.to).unwrap_or_default());
        let mut output = OutBuffer::around_pos(out, filled);
        let left = self.context.decompress_stream(&mut output, &mut input);
        let left = left.map_err(|code| failed(code, size, self.window))?;
        let (taken, reached) = (input.pos(), output.pos());
        if self.from == self.to && reached == filled {
            return Err(Codec::Zstd.corrupt("it ends inside a frame"));
        }
        self.from += taken;
        self.is_between = left == 0;
        Ok((reached, true))
    }

    fn fill(&mut self, out: &mut [u8]) -> Result<usize, DecodeError> {
        let mut filled = 0;
        while filled < out.len() {
            let (reached, is_more) = self.step(out, filled)?;
            if !is_more {
                break;
            }
            filled = reached;
        }
        Ok(filled)
    }
}

fn set(context: &mut DCtx<'static>, parameter: DParameter) -> Result<(), DecodeError> {
    context.set_parameter(parameter).map(drop).map_err(|code| failed(code, 0, 0))
}

/// Decodes consecutive zstd frames into `out`, which has exactly their size. No window is needed because they are
/// decoded in place. `each` gets all bytes in order, each part as soon as it is decoded.
///
/// # Errors
/// As [`Codec::decode_into`]; `out` may then hold anything.
pub fn decode_zstd(stored: impl Read, out: &mut [u8], mut each: impl FnMut(&[u8])) -> Result<(), DecodeError> {
    let mut frames = Frames::new(stored, MOST_WINDOW)?;
    set(&mut frames.context, DParameter::StableOutBuffer(true))?;
    let mut filled = 0;
    // Until all stored bytes are read: a frame's end and its checksum come after the last decoded byte.
    loop {
        let (reached, is_more) = frames.step(out, filled)?;
        if !is_more {
            break;
        }
        each(out.get(filled..reached).unwrap_or_default());
        filled = reached;
    }
    match filled == out.len() {
        true => Ok(()),
        false => Err(DecodeError::Size { got: filled as u64, size: out.len() as u64 }),
    }
}

impl<R: Read> Stream<R> {
    /// Starts to decode: consecutive zstd frames, each with a window of at most `window` bytes, or a DEFLATE or zlib
    /// stream.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] if there is no decoder, as for a codec that decodes only whole blocks.
    pub fn new(codec: &Codec, stored: R, window: u64) -> Result<Self, DecodeError> {
        match codec {
            Codec::Zstd => Ok(Self(Decoder::Zstd(Frames::new(stored, window)?))),
            Codec::Deflate | Codec::DeflateExact | Codec::Zlib | Codec::ZlibExact => {
                Ok(Self(Decoder::Inflate(Inflater::new(codec.clone(), stored))))
            }
            _ => Err(codec.corrupt("it is decoded whole")),
        }
    }

    /// Decodes until `out` is full or the data end. Returns the number of bytes written.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] for a damaged payload (for zstd also a cut one); [`DecodeError::Window`].
    pub fn fill(&mut self, out: &mut [u8]) -> Result<usize, DecodeError> {
        match &mut self.0 {
            Decoder::Zstd(frames) => frames.fill(out),
            Decoder::Inflate(inflater) => inflater.fill(out),
        }
    }

    /// Decodes `size` bytes, or all if there are fewer. Memory is taken as bytes come out, never for a stated size.
    ///
    /// # Errors
    /// As [`Self::fill`]; [`DecodeError::Memory`] if there is not enough memory.
    pub fn take(&mut self, size: u64) -> Result<Vec<u8>, DecodeError> {
        let mut out = Vec::new();
        while (out.len() as u64) < size {
            let from = out.len();
            let more = (size - from as u64).min(FIRST.max(from as u64));
            check_room(more, 1).map_err(|_| DecodeError::Memory(size))?;
            let more = to_usize(more);
            out.try_reserve_exact(more).map_err(|_| DecodeError::Memory(size))?;
            out.resize(from + more, 0);
            let filled = self.fill(out.get_mut(from..).unwrap_or_default())?;
            if filled < more {
                out.truncate(from + filled);
                break;
            }
        }
        Ok(out)
    }

    /// Checks that the block ends properly: `got` bytes came, `size` were stated, and nothing follows a zstd stream.
    ///
    /// # Errors
    /// [`DecodeError::Size`], or `Corrupt` if the end of the payload is damaged.
    pub fn finish(&mut self, got: u64, size: u64) -> Result<(), DecodeError> {
        if let Decoder::Inflate(inflater) = &mut self.0 {
            return inflater.finish(got, size);
        }
        if got < size {
            return Err(DecodeError::Size { got, size });
        }
        match self.fill(&mut [0; 1])? {
            0 => Ok(()),
            _ => Err(DecodeError::Size { got: size + 1, size }),
        }
    }
}
