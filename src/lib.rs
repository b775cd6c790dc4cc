//! x
pub mod clock;
pub mod config;
pub mod limiter;
pub mod metrics;
pub mod policy;
pub mod proxy;
pub mod ratelimit;
pub mod server;
pub mod store;
