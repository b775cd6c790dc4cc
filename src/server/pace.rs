//! How far a connection has got with its requests, so that a client that sends the head of one too slowly, or too much
//! of one, can be told from a client that waits, and one that asks for nothing from both.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use pingora::protocols::Digest;

use crate::clock;

/// Where a connection is; shared by the connection, which sees bytes, and the proxy, which sees requests.
#[derive(Debug)]
pub struct Pace {
    /// Of HTTP/1, which has one request at a time.
    phase: AtomicU8,
    /// How many requests of HTTP/2 are being served.
    serving: AtomicU32,
    /// When the last of them ended, in milliseconds since `begun`.
    served: AtomicU64,
    begun: Instant,
}

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
    pub(super) fn new(phase: Phase) -> Self {
        Self {
            phase: AtomicU8::new(phase as u8),
            serving: AtomicU32::new(0),
            served: AtomicU64::new(0),
            begun: clock::instant(),
        }
    }

    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Head,
            1 => Phase::Busy,
            _ => Phase::Idle,
        }
    }

    pub(super) fn set(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
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
        if let Some(pace) = Self::of(connection) {
            pace.set(phase);
        }
    }

    fn of(connection: Option<&Digest>) -> Option<&Arc<Self>> {
        let digest = connection.and_then(|digest| digest.proxy_digest.as_ref());
        let ours = digest.and_then(|digest| digest.user_data.as_ref());
        ours.and_then(|ours| ours.downcast_ref())
    }

    /// Since when no request of HTTP/2 is being served: now, if one is.
    pub(super) fn idle_since(&self) -> Instant {
        if self.serving.load(Ordering::Relaxed) > 0 {
            return clock::instant();
        }
        self.begun + Duration::from_millis(self.served.load(Ordering::Relaxed))
    }
}

/// A request of HTTP/2 that is being served, until this is dropped.
#[derive(Debug)]
pub struct InFlight(Arc<Pace>);

impl InFlight {
    /// One more on this connection.
    pub fn on(connection: Option<&Digest>) -> Option<Self> {
        let pace = Pace::of(connection)?.clone();
        pace.serving.fetch_add(1, Ordering::Relaxed);
        Some(Self(pace))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Self(pace) = self;
        let millis = clock::elapsed(pace.begun).as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        pace.served.store(millis, Ordering::Relaxed);
        pace.serving.fetch_sub(1, Ordering::Relaxed);
    }
}
