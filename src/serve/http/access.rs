//! Who may see the site: which names the server goes by, and the token that clients show.
//!
//! A page of some other site may have its name lead to this machine (DNS rebinding) and would then be read as ours, so
//! only names that are this server's own are answered. An address in numbers can't be made to resolve elsewhere.

use std::net::{IpAddr, SocketAddr};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header, request::Parts};
use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};

use crate::{
    escape::hex,
    serve::{Refusal, Response},
};

/// The parameter of an address that holds the token.
const PARAMETER: &str = "token";

/// Who may see the site.
#[derive(Clone)]
pub(crate) struct Access {
    /// Names that the server goes by, in lower case. Addresses in numbers are always accepted.
    names: Vec<String>,
    secret: Option<Secret>,
}

/// A token, kept as hashes: comparing hashes takes as long wherever they differ.
#[derive(Clone)]
struct Secret {
    token: [u8; 32],
    /// What the cookie holds: a hash made from the token.
    session: String,
    /// Name of the cookie. The port is part of it, because all ports of a machine share cookies.
    cookie: String,
    /// Whether a browser must send it over encrypted connections only.
    is_encrypted: bool,
}

impl Access {
    /// Returns access by these names, without a token.
    pub(crate) fn new(names: impl IntoIterator<Item = String>) -> Self {
        let own = rustix::system::uname().nodename().to_str().map(str::to_owned).unwrap_or_default();
        let names = names.into_iter().chain(["localhost".to_owned(), own]);
        Self {
            names: names.map(|name| name.to_ascii_lowercase()).filter(|name| !name.is_empty()).collect(),
            secret: None,
        }
    }

    /// Requires this token. The port of `address` becomes part of the cookie's name.
    pub(crate) fn with_token(mut self, token: &str, address: SocketAddr, is_encrypted: bool) -> Self {
        let session = Sha256::new().chain_update(b"shardfs session\0").chain_update(token).finalize();
        self.secret = Some(Secret {
            token: Sha256::digest(token).into(),
            session: hex(&session),
            cookie: format!("shardfs-{}", address.port()),
            is_encrypted,
        });
        self
    }

    /// Returns whether clients have to show a token.
    pub(in crate::serve) fn has_token(&self) -> bool {
        self.secret.is_some()
    }

    /// Lets a request in, or returns the answer that it gets instead.
    ///
    /// # Errors
    /// A refusal, or the answer that gives a browser a cookie for the token in the address.
    pub(in crate::serve) fn admit(&self, head: &Parts) -> Result<(), Box<Response>> {
        use axum::response::IntoResponse;
        self.check_name(head).map_err(|refusal| Box::new(refusal.into_response()))?;
        let Some(secret) = &self.secret else { return Ok(()) };
        if secret.is_shown(&head.headers) {
            return Ok(());
        }
        if let Some(rest) = secret.in_address(head) {
            // Programs may follow no redirect, and keep no history.
            if super::listing::wanted(&head.headers).is_some() {
                return Ok(());
            }
            if let Some(answer) = secret.exchange(rest) {
                return Err(Box::new(answer));
            }
        }
        let text = "a token is needed: open the link that shardfs printed, or send 'Authorization: Bearer TOKEN'";
        let mut answer = Refusal::new(StatusCode::UNAUTHORIZED, text).into_response();
        // WebDAV clients can only send a password; a browser should not ask for one.
        let path = head.uri.path();
        let is_dav = path == "/dav" || path.starts_with("/dav/") || head.method == Method::OPTIONS && path == "/";
        let challenge = if is_dav { "Basic realm=\"shardfs\"" } else { "Bearer" };
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        Err(Box::new(answer))
    }

