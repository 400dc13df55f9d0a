//! The files and folders of a record.
//!
//! The whole record is read once to find them, and its checksum is compared. Values stay in the file.

use std::{ops::Range, sync::Arc};

use super::{
    shards::Shard,
    values::{Content, Failing, Making, Pictures, Stretch, lines_size},
};
use crate::{
    cache::{Reservation, Verify},
    format::{
        DType,
        picture::{self, PNG, Size, jpeg_size, png_size},
        tfrecord::{self, example},
    },
    limits,
    source::Memory,
    tree::{
        frames::{Frames, Stacked},
        memory::{WorkingMemory, with_memory},
        names,
        paths::{Builder, NodeIndex, Paths, ROOT},
    },
    view::{Array, Fault, ReadContext, View},
};

/// Memory of a file in addition to its name.
const FILE: u64 = 640;
/// The name of the file of a record that cannot be shown as features.
const WHOLE: &[u8] = b"record";

/// The content of a file of a record.
#[derive(Debug)]
pub(super) enum File {
    Array(Array),
    Bytes(View),
    /// The steps as a table.
    Table,
}

/// The files of a record.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) paths: Paths<u32>,
    pub(super) files: Vec<File>,
    /// Candidates for columns of the table of steps.
    pub(super) columns: Vec<Candidate>,
    /// Number of steps.
    pub(super) steps: u64,
    /// Whether it is shown as one file, because it has no features that can be read.
    pub(super) is_whole: bool,
    /// The problems that were found.
    pub(super) notes: Vec<String>,
}

/// A possible column of the table of steps.
#[derive(Debug)]
pub(super) enum Candidate {
    /// An array whose first axis is the steps, with its name.
    Numbers(String, Array),
    /// A text for each step.
    Texts(String, Arc<Content>, u32),
}

/// Where a record is, or why it cannot be found.
pub(super) type Found = Result<(Arc<Shard>, Range<u64>), Arc<str>>;

/// Returns where a record of a file is.
pub(super) fn find(shard: &Arc<Shard>, record: u64) -> Found {
    match shard.index.data(record) {
        Some(data) if data.end - data.start > tfrecord::LARGEST => {
            Err(format!("the record has {} bytes, more than {}", data.end - data.start, tfrecord::LARGEST).into())
        }
        Some(data) => Ok((shard.clone(), data)),
        None => Err(match shard.index.broken() {
            Some(reason) => format!("cannot be found: {reason}").into(),
            None => format!("its file has only {} records", shard.index.count()).into(),
        }),
    }
}

/// The content of a record.
pub(super) enum Looked {
    /// Features, and the bytes of the whole record.
    Example(Arc<Content>, Vec<u8>),
    /// Bytes that are not an Example.
    Other(View),
    /// Damage: the number of bytes that cannot be read, and why.
    Broken(u64, Arc<str>),
}

/// Reads a record and interprets it.
///
/// # Errors
/// [`Fault`] if bytes cannot be read or there is not enough memory.
pub(super) fn look(
    reader: &ReadContext,
    (shard, data): (Arc<Shard>, Range<u64>),
    number: u64,
    memory: &WorkingMemory<'_>,
) -> Result<Looked, Fault> {
    let length = data.end - data.start;
    memory.reserve(length)?;
    let bytes = shard.source.read(data.clone())?;
    if reader.cache.verify() != Verify::Off
        && let Err(reason) = tfrecord::check(&*shard.source, &data, &bytes)?
    {
        return Ok(Looked::Broken(length, reason.into()));
    }
    match example::parse(&bytes, memory) {
        Ok(features) => Ok(Looked::Example(Arc::new(Content { shard, data, number, features }), bytes)),
        Err(example::ExampleError::Damaged(_)) => {
            let stored = Stretch { shard, start: data.start };
            Ok(Looked::Other(View::default().with_rendered(length, stored)))
        }
        Err(example::ExampleError::Source(error)) => Err(error.into()),
    }
}

