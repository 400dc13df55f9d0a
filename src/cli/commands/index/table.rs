//! The index as a file: Parquet, with the rows once more between the values and the footer, where no reader looks, so
//! that the next run knows what it found.

use std::{
    collections::HashMap,
    fs::File,
    io::{Read, Seek, SeekFrom, Write},
    ops::Range,
    os::unix::fs::FileExt,
    path::Path,
    sync::Arc,
};

use anyhow::anyhow;
use serde::{Deserialize, Serialize};

use super::found::Row;
use crate::{
    cache::{Cache, Verify},
    cli::{Destination, Interrupt},
    format::DType,
    limits::PIECE,
    source::Unlimited,
    view::{
        ReadContext, View,
        parquet::{Column, Element, Missing, Parquet, Ragged, Table},
    },
};

/// Last bytes of the compressed copy of the rows, after its length.
const MAGIC: &[u8; 8] = b"SHFINDEX";

/// Most bytes that rows of an earlier run may take when decoded.
const LONGEST: u64 = 4 << 30;

/// Memory in bytes for the footer and pages while the file is written.
const ROOM: u64 = 1 << 30;

/// Comes before the rows. Only the same version of the program uses the copy, because another version may find more.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Front {
    program: String,
    source: String,
}

impl Front {
    fn of(source: &str) -> Self {
        Self { program: env!("CARGO_PKG_VERSION").into(), source: source.into() }
    }
}

/// An index ready to be written.
pub(super) struct Index {
    reader: ReadContext,
    file: View,
    /// A compressed copy of the rows.
    rows: Vec<u8>,
}

impl Index {
    /// Makes the file. Parts of others are rows of it only with `parts`; the next run is told of them in any case.
    pub(super) fn of(source: &str, rows: &[Row], parts: bool) -> anyhow::Result<Self> {
        let reader = ReadContext::new(Arc::new(Vec::<u8>::new()), Cache::new(ROOM, Verify::Off), 0);
        let mut about = serde_json::Map::new();
        about.insert("index of".into(), source.into());
        let shown: Vec<&Row> = rows.iter().filter(|row| row.is_shown(parts)).collect();
        let table = Table { number: 0, rows: shown.len() as u64, unit: 1, columns: columns(&shown), about };
        let made = Parquet::new(&reader, table, &Unlimited).map_err(|fault| anyhow!("{}", fault.error))?;
        let file = Arc::new(made).view();
        let mut packed = zstd::Encoder::new(Vec::new(), 1)?;
        packed.include_checksum(true)?;
        serde_json::to_writer(&mut packed, &Front::of(source))?;
        for row in rows {
            packed.write_all(b"\n")?;
            serde_json::to_writer(&mut packed, row)?;
        }
        Ok(Self { reader, file, rows: packed.finish()? })
    }

    /// Writes the file under a temporary name and renames it when it is complete, unless it is interrupted.
    pub(super) fn write(&self, to: &Destination, name: &Path, interrupt: &Interrupt) -> anyhow::Result<()> {
        to.put_file(name, None, None, |file| {
            self.fill(file, interrupt)?;
            let is_whole = !interrupt.has_come();
            if is_whole {
                file.sync_all()?;
            }
            Ok(is_whole)
        })
    }

    fn fill(&self, file: &File, interrupt: &Interrupt) -> anyhow::Result<()> {
        let size = self.file.size();
        let footer = size.saturating_sub(8 + u64::from(u32::from_le_bytes(self.bytes(size - 8, 4)?[..].try_into()?)));
        let mut out = file;
        let copy = |mut out: &File, range: Range<u64>| -> anyhow::Result<()> {
            for at in range.clone().step_by(PIECE) {
                if interrupt.has_come() {
                    return Ok(());
                }
                out.write_all(&self.bytes(at, (PIECE as u64).min(range.end - at))?)?;
            }
            Ok(())
        };
        copy(out, 0..footer)?;
        out.write_all(&self.rows)?;
        out.write_all(&(self.rows.len() as u64).to_le_bytes())?;
        out.write_all(MAGIC)?;
        copy(out, footer..size)
    }

