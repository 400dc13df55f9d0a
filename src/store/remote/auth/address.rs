//! Addresses of servers as users and variables give them. They may hold secrets, which are never shown.

use std::fmt;

use reqwest::Url;

use crate::store::remote::object::FetchError;

/// The address of a server. It is shown only if it passes its check: otherwise any part of it may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Address(Box<str>);

impl Address {
    /// Returns the address to which paths can be appended: `http` or `https`, a host, perhaps a port and a path,
    /// without `/` at its end. `from` says who gave it.
    ///
    /// # Errors
    /// What is wrong with it, without repeating it.
    pub(crate) fn checked(&self, from: &str) -> Result<String, FetchError> {
        let wrong = || {
            let text = "not an address of a server; write http://HOST:PORT, without a login";
            FetchError::Failed(format!("{from}: {text}"))
        };
        let url = Url::parse(self.0.trim()).map_err(|_| wrong())?;
        if !is_of_web(&url) || url.query().is_some() || url.fragment().is_some() {
            return Err(wrong());
        }
        Ok(url.as_str().trim_end_matches('/').to_owned())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.checked("").unwrap_or_else(|_| "…".into()))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Keeps an address as it was given.
impl From<String> for Address {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

/// Returns whether requests can name a URL, and it is one of a web server without a login.
pub(crate) fn is_of_web(url: &Url) -> bool {
    let has_login = !url.username().is_empty() || url.password().is_some();
    matches!(url.scheme(), "http" | "https") && !has_login && url.as_str().parse::<http::Uri>().is_ok()
}

/// Returns the host and port of a web server, as requests name them; `None` if no request can name it.
pub(crate) fn host(scheme: &str, text: &str) -> Option<String> {
    let url = Url::parse(&format!("{scheme}://{text}/")).ok()?;
    let is_host = is_of_web(&url) && url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    let host = url.host_str().filter(|_| is_host)?;
    Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

/// Removes possible secrets in URLs from a text of a library or server.
pub(crate) fn hide(text: &str) -> String {
    let is_end = |character: char| character.is_whitespace() || matches!(character, '"' | '\'' | '`' | '<' | '>');
    let mut shown = String::with_capacity(text.len());
    for word in text.split_inclusive(is_end) {
        match word.split_once("://") {
            Some((scheme, rest)) if rest.contains(['@', '?']) => {
                shown.push_str(scheme);
                shown.push_str("://…");
                shown.extend(word.chars().next_back().filter(|last| is_end(*last)));
            }
            _ => shown.push_str(word),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_and_never_repeat_a_secret() {
        let checked = |text: &str| Address::from(text.to_owned()).checked("--endpoint-url");
        assert_eq!(checked("http://127.0.0.1:8333/").as_deref(), Ok("http://127.0.0.1:8333"));
        assert_eq!(checked("https://Host/a/b//").as_deref(), Ok("https://host/a/b"));
        for bad in [
            "geheim",
            "http://joe:geheim@host",
            "http://geheim@host",
            "http://host/?sig=geheim",
            "http://joe:ge/heim@host",
            "http://host:99999/geheim",
            "http://xn--/geheim",
            "ftp://host/geheim",
            "http://joe:geheim@",
            "http://[geheim/",
        ] {
            let error = checked(bad).unwrap_err().to_string();
            assert!(!error.contains("heim") && error.starts_with("--endpoint-url: "), "{bad}: {error}");
            assert!(!format!("{0} {0:?}", Address::from(bad.to_owned())).contains("heim"), "{bad}");
        }
    }

    #[test]
    fn hosts() {
        assert_eq!(host("https", "Host:8443").as_deref(), Some("host:8443"));
        assert_eq!(host("http", "[::1]:80").as_deref(), Some("[::1]"));
        for bad in ["h:99999", "a:b", "xn--", "", "a b", "a@b", "a?b", "[::1"] {
            assert_eq!(host("http", bad), None, "{bad}");
        }
    }

    #[test]
    fn texts_of_others() {
        let text = "GET http://joe:geheim@h/x?y failed: 'https://h/?sig=geheim' of http://h/x";
        assert_eq!(hide(text), "GET http://… failed: 'https://…' of http://h/x");
    }
}
