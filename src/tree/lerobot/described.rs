//! `container.json` of a data set.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{LEROBOT, Lerobot, recordings};
use crate::{
    cache::Buffer,
    source::Memory,
    tree::describe,
    view::{Fault, ReadContext},
};

/// The content of `container.json`.
#[derive(Default)]
struct Described {
    front: Map<String, Value>,
    items: Vec<Value>,
    /// Features that no episode shows, with the reasons.
    left_out: Vec<Value>,
}

impl Lerobot {
    /// Returns the content of `container.json` without the tables.
    fn described(&self, reader: &ReadContext) -> Result<Described, Fault> {
        let front = json!({
            "format": LEROBOT.name,
            "version": self.info.version.name(),
            "fps": self.info.fps,
            "robot_type": self.info.robot,
            "episodes": self.episodes.all.len(),
            "frames": self.episodes.steps(),
        });
        let Value::Object(front) = front else { return Ok(Described::default()) };
        let (mut items, mut left_out) = (Vec::new(), Vec::new());
        for (number, feature) in self.info.features.iter().enumerate() {
            match self.state(reader, number)? {
                Err(reason) => left_out.push(json!({"name": feature.name, "reason": &*reason})),
                Ok(codec) => items.push(json!({
                    "name": feature.name,
                    "path": self.shown.item_path(number),
                    "dtype": feature.dtype,
                    "shape": feature.shape,
                    "codec": codec,
                    "stored_size": null,
                    "size": null,
                    "checksum": null,
                })),
            }
        }
        Ok(Described { front, items, left_out })
    }

    /// Returns the codec of a feature's videos, or why it is left out of all episodes.
    fn state(&self, reader: &ReadContext, feature: usize) -> Result<Result<Option<String>, Arc<str>>, Fault> {
        if let Some(reason) = self.shown.left_out(feature) {
            return Ok(Err(reason.into()));
        }
        let state = self.camera_state(reader, feature)?;
        Ok(state.map(|codec| codec.map(recordings::codec_name)))
    }

    pub(super) fn describe(&self, reader: &ReadContext, memory: &dyn Memory) -> Result<Buffer, Fault> {
        let Described { front, items, left_out } = self.described(reader)?;
        let mut back = Map::new();
        back.insert("left_out".into(), left_out.into());
        back.extend(self.described_tables());
        describe::document(&front, items.iter(), &back, memory)
    }
}