    fn check_name(&self, head: &Parts) -> Result<(), Refusal> {
        let mut hosts = head.headers.get_all(header::HOST).iter();
        let (host, second) = (hosts.next(), hosts.next());
        let wrong = |text| Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, text));
        if second.is_some() {
            return wrong("more than one Host");
        }
        let named = host.map(|host| host.to_str().unwrap_or_default());
        // Requests to a proxy hold the whole address; then that is checked as well.
        for authority in named.into_iter().chain(head.uri.authority().map(|authority| authority.as_str())) {
            if !self.is_ours(authority) {
                return wrong("this server does not go by that name; `shardfs serve --allow-host` adds one");
            }
        }
        // Only HTTP/1.0 clients may send none, and no browser is one.
        if host.is_none() && head.version != http::Version::HTTP_10 { wrong("no Host") } else { Ok(()) }
    }

    /// Returns whether `name[:port]` names this server. Any port counts, because a tunnel may lead here from another
    /// one.
    fn is_ours(&self, authority: &str) -> bool {
        let Ok(authority) = authority.parse::<http::uri::Authority>() else { return false };
        let host = authority.host();
        let number = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if number.parse::<IpAddr>().is_ok() {
            return !authority.as_str().contains('@');
        }
        let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        self.names.contains(&name) && !authority.as_str().contains('@')
    }
}

impl Secret {
    fn is_token(&self, given: &[u8]) -> bool {
        is_same(&Sha256::digest(given).into(), &self.token)
    }

    /// Returns whether the headers hold the token, or the cookie that was given for it.
    fn is_shown(&self, headers: &HeaderMap) -> bool {
        let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        if let Some((scheme, given)) = authorization.and_then(|value| value.split_once(' ')) {
            let given = given.trim();
            if scheme.eq_ignore_ascii_case("bearer") {
                return self.is_token(given.as_bytes());
            }
            if scheme.eq_ignore_ascii_case("basic") {
                // Any user; the password is the token.
                let decoded = STANDARD.decode(given).unwrap_or_default();
                let colon = decoded.iter().position(|byte| *byte == b':');
                return colon.is_some_and(|at| self.is_token(&decoded[at + 1..]));
            }
        }
        let session: [u8; 32] = Sha256::digest(&self.session).into();
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        cookies
            .flat_map(|value| value.split(';'))
            .filter_map(|cookie| cookie.trim().split_once('='))
            .any(|(name, value)| name == self.cookie && is_same(&Sha256::digest(value.trim()).into(), &session))
    }

    /// Returns the address without the token, if it holds the token of a GET or HEAD.
    fn in_address(&self, head: &Parts) -> Option<String> {
        if ![Method::GET, Method::HEAD].contains(&head.method) {
            return None;
        }
        let (token, rest) = without_token(&head.uri)?;
        self.is_token(&token).then_some(rest)
    }

    /// Gives a browser a cookie for the token in an address, so that it stays in no history and reaches no other site.
    fn exchange(&self, rest: String) -> Option<Response> {
        let secure = if self.is_encrypted { "; Secure" } else { "" };
        let cookie = format!("{}={}; Path=/; HttpOnly; SameSite=Strict{secure}", self.cookie, self.session);
        let answer = http::Response::builder()
            .status(StatusCode::SEE_OTHER)
            .header(header::LOCATION, rest)
            .header(header::SET_COOKIE, cookie)
            .header(header::CACHE_CONTROL, "no-store");
        answer.body(axum::body::Body::empty()).ok()
    }
}

/// Returns the token in an address, and the address without it.
fn without_token(uri: &Uri) -> Option<(Vec<u8>, String)> {
    let mut token = None;
    let mut rest = Vec::new();
    for part in uri.query()?.split('&') {
        match part.split_once('=') {
            Some((PARAMETER, value)) => token = Some(percent_decode_str(value).collect()),
            _ => rest.push(part),
        }
    }
    // An address that begins with two slashes would lead to another server.
    let path = format!("/{}", uri.path().trim_start_matches('/'));
    let rest = if rest.is_empty() { path } else { format!("{path}?{}", rest.join("&")) };
    Some((token?, rest))
}

/// Compares two hashes in the same time wherever they differ.
fn is_same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let differences = a.iter().zip(b).fold(0, |differences, (a, b)| differences | (a ^ b));
    std::hint::black_box(differences) == 0
}

