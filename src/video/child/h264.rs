//! Decodes H.264 with the installed libavcodec (FFmpeg 4.3 to 8), which is loaded before the process is confined.
//!
//! Its functions are found by name. Of its structures, only the first fields are used, which have the same places in
//! all these versions.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr, slice,
};

use super::{Decoder, Planes, Refused, Show};

/// Numbers of the library's versions, newest first: libavcodec, libavutil.
const VERSIONS: [(u32, u32); 5] = [(62, 60), (61, 59), (60, 58), (59, 57), (58, 56)];
/// The library's number of H.264.
const H264: c_int = 27;
/// Zeros that the library requires after a configuration.
const PADDING: usize = 64;
/// Pixel formats: 4:2:0 with 8 bits, and the same with the full range.
const YUV420P: c_int = 0;
const YUVJ420P: c_int = 12;
/// The number of the full range.
const FULL_RANGE: i64 = 2;
/// The log level at which nothing is logged.
const QUIET: c_int = -8;
/// The answer that more samples or calls are needed, and the one after the last frame.
const AGAIN: c_int = -libc::EAGAIN;
const END: c_int = -0x2046_4F45;

type Pointer = *mut c_void;

fn damaged(code: c_int) -> Refused {
    format!("H.264: damaged ({code})")
}

/// The front of `AVCodecParameters`.
#[repr(C)]
struct Parameters {
    media: c_int,
    codec: c_int,
    tag: u32,
    configuration: *mut u8,
    configuration_size: c_int,
}

/// The front of `AVPacket`.
#[repr(C)]
struct Packet {
    buffer: Pointer,
    shown: i64,
    decoded: i64,
    data: *mut u8,
    size: c_int,
}

/// The front of `AVFrame`. The fields between `format` and `shown` differ between versions, but always take 16 bytes.
#[repr(C)]
struct Frame {
    data: [*mut u8; 8],
    strides: [c_int; 8],
    extended: Pointer,
    width: c_int,
    height: c_int,
    samples: c_int,
    format: c_int,
    others: [u32; 4],
    shown: i64,
}

/// The loaded libraries.
struct Loaded {
    codec: Pointer,
    util: Pointer,
}

