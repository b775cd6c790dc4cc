//! What slidegate promises, tested from outside: one module per promise area, one binary, so that the
//! dependencies are linked once.

mod access_logs;
mod architecture;
mod atomicity;
mod batching;
mod cli;
mod clients;
mod clocks;
mod config;
mod consumers;
mod denial_horizon;
mod differential;
mod documents;
mod end_to_end;
mod failure_modes;
mod manifests;
mod observability;
mod policies;
mod properties;
mod quotas;
mod redis_cluster;
mod redis_credentials;
mod redis_network;
mod redis_outage;
mod redis_sentinel;
mod redis_store;
mod redis_tls;
mod redis_trouble;
mod reload;
mod responses;
mod shutdown;
mod startup;
mod store_conformance;
mod support;
mod upstream;
mod valkey;