/// Returns the bytes of a record after checking them. If the record cannot be read, returns a file that fails.
pub(super) fn raw(reader: &ReadContext, found: Found) -> Result<View, Fault> {
    let (shard, data) = match found {
        Ok(found) => found,
        Err(reason) => return Ok(failing(1, &reason)),
    };
    reader.may_work()?;
    let length = data.end - data.start;
    let is_right = with_memory(&reader.cache, |memory| {
        memory.reserve(length)?;
        let bytes = shard.source.read(data.clone())?;
        match reader.cache.verify() {
            Verify::Off => Ok(Ok(())),
            Verify::Lazy | Verify::Strict => Ok(tfrecord::check(&*shard.source, &data, &bytes)?),
        }
    })?;
    Ok(match is_right {
        Ok(()) => View::default().with_rendered(length, Stretch { shard, start: data.start }),
        Err(reason) => failing(length, &reason.into()),
    })
}

/// Returns a file that cannot be read.
pub(super) fn failing(size: u64, reason: &Arc<str>) -> View {
    View::default().with_rendered(size, Failing(reason.clone()))
}

/// Makes the files of a record. `fill` adds those of features.
///
/// # Errors
/// As [`look`], and those of `fill`.
pub(super) fn open(
    reader: &ReadContext,
    found: &Found,
    number: u64,
    fill: impl Fn(&mut Files<'_>) -> Result<(), Fault>,
) -> Result<(Record, Reservation), Fault> {
    reader.may_work()?;
    with_memory(&reader.cache, |memory| {
        let looked = match found {
            Ok(found) => look(reader, found.clone(), number, &memory)?,
            Err(reason) => Looked::Broken(1, reason.clone()),
        };
        let mut notes = Vec::new();
        let none = || Arc::new(Content::default());
        let (content, bytes, whole) = match looked {
            Looked::Example(content, bytes) => (content, bytes, None),
            Looked::Other(view) => {
                notes.push("the record is no tf.train.Example".to_owned());
                (none(), Vec::new(), Some(view))
            }
            Looked::Broken(size, reason) => {
                notes.push(reason.to_string());
                (none(), Vec::new(), Some(failing(size, &reason)))
            }
        };
        let mut files = Files {
            builder: Builder::default(),
            files: Vec::new(),
            columns: Vec::new(),
            steps: 0,
            notes,
            reserved: &[],
            memory: &memory,
            taken: 0,
            content,
            bytes: &bytes,
        };
        let is_whole = whole.is_some();
        match whole {
            Some(view) => files.add(ROOT, WHOLE, ".bin", File::Bytes(view))?,
            None => fill(&mut files)?,
        };
        let Files { builder, files, columns, steps, notes, taken, content, .. } = files;
        let spans: usize = content.features.iter().map(|feature| feature.key.len() + feature.list.memory_usage()).sum();
        let features = content.features.len() * size_of::<example::Feature>();
        let paths = builder.finish();
        let usage = taken + (spans + features + paths.memory_usage()) as u64;
        drop(bytes);
        let room = memory.keep(usage)?;
        Ok((Record { paths, files, columns, steps, is_whole, notes }, room))
    })
}

/// Collects the files of a record.
pub(super) struct Files<'a> {
    pub(super) builder: Builder<u32>,
    files: Vec<File>,
    pub(super) columns: Vec<Candidate>,
    pub(super) steps: u64,
    pub(super) notes: Vec<String>,
    /// Names of folders that are reserved in the root.
    pub(super) reserved: &'static [&'static str],
    memory: &'a WorkingMemory<'a>,
    taken: u64,
    pub(super) content: Arc<Content>,
    /// The whole record.
    pub(super) bytes: &'a [u8],
}

