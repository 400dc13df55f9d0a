//! Connections to servers, and how far an answer may lead to another place.
//!
//! Redirects are followed here and nowhere else, by these rules: no `Referer` is sent; at most [`HOPS`] follow each
//! other; none leads from `https` to `http`; credentials go only to the server that they are for (scheme, host and
//! port); and none leads nearer than the first address was ([`Reach`]). The last rule, and names that change their
//! address while a store is open, are checked where names become addresses, so that no connection is made.

use std::{
    error::Error,
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures_util::future::BoxFuture;
use http::{Method, header};
use object_store::{
    ClientConfigKey, ClientOptions,
    client::{HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService},
};
use reqwest::{
    Response, Url,
    dns::{Addrs, Name, Resolve, Resolving},
};
use rustls::pki_types::{CertificateDer, pem::PemObject};

use super::{trouble::Trouble, trust::Trust};
use crate::store::remote::{
    Options,
    auth::{address, profile::variable},
    object::FetchError,
};

/// Most redirects of one request.
const HOPS: usize = 5;
/// Longest time to make a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Connections that are kept for the next request.
const IDLE: usize = 64;
/// Largest answer, in bytes, of a service that gives credentials.
const CREDENTIALS: usize = 1 << 20;

/// From how far an address can be reached. A server must not lead this program to an address that is nearer than its
/// own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// From everywhere.
    Everywhere,
    /// From its own network: private addresses.
    Network,
    /// From this machine or its link: loopback, link-local (where clouds give keys), and what is no address of a
    /// server.
    Machine,
}

impl Reach {
    fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        let [a, b, c, _] = address.octets();
        let is_near = address.is_loopback() || address.is_link_local() || a == 0 || a >= 224;
        // Addresses behind one of a provider, of tests of networks, and of protocols belong to no server either.
        let is_shared =
            a == 100 && (64..128).contains(&b) || a == 198 && (b == 18 || b == 19) || (a, b, c) == (192, 0, 0);
        match address {
            _ if is_near => Self::Machine,
            _ if address.is_private() || is_shared => Self::Network,
            _ => Self::Everywhere,
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        let parts = address.segments();
        let v4 = |high: u16, low: u16| Self::of_v4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
        match parts {
            _ if address.is_loopback() || address.is_unspecified() || address.is_multicast() => Self::Machine,
            // An IPv4 address in another form: mapped, compatible, behind a translator (NAT64), by a tunnel (6to4).
            [0, 0, 0, 0, 0, 0xffff | 0, high, low] | [0x64, 0xff9b, _, _, _, _, high, low] => v4(high, low),
            [0x2002, high, low, ..] => v4(high, low),
            [0xfe80..=0xfebf, ..] => Self::Machine,
            [0xfc00..=0xfdff | 0xfec0..=0xfeff, ..] => Self::Network,
            _ => Self::Everywhere,
        }
    }
}

/// That a rule forbids the way to a place.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(String);

/// Resolves names to addresses that are no nearer than `reach`.
struct Within {
    reach: Reach,
    proxies: Arc<[String]>,
}

impl Resolve for Within {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        // The user's own.
        let most = if self.proxies.contains(&host) { Reach::Machine } else { self.reach };
        Box::pin(async move {
            let mut nearer = false;
            let found = tokio::net::lookup_host((&*host, 0)).await?;
            let found: Vec<SocketAddr> = found
                .filter(|at| {
                    let is_allowed = Reach::of(at.ip()) <= most;
                    nearer |= !is_allowed;
                    is_allowed
                })
                .collect();
            match found.is_empty() && nearer {
                true => Err(Refused(format!("{host} has a nearer address than the first server, and was not asked; name it yourself if you trust it")).into()),
                false => Ok(Box::new(found.into_iter()) as Addrs),
            }
        })
    }
}

/// What is the same for all connections.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    certificates: Vec<CertificateDer<'static>>,
    connect: Duration,
}

