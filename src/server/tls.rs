//! TLS towards clients: which certificate is shown, whom we believe, and how both are replaced at run time.

use std::{
    collections::HashMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwap;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier},
    sign::CertifiedKey,
};
use tokio_rustls::TlsAcceptor;
use x509_parser::{extensions::GeneralName, prelude::FromDer as _};

use crate::pem::{self, UnusableFile};

/// The TLS of a listener, as it is configured.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// What was read of its files; `None` where they are elsewhere, and nothing is going to be served.
    pub identity: Option<ServerIdentity>,
}

impl TlsSettings {
    /// What was read of its files.
    ///
    /// # Panics
    /// If they were not to be looked into: such settings are for looking at, not for serving.
    pub fn identity(&self) -> &ServerIdentity {
        self.identity
            .as_ref()
            .expect("what serves was read with its files")
    }
}

/// The files that an identity is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFiles {
    /// At least one. Which is shown is the client's wish (SNI): the one with its name, else the first.
    pub certificates: Vec<KeyPair>,
    /// Only clients with a certificate of one of these authorities may connect. Default: all may.
    pub client_ca: Option<PathBuf>,
}

/// A certificate and its key, both in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPair {
    /// The certificate, then those between it and its authority.
    pub certificate: PathBuf,
    /// Its key, not encrypted.
    pub key: PathBuf,
}

/// What the files held when they were read.
#[derive(Clone)]
pub struct ServerIdentity {
    config: Arc<ServerConfig>,
    certificates: Vec<Certificate>,
    fingerprint: blake3::Hash,
}

/// A certificate that is shown to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Where it was read.
    pub file: PathBuf,
    /// From when on clients refuse it, in seconds since 1970.
    pub expires: i64,
}

/// No key is shown.
impl fmt::Debug for ServerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerIdentity")
            .field(&self.certificates)
            .finish()
    }
}

/// Why an identity could not be read, and in which file that is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// A file is of no use by itself.
    #[error("{}: {why}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// Why.
        why: UnusableFile,
    },
    /// A key is none of its certificate.
    #[error("{} is not the key of {}", key.display(), certificate.display())]
    Mismatch {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// A certificate is broken inside.
    #[error("{}: {why}", file.display())]
    Broken {
        /// Which.
        file: PathBuf,
        /// The parser's own words.
        why: String,
    },
}

impl ServerIdentity {
    /// Reads the files. It may block.
    ///
    /// # Errors
    /// If one of them is of no use.
    pub fn read(settings: &IdentityFiles) -> Result<Self, IdentityError> {
        let mut shown = Shown::default();
        let mut hasher = blake3::Hasher::new();
        let mut certificates = Vec::with_capacity(settings.certificates.len());
        for pair in &settings.certificates {
            let (key, names, expires) = certified(pair)?;
            for certificate in &key.cert {
                hasher.update(certificate);
            }
            shown.add(key, names);
            certificates.push(Certificate {
                file: pair.certificate.clone(),
                expires,
            });
        }
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring has both versions of TLS");
        let builder = match &settings.client_ca {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let broken = |why: String| IdentityError::Broken {
                    file: file.clone(),
                    why,
                };
                let mut roots = RootCertStore::empty();
                for authority in chain(file)? {
                    hasher.update(&authority);
                    roots
                        .add(authority)
                        .map_err(|error| broken(error.to_string()))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(
                    Arc::new(roots),
                    Arc::new(ring::default_provider()),
                );
                let verifier = verifier
                    .build()
                    .map_err(|error| broken(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(shown));
        config.alpn_protocols = vec![H2.to_vec(), b"http/1.1".to_vec()];
        Ok(Self {
            config: Arc::new(config),
            certificates,
            fingerprint: hasher.finalize(),
        })
    }

    /// The same for the same certificates and authorities.
    pub fn fingerprint(&self) -> String {
        self.fingerprint.to_hex().to_string()
    }

    /// The certificates that are shown.
    pub fn certificates(&self) -> &[Certificate] {
        &self.certificates
    }
}

/// The identity of a listener, which another may replace while it serves: connections keep the one they began with.
#[derive(Debug)]
pub struct Tls(ArcSwap<ServerIdentity>);

impl Tls {
    /// Begins with `identity`.
    pub fn new(identity: ServerIdentity) -> Self {
        Self(ArcSwap::from_pointee(identity))
    }

    /// Shows another from the next connection on.
    pub fn replace(&self, identity: ServerIdentity) {
        self.0.store(Arc::new(identity));
    }

    /// What is shown now.
    pub fn identity(&self) -> Arc<ServerIdentity> {
        self.0.load_full()
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.0.load().config.clone())
    }
}

/// Which certificate is shown to whom.
#[derive(Debug, Default)]
struct Shown {
    first: Option<Arc<CertifiedKey>>,
    /// By name in lower case; `*.` stands for one label.
    by_name: HashMap<String, Arc<CertifiedKey>>,
}

impl Shown {
    /// The first that has a name keeps it.
    fn add(&mut self, key: CertifiedKey, names: Vec<String>) {
        let key = Arc::new(key);
        for name in names {
            self.by_name.entry(name).or_insert_with(|| key.clone());
        }
        self.first.get_or_insert(key);
    }

    fn named(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        let name = name.to_ascii_lowercase();
        self.by_name.get(&name).or_else(|| {
            let (_, parent) = name.split_once('.')?;
            self.by_name.get(&format!("*.{parent}"))
        })
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = hello.server_name().and_then(|name| self.named(name));
        named.or(self.first.as_ref()).cloned()
    }
}

/// A certificate with its key, the names that it is for, and when it ends.
fn certified(pair: &KeyPair) -> Result<(CertifiedKey, Vec<String>, i64), IdentityError> {
    let broken = |why: String| IdentityError::Broken {
        file: pair.certificate.clone(),
        why,
    };
    let chain = chain(&pair.certificate)?;
    let (names, expires) = {
        let (_, leaf) = x509_parser::certificate::X509Certificate::from_der(&chain[0])
            .map_err(|error| broken(error.to_string()))?;
        let names = leaf
            .subject_alternative_name()
            .map_err(|error| broken(error.to_string()))?;
        let names = names.map_or(Vec::new(), |names| dns_names(&names.value.general_names));
        (names, leaf.validity().not_after.timestamp())
    };
    let unusable = |why| IdentityError::File {
        file: pair.key.clone(),
        why,
    };
    let pem = pem::key(&pair.key).map_err(unusable)?;
    let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|_| unusable(UnusableFile::Key))?;
    let certified = CertifiedKey::from_der(chain, key, &ring::default_provider());
    let certified = certified.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => IdentityError::Mismatch {
            certificate: pair.certificate.clone(),
            key: pair.key.clone(),
        },
        error => broken(error.to_string()),
    })?;
    Ok((certified, names, expires))
}

fn dns_names(names: &[GeneralName<'_>]) -> Vec<String> {
    let dns = names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    dns.collect()
}

/// The certificates in a file; at least one.
fn chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let unusable = |why| IdentityError::File {
        file: file.to_owned(),
        why,
    };
    let pem = pem::certificates(file).map_err(unusable)?;
    let chain = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    chain.map_err(|_| unusable(UnusableFile::Certificate))
}

/// HTTP/2, as TLS names it.
pub(super) const H2: &[u8] = b"h2";
