//! HTTP/2 as frames on a connection, for what a well-behaved client would not send.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// A connection on which the preface was sent, and settings.
pub struct Frames {
    stream: TcpStream,
    /// What came and is not a whole frame yet.
    ahead: Vec<u8>,
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

/// Of SETTINGS and PING.
pub const ACK: u8 = 1;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;
/// Of HEADERS.
pub const WITH_PRIORITY: u8 = 0x20;

/// Error codes of RFC 9113, 7.
pub const NO_ERROR: u32 = 0;
pub const PROTOCOL_ERROR: u32 = 1;
pub const FLOW_CONTROL_ERROR: u32 = 3;
pub const STREAM_CLOSED: u32 = 5;
pub const FRAME_SIZE_ERROR: u32 = 6;
pub const COMPRESSION_ERROR: u32 = 9;
pub const ENHANCE_YOUR_CALM: u32 = 11;

/// How a client begins.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A block of headers, none of which is kept in a table.
pub fn block(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers {
        block.push(0);
        for text in [name, value] {
            length(&mut block, text.len());
            block.extend(text.as_bytes());
        }
    }
    block
}

/// A number in seven bits and as many bytes more as it needs (RFC 7541, 5.1).
fn length(block: &mut Vec<u8>, length: usize) {
    let Some(mut rest) = length.checked_sub(127) else {
        return block.push(length as u8);
    };
    block.push(127);
    while rest >= 128 {
        block.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    block.push(rest as u8);
}

/// Those of a request.
pub fn request<'a>(method: &'a str, path: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        (":method", method),
        (":scheme", "http"),
        (":authority", "x"),
        (":path", path),
    ]
}

impl Frames {
    /// Connects, and begins as clients do.
    pub fn open(address: SocketAddr) -> Self {
        let mut frames = Self::bare(address);
        frames.send(PREFACE).send(&frame(SETTINGS, 0, 0, &[]));
        frames
    }

    /// Connects, and says nothing.
    pub fn bare(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        let patience = Some(Duration::from_secs(20));
        stream.set_read_timeout(patience).expect("a timeout");
        Self {
            stream,
            ahead: Vec::new(),
        }
    }

    /// Sends bytes; that the other side has closed shows when it is read.
    pub fn send(&mut self, bytes: &[u8]) -> &mut Self {
        drop(self.stream.write_all(bytes));
        self
    }

    /// Asks for `path` by GET.
    pub fn get(&mut self, stream: u32, path: &str) -> &mut Self {
        let block = block(&request("GET", path));
        self.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &block))
    }

    /// The next frame; `None` if the connection ended.
    pub fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(head) = self.ahead.first_chunk::<9>() {
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                let frame = Frame {
                    kind: head[3],
                    flags: head[4],
                    stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
                    payload: self.ahead.get(9..9 + length).unwrap_or_default().to_vec(),
                };
                if self.ahead.len() >= 9 + length {
                    self.ahead.drain(..9 + length);
                    return Some(frame);
                }
            }
            let mut more = [0; 16 * 1024];
            match self.stream.read(&mut more) {
                Ok(0) => return None,
                Ok(length) => self.ahead.extend(&more[..length]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no frame came: {error}"),
            }
        }
    }

    /// The next frame that is `wanted`; others are passed over. Where the connection ends first, an end is what came.
    pub fn until(&mut self, wanted: impl Fn(&Frame) -> bool) -> Result<Frame, Vec<Frame>> {
        let mut others = Vec::new();
        while let Some(frame) = self.next() {
            if wanted(&frame) {
                return Ok(frame);
            }
            others.push(frame);
        }
        Err(others)
    }

    /// What comes of a stream: its status, or the error it is reset by; or that by which all of them end.
    pub fn outcome(&mut self, stream: u32) -> Outcome {
        let ends = |frame: &Frame| {
            let is_its = frame.stream == stream && matches!(frame.kind, HEADERS | RST_STREAM);
            // One that has no error only says that no more streams are taken.
            is_its || frame.kind == GOAWAY && frame.error() != NO_ERROR
        };
        match self.until(ends) {
            Ok(frame) if frame.kind == HEADERS => Outcome::Answered(status(&frame.payload)),
            Ok(frame) if frame.kind == RST_STREAM => Outcome::Reset(frame.error()),
            Ok(frame) => Outcome::Ended(frame.error()),
            Err(_) => Outcome::Closed,
        }
    }
}

/// What becomes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With this status.
    Answered(u16),
    /// With this error.
    Reset(u32),
    /// The connection is, with this error.
    Ended(u32),
    /// The connection is, without a word.
    Closed,
}

impl Frame {
    /// The error that it tells of.
    pub fn error(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        let code = self.payload[at..at + 4].try_into();
        u32::from_be_bytes(code.expect("four bytes"))
    }
}

/// The status that a block of headers begins with: one of the table that everybody has, or three digits, which may be
/// coded by Huffman, each in five or six bits.
fn status(block: &[u8]) -> u16 {
    match block {
        [indexed @ 0x88..=0x8e, ..] => {
            [200, 204, 206, 304, 400, 404, 500][usize::from(indexed - 0x88)]
        }
        [_, 3, digits @ ..] if digits.len() >= 3 => {
            let digits = std::str::from_utf8(&digits[..3]);
            digits
                .ok()
                .and_then(|digits| digits.parse().ok())
                .unwrap_or(0)
        }
        [_, coded @ (0x82 | 0x83), rest @ ..] => huffman(&rest[..usize::from(coded & 0x7f)]),
        _ => 0,
    }
}

/// Digits of HPACK's code (RFC 7541, B): 0 to 2 are 00000 to 00010, 3 to 9 are 011001 to 011111.
fn huffman(coded: &[u8]) -> u16 {
    let bits: Vec<u8> = coded
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1))
        .collect();
    let (mut number, mut at) = (0, 0);
    for _ in 0..3 {
        let read = |length: usize| {
            bits[at..at + length]
                .iter()
                .fold(0, |sum, bit| sum << 1 | u16::from(*bit))
        };
        let (digit, length) = match read(5) {
            short @ 0..=2 => (short, 5),
            _ => (read(6) - 0b01_1001 + 3, 6),
        };
        (number, at) = (number * 10 + digit, at + length);
    }
    number
}
