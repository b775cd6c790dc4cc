//! Requests that two servers could take for different ones, by bytes that no client would send. The upstream behind sees
//! what they mean beyond doubt, or nothing; whatever follows them on a connection is never taken for a part of them.

use crate::support::{
    app::App,
    recorder::{Recorded, Recorder},
    wire::Wire,
};

fn start() -> (App, Recorder) {
    let recorder = Recorder::start();
    let app = App::start(&format!(
        "bounds: {{header_timeout: 500ms, body_timeout: 500ms}}\n\
         upstream: {{address: \"{}\"}}\npolicies: [{{name: per-ip, limits: [100000/366d]}}]\n",
        recorder.address
    ));
    (app, recorder)
}

/// What becomes of a request.
enum Right {
    /// It is answered 400, or its connection ends without a word; the upstream hears nothing of it.
    Refused,
    /// It is answered 400, and where it ends is beyond doubt: what follows is served. The upstream hears nothing of it.
    Answered,
    /// The upstream gets it once, as this target with this body.
    Passed(&'static str, &'static str),
}
use Right::{Answered, Passed, Refused};

/// What follows each of them: another server's idea of where they end would make a request of a part of it, or none.
const NEXT: &str = "GET /next HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

/// What a smuggler would have the upstream do.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n";

fn post(framing: &str, body: &str) -> String {
    format!("POST /post HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n{body}")
}

fn get(lines: &str) -> String {
    format!("GET /get HTTP/1.1\r\n{lines}\r\n\r\n")
}

fn chunked(body: &str) -> String {
    post("Transfer-Encoding: chunked", body)
}