    fn bytes(&self, offset: u64, length: u64) -> anyhow::Result<Vec<u8>> {
        self.file.copy_at(&self.reader, offset, length).map_err(|fault| anyhow!("{}", fault.error))
    }
}

/// The columns, in the order of the file.
fn columns(rows: &[&Row]) -> Vec<Column> {
    let text = |name: &str, of: fn(&Row) -> Option<&str>| {
        let (mut data, mut offsets, mut missing) = (Vec::new(), vec![0; 8], Vec::with_capacity(rows.len()));
        for text in rows.iter().map(|row| of(row)) {
            data.extend(text.unwrap_or_default().as_bytes());
            offsets.extend((data.len() as u64).to_le_bytes());
            missing.push(u8::from(text.is_none()));
        }
        let missing = Some(View::inline(missing));
        let ragged = Ragged { offsets: View::inline(offsets), dtype: DType::I64, data: View::inline(data), missing };
        Column::strings(name.into(), Arc::new(ragged), true, true)
    };
    let number = |name: &str, of: fn(&Row) -> Option<u64>| {
        let values: Vec<u8> = rows.iter().flat_map(|row| of(row).unwrap_or(0).to_le_bytes()).collect();
        let missing = rows.iter().map(|row| u8::from(of(row).is_none())).collect::<Vec<u8>>();
        Column::fixed(name.into(), Element::Of(DType::I64), None, View::inline(values))
            .with_missing(Missing::Marked(View::inline(missing)))
    };
    let modified: Vec<u8> = rows.iter().flat_map(|row| Element::ticks(row.modified).to_le_bytes()).collect();
    let damaged: Vec<u8> = rows.iter().map(|row| u8::from(row.problem.is_some())).collect();
    vec![
        text("path", |row| Some(&row.path)),
        text("format", |row| row.format.as_deref()),
        text("version", |row| row.version.as_deref()),
        number("size", |row| row.size),
        Column::fixed("modified".into(), Element::Ticks, None, View::inline(modified)),
        number("episodes", |row| row.episodes),
        text("episode_id", |row| row.episode_id.as_deref()),
        text("task", |row| row.task.as_deref()),
        number("steps", |row| row.steps),
        text("cameras", |row| row.cameras.as_deref()),
        Column::fixed("damaged".into(), Element::Of(DType::Bool), None, View::inline(damaged)),
        text("problem", |row| row.problem.as_deref()),
        text("part_of", |row| row.part_of.as_deref()),
    ]
}

/// Returns the rows that an earlier run found for the same SOURCE, by their paths. None if the file does not exist, was
/// written by another program, or is damaged; then all containers are looked into again.
pub(super) fn read(file: &File, source: &str) -> Option<HashMap<String, Row>> {
    let size = file.metadata().ok()?.len();
    let number = |back: u64, width: usize| -> Option<u64> {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes[..width], size.checked_sub(back)?).ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    let end = number(8, 4)? + 8;
    let length = number(end + 16, 8).filter(|_| number(end + 8, 8) == Some(u64::from_le_bytes(*MAGIC)))?;
    let start = size.checked_sub(end + 16)?.checked_sub(length)?;
    let (mut packed, mut lines) = (file, Vec::new());
    packed.seek(SeekFrom::Start(start)).ok()?;
    zstd::Decoder::new(packed.take(length)).ok()?.take(LONGEST).read_to_end(&mut lines).ok()?;
    let mut lines = lines.split(|&byte| byte == b'\n');
    let front: Front = serde_json::from_slice(lines.next()?).ok()?;
    let rows = lines.map(|line| serde_json::from_slice::<Row>(line).map(|row| (row.path.clone(), row)));
    if front == Front::of(source) { rows.collect::<Result<_, _>>().ok() } else { None }
}