impl Settings {
    /// Proxies by the usual environment variables, certificates by the system's and by those that the user names.
    ///
    /// # Errors
    /// What is wrong with the certificates.
    pub(crate) fn new(options: &Options) -> Result<Self, FetchError> {
        let mut certificates = Vec::new();
        let bundle = options.ca_bundle.clone().or_else(|| std::env::var_os("AWS_CA_BUNDLE").map(Into::into));
        if let Some(bundle) = bundle.filter(|bundle| !bundle.as_os_str().is_empty()) {
            let failed = |error: &dyn fmt::Display| FetchError::Failed(format!("{}: {error}", bundle.display()));
            let pem = std::fs::read(&bundle).map_err(|e| failed(&e))?;
            certificates = CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().map_err(|e| failed(&e))?;
            if certificates.is_empty() {
                return Err(failed(&"holds no certificate in PEM form"));
            }
        }
        Ok(Self { certificates, connect: CONNECT.min(options.timeout) })
    }

    fn client(&self, connect: Duration, resolver: Option<Within>) -> Result<reqwest::Client, Trouble> {
        // TLS by ring, unless another provider was installed in this process.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let trust = Trust::new(self.certificates.clone()).map_err(|why| Trouble::lasting(&why))?;
        let tls = rustls::ClientConfig::builder().dangerous().with_custom_certificate_verifier(Arc::new(trust));
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("shardfs/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .http1_only()
            .tls_backend_preconfigured(tls.with_no_client_auth())
            .connect_timeout(connect)
            .pool_max_idle_per_host(IDLE);
        if let Some(resolver) = resolver {
            builder = builder.dns_resolver(Arc::new(resolver));
        }
        builder.build().map_err(|error| trouble(&error, ""))
    }
}

/// Connections to one store, and to where it leads.
pub(crate) struct Connections {
    settings: Settings,
    /// By how near they may lead.
    clients: [OnceLock<reqwest::Client>; 3],
    /// What the store itself turned out to be. Its name may not become a nearer one.
    own: OnceLock<Reach>,
    /// Hosts of the proxies that the environment names. What lies behind one has no address that can be seen.
    proxies: Arc<[String]>,
}

impl Connections {
    pub(crate) fn new(settings: Settings) -> Self {
        let variables = ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
        let host = |value: String| {
            let value = if value.contains("://") { value } else { format!("http://{value}") };
            Some(Url::parse(&value).ok()?.host_str()?.to_owned())
        };
        let proxies = variables.into_iter().filter_map(variable).filter_map(host).collect();
        Self { settings, clients: Default::default(), own: OnceLock::new(), proxies }
    }

    fn client(&self, reach: Reach) -> Result<&reqwest::Client, Trouble> {
        let place = &self.clients[reach as usize];
        if let Some(client) = place.get() {
            return Ok(client);
        }
        let resolver = (reach < Reach::Machine).then(|| Within { reach, proxies: self.proxies.clone() });
        let made = self.settings.client(self.settings.connect, resolver)?;
        Ok(place.get_or_init(|| made))
    }

