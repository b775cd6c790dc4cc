//! Which server is asked about a demand: the only one, or in a cluster the one that has its slot.

use std::sync::Arc;

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
    /// Calls go there alone that share it; `None` where one server has every counter.
    pub(super) slot: Option<Slot>,
    /// Whether the server has the slot only for those who ask for it by name: it is on its way there.
    pub(super) asking: bool,
    followed: bool,
}

impl Servers {
    /// The way to the server that has the counters of `demand`. Waits only until the first attempt to
    /// learn a cluster's slots has ended.
    ///
    /// # Errors
    /// [`StoreError::Disconnected`] if no server is known to have them.
    pub(super) async fn route(
        &self,
        namespace: &str,
        demand: &Demand<'_>,
    ) -> Result<Route, StoreError> {
        let (server, slot) = match self {
            Self::One(server) => (Arc::clone(server), None),
            Self::Cluster(cluster) => {
                let slot = Slot::of(namespace, demand);
                (cluster.server(slot).await?, Some(slot))
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
    /// ask. `None` for any other error, and for a second one of that kind.
    pub(super) fn follow(&self, route: &Route, error: &StoreError) -> Option<Route> {
        let (Self::Cluster(cluster), StoreError::Refused(text)) = (self, error) else {
            return None;
        };
        let redirect = text.parse::<Redirect>().ok()?;
        let server = cluster.redirected(&redirect, &route.server);
        (!route.followed).then_some(Route {
            server,
            slot: route.slot,
            asking: redirect.asking,
            followed: true,
        })
    }

    /// Whether one call may hold demands of several policies and identifiers.
    pub(super) fn span_policies(&self) -> bool {
        matches!(self, Self::One(_))
    }

    pub(super) fn health(&self) -> Health {
        match self {
            Self::One(server) => server.health(),
            Self::Cluster(cluster) => cluster.health(),
        }
    }
}
