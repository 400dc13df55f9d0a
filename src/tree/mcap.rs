//! MCAP: what it has in addition to what all recordings have (`docs/formats/mcap.md`, sections 5, 13 and 14).

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{
    Format, WorkingMemory, describe, found, names,
    recording::{self, Extra, Recorded, Tree, decoded, key, text},
};
use crate::{
    cache::{BlockError, Buffer},
    codec::Codec,
    format::{
        Block, Crc, FormatError, PartError,
        mcap::{self, Damage, Mcap, Pairs},
        recording::{EachChunk, Recording},
    },
    source::Memory,
    view::{BlockRef, Blocks, Data, Fault, ReadContext, View, json as view_json},
};

/// MCAP, recordings of robots.
pub static MCAP: Format = Format {
    name: "mcap",
    title: "MCAP",
    summary: "recordings of robots",
    suffixes: &[mcap::SUFFIX],
    recognise: mcap::recognise,
    probe: |source, _, _| mcap::probe(source),
    open: |reader, _, memory| Ok(Arc::new(open(reader, memory)?)),
    fixtures: &["drive.mcap"],
    ..Format::DEFAULT
};

/// The numbers of the folders beside `topics`.
const ATTACHMENTS: usize = 0;

/// Longest suffix of an attachment's name, without its dot.
const SUFFIX: usize = 15;

/// What a file has in addition to topics.
struct Own {
    parsed: Arc<Parsed>,
    profile: Value,
    library: Value,
    is_indexed: bool,
    damage: Damage,
    left_out: u64,
    channels: Vec<mcap::Channel>,
    extras: Vec<Extra>,
    warnings: Vec<String>,
    memory_usage: usize,
}

/// Attachments and metadata.
#[derive(Debug)]
struct Parsed {
    attachments: Vec<mcap::Attachment>,
    metadata: Vec<mcap::Metadata>,
    /// The number of the first attachment's block.
    first: u32,
}

/// Opens a file, by its indexes or by reading all of it.
///
/// # Errors
/// [`FormatError`] if it must be refused, cannot be read, or there is not enough memory for it.
fn open(reader: &ReadContext, memory: &WorkingMemory<'_>) -> Result<impl super::Container + use<>, FormatError> {
    let source = &*reader.source;
    let mut found = mcap::parse(source, memory)?;
    if !found.is_indexed {
        // The whole file is read, and chunks are decoded, which reserves other memory.
        source.admit(u64::MAX)?;
        memory.hold();
        let decode = &mut |number, block: &_, each: &mut EachChunk<'_>| decoded(reader, number, block, each);
        let scan = || mcap::scan::scan(source, memory, found, decode);
        found = found::once(reader, "mcap scan 1", 0..source.len(), memory, scan)?;
    }
    tree(found, memory)
}

fn tree(found: Mcap, memory: &dyn Memory) -> Result<Tree<Own>, FormatError> {
    let memory_usage = found.memory_usage();
    let Mcap { profile, library, is_indexed, recording, channels, attachments, metadata, .. } = found;
    let names: usize = attachments.iter().map(|a| a.name.len()).chain(metadata.iter().map(|m| m.name.len())).sum();
    let count = attachments.len() + metadata.len();
    memory.reserve((4 * names + 256 * count) as u64)?;
    let attached = numbered(attachments.iter().map(|attachment| split(&attachment.name)));
    let documents = numbered(metadata.iter().map(|metadata| (&*metadata.name, ".json".to_owned())));
    let extras = vec![Extra::new("attachments", attached), Extra::new("metadata", documents)];
    let mut warnings = Vec::new();
    let Damage { chunks, records, without_channel, stopped } = &found.damage;
    if let Some((at, reason)) = stopped {
        warnings.push(format!("what is behind byte {at} is not shown: {reason}"));
    }
    for (count, what) in [
        (*chunks, "damaged chunks are not shown, or not to their end"),
        (*records, "records are too short, and not shown"),
        (*without_channel, "messages are of channels that are nowhere, and not shown"),
        (found.left_out, "channels have topics of more than 32768 bytes, and are not shown"),
    ] {
        if count > 0 {
            warnings.push(format!("{count} {what}"));
        }
    }
    let parsed = Parsed { attachments, metadata, first: u32::MAX / 2 };
    let own = Own {
        parsed: Arc::new(parsed),
        profile: text(&profile),
        library: text(&library),
        is_indexed,
        damage: found.damage,
        left_out: found.left_out,
        channels,
        extras,
        warnings,
        memory_usage: memory_usage + 3 * names + 192 * count,
    };
    recording::open(recording, Box::new(found.places), true, own, memory)
}

/// Splits the suffix off an attachment's name: a dot and a few letters or digits, after at least one other byte.
fn split(name: &[u8]) -> (&[u8], String) {
    let dot = name.iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > 0);
    let suffix = dot
        .and_then(|dot| name.get(dot + 1..))
        .filter(|suffix| (1..=SUFFIX).contains(&suffix.len()) && suffix.iter().all(u8::is_ascii_alphanumeric));
    match (dot, suffix) {
        (Some(dot), Some(suffix)) => (&name[..dot], format!(".{}", String::from_utf8_lossy(suffix))),
        _ => (name, String::new()),
    }
}

/// Returns names of files that are all different.
fn numbered<'a>(stored: impl Iterator<Item = (&'a [u8], String)>) -> Vec<String> {
    let mut next: std::collections::HashMap<String, u32> = std::collections::HashMap::new();
    stored
        .map(|(part, suffix)| {
            let name = names::file(part, &suffix, 1);
            let number = next.entry(name).or_insert(0);
            *number += 1;
            names::file(part, &suffix, *number)
        })
        .collect()
}

