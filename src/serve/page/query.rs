//! The query of a URL: what follows the `?`.

use percent_encoding::percent_decode_str;

/// Names and values, in order.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Takes `name=value&...` apart, as forms send it. What is not UTF-8 gets replacement characters.
    pub(super) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        });
        Self(pairs.collect())
    }

    /// The first value of a name.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// The first value of a name as a number.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }
}

fn decoded(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded() {
        let query = Query::parse("q=a+b%26%C3%B6&from=12&bad=%zz&&last%");
        assert_eq!(query.text("q"), Some("a b&ö"));
        assert_eq!(query.number("from"), Some(12));
        assert_eq!(query.text("bad"), Some("%zz"));
        assert_eq!(query.text("last%"), Some(""));
        assert_eq!(query.number("q"), None);
    }
}
