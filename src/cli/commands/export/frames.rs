//! The numbered pictures of a camera, and their pixels.

use anyhow::{Context, anyhow, bail};
use image::DynamicImage;

use crate::{
    cli::{commands::cp::compress::decode_png, options::place::folders_with},
    codec::Codec,
    format::picture::{JPEG, PNG, jpeg_size, png_size},
    tree::{names, overview::Contents},
    volume::{Entry, Error, ErrorKind},
};

/// The folder of pictures below which cameras have theirs.
const IMAGES: &str = "images";

/// Cameras that a message names, at most.
const NAMED: usize = 20;

/// Bytes of a pixel while a picture is decoded: up to 8 of its own, and those of the video.
const PIXEL: u64 = 16;

/// A folder of numbered pictures.
pub(super) struct Camera {
    /// Its path below the episode's folder.
    pub(super) path: String,
    /// Its pictures by their numbers; at least one.
    pub(super) frames: Vec<Frame>,
}

/// A numbered picture.
pub(super) struct Frame {
    pub(super) number: u64,
    pub(super) entry: Entry,
}

/// The pixels of a picture: rows from the top, red, green and blue of 8 bits.
pub(super) struct Pixels {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) rgb: Vec<u8>,
}

/// Finds the pictures of a camera below a folder: at `images/<name>`, also if that name is a stored one, at a path below the folder, or those of the topic of
/// a recording. A slash in front of the name is the topic's, or stands for the folder. If there are several folders of
/// pictures at or below that place, the only one in colour is meant.
pub(super) fn find(top: &Entry, name: &str) -> anyhow::Result<Camera> {
    let below = name.trim_start_matches('/');
    let topics = topics(top)?;
    let topic = topics.iter().find(|(topic, _)| topic == name);
    let topic = topic.or_else(|| topics.iter().find(|(topic, _)| topic.strip_prefix('/') == Some(name)));
    // A stored name may be shown escaped.
    let escaped = names::folder(name.as_bytes(), &names::RESERVED, 1);
    let places = [format!("{IMAGES}/{below}"), below.to_owned(), format!("{IMAGES}/{escaped}")];
    for place in places.into_iter().chain(topic.map(|(_, path)| path.clone())) {
        let Some(folder) = existing(top.get(&place))?.filter(Entry::is_folder) else { continue };
        let mut found = folders(&folder, &place)?;
        if found.len() > 1 {
            let in_colour = found.iter().map(is_in_colour).collect::<anyhow::Result<Vec<bool>>>()?;
            if in_colour.iter().filter(|is| **is).count() != 1 {
                let names: Vec<&str> = found.iter().take(NAMED).map(|(path, _)| &**path).collect();
                bail!("{name} has several folders of pictures; choose one of {}", names.join(", "));
            }
            let mut is_meant = in_colour.into_iter();
            found.retain(|_| is_meant.next() == Some(true));
        }
        if let Some((path, folder)) = found.pop() {
            return Ok(Camera { path, frames: frames(&folder)? });
        }
    }
    let all = match existing(top.get(IMAGES))? {
        Some(images) => folders(&images, IMAGES)?,
        None => Vec::new(),
    };
    let mut names: Vec<&str> = all.iter().filter_map(|(path, _)| path.strip_prefix("images/")).take(NAMED).collect();
    for (topic, path) in &topics {
        if names.len() < NAMED && !folders(&top.get(path)?, path)?.is_empty() {
            names.push(topic);
        }
    }
    match names.is_empty() {
        true => bail!("no pictures of '{name}', and no other camera below images"),
        false => bail!("no pictures of '{name}'; there are {}", names.join(", ")),
    }
}

/// Returns the names and the folders of the topics whose types are pictures, if a folder is a recording.
fn topics(top: &Entry) -> anyhow::Result<Vec<(String, String)>> {
    if !top.is_container()? {
        return Ok(Vec::new());
    }
    let overview = top.overview()?;
    let Some(Contents::Recording(recording)) = overview.as_ref().map(|overview| &overview.contents) else {
        return Ok(Vec::new());
    };
    let with_pictures = recording.topics.iter().filter(|topic| topic.pictures);
    Ok(with_pictures.map(|topic| (topic.name.clone(), topic.path.clone())).collect())
}

