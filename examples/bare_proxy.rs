//! Pingora alone, as its documentation has it: what slidegate is measured against.
//!
//! `bare_proxy <listen> <upstream>` proxies with one thread, and neither limits nor counts nor adds a
//! header. Idle connections and timeouts are as slidegate's, so that the difference is what slidegate adds.

use std::{env, net::SocketAddr, process::ExitCode, time::Duration};

use async_trait::async_trait;
use pingora::{
    server::{Server, configuration::ServerConf},
    upstreams::peer::HttpPeer,
};
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};

struct Bare {
    upstream: SocketAddr,
}

#[async_trait]
impl ProxyHttp for Bare {
    type CTX = ();

    fn new_ctx(&self) -> Self::CTX {}

    async fn upstream_peer(
        &self,
        _session: &mut Session,
        _state: &mut Self::CTX,
    ) -> pingora::Result<Box<HttpPeer>> {
        let mut peer = HttpPeer::new(self.upstream, false, String::new());
        peer.options.connection_timeout = Some(Duration::from_secs(1));
        peer.options.read_timeout = Some(Duration::from_secs(60));
        peer.options.write_timeout = Some(Duration::from_secs(60));
        peer.options.idle_timeout = Some(Duration::from_secs(50));
        Ok(Box::new(peer))
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [listen, upstream] = &arguments[..] else {
        eprintln!("usage: bare_proxy <listen address:port> <upstream address:port>");
        return ExitCode::from(2);
    };
    let Ok(upstream) = upstream.parse() else {
        eprintln!("{upstream} is no address and port");
        return ExitCode::from(2);
    };
    let conf = ServerConf {
        threads: 1,
        work_stealing: false,
        upstream_keepalive_pool_size: 1024,
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut service = http_proxy_service(&server.configuration, Bare { upstream });
    service.add_tcp(listen);
    server.add_service(service);
    server.run_forever();
}
