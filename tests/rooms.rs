//! The rooms of the source: layers know only those below them, files do not need each other in circles, and no other
//! place knows a format.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use shardfs::tree::FORMATS;

/// A file's place in the tree of modules: `["vfs", "node"]`.
type Module = Vec<String>;

/// The project's sources without comments and tests, by module.
fn modules() -> BTreeMap<Module, String> {
    let mut found = BTreeMap::new();
    for (file, text) in common::program() {
        let Some(path) = file.strip_prefix("src/").and_then(|file| file.strip_suffix(".rs")) else { continue };
        let module: Module = path.split('/').map(str::to_owned).collect();
        let is_top = ["lib", "main"].contains(&path);
        if !is_top && module.last().unwrap() != "tests" {
            found.insert(module, program_of(&text));
        }
    }
    assert!(found.len() > 300, "{}", found.len());
    found
}

/// A file's text without comments and the tests at its end.
fn program_of(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..end].lines().map(|line| without_comment(line, "//")).collect::<Vec<_>>().join("\n")
}

/// A line without the comment at its end. Marks inside of strings are no comments.
fn without_comment<'a>(line: &'a str, mark: &str) -> &'a str {
    let is_code = |at: usize| line[..at].matches('"').count().is_multiple_of(2);
    line.match_indices(mark).map(|(at, _)| at).find(|&at| is_code(at)).map_or(line, |at| &line[..at])
}

/// The paths of a `use`, with the braces resolved.
fn expand(before: &str, tree: &str, paths: &mut Vec<String>) {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        let path = tree.split(" as ").next().unwrap_or_default().trim();
        paths.push(format!("{before}{path}"));
        return;
    };
    let (inner, mut depth, mut start) = (&tree[open + 1..tree.rfind('}').unwrap()], 0, 0);
    let before = format!("{before}{}", tree[..open].trim());
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inner[start..at].trim().is_empty() {
                    expand(&before, &inner[start..at], paths);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// All paths that a text names from the crate or relative to its own module.
fn paths(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    for (at, _) in text.match_indices("use ") {
        let before = text[..at].rsplit('\n').next().unwrap_or_default().trim();
        if before.is_empty() || before.starts_with("pub") {
            let end = text[at..].find(';').map_or(text.len(), |end| at + end);
            expand("", &text[at + 4..end], &mut found);
        }
    }
    for start in ["crate::", "super::"] {
        for (at, _) in text.match_indices(start) {
            if text[..at].chars().next_back().is_none_or(|c| !is_word(c) && c != ':') {
                let end = text[at..].find(|c| !is_word(c) && c != ':').map_or(text.len(), |end| at + end);
                found.push(text[at..end].to_owned());
            }
        }
    }
    found
}

/// The module that a path leads to from another one, if it is a module of this crate.
fn target(modules: &BTreeMap<Module, String>, from: &Module, path: &str) -> Option<Module> {
    let mut parts = path.split("::").map(str::trim).peekable();
    let mut at: Module = match *parts.peek()? {
        "crate" => {
            parts.next();
            Vec::new()
        }
        "super" | "self" => from.clone(),
        first if modules.contains_key(&[&from[..], &[first.to_owned()]].concat()) => from.clone(),
        _ => return None,
    };
    while let Some("super" | "self") = parts.peek().copied() {
        if parts.next() == Some("super") {
            at.pop();
        }
    }
    for part in parts {
        let below = [&at[..], &[part.to_owned()]].concat();
        if !modules.contains_key(&below) {
            break;
        }
        at = below;
    }
    (!at.is_empty()).then_some(at)
}

/// Each module with those that it names.
fn edges() -> BTreeMap<Module, BTreeSet<Module>> {
    let modules = modules();
    let named =
        |from: &Module, text: &String| paths(text).iter().filter_map(|path| target(&modules, from, path)).collect();
    modules.iter().map(|(from, text)| (from.clone(), named(from, text))).collect()
}

/// The layers of `docs/ARCHITECTURE.md`, from the top.
fn layers() -> Vec<Vec<String>> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/ARCHITECTURE.md")).unwrap();
    let table = page.lines().skip_while(|line| !line.starts_with("| module |")).skip(2);
    let rows = table.take_while(|line| line.starts_with('|'));
    let names = |row: &str| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2).map(str::to_owned).collect();
    rows.map(names).collect()
}

