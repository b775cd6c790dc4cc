//! Large bodies both ways: they are passed on, and not kept.

use std::{
    future::poll_fn,
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use slidegate::clock;

use super::{
    report::{Bound, Report},
    scenarios::Scale,
    support::binary::Binary,
    system::resident,
};

/// A gigabyte up and one down, by each version of HTTP that clients speak.
pub fn bodies(scale: &Scale, report: &mut Report) {
    let length = scale.body;
    let upstream = upstream(length);
    for (version, transfer) in [("HTTP/1", by_h1 as Transfer), ("HTTP/2", by_h2)] {
        // One for each, so that what the first left is not taken for the second's.
        let gate = Binary::start_h2c(&format!(
            "upstream: {{address: \"{upstream}\"}}\n\
             store: {{url: \"memory:\"}}\n\
             log: {{level: warn}}\n\
             policies: [{{name: per-ip, limits: [1000/1m]}}]\n"
        ));
        for (what, direction) in [("uploaded", Direction::Up), ("downloaded", Direction::Down)] {
            let started = clock::instant();
            let before = resident(&gate);
            let (arrived, most) = watched(&gate, || transfer(gate.proxy, direction, length));
            let seconds = clock::elapsed(started).as_secs_f64();
            let mut add =
                |what: &str, value, unit, bound| report.add("bodies", what, value, unit, bound);
            add(
                &format!("{version}: bytes {what} that arrived"),
                arrived as f64,
                "B",
                Bound::Exactly(length as f64),
            );
            add(
                "  a second",
                arrived as f64 / 1e6 / seconds,
                "MB",
                Bound::None,
            );
            add("  resident memory before", before, "MB", Bound::None);
            add(
                "  most grown by meanwhile",
                most - before,
                "MB",
                Bound::AtMost(20.0),
            );
        }
    }
}

/// Sends or takes a body of so many bytes through a proxy, and tells how many arrived at the other end.
type Transfer = fn(SocketAddr, Direction, u64) -> u64;

#[derive(Clone, Copy)]
enum Direction {
    Up,
    Down,
}

/// What came of `transfer`, and the most memory that was resident before its end, in MB.
fn watched(gate: &Binary, transfer: impl FnOnce() -> u64) -> (u64, f64) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = resident(gate);
            while !over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(20));
                most = most.max(resident(gate));
            }
            most
        });
        let arrived = transfer();
        over.store(true, Ordering::Relaxed);
        (arrived, watch.join().expect("it watches"))
    })
}

fn by_h1(gate: SocketAddr, direction: Direction, length: u64) -> u64 {
    let mut stream = TcpStream::connect(gate).expect("it listens");
    let head = match direction {
        Direction::Up => format!("POST / HTTP/1.1\r\nHost: soak\r\nContent-Length: {length}\r\n"),
        Direction::Down => "GET / HTTP/1.1\r\nHost: soak\r\n".to_owned(),
    };
    let sent = stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes());
    sent.expect("the head is sent");
    if let Direction::Up = direction {
        send(&mut stream, length).expect("the body is sent");
    }
    let mut answer = BufReader::with_capacity(PIECE.len(), stream);
    let (first, _) = head_of(&mut answer).expect("it answers");
    assert!(first.starts_with("HTTP/1.1 200"), "{first}");
    match direction {
        Direction::Up => {
            let mut told = String::new();
            answer.read_to_string(&mut told).expect("the rest is text");
            told.parse().expect("a number")
        }
        Direction::Down => io::copy(&mut answer, &mut io::sink()).expect("the body comes"),
    }
}

fn by_h2(gate: SocketAddr, direction: Direction, length: u64) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let connected = tokio::net::TcpStream::connect(gate).await;
        let stream = connected.expect("it listens");
        // Else the end of each window waits for an acknowledgement.
        stream.set_nodelay(true).expect("an option");
        // As large windows as browsers have them: with those of the protocol the client would be the slow part.
        let handshake = h2::client::Builder::new()
            .initial_window_size(6 << 20)
            .initial_connection_window_size(15 << 20)
            .handshake::<_, Bytes>(stream);
        let (mut client, connection) = handshake.await.expect("it speaks HTTP/2");
        tokio::spawn(connection);
        let request = Request::builder().uri("http://soak/");
        let request = match direction {
            Direction::Up => request.method("POST").header("content-length", length),
            Direction::Down => request,
        };
        let request = request.body(()).expect("a request");
        let ends = matches!(direction, Direction::Down);
        let (answer, mut body) = client.send_request(request, ends).expect("it is sent");
        let mut left = if ends { 0 } else { length };
        while left > 0 {
            body.reserve_capacity(PIECE.len().min(left as usize));
            // It tells of what is granted anew, and not of what was.
            while body.capacity() == 0 {
                let granted = poll_fn(|context| body.poll_capacity(context)).await;
                granted.expect("the stream is open").expect("it goes on");
            }
            let granted = body.capacity().min(PIECE.len()).min(left as usize);
            left -= granted as u64;
            let piece = Bytes::from_static(&PIECE[..granted]);
            body.send_data(piece, left == 0).expect("it is sent");
        }
        let answer = answer.await.expect("it answers");
        assert_eq!(answer.status(), 200);
        let mut body = answer.into_body();
        let (mut arrived, mut told) = (0, Vec::new());
        while let Some(piece) = body.data().await {
            let piece = piece.expect("the body comes");
            arrived += piece.len() as u64;
            let released = body.flow_control().release_capacity(piece.len());
            released.expect("what came is released");
            if let Direction::Up = direction {
                told.extend_from_slice(&piece);
            }
        }
        match direction {
            Direction::Up => String::from_utf8(told)
                .expect("text")
                .parse()
                .expect("a number"),
            Direction::Down => arrived,
        }
    })
}

/// A server that answers `POST` with how many bytes came, and anything else with so many bytes.
fn upstream(length: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound listener");
    thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that leaves is for the other end of the proxy to notice.
            thread::spawn(move || stream.and_then(|stream| answer(stream, length)));
        }
    });
    address
}

fn answer(mut stream: TcpStream, length: u64) -> io::Result<()> {
    let mut request = BufReader::with_capacity(PIECE.len(), stream.try_clone()?);
    let (first, expected) = head_of(&mut request)?;
    if first.starts_with("POST") {
        let came = io::copy(&mut request.take(expected), &mut io::sink())?.to_string();
        let head = answer_head(came.len() as u64);
        stream.write_all(format!("{head}{came}").as_bytes())
    } else {
        stream.write_all(answer_head(length).as_bytes())?;
        send(&mut stream, length)
    }
}

fn answer_head(length: u64) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")
}

/// The first line of a head, and the length of the body that it names, or 0.
fn head_of(stream: &mut impl BufRead) -> io::Result<(String, u64)> {
    let mut first = String::new();
    stream.read_line(&mut first)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else {
            return Ok((first, length));
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
}

fn send(stream: &mut TcpStream, length: u64) -> io::Result<()> {
    let mut left = length;
    while left > 0 {
        let piece = PIECE.len().min(left as usize);
        stream.write_all(&PIECE[..piece])?;
        left -= piece as u64;
    }
    Ok(())
}

static PIECE: [u8; 1 << 16] = [b'x'; 1 << 16];
