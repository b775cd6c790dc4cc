//! From sections of the file to the settings of every component: one file per part of it.
//!
//! Every part is read to its end whatever is wrong with it, so that one run finds every fault; only then
//! is a missing part a reason to stop.

mod access_log;
mod audit;
mod bounds;
mod forwarding;
mod gate;
mod identifier;
mod identity;
mod listener;
mod listeners;
mod log;
mod matching;
mod near_limit;
mod policy;
mod redis;
mod responses;
mod store;
mod tiers;
mod upstream;
mod warnings;

use self::matching::Earlier;
use super::{Config, ShownSettings, leaf, section::Section, values::Values};
use crate::{
    limiter::LimiterSettings,
    policy::{Apply, Consumers},
};

/// The configuration that `root` holds. `None` if there are faults without which it has no meaning.
pub fn build(root: &mut Section<'_>) -> Option<Config> {
    let mut server = listeners::read(root);
    let bounds = root.section("bounds", bounds::read);
    let admin_token = listeners::admin_token(root, &server);
    let upstreams = upstream::read(root, &server);
    let store = root.section("store", store::read);
    let identity = root.section("identity", identity::read).unwrap_or_default();
    let forwarding = root.section("forwarding", forwarding::read);
    let responses = root.section("responses", responses::read);
    let near_limit_edges = root.section("near_limit", near_limit::edges);
    let audit = root.section("audit", |section| {
        audit::read(section, store.as_ref(), &identity.hasher)
    });
    let log = root.section("log", log::read);
    let lines = log.as_ref().map(|log| log.lines);
    let access_log = root.section("access_log", access_log::read);
    let apply = root.word("apply", Apply::default(), leaf::choice);
    let lists = gate::read(root, &identity);
    let policies = policy::read_all(root, &identity, Earlier::new(apply, &lists));

    let (bounds, requests, census) = bounds?;
    (server.bounds, server.census) = (bounds, census);
    let store = store?;
    let policies = policies?;
    let upstreams = upstreams?;
    let audited = audit.as_ref().is_some_and(Option::is_some);
    let log = log?;
    let mut warnings = warnings::of(&policies, apply, &lists, &store, &identity, audited);
    warnings.extend(warnings::about_the_log(&log.level));
    Some(Config {
        server,
        requests,
        admin_token,
        upstreams: upstreams.all,
        routes: upstreams.routes,
        redis: store.redis,
        memory: store.memory,
        limiter: LimiterSettings {
            expected_replicas: store.expected_replicas,
            near_limit_edges: near_limit_edges?,
            denial_cache: store.denial_cache,
            audit: audit?,
            lines: lines.unwrap_or_default(),
        },
        forwarding: forwarding?,
        responses: responses??,
        gate: lists.gate(),
        apply,
        policies,
        clients: identity.clients,
        hasher: identity.hasher,
        consumers_settings: identity.consumers,
        consumers_named: identity.named.into_inner(),
        consumers: Consumers::default(),
        log,
        access_log: access_log?,
        warnings,
        files: Vec::new(),
        values: Values::default(),
        shown: ShownSettings::default(),
    })
}
