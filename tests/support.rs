//! What tests need of the world: servers that are started on free ports and stopped, clients, the binary.

pub mod access_log;
pub mod app;
pub mod binary;
pub mod certificates;
pub mod cluster;
pub mod demand;
pub mod exposition;
pub mod fake_redis;
pub mod frames;
pub mod name_server;
pub mod namespace;
pub mod nginx;
pub mod oracle;
pub mod prometheus;
pub mod random;
pub mod recorder;
pub mod redis;
pub mod relay;
pub mod sentinel;
pub mod skip;
pub mod snapshot;
pub mod talk;
pub mod trace;
pub mod under_requests;
pub mod upstream;
pub mod wire;
