//! HTTP/2 in frames that no client would send: what RFC 9113 has a server do about them, what would let a request hide
//! in another one once it is HTTP/1.1, and floods.
//!
//! The checks are those of h2spec that a proxy in front of an upstream can get wrong, and some that it does not have;
//! h2spec itself is in no distribution and is not run; nghttp2's clients are. Two of its checks would fail, by what h2 lets pass: requests before
//! any settings, and pseudo-headers among the trailers of a request, of which the upstream hears nothing.

use std::{net::SocketAddr, process::Command};

use crate::support::{
    app::App,
    certificates::{Authority, tls_listener},
    frames::{
        ACK, COMPRESSION_ERROR, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM,
        FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, Frames, GOAWAY, HEADERS, Outcome, PADDED, PING,
        PREFACE, PRIORITY, PROTOCOL_ERROR, PUSH_PROMISE, RST_STREAM, SETTINGS, STREAM_CLOSED,
        WINDOW_UPDATE, WITH_PRIORITY, block, frame, request,
    },
    recorder::Recorder,
    redis::eventually,
    upstream::Upstream,
};

fn start() -> (App, Recorder) {
    let recorder = Recorder::start();
    let app = App::start(&format!(
        "listen: [{{address: \"127.0.0.1:0\", h2c: true}}]\n\
         bounds: {{max_header_size: 8KiB, body_timeout: 500ms}}\n\
         upstream: {{address: \"{}\"}}\npolicies: [{{name: per-ip, limits: [1000000/366d]}}]\n",
        recorder.address
    ));
    (app, recorder)
}

/// The frame of a request by GET.
fn get(stream: u32, path: &str) -> Vec<u8> {
    let flags = END_HEADERS | END_STREAM;
    frame(HEADERS, flags, stream, &block(&request("GET", path)))
}

/// The frame of the head of a request by POST.
fn post(stream: u32) -> Vec<u8> {
    let head = block(&request("POST", "/post"));
    frame(HEADERS, END_HEADERS, stream, &head)
}

#[test]
fn what_is_of_no_concern_is_passed_over_and_a_request_is_answered() {
    let (app, recorder) = start();
    let padded = [&[3][..], &block(&request("GET", "/")), &[0; 3]].concat();
    let weighted = [&[0, 0, 0, 0, 7][..], &block(&request("GET", "/"))].concat();
    let head = block(&request("GET", "/"));
    let cases = [
        ("nothing", vec![get(1, "/")]),
        (
            "a frame of a type that there is not",
            vec![frame(0xfa, 0xff, 0, b"what"), get(1, "/")],
        ),
        (
            "such a one of a stream",
            vec![
                post(1),
                frame(0xfa, 0xff, 1, b"what"),
                frame(DATA, END_STREAM, 1, b""),
            ],
        ),
        (
            "a setting that there is not",
            vec![
                frame(SETTINGS, 0, 0, &[0x99, 0x99, 0, 0, 0, 1]),
                get(1, "/"),
            ],
        ),
        (
            "flags that there are not",
            vec![frame(
                HEADERS,
                END_HEADERS | END_STREAM | 0xd2,
                1,
                &block(&request("GET", "/")),
            )],
        ),
        (
            "a priority",
            vec![frame(PRIORITY, 0, 3, &[0, 0, 0, 0, 7]), get(1, "/")],
        ),
        (
            "a window that grows",
            vec![frame(WINDOW_UPDATE, 0, 0, &[0, 0, 1, 0]), get(1, "/")],
        ),
        ("the reserved bit of a stream", vec![get(1 | 1 << 31, "/")]),
        (
            "padding",
            vec![frame(
                HEADERS,
                END_HEADERS | END_STREAM | PADDED,
                1,
                &padded,
            )],
        ),
        (
            "a weight",
            vec![frame(
                HEADERS,
                END_HEADERS | END_STREAM | WITH_PRIORITY,
                1,
                &weighted,
            )],
        ),
        (
            "padded data",
            vec![
                post(1),
                frame(DATA, END_STREAM | PADDED, 1, &[2, b'x', 0, 0]),
            ],
        ),
        (
            "data of no bytes",
            vec![
                post(1),
                frame(DATA, 0, 1, b""),
                frame(DATA, END_STREAM, 1, b""),
            ],
        ),
        (
            "a head in parts",
            vec![
                frame(HEADERS, END_STREAM, 1, &head[..5]),
                frame(CONTINUATION, 0, 1, &head[5..9]),
                frame(CONTINUATION, END_HEADERS, 1, &head[9..]),
            ],
        ),
        ("a stream that is skipped", vec![get(7, "/")]),
    ];
    let count = cases.len();
    for (what, sent) in cases {
        let mut frames = Frames::open(app.proxy);
        frames.send(&sent.concat());
        let stream = if what == "a stream that is skipped" {
            7
        } else {
            1
        };
        let is_answered = frames.outcome(stream);
        assert_eq!(is_answered, Outcome::Answered(200), "{what}");
    }
    let seen = recorder.seen();
    let seen: Vec<_> = seen
        .iter()
        .map(|seen| (seen.target(), seen.is_whole, seen.body.len()))
        .collect();
    assert_eq!(seen.len(), count, "{seen:?}");
}

