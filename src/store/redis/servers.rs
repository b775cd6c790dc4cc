//! Which server is asked about a demand: the only one, or in a cluster the one that has its slot.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::{
    cluster::{Cluster, Redirect, Slot},
    server::Server,
};
use crate::store::{Demand, Health, StoreError};

/// Every server that is asked.
#[derive(Debug)]
pub(super) enum Servers {
    /// It has every counter.
    One(Arc<Server>),
    /// Each has the counters of its slots.
    Cluster(Cluster),
}

/// The way to a server.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) server: Arc<Server>,
    /// As in [`Class`](super::script::Class).
    pub(super) slot: Option<Slot>,
    /// As in [`Class`](super::script::Class).
    pub(super) asking: bool,
    /// Whether another server told the way.
    followed: bool,
}

impl Servers {
    /// The way to the server that has the counters of `demand`. Waits only until the first attempt to
    /// learn a cluster's slots has ended, and not past `until`.
    ///
    /// # Errors
    /// [`StoreError::Disconnected`] if no server is known to have them, [`StoreError::Timeout`] if that is not
    /// known in time.
    pub(super) async fn route(
        &self,
        namespace: &str,
        demand: Option<&Demand<'_>>,
        until: Instant,
    ) -> Result<Route, StoreError> {
        let (server, slot) = match self {
            Self::One(server) => (Arc::clone(server), None),
            Self::Cluster(cluster) => {
                let demand = demand.ok_or(StoreError::Disconnected)?;
                let slot = Slot::of(namespace, demand);
                let server = timeout_at(until, cluster.server(slot)).await;
                (server.unwrap_or(Err(StoreError::Timeout))?, Some(slot))
            }
        };
        Ok(Route {
            server,
            slot,
            asking: false,
            followed: false,
        })
    }

    /// Where a call that failed may be sent once more: nothing was charged, and the server told whom to
    /// ask. `None` for any other error, and for a second one of that kind. In any case the slots are learnt
    /// anew if one has moved.
    pub(super) fn follow(&self, route: &Route, error: &StoreError) -> Option<Route> {
        let (Self::Cluster(cluster), StoreError::Refused(text)) = (self, error) else {
            return None;
        };
        if text.starts_with("CLUSTERDOWN") {
            route.server.doubt(true);
        }
        let redirect = text.parse::<Redirect>().ok()?;
        let told = redirect.at(route.server.at.as_ref()?);
        if !redirect.asking {
            cluster.moved(&told);
        }
        if route.followed {
            return None;
        }
        Some(Route {
            server: cluster.member(&told)?,
            slot: route.slot,
            asking: redirect.asking,
            followed: true,
        })
    }

    /// Whether one call may hold demands of several policies or identifiers.
    pub(super) fn spans_policies(&self) -> bool {
        matches!(self, Self::One(_))
    }

    pub(super) fn health(&self) -> Health {
        match self {
            Self::One(server) => server.health(),
            Self::Cluster(cluster) => cluster.health(),
        }
    }
}
