//! The answer to a PROPFIND (RFC 4918, 14.16): properties of one file or folder after another.

use quick_xml::escape::escape;

use super::{
    Refusal, paths,
    propfind::{KNOWN, Property, Wanted, is_character},
};
use crate::{serve::http::types, volume::Entry};

/// Text before all responses.
pub(super) const BEGIN: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n";
/// Text after all responses.
pub(super) const END: &str = "</D:multistatus>\n";
/// The body of a refusal to list everything below a folder (RFC 4918, 9.1.1).
pub(super) const FINITE_DEPTH: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
                                       <D:error xmlns:D=\"DAV:\"><D:propfind-finite-depth/></D:error>\n";

/// Writes responses, each with what a client asked for.
#[derive(Debug)]
pub(super) struct Writer {
    known: Vec<&'static str>,
    with_values: bool,
    /// Whether properties that an entry does not have are named, with status 404.
    tells_missing: bool,
    /// Properties that no entry has, as elements.
    unknown: String,
}

impl Writer {
    pub(super) fn new(wanted: Wanted) -> Self {
        let with_values = wanted != Wanted::Names;
        let Wanted::Some(properties) = wanted else {
            return Self { known: KNOWN.to_vec(), with_values, tells_missing: false, unknown: String::new() };
        };
        let (mut known, mut unknown) = (Vec::new(), String::new());
        for property in properties {
            match property {
                Property::Known(property) => known.push(property),
                Property::Unknown { namespace, name } => {
                    unknown += &match namespace.is_empty() {
                        true => format!("<{name}/>"),
                        false => format!("<x:{name} xmlns:x=\"{}\"/>", escaped(&namespace)),
                    };
                }
            }
        }
        Self { known, with_values, tells_missing: true, unknown }
    }

    /// Returns the response for an entry.
    ///
    /// # Errors
    /// [`Refusal`] if the file has changed.
    pub(super) fn response(&self, entry: &Entry) -> Result<String, Refusal> {
        let tag = entry.tag()?;
        let (mut found, mut missing) = (String::new(), String::new());
        for name in &self.known {
            match value(name, entry, tag) {
                None => missing += &format!("<D:{name}/>"),
                Some(value) if value.is_empty() || !self.with_values => found += &format!("<D:{name}/>"),
                Some(value) => found += &format!("<D:{name}>{value}</D:{name}>"),
            }
        }
        missing.push_str(&self.unknown);
        let tells_missing = self.tells_missing && !missing.is_empty();
        let part = |is_there: bool, properties: &str, status: &str| match is_there {
            true => {
                let status = format!("<D:status>HTTP/1.1 {status}</D:status>");
                format!("<D:propstat><D:prop>{properties}</D:prop>{status}</D:propstat>")
            }
            false => String::new(),
        };
        let address = paths::address_below(super::PREFIX, entry.path(), entry.is_folder());
        let found = part(!found.is_empty() || !tells_missing, &found, "200 OK");
        let missing = part(tells_missing, &missing, "404 Not Found");
        Ok(format!("<D:response><D:href>{address}</D:href>{found}{missing}</D:response>\n"))
    }
}

/// Returns the value of a property, as XML; `None` if the entry does not have it.
fn value(property: &str, entry: &Entry, tag: Option<u128>) -> Option<String> {
    Some(match property {
        "getcontentlength" | "getcontenttype" if entry.is_folder() => return None,
        "resourcetype" if entry.is_folder() => "<D:collection/>".into(),
        "displayname" => escaped(&entry.name().to_string_lossy()),
        "getcontentlength" => entry.size().to_string(),
        "getcontenttype" => types::media_type(entry.name()).0.into(),
        "getetag" => format!("\"{:032x}\"", tag?),
        "getlastmodified" => httpdate::fmt_http_date(super::files::whole_seconds(entry.modified())),
        // There are no locks.
        _ => String::new(),
    })
}

/// Returns text, or the value of an attribute, as XML. Characters that XML does not have are shown as U+FFFD.
fn escaped(text: &str) -> String {
    let shown: String = text.chars().map(|c| if is_character(c) { c } else { char::REPLACEMENT_CHARACTER }).collect();
    // Readers turn these into spaces, or into other line breaks, unless they are escaped.
    escape(shown).replace('\t', "&#9;").replace('\n', "&#10;").replace('\r', "&#13;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::Volume;

    fn written(wanted: Wanted, path: &str) -> String {
        Writer::new(wanted).response(&Volume::open("fixtures").unwrap().get(path).unwrap()).unwrap()
    }

    #[test]
    fn what_is_there_and_what_is_not() {
        let unknown = Property::Unknown { namespace: "a\"<&".into(), name: "b".into() };
        let asked = || Wanted::Some(vec![Property::Known("getcontentlength"), unknown.clone()]);
        let size = std::fs::metadata("fixtures/notes.txt").unwrap().len();
        assert_eq!(
            written(asked(), "notes.txt"),
            format!(
                "<D:response><D:href>/dav/notes.txt</D:href><D:propstat><D:prop><D:getcontentlength>{size}\
                 </D:getcontentlength></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat><D:propstat><D:prop>\
                 <x:b xmlns:x=\"a&quot;&lt;&amp;\"/></D:prop><D:status>HTTP/1.1 404 Not Found</D:status></D:propstat>\
                 </D:response>\n"
            )
        );
        // Folders have no length: there is nothing with 200.
        let folder = written(asked(), "ep_001.wshard");
        assert!(folder.contains("<D:getcontentlength/><x:b") && !folder.contains("200 OK"), "{folder}");
        assert!(written(Wanted::All, "ep_001.wshard").contains("<D:resourcetype><D:collection/></D:resourcetype>"));
        let names = written(Wanted::Names, "notes.txt");
        assert!(names.contains("<D:getcontentlength/>") && !names.contains("404"), "{names}");
        assert!(written(Wanted::Some(Vec::new()), "notes.txt").contains("<D:prop></D:prop><D:status>HTTP/1.1 200"));
    }

    #[test]
    fn text_is_never_markup() {
        assert_eq!(escaped("<a&\"'>\u{1}\u{ffff}\n"), "&lt;a&amp;&quot;&apos;&gt;\u{fffd}\u{fffd}&#10;");
    }
}
