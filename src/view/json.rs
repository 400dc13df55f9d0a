//! JSON that shardfs makes: UTF-8, indented by 2, keys in the order given, one newline at the end.

use serde::Serialize;

/// The bytes of a document. NaN and the infinities are `null`.
pub fn document(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}
