//! The query of a URL: what follows the `?`.

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
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let escaped = || {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| u8::from_str_radix(digits, 16).ok())?
        };
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => match escaped() {
                Some(byte) => {
                    rest = &after[2..];
                    byte
                }
                None => b'%',
            },
            byte => byte,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
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
