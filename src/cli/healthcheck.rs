//! `slidegate healthcheck`: whether the proxy on this machine is alive, for those that can only run a command, as Docker.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use clap::Args;

use crate::{
    config::{Config, ConfigError, Environment},
    observe::{self, AskError, Health},
};

/// Which proxy, and what of it.
#[derive(Debug, Args)]
pub(super) struct Check {
    /// The configuration of the proxy, which says where it serves its health (metrics_listen).
    #[arg(long, short, default_value = "config.yaml")]
    config: PathBuf,
    /// Whether new requests are welcome, too: not so while it stops.
    #[arg(long)]
    ready: bool,
}

/// Why a proxy does not count as well.
#[derive(Debug, thiserror::Error)]
pub(super) enum HealthError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("the system grants no more resources: {0}")]
    Resources(std::io::Error),
    #[error("{address}: {reason}")]
    Unwell {
        address: SocketAddr,
        reason: AskError,
    },
}

/// Asks the proxy of a configuration.
///
/// # Errors
/// If it does not say within two seconds that it is well.
pub(super) fn healthcheck(check: &Check, env: &Environment<'_>) -> Result<(), HealthError> {
    let config = Config::load(&check.config, env)?;
    let address = reachable(config.server.metrics_listen);
    let health = if check.ready {
        Health::Ready
    } else {
        Health::Alive
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(HealthError::Resources)?;
    let asked = runtime.block_on(observe::ask(address, health, PATIENCE));
    asked.map_err(|reason| HealthError::Unwell { address, reason })
}

/// Where who listens everywhere is reached from here.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// Shorter than any interval at which it is asked.
const PATIENCE: Duration = Duration::from_secs(2);
