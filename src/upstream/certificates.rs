//! What files of certificates hold, from PEM. Connections are made of it without looking twice, so what is at fault
//! is found here.

use rustls::{
    RootCertStore,
    crypto::ring::sign::any_supported_type,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    sign::CertifiedKey,
};
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

use super::ClientCertificate;

/// Why a file is of no use; nothing of what it holds is in here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableCertificate {
    /// It holds none, or a broken one.
    #[error("expected at least one certificate in PEM")]
    Certificate,
    /// It holds no key.
    #[error("expected a private key in PEM, without a passphrase")]
    Key,
    /// The key is another's.
    #[error("it is not the key of the certificate")]
    OtherKey,
}

/// The authorities in `pem`, in DER.
///
/// # Errors
/// If there is none, or one that can not be.
pub fn authorities(pem: &[u8]) -> Result<Vec<Vec<u8>>, UnusableCertificate> {
    let found = certificates(pem)?;
    let mut store = RootCertStore::empty();
    for certificate in &found {
        let der = CertificateDer::from(certificate.as_slice());
        let added = store.add(der);
        added.map_err(|_| UnusableCertificate::Certificate)?;
    }
    Ok(found)
}

/// The certificate in `chain` with its key.
///
/// # Errors
/// If one of them can not be, or they do not belong together.
pub fn client(chain: &[u8], key: &[u8]) -> Result<ClientCertificate, UnusableCertificate> {
    let chain = certificates(chain)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| UnusableCertificate::Key)?;
    let signing = any_supported_type(&key).map_err(|_| UnusableCertificate::Key)?;
    let certificates = chain.iter().cloned().map(CertificateDer::from).collect();
    let certified = CertifiedKey::new(certificates, signing);
    match certified.keys_match() {
        // What can not be compared may still fit.
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {}
        Err(_) => return Err(UnusableCertificate::OtherKey),
    }
    let key = key.secret_der().to_vec();
    // What a key is, is told by its first bytes when a connection is made.
    if PrivateKeyDer::try_from(key.as_slice()).is_err() {
        return Err(UnusableCertificate::Key);
    }
    Ok(ClientCertificate { chain, key })
}

/// Whether a certificate can be for this name: a host name or an address.
pub fn is_server_name(text: &str) -> bool {
    ServerName::try_from(text).is_ok()
}

fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, UnusableCertificate> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|_| UnusableCertificate::Certificate)?;
    let found: Vec<_> = found.iter().map(|der| der.to_vec()).collect();
    let is_whole = |der: &Vec<u8>| X509Certificate::from_der(der).is_ok();
    match !found.is_empty() && found.iter().all(is_whole) {
        true => Ok(found),
        false => Err(UnusableCertificate::Certificate),
    }
}
