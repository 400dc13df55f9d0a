//! Tests with files that pyarrow wrote in every encoding and compression (`tests/golden/parquet`), sound and damaged.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::*;
use crate::{
    cache::{Cache, Verify},
    format::{DType, Fields, half, parquet::Values},
};

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/parquet")
}

fn open(bytes: Vec<u8>, budget: u64) -> (ReadContext, Result<Columns, Fault>) {
    let source: Arc<dyn Source> = Arc::new(bytes);
    let reader = ReadContext::new(source.clone(), Cache::new(budget, Verify::Lazy), 0);
    let columns = Columns::open(&reader, source, "file", 7).map(|(columns, _)| columns);
    (reader, columns)
}

fn value(leaf: &Leaf, page: &Page, slot: usize) -> Value {
    if page.slot(slot) != Slot::Value {
        return Value::Null;
    }
    let Values::Numbers(dtype) = leaf.values else {
        let bytes = page.bytes(slot);
        return match leaf.values {
            Values::Texts => String::from_utf8(bytes.to_vec()).unwrap().into(),
            _ => json!({"hex": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()}),
        };
    };
    let bytes = page.numbers(slot..slot + 1, dtype.size() as usize);
    match dtype {
        DType::Bool => json!(bytes[0] != 0),
        DType::I32 => json!(bytes.u32(0).unwrap() as i32),
        DType::U32 => json!(bytes.u32(0).unwrap()),
        DType::I64 => json!(bytes.u64(0).unwrap() as i64),
        DType::U64 => json!(bytes.u64(0).unwrap()),
        DType::F16 => json!(f64::from(half(bytes.u16(0).unwrap()))),
        DType::F32 => json!(f64::from(f32::from_bits(bytes.u32(0).unwrap()))),
        _ => json!(f64::from_bits(bytes.u64(0).unwrap())),
    }
}

/// The values of some rows, each a list.
fn read(columns: &Columns, reader: &ReadContext, leaf: usize, rows: Range<u64>) -> Result<Vec<Vec<Value>>, Fault> {
    let of = &columns.file().leaves[leaf];
    let mut found = vec![Vec::new(); (rows.end - rows.start) as usize];
    columns.lists(reader, leaf, rows.clone(), &mut |row, values| {
        for slot in values.slots {
            found[(row - rows.start) as usize].push(value(of, values.page, slot));
        }
        Ok(())
    })?;
    Ok(found)
}

/// Returns a row that pyarrow was given in the same form: lists of lists flat, and one missing value for a missing
/// list.
fn flat(value: &Value, out: &mut Vec<Value>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| flat(value, out)),
        other => out.push(other.clone()),
    }
}

fn expected() -> Value {
    serde_json::from_slice(&fs::read(folder().join("expected.json")).unwrap()).unwrap()
}

#[test]
fn every_encoding_and_compression_gives_the_values_that_were_written() {
    let expected = expected();
    let rows = expected["rows"].as_u64().unwrap();
    let mut compared = 0;
    for (file, about) in expected["files"].as_object().unwrap() {
        let (reader, columns) = open(fs::read(folder().join(file)).unwrap(), 64 << 20);
        let columns = columns.unwrap_or_else(|fault| panic!("{file}: {}", fault.error));
        assert_eq!(columns.file().rows, rows);
        for (name, values) in expected["columns"].as_object().unwrap() {
            let leaf = columns.file().leaf(name, |leaf| leaf.path.last().is_none_or(|last| **last != *"path")).unwrap();
            if about["readable"] == false {
                let reason = columns.check(leaf, &(0..rows)).unwrap_err();
                assert!(reason.contains("BROTLI"), "{reason}");
                continue;
            }
            assert_eq!(columns.check(leaf, &(0..rows)), Ok(()));
            let wanted: Vec<Vec<Value>> = (values.as_array().unwrap().iter())
                .map(|row| {
                    let mut out = Vec::new();
                    flat(row, &mut out);
                    out
                })
                .collect();
            let found = read(&columns, &reader, leaf, 0..rows)
                .unwrap_or_else(|fault| panic!("{file}, {name}: {}", fault.error));
            assert_eq!(found, wanted, "{file}, {name}");
            for (start, end) in [(0, 1), (5, 9), (16, 35), (59, 60), (33, 60)] {
                let part = read(&columns, &reader, leaf, start..end).unwrap();
                assert_eq!(part, wanted[start as usize..end as usize], "{file}, {name}: {start} to {end}");
            }
            compared += 1;
        }
    }
    assert!(compared > 600, "{compared}");
}