#[test]
fn settings_and_pings_are_acknowledged() {
    let (app, _recorder) = start();
    let mut frames = Frames::open(app.proxy);
    let settings = |flags: u8| move |frame: &_| is(frame, SETTINGS, flags);
    frames.until(settings(0)).expect("settings of the server");
    frames
        .until(settings(ACK))
        .expect("those of the client are taken");
    frames.send(&frame(PING, 0, 0, b"12345678"));
    let pong = frames.until(|frame| frame.kind == PING).expect("an answer");
    assert_eq!((pong.flags, &pong.payload[..]), (ACK, &b"12345678"[..]));
}

fn is(frame: &crate::support::frames::Frame, kind: u8, flags: u8) -> bool {
    (frame.kind, frame.flags) == (kind, flags)
}

/// What it is, the frames, and the codes that are right.
type Breach<'a> = (&'a str, Vec<Vec<u8>>, &'a [u32]);

/// A connection may end by the general error as well, as h2 has it for some. A request behind it is never answered as if
/// nothing had been.
#[test]
fn what_breaks_the_protocol_ends_the_stream_or_the_connection_by_its_error() {
    let (app, recorder) = start();
    let head = block(&request("GET", "/"));
    let setting = |name: u8, value: u32| {
        let payload = [&[0, name][..], &value.to_be_bytes()].concat();
        frame(SETTINGS, 0, 0, &payload)
    };
    let big = vec![0; 16_385];
    let cases: Vec<Breach<'_>> = vec![
        (
            "a frame beyond the largest",
            vec![post(1), frame(DATA, 0, 1, &big)],
            &[FRAME_SIZE_ERROR],
        ),
        (
            "a head beyond the largest frame",
            vec![frame(HEADERS, END_HEADERS, 1, &big)],
            &[FRAME_SIZE_ERROR],
        ),
        (
            "data of no stream",
            vec![frame(DATA, 0, 0, b"x")],
            &[PROTOCOL_ERROR],
        ),
        (
            "a head of no stream",
            vec![frame(HEADERS, END_HEADERS | END_STREAM, 0, &head)],
            &[PROTOCOL_ERROR],
        ),
        (
            "a stream of the server's",
            vec![get(2, "/")],
            &[PROTOCOL_ERROR],
        ),
        (
            "a stream below the last",
            vec![get(5, "/"), get(3, "/")],
            &[PROTOCOL_ERROR, STREAM_CLOSED],
        ),
        (
            "data of a stream that is idle",
            vec![frame(DATA, END_STREAM, 1, b"x")],
            &[PROTOCOL_ERROR, STREAM_CLOSED],
        ),
        (
            "data after the end",
            vec![get(1, "/"), frame(DATA, END_STREAM, 1, b"x")],
            &[STREAM_CLOSED],
        ),
        (
            "a head after the end",
            vec![get(1, "/"), get(1, "/")],
            &[STREAM_CLOSED, PROTOCOL_ERROR],
        ),
        (
            "a second head that does not end",
            vec![post(1), post(1)],
            &[PROTOCOL_ERROR],
        ),
        (
            "a window that grows by nothing",
            vec![frame(WINDOW_UPDATE, 0, 0, &[0; 4])],
            &[PROTOCOL_ERROR],
        ),
        (
            "one of a stream",
            vec![post(1), frame(WINDOW_UPDATE, 0, 1, &[0; 4])],
            &[PROTOCOL_ERROR],
        ),
        (
            "a window beyond all",
            vec![frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff])],
            &[FLOW_CONTROL_ERROR],
        ),
        (
            "a window of an odd length",
            vec![frame(WINDOW_UPDATE, 0, 0, &[0; 3])],
            &[FRAME_SIZE_ERROR],
        ),
        (
            "a window of a stream that is idle",
            vec![frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])],
            &[PROTOCOL_ERROR],
        ),
        (
            "settings of an odd length",
            vec![frame(SETTINGS, 0, 0, &[0; 5])],
            &[FRAME_SIZE_ERROR],
        ),
        (
            "an acknowledgement that says something",
            vec![frame(SETTINGS, ACK, 0, &[0; 6])],
            &[FRAME_SIZE_ERROR],
        ),
        (
            "settings of a stream",
            vec![frame(SETTINGS, 0, 1, &[])],
            &[PROTOCOL_ERROR],
        ),
        (
            "pushes neither on nor off",
            vec![setting(2, 2)],
            &[PROTOCOL_ERROR],
        ),
        (
            "windows beyond all",
            vec![setting(4, 1 << 31)],
            &[FLOW_CONTROL_ERROR],
        ),
        (
            "frames that are too small",
            vec![setting(5, 1)],
            &[PROTOCOL_ERROR],
        ),
        (
            "frames that are too large",
            vec![setting(5, 1 << 24)],
            &[PROTOCOL_ERROR],
        ),
        (
            "a ping of an odd length",
            vec![frame(PING, 0, 0, &[0; 7])],
            &[FRAME_SIZE_ERROR],
        ),
        (
            "a ping of a stream",
            vec![frame(PING, 0, 1, &[0; 8])],
            &[PROTOCOL_ERROR],
        ),
        (
            "a reset of no stream",
            vec![frame(RST_STREAM, 0, 0, &[0; 4])],
            &[PROTOCOL_ERROR],
        ),
        (
            "a reset of a stream that is idle",
            vec![frame(RST_STREAM, 0, 1, &[0; 4])],
            &[PROTOCOL_ERROR],
        ),
        (
            "a reset of an odd length",
            vec![post(1), frame(RST_STREAM, 0, 1, &[0; 3])],
            &[FRAME_SIZE_ERROR],
        ),
        (
            "a farewell of a stream",
            vec![frame(GOAWAY, 0, 1, &[0; 8])],
            &[PROTOCOL_ERROR],
        ),
        (
            "a push",
            vec![frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2])],
            &[PROTOCOL_ERROR],
        ),
        (
            "a continuation of nothing",
            vec![frame(CONTINUATION, END_HEADERS, 1, &head)],
            &[PROTOCOL_ERROR],
        ),
        (
            "a frame within a head",
            vec![
                frame(HEADERS, END_STREAM, 1, &head[..5]),
                frame(PING, 0, 0, &[0; 8]),
            ],
            &[PROTOCOL_ERROR],
        ),
        (
            "a head that another stream continues",
            vec![
                frame(HEADERS, END_STREAM, 1, &head[..5]),
                frame(CONTINUATION, END_HEADERS, 3, &head[5..]),
            ],
            &[PROTOCOL_ERROR],
        ),
        (
            "an index that there is not",
            vec![frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0x80])],
            &[COMPRESSION_ERROR],
        ),
        (
            "a block that breaks off",
            vec![frame(HEADERS, END_HEADERS | END_STREAM, 1, &head[..5])],
            &[COMPRESSION_ERROR],
        ),
        (
            "padding beyond the frame",
            vec![frame(
                HEADERS,
                END_HEADERS | END_STREAM | PADDED,
                1,
                &[200, 0x82],
            )],
            &[PROTOCOL_ERROR],
        ),
        (
            "a stream that hangs on itself",
            vec![frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 7])],
            &[PROTOCOL_ERROR],
        ),
    ];
    let mut wrong = Vec::new();
    for (what, sent, errors) in cases {
        let mut frames = Frames::open(app.proxy);
        frames.send(&sent.concat());
        // Served only if nothing was wrong.
        frames.get(101, "/behind");
        let is_its = |frame: &crate::support::frames::Frame| {
            let of_all = frame.kind == GOAWAY && frame.error() == PROTOCOL_ERROR;
            let of_it =
                matches!(frame.kind, GOAWAY | RST_STREAM) && errors.contains(&frame.error());
            of_all || of_it || frame.kind == HEADERS && frame.stream == 101
        };
        match frames.until(is_its) {
            Ok(frame) if frame.kind != HEADERS => {}
            other => wrong.push(format!("{what}: {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    let is_odd = |target: &str| !["/", "/post", "/behind"].contains(&target);
    let seen = recorder.seen();
    assert!(!seen.iter().any(|seen| is_odd(seen.target())), "{seen:?}");
    assert_eq!(
        Frames::open(app.proxy).get(1, "/").outcome(1),
        Outcome::Answered(200)
    );
}

#[test]
fn who_does_not_begin_as_http_2_does_is_not_served() {
    let (app, recorder) = start();
    for begun in [&PREFACE[..20], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r"] {
        let mut frames = Frames::bare(app.proxy);
        let rest = [begun, &frame(SETTINGS, 0, 0, &[]), &get(1, "/")].concat();
        frames.send(&rest);
        assert!(frames.until(|frame| frame.kind == HEADERS).is_err());
    }
    assert!(recorder.seen().is_empty());
}

/// What becomes of a request by HTTP/2 whose upstream is asked in HTTP/1.1.
enum Right {
    /// It is answered 400, or its stream or connection ends by an error; the upstream hears nothing of it.
    Refused,
    /// The upstream is asked for this, for the host `x`.
    Passed(&'static str),
}
use Right::{Passed, Refused};

/// The headers of a request for `/get` with some more.
fn with<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [request("GET", "/get"), more.to_vec()].concat()
}

/// Those of a request with other pseudo-headers.
fn pseudo<'a>(
    method: &'a str,
    scheme: &'a str,
    authority: &'a str,
    path: &'a str,
) -> Vec<(&'a str, &'a str)> {
    vec![
        (":method", method),
        (":scheme", scheme),
        (":authority", authority),
        (":path", path),
    ]
}

/// What it is, the fields of a head, and what is right.
type Hiding<'a> = (&'a str, Vec<(&'a str, &'a str)>, Right);

const HIDDEN: &str = "/get HTTP/1.1\r\nHost: x\r\n\r\nGET /hidden";

#[test]
fn nothing_hides_in_a_head_that_becomes_one_of_http_1() {
    let (app, recorder) = start();
    let cases: Vec<Hiding<'_>> = vec![
        ("a plain one", with(&[]), Passed("/get")),
        ("two paths", with(&[(":path", "/hidden")]), Refused),
        ("two methods", with(&[(":method", "POST")]), Refused),
        ("two authorities", with(&[(":authority", "y")]), Refused),
        ("no path", request("GET", "/get")[..3].to_vec(), Refused),
        ("no method", request("GET", "/get")[1..].to_vec(), Refused),
        (
            "no scheme",
            vec![(":method", "GET"), (":authority", "x"), (":path", "/get")],
            Refused,
        ),
        ("an empty path", pseudo("GET", "http", "x", ""), Refused),
        (
            "a path without a slash",
            pseudo("GET", "http", "x", "hidden"),
            Refused,
        ),
        (
            "a path that is a URL",
            pseudo("GET", "http", "x", "http://y/hidden"),
            Refused,
        ),
        (
            "a path with a blank",
            pseudo("GET", "http", "x", "/get HTTP/1.1"),
            Refused,
        ),
        (
            "a path with a request in it",
            pseudo("GET", "http", "x", HIDDEN),
            Refused,
        ),
        (
            "a path with a LF",
            pseudo("GET", "http", "x", "/get\n/hidden"),
            Refused,
        ),
        (
            "a path with a NUL",
            pseudo("GET", "http", "x", "/get\0"),
            Refused,
        ),
        (
            "a method with a request in it",
            pseudo(
                "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\nGET",
                "http",
                "x",
                "/get",
            ),
            Refused,
        ),
        (
            "a method with a blank",
            pseudo("GET /hidden", "http", "x", "/get"),
            Refused,
        ),
        ("an empty method", pseudo("", "http", "x", "/get"), Refused),
        (
            "an authority with a header in it",
            pseudo("GET", "http", "x\r\nx-hidden: y", "/get"),
            Refused,
        ),
        (
            "an authority with a blank",
            pseudo("GET", "http", "x y", "/get"),
            Refused,
        ),
        (
            "an authority with a path",
            pseudo("GET", "http", "x/hidden", "/get"),
            Refused,
        ),
        (
            "an authority with a user",
            pseudo("GET", "http", "x@y", "/get"),
            Refused,
        ),
        (
            "an empty authority",
            pseudo("GET", "http", "", "/get"),
            Refused,
        ),
        (
            "no authority and no host",
            vec![(":method", "GET"), (":scheme", "http"), (":path", "/get")],
            Refused,
        ),
        (
            "a host alone",
            vec![
                (":method", "GET"),
                (":scheme", "http"),
                (":path", "/get"),
                ("host", "x"),
            ],
            Passed("/get"),
        ),
        (
            "a host that is the authority",
            with(&[("host", "x")]),
            Passed("/get"),
        ),
        (
            "another host than the authority",
            with(&[("host", "y")]),
            Refused,
        ),
        (
            "two hosts",
            vec![
                (":method", "GET"),
                (":scheme", "http"),
                (":path", "/get"),
                ("host", "x"),
                ("host", "y"),
            ],
            Refused,
        ),
        (
            "a pseudo-header that there is not",
            with(&[(":hidden", "a")]),
            Refused,
        ),
        ("one of an answer", with(&[(":status", "200")]), Refused),
        (
            "one behind a header",
            [vec![("x", "a")], request("GET", "/get")].concat(),
            Refused,
        ),
        ("a name in capitals", with(&[("X-Name", "a")]), Refused),
        ("a name with a blank", with(&[("x name", "a")]), Refused),
        ("a name with a colon", with(&[("x:", "a")]), Refused),
        (
            "a name with a header in it",
            with(&[("x\r\nx-hidden", "a")]),
            Refused,
        ),
        ("a name with a NUL", with(&[("x\0", "a")]), Refused),
        ("no name", with(&[("", "a")]), Refused),
        (
            "a value with a header in it",
            with(&[("x", "a\r\nx-hidden: y")]),
            Refused,
        ),
        ("a value with a LF", with(&[("x", "a\nb")]), Refused),
        ("a value with a CR", with(&[("x", "a\rb")]), Refused),
        ("a value with a NUL", with(&[("x", "a\0b")]), Refused),
        (
            "a value with a request in it",
            with(&[("x", "a\r\n\r\nGET /hidden HTTP/1.1\r\nHost: x\r\n\r\n")]),
            Refused,
        ),
        (
            "connection",
            with(&[("connection", "x-name"), ("x-name", "a")]),
            Refused,
        ),
        ("keep-alive", with(&[("keep-alive", "timeout=5")]), Refused),
        (
            "proxy-connection",
            with(&[("proxy-connection", "close")]),
            Refused,
        ),
        (
            "transfer-encoding",
            with(&[("transfer-encoding", "chunked")]),
            Refused,
        ),
        ("upgrade", with(&[("upgrade", "websocket")]), Refused),
        ("te that is no trailers", with(&[("te", "gzip")]), Refused),
        (
            "te for trailers",
            with(&[("te", "trailers")]),
            Passed("/get"),
        ),
        (
            "a length of a body that there is not",
            with(&[("content-length", "5")]),
            Refused,
        ),
        (
            "two lengths",
            with(&[("content-length", "0"), ("content-length", "5")]),
            Refused,
        ),
        (
            "a length with a sign",
            with(&[("content-length", "+0")]),
            Refused,
        ),
        (
            "a length that is none",
            with(&[("content-length", "x")]),
            Refused,
        ),
        (
            "a tunnel",
            vec![(":method", "CONNECT"), (":authority", "x:80")],
            Refused,
        ),
        (
            "a tunnel for a WebSocket",
            [
                pseudo("CONNECT", "http", "x", "/get"),
                vec![(":protocol", "websocket")],
            ]
            .concat(),
            Refused,
        ),
    ];
    let mut wrong = Vec::new();
    for (what, headers, right) in cases {
        let before = recorder.seen().len();
        let mut frames = Frames::open(app.proxy);
        let head = block(&headers);
        frames.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &head));
        let outcome = frames.outcome(1);
        let seen = recorder.seen().split_off(before);
        let targets: Vec<_> = seen.iter().map(|seen| seen.target()).collect();
        let is_right = match right {
            Refused => {
                let is_told = match outcome {
                    Outcome::Answered(status) => matches!(status, 400 | 405),
                    Outcome::Reset(_) | Outcome::Ended(_) | Outcome::Closed => true,
                };
                is_told && seen.is_empty()
            }
            Passed(target) => {
                let is_plain = seen
                    .iter()
                    .all(|seen| seen.values("host") == ["x"] && seen.body.is_empty());
                outcome == Outcome::Answered(200) && targets == [target] && is_plain
            }
        };
        if !is_right {
            let heads: Vec<_> = seen.iter().map(|seen| &seen.head).collect();
            wrong.push(format!(
                "{what}: {outcome:?}, and the upstream saw {heads:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(
        Frames::open(app.proxy).get(1, "/").outcome(1),
        Outcome::Answered(200)
    );
}

#[test]
fn a_body_is_as_long_as_its_head_says_and_trailers_make_no_head() {
    let (app, recorder) = start();
    let told = |length: &str| {
        let headers = [request("POST", "/post"), vec![("content-length", length)]].concat();
        frame(HEADERS, END_HEADERS, 1, &block(&headers))
    };
    let data = |flags: u8, bytes: &[u8]| frame(DATA, flags, 1, bytes);
    let trailers =
        |headers: &[(&str, &str)]| frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(headers));
    for (what, sent) in [
        (
            "more",
            vec![
                told("4"),
                data(END_STREAM, b"bodyGET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"),
            ],
        ),
        (
            "more, in two parts",
            vec![
                told("4"),
                data(0, b"body"),
                data(END_STREAM, b"GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"),
            ],
        ),
        ("less", vec![told("5"), data(END_STREAM, b"body")]),
    ] {
        let mut frames = Frames::open(app.proxy);
        frames.send(&sent.concat());
        let outcome = frames.outcome(1);
        assert_ne!(outcome, Outcome::Answered(200), "{what}");
    }
    assert!(
        recorder.seen().iter().all(|seen| !seen.is_whole),
        "{:?}",
        recorder.seen()
    );

    let asked = |sent: &[Vec<u8>]| {
        let mut frames = Frames::open(app.proxy);
        frames.send(&sent.concat()).outcome(1)
    };
    let plain = [told("4"), data(END_STREAM, b"body")];
    assert_eq!(asked(&plain), Outcome::Answered(200));
    for last in [
        ("x-sum", "1"),
        (":path", "/hidden"),
        ("transfer-encoding", "gzip"),
        ("content-length", "50"),
        ("x", "a\nx-hidden: y"),
    ] {
        let outcome = asked(&[post(1), data(0, b"body"), trailers(&[last])]);
        let is_plain = last.0 == "x-sum";
        assert!(
            !is_plain || outcome == Outcome::Answered(200),
            "{last:?}: {outcome:?}"
        );
    }
    let seen = recorder.seen();
    let whole: Vec<_> = seen.iter().filter(|seen| seen.is_whole).collect();
    assert!(whole.len() >= 2, "{whole:?}");
    for seen in whole {
        assert_eq!((seen.target(), &seen.body[..]), ("/post", &b"body"[..]));
        let hidden = ["x-hidden", "x", "x-sum"].map(|name| seen.values(name).len());
        assert_eq!(hidden, [0; 3], "{seen:?}");
    }
}

