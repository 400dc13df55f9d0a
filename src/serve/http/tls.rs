//! HTTPS: a server with a certificate of its own.

use std::{io, sync::Arc};

use rustls::{
    CertificateError, Error, RootCertStore, ServerConfig,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// A certificate with its key. Accepts TLS 1.2 and 1.3.
#[derive(Clone)]
pub(crate) struct Tls(TlsAcceptor);

impl Tls {
    /// Reads the certificate of a server, and those that lead from it to one that clients trust, from PEM.
    ///
    /// # Errors
    /// `InvalidData` if there is none, it is no PEM, or the server's is not of version 3.
    pub(crate) fn certificates(pem: &[u8]) -> io::Result<Vec<CertificateDer<'static>>> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(without_mark(pem)).collect();
        let found = found.map_err(invalid)?;
        let own = found.first().ok_or_else(|| invalid("holds no certificate in PEM form"))?;
        ParsedCertificate::try_from(own).map_err(|_| invalid("its first certificate is none of X.509 version 3"))?;
        Ok(found)
    }

    /// Returns why clients refuse the certificate of a server at this time.
    pub(crate) fn untimely(own: &CertificateDer<'_>) -> Option<&'static str> {
        let mut roots = RootCertStore::empty();
        roots.add(own.clone().into_owned()).ok()?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().ok()?;
        let anyone = ServerName::try_from("localhost").ok()?;
        // Times are compared before anything else.
        match verifier.verify_server_cert(own, &[], &anyone, &[], UnixTime::now()) {
            Err(Error::InvalidCertificate(CertificateError::ExpiredContext { .. })) => Some("has expired"),
            Err(Error::InvalidCertificate(CertificateError::NotValidYetContext { .. })) => Some("is not valid yet"),
            _ => None,
        }
    }

    /// Takes a certificate and its key (PKCS #8, PKCS #1 or SEC 1) in PEM.
    ///
    /// # Errors
    /// `InvalidData` if there is no key, it is encrypted, of another kind, or not that of the certificate.
    pub(crate) fn new(certificates: Vec<CertificateDer<'static>>, key_pem: &[u8]) -> io::Result<Self> {
        let key = PrivateKeyDer::from_pem_slice(without_mark(key_pem))
            .map_err(|_| invalid("holds no private key in PEM form, or one with a password"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(invalid)?.with_no_client_auth().with_single_cert(certificates, key);
        let mut config = config.map_err(|error| match error {
            Error::InconsistentKeys(_) => invalid("is not the key of the certificate"),
            _ => invalid("holds no key that can be used: RSA of 2048 to 4096 bits, ECDSA P-256 or P-384, or Ed25519"),
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config).into()))
    }

    /// Agrees with a client on keys.
    ///
    /// # Errors
    /// If the client does not speak TLS, does not accept the certificate, or ends the connection.
    pub(super) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> io::Result<TlsStream<S>> {
        self.0.accept(stream).await
    }
}

/// A text without the mark of UTF-8 that some editors put before it.
fn without_mark(pem: &[u8]) -> &[u8] {
    pem.strip_prefix(b"\xef\xbb\xbf").unwrap_or(pem)
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
