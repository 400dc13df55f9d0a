//! `meta/info.json` (`docs/formats/lerobot.md` 2 and 9).

use serde_json::{Map, Number, Value};

use super::{Class, Field, FormatError, Template};
use crate::{format::DType, limits};

/// Episodes in a chunk folder of v2, if the file does not state the number.
const CHUNK: u64 = 1000;

/// The versions of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "their names say it")]
pub enum Version {
    V20,
    V21,
    V30,
}

impl Version {
    /// Returns the name as the file has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::V20 => "v2.0",
            Self::V21 => "v2.1",
            Self::V30 => "v3.0",
        }
    }

    /// Returns whether each file has one episode.
    pub fn has_file_an_episode(self) -> bool {
        self != Self::V30
    }
}

/// What the values of a feature are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Numbers of a type.
    Numbers(DType),
    /// Texts.
    Text,
    /// Pictures in the row files.
    Image,
    /// Frames of videos.
    Video,
    /// Something that is not shown.
    Other,
}

/// A feature: what is recorded at each step.
#[derive(Debug)]
pub struct Feature {
    /// Its name.
    pub name: String,
    /// Its type as the file has it.
    pub dtype: String,
    /// The kind of its values.
    pub kind: Kind,
    /// The shape of a step.
    pub shape: Vec<u64>,
    /// Height, width and channels of a camera, if the shape has them.
    pub picture: Option<[u64; 3]>,
    /// Whether it is a depth camera.
    pub is_depth: bool,
}

impl Feature {
    /// Returns whether a step is one value.
    pub fn is_scalar(&self) -> bool {
        matches!(self.shape.as_slice(), [] | [1])
    }

    /// Returns the number of values of a step; `None` if there are more than any file has.
    pub fn values(&self) -> Option<u64> {
        self.shape.iter().try_fold(1u64, |values, axis| values.checked_mul(*axis))
    }
}

/// The description of a data set.
#[derive(Debug)]
pub struct Info {
    /// The version of the format.
    pub version: Version,
    /// Steps in a second, as the file has it.
    pub fps: Number,
    /// The features, in order.
    pub features: Vec<Feature>,
    /// Paths of the row files.
    pub data_path: Template,
    /// Paths of the videos.
    pub video_path: Option<Template>,
    /// Episodes in a chunk folder of v2.
    pub chunk: u64,
    /// The kind of robot.
    pub robot: Option<String>,
}

fn refused<T>(class: Class, reason: impl Into<String>) -> Result<T, FormatError> {
    Err(FormatError::refused(class, reason))
}

impl Info {
    /// Returns the number of steps in a second.
    pub fn rate(&self) -> f64 {
        self.fps.as_f64().unwrap_or(1.0)
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let json: Value = match serde_json::from_slice(bytes) {
            Ok(json) => json,
            Err(error) => return refused(Class::BadJson, error.to_string()),
        };
        let Value::Object(info) = json else { return refused(Class::BadJson, "it is no object") };
        let version = match info.get("codebase_version") {
            Some(Value::String(version)) if version == "v2.0" => Version::V20,
            Some(Value::String(version)) if version == "v2.1" => Version::V21,
            Some(Value::String(version)) if version == "v3.0" => Version::V30,
            other => {
                let found = other.map_or_else(|| "no version".into(), ToString::to_string);
                return refused(Class::OtherVersion, format!("{found}; v2.0, v2.1 and v3.0 are supported"));
            }
        };
        match info.get("storage_format") {
            None | Some(Value::Null) => {}
            Some(Value::String(format)) if format == "parquet" => {}
            Some(other) => return refused(Class::OtherStorage, format!("{other}; only parquet is supported")),
        }
        let fps = info.get("fps").and_then(Value::as_number).cloned();
        let Some(fps) = fps.filter(|fps| fps.as_f64().is_some_and(|fps| fps.is_finite() && fps > 0.0)) else {
            return refused(Class::BadInfo, "fps is no number above 0");
        };
        let Some(Value::Object(features)) = info.get("features") else {
            return refused(Class::BadInfo, "features is no object");
        };
        if features.len() > limits::LEROBOT_FEATURES {
            let (count, most) = (features.len(), limits::LEROBOT_FEATURES);
            return refused(Class::BadInfo, format!("{count} features; at most {most} are read"));
        }
        let features = features.iter().map(|(name, feature)| self::feature(name, feature));
        let features = features.collect::<Result<Vec<_>, _>>()?;
        let numbers: &[Field] = match version.has_file_an_episode() {
            true => &[Field::EpisodeChunk, Field::EpisodeIndex],
            false => &[Field::ChunkIndex, Field::FileIndex],
        };
        let Some(Value::String(data_path)) = info.get("data_path") else {
            return refused(Class::BadInfo, "data_path is no text");
        };
        let data_path = Template::parse(data_path, numbers)?;
        let video_path = match info.get("video_path") {
            None | Some(Value::Null) => None,
            Some(Value::String(path)) => Some(Template::parse(path, &[numbers, &[Field::VideoKey]].concat())?),
            Some(_) => return refused(Class::BadInfo, "video_path is neither text nor null"),
        };
        let chunk = info.get("chunks_size").and_then(Value::as_u64).filter(|chunk| *chunk > 0).unwrap_or(CHUNK);
        let robot = info.get("robot_type").and_then(Value::as_str).map(str::to_owned);
        Ok(Self { version, fps, features, data_path, video_path, chunk, robot })
    }

