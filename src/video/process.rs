//! The owner's side of a decoder's process.

use std::{
    fs::File,
    io,
    os::{
        fd::OwnedFd,
        unix::{
            fs::FileExt,
            net::UnixStream,
            process::{CommandExt, ExitStatusExt},
        },
    },
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::{
    argument, program,
    protocol::{ENDED, Kind, LEADING, Message, REASON},
};
use crate::{
    cache::BlockError,
    format::mp4::{Track, VideoCodec},
    source::SourceError,
};

/// How long a decoder may take for one sample. Even samples of the largest pictures take less than a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a process returns no frames.
#[derive(Debug)]
pub(super) enum Failure {
    /// The decoder refuses the bytes. The process can decode others.
    Refused(String),
    /// The process is unusable, or could not be started.
    Lost(String),
    /// It says nothing about the video: descriptors, processes or memory ran out, something ended the process, or it did
    /// not answer in time.
    Short(String),
}

impl From<Failure> for Arc<BlockError> {
    fn from(failure: Failure) -> Self {
        Self::new(match failure {
            Failure::Refused(reason) | Failure::Lost(reason) => BlockError::Refused(reason),
            Failure::Short(reason) => SourceError::from(io::Error::other(reason)).into(),
        })
    }
}

/// A decoder's process. It ends when this value is dropped, or when the thread that started it ends.
pub(super) struct Process {
    child: Child,
    socket: UnixStream,
    memory: File,
    codec: VideoCodec,
    /// Bytes of the shared memory.
    size: u64,
}

impl Process {
    /// Starts a process for videos of a codec and pictures of up to `size` bytes. When this returns, the process is
    /// confined.
    pub(super) fn start(codec: VideoCodec, size: u64) -> Result<Self, Failure> {
        let lost = |reason: &str| Failure::Lost(format!("{codec}: {reason}"));
        let (Some(program), Some(argument)) = (program(), argument(codec)) else {
            return Err(lost("this program does not say how to start a decoder"));
        };
        let start = || -> io::Result<Self> {
            let memory = memfd_create(c"shardfs-video", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            ftruncate(&memory, size)?;
            // The process cannot shorten the memory while it is read.
            fcntl_add_seals(&memory, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
            let (socket, theirs) = UnixStream::pair()?;
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.set_write_timeout(Some(PATIENCE))?;
            let mut command = Command::new(&program.path);
            if let Some(name) = &program.name {
                command.arg0(name);
            }
            command.args(&program.arguments).arg(argument).env_clear().current_dir("/");
            let kept = program.environment.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
            command.envs(kept);
            command.stdin(OwnedFd::from(theirs)).stdout(memory.try_clone()?).stderr(Stdio::null());
            Ok(Self { child: command.spawn()?, socket, memory: memory.into(), codec, size })
        };
        let mut started = start().map_err(|error| {
            use libc::{EAGAIN, EMFILE, ENFILE, ENOMEM};
            let reason = format!("{codec}: a decoder cannot be started: {error}");
            match error.raw_os_error() {
                Some(EAGAIN | EMFILE | ENFILE | ENOMEM) => Failure::Short(reason),
                _ => Failure::Lost(reason),
            }
        })?;
        match started.receive()? {
            Message { kind: Kind::Ready, .. } => Ok(started),
            _ => Err(lost("the decoder's process is another program")),
        }
    }

    /// Returns whether it can decode frames of a track's size and codec, and is alive.
    pub(super) fn is_for(&mut self, track: &Track) -> bool {
        self.codec == track.codec() && track.frame_size() <= self.size && matches!(self.child.try_wait(), Ok(None))
    }

    /// Begins to decode a video.
    pub(super) fn open(&mut self, track: &Track) -> Result<(), Failure> {
        let (width, height) = track.size();
        self.send(&Message::new(Kind::Open, width, height).with(track.configuration().to_vec()))?;
        self.answers(&mut |_, _| ())
    }

    /// Decodes a sample. Passes each complete frame to `frame`: the number of its sample, and the memory that begins
    /// with its pixels.
    pub(super) fn decode(
        &mut self,
        number: u32,
        is_leading: bool,
        bytes: Vec<u8>,
        frame: &mut dyn FnMut(u32, &Pixels<'_>),
    ) -> Result<(), Failure> {
        self.send(&Message::new(Kind::Sample, number, if is_leading { LEADING } else { 0 }).with(bytes))?;
        self.answers(frame)
    }

    /// Passes the frames that are left to `frame`.
    pub(super) fn finish(&mut self, frame: &mut dyn FnMut(u32, &Pixels<'_>)) -> Result<(), Failure> {
        self.send(&Message::new(Kind::End, 0, 0))?;
        self.answers(frame)
    }

    /// Receives answers until all is done.
    fn answers(&mut self, frame: &mut dyn FnMut(u32, &Pixels<'_>)) -> Result<(), Failure> {
        loop {
            match self.receive()? {
                Message { kind: Kind::Done, .. } => return Ok(()),
                Message { kind: Kind::Frame, first, .. } => {
                    frame(first, &Pixels(&self.memory));
                    self.send(&Message::new(Kind::Taken, 0, 0))?;
                }
                _ => return Err(self.lost("the decoder does not answer as it should")),
            }
        }
    }

    fn send(&mut self, message: &Message) -> Result<(), Failure> {
        message.send(&mut self.socket).map_err(|error| self.broken(&error))
    }

    fn receive(&mut self) -> Result<Message, Failure> {
        match Message::receive(&mut self.socket, REASON) {
            Ok(Message { kind: Kind::Failed, second, payload, .. }) => {
                let reason = String::from_utf8_lossy(&payload).into_owned();
                Err(if second == ENDED { self.lost(&reason) } else { Failure::Refused(reason) })
            }
            Ok(message) => Ok(message),
            Err(error) => Err(self.broken(&error)),
        }
    }

    /// Returns the failure of a socket whose other end is silent or gone.
    fn broken(&mut self, error: &io::Error) -> Failure {
        let codec = self.codec;
        let short = |reason: &str| Failure::Short(format!("{codec}: {reason}"));
        match (error.kind(), self.end()) {
            (io::ErrorKind::InvalidData, _) => self.lost("the decoder does not answer as it should"),
            (io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut, _) => {
                short(&format!("the decoder took more than {} s", PATIENCE.as_secs()))
            }
            (_, Err(error)) => short(&error.to_string()),
            (_, Ok(status)) => {
                let reason = format!("the decoder's process ended ({status})");
                // A call that is not allowed fails again the next time.
                let is_from_outside = status.signal().is_some_and(|signal| signal != libc::SIGSYS);
                if is_from_outside { short(&reason) } else { self.lost(&reason) }
            }
        }
    }

    fn end(&mut self) -> io::Result<ExitStatus> {
        let _ = self.child.kill();
        self.child.wait()
    }

    /// Ends the process, which is unusable.
    fn lost(&mut self, reason: &str) -> Failure {
        let _ = self.end();
        Failure::Lost(format!("{}: {reason}", self.codec))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// A frame in the shared memory.
pub(super) struct Pixels<'a>(&'a File);

impl Pixels<'_> {
    /// Copies the first bytes of the pixels. The process may change the memory at any time, but not the copy.
    pub(super) fn copy_to(&self, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, 0)
    }
}
