//! The stored arrays of a container as a table: type, shape, elements, size. The address chooses the order, a filter and
//! the page, so nothing but the rows of one page is made.

use std::{borrow::Cow, cmp::Ordering, ffi::OsStr};

use super::{
    elements::shape_text,
    folder::List,
    html::{self, Html},
    query::Query,
};
use crate::{
    serve::http::paths,
    tree::overview::{Contents, Item, Overview},
    volume::Entry,
};

/// Rows of a page.
const ROWS: usize = 200;

/// The columns, which can be sorted by: their names in addresses, and what their heads show.
const COLUMNS: [(&str, &str); 5] =
    [("name", "Name"), ("type", "Type"), ("shape", "Shape"), ("elements", "Elements"), ("size", "Size")];

/// Returns whether a column has numbers. The largest come first when it is chosen.
fn is_number(column: &str) -> bool {
    matches!(column, "elements" | "size")
}

fn compare(column: &str, a: &Item, b: &Item) -> Ordering {
    match column {
        "name" => a.path.cmp(&b.path),
        "type" => type_name(a).cmp(&type_name(b)),
        "shape" => a.info.shape.cmp(&b.info.shape),
        "elements" => elements(a).cmp(&elements(b)),
        _ => size(a).cmp(&size(b)),
    }
}

/// The name of a column, and whether the largest come first.
type Order = (&'static str, bool);

/// Returns the value of `sort` that stands for an order.
fn sort_value((column, is_down): Order) -> String {
    format!("{}{column}", if is_down { "-" } else { "" })
}

/// Which items are shown, in which order.
#[derive(Debug)]
struct Wanted {
    filter: String,
    /// `None` for the container's own order.
    order: Option<Order>,
    /// Counts from 1.
    page: u64,
}

impl Wanted {
    fn of(query: &Query) -> Self {
        let named = query.text("sort").unwrap_or_default();
        let (named, is_down) = named.strip_prefix('-').map_or((named, false), |name| (name, true));
        let column = COLUMNS.iter().find(|(name, _)| *name == named);
        Self {
            filter: query.text("q").unwrap_or_default().to_lowercase(),
            order: column.map(|(column, _)| (*column, is_down)),
            page: query.number("page").unwrap_or(1),
        }
    }

    fn matches(&self, item: &Item) -> bool {
        self.filter.is_empty()
            || item.path.to_lowercase().contains(&self.filter)
            || type_name(item).is_some_and(|name| name.to_lowercase() == self.filter)
    }

    /// Returns the items that match, in order.
    fn chosen<'a>(&self, items: &'a [Item]) -> Vec<&'a Item> {
        let mut chosen: Vec<&Item> = items.iter().filter(|item| self.matches(item)).collect();
        if let Some((column, is_down)) = self.order {
            // A stable order: equal ones stay in the container's.
            chosen.sort_by(|a, b| if is_down { compare(column, b, a) } else { compare(column, a, b) });
        }
        chosen
    }

    /// Returns the address of a page in an order.
    fn address(&self, order: Option<Order>, page: u64) -> String {
        let mut address = "?view=arrays".to_owned();
        if let Some(order) = order {
            address += &format!("&sort={}", sort_value(order));
        }
        if !self.filter.is_empty() {
            address += &format!("&q={}", paths::encode_name(OsStr::new(&self.filter)));
        }
        if page > 1 {
            address += &format!("&page={page}");
        }
        address
    }
}

/// What the page of a container's root shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// The table of arrays, with a link to the files.
    Arrays,
    /// The files, with a link to the table of arrays.
    Files,
}

/// Returns what the root of a container shows, if it has arrays to list: what the query asks for, or the arrays if most
/// items lie in the root. Folders are easier to walk through than a long list.
pub(super) fn view(overview: &Overview, query: &Query) -> Option<View> {
    let Contents::Items { items, .. } = &overview.contents else { return None };
    items.iter().filter(|item| item.info.shape.is_some()).nth(1)?;
    Some(match query.text("view") {
        Some("arrays") => View::Arrays,
        Some("files") => View::Files,
        _ if items.iter().filter(|item| item.path.contains('/')).count() > items.len() / 2 => View::Files,
        _ => View::Arrays,
    })
}