#[test]
fn layers_know_only_those_below() {
    let layers = layers();
    let place = |name: &str| layers.iter().position(|layer| layer.iter().any(|known| known == name));
    let mut wrong = BTreeSet::new();
    for (from, named) in edges() {
        let Some(own) = place(&from[0]) else {
            wrong.insert(format!("{} is not in the table of layers", from[0]));
            continue;
        };
        for to in named.iter().filter(|to| to[0] != from[0]) {
            if place(&to[0]).is_none_or(|other| other < own || other == own && layers[own].len() == 1) {
                wrong.insert(format!("{} knows {}", from.join("/"), to.join("/")));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_files_need_each_other_in_a_circle() {
    // The files of one format count as one: its structures refer to each other.
    let is_format = |one: &Module| ["format", "tree"].contains(&&*one[0]);
    let whole = |one: Module| if is_format(&one) { one.into_iter().take(2).collect() } else { one };
    let mut edges: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (from, named) in self::edges() {
        edges.entry(whole(from)).or_default().extend(named.into_iter().map(whole));
    }
    // A module and what is in it belong together.
    let is_inside = |one: &Module, other: &Module| one.starts_with(other) || other.starts_with(one);
    let next = |from: &Module| edges[from].iter().filter(|to| !is_inside(from, to)).cloned().collect::<Vec<_>>();
    for start in edges.keys() {
        let mut way: BTreeMap<Module, Module> = BTreeMap::new();
        let mut open: Vec<Module> = vec![start.clone()];
        while let Some(at) = open.pop() {
            for to in next(&at) {
                if to == *start {
                    let mut circle = vec![start.join("/"), at.join("/")];
                    let mut back = &at;
                    while let Some(before) = way.get(back) {
                        circle.push(before.join("/"));
                        back = before;
                    }
                    panic!("a circle: {}", circle.join(" <- "));
                }
                if !way.contains_key(&to) {
                    way.insert(to.clone(), at.clone());
                    open.push(to);
                }
            }
        }
    }
}

/// Words of identifiers and texts, as `Idv`, `Column` of `IdvColumn`, with what stands in front of each.
fn words(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let bytes = text.as_bytes();
    let mut start = None;
    for at in 0..=bytes.len() {
        let here = bytes.get(at).copied().unwrap_or(b' ');
        let begins = |start: usize| {
            let before = bytes[at - 1];
            at > start && here.is_ascii_uppercase() && (before.is_ascii_lowercase() || before.is_ascii_digit())
        };
        if let Some(from) = start
            && (!here.is_ascii_alphanumeric() || begins(from))
        {
            found.push((&text[..from], &text[from..at]));
            start = None;
        }
        if start.is_none() && here.is_ascii_alphanumeric() {
            start = Some(at);
        }
    }
    found
}

/// The Python package without comments and docstrings.
fn python() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
    let mut found = Vec::new();
    for folder in ["shardfs", "src"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let file = format!("python/{folder}/{}", path.file_name().unwrap().to_str().unwrap());
            if file.ends_with(".rs") {
                found.push((file, program_of(&fs::read_to_string(&path).unwrap())));
            } else if file.ends_with(".py") {
                let text = fs::read_to_string(&path).unwrap();
                let code: Vec<&str> = text.split("\"\"\"").step_by(2).collect();
                let lines = code.iter().flat_map(|code| code.lines()).map(|line| without_comment(line, "#"));
                found.push((file, lines.collect::<Vec<_>>().join("\n")));
            }
        }
    }
    found
}

#[test]
fn no_other_place_knows_a_format() {
    // Beside the table of all limits. Files of a server have media types, whatever shows them as folders.
    let known = [("npz", "src/serve/http/types.rs")];
    let rooms = ["src/format", "src/tree", "src/codec", "src/limits.rs"];
    let names: BTreeSet<&str> = FORMATS.iter().map(|format| format.name).collect();
    let program = common::program().into_iter();
    let program = program.filter(|(file, _)| file.ends_with(".rs") && !file.ends_with("tests.rs"));
    let program = program.map(|(file, text)| (file, program_of(&text))).chain(python());
    let mut found = BTreeSet::new();
    for (file, text) in program.filter(|(file, _)| !rooms.iter().any(|room| file.starts_with(room))) {
        for (before, word) in words(&text) {
            // An example: `data/ep_001.wshard`, `'data/*.wshard/signal'`.
            let is_file =
                before.strip_suffix('.').is_some_and(|name| name.ends_with(|c: char| c == '*' || c.is_alphanumeric()));
            let is_example = is_file || before.ends_with("--formats=-");
            if let Some(name) = names.get(&*word.to_lowercase()).filter(|_| !is_example) {
                found.insert((*name, file.clone()));
            }
        }
    }
    assert_eq!(found, known.map(|(name, file)| (name, file.to_owned())).into());
}