impl<'a> Files<'a> {
    /// Returns the whole record.
    pub(super) fn part(&self) -> example::Part<'a> {
        example::Part { bytes: self.bytes, start: 0 }
    }

    /// Adds a file.
    pub(super) fn add(&mut self, folder: NodeIndex, part: &[u8], suffix: &str, file: File) -> Result<(), Fault> {
        let taken = FILE + part.len() as u64;
        self.memory.reserve(taken)?;
        self.taken += taken;
        self.files.push(file);
        self.builder.file(folder, part, suffix, self.files.len() as u32 - 1);
        Ok(())
    }

    pub(super) fn array(&mut self, folder: NodeIndex, part: &[u8], array: Array) -> Result<(), Fault> {
        self.add(folder, part, ".npy", File::Array(array))
    }

    /// Returns the folder for a part of a name, and adds it if it is missing.
    pub(super) fn folder(&mut self, folder: NodeIndex, part: &[u8]) -> NodeIndex {
        part_folder(&mut self.builder, folder, part, self.reserved)
    }

    /// Adds texts as lines, and as their bytes with offsets.
    pub(super) fn texts(&mut self, folder: NodeIndex, part: &[u8], feature: u32, leaf: u32) -> Result<(), Fault> {
        let content = self.content.clone();
        let list = content.list(feature);
        let lines = lines_size(list.bytes(self.part()));
        let joined = list.spans.iter().map(|span| u64::from(span.length)).sum();
        let rows = list.count + 1;
        self.add(folder, part, ".jsonl", File::Bytes(content.made(feature, leaf, Making::Lines, lines)))?;
        let inner = self.folder(folder, part);
        let offsets = content.made(feature, leaf, Making::Offsets, rows * 8);
        self.array(inner, b"offsets", Array::new(DType::I64, [rows], offsets))?;
        self.add(inner, b"utf8", ".bin", File::Bytes(content.made(feature, leaf, Making::Joined, joined)))
    }

    /// Adds each byte string as a file, numbered from 0. Those without bytes are left out if `skips_empty`.
    pub(super) fn numbered(&mut self, folder: NodeIndex, feature: u32, skips_empty: bool) -> Result<(), Fault> {
        let content = self.content.clone();
        let spans = &content.list(feature).spans;
        let digits = digits(spans.len() as u64);
        for (at, span) in spans.iter().enumerate() {
            let suffix = suffix(self.part().get(span));
            if skips_empty && span.length == 0 {
                continue;
            }
            let view = content.stored([*span]);
            self.add(folder, format!("{at:0digits$}").as_bytes(), suffix, File::Bytes(view))?;
        }
        Ok(())
    }

    /// Returns the pictures of a feature as one array, if all have the same size.
    pub(super) fn stack(&self, feature: u32) -> Result<Option<Array>, Fault> {
        let list = self.content.list(feature);
        let mut first: Option<Size> = None;
        self.memory.reserve(list.count)?;
        let mut are_png = Vec::with_capacity(list.spans.len());
        for picture in list.bytes(self.part()) {
            let is_png = picture.starts_with(&PNG);
            let Some(size) = size_of_picture(picture) else { return Ok(None) };
            if *first.get_or_insert(size) != size {
                return Ok(None);
            }
            are_png.push(is_png);
        }
        let Some(Size { width, height, channels }) = first else { return Ok(None) };
        let shape = [list.count, height.into(), width.into(), channels.into()];
        let size = shape.iter().try_fold(1u64, |all, side| all.checked_mul(*side));
        let stack = Pictures { content: self.content.clone(), feature, size: (width, height, channels), are_png };
        let is_small = stack.frame_size() <= limits::PICTURE;
        let Some(size) = size.filter(|size| is_small && *size <= limits::LARGEST_BLOCK) else { return Ok(None) };
        Ok(Some(Array::new(DType::U8, shape, View::default().with_rendered(size, Stacked(stack)))))
    }
}

/// Returns the folder for a part of a name, and adds it if it is missing. `reserved` are names that are reserved in the
/// root.
pub(super) fn part_folder<F: Copy>(
    builder: &mut Builder<F>,
    folder: NodeIndex,
    part: &[u8],
    reserved: &[&str],
) -> NodeIndex {
    let own = if folder == ROOT { reserved } else { &[] };
    let reserved: Vec<&str> = names::RESERVED.iter().chain(own).copied().collect();
    builder.folder(folder, &names::folder(part, &reserved, 1))
}

/// Returns the number of digits of numbers below a count, at least 3.
pub(super) fn digits(count: u64) -> usize {
    count.saturating_sub(1).to_string().len().max(3)
}

/// Returns the suffix of a byte string that is not a text.
pub(super) fn suffix(bytes: &[u8]) -> &'static str {
    picture::suffix(bytes).unwrap_or(".bin")
}

/// Returns the size of a picture of 8 bits that a stack can hold.
fn size_of_picture(bytes: &[u8]) -> Option<Size> {
    let size = match suffix(bytes) {
        ".png" => png_size(bytes).filter(|_| bytes.get(24) == Some(&8)),
        ".jpg" => {
            let get = |at: u64| Ok(usize::try_from(at).ok().and_then(|at| bytes.get(at..)?.first_chunk().copied()));
            jpeg_size(get).ok().flatten()
        }
        _ => None,
    };
    size.filter(|size| (1..=4).contains(&size.channels) && size.width <= SIDE && size.height <= SIDE)
}

/// Largest side of a picture in a stack.
const SIDE: u32 = 16_384;
