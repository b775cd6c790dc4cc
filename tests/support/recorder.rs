//! An upstream of its own, strict parser: it keeps each request as the bytes that came, and says what it took it for.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
};

use parking_lot::Mutex;

/// A running recorder; it ends with the test.
pub struct Recorder {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Recorded>>>,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Its first line and its headers, as they came.
    pub head: String,
    /// Without what frames it.
    pub body: Vec<u8>,
    /// Whether all of it came before the connection ended.
    pub is_whole: bool,
}

impl Recorded {
    /// Its target.
    pub fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// The values of the headers of this name.
    pub fn values(&self, name: &str) -> Vec<&str> {
        values(&self.head, name)
    }
}

impl Recorder {
    /// Starts it on a free port.
    ///
    /// It answers 200 with the target as the body, when it has the whole request. At `/continue` it asks for the body
    /// by a 100 first, at `/at-once` it answers 403 to the head and closes. Of what no server may take it says so by
    /// 400, closes, and keeps what it got as the head.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound listener");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (kept, stream) = (kept.clone(), stream.expect("a connection"));
                // Whoever hangs up is of no interest.
                std::thread::spawn(move || drop(serve(stream, &kept)));
            }
        });
        Self { address, seen }
    }

    pub fn seen(&self) -> Vec<Recorded> {
        self.seen.lock().clone()
    }
}

/// What stands before the head of what no server may take.
pub const NO_REQUEST: &str = "NO REQUEST: ";

fn serve(stream: TcpStream, seen: &Mutex<Vec<Recorded>>) -> io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    while let Some(head) = read_head(&mut reader)? {
        let mut request = Recorded {
            head,
            body: Vec::new(),
            is_whole: true,
        };
        let target = request.target().to_owned();
        if target.starts_with("/at-once") {
            seen.lock().push(request);
            let answer =
                "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno";
            writer.write_all(answer.as_bytes())?;
            writer.shutdown(std::net::Shutdown::Write)?;
            // Until the other side has read it: unread bytes would reset the connection.
            io::copy(&mut reader, &mut io::sink())?;
            return Ok(());
        }
        if target.starts_with("/continue") {
            writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let framing = framing(&request.head);
        let body = framing.and_then(|framing| read_body(&mut reader, framing));
        let body = match body {
            Ok(body) => body,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                request.head.insert_str(0, NO_REQUEST);
                seen.lock().push(request);
                let answer =
                    "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                return writer.write_all(answer.as_bytes());
            }
            Err(error) => {
                request.is_whole = false;
                seen.lock().push(request);
                return Err(error);
            }
        };
        request.body = body;
        seen.lock().push(request.clone());
        let length = target.len();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        let body = if request.head.starts_with("HEAD ") {
            ""
        } else {
            &target
        };
        writer.write_all(format!("{answer}{body}").as_bytes())?;
    }
    Ok(())
}

/// The head of the next request, if there is one.
fn read_head(reader: &mut BufReader<TcpStream>) -> io::Result<Option<String>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if reader.read_until(b'\n', &mut head)? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(String::from_utf8_lossy(&head).into_owned()))
}

enum Framing {
    Length(usize),
    Chunked,
}

/// What RFC 9112, 6.3 leaves of a head that says how long its body is, for whoever takes nothing that is doubtful.
fn framing(head: &str) -> io::Result<Framing> {
    let refused = || io::Error::from(io::ErrorKind::InvalidData);
    let lines = head.split("\r\n").skip(1).filter(|line| !line.is_empty());
    for line in lines {
        let name = line.split_once(':').ok_or_else(refused)?.0;
        let is_token = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_token || line.contains(['\r', '\n', '\0']) {
            return Err(refused());
        }
    }
    match (
        &values(head, "transfer-encoding")[..],
        &values(head, "content-length")[..],
    ) {
        ([], []) => Ok(Framing::Length(0)),
        ([], [length]) if length.bytes().all(|byte| byte.is_ascii_digit()) => {
            length.parse().map(Framing::Length).map_err(|_| refused())
        }
        ([coding], []) if coding.eq_ignore_ascii_case("chunked") => Ok(Framing::Chunked),
        _ => Err(refused()),
    }
}

fn read_body(reader: &mut BufReader<TcpStream>, framing: Framing) -> io::Result<Vec<u8>> {
    let refused = || io::Error::from(io::ErrorKind::InvalidData);
    let mut body = Vec::new();
    let mut take = |reader: &mut BufReader<TcpStream>, length: usize| {
        let before = body.len();
        body.resize(before + length, 0);
        reader.read_exact(&mut body[before..])
    };
    match framing {
        Framing::Length(length) => take(reader, length)?,
        Framing::Chunked => loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            if line.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let size = line.strip_suffix("\r\n").ok_or_else(refused)?;
            let size = usize::from_str_radix(size, 16).map_err(|_| refused())?;
            take(reader, size)?;
            let mut end = [0; 2];
            reader.read_exact(&mut end)?;
            if &end != b"\r\n" {
                return Err(refused());
            }
            if size == 0 {
                break;
            }
        },
    }
    Ok(body)
}

fn values<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let lines = head.split("\r\n").skip(1);
    let lines = lines.filter_map(|line| line.split_once(':'));
    let found = lines.filter(|(found, _)| found.trim().eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.trim()).collect()
}
