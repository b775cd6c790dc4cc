//! Something that speaks as Redis does and answers as the test says.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
};

/// A server on a free port; it ends with the test's process.
pub struct FakeRedis {
    address: SocketAddr,
}

impl FakeRedis {
    /// One that answers each command, its words joined by blanks, with what `answer` makes of it, in
    /// Redis's protocol without the last line end; or never, on `None`.
    pub fn start(answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answer = Arc::clone(&answer);
                thread::spawn(move || converse(&stream, &*answer));
            }
        });
        Self { address }
    }

    /// Host and port.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// As a URL.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }
}

/// Until the peer hangs up.
fn converse(stream: &TcpStream, answer: &dyn Fn(&str) -> Option<String>) {
    let mut reader = BufReader::new(stream);
    while let Some(command) = read_command(&mut reader) {
        if let Some(text) = answer(&command) {
            let mut writer = stream;
            if writer.write_all(format!("{text}\r\n").as_bytes()).is_err() {
                return;
            }
        }
    }
}

fn read_command(reader: &mut impl BufRead) -> Option<String> {
    let words = read_number(reader, '*')?;
    let mut command = Vec::new();
    for _ in 0..words {
        let length = read_number(reader, '$')?;
        let mut word = vec![0; length + 2];
        reader.read_exact(&mut word).ok()?;
        word.truncate(length);
        command.push(String::from_utf8_lossy(&word).into_owned());
    }
    Some(command.join(" "))
}

fn read_number(reader: &mut impl BufRead, mark: char) -> Option<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    line.trim_end().strip_prefix(mark)?.parse().ok()
}
