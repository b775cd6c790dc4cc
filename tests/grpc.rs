//! gRPC through the proxy, by a client and a server that people use: tonic's. The service is written by hand, so that
//! no protoc is needed: its messages are text.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, atomic::AtomicUsize, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf as _, BufMut as _};
use futures_util::{Stream, StreamExt as _, stream};
use parking_lot::Mutex;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tonic::{
    Code, Request, Response, Status, Streaming,
    body::Body,
    client,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::{BoxFuture, BoxStream, Service, http},
    metadata::MetadataMap,
    server,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Server, server::TcpIncoming},
};

use crate::support::{
    app::App,
    certificates::{Authority, tls_listener},
    redis::eventually,
    upstream::Nobody,
};

const H2C: &str = "listen: [{address: \"127.0.0.1:0\", h2c: true}]\n";

/// slidegate before an upstream that is spoken to in HTTP/2, with a quota for each key.
fn proxy(listen: &str, upstream: SocketAddr, quota: u32) -> App {
    App::start_with_files(&format!(
        "{listen}upstream: {{address: \"{upstream}\", http: 2}}\n\
         policies: [{{name: per-key, identifier: [header:x-api-key], limits: [{quota}/366d]}}]\n"
    ))
}

/// A client of the service, by the proxy.
async fn connected(app: &App) -> Client {
    let endpoint = Endpoint::from_shared(format!("http://{}", app.proxy)).expect("a URI");
    Client::new(endpoint.connect().await.expect("it listens"))
}

#[tokio::test]
async fn calls_of_every_kind_go_through_with_their_messages_statuses_and_trailers() {
    let echo = Echo::start().await;
    let app = proxy(H2C, echo.address, 1000);
    all_kinds_of_calls(connected(&app).await).await;
    app.metric_becomes("slidegate_requests_total{status=\"2xx\"}", 6.0)
        .await;
}

#[tokio::test]
async fn they_go_through_tls_as_well() {
    let echo = Echo::start().await;
    let authority = Authority::new();
    let certified = authority.certify("server", "DNS:api.test");
    let listen = format!("listen: [{}]\n", tls_listener(&[&certified], ""));
    let app = proxy(&listen, echo.address, 1000);
    let trusted = std::fs::read(authority.certificate()).expect("it is there");
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(trusted))
        .domain_name("api.test");
    let endpoint = Endpoint::from_shared(format!("https://{}", app.proxy)).expect("a URI");
    let endpoint = endpoint.tls_config(tls).expect("a trust");
    let channel = endpoint.connect().await.expect("HTTP/2 by TLS");
    all_kinds_of_calls(Client::new(channel)).await;
}

/// One call of each kind, and one that fails in the middle.
async fn all_kinds_of_calls(mut client: Client) {
    let answer = client.unary("/echo.Echo/Unary", "hello").await.expect("ok");
    let kind = answer.metadata().get("x-kind").expect("it is told");
    assert_eq!(kind, "unary");
    assert!(answer.metadata().contains_key("x-ratelimit-remaining"));
    assert_eq!(answer.into_inner(), "hello");

    let stream = client.server_streaming("/echo.Echo/Count", "3").await;
    let counted = stream.expect("ok").into_inner();
    let counted: Vec<_> = counted
        .map(|message| message.expect("whole"))
        .collect()
        .await;
    assert_eq!(counted, ["1", "2", "3"]);

    let parts = stream::iter(["a", "b", "c"].map(str::to_owned));
    let joined = client.client_streaming("/echo.Echo/Join", parts).await;
    assert_eq!(joined.expect("ok").into_inner(), "a b c");

    let (say, heard) = mpsc::unbounded_channel();
    let heard = stream::unfold(heard, async |mut heard: mpsc::UnboundedReceiver<String>| {
        Some((heard.recv().await?, heard))
    });
    let chat = client.streaming("/echo.Echo/Chat", heard).await;
    let mut chat = chat.expect("ok").into_inner();
    for word in ["one", "two", "three"] {
        say.send(word.to_owned()).expect("it is open");
        let echoed = chat.next().await.expect("an echo").expect("whole");
        assert_eq!(echoed, word, "before the next one was sent");
    }
    drop(say);
    assert!(chat.next().await.is_none(), "with status 0 in its trailers");

    let failing = client
        .server_streaming("/echo.Echo/CountAndFail", "2")
        .await;
    let mut failing = failing.expect("it begins well").into_inner();
    assert_eq!(failing.next().await.expect("more").expect("whole"), "1");
    assert_eq!(failing.next().await.expect("more").expect("whole"), "2");
    let status = failing.next().await.expect("an end").expect_err("failed");
    assert_eq!(
        (status.code(), status.message()),
        (Code::DataLoss, "that was all")
    );
    assert_eq!(number(status.metadata(), "x-told"), 2, "of the trailers");

    let unknown = client.unary("/echo.Echo/Unknown", "hello").await;
    assert_eq!(unknown.expect_err("it is none").code(), Code::Unimplemented);
}

