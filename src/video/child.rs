//! A decoder's process: it receives the bytes of samples and returns pixels.
//!
//! Before the first byte arrives, it gives up everything else: other descriptors, memory beyond a bound, and all system
//! calls except those for memory, the socket and the shared memory. If a hostile video takes over the decoder, it can
//! only send wrong pixels of that video.
//!
//! Its standard input is the socket to its owner, and its standard output the shared memory.

mod av1;
mod confine;
mod h264;
mod pixels;

use std::{ffi::OsStr, io, panic::PanicHookInfo, process::ExitCode};

use super::protocol::{ENDED, Kind, LEADING, Message, PAYLOAD, REASON};
use pixels::{Converter, Planes};

/// Why a decoder returns no frame.
type Refused = String;

/// Takes a frame and the number of the sample that it came with.
type Show<'a> = dyn FnMut(u32, &Planes<'_>) -> Result<(), Refused> + 'a;

/// A decoder of one video.
trait Decoder {
    /// Decodes a sample and shows the frames that are complete. A sample that is leading may refer to frames that were
    /// not decoded: what fails of it is left out.
    fn decode(&mut self, number: u32, is_leading: bool, bytes: &[u8], show: &mut Show<'_>) -> Result<(), Refused>;

    /// Shows the frames that are left.
    fn finish(&mut self, show: &mut Show<'_>) -> Result<(), Refused>;
}

/// Makes decoders of one codec.
enum Maker {
    Av1,
    H264(h264::Library),
}

impl Maker {
    /// Loads what the codec needs, before the process is confined.
    fn load(codec: &OsStr) -> Result<Self, Refused> {
        match codec.to_str() {
            Some("av1") => Ok(Self::Av1),
            Some("h264") => h264::Library::load().map(Self::H264),
            _ => Err("unknown codec".into()),
        }
    }

    fn open<'a>(&'a self, width: u32, height: u32, configuration: &[u8]) -> Result<Box<dyn Decoder + 'a>, Refused> {
        Ok(match self {
            Self::Av1 => Box::new(av1::Av1::new(width, height, configuration)?),
            Self::H264(library) => Box::new(library.open(configuration)?),
        })
    }
}

/// Runs the process until its owner has closed the socket.
pub(super) fn run(codec: &OsStr) -> ExitCode {
    // The signal comes when the thread that started this process ends: its owner.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    std::panic::set_hook(Box::new(report_panic));
    let loaded = Maker::load(codec);
    let confined = confine::confine(memory_size());
    let (mut input, mut output) = (Socket, Socket);
    let maker = match (loaded, confined) {
        (Ok(maker), Ok(())) => maker,
        (Err(reason), _) | (_, Err(reason)) => {
            let _ = failure(&reason).send(&mut output);
            return ExitCode::FAILURE;
        }
    };
    match serve(&maker, &mut input, &mut output) {
        // Its owner is gone.
        Err(_) => ExitCode::FAILURE,
        Ok(()) => ExitCode::SUCCESS,
    }
}

/// Sends the owner the reason of a panic, and ends this process: decoders have functions that cannot unwind. Damaged
/// videos make the AV1 decoder panic. The usual report of a panic needs system calls that are not allowed.
fn report_panic(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map_or_else(String::new, |location| {
        // The last parts of the path: the version of the crate, and the file in it.
        let parts: Vec<_> = location.file().rsplit('/').take(3).collect();
        let path: Vec<_> = parts.into_iter().rev().collect();
        format!("{}:{}", path.join("/"), location.line())
    });
    let payload = panic.payload();
    let text = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(|text| &**text));
    let message = failure(&format!("a sample could not be decoded ({place}: {})", text.unwrap_or_default()));
    let _ = Message { second: ENDED, ..message }.send(&mut Socket);
    std::process::exit(1);
}

fn failure(reason: &str) -> Message {
    Message::new(Kind::Failed, 0, 0).with(reason.bytes().take(REASON as usize).collect())
}

/// Answers until the socket is closed.
fn serve(maker: &Maker, input: &mut Socket, output: &mut Socket) -> io::Result<()> {
    Message::new(Kind::Ready, 0, 0).send(output)?;
    let (mut decoder, mut size): (Option<Box<dyn Decoder + '_>>, _) = (None, (0, 0));
    let mut converter = Converter::default();
    loop {
        let Message { kind, first, second, payload } = Message::receive(input, PAYLOAD)?;
        let mut show = |number: u32, planes: &Planes<'_>| {
            let (width, height) = (planes.width, planes.height);
            if (width, height) != size {
                let (w, h) = size;
                return Err(format!("a frame of {width} × {height} in a video of {w} × {h}"));
            }
            converter.convert(planes).and_then(write).map_err(|error| error.to_string())?;
            Message::new(Kind::Frame, number, 0).send(output).map_err(|error| error.to_string())?;
            match Message::receive(input, 0) {
                Ok(Message { kind: Kind::Taken, .. }) => Ok(()),
                _ => Err("the frame was not taken".into()),
            }
        };
        let done = match (kind, &mut decoder) {
            (Kind::Open, _) => {
                // The old decoder is dropped first, because two decoders may exceed the memory bound.
                decoder = None;
                size = (first, second);
                maker.open(first, second, &payload).map(|made| decoder = Some(made))
            }
            (Kind::Sample, Some(decoder)) => decoder.decode(first, second == LEADING, &payload, &mut show),
            (Kind::End, Some(decoder)) => decoder.finish(&mut show),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        match done {
            Ok(()) => Message::new(Kind::Done, 0, 0).send(output)?,
            Err(reason) => {
                decoder = None;
                failure(&reason).send(output)?;
            }
        }
    }
}

/// The socket to the owner.
struct Socket;

impl io::Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(rustix::stdio::stdin(), buf)?)
    }
}

impl io::Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(rustix::stdio::stdin(), buf)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the size of the shared memory in bytes; 0 if that cannot be found.
fn memory_size() -> u64 {
    rustix::fs::fstat(rustix::stdio::stdout()).map_or(0, |stat| stat.st_size.cast_unsigned())
}

/// Writes a frame to the shared memory.
fn write(mut rest: &[u8]) -> io::Result<()> {
    let mut at = 0;
    while !rest.is_empty() {
        let written = rustix::io::pwrite(rustix::stdio::stdout(), rest, at)?;
        rest = rest.get(written.max(1)..).unwrap_or_default();
        at += written as u64;
    }
    Ok(())
}
