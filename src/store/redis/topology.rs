//! Where the server is that takes the writes.

use std::fmt;

use super::files::Password;

/// How it is found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    /// It is where the URL says.
    #[default]
    Single,
    /// The sentinels tell; the URL's host is the name under which they watch it.
    Sentinel(SentinelSettings),
    /// There are several, and each tells which has which counters. The URL leads to one of them.
    Cluster(ClusterSettings),
}

/// Who tells which servers a cluster has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterSettings {
    /// Asked beside the URL's until the servers are known. Default: none.
    pub addresses: Vec<HostPort>,
}

/// Who tells where the primary is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentinelSettings {
    /// At least one. They are asked in turn.
    pub addresses: Vec<HostPort>,
    /// Who we are to them. Default: whoever connects.
    pub user: Option<String>,
    /// Default: none.
    pub password: Option<Password>,
}

/// Where a server or a sentinel listens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// A name, or an address without brackets.
    pub host: String,
    /// By custom 6379, a sentinel's 26379.
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}
