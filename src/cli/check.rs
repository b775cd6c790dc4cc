//! `slidegate check`: whether a configuration is accepted, and what it means. Starts nothing, connects
//! to nothing, and prints no secret: of headers that are matched by their values the names alone.

use std::{
    io::{self, Write},
    path::Path,
};

use http::HeaderName;

use crate::{
    config::{Config, ConfigError, Environment},
    policy::{
        Apply, Charge, ClientRule, CostHeader, CostRule, Gate, NamedLimit, Policy, Tier,
        TrustedProxies,
    },
    store::Topology,
    upstream::{Http, TlsSettings, UpstreamSettings},
};

/// Prints the policies in force, the warnings, and `<path>: ok` to `out`.
///
/// # Errors
/// [`CheckError::Config`] with every fault, to be printed as it is; the process then exits with 2.
pub fn check(path: &Path, env: &Environment<'_>, out: &mut dyn Write) -> Result<(), CheckError> {
    let config = Config::load(path, env)?;
    match &config.redis {
        Some(redis) => {
            let place = match &redis.topology {
                Topology::Single => "Redis",
                Topology::Sentinel(_) => "Redis, found by Sentinel",
                Topology::Cluster(_) => "Redis Cluster",
            };
            writeln!(out, "counters in {place}, namespace {}", redis.namespace)?;
        }
        None => writeln!(out, "counters in memory")?,
    }
    print_upstreams(&config, out)?;
    if let Some(client) = client(&config.clients) {
        writeln!(out, "client_ip from {client}")?;
    }
    if let Some(settings) = &config.consumers_settings {
        let headers: Vec<_> = settings.headers.iter().map(HeaderName::as_str).collect();
        let (many, headers) = (config.consumers.all().len(), headers.join(", "));
        let file = settings.file.display();
        writeln!(out, "consumers {many} in {file}, keys in {headers}")?;
    }
    print_gate(&config.gate, out)?;
    if config.apply == Apply::First {
        writeln!(
            out,
            "apply first: one enforced policy for a request, and all shadow policies"
        )?;
    }
    for policy in &config.policies {
        print_policy(policy, out)?;
    }
    for warning in &config.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    writeln!(out, "{}: ok", path.display())?;
    Ok(())
}

/// Why a check did not end with `ok`.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The configuration is at fault.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Nobody reads the result.
    #[error("writing the result: {0}")]
    Output(#[from] io::Error),
}

/// Nothing of the one that is configured without a name and with an address alone.
fn print_upstreams(config: &Config, out: &mut dyn Write) -> io::Result<()> {
    for upstream in &config.upstreams {
        let is_plain = *upstream.name == *UpstreamSettings::DEFAULT_NAME
            && upstream.addresses.len() == 1
            && upstream.http == Http::One
            && upstream.tls.is_none()
            && upstream.health_check.is_none();
        if is_plain {
            continue;
        }
        let mut words = vec![upstream.told()];
        words.extend((upstream.http == Http::Two).then(|| "HTTP/2".to_owned()));
        words.extend(upstream.tls.as_ref().map(tls));
        words.extend(
            upstream
                .health_check
                .as_ref()
                .map(|check| match &check.path {
                    Some(path) => format!("checked by GET {path}"),
                    None => "checked by connecting".to_owned(),
                }),
        );
        writeln!(out, "upstream {}: {}", upstream.name, words.join("; "))?;
    }
    for (rule, to) in config.routes.all() {
        let name = &config.upstreams[*to].name;
        match rule.is_everything() {
            true if config.routes.all().len() == 1 => {}
            true => writeln!(out, "route to {name}: everything else")?,
            false => writeln!(out, "route to {name}: {rule}")?,
        }
    }
    Ok(())
}

fn tls(tls: &TlsSettings) -> String {
    let name = tls.server_name.as_ref();
    let name = name.map_or("its host".to_owned(), ToString::to_string);
    let by = match tls.ca {
        Some(_) => "tls.ca",
        None => "Mozilla's authorities",
    };
    let client = tls
        .client
        .as_ref()
        .map_or("", |_| ", with a certificate of ours");
    format!("TLS for {name} by {by}{client}")
}

