//! Files in PEM: certificates and their keys. What is wrong with one is told, what it holds never is.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::Path,
};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

/// The file at `path`, which holds at least one certificate.
///
/// # Errors
/// If it cannot be read, or holds none or a broken one.
pub fn certificates(path: &Path) -> Result<Vec<u8>, UnusableFile> {
    let pem = bytes(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(pem),
        _ => Err(UnusableFile::Certificate),
    }
}

/// The file at `path`, which holds a private key.
///
/// # Errors
/// If it cannot be read or holds none that is usable without a passphrase.
pub fn key(path: &Path) -> Result<Vec<u8>, UnusableFile> {
    let pem = bytes(path)?;
    match PrivateKeyDer::from_pem_slice(&pem) {
        Ok(_) => Ok(pem),
        Err(_) => Err(UnusableFile::Key),
    }
}

/// The content of the file at `path`.
///
/// # Errors
/// If it cannot be read, is no regular file, or is larger than a megabyte.
pub fn bytes(path: &Path) -> Result<Vec<u8>, UnusableFile> {
    let unreadable = |error: io::Error| UnusableFile::Unreadable(error.to_string());
    let mut bytes = Vec::new();
    // A pipe would be waited for, perhaps for ever.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(UnusableFile::NoFile);
    }
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(UnusableFile::TooLarge);
    }
    Ok(bytes)
}

/// Why a file is of no use; nothing of what it holds is in here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableFile {
    /// The operating system's own words.
    #[error("this file cannot be read: {0}")]
    Unreadable(String),
    /// A directory, a pipe, a device.
    #[error("this is no regular file")]
    NoFile,
    /// No such thing is as long.
    #[error("this file is larger than {MAX_BYTES} bytes")]
    TooLarge,
    /// No text.
    #[error("this file is not UTF-8")]
    Encoding,
    /// No password.
    #[error("this file is empty")]
    Empty,
    /// No certificate.
    #[error("this file holds no certificate in PEM, which begins -----BEGIN CERTIFICATE-----")]
    Certificate,
    /// No key.
    #[error(
        "this file holds no private key in PEM, which begins -----BEGIN PRIVATE KEY----- and is not encrypted"
    )]
    Key,
}

/// Whom Pingora's connectors trust by themselves: nobody. Each upstream brings its own; else they would read the
/// system's when they are made, twice for each worker.
pub const NO_AUTHORITIES: &str = "/dev/null";

/// A bundle of all public CAs has a quarter of it.
const MAX_BYTES: u64 = 1 << 20;
