//! Scripts and stylesheets of the pages, part of the program.

use std::sync::OnceLock;

use base64::{Engine, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::Xxh3;

use crate::serve::POLICY;

/// A file that pages load.
pub(super) struct Asset {
    name: &'static str,
    pub(super) media_type: &'static str,
    pub(super) bytes: &'static [u8],
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The stylesheet, which stands in each page.
pub(super) const STYLESHEET: &str = concat!(include_str!("assets/page.css"), include_str!("assets/uplot.css"));
/// The script that stands in each page.
pub(super) const THEME: &str = include_str!("assets/theme.js");

macro_rules! assets {
    ($($name:literal: $media_type:expr,)+) => {
        &[$(Asset { name: $name, media_type: $media_type, bytes: include_bytes!(concat!("assets/", $name)) }),+]
    };
}

const ASSETS: &[Asset] = assets! {
    "page.js": SCRIPT,
    "player.js": SCRIPT,
    "recording.js": SCRIPT,
    "array.js": SCRIPT,
    "table.js": SCRIPT,
    "chart.js": SCRIPT,
    "plane.js": SCRIPT,
    // uPlot 1.6.32, https://github.com/leeoniya/uPlot, under the MIT licence: assets/LICENSE.uplot.
    "uplot.js": SCRIPT,
    "LICENSE.uplot": "text/plain; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "icons.svg": "image/svg+xml",
};

/// Returns the asset of a name.
pub(super) fn find(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

/// Returns the Content-Security-Policy of pages: [`POLICY`], and the hashes of the inline stylesheet and script.
pub(super) fn policy() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let hash = |text: &str| format!("'self' 'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
        POLICY
            .replace("script-src 'self'", &format!("script-src {}", hash(THEME)))
            .replace("style-src 'self'", &format!("style-src {}", hash(STYLESHEET)))
    })
}

/// Returns a hash of all assets. It is part of their addresses, because browsers keep assets for good.
pub(super) fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| {
        let mut hash = Xxh3::new();
        ASSETS.iter().for_each(|asset| hash.update(asset.bytes));
        format!("{:016x}", hash.digest())
    })
}
