//! The other side: asking a proxy how it is.

use std::{net::SocketAddr, time::Duration};

use http::{Method, header};
use pingora::{
    Error,
    connectors::{ConnectorOptions, http::Connector},
    http::RequestHeader,
    upstreams::peer::HttpPeer,
};
use tokio::time::timeout;

use crate::pem;

/// What a proxy is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Whether it runs.
    Alive,
    /// Whether new requests are welcome.
    Ready,
}

/// Why a proxy is not as it was asked to be.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// It was not reached, or its answer broke off.
    #[error(transparent)]
    Unreachable(#[from] Box<Error>),
    /// It says so.
    #[error("{path} is answered {status}")]
    Unhealthy {
        /// What was asked for.
        path: &'static str,
        /// The answer's.
        status: u16,
    },
    /// It ended the connection instead.
    #[error("no answer")]
    Silent,
    /// Not in this time.
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
}

/// Asks the proxy that serves its health at this address, which has so long to answer.
///
/// # Errors
/// If it is not so, or nobody answers, and why.
pub async fn ask(address: SocketAddr, health: Health, patience: Duration) -> Result<(), AskError> {
    let path = match health {
        Health::Alive => "/livez",
        Health::Ready => "/readyz",
    };
    let answer = timeout(patience, status(address, path)).await;
    match answer.map_err(|_| AskError::Late(patience))?? {
        Some(200) => Ok(()),
        Some(status) => Err(AskError::Unhealthy { path, status }),
        None => Err(AskError::Silent),
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
