//! Listings of folders, in pages.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    ops::ControlFlow,
};

use super::{
    elements::shape_text,
    html::{self, Html},
    query::Query,
};
use crate::{
    serve::http::paths,
    vfs::FileKind,
    volume::{Entry, Error, Listed},
};

/// Rows of a page.
const ROWS: u64 = 200;
/// Damaged entries of a folder that get a mark.
const DAMAGED: usize = 1000;
/// Most names that are counted in a folder of a container. Folders of SOURCE are not counted, because that would look
/// at each file.
const COUNTED: u64 = 2_000_000;

/// A page of a listing.
pub(super) struct Page {
    rows: Vec<Listed>,
    /// The number of the page, from 0, and how many entries come before it.
    number: u64,
    before: u64,
    /// Entries in all, if that is known.
    total: Option<u64>,
    has_more: bool,
    filter: String,
    /// The view of a container's root that it belongs to: part of the addresses of the other pages.
    view: Option<&'static str>,
}

/// Returns the first entries of a folder.
///
/// # Errors
/// Those of listing it.
pub(super) fn first_rows(folder: &Entry, count: usize) -> Result<Vec<Listed>, Error> {
    read_rows(folder, 0, count, "")
}

/// Returns the page of a folder that the query asks for (`page`, counted from 1), of names that contain its `q`. If there
/// are fewer pages, it is the last one.
///
/// # Errors
/// Those of listing the folder.
pub(super) fn page(folder: &Entry, query: &Query) -> Result<Page, Error> {
    let filter = query.text("q").unwrap_or_default().to_lowercase();
    let asked = (query.number("page").unwrap_or(1).max(1) - 1).saturating_mul(ROWS);
    let end = asked.saturating_add(ROWS);
    let is_counted = folder.is_inside();
    let (mut seen, mut position, mut before, mut start, mut has_more) = (0, 2, 0, None, false);
    folder.positions(&mut |name, next| {
        if matches(name, &filter) {
            if seen <= asked && seen % ROWS == 0 {
                (before, start) = (seen, Some(position));
            }
            has_more = seen >= end;
            seen += 1;
            if (has_more && !is_counted) || seen > COUNTED.max(end) {
                return ControlFlow::Break(());
            }
        }
        position = next;
        ControlFlow::Continue(())
    })?;
    let rows = match start {
        Some(start) => read_rows(folder, start, ROWS as usize, &filter)?,
        None => Vec::new(),
    };
    let total = Some(seen).filter(|&seen| (is_counted || !has_more) && seen <= COUNTED.max(end));
    let view = query.text("view").filter(|view| *view == "files").map(|_| "files");
    Ok(Page { rows, number: before / ROWS, before, total, has_more, filter, view })
}

fn matches(name: &OsStr, filter: &str) -> bool {
    filter.is_empty() || name.to_string_lossy().to_lowercase().contains(filter)
}

/// Entries that are listed at once.
const BATCH: usize = 1024;

/// Returns up to `count` entries from a position on whose names contain `filter`.
fn read_rows(folder: &Entry, from: u64, count: usize, filter: &str) -> Result<Vec<Listed>, Error> {
    let (mut rows, mut next) = (Vec::new(), Some(from));
    while let Some(from) = next.filter(|_| rows.len() < count) {
        let (entries, then) = folder.list(from, count.min(BATCH));
        let is_shown =
            |listed: &Listed| matches(listed.name(), filter) && listed.attr.as_ref().is_none_or(paths::is_readable);
        let left = count - rows.len();
        rows.extend(entries.into_iter().filter(is_shown).take(left));
        next = then?;
    }
    Ok(rows)
}

