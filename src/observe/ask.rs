//! The other side: asking a proxy how it is.

use std::net::SocketAddr;

use http::{Method, header};
use pingora::{
    Error,
    connectors::{ConnectorOptions, http::Connector},
    http::RequestHeader,
    upstreams::peer::HttpPeer,
};

use crate::pem;

/// What a proxy is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Whether it runs.
    Alive,
    /// Whether new requests are welcome.
    Ready,
}

/// Asks the proxy that serves its health at this address.
///
/// # Errors
/// If it is not so, or nobody answers, and why.
pub async fn ask(address: SocketAddr, health: Health) -> Result<(), String> {
    let path = match health {
        Health::Alive => "/livez",
        Health::Ready => "/readyz",
    };
    let failed = |error: Box<Error>| error.to_string();
    match status(address, path).await.map_err(failed)? {
        Some(200) => Ok(()),
        Some(status) => Err(format!("{path} is answered {status}")),
        None => Err("no answer".to_owned()),
    }
}

async fn status(address: SocketAddr, path: &str) -> pingora::Result<Option<u16>> {
    let mut options = ConnectorOptions::new(1);
    options.ca_file = Some(pem::NO_AUTHORITIES.to_owned());
    let peer = HttpPeer::new(address, false, String::new());
    let connector = Connector::new(Some(options));
    let (mut session, _) = connector.get_http_session(&peer).await?;
    let mut head = RequestHeader::build(Method::GET, path.as_bytes(), Some(2))?;
    head.insert_header(header::HOST, address.to_string())?;
    head.insert_header(header::USER_AGENT, "slidegate-healthcheck")?;
    session.write_request_header(Box::new(head)).await?;
    session.read_response_header().await?;
    let head = session.response_header();
    Ok(head.map(|head| head.status.as_u16()))
}
