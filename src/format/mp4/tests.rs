//! Tests of the index of a video, with files that ffmpeg wrote.

use std::{fs, path::Path};

use super::*;
use crate::source::Unlimited;

fn golden(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/video");
    fs::read(folder.join(name)).unwrap()
}

fn track(bytes: &[u8]) -> Result<Track, PartError> {
    Track::read(&bytes.to_vec(), &Unlimited)
}

/// Times of frames and key frames as `ffprobe -show_packets` gives them.
#[test]
fn frames_have_the_times_of_ffprobe() {
    let bytes = golden("av1.mp4");
    let av1 = track(&bytes).unwrap();
    assert_eq!((av1.codec(), av1.size()), (VideoCodec::Av1, (64, 64)));
    assert_eq!(&av1.configuration()[..1], [0x81]);
    for frame in 0..av1.frames() {
        assert!((av1.seconds(frame).unwrap() - frame as f64 / 10.0).abs() < 1e-9);
        assert_eq!(av1.group(frame).unwrap().start as u64, frame / 2 * 2);
        assert_eq!(av1.frame_of(av1.sample_of(frame).unwrap()), Some(frame));
    }
}

#[test]
fn frames_are_in_the_order_in_which_they_are_shown() {
    let h264 = track(&golden("h264.mp4")).unwrap();
    assert_eq!((h264.codec(), h264.frames()), (VideoCodec::H264, 14));
    let samples: Vec<u32> = (0..14).filter_map(|frame| h264.sample_of(frame)).collect();
    assert_eq!(samples, [0, 1, 2, 3, 4, 6, 5, 7, 8, 9, 10, 11, 12, 13]);
    assert!((h264.seconds(5).unwrap() - 0.5).abs() < 1e-9);
    assert_eq!([h264.group(7), h264.group(8), h264.group(14)], [Some(0..8), Some(8..14), None]);
    let stored = h264.sample(6).unwrap().stored();
    assert_eq!(stored, 1818..1818 + 57);
}

#[test]
fn the_nearest_frame_is_the_earlier_of_two() {
    let av1 = track(&golden("av1.mp4")).unwrap();
    let frame = |seconds| av1.nearest(seconds).unwrap().frame;
    assert_eq!([frame(-5.0), frame(0.0), frame(0.049), frame(0.051), frame(0.21)], [0, 0, 0, 1, 2]);
    assert_eq!(frame(1e9), av1.frames() - 1);
    assert!((av1.nearest(0.13).unwrap().distance - 0.03).abs() < 1e-9);
}

#[test]
fn any_cut_and_any_changed_byte_is_an_index_or_an_error() {
    for name in ["av1.mp4", "h264.mp4"] {
        let bytes = golden(name);
        for end in 0..bytes.len() {
            assert!(track(&bytes[..end]).is_err(), "{name} {end}");
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7F, 0xFF, bytes[at] ^ 1] {
                let mut changed = bytes.clone();
                changed[at] = value;
                let Ok(track) = track(&changed) else { continue };
                for frame in 0..track.frames().min(100) {
                    let _ = (track.group(frame), track.nearest(frame as f64), track.seconds(frame));
                }
            }
        }
    }
}
