//! HTTPS: a server with a certificate of its own.

use std::{io, sync::Arc};

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
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
    /// `InvalidData` if there is none, or it is no PEM.
    pub(crate) fn certificates(pem: &[u8]) -> io::Result<Vec<CertificateDer<'static>>> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        match found {
            Ok(found) if found.is_empty() => Err(invalid("holds no certificate in PEM form")),
            found => found.map_err(invalid),
        }
    }

    /// Takes a certificate and its key (PKCS #8, PKCS #1 or SEC 1) in PEM.
    ///
    /// # Errors
    /// `InvalidData` if there is no key, it is encrypted, or not that of the certificate.
    pub(crate) fn new(certificates: Vec<CertificateDer<'static>>, key_pem: &[u8]) -> io::Result<Self> {
        let key = PrivateKeyDer::from_pem_slice(key_pem)
            .map_err(|_| invalid("holds no private key in PEM form, or one with a password"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(invalid)?.with_no_client_auth().with_single_cert(certificates, key);
        let mut config = config.map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => invalid("is not the key of the certificate"),
            error => invalid(error),
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

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