    /// Returns about how many bytes of memory it takes.
    pub fn memory_usage(&self) -> usize {
        let of_feature = |feature: &Feature| {
            size_of_val(feature) + feature.name.len() + feature.dtype.len() + size_of_val(&*feature.shape) + 64
        };
        size_of::<Self>() + self.features.iter().map(of_feature).sum::<usize>()
    }
}

fn feature(name: &str, feature: &Value) -> Result<Feature, FormatError> {
    let bad = |what: &str| FormatError::refused(Class::BadInfo, format!("the feature {name:?} has no {what}"));
    let feature = feature.as_object().ok_or_else(|| bad("description"))?;
    let dtype = feature.get("dtype").and_then(Value::as_str).ok_or_else(|| bad("dtype"))?;
    let shape = feature.get("shape").and_then(Value::as_array).ok_or_else(|| bad("shape"))?;
    let shape: Option<Vec<u64>> = shape.iter().map(Value::as_u64).collect();
    let shape = shape.ok_or_else(|| bad("shape of numbers that are at least 0"))?;
    let kind = match dtype {
        "string" => Kind::Text,
        "image" => Kind::Image,
        "video" => Kind::Video,
        name => DType::of_name(name).filter(|dtype| *dtype != DType::Bf16).map_or(Kind::Other, Kind::Numbers),
    };
    Ok(Feature {
        name: name.into(),
        dtype: dtype.into(),
        kind,
        picture: picture(&shape, feature.get("names")),
        shape,
        is_depth: is_depth(feature),
    })
}

/// Returns height, width and channels. The channels may come first or last (`docs/formats/lerobot.md` 6).
fn picture(shape: &[u64], names: Option<&Value>) -> Option<[u64; 3]> {
    let [first, second, third] = *<&[u64; 3]>::try_from(shape).ok()?;
    let names: Option<Vec<&str>> =
        names.and_then(Value::as_array).and_then(|names| names.iter().map(Value::as_str).collect());
    let is_first = match names.as_deref() {
        Some([name, _, _]) => name.starts_with("channel"),
        _ => matches!(first, 1 | 3 | 4) && !matches!(third, 1 | 3 | 4),
    };
    Some(if is_first { [second, third, first] } else { [first, second, third] })
}

fn is_depth(feature: &Map<String, Value>) -> bool {
    let says = |key: &str, flag: &str| feature.get(key).and_then(|info| info.get(flag)) == Some(&Value::Bool(true));
    says("info", "is_depth_map") || says("info", "video.is_depth_map") || says("video_info", "video.is_depth_map")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn channels_are_first_or_last() {
        let shape = |shape: &[u64], names: Value| picture(shape, Some(&names));
        assert_eq!(shape(&[3, 24, 32], json!(["channels", "height", "width"])), Some([24, 32, 3]));
        assert_eq!(shape(&[3, 24, 3], json!(["height", "width", "channel"])), Some([3, 24, 3]));
        assert_eq!(shape(&[3, 24, 32], json!(null)), Some([24, 32, 3]));
        assert_eq!(shape(&[3, 24, 3], json!({"a": 1})), Some([3, 24, 3]));
        assert_eq!(shape(&[24, 32], json!(null)), None);
        assert_eq!(picture(&[1, 24, 32], None), Some([24, 32, 1]));
    }

    #[test]
    fn what_is_wrong_has_a_class() {
        let good = json!({"codebase_version": "v3.0", "fps": 10, "features": {}, "data_path": "a", "video_path": null});
        assert!(Info::parse(good.to_string().as_bytes()).is_ok());
        for (key, value, class) in [
            ("codebase_version", json!("v3.1"), "version"),
            ("codebase_version", json!(3), "version"),
            ("fps", json!(0), "info"),
            ("fps", json!("10"), "info"),
            ("fps", json!(true), "info"),
            ("features", json!([]), "info"),
            ("features", json!({"a": {"shape": [1]}}), "info"),
            ("features", json!({"a": {"dtype": "bool", "shape": [-1]}}), "info"),
            ("features", json!({"a": {"dtype": "bool", "shape": [true]}}), "info"),
            ("data_path", json!("{episode_index}"), "template"),
            ("data_path", json!("{video_key}"), "template"),
            ("data_path", json!(null), "info"),
            ("video_path", json!("{x}"), "template"),
            ("storage_format", json!("lance"), "storage"),
        ] {
            let mut other = good.clone();
            other[key] = value;
            let error = Info::parse(other.to_string().as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{class}: ")), "{key}: {error}");
        }
        assert!(Info::parse(b"{\"fps\": NaN}").unwrap_err().to_string().starts_with("json: "));
        assert!(Info::parse(b"[]").unwrap_err().to_string().starts_with("json: "));
    }
}