    /// Sends a request, and follows where the answer leads if `is_led`. Otherwise a redirect is returned as it is.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(crate) async fn send(&self, request: HttpRequest, is_led: bool) -> Result<Response, Trouble> {
        let (parts, _) = request.into_parts();
        let unnameable = |_| Trouble::lasting("an address that no request can name");
        let mut url = Url::parse(&parts.uri.to_string()).map_err(unnameable)?;
        let mut headers = parts.headers;
        let mut reach = match self.proxies.is_empty() {
            true => self.own.get().copied().unwrap_or(Reach::Machine),
            false => Reach::Machine,
        };
        let first = url.host_str().map(ToOwned::to_owned);
        for hop in 0.. {
            let mut request = reqwest::Request::new(parts.method.clone(), url.clone());
            *request.headers_mut() = headers.clone();
            let host = url.host_str().unwrap_or_default();
            // Behind proxies nothing is known of the first server's address: its own name is asked as it was at first.
            let is_first = !self.proxies.is_empty() && url.host_str() == first.as_deref();
            let most = if is_first { Reach::Machine } else { reach };
            let answer = self.client(most)?.execute(request).await.map_err(|error| trouble(&error, host))?;
            if hop == 0 {
                reach = self.reach_of(&url, &answer);
                if self.proxies.is_empty() {
                    reach = *self.own.get_or_init(|| reach);
                }
            }
            let Some(next) = next(&url, &answer, &parts.method).filter(|_| is_led) else { return Ok(answer) };
            if hop == HOPS {
                return Err(Trouble::lasting("the server leads from one address to the next without end"));
            }
            let next = next?;
            if url.scheme() == "https" && next.scheme() == "http" {
                return Err(Trouble::lasting(
                    "the server leads from https to http, where everybody can read it; name that address yourself if you trust it",
                ));
            }
            if literal(&next).is_some_and(|at| at > reach) {
                return Err(Trouble::lasting(
                    "the server leads to a nearer address (a private one, or this machine's); name it yourself if you trust it",
                ));
            }
            if next.origin() != url.origin() {
                for secret in [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION] {
                    headers.remove(secret);
                }
            }
            url = next;
        }
        Err(Trouble::lasting("the server leads nowhere"))
    }

    /// Returns how near the server is that answered first.
    fn reach_of(&self, url: &Url, answer: &Response) -> Reach {
        let connected = || match self.proxies.is_empty() {
            true => answer.remote_addr().map(|at| Reach::of(at.ip())),
            false => None,
        };
        literal(url).or_else(connected).unwrap_or(Reach::Everywhere)
    }
}

/// Returns how near a host is, if its name tells without a look-up.
fn literal(url: &Url) -> Option<Reach> {
    let host = url.host_str()?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let name = host.trim_end_matches('.');
    if name == "localhost" || name.ends_with(".localhost") {
        return Some(Reach::Machine);
    }
    host.parse().ok().map(Reach::of)
}

/// Returns where an answer leads; `None` if nowhere.
fn next(url: &Url, answer: &Response, method: &Method) -> Option<Result<Url, Trouble>> {
    let is_led = match answer.status().as_u16() {
        301 | 302 | 307 | 308 => true,
        303 => matches!(*method, Method::GET | Method::HEAD),
        _ => false,
    };
    let to = answer.headers().get(header::LOCATION).filter(|_| is_led)?;
    let wrong = || Trouble::lasting("the server leads to what is no address of a web server");
    let next = to.to_str().ok().and_then(|to| url.join(to).ok()).filter(address::is_of_web);
    Some(next.ok_or_else(wrong))
}

/// Returns why a request has failed. The innermost cause says it (an unknown name, a refused connection, a
/// certificate).
pub(crate) fn trouble(error: &reqwest::Error, host: &str) -> Trouble {
    let mut cause: &(dyn Error + 'static) = error;
    loop {
        if let Some(refused) = cause.downcast_ref::<Refused>() {
            return Trouble::lasting(&refused.0);
        }
        if let Some(why) = cause.downcast_ref::<rustls::Error>().and_then(|error| of_tls(error, host)) {
            return Trouble::lasting(&why);
        }
        // An `io::Error` hides the error that it wraps.
        let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref).map(|inner| inner as _);
        match inner.or_else(|| cause.source()) {
            Some(source) => cause = source,
            None => break,
        }
    }
    match error.is_timeout() {
        true => Trouble::late("no answer in time"),
        false => Trouble::passing(&address::hide(&cause.to_string())),
    }
}

