use super::*;
use crate::source::Unlimited;

/// A file of one episode without rows whose images are `section`.
fn file(section: &[u8], frames: u32) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend([0, 0, 1, 0]);
    let index = HEADER + section.len() as u64;
    for number in [1, frames.into(), index, 64, 0, 0, 0] {
        bytes.extend(u64::to_le_bytes(number));
    }
    bytes.extend(section);
    bytes.extend(7u64.to_le_bytes());
    bytes.extend(frames.to_le_bytes());
    bytes.extend([0; 4]);
    for number in [0, 5 * u64::from(frames), HEADER, section.len() as u64, 0, 0] {
        bytes.extend(u64::to_le_bytes(number));
    }
    bytes
}

fn record(name: &[u8], size: (u32, u32, u8), format: Option<u8>, data: &[u8]) -> Vec<u8> {
    let mut bytes = (name.len() as u16).to_le_bytes().to_vec();
    bytes.extend(name);
    bytes.extend(size.0.to_le_bytes());
    bytes.extend(size.1.to_le_bytes());
    bytes.push(size.2);
    bytes.extend(format);
    bytes.extend((data.len() as u32).to_le_bytes());
    bytes.extend(data);
    bytes
}

fn frame(records: &[Vec<u8>]) -> Vec<u8> {
    [(records.len() as u16).to_le_bytes().to_vec(), records.concat()].concat()
}

fn images(section: &[u8], frames: u32) -> Images {
    let file = file(section, frames);
    let header = parse(&file).unwrap();
    header.episode(&file, 0).unwrap().unwrap().read_images(&file, &Unlimited).unwrap()
}

fn kind_of(size: (u32, u32, u8), format: u8, data: &[u8]) -> Option<(Kind, u32, u8)> {
    let images = images(&frame(&[record(b"c", size, Some(format), data)]), 1);
    assert_eq!((images.damage, images.surplus, images.is_old), (None, 0, false));
    images.records.first().map(|record| (record.kind, record.width, record.channels))
}

#[test]
fn flag_length_and_first_bytes_decide() {
    let jpeg = b"\xFF\xD8\xFF\xE0\x00\x04ab\xFF\xC0\x00\x0B\x08\x00\x02\x00\x05\x01\x01\x11\x00";
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x04\0\0\0\x02\x08\x06\0\0\0";
    assert_eq!(kind_of((2, 1, 3), 0, b""), None);
    assert_eq!(kind_of((1, 1, 3), 0, b"\xFF\xD8\xFF"), Some((Kind::Raw, 1, 3)));
    assert_eq!(kind_of((9, 9, 3), 0, jpeg), Some((Kind::Jpeg, 5, 1)));
    assert_eq!(kind_of((2, 1, 1), 0, b"abcdef"), Some((Kind::Raw, 2, 3)));
    assert_eq!(kind_of((2, 1, 1), 0, b"abcde"), Some((Kind::Opaque, 2, 1)));
    assert_eq!(kind_of((9, 9, 3), 1, png), Some((Kind::Png, 4, 4)));
    assert_eq!(kind_of((jpeg.len() as u32, 1, 1), 1, jpeg), Some((Kind::Jpeg, 5, 1)));
    assert_eq!(kind_of((1, 1, 3), 1, b"\xFF\xD8\xFF"), Some((Kind::Raw, 1, 3)));
    // Pixels that go on like a frame header, of a length that cannot be.
    let pixels = b"\xFF\xD8\xFF\xC0\xFF\xFF\xFF\x10\x20\x30\x40\x50";
    assert_eq!(kind_of((4, 1, 3), 1, pixels), Some((Kind::Raw, 4, 3)));
    assert_eq!(kind_of((2, 1, 3), 2, b"abcdef"), Some((Kind::Raw, 2, 3)));
    assert_eq!(kind_of((2, 1, 1), 1, b"abcdef"), Some((Kind::Opaque, 2, 1)));
    assert_eq!(kind_of((u32::MAX, u32::MAX, 255), 0, b"a"), Some((Kind::Opaque, u32::MAX, 255)));
    assert_eq!(kind_of((9, 9, 3), 1, &jpeg[..4]), Some((Kind::Jpeg, 0, 0)));
}

#[test]
fn damage_keeps_the_frames_before_it() {
    let pixel = || record(b"c", (1, 1, 1), Some(0), b"x");
    let whole = [frame(&[pixel()]), frame(&[pixel(), pixel()]), frame(&[pixel()])].concat();
    let sound = images(&whole, 3);
    assert_eq!((sound.records.len(), sound.cameras[0].stack), (4, Some((1, 1, 1))));
    let frames_in = |bytes: &[u8]| images(bytes, 3).records.last().map(|record| record.frame);
    for cut in 0..whole.len() {
        let images = images(&whole[..cut], 3);
        assert!(images.damage.is_some(), "{cut}");
        assert!(images.cameras.iter().all(|camera| camera.stack.is_none()));
        let last = if cut < 20 {
            None
        } else if cut < 58 {
            Some(0)
        } else {
            Some(1)
        };
        assert_eq!(frames_in(&whole[..cut]), last, "{cut}");
    }
    assert_eq!(images(&[whole, vec![0]].concat(), 3).surplus, 1);
}

#[test]
fn the_old_layout_is_known_by_fitting_exactly() {
    let old = |data: &[u8]| record(b"cam", (2, 1, 3), None, data);
    let section = [frame(&[old(b"abcdef")]), frame(&[old(b"ghijkl")])].concat();
    let images = images(&section, 2);
    assert!(images.is_old && images.damage.is_none());
    assert_eq!(images.cameras[0].stack, Some((1, 2, 3)));
    // Black pictures read as frames without any by the current grammar, and leave bytes over.
    let black = [frame(&[old(&[0; 6])]), frame(&[old(&[0; 6])])].concat();
    assert!(super::tests::images(&black, 2).is_old);
}

#[test]
fn lying_sizes_cost_nothing() {
    let header = |offset: u64, length: u64, major: u8| {
        let mut bytes = file(&[0, 0], 1);
        bytes[4] = major;
        bytes[24..32].copy_from_slice(&offset.to_le_bytes());
        bytes[32..40].copy_from_slice(&length.to_le_bytes());
        parse(&bytes).is_ok()
    };
    assert!(header(66, 64, 0) && header(64, 64, 0) && header(130, 0, 0));
    assert!(!header(66, 64, 1) && !header(u64::MAX, 64, 0) && !header(66, 65, 0) && !header(131, 0, 0));
    assert!(!header(63, 64, 0) && header(0, 0, 0));
    let bytes = file(&[0, 0], u32::MAX);
    let episode = parse(&bytes).unwrap().episode(&bytes, 0).unwrap().unwrap();
    assert!(matches!(episode.locate_rows(&bytes), Err(PartError::Damaged(_))));
    let images = episode.read_images(&bytes, &Unlimited).unwrap();
    assert!(images.damage.is_some() && images.records.is_empty());
    assert!(episode.read_meta(&bytes).is_err());
}
