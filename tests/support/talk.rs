//! Clients that ask one request after another by one connection, in either version of HTTP, and tell what fails.

use std::{fmt::Display, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::Request;
use tokio::{
    io::{
        AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
        BufStream,
    },
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, pem::PemObject as _},
    },
};

use super::certificates::Authority;

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
    /// Whether it says that the connection takes no more.
    pub is_last: bool,
}

/// A connection of HTTP/1.1.
pub struct Http1<S>(BufStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> Http1<S> {
    pub fn new(stream: S) -> Self {
        Self(BufStream::new(stream))
    }

    /// Asks for `target`, and reads the whole of an answer that tells its length.
    pub async fn ask(&mut self, target: &str) -> Result<Answer, String> {
        let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n");
        self.0.write_all(request.as_bytes()).await.map_err(told)?;
        self.0.flush().await.map_err(told)?;
        let (mut status, mut length, mut is_last) = (None, 0, false);
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).await.map_err(told)?;
            let line = line.trim_end_matches("\r\n").to_ascii_lowercase();
            match line.split_once(": ") {
                Some(("content-length", value)) => length = value.parse().map_err(told)?,
                Some(("connection", value)) => is_last |= value == "close",
                Some(_) => {}
                None if status.is_none() => {
                    let code = line.split(' ').nth(1).and_then(|code| code.parse().ok());
                    status = Some(code.ok_or_else(|| format!("{target}: no answer: {line:?}"))?);
                }
                None if line.is_empty() => break,
                None => return Err(format!("{target}: no header: {line}")),
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.map_err(told)?;
        let status = status.unwrap_or_default();
        Ok(Answer {
            status,
            body,
            is_last,
        })
    }
}

/// A connection of HTTP/2.
pub struct Http2 {
    client: h2::client::SendRequest<Bytes>,
    connection: tokio::task::JoinHandle<Result<(), h2::Error>>,
    authority: String,
}

impl Http2 {
    pub async fn open<S>(stream: S, scheme: &str) -> Result<Self, String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (client, connection) = h2::client::handshake(stream).await.map_err(told)?;
        Ok(Self {
            client,
            connection: tokio::spawn(connection),
            authority: format!("{scheme}://x"),
        })
    }

    /// Asks for `target`, and reads the whole answer. `None` if the connection takes no more requests.
    pub async fn ask(&mut self, target: &str) -> Result<Option<Answer>, String> {
        // An error says that there is no more to wait for.
        let Ok(mut ready) = self.client.clone().ready().await else {
            return Ok(None);
        };
        let request = Request::get(format!("{}{target}", self.authority));
        let request = request.body(()).map_err(told)?;
        let (response, _) = match ready.send_request(request, true) {
            Ok(sent) => sent,
            Err(error) if error.is_go_away() => return Ok(None),
            Err(error) => return Err(told(error)),
        };
        let (head, mut body) = response.await.map_err(told)?.into_parts();
        let mut whole = Vec::new();
        while let Some(part) = body.data().await {
            let part: Bytes = part.map_err(told)?;
            drop(body.flow_control().release_capacity(part.len()));
            whole.extend(part);
        }
        Ok(Some(Answer {
            status: head.status.as_u16(),
            body: whole,
            is_last: false,
        }))
    }

    /// Lets it go, and tells how it ended: in order, or by an error.
    pub async fn end(self) -> Result<(), String> {
        drop(self.client);
        self.connection.await.map_err(told)?.map_err(told)
    }
}

/// What makes connections by TLS to whom `authority` certified, offering this version of HTTP: `h2` or `http/1.1`.
pub fn connector(authority: &Authority, version: &str) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    let trusted = CertificateDer::from_pem_file(authority.certificate()).expect("PEM");
    roots.add(trusted).expect("a certificate");
    let mut config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![version.into()];
    TlsConnector::from(Arc::new(config))
}

/// Connects to `address`, as to `name`.
pub async fn connect(
    connector: &TlsConnector,
    address: SocketAddr,
    name: &'static str,
) -> Result<TlsStream<TcpStream>, String> {
    let stream = TcpStream::connect(address).await.map_err(told)?;
    let name = name.try_into().map_err(told)?;
    connector.connect(name, stream).await.map_err(told)
}

/// An error as text.
pub fn told(error: impl Display) -> String {
    error.to_string()
}