/// Returns what is known to be wrong with the entries of a folder, by their names.
pub(super) fn damage(folder: &Entry) -> HashMap<OsString, String> {
    let (file, inside) = folder.place();
    let here = if folder.is_inside() { file.join(inside) } else { folder.path().to_owned() };
    let mut by_name = HashMap::new();
    folder.vfs().problems.each(&mut |problem| {
        let there = problem.container.join(&problem.path);
        if let Some(name) = there.strip_prefix(&here).ok().and_then(|below| below.components().next())
            && !by_name.contains_key(name.as_os_str())
        {
            by_name.insert(name.as_os_str().to_owned(), problem.detail());
        }
        if by_name.len() < DAMAGED { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    by_name
}

/// Writes the listing as a table, with links to its other pages.
pub(super) fn write(html: &mut Html, folder: &Entry, page: &Page, damage: &HashMap<OsString, String>) {
    let list = List {
        id: "files",
        title: "Files",
        before: page.before,
        shown: page.rows.len() as u64,
        total: page.total,
        filter: &page.filter,
        is_long: page.total.is_none_or(|total| total > ROWS),
        hidden: page.view.map(|view| ("view", view.to_owned())).into_iter().collect(),
    };
    if !list.begin(html) {
        return;
    }
    html.raw(r#"<table class="list of-files"><thead><tr><th scope="col">Name</th><th scope="col">Holds</th>"#);
    html.raw(r#"<th scope="col" class="num">Size</th></tr></thead><tbody>"#);
    for row in &page.rows {
        write_row(html, folder, row, damage.get(row.name()));
    }
    html.raw("</tbody></table>");
    page.write_links(html);
    html.raw("</section>");
}

/// What stands around the rows of a list.
pub(super) struct List<'a> {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// Rows before those that are shown, how many are shown, and how many there are, if that is known.
    pub(super) before: u64,
    pub(super) shown: u64,
    pub(super) total: Option<u64>,
    pub(super) filter: &'a str,
    /// Whether the server filters the list. A short one is filtered while its reader types.
    pub(super) is_long: bool,
    /// What the form of the filter sends besides.
    pub(super) hidden: Vec<(&'static str, String)>,
}

impl List<'_> {
    /// Begins a section with the title, which rows are shown of how many, and the field that filters. Without rows the
    /// section is whole. Returns whether there are any.
    pub(super) fn begin(&self, html: &mut Html) -> bool {
        let Self { id, title, before, shown, .. } = *self;
        let (first, last) = (html::grouped(before + 1), html::grouped(before + shown));
        let count = match self.total {
            Some(1) if shown == 1 => "1 entry".into(),
            Some(total) if total == shown => format!("{} entries", html::grouped(total)),
            Some(total) => format!("{first}–{last} of {}", html::grouped(total)),
            None => format!("{first}–{last} of more"),
        };
        let (hint, is_long) =
            if self.is_long { ("Filter names, then Enter", "true") } else { ("Filter names", "false") };
        let markup = include_str!("assets/list.html").trim_end();
        html.fill(markup, &[id, id, title, &count, hint, self.filter, is_long]);
        for (name, value) in &self.hidden {
            html.fill(r#"<input type="hidden" name="{}" value="{}">"#, &[name, value]);
        }
        html.raw("</form></div>");
        if shown == 0 {
            let reason = if self.filter.is_empty() { "This folder is empty." } else { "No name holds this text." };
            html.fill(r#"<p class="empty">{}</p></section>"#, &[reason]);
        }
        shown > 0
    }
}

/// Writes a row with what is known without decoding.
fn write_row(html: &mut Html, folder: &Entry, row: &Listed, damage: Option<&String>) {
    let (path, is_container) = (row.path(), row.is_container());
    let size = row.attr.as_ref().filter(|attr| attr.kind == FileKind::File).map(|attr| attr.size);
    // If the size is not known yet, neither is the shape.
    let info = size.and_then(|_| row.item_info()).unwrap_or_default();
    let icon = match (row.kind, is_container) {
        (FileKind::Folder, true) => "container",
        (FileKind::Folder, false) => "folder",
        (FileKind::Link, _) => "link",
        (FileKind::File, _) if info.dtype.is_some() => "array",
        (FileKind::File, _) => super::document::kind(path).name(),
    };
    // Links of containers are followed, those of SOURCE are not.
    let is_followed = row.kind == FileKind::Link && folder.is_inside();
    html.raw(r#"<tr><td class="name">"#).icon(icon);
    match row.kind {
        FileKind::Folder => html.fill(r#"<a href="/files/{}/">"#, &[&paths::encode(path)]),
        FileKind::File => html.link("/-/view/", path),
        FileKind::Link if is_followed => html.link("/files/", path),
        FileKind::Link => html.raw(r#"<span class="dead">"#),
    };
    html.name(&row.name().to_string_lossy());
    html.raw(if row.kind == FileKind::Link && !is_followed { "</span>" } else { "</a>" });
    if let Some(reason) = damage {
        html.damaged(reason);
    }
    match is_container {
        true => html.fill(r#"</td><td class="holds" data-summary="/-/api/summary/{}">"#, &[&paths::encode(path)]),
        false => html.raw(r#"</td><td class="holds">"#),
    };
    if let (Some(dtype), Some(shape)) = (&info.dtype, &info.shape) {
        html.fill(r#"<span class="dtype">{}</span> {}"#, &[&dtype.name(), &shape_text(shape)]);
        if info.inferred {
            html.raw(html::GUESS);
        }
    } else if row.kind == FileKind::Link {
        html.raw(if is_followed { "a link" } else { "a link, not followed" });
    }
    html.fill(r#"</td><td class="num">{}</td></tr>"#, &[&size.map(html::size).unwrap_or_default()]);
}

impl Page {
    fn write_links(&self, html: &mut Html) {
        let address = |page: u64| {
            let view = self.view.map(|view| format!("&view={view}")).unwrap_or_default();
            let filter = match &*self.filter {
                "" => String::new(),
                filter => format!("&q={}", paths::encode_name(OsStr::new(filter))),
            };
            format!("?page={page}{view}{filter}")
        };
        let pages = self.total.map(|total| total.div_ceil(ROWS));
        html.pages("Pages", (self.number + 1, pages), self.has_more, address);
    }
}