/// Most clients that do not know the length beforehand end a body so. A second end of it would be the beginning of what
/// another client asks by the same connection to the upstream, and the answer to it that client's.
#[test]
fn a_body_that_ends_by_an_empty_frame_leaves_nothing_behind_for_the_next_request() {
    let (app, recorder) = start();
    for (number, body) in [&b""[..], b"body", b""].iter().enumerate() {
        let mut frames = Frames::open(app.proxy);
        frames.send(&post(1)).send(&frame(DATA, 0, 1, body));
        frames.send(&frame(DATA, END_STREAM, 1, b""));
        assert_eq!(frames.outcome(1), Outcome::Answered(200));
        assert_eq!(recorder.seen().len(), 2 * number + 1);
        let mut next = Frames::open(app.proxy);
        assert_eq!(next.get(1, "/next").outcome(1), Outcome::Answered(200));
    }
    let seen = recorder.seen();
    let targets: Vec<_> = seen.iter().map(|seen| seen.target()).collect();
    assert_eq!(
        targets,
        ["/post", "/next", "/post", "/next", "/post", "/next"]
    );
}

#[test]
fn cookies_in_parts_are_one_header_to_an_upstream_of_http_1() {
    let (app, recorder) = start();
    let headers = with(&[("cookie", "a=1"), ("cookie", "b=2")]);
    let mut frames = Frames::open(app.proxy);
    frames.send(&frame(
        HEADERS,
        END_HEADERS | END_STREAM,
        1,
        &block(&headers),
    ));
    assert_eq!(frames.outcome(1), Outcome::Answered(200));
    assert_eq!(recorder.seen()[0].values("cookie"), ["a=1; b=2"]);
}

