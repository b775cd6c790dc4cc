//! How far a connection has got with its request, so that a client that sends the head of one too slowly, or too much
//! of one, can be told from a client that waits.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use pingora::protocols::Digest;

/// Where a connection of HTTP/1 is; shared by the connection, which sees bytes, and the proxy, which sees requests.
#[derive(Debug, Default)]
pub struct Pace(AtomicU8);

/// What a connection is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// The head of a request is awaited, from its first byte on; at first, from the connection on.
    Head = 0,
    /// A request is being served.
    Busy = 1,
    /// A request was served; nothing has come of the next.
    Idle = 2,
}

impl Pace {
    pub(super) fn phase(&self) -> Phase {
        match self.0.load(Ordering::Relaxed) {
            0 => Phase::Head,
            1 => Phase::Busy,
            _ => Phase::Idle,
        }
    }

    pub(super) fn set(&self, phase: Phase) {
        self.0.store(phase as u8, Ordering::Relaxed);
    }

    /// The head of a request on this connection is there.
    pub fn head_is_read(connection: Option<&Digest>) {
        Self::set_of(connection, Phase::Busy);
    }

    /// A request on this connection was served.
    pub fn is_served(connection: Option<&Digest>) {
        Self::set_of(connection, Phase::Idle);
    }

    fn set_of(connection: Option<&Digest>, phase: Phase) {
        let digest = connection.and_then(|digest| digest.proxy_digest.as_ref());
        let ours = digest.and_then(|digest| digest.user_data.as_ref());
        if let Some(pace) = ours.and_then(|ours| ours.downcast_ref::<Arc<Self>>()) {
            pace.set(phase);
        }
    }
}
