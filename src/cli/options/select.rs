//! Paths with wildcards that reach into containers: `data/*.wshard/signal/joint_*.npy`.

use std::{
    ffi::OsStr,
    path::{Component, Path, PathBuf},
};

use anyhow::{Context, anyhow, bail};
use glob::{MatchOptions, Pattern};

use super::{
    place::{Place, names},
    remote::join,
};
use crate::{cli::is_url, vfs, volume::Entry};

/// As in shells, only a pattern that begins with a dot matches a name that begins with a dot.
const OPTIONS: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: false, require_literal_leading_dot: true };

/// The matches of a path, with or without wildcards, inside one filesystem.
pub(in crate::cli) struct Selection {
    pub(in crate::cli) found: Vec<Selected>,
    /// Whether the path had wildcards.
    pub(in crate::cli) is_pattern: bool,
    /// What could not be looked into on the way.
    pub(in crate::cli) failed: Vec<anyhow::Error>,
}

/// A file or folder that matches.
pub(in crate::cli) struct Selected {
    pub(in crate::cli) entry: Entry,
    /// Its path from the container's name on, or from the first wildcard if that comes earlier.
    pub(in crate::cli) kept: PathBuf,
    /// Its path as typed, with wildcards replaced: for messages.
    pub(in crate::cli) shown: PathBuf,
}

impl Selected {
    /// Returns the file or folder of a name in a folder that matches; `None` if it is gone.
    pub(in crate::cli) fn child(&self, name: &OsStr) -> anyhow::Result<Option<Self>> {
        let shown = join(&self.shown, self.entry.is_inside(), name);
        match self.entry.child(name) {
            Ok(entry) => Ok(entry.map(|entry| Self { entry, kept: self.kept.join(name), shown })),
            Err(error) => Err(anyhow!("{}: {}", shown.display(), error.detail())),
        }
    }
}

/// One component of a pattern.
enum Part {
    Name(PathBuf),
    Pattern(Pattern),
    /// `**` before a slash: any folders, or none.
    Folders,
}

/// Finds what a path matches. A path that exists matches itself, whatever characters it has.
///
/// # Errors
/// If nothing matches.
pub(in crate::cli) fn select(path: &Path, options: vfs::Options) -> anyhow::Result<Selection> {
    let literal = Place::find(path, options.clone());
    let is_pattern = literal.is_err() && path.components().any(|component| is_wild(component.as_os_str()));
    if !is_pattern {
        let Place { entry, kept } = literal?;
        let found = vec![Selected { entry, kept, shown: path.to_owned() }];
        return Ok(Selection { found, is_pattern, failed: vec![] });
    }
    let components: Vec<Component<'_>> = path.components().collect();
    let wild = components.iter().position(|component| is_wild(component.as_os_str())).unwrap_or(0);
    let prefix = match is_url(path) {
        // Components drop the second of two slashes.
        true => components[..wild].iter().skip(1).fold(url_scheme(path), |url, part| url.join(part)),
        false => components[..wild].iter().collect(),
    };
    let parts = components[wild..].iter().map(|component| part(*component)).collect::<anyhow::Result<Vec<_>>>()?;
    let start = if wild == 0 { Path::new(".") } else { &prefix };
    let place = Place::find(start, options)?;
    if !place.entry.is_folder() {
        bail!("{}: not a folder", start.display());
    }
    // Outside of containers nothing of the folder is kept: the pattern begins there.
    let kept = if place.entry.warnings()?.is_some() { place.kept } else { PathBuf::new() };
    let mut selection = Selection { found: vec![], is_pattern, failed: vec![] };
    selection.expand(Selected { entry: place.entry, kept, shown: prefix }, &parts);
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        selection.found.retain(|found| found.entry.is_folder());
    }
    if selection.found.is_empty() && selection.failed.is_empty() {
        bail!("{}: nothing matches", path.display());
    }
    Ok(selection)
}

/// Returns `s3://` as a path.
fn url_scheme(url: &Path) -> PathBuf {
    let text = url.to_string_lossy();
    text.split_once("://").map_or_else(PathBuf::new, |(scheme, _)| format!("{scheme}://").into())
}

fn is_wild(component: &OsStr) -> bool {
    component.as_encoded_bytes().iter().any(|byte| b"*?[".contains(byte))
}