#[test]
fn a_head_that_is_too_large_is_431_or_its_streams_end() {
    let (app, recorder) = start();
    let value = "a".repeat(9000);
    let headers = with(&[("x", &value)]);
    let mut frames = Frames::open(app.proxy);
    frames.send(&frame(
        HEADERS,
        END_HEADERS | END_STREAM,
        1,
        &block(&headers),
    ));
    let outcome = frames.outcome(1);
    assert!(
        matches!(
            outcome,
            Outcome::Answered(431) | Outcome::Reset(_) | Outcome::Ended(_)
        ),
        "{outcome:?}"
    );
    assert!(recorder.seen().is_empty());
}

/// What it is, what comes again and again by its number, and what comes before.
type Flood<'a> = (&'a str, Box<dyn Fn(u32) -> Vec<u8> + 'a>, &'a [u8]);

/// Each in its own connection, against which a fraction of what is sent is allowed.
#[tokio::test]
async fn floods_end_the_connection_and_nobody_else_notices() {
    let (app, recorder) = start();
    let asked = |number: u32, path: &str| get(2 * number + 1, path);
    let cancel = |number: u32| frame(RST_STREAM, 0, 2 * number + 1, &[0, 0, 0, 8]);
    let head = block(&request("GET", "/flood"));
    let floods: [Flood<'_>; 4] = [
        (
            "requests that are given up",
            Box::new(|number| [asked(number, "/flood"), cancel(number)].concat()),
            &[],
        ),
        (
            "a head without an end",
            Box::new(|_| frame(CONTINUATION, 0, 1, b"")),
            &frame(HEADERS, END_STREAM, 1, &head),
        ),
        (
            "a head that grows",
            Box::new(|_| frame(CONTINUATION, 0, 1, &block(&[("x", &"a".repeat(1000))]))),
            &frame(HEADERS, END_STREAM, 1, &head),
        ),
        (
            "data of no bytes",
            Box::new(|_| frame(DATA, 0, 1, b"")),
            &post(1),
        ),
    ];
    for (what, part, begun) in floods {
        let at = app.proxy;
        let sent: Vec<_> = (0..20_000).map(part).collect();
        let begun = begun.to_vec();
        let ended = tokio::task::spawn_blocking(move || flood(at, &begun, &sent));
        let ended = ended.await.expect("no panic");
        assert!(ended, "{what}: it went on to the end");
        assert_eq!(
            Frames::open(app.proxy).get(1, "/").outcome(1),
            Outcome::Answered(200),
            "{what}"
        );
    }
    eventually("what was begun has ended", async || {
        app.metric("slidegate_connections ").await == 0.0
    })
    .await;
    let flooded = recorder
        .seen()
        .iter()
        .filter(|seen| seen.target() == "/flood")
        .count();
    assert!(flooded < 1000, "the upstream was asked {flooded} times");
}

