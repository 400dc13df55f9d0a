//! The body of a PROPFIND (RFC 4918, 14.20): which properties a client asks for.
//!
//! It is read as a stream of events, so nested elements take no stack. Depth, elements and the bytes of their names are
//! bounded. Only XML's own entities are known.

use http::StatusCode;
use quick_xml::{
    NsReader,
    escape::unescape,
    events::{BytesStart, Event},
    name::ResolveResult,
};

use super::Refusal;
use crate::limits::{DAV_DEPTH, DAV_ELEMENTS, DAV_NAMES};

/// The namespace of the protocol's own names.
const DAV: &str = "DAV:";

/// What a client asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All properties with their values.
    All,
    /// The names of all properties.
    Names,
    /// These properties.
    Some(Vec<Property>),
}

/// A property of a file or folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Property {
    /// One of [`KNOWN`].
    Known(&'static str),
    /// A property that no entry has. `namespace` is empty if it has none.
    Unknown { namespace: String, name: String },
}

/// The properties that entries have, by their names in the namespace `DAV:`, in the order of answers.
pub(super) const KNOWN: [&str; 8] = [
    "resourcetype",
    "displayname",
    "getcontentlength",
    "getcontenttype",
    "getetag",
    "getlastmodified",
    "lockdiscovery",
    "supportedlock",
];

/// Parses a body. An empty one asks for all properties.
///
/// # Errors
/// [`Refusal`] with 400 for what is not a PROPFIND in XML, with 413 for one that exceeds a limit.
pub(super) fn parse(body: &[u8]) -> Result<Wanted, Refusal> {
    let text = std::str::from_utf8(body).map_err(|_| wrong("it is not UTF-8"))?;
    if text.trim().is_empty() {
        return Ok(Wanted::All);
    }
    let mut reader = NsReader::from_str(text);
    let mut asked = Asked::default();
    loop {
        let (namespace, event) = reader.read_resolved_event().map_err(|error| wrong(&error.to_string()))?;
        match event {
            Event::Start(element) => {
                asked.open(&namespace, &element)?;
            }
            Event::Empty(element) => {
                asked.open(&namespace, &element)?;
                asked.depth -= 1;
            }
            // The reader has compared its name with the start tag's.
            Event::End(_) => asked.depth = asked.depth.saturating_sub(1),
            Event::DocType(_) => return Err(wrong("it declares a document type")),
            Event::Eof => break,
            _ => {}
        }
    }
    if asked.depth > 0 {
        return Err(wrong("it is cut"));
    }
    asked.wanted.ok_or_else(|| wrong("it names no properties"))
}

/// What has been read so far.
#[derive(Default)]
struct Asked {
    depth: usize,
    elements: usize,
    /// Bytes of names and namespaces of properties.
    names: usize,
    /// Whether the reader is inside `prop`, whose children name properties.
    is_naming: bool,
    wanted: Option<Wanted>,
}

impl Asked {
    /// Handles the start of an element.
    fn open(&mut self, namespace: &ResolveResult<'_>, element: &BytesStart<'_>) -> Result<(), Refusal> {
        self.elements += 1;
        if self.elements > DAV_ELEMENTS || self.depth >= DAV_DEPTH {
            return Err(too_much());
        }
        let name = std::str::from_utf8(element.local_name().into_inner()).map_err(|_| wrong("a name is not UTF-8"))?;
        let namespace = match namespace {
            ResolveResult::Unbound => String::new(),
            ResolveResult::Bound(namespace) => {
                let text = std::str::from_utf8(namespace.0).map_err(|_| wrong("a namespace is not UTF-8"))?;
                unescape(text).map_err(|error| wrong(&error.to_string()))?.into_owned()
            }
            ResolveResult::Unknown(_) => return Err(wrong("a prefix has no namespace")),
        };
        match (self.depth, &*namespace, name) {
            (0, DAV, "propfind") if self.elements == 1 => {}
            (0, ..) => return Err(wrong("it is not one propfind element")),
            (1, DAV, "allprop") => self.ask(Wanted::All)?,
            (1, DAV, "propname") => self.ask(Wanted::Names)?,
            (1, DAV, "prop") => {
                self.ask(Wanted::Some(Vec::new()))?;
                self.is_naming = true;
            }
            // Other elements, such as `include` beside `allprop`, change nothing (RFC 4918, 17).
            (1, ..) => self.is_naming = false,
            (2, ..) if self.is_naming => self.name(namespace, name)?,
            _ => {}
        }
        self.depth += 1;
        Ok(())
    }

    fn ask(&mut self, wanted: Wanted) -> Result<(), Refusal> {
        self.is_naming = false;
        match self.wanted.replace(wanted) {
            None => Ok(()),
            Some(_) => Err(wrong("it asks for several things at once")),
        }
    }

    fn name(&mut self, namespace: String, name: &str) -> Result<(), Refusal> {
        self.names += namespace.len() + name.len();
        if self.names > DAV_NAMES {
            return Err(too_much());
        }
        // Names are copied into the answer.
        if !is_name(name) || !namespace.chars().all(is_character) {
            return Err(wrong("a name has characters that no name in XML has"));
        }
        let known = KNOWN.into_iter().find(|known| namespace == DAV && *known == name);
        let property = known.map_or_else(|| Property::Unknown { namespace, name: name.to_owned() }, Property::Known);
        if let Some(Wanted::Some(properties)) = &mut self.wanted
            && !properties.contains(&property)
        {
            properties.push(property);
        }
        Ok(())
    }
}

