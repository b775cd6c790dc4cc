//! What is allowed and still worth a word. Nothing here stops a start.

use super::{gate::Lists, identity::IdentitySettings, store::Store};
use crate::{
    config::leaf::nearest,
    policy::{Apply, Charge, HostPattern, IdentifierSource, MatchRule, Mode, PathPattern, Policy},
    store::MAX_AUDITED_QUOTA,
};

/// The warnings about where counters live, under whose name, and about `policies`.
pub fn of(
    policies: &[Policy],
    apply: Apply,
    lists: &Lists,
    store: &Store,
    identity: &IdentitySettings,
    audited: bool,
) -> Vec<String> {
    let mut warnings = about_everybody(lists, store, identity);
    for policy in policies {
        let MatchRule { all, none } = &policy.matches;
        for method in all.methods.iter().chain(&none.methods) {
            warnings.extend(unregistered(&policy.name, method.as_str()));
        }
        if policy.mode == Mode::Enforce {
            warnings.extend(never_admits(policy));
        }
        if audited {
            warnings.extend(too_large_to_audit(policy));
        }
    }
    if audited && !policies.is_empty() && policies.iter().all(is_exact) {
        warnings.push(NOTHING_TO_AUDIT.to_owned());
    }
    let ceilings: Vec<_> = policies
        .iter()
        .filter(|policy| is_ceiling(policy))
        .collect();
    for policy in policies {
        let capped = ceilings.iter().any(|ceiling| {
            let beside = apply == Apply::All || policy.mode == Mode::Shadow;
            beside
                && ceiling.matches.covers(&policy.matches)
                && charges_wherever(&ceiling.charge, &policy.charge)
        });
        if !capped {
            warnings.extend(mints_quota(policy, apply));
        }
    }
    warnings
}

fn about_everybody(lists: &Lists, store: &Store, identity: &IdentitySettings) -> Vec<String> {
    let mut warnings = Vec::new();
    if store.redis.is_some() && !identity.hasher.is_keyed() {
        warnings.push(FIXED_KEY.to_owned());
    }
    if identity.trusts_everybody {
        warnings.push(EVERYBODY.to_owned());
    }
    if lists
        .exempt_clients
        .iter()
        .any(|range| range.is_everything())
    {
        warnings.push(ALL_EXEMPT.to_owned());
    }
    if lists.blocked.iter().any(|range| range.is_everything()) {
        warnings.push(ALL_BLOCKED.to_owned());
    }
    let replicas = store.expected_replicas.get();
    if store.redis.is_none() && replicas > 1 {
        warnings.push(format!(
            "store.url is memory:, so each of the {replicas} expected replicas counts alone and \
             admits the whole of each limit; they share limits through a Redis"
        ));
    }
    warnings
}

/// The lines of a library that tells what it could not read, as it came.
pub fn about_the_log(level: &str) -> Option<String> {
    let mut directives = level
        .split(',')
        .filter_map(|directive| directive.split_once('='));
    let names_pingora = |(target, level): (&str, &str)| {
        target.trim().starts_with("pingora") && !level.trim().eq_ignore_ascii_case("off")
    };
    directives
        .any(names_pingora)
        .then(|| LINES_OF_PINGORA.to_owned())
}

/// A method that nobody registered is more likely a slip than one that clients use.
fn unregistered(policy: &str, method: &str) -> Option<String> {
    if METHODS.contains(&method) {
        return None;
    }
    let meant = nearest(method, METHODS).map_or(String::new(), |hint| format!("; {hint}"));
    Some(format!(
        "policy {policy}: {method} is no registered method{meant}"
    ))
}

fn never_admits(policy: &Policy) -> Option<String> {
    let cost = policy.cost.least().units();
    let limit = policy
        .tiers
        .own()
        .iter()
        .find(|limit| limit.limit.quota() < cost)?;
    Some(format!(
        "policy {}: no request is ever admitted, since it costs {cost} and the limit is {}",
        policy.name, limit.limit
    ))
}

fn too_large_to_audit(policy: &Policy) -> Option<String> {
    let limits = policy.tiers.all().iter().flat_map(|tier| &tier.limits);
    let large: Vec<String> = limits
        .filter(|named| named.limit.quota() > MAX_AUDITED_QUOTA)
        .map(|named| named.limit.to_string())
        .collect();
    (!large.is_empty()).then(|| {
        format!(
            "policy {}: {} is not audited, since a log holds at most twice {MAX_AUDITED_QUOTA} units",
            policy.name,
            large.join(", ")
        )
    })
}

