//! A container format in a program of one's own: recordings of sensors, each of which becomes an array.
//!
//! A file holds `SENS`, a version byte of 1, and how many sensors there are (u32). Then for each sensor: the length of
//! its name (u8), the name, the number of its samples (u32), the samples (f32). All numbers are little-endian.
//!
//! The interface of formats changes without notice, so a program asks for it in its `Cargo.toml`:
//! `shardfs = { version = "0.1", default-features = false, features = ["unstable-internals"] }`.
//!
//! `cargo run --example format --features unstable-internals -- FOLDER` lists a folder with such files in it.

use std::{error::Error, io::Write, ops::Range, path::Path, sync::Arc};

use serde_json::Map;
use shardfs::{
    Volume,
    cache::Buffer,
    format::{Class, DType, FormatError},
    source::{Memory, Source},
    tree::{
        Format, Overview, describe,
        overview::{Contents, Item},
        paths::{Builder, NodeIndex, Paths, ROOT},
        table::{Content, Entry, Table},
    },
    view::{Array, Fault, ReadContext, View},
};

/// What the rest of the program knows of the format.
pub static SENSORS: Format = Format {
    name: "sensors",
    title: "Sensors",
    summary: "recordings of sensors",
    suffixes: &[".sens"],
    recognise: |front| front.by_magic(b"SENS", 9),
    probe: |source, _, _| match source.read(4..5)?[..] {
        [1] => Ok(()),
        _ => Err(FormatError::refused(Class::VersionTooNew, "only version 1 is known")),
    },
    open: |reader, _, memory| Ok(Arc::new(tree(parse(&*reader.source, memory)?))),
    ..Format::DEFAULT
};

/// A sensor: its name, and where its samples are in the file.
struct Sensor {
    name: Vec<u8>,
    samples: Range<u64>,
}

/// Finds all sensors. Every number of the file is checked before it is used.
fn parse(source: &dyn Source, memory: &dyn Memory) -> Result<Vec<Sensor>, FormatError> {
    let check = |range: Range<u64>| match range.end <= source.len() {
        true => Ok(range),
        false => Err(FormatError::refused(Class::Truncated, format!("the file ends before byte {}", range.end))),
    };
    let read = |range| Ok::<_, FormatError>(source.read(check(range)?)?);
    let number = |at| Ok::<_, FormatError>(read(at..at + 4)?.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)));
    let (count, mut at, mut sensors) = (number(5)?, 9, Vec::new());
    for _ in 0..count {
        // What a file makes cheap to ask for is reserved first.
        memory.reserve(512)?;
        let name = at + 1..at + 1 + read(at..at + 1)?.iter().map(|length| u64::from(*length)).sum::<u64>();
        let samples = name.end + 4..name.end + 4 + 4 * number(name.end)?;
        at = samples.end;
        sensors.push(Sensor { name: read(name)?, samples: check(samples)? });
    }
    Ok(sensors)
}

/// Gives each sensor a file. `Builder` makes valid names of any bytes, a folder of each `/`, and sets equal names apart.
fn tree(sensors: Vec<Sensor>) -> Table<Sensors> {
    let mut builder = Builder::default();
    let place = |(number, sensor): (usize, &Sensor)| {
        let (folder, part) = builder.folders_of(ROOT, &sensor.name, &[]);
        builder.file(folder, part, ".npy", Entry::Of(number))
    };
    let nodes = sensors.iter().enumerate().map(place).collect();
    Table::new(builder, Sensors { sensors, nodes })
}

/// What the table of paths does not know: the bytes of its files, and what `container.json` says.
struct Sensors {
    sensors: Vec<Sensor>,
    nodes: Vec<NodeIndex>,
}

impl Content for Sensors {
    type File = usize;

    fn array(&self, number: usize) -> Option<Array> {
        let Range { start, end } = self.sensors[number].samples;
        Some(Array::new(DType::F32, [(end - start) / 4], View::stored(start..end)))
    }

    fn view(&self, number: usize) -> View {
        self.array(number).map_or_else(View::default, Array::npy)
    }

    fn describe(
        &self,
        _: &ReadContext,
        paths: &Paths<Entry<usize>>,
        _: &[NodeIndex],
        memory: &dyn Memory,
    ) -> Result<Buffer, Fault> {
        let front = Map::from_iter([("format".to_owned(), SENSORS.name.into())]);
        let items = self.sensors.iter().zip(&self.nodes).enumerate().map(|(number, (sensor, &node))| {
            let info = self.item_info(number).unwrap_or_default();
            let size = sensor.samples.end - sensor.samples.start;
            describe::Item::of(&sensor.name, paths.path(node), Some(size), info, ())
        });
        describe::bounded(front, self.sensors.len() as u64, items, &Map::new(), memory)
    }

    fn overview(&self, paths: &Paths<Entry<usize>>) -> Overview {
        let item = |(number, &node): (usize, &NodeIndex)| Item {
            path: paths.path(node),
            info: self.item_info(number).unwrap_or_default(),
            ..Item::default()
        };
        let items = self.nodes.iter().enumerate().map(item).collect();
        Overview { format: SENSORS.name, contents: Contents::Items { front: Map::new(), items } }
    }

    fn memory_usage(&self) -> usize {
        self.sensors.iter().map(|sensor| size_of::<Sensor>() + sensor.name.len() + 16).sum()
    }
}

/// Writes the shape and mean of each array below a folder.
pub fn show(folder: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    shardfs::add_format(&SENSORS);
    let volume = Volume::open(folder)?;
    for entry in volume.walk() {
        let entry = entry?;
        if entry.name().to_string_lossy().ends_with(".npy") {
            let array = entry.array()?;
            let values: Vec<f32> = array.values()?;
            let mean = values.iter().sum::<f32>() / values.len() as f32;
            writeln!(out, "{} {:?} mean {mean}", entry.path().display(), array.shape())?;
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).ok_or("which folder?")?;
    show(Path::new(&folder), &mut std::io::stdout())
}