/// Whether the connection was ended by an error while this was sent.
fn flood(at: SocketAddr, begun: &[u8], sent: &[Vec<u8>]) -> bool {
    let mut frames = Frames::open(at);
    frames.send(begun);
    for part in sent.chunks(100) {
        frames.send(&part.concat());
    }
    // Answered only by whoever took all of that.
    frames.send(&frame(PING, 0, 0, b"the last"));
    let told =
        frames.until(|frame| frame.kind == PING || frame.kind == GOAWAY && frame.error() != 0);
    match told {
        Ok(frame) if frame.kind == GOAWAY => {
            let error = frame.error();
            matches!(error, ENHANCE_YOUR_CALM | PROTOCOL_ERROR)
        }
        Ok(_) => false,
        Err(_) => true,
    }
}

#[test]
fn more_streams_than_are_granted_are_refused_and_may_be_tried_again() {
    let (app, _recorder) = start();
    let mut frames = Frames::open(app.proxy);
    let settings = frames
        .until(|frame| frame.kind == SETTINGS)
        .expect("settings");
    let granted = settings
        .payload
        .chunks(6)
        .find(|setting| setting[..2] == [0, 3]);
    let granted = granted
        .expect("it says how many")
        .last_chunk::<4>()
        .expect("a number");
    let granted = u32::from_be_bytes(*granted);
    assert_eq!(granted, 100);
    // The client's acknowledgement makes them binding.
    frames.send(&frame(SETTINGS, ACK, 0, &[]));
    for number in 0..=granted {
        frames.send(&post(2 * number + 1));
    }
    let refused = 7;
    assert_eq!(frames.outcome(2 * granted + 1), Outcome::Reset(refused));
    frames.send(&frame(DATA, END_STREAM, 1, b"body"));
    assert_eq!(
        frames.outcome(1),
        Outcome::Answered(200),
        "the others go on"
    );
}