/// Returns 128 random bits as 32 hexadecimal digits.
pub(crate) fn random_hex() -> String {
    use rustix::rand::{GetRandomFlags, getrandom};
    let mut bytes = [0u8; 16];
    // Fails only while the machine starts: later, calls for up to 256 bytes always succeed.
    while getrandom(&mut bytes, GetRandomFlags::empty()).is_err() {}
    hex(&bytes)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::Request;

    use super::*;

    fn head(uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn status(access: &Access, uri: &str, headers: &[(&str, &str)]) -> u16 {
        access.admit(&head(uri, headers)).map_or_else(|answer| answer.status().as_u16(), |()| 200)
    }

    #[test]
    fn only_names_of_this_server() {
        let access = Access::new(["data.example.org".to_owned()]);
        let own = rustix::system::uname().nodename().to_str().unwrap().to_owned();
        for name in ["localhost", "LOCALHOST:9000", "127.0.0.1:8080", "[::1]:80", "10.1.2.3", "data.example.org.", &own]
        {
            assert_eq!(status(&access, "/", &[("host", name)]), 200, "{name}");
        }
        let wrong = ["evil.example", "localhost.evil.example", "", "127.0.0.1.nip.io", "a@127.0.0.1", "localhost@evil"];
        for name in wrong {
            assert_eq!(status(&access, "/", &[("host", name)]), 421, "{name}");
        }
        assert_eq!(status(&access, "/", &[]), 421);
        assert_eq!(status(&access, "/", &[("host", "localhost"), ("host", "localhost")]), 421);
        assert_eq!(status(&access, "http://evil.example/", &[("host", "localhost")]), 421);
        assert_eq!(status(&access, "http://localhost/", &[("host", "localhost")]), 200);
    }

    #[test]
    fn the_token_in_each_form() {
        let token = "0123456789abcdef";
        let access = Access::new([]).with_token(token, "127.0.0.1:81".parse().unwrap(), false);
        let with = |name: &str, value: &str| status(&access, "/files/", &[("host", "localhost"), (name, value)]);
        assert_eq!(with("accept", "*/*"), 401);
        assert_eq!(with("authorization", "Bearer 0123456789abcdef"), 200);
        assert_eq!(with("authorization", "Bearer 0123456789abcdeF"), 401);
        assert_eq!(with("authorization", "Bearer "), 401);
        // user:0123456789abcdef and user:wrong
        assert_eq!(with("authorization", "Basic dXNlcjowMTIzNDU2Nzg5YWJjZGVm"), 200);
        assert_eq!(with("authorization", "Basic dXNlcjp3cm9uZw=="), 401);
        assert_eq!(with("cookie", "shardfs-81=0123456789abcdef"), 401);

        let browser = [("host", "localhost"), ("accept", "text/html,*/*;q=0.8")];
        let asked = head("/files/a?x=1&token=0123456789abcdef&y", &browser);
        let answer: http::Response<Body> = *access.admit(&asked).unwrap_err();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["location"]),
            (303, &HeaderValue::from_static("/files/a?x=1&y"))
        );
        let cookie = answer.headers()["set-cookie"].to_str().unwrap();
        assert!(cookie.contains("HttpOnly; SameSite=Strict") && !cookie.contains(token), "{cookie}");
        let pair = cookie.split(';').next().unwrap();
        assert_eq!(with("cookie", &format!("a=b; {pair}; c=d")), 200);
        assert_eq!(with("cookie", &format!("{pair}0")), 401);
        assert_eq!(status(&access, "//evil.example/?token=0123456789abcdee", &[("host", "localhost")]), 401);
        let asked = head("//evil.example/?token=0123456789abcdef", &browser);
        assert_eq!(access.admit(&asked).unwrap_err().headers()["location"], "/evil.example/");
        // A program is answered at once; nothing but reading goes by a token in the address.
        let program = |address: &str| status(&access, address, &[("host", "localhost"), ("accept", "*/*")]);
        assert_eq!(program("/files/a?x=1&token=0123456789abcdef&y"), 200);
        assert_eq!(program("/files/a?token=0123456789abcdee"), 401);
        let mut asked = head("/dav/?token=0123456789abcdef", &[("host", "localhost")]);
        asked.method = Method::from_bytes(b"PROPFIND").unwrap();
        assert_eq!(access.admit(&asked).unwrap_err().status().as_u16(), 401);
    }

    /// Hashes are compared instead of tokens, so that time tells nothing of the token, and each bit counts.
    #[test]
    fn every_bit_counts() {
        let hash: [u8; 32] = std::array::from_fn(|index| index as u8);
        assert!(is_same(&hash, &hash.clone()));
        for bit in 0..256 {
            let mut other = hash;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_same(&hash, &other), "{bit}");
        }
    }

    #[test]
    fn nobody_guesses_what_is_random() {
        assert!(random_hex() != random_hex() && random_hex().len() == 32);
    }
}