/// A denial is no answer in HTTP's words: those of gRPC would take 429 for "try again".
#[tokio::test]
async fn a_denied_call_reads_resource_exhausted_with_the_wait_in_its_metadata() {
    let echo = Echo::start().await;
    let app = proxy(H2C, echo.address, 1);
    let mut client = connected(&app).await;
    client
        .unary("/echo.Echo/Unary", "x")
        .await
        .expect("the first passes");
    let is_denied = |status: Status| {
        assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
        assert_eq!(status.message(), "quota exceeded");
        let told = |name: &str| number(status.metadata(), name);
        assert!(told("retry-after") > 0);
        assert_eq!(
            (told("x-ratelimit-limit"), told("x-ratelimit-remaining")),
            (1, 0)
        );
        assert!(status.metadata().contains_key("ratelimit"));
        assert!(status.metadata().contains_key("ratelimit-policy"));
    };
    is_denied(
        client
            .unary("/echo.Echo/Unary", "x")
            .await
            .expect_err("denied"),
    );
    let counted = client.server_streaming("/echo.Echo/Count", "3").await;
    is_denied(counted.expect_err("denied"));
    // A client that would go on sending is told as well, and is not waited for.
    let endless = stream::repeat_with(|| "more".repeat(1000));
    let joined = client.client_streaming("/echo.Echo/Join", endless).await;
    is_denied(joined.expect_err("denied"));
    let endless = stream::repeat_with(|| "more".repeat(1000));
    let chat = client.streaming("/echo.Echo/Chat", endless).await;
    is_denied(chat.expect_err("denied"));
    // The connection is the same, and others are served by it.
    client.key = "another";
    client
        .unary("/echo.Echo/Unary", "x")
        .await
        .expect("it passes");
    assert_eq!(echo.seen.calls.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn an_upstream_that_is_down_reads_unavailable() {
    let nobody = Nobody::new();
    let app = proxy(H2C, nobody.address, 1000);
    let mut client = connected(&app).await;
    let unary = client.unary("/echo.Echo/Unary", "x").await;
    assert_eq!(unary.expect_err("it is down").code(), Code::Unavailable);
    let chat = client.streaming("/echo.Echo/Chat", stream::pending()).await;
    assert_eq!(chat.expect_err("it is down").code(), Code::Unavailable);
    // Those who look at the status of HTTP see what it is.
    app.metric_becomes("slidegate_requests_total{status=\"5xx\"}", 2.0)
        .await;
}

/// Some clients, Go's among them, read a status in a first head only where nothing follows it.
#[tokio::test]
async fn a_status_without_messages_is_a_lone_head_whoever_sends_it() {
    let (echo, nobody) = (Echo::start().await, Nobody::new());
    let app = proxy(H2C, echo.address, 1);
    lone_heads(&app, [(200, "12"), (200, "8")]).await;
    let app = proxy(H2C, nobody.address, 1);
    lone_heads(&app, [(502, "14"), (200, "8")]).await;
}

/// Asks for a method that there is not, once for each expected status of HTTP and of gRPC.
async fn lone_heads(app: &App, expected: [(u16, &str); 2]) {
    let stream = TcpStream::connect(app.proxy).await.expect("it listens");
    let (mut client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    for (status, code) in expected {
        let request = http::Request::post(format!("http://{}/echo.Echo/Unknown", app.proxy))
            .header("content-type", "application/grpc");
        let request = request.body(()).expect("a request");
        let (response, mut body) = client.send_request(request, false).expect("sent");
        body.send_data(bytes::Bytes::from_static(b"\0\0\0\0\x01x"), false)
            .expect("sent");
        let response = response.await.expect("answered");
        assert_eq!(response.status(), status);
        assert_eq!(response.headers()["grpc-status"], code);
        assert_eq!(response.headers()["content-type"], "application/grpc");
        assert!(response.body().is_end_stream(), "{code}");
    }
}

#[tokio::test]
async fn a_call_that_its_client_gives_up_ends_at_the_upstream_and_is_no_server_error() {
    let echo = Echo::start().await;
    let app = proxy(H2C, echo.address, 1000);
    let client = connected(&app).await;
    let mut waiting = client.clone();
    let call = tokio::spawn(async move { waiting.unary("/echo.Echo/Wait", "x").await.is_ok() });
    eventually("it is at the upstream", async || echo.waiting() == 1).await;
    call.abort();
    eventually("it ends there", async || echo.waiting() == 0).await;
    app.metric_becomes("slidegate_requests_total{status=\"none\"}", 1.0)
        .await;
    assert_eq!(app.metric(FAILED).await, 0.0);
    assert_eq!(app.metric(&outcome("abandoned")).await, 1.0);
    assert_eq!(app.metric(&outcome("failed")).await, 0.0);

    // The same in the middle of an answer.
    let mut reading = client;
    let counted = reading
        .server_streaming("/echo.Echo/CountForEver", "x")
        .await;
    let mut counted = counted.expect("ok").into_inner();
    assert_eq!(counted.next().await.expect("more").expect("whole"), "1");
    assert_eq!(echo.waiting(), 1);
    drop(counted);
    eventually("it ends there", async || echo.waiting() == 0).await;
    app.metric_becomes("slidegate_requests_total{status=\"2xx\"}", 1.0)
        .await;
    assert_eq!(app.metric(FAILED).await, 0.0);
}

#[tokio::test]
async fn a_deadline_reaches_the_upstream_and_ends_the_call_there() {
    let echo = Echo::start().await;
    let app = proxy(H2C, echo.address, 1000);
    let mut client = connected(&app).await;
    client.deadline = Some(Duration::from_millis(200));
    let call = client.unary("/echo.Echo/Wait", "x").await;
    let code = call.expect_err("it is over").code();
    assert!(
        matches!(code, Code::Cancelled | Code::DeadlineExceeded),
        "{code:?}"
    );
    assert_eq!(echo.seen.deadlines.lock()[..], ["200000u"]);
    eventually("it ends there", async || echo.waiting() == 0).await;
    eventually("it has ended", async || {
        let exposition = app.metrics().await;
        ["none", "2xx"]
            .map(|class| format!("slidegate_requests_total{{status=\"{class}\"}}"))
            .map(|series| crate::support::app::metric(&exposition, &series))
            .iter()
            .sum::<f64>()
            == 1.0
    })
    .await;
    assert_eq!(app.metric(FAILED).await, 0.0);
}

const FAILED: &str = "slidegate_requests_total{status=\"5xx\"}";

fn outcome(outcome: &str) -> String {
    format!("slidegate_upstream_requests_total{{outcome=\"{outcome}\",upstream=\"default\"}}")
}

fn number(metadata: &MetadataMap, name: &str) -> u64 {
    let value = metadata
        .get(name)
        .unwrap_or_else(|| panic!("{name} is told"));
    value.to_str().expect("text").parse().expect("a number")
}

/// Calls of the service, by tonic's client.
#[derive(Clone)]
struct Client {
    grpc: client::Grpc<Channel>,
    key: &'static str,
    deadline: Option<Duration>,
}

impl Client {
    fn new(channel: Channel) -> Self {
        Self {
            grpc: client::Grpc::new(channel),
            key: "one",
            deadline: None,
        }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request
            .metadata_mut()
            .insert("x-api-key", self.key.parse().expect("text"));
        if let Some(deadline) = self.deadline {
            request.set_timeout(deadline);
        }
        request
    }

    async fn ready(&mut self) {
        self.grpc.ready().await.expect("the connection is there");
    }

    async fn unary(&mut self, path: &'static str, message: &str) -> Called<String> {
        self.ready().await;
        let request = self.request(message.to_owned());
        self.grpc.unary(request, at(path), Text).await
    }

    async fn server_streaming(
        &mut self,
        path: &'static str,
        message: &str,
    ) -> Called<Streaming<String>> {
        self.ready().await;
        let request = self.request(message.to_owned());
        self.grpc.server_streaming(request, at(path), Text).await
    }

    async fn client_streaming(
        &mut self,
        path: &'static str,
        messages: impl Stream<Item = String> + Send + 'static,
    ) -> Called<String> {
        self.ready().await;
        let request = self.request(messages);
        self.grpc.client_streaming(request, at(path), Text).await
    }

    async fn streaming(
        &mut self,
        path: &'static str,
        messages: impl Stream<Item = String> + Send + 'static,
    ) -> Called<Streaming<String>> {
        self.ready().await;
        let request = self.request(messages);
        self.grpc.streaming(request, at(path), Text).await
    }
}

type Called<T> = Result<Response<T>, Status>;

fn at(path: &'static str) -> http::uri::PathAndQuery {
    http::uri::PathAndQuery::from_static(path)
}

/// A server of the service, by tonic's.
struct Echo {
    address: SocketAddr,
    seen: Arc<Seen>,
}

/// What the server has seen.
#[derive(Default)]
struct Seen {
    calls: AtomicUsize,
    /// How many calls that have no end by themselves there are.
    waiting: AtomicUsize,
    deadlines: Mutex<Vec<String>>,
}

impl Echo {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound listener");
        let seen = Arc::new(Seen::default());
        let service = EchoService(seen.clone());
        let incoming = TcpIncoming::from(listener);
        tokio::spawn(Server::builder().serve_with_incoming(service, incoming));
        Self { address, seen }
    }

    fn waiting(&self) -> usize {
        self.seen.waiting.load(Ordering::SeqCst)
    }
}

#[derive(Clone)]
struct EchoService(Arc<Seen>);

impl Service<http::Request<Body>> for EchoService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let seen = self.0.clone();
        seen.calls.fetch_add(1, Ordering::SeqCst);
        let method = request
            .uri()
            .path()
            .trim_start_matches("/echo.Echo/")
            .to_owned();
        Box::pin(async move {
            let mut grpc = server::Grpc::new(Text);
            Ok(match method.as_str() {
                "Unary" => grpc.unary(Method(unary), request).await,
                "Wait" => {
                    grpc.unary(Method(|request| wait(seen.clone(), request)), request)
                        .await
                }
                "Join" => grpc.client_streaming(Method(join), request).await,
                "Chat" => grpc.streaming(Method(chat), request).await,
                "Count" => {
                    grpc.server_streaming(Method(|request| count(request, false)), request)
                        .await
                }
                "CountAndFail" => {
                    grpc.server_streaming(Method(|request| count(request, true)), request)
                        .await
                }
                "CountForEver" => {
                    grpc.server_streaming(Method(|_| count_for_ever(seen.clone())), request)
                        .await
                }
                _ => Status::unimplemented("there is no such method").into_http(),
            })
        })
    }
}