/// Returns what was found, if it exists.
fn existing(found: Result<Entry, Error>) -> Result<Option<Entry>, Error> {
    match found {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotAFolder) => Ok(None),
        found => found.map(Some),
    }
}

/// Returns the folders of numbered pictures at or below a place, by their paths.
fn folders(top: &Entry, place: &str) -> Result<Vec<(String, Entry)>, Error> {
    let found = folders_with(top, |_, name| number(&name.to_string_lossy()).is_some())?;
    let path = |below: String| if below.is_empty() { place.to_owned() } else { format!("{place}/{below}") };
    Ok(found.into_iter().map(|(below, folder)| (path(below), folder)).collect())
}

/// Returns the number that a picture's name is.
fn number(name: &str) -> Option<u64> {
    let (stem, suffix) = name.split_once('.')?;
    let is_numbered = !stem.is_empty() && stem.bytes().all(|byte| byte.is_ascii_digit());
    (is_numbered && matches!(suffix, "png" | "jpg" | "jpeg")).then(|| stem.parse().ok())?
}

/// Returns the pictures of a folder, in order.
fn frames(folder: &Entry) -> anyhow::Result<Vec<Frame>> {
    let mut found = Vec::new();
    for entry in folder.entries() {
        let entry = entry?;
        if let Some(number) = number(&entry.name().to_string_lossy()) {
            found.push(Frame { number, entry });
        }
    }
    found.sort_by_key(|frame| frame.number);
    if found.is_empty() { Err(anyhow!("no pictures")) } else { Ok(found) }
}

/// Returns whether the first picture of a folder has colours.
fn is_in_colour((_, folder): &(String, Entry)) -> anyhow::Result<bool> {
    let Some(first) = frames(folder)?.into_iter().next() else { return Ok(false) };
    let bytes = first.entry.read()?;
    Ok(size(&bytes).is_some_and(|(_, _, channels)| channels >= 3))
}

/// Returns width, height and channels of an encoded picture, by its header.
fn size(bytes: &[u8]) -> Option<(u32, u32, u8)> {
    let found = if bytes.starts_with(&PNG) {
        png_size(bytes)
    } else if bytes.starts_with(&JPEG) {
        let at = |at: u64| Ok(usize::try_from(at).ok().and_then(|at| bytes.get(at..)?.first_chunk().copied()));
        jpeg_size(at).ok().flatten()
    } else {
        None
    };
    found.map(|size| (size.width, size.height, size.channels))
}

/// Reads a picture and decodes it.
pub(super) fn read(frame: &Frame) -> anyhow::Result<Pixels> {
    let shown = || frame.entry.path().display().to_string();
    let bytes = frame.entry.read().map_err(|error| anyhow!("{}: {}", shown(), error.detail()))?;
    let (width, height, channels) = size(&bytes).with_context(|| format!("{}: neither PNG nor JPEG", shown()))?;
    let pixels = u64::from(width) * u64::from(height);
    let _room = frame.entry.vfs().cache().reserve(pixels.saturating_mul(PIXEL)).with_context(shown)?;
    let rgb = match bytes.starts_with(&PNG) {
        // Transparency is left out.
        true => match decode_png(&bytes, pixels.saturating_mul(PIXEL)).with_context(shown)? {
            DynamicImage::ImageRgb8(rgb) => rgb.into_raw(),
            other => other.into_rgb8().into_raw(),
        },
        false => {
            let channels = if channels == 1 { 1 } else { 3 };
            let decoded = Codec::Jpeg(width, height, channels).decode(&bytes, pixels * u64::from(channels));
            let decoded = decoded.with_context(shown)?;
            if channels == 1 { decoded.into_iter().flat_map(|grey| [grey; 3]).collect() } else { decoded }
        }
    };
    Ok(Pixels { width, height, rgb })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_numbered() {
        for (name, expected) in [
            ("000.png", Some(0)),
            ("12.jpg", Some(12)),
            ("7.jpeg", Some(7)),
            ("a.png", None),
            (".png", None),
            ("1.npy", None),
            ("99999999999999999999.png", None),
            ("1", None),
        ] {
            assert_eq!(number(name), expected, "{name}");
        }
    }
}