#[test]
fn a_page_without_its_checksum_is_damage_of_its_rows() {
    let file = fs::read(folder().join("index_v2.parquet")).unwrap();
    let (reader, columns) = open(file.clone(), 64 << 20);
    let columns = columns.unwrap();
    let leaf = columns.file().leaf("i64", |_| true).unwrap();
    let walked = columns.walked(&reader, (1, leaf), &columns.file().groups[1].chunks[leaf]).unwrap();
    let place = walked.places[0];
    let mut bad = file;
    bad[place.at as usize + 3] ^= 1;
    let (reader, columns) = open(bad, 64 << 20);
    let columns = columns.unwrap();
    let first = columns.file().groups[1].first;
    let lost = first..first + u64::from(place.rows);
    for row in 0..columns.file().rows {
        let found = read(&columns, &reader, leaf, row..row + 1);
        assert_eq!(found.is_err(), lost.contains(&row), "{row}");
        if let Err(fault) = found {
            assert_eq!(fault.offset, place.at);
            assert!(fault.error.to_string().starts_with("file: checksum is"), "{}", fault.error);
        }
    }
}

#[test]
fn damaged_files_give_values_or_errors() {
    let expected = expected();
    let mut opened = 0;
    for (number, file) in expected["files"].as_object().unwrap().keys().enumerate() {
        let good = fs::read(folder().join(file)).unwrap();
        for at in (17 * number % 331..good.len()).step_by(331) {
            for change in [0x01, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= change;
                let (reader, columns) = open(bad, 64 << 20);
                let Ok(columns) = columns else { continue };
                opened += 1;
                // A file may claim any number of rows.
                let rows = columns.file().rows.min(100);
                for leaf in (number..columns.file().leaves.len()).step_by(5) {
                    let _ = columns.visit(&reader, leaf, 0..rows, &mut |_, part| {
                        if let Ok(part) = part {
                            let _ = part.rows.clone().map(|row| part.slots(row).len()).sum::<usize>();
                        }
                        Ok(())
                    });
                }
            }
        }
        for end in (0..good.len()).step_by(997) {
            assert!(open(good[..end].to_vec(), 64 << 20).1.is_err(), "{file} cut at {end}");
        }
    }
    assert!(opened > 800, "{opened}");
}

#[test]
fn readers_that_do_not_wait_get_what_is_decoded() {
    let (reader, columns) = open(fs::read(folder().join("zstd_v1.parquet")).unwrap(), 64 << 20);
    let columns = columns.unwrap();
    let leaf = columns.file().leaf("f64", |_| true).unwrap();
    let at_once = reader.with_wait(crate::source::Wait::Never);
    let fault = read(&columns, &at_once, leaf, 3..5).unwrap_err();
    assert!(fault.would_block_for().is_some());
    let found = read(&columns, &reader, leaf, 3..5).unwrap();
    assert_eq!(read(&columns, &at_once, leaf, 3..5).unwrap(), found);
    // Pages take memory of the budget. Too little of it is not damage.
    let (reader, columns) = open(fs::read(folder().join("zstd_v1.parquet")).unwrap(), 1 << 10);
    if let Ok(columns) = columns {
        assert_eq!(read(&columns, &reader, leaf, 3..5).unwrap(), found);
    }
}