fn cases() -> Vec<(&'static str, String, Right)> {
    let hidden = format!("0\r\n\r\n{HIDDEN}");
    let length = format!("Content-Length: {}", hidden.len());
    let with = |first: &str, second: &str| post(&format!("{first}\r\n{second}"), &hidden);
    vec![
        // The plain ones, so that what is refused is refused for what it is.
        (
            "a length",
            post("Content-Length: 4", "body"),
            Passed("/post", "body"),
        ),
        (
            "chunks",
            chunked("4\r\nbody\r\n0\r\n\r\n"),
            Passed("/post", "body"),
        ),
        ("no body", get("Host: x"), Passed("/get", "")),
        // Two ways to say how long it is: chunks count, and the connection ends (RFC 9112, 6.1).
        (
            "length, then chunks",
            with(&length, "Transfer-Encoding: chunked"),
            Passed("/post", ""),
        ),
        (
            "chunks, then length",
            with("Transfer-Encoding: chunked", &length),
            Passed("/post", ""),
        ),
        (
            "chunks and length 0",
            with("Transfer-Encoding: chunked", "Content-Length: 0"),
            Passed("/post", ""),
        ),
        // Lengths.
        ("two lengths", with("Content-Length: 0", &length), Refused),
        (
            "two lengths alike",
            post("Content-Length: 4\r\nContent-Length: 4", "body"),
            Answered,
        ),
        (
            "a list of lengths",
            post("Content-Length: 4, 5", "body"),
            Refused,
        ),
        (
            "a list of lengths alike",
            post("Content-Length: 4, 4", "body"),
            Refused,
        ),
        (
            "a length with a sign",
            post("Content-Length: +4", "body"),
            Refused,
        ),
        (
            "a negative length",
            post("Content-Length: -4", "body"),
            Refused,
        ),
        (
            "a length in hex",
            post("Content-Length: 0x4", "body"),
            Refused,
        ),
        (
            "a length with a fraction",
            post("Content-Length: 4.0", "body"),
            Refused,
        ),
        (
            "a length of two words",
            post("Content-Length: 4 4", "body"),
            Refused,
        ),
        ("an empty length", post("Content-Length: ", "body"), Refused),
        (
            "a length beyond all numbers",
            post("Content-Length: 99999999999999999999", "body"),
            Refused,
        ),
        (
            "a length with a letter",
            post("Content-Length: 4b", "body"),
            Refused,
        ),
        (
            "a length quoted",
            post("Content-Length: \"4\"", "body"),
            Refused,
        ),
        // Codings.
        (
            "a coding that is none",
            post("Transfer-Encoding: xchunked", &hidden),
            Refused,
        ),
        (
            "identity",
            post("Transfer-Encoding: identity", &hidden),
            Refused,
        ),
        (
            "chunked, identity",
            post("Transfer-Encoding: chunked, identity", &hidden),
            Refused,
        ),
        (
            "identity, chunked",
            post("Transfer-Encoding: identity, chunked", &hidden),
            Refused,
        ),
        (
            "gzip, chunked",
            post("Transfer-Encoding: gzip, chunked", &hidden),
            Refused,
        ),
        (
            "chunked twice",
            post("Transfer-Encoding: chunked, chunked", &hidden),
            Refused,
        ),
        (
            "two lines of codings",
            with("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
            Refused,
        ),
        (
            "two lines of chunked",
            with("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
            Refused,
        ),
        (
            "a quoted coding",
            post("Transfer-Encoding: \"chunked\"", &hidden),
            Refused,
        ),
        (
            "an empty coding",
            post("Transfer-Encoding: ", &hidden),
            Refused,
        ),
        (
            "a coding with a parameter",
            post("Transfer-Encoding: chunked;q=1", &hidden),
            Refused,
        ),
        (
            "a coding behind a vertical tab",
            post("Transfer-Encoding: \u{b}chunked", &hidden),
            Refused,
        ),
        (
            "a coding in another case",
            post("Transfer-Encoding: CHUNKED", "4\r\nbody\r\n0\r\n\r\n"),
            Passed("/post", "body"),
        ),
        (
            "a coding behind a tab",
            post("Transfer-Encoding:\tchunked", "4\r\nbody\r\n0\r\n\r\n"),
            Passed("/post", "body"),
        ),
        ("chunks in HTTP/1.0", hidden_in_1_0(&hidden), Refused),
        // Headers.
        (
            "a blank before a colon",
            post("Content-Length : 4", "body"),
            Refused,
        ),
        (
            "a blank before the coding's colon",
            with("Transfer-Encoding : chunked", &length),
            Refused,
        ),
        (
            "a blank before the first header",
            get(" Host: x\r\nHost: x"),
            Refused,
        ),
        ("a folded header", get("Host: x\r\nx: a\r\n b"), Refused),
        (
            "a folded coding",
            post("Transfer-Encoding:\r\n chunked", &hidden),
            Refused,
        ),
        (
            "a header without a colon",
            get("Host: x\r\nnothing"),
            Refused,
        ),
        (
            "a header without a name",
            get("Host: x\r\n: value"),
            Refused,
        ),
        ("a NUL in a value", get("Host: x\r\nx: a\0b"), Refused),
        ("a NUL in a name", get("Host: x\r\nx\0: a"), Refused),
        (
            "a lone CR in a value",
            get("Host: x\r\nx: a\rContent-Length: 4"),
            Refused,
        ),
        (
            "a name of other letters",
            get("Host: x\r\nContent-L\u{e9}ngth: 4"),
            Refused,
        ),
        // Lines.
        (
            "lines that end by LF",
            HIDDEN.replace("\r\n", "\n").replace("hidden", "get"),
            Passed("/get", ""),
        ),
        (
            "a lone CR at the end of a line",
            "GET /get HTTP/1.1\rHost: x\r\n\r\n".to_owned(),
            Refused,
        ),
        (
            "another version",
            "GET /get HTTP/1.2\r\nHost: x\r\n\r\n".to_owned(),
            Refused,
        ),
        (
            "HTTP/2 in words",
            "GET /get HTTP/2.0\r\nHost: x\r\n\r\n".to_owned(),
            Refused,
        ),
        (
            "no version",
            "GET /get\r\nHost: x\r\n\r\n".to_owned(),
            Refused,
        ),
        (
            // Handed on in the only way in which it can be.
            "a blank in the target",
            "GET /get /hidden HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
            Passed("/get%20/hidden", ""),
        ),
        (
            "a tab in the target",
            "GET /get\t/hidden HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
            Passed("/get%09/hidden", ""),
        ),
        // Hosts.
        ("two hosts", get("Host: x\r\nHost: y"), Refused),
        ("no host", get("x: a"), Answered),
        ("a host with a blank", get("Host: x y"), Answered),
        ("a host with a path", get("Host: x/hidden"), Answered),
        ("a host with a user", get("Host: x@y"), Refused),
        (
            "another host in the target",
            "GET http://y/get HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
            Refused,
        ),
        // Chunks.
        (
            "a size that is none",
            chunked("x\r\nbody\r\n0\r\n\r\n"),
            Refused,
        ),
        (
            "a size in another notation",
            chunked("0x4\r\nbody\r\n0\r\n\r\n"),
            Refused,
        ),
        (
            "a size with a sign",
            chunked("+4\r\nbody\r\n0\r\n\r\n"),
            Refused,
        ),
        (
            "a negative size",
            chunked("-4\r\nbody\r\n0\r\n\r\n"),
            Refused,
        ),
        // The end of all chunks, as Pingora's parser has it.
        (
            "an empty size",
            chunked("\r\nbody\r\n0\r\n\r\n"),
            Passed("/post", ""),
        ),
        (
            "a size beyond all numbers",
            chunked("fffffffffffffffff\r\nbody\r\n0\r\n\r\n"),
            Refused,
        ),
        (
            "a chunk that is longer than its size",
            chunked("4\r\nbodyX\r\n0\r\n\r\n"),
            Refused,
        ),
        (
            "a chunk that is shorter than its size",
            chunked("5\r\nbody\r\n0\r\n\r\n"),
            Refused,
        ),
        (
            "a chunk whose end is a LF",
            chunked("4\r\nbody\n0\r\n\r\n"),
            Refused,
        ),
        (
            "a size whose line ends by LF",
            chunked("4\nbody\r\n0\r\n\r\n"),
            Refused,
        ),
        (
            "a size behind a blank",
            chunked(" 4\r\nbody\r\n0\r\n\r\n"),
            Refused,
        ),
        (
            "an extension",
            chunked("4;name=value\r\nbody\r\n0\r\n\r\n"),
            Passed("/post", "body"),
        ),
        (
            "an extension with a lone LF",
            chunked("4;a\nbody\r\n0\r\n\r\n"),
            Refused,
        ),
        (
            "an extension with a lone CR",
            chunked("4;a\rb\r\nbody\r\n0\r\n\r\n"),
            Refused,
        ),
        (
            "trailers",
            chunked("4\r\nbody\r\n0\r\nx: a\r\n\r\n"),
            Passed("/post", "body"),
        ),
        (
            "a trailer that is a header",
            chunked("4\r\nbody\r\n0\r\nContent-Length: 50\r\n\r\n"),
            Passed("/post", "body"),
        ),
        // Upgrades that nobody granted.
        (
            "an upgrade that is refused",
            get("Host: x\r\nConnection: Upgrade\r\nUpgrade: websocket"),
            Passed("/get", ""),
        ),
        (
            "an upgrade to HTTP/2",
            get(
                "Host: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
            ),
            Passed("/get", ""),
        ),
        (
            "a tunnel",
            "CONNECT y:80 HTTP/1.1\r\nHost: y:80\r\n\r\n".to_owned(),
            Refused,
        ),
    ]
}

fn hidden_in_1_0(hidden: &str) -> String {
    format!("POST /post HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{hidden}")
}

#[test]
fn what_is_doubtful_is_refused_and_nothing_hides_in_what_is_not() {
    let (app, recorder) = start();
    let mut wrong = Vec::new();
    for (what, request, right) in cases() {
        let before = recorder.seen().len();
        let mut wire = Wire::open(app.proxy);
        let answer = wire.send((request + NEXT).as_bytes()).rest();
        let mut seen = recorder.seen().split_off(before);
        // A body that turns out to be none is cut off: its head was sent by then.
        seen.retain(|seen| seen.is_whole);
        if let Err(fault) = judge(&answer, &seen, &right) {
            let heads: Vec<_> = seen.iter().map(|seen| &seen.head).collect();
            let statuses: Vec<_> = answer
                .split("HTTP/1.1 ")
                .map(|part| &part[..part.len().min(3)])
                .collect();
            wrong.push(format!(
                "{what}: {fault}: {statuses:?}, and the upstream saw {heads:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    let clean = Wire::open(app.proxy).send(NEXT.as_bytes()).response();
    assert!(clean.ends_with("/next"), "others are served on: {clean}");
}

/// What is wrong with an answer and what the upstream saw.
fn judge(answer: &str, seen: &[Recorded], right: &Right) -> Result<(), &'static str> {
    if seen.iter().any(|seen| seen.head.starts_with("NO REQUEST")) {
        return Err("the upstream got what is no request");
    }
    let targets: Vec<_> = seen.iter().map(Recorded::target).collect();
    if targets.contains(&"/hidden") {
        return Err("what was hidden was found");
    }
    if seen.iter().any(|seen| seen.values("host") != ["x"]) {
        return Err("another host");
    }
    match right {
        Refused if !seen.is_empty() => Err("not refused"),
        Refused if answer.contains("HTTP/1.1 2") => Err("answered"),
        Refused => Ok(()),
        Answered if !answer.starts_with("HTTP/1.1 400 ") => Err("not answered 400"),
        Answered if targets != ["/next"] => Err("another than the next was seen"),
        Answered => Ok(()),
        Passed(target, body) => {
            let Some((first, rest)) = seen.split_first() else {
                return Err("not passed");
            };
            if first.target() != *target || first.body != body.as_bytes() {
                return Err("passed as something else");
            }
            // The next one is served behind it, or not at all.
            match rest {
                [] => Ok(()),
                [next] if next.target() == "/next" && next.body.is_empty() => Ok(()),
                _ => Err("more was seen than was sent"),
            }
        }
    }
}

/// By connections to the upstream that are kept: what one client leaves behind is not before another's request.
#[test]
fn what_one_client_did_not_finish_is_no_part_of_anothers_request() {
    let (app, recorder) = start();
    for part in [
        "POST /part HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\npart",
        "POST /part HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n64\r\npart",
        "POST /part HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n",
        "POST /part HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\nx\r\n",
        "POST /at-once HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\npart",
    ] {
        let kept = Wire::open(app.proxy).send(NEXT.as_bytes()).response();
        assert!(kept.ends_with("/next"), "{kept}");
        let mut wire = Wire::open(app.proxy);
        wire.send(part.as_bytes());
        drop(wire);
        for _ in 0..3 {
            let answer = Wire::open(app.proxy).send(NEXT.as_bytes()).response();
            assert!(answer.starts_with("HTTP/1.1 200 "), "{part:?}: {answer}");
            assert!(answer.ends_with("/next"), "{part:?}: {answer}");
        }
    }
    let seen = recorder.seen();
    let whole = seen.iter().filter(|seen| seen.is_whole);
    for seen in whole.filter(|seen| seen.target() != "/at-once") {
        assert_eq!((seen.target(), seen.body.len()), ("/next", 0), "{seen:?}");
    }
}