fn wrong(reason: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, format!("the body is not a PROPFIND: {reason}"))
}

fn too_much() -> Refusal {
    Refusal::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("the body has more than {DAV_ELEMENTS} elements, or they lie too deep, or their names are too long"),
    )
}

/// Returns whether a text is a name without a colon (XML 1.0, 2.3; Namespaces in XML 1.0, 3).
fn is_name(name: &str) -> bool {
    let is_start = |c: char| {
        matches!(c,
            'A'..='Z' | '_' | 'a'..='z' | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}'
            | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}' | '\u{200c}'..='\u{200d}' | '\u{2070}'..='\u{218f}'
            | '\u{2c00}'..='\u{2fef}' | '\u{3001}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}'
            | '\u{10000}'..='\u{effff}')
    };
    let is_inside = |c: char| {
        is_start(c) || matches!(c, '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}')
    };
    let mut characters = name.chars();
    characters.next().is_some_and(is_start) && characters.all(is_inside)
}

/// Returns whether XML 1.0 has this character (2.2).
pub(super) fn is_character(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown(namespace: &str, name: &str) -> Property {
        Property::Unknown { namespace: namespace.into(), name: name.into() }
    }

    fn status(body: &str) -> u16 {
        parse(body.as_bytes()).map_or_else(|refusal| refusal.status.as_u16(), |_| 200)
    }

    #[test]
    fn what_clients_ask_for() {
        assert_eq!(parse(b""), Ok(Wanted::All));
        assert_eq!(parse(b" \r\n"), Ok(Wanted::All));
        let all = br#"<?xml version="1.0"?><propfind xmlns="DAV:"><allprop/><include><x/></include></propfind>"#;
        assert_eq!(parse(all), Ok(Wanted::All));
        assert_eq!(parse(b"\xef\xbb\xbf<a:propfind xmlns:a='DAV:'><a:propname/></a:propfind>"), Ok(Wanted::Names));
        let body = r#"<D:propfind xmlns:D="DAV:" xmlns:A="urn:a&amp;b"><D:prop xmlns="urn:x"><D:getetag/>
            <D:getetag></D:getetag><A:é/><y><z/></y><D:quota/><n xmlns=""/></D:prop></D:propfind>"#;
        let properties = vec![
            Property::Known("getetag"),
            unknown("urn:a&b", "é"),
            unknown("urn:x", "y"),
            unknown("DAV:", "quota"),
            unknown("", "n"),
        ];
        assert_eq!(parse(body.as_bytes()), Ok(Wanted::Some(properties)));
        assert_eq!(parse(b"<propfind xmlns='DAV:'><prop/></propfind>"), Ok(Wanted::Some(Vec::new())));
    }

    #[test]
    fn what_is_no_propfind() {
        let inside = |text: &str| format!("<propfind xmlns='DAV:' xmlns:p='urn:p'>{text}</propfind>");
        let wrong = [
            "x".to_owned(),
            "<propfind/>".into(),
            "<propfind xmlns='DAV:'><prop>".into(),
            "<propfind xmlns='DAV:'></prop></propfind>".into(),
            "<!DOCTYPE p [<!ENTITY e 'x'>]><propfind xmlns='DAV:'><allprop/></propfind>".into(),
            "<propfind xmlns='DAV:'><allprop/></propfind><propfind xmlns='DAV:'><allprop/></propfind>".into(),
            inside(""),
            inside("<prop/><prop/>"),
            inside("<allprop/><propname/>"),
            inside("<prop><q:x/></prop>"),
            inside("<prop><p:a\"b/></prop>"),
            inside("<prop><p:1/></prop>"),
            inside("<prop><x xmlns='&unknown;'/></prop>"),
            inside("<prop><x xmlns='&#1;'/></prop>"),
        ];
        for body in wrong {
            assert_eq!(status(&body), 400, "{body}");
        }
        assert_eq!(parse(b"\xff").unwrap_err().status, StatusCode::BAD_REQUEST);
    }

    #[test]
    fn limits_of_a_body() {
        let named = |count: usize| {
            let names: String = (0..count).map(|number| format!("<p{number}/>")).collect();
            format!("<propfind xmlns='DAV:'><prop>{names}</prop></propfind>")
        };
        assert_eq!([DAV_ELEMENTS - 2, DAV_ELEMENTS - 1].map(|count| status(&named(count))), [200, 413]);
        let deep = |depth: usize| {
            let (open, close) = ("<a>".repeat(depth), "</a>".repeat(depth));
            format!("<propfind xmlns='DAV:'><prop>{open}{close}</prop></propfind>")
        };
        assert_eq!([DAV_DEPTH - 2, DAV_DEPTH - 1, 10_000].map(|depth| status(&deep(depth))), [200, 413, 413]);
        let long = |length: usize| format!("<propfind xmlns='DAV:'><prop><{}/></prop></propfind>", "a".repeat(length));
        assert_eq!([DAV_NAMES - 4, DAV_NAMES - 3].map(|length| status(&long(length))), [200, 413]);
        // The namespace counts for each name that lies in it.
        let wide = "x".repeat(DAV_NAMES / 4);
        let body = format!("<propfind xmlns='DAV:' xmlns:p='{wide}'><prop><p:a/><p:b/><p:c/><p:d/></prop></propfind>");
        assert_eq!(status(&body), 413);
    }
}