/// Declares the functions that are used, and a function that finds them by name.
macro_rules! functions {
    ($($library:ident $name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The library's functions.
        pub(super) struct Library {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Library {
            /// Finds the functions in `libavcodec` and `libavutil`.
            #[allow(unsafe_code, reason = "addresses of functions become functions")]
            fn find(loaded: &Loaded) -> Option<Self> {
                Some(Self { $($name: {
                    let name = concat!(stringify!($name), "\0");
                    // SAFETY: the name ends with a zero, and the library stays loaded. A function of this name has had
                    // these arguments in all versions.
                    unsafe {
                        let found = libc::dlsym(loaded.$library, name.as_ptr().cast());
                        if found.is_null() { return None }
                        std::mem::transmute::<Pointer, unsafe extern "C" fn($($argument),*) $(-> $result)?>(found)
                    }
                },)* })
            }
        }
    };
}

functions! {
    codec avcodec_find_decoder(c_int) -> Pointer;
    codec avcodec_alloc_context3(Pointer) -> Pointer;
    codec avcodec_free_context(*mut Pointer);
    codec avcodec_parameters_alloc() -> *mut Parameters;
    codec avcodec_parameters_free(*mut *mut Parameters);
    codec avcodec_parameters_to_context(Pointer, *const Parameters) -> c_int;
    codec avcodec_open2(Pointer, Pointer, Pointer) -> c_int;
    codec avcodec_send_packet(Pointer, *const Packet) -> c_int;
    codec avcodec_receive_frame(Pointer, *mut Frame) -> c_int;
    codec av_packet_alloc() -> *mut Packet;
    codec av_packet_free(*mut *mut Packet);
    codec av_new_packet(*mut Packet, c_int) -> c_int;
    codec av_packet_unref(*mut Packet);
    util av_frame_alloc() -> *mut Frame;
    util av_frame_free(*mut *mut Frame);
    util av_mallocz(usize) -> Pointer;
    util av_opt_set(Pointer, *const c_char, *const c_char, c_int) -> c_int;
    util av_opt_get_int(Pointer, *const c_char, c_int, *mut i64) -> c_int;
    util av_log_set_level(c_int);
}

#[allow(unsafe_code, reason = "the library is C; only the decoder's process runs it")]
impl Library {
    /// Loads the newest version that is installed.
    pub(super) fn load() -> Result<Self, Refused> {
        let open = |name: &str, version: u32| {
            let name = format!("lib{name}.so.{version}\0");
            // SAFETY: the name ends with a zero. The library is one of the system, like the C library.
            let found = unsafe { libc::dlopen(name.as_ptr().cast(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            (!found.is_null()).then_some(found)
        };
        let mut found = VERSIONS
            .iter()
            .filter_map(|&(codec, util)| Some(Loaded { codec: open("avcodec", codec)?, util: open("avutil", util)? }));
        let library = found.find_map(|loaded| Self::find(&loaded));
        let library = library.ok_or("H.264: needs libavcodec (FFmpeg), which is not installed")?;
        // SAFETY: sets a number. The decoder is looked up now because a library may initialize itself then.
        let decoder = unsafe {
            (library.av_log_set_level)(QUIET);
            (library.avcodec_find_decoder)(H264)
        };
        if decoder.is_null() {
            return Err("H.264: the libavcodec (FFmpeg) that is installed does not decode it".into());
        }
        Ok(library)
    }

    /// Opens a decoder for a track.
    pub(super) fn open(&self, configuration: &[u8]) -> Result<Video<'_>, Refused> {
        // SAFETY: all pointers come from the library and are looked at only if they are not null. The configuration is
        // copied to memory of its size with the padding, which the parameters own from then on.
        unsafe {
            let decoder = (self.avcodec_find_decoder)(H264);
            let video = Video {
                library: self,
                context: (self.avcodec_alloc_context3)(decoder),
                packet: (self.av_packet_alloc)(),
                frame: (self.av_frame_alloc)(),
            };
            let mut parameters = (self.avcodec_parameters_alloc)();
            let copy = (self.av_mallocz)(configuration.len() + PADDING).cast::<u8>();
            if video.context.is_null()
                || video.packet.is_null()
                || video.frame.is_null()
                || parameters.is_null()
                || copy.is_null()
            {
                return Err("H.264: no memory".into());
            }
            ptr::copy_nonoverlapping(configuration.as_ptr(), copy, configuration.len());
            (*parameters).media = 0;
            (*parameters).codec = H264;
            (*parameters).configuration = copy;
            (*parameters).configuration_size = configuration.len() as c_int;
            let done = (self.avcodec_parameters_to_context)(video.context, parameters);
            (self.avcodec_parameters_free)(&raw mut parameters);
            // One thread, because the process may start no others. Damage is an error; the decoder must not conceal it.
            let options = [(c"threads", c"1"), (c"err_detect", c"crccheck+bitstream+buffer+explode"), (c"ec", c"0")];
            let is_set =
                |(name, value): (&CStr, &CStr)| (self.av_opt_set)(video.context, name.as_ptr(), value.as_ptr(), 0) >= 0;
            if done < 0 || !options.into_iter().all(is_set) {
                return Err("H.264: the decoder cannot be set up".into());
            }
            match (self.avcodec_open2)(video.context, decoder, ptr::null_mut()) {
                0.. => Ok(video),
                code => Err(format!("H.264: the decoder does not open ({code})")),
            }
        }
    }
}

/// A decoder of one video.
pub(super) struct Video<'a> {
    library: &'a Library,
    context: Pointer,
    packet: *mut Packet,
    frame: *mut Frame,
}

#[allow(unsafe_code, reason = "as above")]
impl Video<'_> {
    fn option(&self, name: &CStr) -> i64 {
        let mut value = 0;
        // SAFETY: the context is open, the name ends with a zero, and the value is valid for the call.
        match unsafe { (self.library.av_opt_get_int)(self.context, name.as_ptr(), 0, &raw mut value) } {
            0.. => value,
            _ => 0,
        }
    }

    /// Shows the frames that are complete. Of a leading sample, the decoder may have none.
    fn show_all(&mut self, is_leading: bool, show: &mut Show<'_>) -> Result<(), Refused> {
        loop {
            // SAFETY: context and frame come from the library.
            match unsafe { (self.library.avcodec_receive_frame)(self.context, self.frame) } {
                AGAIN | END => return Ok(()),
                ..0 if is_leading => return Ok(()),
                code @ ..0 => return Err(damaged(code)),
                _ => self.show_one(show)?,
            }
        }
    }

    fn show_one(&self, show: &mut Show<'_>) -> Result<(), Refused> {
        // SAFETY: the library has filled the frame, which lives until the next call.
        let frame = unsafe { &*self.frame };
        if !matches!(frame.format, YUV420P | YUVJ420P) {
            return Err("H.264: a frame that is not 4:2:0 with 8 bits".into());
        }
        let ([luma, blue, red, ..], [luma_stride, chroma_stride, same, ..]) = (frame.data, frame.strides);
        let (Ok(width), Ok(height)) = (u32::try_from(frame.width), u32::try_from(frame.height)) else {
            return Err("H.264: a frame without a size".into());
        };
        let (Ok(luma_stride), Ok(chroma_stride)) = (usize::try_from(luma_stride), usize::try_from(chroma_stride))
        else {
            return Err("H.264: a frame with rows from the bottom".into());
        };
        let (across, rows) = (width as usize, height as usize);
        let is_whole = luma_stride >= across && chroma_stride >= across.div_ceil(2) && same as usize == chroma_stride;
        if !is_whole || luma.is_null() || blue.is_null() || red.is_null() || rows == 0 {
            return Err("H.264: a frame without planes".into());
        }
        // Only the pixels of the last row are certain to be in memory, not its padding.
        let length = |stride: usize, rows: usize, across: usize| stride * (rows - 1) + across;
        let chroma = length(chroma_stride, rows.div_ceil(2), across.div_ceil(2));
        // SAFETY: the frame has this many rows of these lengths; each chroma has half as many, rounded up.
        let (luma, blue, red) = unsafe {
            let plane = |start: *mut u8, length| slice::from_raw_parts(start.cast_const(), length);
            (plane(luma, length(luma_stride, rows, across)), plane(blue, chroma), plane(red, chroma))
        };
        let planes = Planes {
            width,
            height,
            luma,
            luma_stride,
            chroma: [blue, red],
            chroma_stride,
            matrix: u32::try_from(self.option(c"colorspace")).unwrap_or(0),
            is_full_range: frame.format == YUVJ420P || self.option(c"color_range") == FULL_RANGE,
        };
        show(u32::try_from(frame.shown).unwrap_or(u32::MAX), &planes)
    }
}

#[allow(unsafe_code, reason = "as above")]
impl Decoder for Video<'_> {
    fn decode(&mut self, number: u32, is_leading: bool, bytes: &[u8], show: &mut Show<'_>) -> Result<(), Refused> {
        let length = c_int::try_from(bytes.len()).map_err(|_| "H.264: a sample that is too large")?;
        if length == 0 {
            return Err("H.264: an empty sample".into());
        }
        // SAFETY: the library allocates a packet of this length, with its padding.
        let sent = unsafe {
            if (self.library.av_new_packet)(self.packet, length) < 0 {
                return Err("H.264: no memory".into());
            }
            ptr::copy_nonoverlapping(bytes.as_ptr(), (*self.packet).data, bytes.len());
            ((*self.packet).shown, (*self.packet).decoded) = (number.into(), number.into());
            let sent = (self.library.avcodec_send_packet)(self.context, self.packet);
            (self.library.av_packet_unref)(self.packet);
            sent
        };
        match sent {
            0.. => self.show_all(is_leading, show),
            _ if is_leading => Ok(()),
            code => Err(damaged(code)),
        }
    }

    fn finish(&mut self, show: &mut Show<'_>) -> Result<(), Refused> {
        // SAFETY: the library accepts a null packet, which means the end of the stream.
        match unsafe { (self.library.avcodec_send_packet)(self.context, ptr::null()) } {
            0.. | END => self.show_all(false, show),
            code => Err(damaged(code)),
        }
    }
}

#[allow(unsafe_code, reason = "as above")]
impl Drop for Video<'_> {
    fn drop(&mut self) {
        // SAFETY: all three come from the library, which takes null too; they are not used any more.
        unsafe {
            (self.library.av_frame_free)(&raw mut self.frame);
            (self.library.av_packet_free)(&raw mut self.packet);
            (self.library.avcodec_free_context)(&raw mut self.context);
        }
    }
}
