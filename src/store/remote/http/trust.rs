//! Which certificates of servers are trusted.

use std::{fmt::Display, sync::Arc};

use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

/// Trusts the system's authorities, and the authorities and servers whose certificates the user names.
#[derive(Debug)]
pub(super) struct Trust {
    authorities: Arc<WebPkiServerVerifier>,
    named: Vec<CertificateDer<'static>>,
}

impl Trust {
    /// # Errors
    /// That the system has no authorities, or what is wrong with the certificates.
    pub(super) fn new(named: Vec<CertificateDer<'static>>) -> Result<Self, String> {
        let failed = |error: &dyn Display| format!("certificates: {error}");
        let mut roots = RootCertStore::empty();
        for certificate in named.iter().cloned() {
            roots.add(certificate).map_err(|error| failed(&error))?;
        }
        // One that can't be used is left out.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let authorities = WebPkiServerVerifier::builder(roots.into()).build().map_err(|error| failed(&error))?;
        Ok(Self { authorities, named })
    }
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.authorities.verify_server_cert(certificate, others, name, ocsp_response, now) {
            // A server's own certificate that says it is an authority's, as `openssl req -x509` makes it. That is found
            // after its times were compared, and before its name is.
            Err(Error::InvalidCertificate(CertificateError::Other(why)))
                if why.to_string() == "CaUsedAsEndEntity" && self.named.contains(certificate) =>
            {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}