fn part(component: Component<'_>) -> anyhow::Result<Part> {
    let name = component.as_os_str();
    match component {
        Component::ParentDir => bail!("'..' after a wildcard"),
        _ if name == "**" => Ok(Part::Folders),
        _ if is_wild(name) => {
            let text = name.to_str().with_context(|| format!("{}: a pattern has to be UTF-8", name.display()))?;
            Ok(Part::Pattern(Pattern::new(text).with_context(|| text.to_owned())?))
        }
        _ => Ok(Part::Name(name.into())),
    }
}

impl Selection {
    /// Collects what the rest of a pattern matches below a folder, in order.
    fn expand(&mut self, top: Selected, parts: &[Part]) {
        // A stack of places with the parts that remain to be matched below them, the next one last.
        let mut open = vec![(top, parts)];
        while let Some((mut here, parts)) = open.pop() {
            let Some((part, rest)) = parts.split_first() else {
                self.found.push(here);
                continue;
            };
            here.entry = here.entry.if_entered();
            if !here.entry.is_folder() {
                continue;
            }
            let mut inner = Vec::new();
            match part {
                Part::Name(name) => inner.extend(self.child(&here, name.as_os_str()).map(|child| (child, rest))),
                Part::Pattern(pattern) => {
                    let fits = |name: &OsStr| pattern.matches_with(&name.to_string_lossy(), OPTIONS);
                    inner.extend(self.children(&here, fits).into_iter().map(|child| (child, rest)));
                }
                Part::Folders => {
                    let fits = |name: &OsStr| !name.as_encoded_bytes().starts_with(b".");
                    let folders = self.children(&here, fits).into_iter();
                    // The rest may match here, or in any folder below. Without a rest it is a `*`.
                    if rest.is_empty() {
                        inner.extend(folders.map(|child| (child, rest)));
                    } else {
                        inner.push((here, rest));
                        inner.extend(folders.filter(|child| child.entry.is_folder()).map(|child| (child, parts)));
                    }
                }
            }
            open.extend(inner.into_iter().rev());
        }
    }

    fn child(&mut self, folder: &Selected, name: &OsStr) -> Option<Selected> {
        folder.child(name).unwrap_or_else(|error| {
            self.failed.push(error);
            None
        })
    }

    fn children(&mut self, folder: &Selected, fits: impl Fn(&OsStr) -> bool) -> Vec<Selected> {
        match names(&folder.entry, &folder.shown) {
            Ok(names) => {
                let fitting = names.into_iter().filter(|(name, _)| fits(name));
                fitting.filter_map(|(name, _)| self.child(folder, &name)).collect()
            }
            Err(error) => {
                self.failed.push(error);
                Vec::new()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pattern: &str) -> Vec<String> {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
        let selection = select(&fixtures.join(pattern), vfs::Options::default());
        let found = selection.map(|selection| selection.found).unwrap_or_default();
        found.into_iter().map(|found| found.kept.display().to_string()).collect()
    }

    #[test]
    fn wildcards_reach_into_containers() {
        assert_eq!(
            found("ep_*.wshard/signal/joint_*.npy"),
            ["ep_001.wshard/signal/joint_pos.npy", "ep_002_lz4.wshard/signal/joint_pos.npy"]
        );
        assert_eq!(found("ep_001.wshard/signal/j*.npy"), ["ep_001.wshard/signal/joint_pos.npy"]);
        assert_eq!(found("ep_001.wshard/**/rgb.npy"), ["ep_001.wshard/signal/cam0/rgb.npy"]);
        assert_eq!(found("ep_00[1]*/don?.npy"), ["ep_001.wshard/done.npy"]);
        assert_eq!(found("ep_001.wshard/.raw/signal/gripper*"), ["ep_001.wshard/.raw/signal/gripper_open.bin"]);
        assert_eq!(found("ep_001.wshard/s*/"), ["ep_001.wshard/signal"]);
        assert!(found("ep_001.wshard/don*/").is_empty());
        assert!(found("ep_*.wshard/nothing*").is_empty());
        assert!(found("notes.txt/*").is_empty());
    }

    #[test]
    fn plain_paths_keep_the_container() {
        assert_eq!(found("ep_001.wshard/signal/joint_pos.npy"), ["ep_001.wshard/signal/joint_pos.npy"]);
        assert_eq!(found("ep_001.wshard"), ["ep_001.wshard"]);
        assert_eq!(found("notes.txt"), ["notes.txt"]);
    }
}
