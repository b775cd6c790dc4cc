//! How an upstream is connected to, in Pingora's words.
//!
//! Its traps: a server name that is empty switches verification off; the CA is no part of what connections are
//! reused by; a peer that is made of a host name resolves it on the spot, and panics.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use pingora::{Error, ErrorType, upstreams::peer::HttpPeer};
use pingora_core::{
    protocols::{TcpKeepalive, tls::CaType},
    utils::tls::{CertKey, WrappedX509, parse_x509},
};

use crate::upstream::{Http, Socket, Target, TlsSettings, UpstreamSettings};

/// Has this peer connected to by a connection of its own: where one that was kept did not take a request, others that were
/// kept with it may be as dead.
pub(in crate::proxy) fn connect_anew(peer: &mut HttpPeer) {
    peer.group_key |= ANEW;
    // Nor is it kept, where nobody would look for it.
    peer.options.idle_timeout = Some(Duration::ZERO);
}

/// No number of an upstream: they count from 1.
const ANEW: u64 = 1 << 63;

/// Whom one upstream's connections trust, and who they are.
pub(super) struct PeerIdentity {
    /// Another for each upstream that is built: none takes a connection that another one verified.
    group: u64,
    ca: Option<Arc<CaType>>,
    client: Option<Arc<CertKey>>,
}

impl PeerIdentity {
    pub(super) fn new(tls: Option<&TlsSettings>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let ca = tls.map(|tls| match &tls.ca {
            Some(certificates) => authorities(certificates.iter().cloned()),
            None => MOZILLAS.clone(),
        });
        let client = tls.and_then(|tls| tls.client.as_ref());
        let client =
            client.map(|client| Arc::new(CertKey::new(client.chain.clone(), client.key.clone())));
        Self {
            group: NEXT.fetch_add(1, Ordering::Relaxed),
            ca,
            client,
        }
    }

    /// How `target` is connected to.
    pub(super) fn peer(
        &self,
        settings: &UpstreamSettings,
        target: &Target,
    ) -> pingora::Result<Box<HttpPeer>> {
        let server_name = match &settings.tls {
            Some(tls) => tls.server_name.as_deref().unwrap_or(&target.host),
            None => "",
        };
        let is_tls = settings.tls.is_some();
        if is_tls && server_name.is_empty() {
            let reason = "the upstream's certificate can not be verified without a server_name";
            return Err(Error::explain(ErrorType::InvalidCert, reason).into_up());
        }
        let server_name = server_name.trim_end_matches('.').to_owned();
        let mut peer = match &target.socket {
            Socket::Tcp(address) => HttpPeer::new(address, is_tls, server_name),
            Socket::Unix(path) => {
                let path = path.to_string_lossy();
                HttpPeer::new_uds(&path, is_tls, server_name).map_err(|error| error.into_up())?
            }
        };
        peer.group_key = self.group;
        peer.client_cert_key.clone_from(&self.client);
        let options = &mut peer.options;
        options.ca.clone_from(&self.ca);
        options.connection_timeout = Some(settings.connect_timeout);
        options.total_connection_timeout = Some(settings.connect_timeout);
        options.read_timeout = Some(settings.read_timeout);
        options.write_timeout = Some(settings.write_timeout);
        options.idle_timeout = Some(settings.idle_timeout);
        // A machine that is gone without a word: many requests share an HTTP/2 connection, and each would wait in vain
        // for as long as the system repeats what it sent, a quarter of an hour. Pings of HTTP/2 would tell sooner, but
        // gRPC servers take these for abuse.
        options.tcp_keepalive = matches!(target.socket, Socket::Tcp(_)).then_some(TcpKeepalive {
            idle: KEEPALIVE,
            interval: KEEPALIVE,
            count: 3,
            user_timeout: settings.write_timeout,
        });
        match settings.http {
            Http::One => options.set_http_version(1, 1),
            Http::Two => {
                options.set_http_version(2, 2);
                options.max_h2_streams = MOST_STREAMS;
            }
        }
        Ok(Box::new(peer))
    }
}

/// The key is not shown.
impl std::fmt::Debug for PeerIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PeerIdentity({})", self.group)
    }
}

/// # Panics
/// On what is no certificate; the configuration has read them.
fn authorities(certificates: impl Iterator<Item = Vec<u8>>) -> Arc<CaType> {
    let certificates = certificates.map(|der| WrappedX509::new(der, parse_x509));
    certificates.collect::<Vec<_>>().into()
}

/// Those whom Mozilla trusts, as of the build.
static MOZILLAS: LazyLock<Arc<CaType>> = LazyLock::new(|| {
    let roots = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
    authorities(roots.map(|der| der.to_vec()))
});

/// What most servers grant; Pingora opens another connection beyond.
const MOST_STREAMS: usize = 100;

/// From the last word of a connection to the first question whether anybody is there, and from one to the next.
const KEEPALIVE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::Address;

    fn peer(address: &str, tls: Option<TlsSettings>) -> pingora::Result<Box<HttpPeer>> {
        let address: Address = address.parse().expect("an address");
        let target = address.target().expect("no name");
        let mut settings = UpstreamSettings::at("app", vec![address]);
        settings.tls = tls;
        PeerIdentity::new(settings.tls.as_ref()).peer(&settings, &target)
    }

    #[test]
    fn where_no_authority_is_configured_those_of_mozilla_are_trusted() {
        let peer = peer("192.0.2.1:443", Some(TlsSettings::default())).expect("a peer");
        let trusted = peer.options.ca.as_ref().expect("somebody");
        assert!(trusted.len() > 100, "{}", trusted.len());
        assert_eq!(peer.sni, "192.0.2.1");
        assert!(peer.options.verify_cert && peer.options.verify_hostname);
    }

    #[test]
    fn without_a_name_to_verify_nobody_is_connected_to() {
        assert!(peer("unix:/run/app.sock", None).is_ok());
        assert!(peer("unix:/run/app.sock", Some(TlsSettings::default())).is_err());
    }
}
