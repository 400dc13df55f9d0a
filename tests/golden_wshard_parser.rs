//! The Shard parser against every golden file: what `expected.json` says of it, an independent parser found.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use std::{fmt::Debug, fs};

use common::golden;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use shardfs::{
    format::wshard::{self, Entry, Shard, Value},
    source::Source,
};

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// Everything that differs, for all files at once.
#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    fn check<T: PartialEq + Debug>(&mut self, place: &str, what: &str, got: T, expected: T) {
        if got != expected {
            self.0.push(format!("{place}: {what} is {got:?}, expected {expected:?}"));
        }
    }
}

fn number(json: &Json, key: &str) -> u64 {
    json[key].as_u64().unwrap_or_else(|| panic!("expected.json: {key} in {json}"))
}

fn numbers(json: &Json) -> Option<Vec<u64>> {
    json.as_array().map(|list| list.iter().filter_map(Json::as_u64).collect())
}

#[test]
fn every_golden_file() {
    let folder = golden("wshard");
    let expected: Json = serde_json::from_slice(&fs::read(folder.join("expected.json")).unwrap()).unwrap();
    let files = expected["files"].as_object().unwrap();
    assert!(files.len() >= 40, "expected.json lists only {} files", files.len());
    let mut differences = Differences::default();
    for (path, file) in files {
        let bytes = fs::read(folder.join(path)).unwrap();
        let accepted = file["open"] == "accept";
        let partial = path.ends_with(".partial");
        differences.check(path, "probe", wshard::probe(&bytes, partial).is_ok(), accepted);
        match wshard::parse(&bytes) {
            Ok(shard) if accepted => check_file(&mut differences, path, file, &bytes, &shard),
            Ok(_) => differences.0.push(format!("{path}: opened, expected a refusal")),
            Err(error) if accepted => differences.0.push(format!("{path}: {error}")),
            Err(_) => {}
        }
    }
    assert!(differences.0.is_empty(), "{} differences:\n{}", differences.0.len(), differences.0.join("\n"));
}

fn check_file(differences: &mut Differences, path: &str, file: &Json, bytes: &Vec<u8>, shard: &Shard) {
    let header = &shard.header;
    for (key, got) in [
        ("role", u64::from(header.role)),
        ("flags", u64::from(header.flags)),
        ("alignment", u64::from(header.alignment)),
        ("compression_default", u64::from(header.compression_default)),
        ("entry_count", u64::from(header.entry_count)),
        ("string_table_offset", header.string_table_offset),
        ("data_section_offset", header.data_section_offset),
        ("schema_offset", header.schema_offset),
        ("total_file_size", header.total_file_size),
    ] {
        differences.check(path, key, got, number(&file["header"], key));
    }
    if let Some(episode) = file.get("episode") {
        let got = &shard.episode;
        differences.check(path, "episode_id", got.episode_id.as_deref(), episode["episode_id"].as_str());
        differences.check(path, "env_id", got.env_id.as_deref(), episode["env_id"].as_str());
        differences.check(path, "steps", got.steps, episode["length_T"].as_u64());
        differences.check(path, "length_source", got.steps_source, episode["length_source"].as_str());
        differences.check(path, "chunk_index", got.chunk_index, episode["chunk_index"].as_u64());
    }
    let schema = file.get("schema").map(|s| number(s, "offset")..number(s, "offset") + number(s, "size"));
    differences.check(path, "schema", shard.schema.clone(), schema);
    differences.check(path, "manifest", shard.chunks.is_some(), header.role == wshard::ROLE_MANIFEST);
    let flush = file.get("streaming_layout").map(|layout| number(layout, "rows_per_flush"));
    differences.check(path, "rows per flush", shard.recovered.map(|r| r.rows_per_flush), flush);
    differences.check(path, "problems", shard.problems.join("; "), String::new());
    let blocks = file["blocks"].as_array().unwrap();
    differences.check(path, "number of blocks", shard.entries.len(), blocks.len());
    for (block, entry) in blocks.iter().zip(&shard.entries) {
        let place = format!("{path} {}", block["name"]);
        check_block(differences, &place, block, entry);
        check_bytes(differences, &place, block, entry, bytes);
    }
}

