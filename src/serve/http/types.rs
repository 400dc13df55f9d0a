//! Media types by suffix, and what a browser may show of them.

use std::{ffi::OsStr, path::Path};

/// Media type of unknown files, and of files that a browser must not run.
const UNKNOWN: &str = "application/octet-stream";

/// Returns the media type of a file, and whether a browser may show it in place. Everything else is a download: SVG and
/// HTML may hold scripts, and SOURCE is not trusted.
pub(crate) fn media_type(name: &OsStr) -> (&'static str, bool) {
    let suffix = Path::new(name).extension().unwrap_or_default().to_ascii_lowercase();
    let shown = match suffix.to_str().unwrap_or_default() {
        "json" => "application/json",
        "jsonl" | "ndjson" => "application/x-ndjson",
        "txt" | "log" | "md" => "text/plain; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "tsv" => "text/tab-separated-values; charset=utf-8",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "bmp" => "image/bmp",
        "avif" => "image/avif",
        "mp4" | "m4v" => "video/mp4",
        "webm" => "video/webm",
        "mkv" => "video/x-matroska",
        "wav" => "audio/wav",
        "mp3" => "audio/mpeg",
        "ogg" => "audio/ogg",
        "flac" => "audio/flac",
        "npy" | "bin" => UNKNOWN,
        "pdf" => return ("application/pdf", false),
        "parquet" => return ("application/vnd.apache.parquet", false),
        "zip" | "npz" => return ("application/zip", false),
        "gz" => return ("application/gzip", false),
        "tar" => return ("application/x-tar", false),
        _ => return (UNKNOWN, false),
    };
    (shown, true)
}
