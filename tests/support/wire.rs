//! Bytes on a connection, for what a well-behaved client would hide.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// A plain connection; reads give up after a bound, so that no test hangs.
pub struct Wire(TcpStream);

impl Wire {
    pub fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a timeout");
        Self(stream)
    }

    pub fn send(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.write_all(bytes).expect("bytes are sent");
        self
    }

    /// One response: its head, and as many bytes of body as it announces.
    pub fn response(&mut self) -> String {
        self.response_to("GET")
    }

    /// One response to a request with `method`.
    pub fn response_to(&mut self, method: &str) -> String {
        let mut text = String::new();
        while !text.ends_with("\r\n\r\n") {
            match self.byte() {
                Some(byte) => text.push(char::from(byte)),
                None => return text,
            }
        }
        let length = text
            .lines()
            .find_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("content-length:")
                    .map(str::to_owned)
            })
            .and_then(|length| length.trim().parse().ok())
            .unwrap_or(0);
        if method != "HEAD" {
            for _ in 0..length {
                text.push(char::from(self.byte().expect("as much body as announced")));
            }
        }
        text
    }

    /// What comes up to and with `end`.
    pub fn until(&mut self, end: &str) -> String {
        let mut text = String::new();
        while !text.ends_with(end) {
            text.push(char::from(self.byte().expect("more comes")));
        }
        text
    }

    /// Everything until the other side closes.
    pub fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        while let Some(byte) = self.byte() {
            bytes.push(byte);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Whether the other side ends the connection, nothing more to say, and does not break it.
    pub fn ends_in_order(&mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(0))
    }

    fn byte(&mut self) -> Option<u8> {
        let mut byte = [0];
        match self.0.read(&mut byte) {
            Ok(0) => None,
            Ok(_) => Some(byte[0]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("no byte came: {error}"),
        }
    }
}
