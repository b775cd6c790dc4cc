//! A rate-limiting reverse proxy: sliding window counters in Redis, in front of any HTTP service.
//!
//! The life of a request:
//!
//! 1. [`server`] accepts its connection on one of the workers and hands it to Pingora.
//! 2. [`proxy`] makes a view of it: headers and client.
//! 3. [`policy`] says which policies ask about it and whom each counts, or that none does.
//! 4. [`limiter`] asks the [`store`], which decides by [`ratelimit`] and charges all or nothing, in one call (in
//!    a cluster one for each policy).
//! 5. [`proxy`] sends it to an [`upstream`], or answers 429, and tells the client its limits.
//! 6. [`metrics`] counts what happened; [`observe`] shows it. [`access_log`] tells of single requests, if asked to.
//!
//! Read in this order: [`ratelimit`], [`policy`], [`store`], [`limiter`], [`upstream`], [`proxy`], [`server`], [`config`],
//! [`app`], [`cli`]. Beside the way of a request: [`explain`], for operators by [`admin`]; [`replay`].
//!
//! Dependencies point one way, in short `cli -> app -> proxy -> limiter -> {store, policy} -> ratelimit`; which
//! room may name which is written, and checked, in `tests/architecture.rs`. `ratelimit` and `policy` never read a
//! clock, never wait, and know nothing of Redis, Pingora or YAML. Nothing past `config` sees YAML.

pub mod access_log;
pub mod admin;
pub mod app;
pub mod bounded_log;
pub mod cli;
pub mod clock;
pub mod config;
pub mod explain;
pub mod held;
pub mod limiter;
pub mod metrics;
pub mod observe;
pub mod pem;
pub mod policy;
pub mod proxy;
pub mod ratelimit;
pub mod replay;
pub mod server;
pub mod store;
pub mod upstream;