fn print_gate(gate: &Gate, out: &mut dyn Write) -> io::Result<()> {
    if !gate.blocked.is_empty() {
        writeln!(out, "block client_ip {}", gate.blocked)?;
    }
    if !gate.exempt_clients.is_empty() {
        writeln!(out, "exempt client_ip {}", gate.exempt_clients)?;
    }
    if !gate.exempt_consumers.is_empty() {
        writeln!(
            out,
            "exempt consumers, {} of them",
            gate.exempt_consumers.len()
        )?;
    }
    if !gate.exempt_paths.is_empty() {
        let paths: Vec<_> = gate.exempt_paths.iter().map(ToString::to_string).collect();
        writeln!(out, "exempt path {}", paths.join(", "))?;
    }
    Ok(())
}

fn print_policy(policy: &Policy, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "policy {}", policy.name)?;
    if !policy.matches.is_everything() {
        writeln!(out, "    match         {}", policy.matches)?;
    }
    writeln!(out, "    identifier    {}", identifier(policy))?;
    for (place, tier) in policy.tiers.all().iter().enumerate() {
        let some = policy.tiers.overrides().filter(|(_, tier)| *tier == place);
        print_tier(tier, some.count(), out)?;
    }
    writeln!(out, "    charge        {}", charge(policy))?;
    writeln!(out, "    mode          {}", policy.mode.name())?;
    writeln!(out, "    failure mode  {}", policy.failure_mode.name())
}

fn print_tier(tier: &Tier, overrides: usize, out: &mut dyn Write) -> io::Result<()> {
    let whose = match &tier.plan {
        Some(plan) => format!(" for plan {plan}"),
        None if overrides > 0 => format!(" for {overrides} by overrides"),
        None => String::new(),
    };
    if tier.limits.is_empty() {
        writeln!(out, "    limit         unlimited{whose}")?;
    }
    for NamedLimit {
        name,
        limit,
        algorithm,
    } in &tier.limits
    {
        let algorithm = algorithm.name();
        writeln!(
            out,
            "    limit         {limit} as {name}, {algorithm}{whose}"
        )?;
    }
    Ok(())
}

/// Where a client's address comes from, unless it is who connects.
fn client(rule: &ClientRule) -> Option<String> {
    let header = rule.header.name();
    let proxies = match &rule.trusted {
        TrustedProxies::Hops(0) => return None,
        TrustedProxies::Hops(hops) => format!("{hops} trusted hops"),
        TrustedProxies::Ranges(ranges) => format!("trusted proxies at {ranges}"),
    };
    Some(format!("{header}, past {proxies}"))
}

/// The sources in order, and what is done without any, where that can happen.
fn identifier(policy: &Policy) -> String {
    let entries = policy.identifier.entries.iter();
    let mut words: Vec<_> = entries.map(ToString::to_string).collect();
    if !policy.identifier.is_never_missing() {
        words.push(policy.identifier.missing.name().to_owned());
    }
    words.join(", else ")
}

fn charge(policy: &Policy) -> String {
    let when = match &policy.charge {
        Charge::AtRequest {
            take_back_5xx: false,
        } => "when admitted".to_owned(),
        Charge::AtRequest {
            take_back_5xx: true,
        } => "when admitted, taken back on a response of 500 or above".to_owned(),
        Charge::AtResponse { statuses } => {
            let statuses: Vec<_> = statuses.iter().map(|status| status.as_str()).collect();
            format!("on a response of {}", statuses.join(", "))
        }
    };
    let CostRule { fixed, header } = &policy.cost;
    match header {
        Some(CostHeader { name, max }) => {
            format!("{fixed}, or what {name} of a trusted proxy says up to {max}, {when}")
        }
        None => format!("{fixed} {when}"),
    }
}
