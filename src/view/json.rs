//! JSON that shardfs makes: UTF-8, indented by 2, keys in the order given, one newline at the end.

use serde_json::Value;

/// The bytes of a document. A `Value` holds no NaN and no infinity: they became `null` when it was made.
pub fn document(value: &Value) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}