/// Returns pairs as an object. If a key occurs twice, the last value counts, at the place of the first.
fn object(pairs: &Pairs) -> Value {
    Value::Object(pairs.iter().map(|(name, value)| (key(name), text(value))).collect())
}

impl Recorded for Own {
    fn format(&self) -> &'static str {
        MCAP.name
    }

    fn channel(&self, folder: usize, recording: &Recording) -> Value {
        let (Some(channel), Some(folder)) = (self.channels.get(folder), recording.folders.get(folder)) else {
            return Value::Null;
        };
        let schema = folder.schema.and_then(|schema| recording.schemas.get(schema as usize));
        let schema = match (channel.schema_id, schema) {
            (0, _) => Value::Null,
            (id, Some(schema)) => json!({"id": id, "name": text(&schema.name), "encoding": text(&schema.encoding)}),
            (id, None) => json!({"id": id, "name": null, "encoding": null}),
        };
        json!({
            "id": channel.id,
            "topic": text(&folder.topic),
            "message_encoding": text(&folder.message_encoding),
            "schema": schema,
            "metadata": object(&channel.metadata),
            "messages": folder.messages,
        })
    }

    fn front(&self, recording: &Recording) -> Map<String, Value> {
        let mut front = Map::new();
        let mut put = |name: &str, value: Value| drop(front.insert(name.into(), value));
        put("format", MCAP.name.into());
        put("version", "0".into());
        put("profile", self.profile.clone());
        put("library", self.library.clone());
        put("indexed", self.is_indexed.into());
        put("messages", recording.messages().into());
        put("channels", recording.folders.len().into());
        for (name, count) in [
            ("chunks_damaged", self.damage.chunks),
            ("records_damaged", self.damage.records),
            ("messages_without_channel", self.damage.without_channel),
            ("channels_left_out", self.left_out),
        ] {
            if count > 0 {
                put(name, count.into());
            }
        }
        if let Some((at, _)) = self.damage.stopped {
            put("scan_stopped", at.into());
        }
        front
    }

    fn extras(&self) -> &[Extra] {
        &self.extras
    }

    fn extra_item(&self, extra: usize, file: usize) -> Map<String, Value> {
        let item = match (extra, self.parsed.attachments.get(file), self.parsed.metadata.get(file)) {
            (ATTACHMENTS, Some(attachment), _) => json!({
                "name": text(&attachment.name),
                "media_type": text(&attachment.media_type),
                "log_time": attachment.log_time,
                "create_time": attachment.create_time,
                "size": attachment.size,
                "checksum": "crc32",
            }),
            (_, _, Some(metadata)) => json!({"name": text(&metadata.name)}),
            _ => Value::Null,
        };
        if let Value::Object(item) = item { item } else { Map::new() }
    }

    fn extra(&self, reader: &ReadContext, extra: usize, file: usize) -> Result<View, Fault> {
        if extra == ATTACHMENTS {
            let Some(attachment) = self.parsed.attachments.get(file) else { return Ok(View::default()) };
            let range = attachment.front()..attachment.front().saturating_add(attachment.size);
            let data = Data::Sought(self.parsed.clone(), self.parsed.first.saturating_add(file as u32), range);
            return Ok(View::default().with(attachment.size, data));
        }
        let Some(metadata) = self.parsed.metadata.get(file) else { return Ok(View::default()) };
        let document = describe::kept(reader, 1 + file as u64, |memory| {
            let pairs = metadata.read(&*reader.source, memory).map_err(|error| fault(metadata.offset, error))?;
            let document: Buffer = view_json::large_document(&object(&pairs), memory)?;
            Ok(document)
        });
        document.map(View::shared).map_err(|fault| Fault { offset: metadata.offset, ..fault })
    }

    fn verify_rest(&self, reader: &ReadContext) -> Result<Vec<String>, Fault> {
        let mut wrong = Vec::new();
        for check in [mcap::check_data_section, mcap::check_summary] {
            match check(&*reader.source) {
                Ok(()) => {}
                Err(PartError::Damaged(reason)) => wrong.push(reason),
                Err(PartError::Source(error)) => return Err(error.into()),
            }
        }
        Ok(wrong)
    }

    fn block_name(&self, block: u32) -> Option<String> {
        Some(format!("attachment {}", block.checked_sub(self.parsed.first)?))
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn memory_usage(&self) -> usize {
        self.memory_usage
    }
}

fn fault(offset: u64, error: PartError) -> Fault {
    match error {
        PartError::Damaged(reason) => Fault { block: None, offset, error: Arc::new(BlockError::Refused(reason)) },
        PartError::Source(error) => error.into(),
    }
}

impl Blocks for Parsed {
    fn block(&self, reader: &ReadContext, number: u32) -> Result<BlockRef, Fault> {
        let attachment = number.checked_sub(self.first).and_then(|at| self.attachments.get(at as usize));
        let Some(attachment) = attachment else { return Err(Fault::refused("there is no such attachment")) };
        let crc = attachment.check(&*reader.source).map_err(|error| fault(attachment.offset, error))?;
        let size = attachment.front() + attachment.size;
        let block = Block {
            offset: attachment.content(),
            stored_size: size,
            size,
            codec: Codec::None,
            crc: (crc != 0).then(|| Crc::crc32(crc)),
        };
        Ok(BlockRef { number, block, error: None })
    }
}