fn check_block(differences: &mut Differences, place: &str, block: &Json, entry: &Entry) {
    let stored = &entry.block;
    let name = String::from_utf8_lossy(&entry.name).into_owned();
    differences.check(place, "name", name.as_str(), block["name"].as_str().unwrap());
    differences.check(place, "codec", stored.extent.codec.name(), block["codec"].as_str().unwrap());
    differences.check(place, "visible", entry.visible, true);
    differences.check(place, "error", stored.error.as_ref(), None);
    for (key, got) in [
        ("index", u64::from(entry.index)),
        ("flags", u64::from(entry.flags)),
        ("content_type", u64::from(entry.content_type)),
        ("tag_bits", u64::from(entry.tag_bits)),
        ("data_offset", stored.extent.offset),
        ("disk_size", stored.extent.stored_size),
        ("size", stored.extent.size),
    ] {
        differences.check(place, key, got, number(block, key));
    }
    differences.check(
        place,
        "crc",
        format!("{:#010x}", stored.extent.crc.map_or(0, |crc| crc.value)).as_str(),
        block["crc32c"].as_str().unwrap(),
    );
    differences.check(place, "interleaved", stored.interleave.is_some(), block.get("recovered_sha256").is_some());
    differences.check(place, "modality", entry.modality(), block["modality"].as_str());
    let residual = entry.residual.as_ref().map(|r| (r.shape(), r.skip == 4));
    let expected = block.get("residual").map(|r| (numbers(&r["shape"]).unwrap(), r["length_prefixed"] == true));
    differences.check(place, "residual", residual, expected);
    let (dtype, shape, guess, source, offset) = match &entry.value {
        Value::Array { dtype, shape, inferred, source, data_offset } => {
            (Some(dtype.name()), Some(shape.clone()), *inferred, Some(*source), *data_offset)
        }
        _ => (None, None, false, None, 0),
    };
    differences.check(place, "dtype", dtype.as_deref(), block["dtype"].as_str());
    differences.check(place, "shape", shape, numbers(&block["shape"]));
    differences.check(place, "guess", guess, block["guess"] == true);
    differences.check(place, "shape source", source, block["shape_source"].as_str());
    differences.check(place, "offset of the data", offset, block["tensor_data_offset"].as_u64().unwrap_or(0));
    let (meta, kind) = (name.starts_with("meta/"), &entry.value);
    differences.check(place, "json", *kind == Value::Json, meta || entry.content_type == 2);
    differences.check(place, "text", *kind == Value::Text, entry.content_type == 5);
    differences.check(place, "image", matches!(kind, Value::Image(_)), entry.content_type == 6);
    let language = block["modality"] == "language" && block["dtype"] == "u8";
    differences.check(place, "language", entry.language, language);
}

fn check_bytes(differences: &mut Differences, place: &str, block: &Json, entry: &Entry, file: &Vec<u8>) {
    let stored_block = &entry.block;
    let source: &dyn Source = file;
    let stored =
        source.read(stored_block.extent.offset..stored_block.extent.offset + stored_block.extent.stored_size).unwrap();
    let decoded = match stored_block.extent.codec.decode(&stored, stored_block.extent.size) {
        Ok(decoded) => decoded,
        Err(error) => return differences.0.push(format!("{place}: {error}")),
    };
    differences.check(place, "sha256", sha256(&decoded).as_str(), block["sha256"].as_str().unwrap());
    if let Some(crc) = stored_block.extent.crc.map(|crc| crc.value) {
        let over_stored = block["crc_over"] == "stored";
        let over = if over_stored { &stored } else { &decoded };
        differences.check(place, "crc32c of the bytes", crc32c::crc32c(over), crc);
        differences.check(
            place,
            "whether the crc may be over stored bytes",
            stored_block.stored_crc_ok || !over_stored,
            true,
        );
    }
    let Some(lane) = &stored_block.interleave else { return };
    let gather = |range| lane.pieces(range).flat_map(|piece| source.read(piece).unwrap()).collect::<Vec<u8>>();
    let whole = gather(0..stored_block.extent.size);
    differences.check(place, "recovered_sha256", sha256(&whole).as_str(), block["recovered_sha256"].as_str().unwrap());
    for (start, end) in [(0, 1), (1, 700), (63, 65), (64, 64), (130, u64::MAX)] {
        let end: u64 = stored_block.extent.size.min(end);
        let start = end.min(start);
        let part = &whole[start as usize..end as usize];
        differences.check(place, "a part of the recovered lane", gather(start..end), part.to_vec());
    }
}