/// Writes links to the two views of a container's root.
pub(super) fn write_views(html: &mut Html, view: View) {
    html.raw(r#"<nav class="tabs" aria-label="Views">"#);
    for (this, label, address) in [(View::Arrays, "Arrays", "?view=arrays"), (View::Files, "Files", "?view=files")] {
        html.fill(r#"<a href="{}""#, &[address]).raw(if this == view { r#" aria-current="page""# } else { "" });
        html.fill(">{}</a>", &[label]);
    }
    html.raw("</nav>");
}

/// Writes the page of the table that the query asks for.
pub(super) fn write(html: &mut Html, container: &Entry, overview: &Overview, query: &Query) {
    let Contents::Items { items, .. } = &overview.contents else { return };
    let wanted = Wanted::of(query);
    let chosen = wanted.chosen(items);
    let pages = chosen.len().div_ceil(ROWS).max(1) as u64;
    let page = wanted.page.clamp(1, pages);
    let before = (page - 1) as usize * ROWS;
    let shown = chosen.get(before..chosen.len().min(before + ROWS)).unwrap_or_default();
    let order = wanted.order.map(|order| ("sort", sort_value(order)));
    let list = List {
        id: "arrays",
        title: "Arrays",
        before: before as u64,
        shown: shown.len() as u64,
        total: Some(chosen.len() as u64),
        filter: &wanted.filter,
        is_long: chosen.len() > ROWS,
        hidden: [("view", "arrays".to_owned())].into_iter().chain(order).collect(),
    };
    if !list.begin(html) {
        return;
    }
    html.raw(r#"<table class="list of-files of-arrays"><thead><tr>"#);
    for (column, label) in COLUMNS {
        write_head(html, &wanted, column, label);
    }
    html.raw("</tr></thead><tbody>");
    for item in shown {
        write_row(html, container, item);
    }
    html.raw("</tbody></table>");
    html.pages("Pages", (page, Some(pages)), page < pages, |page| wanted.address(wanted.order, page));
    html.raw("</section>");
}

fn write_head(html: &mut Html, wanted: &Wanted, column: &'static str, label: &'static str) {
    let current = wanted.order.filter(|(sorted, _)| *sorted == column).map(|(_, is_down)| is_down);
    let is_number = is_number(column);
    let (sorted, arrow) = match current {
        Some(true) => (r#" aria-sort="descending""#, r#" <span aria-hidden="true">↓</span>"#),
        Some(false) => (r#" aria-sort="ascending""#, r#" <span aria-hidden="true">↑</span>"#),
        None => ("", ""),
    };
    // The second choice turns the order, the third gives the container's own back.
    let next = match current {
        None => Some((column, is_number)),
        Some(is_down) if is_down == is_number => Some((column, !is_down)),
        Some(_) => None,
    };
    html.raw(r#"<th scope="col""#).raw(if is_number { r#" class="num""# } else { "" }).raw(sorted);
    html.fill(r#"><a href="{}">{}"#, &[&wanted.address(next, 1), label]).raw(arrow).raw("</a></th>");
}

fn write_row(html: &mut Html, container: &Entry, item: &Item) {
    let path = container.path().join(&item.path);
    let shown = item.numbers.as_ref().map_or_else(|| path.clone(), |numbers| container.path().join(numbers));
    html.raw(r#"<tr><td class="name">"#).icon("array").link("/-/view/", &shown).name(&item.path).raw("</a>");
    if item.numbers.is_some() {
        html.raw(" ").link("/-/view/", &path).raw(r#"<span class="badge">blocks</span></a>"#);
    }
    if let Some(reason) = &item.error {
        html.damaged(reason);
    }
    html.raw(r#"</td><td class="holds">"#);
    if let Some(name) = type_name(item) {
        html.fill(r#"<span class="dtype">{}</span>"#, &[&name]);
    }
    html.raw(if item.info.inferred { html::GUESS } else { "" });
    let shape = item.info.shape.as_deref().map(shape_text).unwrap_or_default();
    let [count, bytes] = [elements(item).map(html::grouped), size(item).map(html::size)].map(Option::unwrap_or_default);
    let markup =
        r#"</td><td class="holds">{}</td><td class="num" data-unit="elements">{}</td><td class="num">{}</td></tr>"#;
    html.fill(markup, &[&shape, &count, &bytes]);
}

fn type_name(item: &Item) -> Option<Cow<'static, str>> {
    item.info.stored_type.map(Cow::Borrowed).or_else(|| Some(item.info.dtype.as_ref()?.name()))
}

fn elements(item: &Item) -> Option<u64> {
    item.info.shape.as_ref()?.iter().try_fold(1u64, |all, axis| all.checked_mul(*axis))
}

fn size(item: &Item) -> Option<u64> {
    item.size.or(item.info.stored_size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{format::DType, tree::ItemInfo};

    fn item(path: &str, dtype: DType, shape: &[u64]) -> Item {
        let info = ItemInfo { dtype: Some(dtype.into()), shape: Some(shape.to_vec()), ..ItemInfo::default() };
        Item { path: path.into(), size: Some(dtype.size() * shape.iter().product::<u64>()), info, ..Item::default() }
    }

    fn paths(query: &str, items: &[Item]) -> Vec<String> {
        Wanted::of(&Query::parse(query)).chosen(items).iter().map(|item| item.path.clone()).collect()
    }

    #[test]
    fn orders_and_filters() {
        let items = [item("b", DType::F32, &[4, 4]), item("a", DType::U8, &[40]), item("C", DType::F32, &[2])];
        assert_eq!(paths("", &items), ["b", "a", "C"]);
        assert_eq!(paths("sort=name", &items), ["C", "a", "b"]);
        assert_eq!(paths("sort=-elements", &items), ["a", "b", "C"]);
        assert_eq!(paths("sort=-size", &items), ["b", "a", "C"]);
        // Equal ones stay in the container's order, whichever way the others go.
        assert_eq!(paths("sort=type", &items), ["b", "C", "a"]);
        assert_eq!(paths("sort=-type", &items), ["a", "b", "C"]);
        assert_eq!(paths("q=c", &items), ["C"]);
        assert_eq!(paths("q=F32&sort=nonsense", &items), ["b", "C"]);
    }

    #[test]
    fn many_dimensions_have_no_count_that_is_too_large() {
        assert_eq!(elements(&item("x", DType::U8, &[0, 5])), Some(0));
        let huge = ItemInfo { shape: Some(vec![1 << 40, 1 << 40]), ..ItemInfo::default() };
        assert_eq!(elements(&Item { info: huge, ..Item::default() }), None);
    }
}
