//! The answers of listings in XML: items with leaves of text, as S3, Azure and WebDAV all write them.

use quick_xml::{
    Reader,
    escape::resolve_predefined_entity,
    events::{BytesRef, Event},
};

use super::time;
use crate::store::remote::backends::backend::{self, State};

/// Most levels of nested elements.
const DEPTH: usize = 32;
/// Leaves of one item, and of what stands outside of all.
const LEAVES: usize = 1000;

/// The leaves of one item, by local name: a name that comes twice keeps its first text.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    leaves: Vec<(String, String)>,
}

impl Item {
    /// The text of a leaf.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.leaves.iter().find(|(leaf, _)| leaf == name).map(|(_, text)| text.as_str())
    }

    /// The state of an object, by the names of the leaves with its size, entity tag and time.
    pub(crate) fn state(&self, [size, etag, modified]: [&str; 3]) -> State {
        State {
            size: self.get(size).and_then(backend::size),
            etag: self.get(etag).map_or("", backend::etag).into(),
            modified: self.get(modified).and_then(time::parse),
        }
    }

    fn push(&mut self, name: String, text: String) -> Result<(), String> {
        if self.leaves.len() >= LEAVES {
            return Err("the answer says too much of one thing".into());
        }
        self.leaves.push((name, text));
        Ok(())
    }
}

/// Passes the items of a document to `take` as they are read, each with the name of its element. Returns the leaves
/// outside of all items.
///
/// # Errors
/// What is wrong with the document, or what `take` says.
pub(crate) fn items(
    document: &[u8],
    names: &[&'static str],
    take: &mut dyn FnMut(&'static str, &Item) -> Result<(), String>,
) -> Result<Item, String> {
    // A listing stays readable if one key is malformed.
    let text = String::from_utf8_lossy(document);
    let mut reader = Reader::from_str(&text);
    let mut rest = Item::default();
    // The element that an item began with, and how deep.
    let mut open: Vec<String> = Vec::new();
    let mut item: Option<(usize, &'static str, Item)> = None;
    let mut leaf = String::new();
    let broken = |error: &dyn std::fmt::Display| format!("the answer is not XML: {error}");
    loop {
        match reader.read_event().map_err(|e| broken(&e))? {
            Event::Start(element) => {
                let name = local(element.local_name().as_ref());
                if open.len() >= DEPTH {
                    return Err(broken(&"elements lie too deep"));
                }
                if item.is_none()
                    && let Some(known) = names.iter().find(|known| **known == name)
                {
                    item = Some((open.len(), known, Item::default()));
                }
                open.push(name);
                leaf.clear();
            }
            Event::Empty(element) => {
                let to = item.as_mut().map_or(&mut rest, |(_, _, item)| item);
                to.push(local(element.local_name().as_ref()), String::new())?;
            }
            Event::Text(text) => leaf.push_str(&text.decode().map_err(|e| broken(&e))?),
            Event::CData(text) => leaf.push_str(&text.decode().map_err(|e| broken(&e))?),
            Event::GeneralRef(reference) => {
                let name = reference.decode().map_err(|e| broken(&e))?;
                // Keys may have characters that XML does not allow.
                let otherwise = name.starts_with('#').then_some(char::REPLACEMENT_CHARACTER);
                let found = character(&name).or(otherwise);
                leaf.push(found.ok_or_else(|| broken(&"an unknown entity"))?);
            }
            Event::End(_) => {
                let Some(name) = open.pop() else { return Err(broken(&"an end without a beginning")) };
                match item.take() {
                    Some((depth, known, done)) if depth == open.len() => take(known, &done)?,
                    Some((depth, known, mut inner)) => {
                        inner.push(name, std::mem::take(&mut leaf))?;
                        item = Some((depth, known, inner));
                    }
                    None => rest.push(name, std::mem::take(&mut leaf))?,
                }
                leaf.clear();
            }
            Event::Eof if open.is_empty() => return Ok(rest),
            Event::Eof => return Err(broken(&"it is cut")),
            _ => {}
        }
    }
}

/// Returns the character that a reference stands for, without its `&` and `;`.
pub(crate) fn character(reference: &str) -> Option<char> {
    let known = resolve_predefined_entity(reference).and_then(|text| text.chars().next());
    known.or_else(|| BytesRef::new(reference).resolve_char_ref().ok()?)
}

/// Returns the text of the first leaf with this name, without parsing the document: a guess that [`items`] has to
/// confirm. `None` if there is none, or if its text is escaped.
pub(crate) fn early_leaf(document: &[u8], name: &str) -> Option<String> {
    let document = String::from_utf8_lossy(document);
    let (_, rest) = document.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once('<')?;
    (!text.is_empty() && !text.contains('&')).then(|| text.to_owned())
}

fn local(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_and_what_stands_beside_them() {
        let document =
            b"<?xml version='1.0'?><L xmlns:d='DAV:'><Next>a&amp;b&#10;</Next><C><Key>x&lt;y</Key><O><Key>no</Key></O>\
            </C><d:C><d:Key>z</d:Key><d:kind><d:folder/></d:kind></d:C></L>";
        let mut items = Vec::new();
        let rest = crate::store::remote::listing::xml::items(document, &["C"], &mut |kind, item| {
            items.push((kind, item.clone()));
            Ok(())
        });
        let rest = rest.unwrap();
        assert_eq!(rest.get("Next"), Some("a&b\n"));
        assert_eq!(items.len(), 2);
        assert_eq!(items[0].1.get("Key"), Some("x<y"));
        assert_eq!((items[1].1.get("Key"), items[1].1.get("folder")), (Some("z"), Some("")));
    }

    #[test]
    fn a_leaf_is_found_early() {
        let document = b"<L><C><Key>x</Key></C><Next>a+/=</Next><Other>a&amp;b</Other><None></None></L>";
        assert_eq!(early_leaf(document, "Next").as_deref(), Some("a+/="));
        for name in ["Other", "None", "Missing"] {
            assert_eq!(early_leaf(document, name), None);
        }
    }

    #[test]
    fn what_is_no_xml_is_an_error() {
        let (deep, wide) = ("<a>".repeat(100_000), format!("<L><C>{}</C></L>", "<a/>".repeat(100_000)));
        for bad in ["<L><C>", "<L>&unknown;</L>", "<L></M>", &deep, &wide] {
            assert!(items(bad.as_bytes(), &["C"], &mut |_, _| Ok(())).is_err(), "{}", &bad[..bad.len().min(20)]);
        }
        let odd = items(b"<L><K>a\xff&#0;b</K></L>", &[], &mut |_, _| Ok(())).unwrap();
        assert_eq!(odd.get("K"), Some("a\u{fffd}\u{fffd}b"));
    }
}
