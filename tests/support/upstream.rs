//! An upstream that answers as its path says, and remembers what it was asked.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use http::{HeaderMap, Response, StatusCode};
use parking_lot::Mutex;
use pingora::{
    apps::http_app::{HttpServer, ServeHttp},
    protocols::http::ServerSession,
};
use slidegate::{
    policy::{ClientRule, IdentifierHasher},
    server::{Census, CensusSettings, Guests, serve},
};
use tokio::sync::watch;

use super::redis::eventually;

/// A running upstream; it ends with the test.
pub struct Upstream {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    let_go: watch::Sender<bool>,
    _close: watch::Sender<bool>,
}

/// An address at which nothing listens, and nobody else will: a connection is refused.
pub struct Nobody {
    pub address: SocketAddr,
    _bound: socket2::Socket,
}

impl Nobody {
    pub fn new() -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.expect("a socket");
        socket.bind(&any.into()).expect("a free port");
        let address = socket.local_addr().expect("a bound socket");
        Self {
            address: address.as_socket().expect("an IP address"),
            _bound: socket,
        }
    }
}

/// A request as it reached the upstream.
#[derive(Clone, Debug)]
pub struct Seen {
    pub target: String,
    pub headers: HeaderMap,
}

impl Upstream {
    /// Starts it on a free port, on a thread of its own.
    ///
    /// `/status/503` answers that status, `/slow/500` waits so many milliseconds, `/held` until it is told by
    /// [`Self::let_go`], `/limits` sends rate limit headers of its own, anything else is answered `ok`.
    pub fn start() -> Self {
        Self::start_at("127.0.0.1:0")
    }

    /// The same at this address, where it is free.
    pub fn start_at(address: &str) -> Self {
        let listener = TcpListener::bind(address).expect("a free port");
        listener.set_nonblocking(true).expect("a listener");
        let address = listener.local_addr().expect("a bound listener");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (close, closing) = watch::channel(false);
        let (let_go, held) = watch::channel(false);
        // What clients may take is slidegate's to say.
        let mut guests = Guests::of_operators();
        let networks = IdentifierHasher::new(None, IdentifierHasher::DEFAULT_IPV6_PREFIX);
        let census = CensusSettings::default();
        guests.census = Arc::new(Census::new(census, networks, ClientRule::default(), None));
        guests.bounds.max_header_size = usize::MAX / 2;
        guests.bounds.header_timeout = Duration::from_secs(3600);
        let service = Arc::new(HttpServer::new_app(Service {
            seen: seen.clone(),
            held,
        }));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(serve(vec![listener.into()], service, guests, closing));
        });
        Self {
            address,
            seen,
            let_go,
            _close: close,
        }
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// Waits until so many requests have reached it.
    pub async fn has_seen(&self, number: usize) {
        let what = format!("{number} requests reach the upstream");
        eventually(&what, async || self.seen().len() >= number).await;
    }

    /// Answers the requests for `/held`, and holds no other.
    pub fn let_go(&self) {
        self.let_go.send_replace(true);
    }

    pub fn last(&self) -> Seen {
        self.seen
            .lock()
            .last()
            .cloned()
            .expect("a request reached the upstream")
    }
}

struct Service {
    seen: Arc<Mutex<Vec<Seen>>>,
    held: watch::Receiver<bool>,
}

#[async_trait]
impl ServeHttp for Service {
    async fn response(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        let head = session.req_header();
        let path = head.uri.path().to_owned();
        self.seen.lock().push(Seen {
            target: head.uri.to_string(),
            headers: head.headers.clone(),
        });
        while let Ok(Some(_)) = session.read_request_body().await {}

        let mut response = Response::builder();
        let mut status = StatusCode::OK;
        match path.trim_start_matches('/').split_once('/') {
            Some(("status", code)) => status = code.parse().expect("a status"),
            Some(("slow", millis)) => {
                let millis = millis.parse().expect("milliseconds");
                tokio::time::sleep(Duration::from_millis(millis)).await;
            }
            _ => {}
        }
        if path == "/held" {
            // It errs where the test has ended.
            drop(self.held.clone().wait_for(|let_go| *let_go).await);
        }
        if path == "/limits" {
            response = response
                .header("X-RateLimit-Limit", 999)
                .header("x-ratelimit-remaining", 5)
                .header("RateLimit", "\"app\";r=5;t=1")
                .header("RateLimit-Policy", "\"app\";q=999;w=60")
                .header("Retry-After", 7);
        }
        if path == "/cors" {
            response = response
                .header("Access-Control-Allow-Origin", "*")
                .header("Access-Control-Expose-Headers", "X-App");
        }
        let bodiless = status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
        let body = if bodiless { Vec::new() } else { b"ok".to_vec() };
        if !bodiless {
            response = response.header("Content-Length", body.len());
        }
        let head_only = session.req_header().method == http::Method::HEAD;
        response
            .status(status)
            .body(if head_only { Vec::new() } else { body })
            .expect("a response")
    }
}