/// By clients that share no code with the server: many streams on few connections, and a body each.
#[test]
fn nghttp2s_clients_are_answered_every_time() {
    let (upstream, authority) = (Upstream::start(), Authority::new());
    let certified = authority.certify("server", "IP:127.0.0.1");
    let app = App::start_with_files(&format!(
        "listen: [{{address: \"127.0.0.1:0\", h2c: true}}, {}]\nupstream: {{address: \"{}\"}}\n\
         policies: [{{name: per-ip, limits: [1000000/366d]}}]\n",
        tls_listener(&[&certified], ""),
        upstream.address
    ));
    let body = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(body.path(), vec![b'x'; 100_000]).expect("written");
    let tls = app.listeners[1];
    for url in [
        format!("http://{}/", app.listeners[0]),
        format!("https://{tls}/"),
    ] {
        let upload = format!("--data={}", body.path().display());
        for more in [&[][..], &[&*upload][..]] {
            let mut h2load = Command::new("h2load");
            h2load.args([
                "--requests=1000",
                "--clients=4",
                "--max-concurrent-streams=32",
            ]);
            let output = h2load.args(more).arg(&url).output();
            let output = output.expect("h2load runs: `make test` installs it");
            let told = String::from_utf8_lossy(&output.stdout).into_owned();
            let all = "1000 total, 1000 started, 1000 done, 1000 succeeded, 0 failed, 0 errored, 0 timeout";
            assert!(told.contains(all), "{url} {more:?}: {told}");
            assert!(told.contains("status codes: 1000 2xx"), "{told}");
        }
        let mut nghttp = Command::new("nghttp");
        let output = nghttp
            .args(["--verbose", "--no-verify-peer"])
            .arg(&url)
            .output();
        let output = output.expect("nghttp runs: `make test` installs it");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && told.contains(":status: 200"),
            "{url}: {told}"
        );
        for trouble in ["RST_STREAM", "[ERROR]", "error_code=PROTOCOL"] {
            assert!(!told.contains(trouble), "{url}: {told}");
        }
    }
}
