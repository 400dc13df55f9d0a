//! Decodes AV1 with rav1d, whose interface is that of the C library dav1d.

use std::{
    ffi::c_void,
    mem::MaybeUninit,
    ptr::{self, NonNull},
    slice,
};

use rav1d::{
    Dav1dResult,
    include::dav1d::{
        data::Dav1dData,
        dav1d::{Dav1dContext, Dav1dSettings},
        headers::DAV1D_PIXEL_LAYOUT_I420,
        picture::Dav1dPicture,
    },
    src::lib::{
        dav1d_close, dav1d_data_create, dav1d_data_unref, dav1d_default_settings, dav1d_get_picture, dav1d_open,
        dav1d_picture_unref, dav1d_send_data,
    },
};

use super::{Decoder, Planes, Refused, Show};

/// A decoder of one video.
pub(super) struct Av1 {
    context: Option<Dav1dContext>,
}

/// The answer that more samples or calls are needed.
const AGAIN: i32 = -libc::EAGAIN;

#[allow(unsafe_code, reason = "the interface of the decoder is C's; only the decoder's process runs it")]
impl Av1 {
    pub(super) fn new(width: u32, height: u32, configuration: &[u8]) -> Result<Self, Refused> {
        let mut settings = MaybeUninit::<Dav1dSettings>::uninit();
        // SAFETY: the function initializes all of it.
        let mut settings = unsafe {
            dav1d_default_settings(NonNull::from(&mut settings).cast());
            settings.assume_init()
        };
        // One thread: the process may start no others.
        (settings.n_threads, settings.max_frame_delay) = (1, 1);
        settings.frame_size_limit = width.saturating_mul(height);
        // Samples usually have one layer. If there are several, the highest is the picture.
        settings.all_layers = 0;
        let mut context = None;
        // SAFETY: both are valid for the call.
        let done = unsafe { dav1d_open(Some(NonNull::from(&mut context)), Some(NonNull::from(&mut settings))) };
        let (0, Some(context)) = (done.0, context) else {
            return Err(format!("AV1: the decoder does not open ({})", done.0));
        };
        let mut opened = Self { context: Some(context) };
        // After its first four bytes, the configuration may have a header that samples lack. If that is damaged, the
        // samples that need it fail.
        if let Some(header) = configuration.get(4..).filter(|header| !header.is_empty()) {
            let _ = opened.decode(u32::MAX, false, header, &mut |_, _| Ok(()));
        }
        Ok(opened)
    }

    /// Shows the frames that are complete.
    fn show_all(&mut self, show: &mut Show<'_>) -> Result<(), Refused> {
        loop {
            let mut picture = Dav1dPicture::default();
            // SAFETY: the context is open, and the picture valid for the call.
            let Dav1dResult(code) = unsafe { dav1d_get_picture(self.context, Some(NonNull::from(&mut picture))) };
            if code == AGAIN {
                return Ok(());
            }
            if code != 0 {
                return Err(format!("AV1: damaged ({code})"));
            }
            let shown = show_one(&picture, show);
            // SAFETY: the picture came from the decoder, and nothing refers to it any more.
            unsafe { dav1d_picture_unref(Some(NonNull::from(&mut picture))) };
            shown?;
        }
    }
}

/// Shows one picture.
#[allow(unsafe_code, reason = "the planes are pointers")]
fn show_one(picture: &Dav1dPicture, show: &mut Show<'_>) -> Result<(), Refused> {
    let (width, height) = (picture.p.w.cast_unsigned(), picture.p.h.cast_unsigned());
    if picture.p.bpc != 8 || picture.p.layout != DAV1D_PIXEL_LAYOUT_I420 {
        return Err("AV1: a frame that is not 4:2:0 with 8 bits".into());
    }
    let ([Some(luma), Some(blue), Some(red)], Some(header)) = (picture.data, picture.seq_hdr) else {
        return Err("AV1: a frame without planes".into());
    };
    let [luma_stride, chroma_stride] = picture.stride;
    let (Ok(luma_stride), Ok(chroma_stride)) = (usize::try_from(luma_stride), usize::try_from(chroma_stride)) else {
        return Err("AV1: a frame with rows from the bottom".into());
    };
    let rows = height as usize;
    // SAFETY: the decoder's picture has this many rows of these lengths; each chroma has half as many, rounded up. It
    // lives until the caller releases it. The header belongs to it.
    let (planes, header) = unsafe {
        let plane = |start: NonNull<c_void>, length| slice::from_raw_parts(start.as_ptr().cast::<u8>(), length);
        let chroma = chroma_stride * rows.div_ceil(2);
        ((plane(luma, luma_stride * rows), [plane(blue, chroma), plane(red, chroma)]), header.as_ref())
    };
    let number = u32::try_from(picture.m.timestamp).unwrap_or(u32::MAX);
    let planes = Planes {
        width,
        height,
        luma: planes.0,
        luma_stride,
        chroma: planes.1,
        chroma_stride,
        matrix: header.mtrx,
        is_full_range: header.color_range != 0,
    };
    show(number, &planes)
}

#[allow(unsafe_code, reason = "as above")]
impl Decoder for Av1 {
    fn decode(&mut self, number: u32, _: bool, bytes: &[u8], show: &mut Show<'_>) -> Result<(), Refused> {
        if bytes.is_empty() {
            return Err("AV1: an empty sample".into());
        }
        let mut data = Dav1dData::default();
        // SAFETY: the decoder allocates the bytes, which are written before they are read.
        unsafe {
            let place = dav1d_data_create(Some(NonNull::from(&mut data)), bytes.len());
            if place.is_null() {
                return Err("AV1: no memory".into());
            }
            ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len());
        }
        data.m.timestamp = number.into();
        let mut done = Ok(());
        while data.sz > 0 && done.is_ok() {
            // SAFETY: the context is open, and the data valid for the call.
            let Dav1dResult(code) = unsafe { dav1d_send_data(self.context, Some(NonNull::from(&mut data))) };
            done = match code {
                0 | AGAIN => self.show_all(show),
                code => Err(format!("AV1: damaged ({code})")),
            };
        }
        // SAFETY: what is left of the data is the caller's to free.
        unsafe { dav1d_data_unref(Some(NonNull::from(&mut data))) };
        done
    }

    fn finish(&mut self, show: &mut Show<'_>) -> Result<(), Refused> {
        self.show_all(show)
    }
}

#[allow(unsafe_code, reason = "as above")]
impl Drop for Av1 {
    fn drop(&mut self) {
        // SAFETY: the context is open, and is not used any more.
        unsafe { dav1d_close(Some(NonNull::from(&mut self.context))) };
    }
}
