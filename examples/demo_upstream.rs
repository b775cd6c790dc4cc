//! A web server to put slidegate in front of: `demo_upstream [address:port]`, by default `127.0.0.1:3000`.
//!
//! It answers every request with a few lines of text: the method, the target, and what a proxy added.
//! `/slow?ms=500` waits first, for at most a minute; `/status/503` answers that status. It prints the
//! address it listens on, so that port 0 is of use. It is no model of a server: no TLS, no HTTP/2, no
//! limit on connections.

use std::{convert::Infallible, fmt::Write as _, io, process::ExitCode, sync::Arc, time::Duration};

use async_trait::async_trait;
use http::{Method, Response, StatusCode, header::CONTENT_LENGTH};
use pingora::{
    apps::{ServerApp as _, http_app::ServeHttp},
    protocols::{http::ServerSession, l4::stream::Stream},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let Err(error) = run(address).await;
    eprintln!("demo upstream: failed to listen on {address}: {error}");
    ExitCode::FAILURE
}

async fn run(address: &str) -> io::Result<Infallible> {
    let listener = TcpListener::bind(address).await?;
    println!("demo upstream listens on {}", listener.local_addr()?);

    let app = Arc::new(Demo);
    // Nothing is ever sent: the process simply ends.
    let (_sender, shutdown) = watch::channel(false);
    loop {
        match listener.accept().await {
            Ok((connection, _)) => {
                tokio::spawn(serve(Arc::clone(&app), connection, shutdown.clone()));
            }
            // Out of file descriptors, most likely: it passes.
            Err(error) => {
                eprintln!("failed to accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve(app: Arc<Demo>, connection: TcpStream, shutdown: watch::Receiver<bool>) {
    let mut stream = Stream::from(connection);
    if stream.set_nodelay().is_ok() {
        app.process_new(Box::new(stream), &shutdown).await;
    }
}

struct Demo;

#[async_trait]
impl ServeHttp for Demo {
    async fn response(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        match read_body(session).await {
            Ok(length) => answer(session, length).await,
            Err(status) => {
                // Where the body ends is not known, so nothing can follow it.
                session.set_keepalive(None);
                text(status, Method::GET, format!("{status}\n"))
            }
        }
    }
}

/// Reads the request's body to its end and tells its length.
async fn read_body(session: &mut ServerSession) -> Result<usize, StatusCode> {
    let mut length = 0;
    while let Some(bytes) = session
        .read_request_body()
        .await
        .map_err(|_| StatusCode::BAD_REQUEST)?
    {
        length += bytes.len();
        if length > MAX_BODY {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
    }
    Ok(length)
}

async fn answer(session: &ServerSession, body_length: usize) -> Response<Vec<u8>> {
    let head = session.req_header();
    let path = head.uri.path();
    let mut status = StatusCode::OK;
    if path == "/slow" {
        let millis = head.uri.query().and_then(|query| query.strip_prefix("ms="));
        let wait = millis
            .and_then(|millis| millis.parse().ok())
            .map_or(MAX_WAIT, Duration::from_millis);
        tokio::time::sleep(wait.min(MAX_WAIT)).await;
    } else if let Some(wanted) = path.strip_prefix("/status/") {
        status = wanted
            .parse()
            .ok()
            .filter(|status: &StatusCode| !status.is_informational())
            .unwrap_or(StatusCode::BAD_REQUEST);
    }

    let mut body = format!("demo upstream: {} {}\n", head.method, head.uri);
    for name in SHOWN_HEADERS {
        for value in head.headers.get_all(name) {
            let value = String::from_utf8_lossy(value.as_bytes());
            writeln!(body, "{name}: {value}").expect("writing to a string can not fail");
        }
    }
    if body_length > 0 {
        writeln!(body, "body: {body_length} bytes").expect("writing to a string can not fail");
    }
    text(status, head.method.clone(), body)
}

/// A response with `body`, framed as the status and the method ask.
fn text(status: StatusCode, method: Method, body: String) -> Response<Vec<u8>> {
    let mut response = Response::new(Vec::new());
    *response.status_mut() = status;
    if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return response;
    }
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, body.len().into());
    headers.insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    if method != Method::HEAD {
        *response.body_mut() = body.into_bytes();
    }
    response
}

/// What a proxy says about the client; a key that the client sent is deliberately not shown.
const SHOWN_HEADERS: [&str; 5] = [
    "host",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "forwarded",
];
const MAX_BODY: usize = 16 * 1024 * 1024;
const MAX_WAIT: Duration = Duration::from_secs(60);