async fn unary(request: Request<String>) -> Called<String> {
    let mut response = Response::new(request.into_inner());
    response
        .metadata_mut()
        .insert("x-kind", "unary".parse().expect("text"));
    Ok(response)
}

async fn wait(seen: Arc<Seen>, request: Request<String>) -> Called<String> {
    let deadline = request.metadata().get("grpc-timeout");
    let deadline = deadline.map(|deadline| deadline.to_str().expect("text").to_owned());
    seen.deadlines.lock().extend(deadline);
    let _waiting = Waiting::new(seen);
    std::future::pending().await
}

async fn join(request: Request<Streaming<String>>) -> Called<String> {
    let mut messages = request.into_inner();
    let mut parts = Vec::new();
    while let Some(part) = messages.message().await? {
        parts.push(part);
    }
    Ok(Response::new(parts.join(" ")))
}

async fn chat(request: Request<Streaming<String>>) -> Called<BoxStream<String>> {
    Ok(Response::new(Box::pin(request.into_inner())))
}

async fn count(request: Request<String>, fails: bool) -> Called<BoxStream<String>> {
    let last: u32 = request.into_inner().parse().expect("a number");
    let numbers = stream::iter((1..=last).map(|number| Ok(number.to_string())));
    let end = fails.then(|| {
        let mut told = MetadataMap::new();
        told.insert("x-told", last.into());
        Err(Status::with_metadata(Code::DataLoss, "that was all", told))
    });
    Ok(Response::new(Box::pin(numbers.chain(stream::iter(end)))))
}