/// Whether all its limits are decided by what an audit compares with.
fn is_exact(policy: &Policy) -> bool {
    let mut limits = policy.tiers.all().iter().flat_map(|tier| &tier.limits);
    limits.all(|named| named.algorithm.keeps_a_log())
}

/// Whether no client gets past it by changing what it sends.
fn is_ceiling(policy: &Policy) -> bool {
    policy.mode == Mode::Enforce
        && policy.identifier.is_never_missing()
        && invented(policy).is_none()
}

/// Whether every request that `narrow` charges is charged by `wide`.
fn charges_wherever(wide: &Charge, narrow: &Charge) -> bool {
    match (wide, narrow) {
        (Charge::AtRequest { .. }, _) => true,
        (Charge::AtResponse { statuses: wide }, Charge::AtResponse { statuses: narrow }) => {
            narrow.iter().all(|status| wide.contains(status))
        }
        (Charge::AtResponse { .. }, Charge::AtRequest { .. }) => false,
    }
}

fn mints_quota(policy: &Policy, apply: Apply) -> Option<String> {
    let invented = invented(policy)?;
    let remedy = match apply {
        Apply::All => {
            "add an enforced policy with identifier: [client_ip] as a ceiling for its requests"
        }
        Apply::First => "with apply: all a policy with identifier: [client_ip] could be a ceiling",
    };
    Some(format!(
        "policy {}: a client that invents values for {invented} gets a fresh quota with each; {remedy}",
        policy.name
    ))
}

/// The sources of its first entry that has some of which a client can invent values without end.
fn invented(policy: &Policy) -> Option<String> {
    policy.identifier.entries.iter().find_map(|entry| {
        let sources = entry.sources().iter();
        let invented: Vec<_> = sources
            .filter(|source| is_endless(source, &policy.matches))
            .map(ToString::to_string)
            .collect();
        (!invented.is_empty()).then(|| invented.join(" + "))
    })
}

/// Whether requests that match can have any number of values in this source. Methods that HTTP does not define are
/// counted as one, so they are few.
fn is_endless(source: &IdentifierSource, rule: &MatchRule) -> bool {
    match source {
        IdentifierSource::Header(_) | IdentifierSource::Cookie(_) | IdentifierSource::Query(_) => {
            true
        }
        IdentifierSource::Host => {
            rule.all.hosts.is_empty() || !rule.all.hosts.iter().all(HostPattern::is_one)
        }
        IdentifierSource::Path => {
            rule.all.paths.is_empty() || !rule.all.paths.iter().all(PathPattern::is_one)
        }
        IdentifierSource::Consumer(_)
        | IdentifierSource::Method
        | IdentifierSource::Constant
        | IdentifierSource::ClientIp => false,
    }
}

const EVERYBODY: &str = "identity.trusted_proxies holds every address, so whoever reaches the proxy can name \
     any address as its own; list the proxies before this one";

const ALL_EXEMPT: &str =
    "exempt.client_ip holds every IPv4 or every IPv6 address: no policy is asked about these";

const ALL_BLOCKED: &str =
    "block.client_ip holds every IPv4 or every IPv6 address: each of these is answered 403";

const LINES_OF_PINGORA: &str = "log.level: lines of pingora have no bound and hold whole heads of requests, API keys and tokens \
                                among them; leave it out where others read the log";

const NOTHING_TO_AUDIT: &str = "audit.sample: nothing is compared, since every policy decides by sliding_log, which is what \
                                others are compared with";

const FIXED_KEY: &str = "identity.secret is not set: a fixed key is used, so whoever reads Redis can \
     guess API keys offline; set the same secret on every proxy that shares the Redis";

/// Those of the IANA registry (RFC 9110, section 16.1) without its reserved ones, the common ones first.
const METHODS: [&str; 38] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "OPTIONS",
    "PATCH",
    "CONNECT",
    "TRACE",
    "QUERY",
    "ACL",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "COPY",
    "LABEL",
    "LINK",
    "LOCK",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "ORDERPATCH",
    "PROPFIND",
    "PROPPATCH",
    "REBIND",
    "REPORT",
    "SEARCH",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UPDATE",
    "VERSION-CONTROL",
];