/// What is wrong with a server's certificate, and what to do about it. `None` for what may pass.
fn of_tls(error: &rustls::Error, host: &str) -> Option<String> {
    use rustls::{CertificateError as Wrong, Error};

    let why = match error {
        Error::InvalidCertificate(Wrong::Expired | Wrong::ExpiredContext { .. }) => {
            "the server's certificate has expired; check this machine's clock, or have the certificate renewed".into()
        }
        Error::InvalidCertificate(Wrong::NotValidYet | Wrong::NotValidYetContext { .. }) => {
            "the server's certificate is not valid yet; check this machine's clock".into()
        }
        Error::InvalidCertificate(Wrong::NotValidForName | Wrong::NotValidForNameContext { .. }) => {
            format!("the server's certificate is not for {host}; write the name that it is for")
        }
        Error::InvalidCertificate(_) => {
            "the server's certificate is not trusted; name the certificate of its authority, or \
                                         its own if it has none, by --ca-bundle FILE"
                .into()
        }
        Error::InvalidMessage(_) => "the server does not speak TLS; write http:// if it is one of this machine".into(),
        _ => return None,
    };
    Some(why)
}

/// Connects to services that give credentials. They are reached like stores, but redirects are not followed.
#[derive(Debug)]
pub(crate) struct Connector(pub(crate) Settings);

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // A machine's own service answers within a second, or there is none.
        let is_near = options.get_config_value(&ClientConfigKey::ConnectTimeout).is_some_and(|time| time == "1s");
        let connect = if is_near { Duration::from_secs(1).min(self.0.connect) } else { self.0.connect };
        let failed = |trouble: Trouble| object_store::Error::Generic { store: "HTTP", source: trouble.why.into() };
        Ok(HttpClient::new(Service(self.0.client(connect, None).map_err(failed)?)))
    }
}

#[derive(Debug)]
struct Service(reqwest::Client);

impl Service {
    async fn answer(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let failed = |error: reqwest::Error| {
            let kind = match &error {
                error if error.is_timeout() => HttpErrorKind::Timeout,
                error if error.is_connect() => HttpErrorKind::Connect,
                _ => HttpErrorKind::Request,
            };
            HttpError::new(kind, Refused(trouble(&error, "").why))
        };
        let refused = |why: &str| HttpError::new(HttpErrorKind::Unknown, Refused(why.into()));
        let (parts, body) = request.into_parts();
        let url = Url::parse(&parts.uri.to_string()).map_err(|_| refused("an address that no request can name"))?;
        let mut request = reqwest::Request::new(parts.method, url);
        *request.headers_mut() = parts.headers;
        let body = body.as_bytes().cloned().ok_or_else(|| refused("a body in pieces"))?;
        *request.body_mut() = Some(body.into());
        let mut answer = self.0.execute(request).await.map_err(failed)?;
        let mut bytes = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(failed)? {
            if bytes.len() + piece.len() > CREDENTIALS {
                return Err(refused("an answer of more than 1 MiB"));
            }
            bytes.extend_from_slice(&piece);
        }
        let mut made = HttpResponse::new(bytes.into());
        *made.status_mut() = answer.status();
        *made.headers_mut() = answer.headers().clone();
        Ok(made)
    }
}

impl HttpService for Service {
    fn call<'life, 'a>(&'life self, request: HttpRequest) -> BoxFuture<'a, Result<HttpResponse, HttpError>>
    where
        'life: 'a,
        Self: 'a,
    {
        Box::pin(self.answer(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_near_addresses_are() {
        let reach = |text: &str| Reach::of(text.parse().unwrap());
        for far in ["8.8.8.8", "100.128.0.1", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"] {
            assert_eq!(reach(far), Reach::Everywhere, "{far}");
        }
        for private in ["10.1.2.3", "172.16.0.1", "192.168.1.1", "100.100.100.200", "fd00::1", "::ffff:10.0.0.1"] {
            assert_eq!(reach(private), Reach::Network, "{private}");
        }
        for near in [
            "127.0.0.1",
            "127.8.8.8",
            "169.254.169.254",
            "0.0.0.0",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "ff02::1",
        ] {
            assert_eq!(reach(near), Reach::Machine, "{near}");
        }
        let of = |url: &str| literal(&Url::parse(url).unwrap());
        // Other ways to write them.
        for near in ["http://0x7f.1/", "http://2130706433/", "http://[::1]/", "http://a.localhost./", "http://127.1/"] {
            assert_eq!(of(near), Some(Reach::Machine), "{near}");
        }
        assert_eq!(of("http://host.example/"), None);
    }
}