async fn count_for_ever(seen: Arc<Seen>) -> Called<BoxStream<String>> {
    let waiting = Waiting::new(seen);
    let one = stream::once(async { Ok("1".to_owned()) });
    let held = stream::pending().map(move |message| {
        let _ = &waiting;
        message
    });
    Ok(Response::new(Box::pin(one.chain(held))))
}

/// A call that has no end by itself, counted until it is dropped.
struct Waiting(Arc<Seen>);

impl Waiting {
    fn new(seen: Arc<Seen>) -> Self {
        seen.waiting.fetch_add(1, Ordering::SeqCst);
        Self(seen)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A method of the service, which a function is.
struct Method<F>(F);

impl<F, Answer, Asked, Told> Service<Request<Asked>> for Method<F>
where
    F: FnMut(Request<Asked>) -> Answer,
    Answer: Future<Output = Called<Told>>,
{
    type Response = Response<Told>;
    type Error = Status;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Asked>) -> Answer {
        (self.0)(request)
    }
}

/// Messages that are text.
#[derive(Clone, Copy)]
struct Text;

impl Codec for Text {
    type Encode = String;
    type Decode = String;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Text {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, message: String, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(message.as_bytes());
        Ok(())
    }
}

impl Decoder for Text {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        let text = String::from_utf8(bytes.into());
        text.map(Some)
            .map_err(|error| Status::internal(error.to_string()))
    }
}
