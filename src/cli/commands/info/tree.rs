//! The groups and arrays of a container as a tree, as h5ls and h5dump draw them.

use std::{borrow::Cow, io::Write};

use serde_json::{Map, Value};

use super::lines;
use crate::{
    format::ElementType,
    limits,
    volume::{Entry, EntryKind, Member, MemberKind},
};

/// Most characters of the value of an attribute.
const VALUE_LENGTH: usize = 100;

/// Deepest group whose members are shown.
const DEPTH: usize = 64;

/// What is drawn.
struct Tree {
    /// Rows of a table, or a text alone.
    lines: Vec<Vec<String>>,
    has_attributes: bool,
    members: usize,
}

/// Prints what is in a group, or one array.
pub(super) fn describe(out: &mut impl Write, entry: &Entry, has_attributes: bool) -> anyhow::Result<()> {
    let mut tree = Tree { lines: Vec::new(), has_attributes, members: 0 };
    if entry.is_folder() && entry.item_info()?.is_none() {
        tree.attributes(entry, 0);
        tree.group(entry, 0)?;
    } else {
        let name = entry.name().to_string_lossy();
        let stem = name.rsplit_once('.').map_or(&*name, |(stem, _)| stem).to_owned();
        let kind = if entry.is_folder() { MemberKind::Rows } else { MemberKind::Array };
        tree.member(&Member { name: stem, kind, entry: entry.clone() }, 0)?;
    }
    if tree.lines.is_empty() {
        writeln!(out, "  there are no groups and arrays")?;
    }
    lines::table(out, &[], &tree.lines, &[])
}

impl Tree {
    fn group(&mut self, group: &Entry, depth: usize) -> anyhow::Result<()> {
        if depth >= DEPTH {
            self.lines.push(vec![format!("{}…", "  ".repeat(depth))]);
            return Ok(());
        }
        let members = match group.members() {
            Ok(members) => members,
            Err(error) if depth > 0 => {
                self.lines.push(vec![format!("{}cannot be read: {}", "  ".repeat(depth), error.detail())]);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        for (number, member) in members.iter().enumerate() {
            if self.members == limits::DESCRIBED {
                let rest = members.len() - number;
                self.lines.push(vec![format!("{}… and {rest} more", "  ".repeat(depth))]);
                break;
            }
            self.members += 1;
            match member {
                Ok(member) => self.member(member, depth)?,
                Err(error) => {
                    let path = error.problem().map_or_else(String::new, |problem| problem.path);
                    let name = lines::shown(path.rsplit('/').next().unwrap_or_default(), usize::MAX);
                    let line = format!("{}{name}  cannot be read: {}", "  ".repeat(depth), error.detail());
                    self.lines.push(vec![line]);
                }
            }
        }
        Ok(())
    }

    fn member(&mut self, member: &Member, depth: usize) -> anyhow::Result<()> {
        let indent = "  ".repeat(depth);
        let name = lines::shown(&member.name, usize::MAX);
        let Member { kind, entry, .. } = member;
        if entry.kind() == EntryKind::Link {
            let target = entry.link_target()?;
            let dangles = if *kind == MemberKind::Link { " (leads nowhere)" } else { "" };
            let target = lines::shown(&target.to_string_lossy(), usize::MAX);
            self.lines.push(vec![format!("{indent}{name} -> {target}{dangles}")]);
            return Ok(());
        }
        if *kind == MemberKind::Group {
            self.lines.push(vec![format!("{indent}{name}/")]);
            self.attributes(entry, depth + 1);
            return self.group(entry, depth + 1);
        }
        let info = entry.item_info()?.unwrap_or_default();
        let dtype = info.dtype.as_ref().map(ElementType::name);
        let dtype = dtype.or(info.stored_type.map(Cow::Borrowed)).unwrap_or_else(|| match kind {
            MemberKind::Lines | MemberKind::Text => "text".into(),
            _ => "bytes".into(),
        });
        let axes = |axes: &[u64]| {
            let axes: Vec<String> = axes.iter().map(u64::to_string).collect();
            format!("[{}]", axes.join(","))
        };
        let chunks = info.chunks.as_deref().map_or_else(String::new, |chunks| format!("chunks {}", axes(chunks)));
        let shape = info.shape.as_deref().map_or_else(String::new, axes);
        let codec = match *kind {
            // What cannot be read has one byte, which says why.
            MemberKind::Bytes if info.shape.is_none() => match entry.read_range(0, 1) {
                Err(error) => format!("damaged: {}", error.detail()),
                Ok(_) => String::new(),
            },
            _ => info.codec.map_or_else(String::new, Cow::into_owned),
        };
        self.lines.push(vec![format!("{indent}{name}"), dtype.into_owned(), shape, chunks, codec]);
        self.attributes(entry, depth + 1);
        Ok(())
    }

    /// Adds a line for each attribute of a group or array.
    fn attributes(&mut self, entry: &Entry, depth: usize) {
        if !self.has_attributes {
            return;
        }
        let indent = "  ".repeat(depth);
        let found = match entry.attributes() {
            Ok(found) => found.unwrap_or_default(),
            Err(error) => {
                return self.lines.push(vec![format!("{indent}@ cannot be read: {}", error.detail())]);
            }
        };
        let values: Map<String, Value> = serde_json::from_slice(&found).unwrap_or_default();
        for (name, value) in values {
            let (name, value) = (lines::shown(&name, VALUE_LENGTH), lines::shown(&value.to_string(), VALUE_LENGTH));
            self.lines.push(vec![format!("{indent}@{name} = {value}")]);
        }
    }
}
