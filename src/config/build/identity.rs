//! `identity`: who a client is, and under what name it is counted. The secret is never shown.

use super::upstream::is_host;
use crate::{
    config::{
        field::Field,
        leaf::{Choice, Rejected, choice, integer, is_plain_integer},
        section::Section,
    },
    policy::{Cidr, CidrSet, ClientHeader, ClientRule, IdentifierHasher, TrustedProxies},
};

/// What `identity` says.
pub struct Identity {
    pub hasher: IdentifierHasher,
    /// Whether the hasher's key is a secret.
    pub keyed: bool,
    pub clients: ClientRule,
    /// Whether a range of trusted proxies holds every address.
    pub trusts_everybody: bool,
}

pub fn read(section: &mut Section<'_>) -> Identity {
    let secret = section.secret("secret", |text| Ok::<_, Rejected>(text.to_owned()));
    let secret = secret.filter(|secret| !secret.is_empty());
    let default = IdentifierHasher::DEFAULT_IPV6_PREFIX;
    let prefix = section.word("ipv6_prefix", default, |text| {
        let prefix = integer(0..=128)(text)?;
        Ok::<_, Rejected>(u8::try_from(prefix).expect("at most 128"))
    });
    let (trusted, trusts_everybody) = trusted_proxies(section);
    let header = section.optional("client_ip_header", choice);
    if header.is_some() && !section.has("trusted_proxies") {
        section.conflict(
            "client_ip_header",
            "has no effect: nobody is trusted to write it",
            Some("list the proxies before this one in trusted_proxies"),
        );
    }
    Identity {
        hasher: IdentifierHasher::new(secret.as_deref(), prefix),
        keyed: secret.is_some(),
        clients: ClientRule {
            trusted,
            header: header.unwrap_or_default(),
        },
        trusts_everybody,
    }
}

/// A list of ranges, or a number of hops.
fn trusted_proxies(section: &mut Section<'_>) -> (TrustedProxies, bool) {
    let Some(field) = section.field("trusted_proxies") else {
        return (TrustedProxies::default(), false);
    };
    if !field.is_list() {
        let hops = field.word(hops).map(TrustedProxies::Hops);
        return (hops.unwrap_or_default(), false);
    }
    let ranges = ranges(field, "[10.0.0.0/8, 2001:db8::/32]").unwrap_or_default();
    let everybody = ranges.iter().any(|range| range.is_everything());
    let ranges: CidrSet = ranges.into_iter().collect();
    (TrustedProxies::Ranges(ranges), everybody)
}

fn hops(text: &str) -> Result<u8, Rejected> {
    let read = integer(1..=16)(text).map(|hops| u8::try_from(hops).expect("at most 16"));
    read.map_err(|_| {
        let accepted = "a list of addresses and ranges, as in [10.0.0.0/8], or how many proxies every \
                        request passes, from 1 to 16";
        let is_range = !is_plain_integer(text) && text.parse::<Cidr>().is_ok();
        Rejected::new(accepted).hint(is_range.then(|| format!("write [{text}]")))
    })
}

/// The ranges of a list; `None` if it is none.
pub fn ranges(field: Field<'_>, example: &str) -> Option<Vec<Cidr>> {
    let mut seen = Vec::new();
    field.list(example, |item| {
        item.word(|text| {
            let range: Cidr = text.parse().map_err(|error| {
                let name = is_host(text) && text.bytes().any(|byte| byte.is_ascii_alphabetic());
                let hint = "names are not resolved here: write the addresses, or their range";
                Rejected::from(error).hint(name.then(|| hint.to_owned()))
            })?;
            if seen.contains(&range) {
                return Err(Rejected::new("each range stands once, and this one did"));
            }
            seen.push(range);
            Ok(range)
        })
    })
}

impl Choice for ClientHeader {
    const ALL: &'static [Self] = &[Self::XForwardedFor, Self::Forwarded];

    fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
        }
    }
}
