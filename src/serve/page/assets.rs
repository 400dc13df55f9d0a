//! Scripts and stylesheets of the pages, part of the program.

use std::{fmt::Write, sync::OnceLock};

use xxhash_rust::xxh3::Xxh3;

/// A file that pages load.
pub(super) struct Asset {
    name: &'static str,
    pub(super) media_type: &'static str,
    pub(super) bytes: &'static [u8],
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

macro_rules! assets {
    ($($name:literal: $media_type:expr,)+) => {
        &[$(Asset { name: $name, media_type: $media_type, bytes: include_bytes!(concat!("assets/", $name)) }),+]
    };
}

const ASSETS: &[Asset] = assets! {
    "page.css": STYLE,
    "page.js": SCRIPT,
    "theme.js": SCRIPT,
    "player.js": SCRIPT,
    "array.js": SCRIPT,
    "table.js": SCRIPT,
    "chart.js": SCRIPT,
    "plane.js": SCRIPT,
    // uPlot 1.6.32, https://github.com/leeoniya/uPlot, under the MIT licence: assets/LICENSE.uplot.
    "uplot.js": SCRIPT,
    "uplot.css": STYLE,
    "LICENSE.uplot": "text/plain; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "icons.svg": "image/svg+xml",
};

/// The asset of a name.
pub(super) fn find(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

/// Part of the addresses of assets, another one where any of them is: browsers keep them for good.
pub(super) fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| {
        let mut hash = Xxh3::new();
        ASSETS.iter().for_each(|asset| hash.update(asset.bytes));
        let mut text = String::new();
        // A String takes all that is written.
        let _ = write!(text, "{:016x}", hash.digest());
        text
    })
}
