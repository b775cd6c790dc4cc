//! A relay between a proxy and its Redis that remembers what Redis answered.

use std::{
    io::{Cursor, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
};

use parking_lot::Mutex;
use redis::Value;

/// Relays connections to `target` as they come.
pub struct Relay {
    pub address: SocketAddr,
    /// What came back, by connection.
    answers: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Relay {
    pub fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound listener");
        let answers = Arc::new(Mutex::new(Vec::new()));
        let record = answers.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                relay(client.expect("a connection"), target, record.clone());
            }
        });
        Self { address, answers }
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Every answer so far, of all connections.
    pub fn answers(&self) -> Vec<Value> {
        let connections = self.answers.lock();
        connections.iter().flat_map(|bytes| parse(bytes)).collect()
    }
}

fn relay(client: TcpStream, target: SocketAddr, record: Arc<Mutex<Vec<Vec<u8>>>>) {
    let server = TcpStream::connect(target).expect("Redis answers");
    let clone = |stream: &TcpStream| stream.try_clone().expect("a second handle");
    let (from_client, to_server) = (clone(&client), clone(&server));
    let index = {
        let mut connections = record.lock();
        connections.push(Vec::new());
        connections.len() - 1
    };
    std::thread::spawn(move || copy(from_client, to_server, |_| {}));
    std::thread::spawn(move || {
        copy(server, client, |bytes| {
            record.lock()[index].extend_from_slice(bytes)
        });
    });
}

fn copy(mut from: TcpStream, mut to: TcpStream, mut see: impl FnMut(&[u8])) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        see(&buffer[..length]);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    // Either side may be gone already.
    drop(to.shutdown(std::net::Shutdown::Both));
}

fn parse(bytes: &[u8]) -> Vec<Value> {
    let mut reader = Cursor::new(bytes);
    let mut parser = redis::Parser::new();
    let mut values = Vec::new();
    while let Ok(value) = parser.parse_value(&mut reader) {
        values.push(value);
    }
    values
}
