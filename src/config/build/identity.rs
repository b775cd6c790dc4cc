//! `identity`: who a client is, and under what name it is counted. The secret is never shown.

use std::{cell::RefCell, path::PathBuf};

use http::HeaderName;

use super::upstream::is_host;
use crate::{
    config::{
        ConsumersSettings, Path, consumer_name,
        field::Field,
        leaf::{Choice, Rejected, choice, integer, is_plain_integer},
        section::Section,
    },
    policy::{
        Cidr, CidrSet, ClientHeader, ClientRule, Identifier, IdentifierHasher, IdentifierSource,
        TrustedProxies,
    },
};

/// What `identity` says.
pub struct IdentitySettings {
    pub hasher: IdentifierHasher,
    pub clients: ClientRule,
    /// Whether a range of trusted proxies holds every address.
    pub trusts_everybody: bool,
    /// Where known keys are listed, if they are.
    pub consumers: Option<ConsumersSettings>,
    /// The consumers that other settings name, and which settings.
    pub named: RefCell<Vec<(String, String)>>,
}

impl IdentitySettings {
    /// The consumer that a setting names, and as whom it is counted.
    pub fn consumer(&self, path: &Path, text: &str) -> Result<Identifier, Rejected> {
        let name = consumer_name(text)?;
        let named = (path.to_string(), name.to_owned());
        self.named.borrow_mut().push(named);
        Ok(self.hasher.consumer(name))
    }

    /// Whether any peer is a trusted proxy.
    pub fn trusts_anybody(&self) -> bool {
        match &self.clients.trusted {
            TrustedProxies::Hops(hops) => *hops > 0,
            TrustedProxies::Ranges(ranges) => !ranges.is_empty(),
        }
    }
}

/// What stands in for one that is at fault, so that what comes after it is read.
impl Default for IdentitySettings {
    fn default() -> Self {
        Self {
            hasher: IdentifierHasher::new(None, IdentifierHasher::DEFAULT_IPV6_PREFIX),
            clients: ClientRule::default(),
            trusts_everybody: false,
            consumers: None,
            named: RefCell::default(),
        }
    }
}

pub fn read(section: &mut Section<'_>) -> IdentitySettings {
    let secret = section.secret("secret", |text| Ok::<_, Rejected>(text.to_owned()));
    let secret = secret.filter(|secret| !secret.is_empty());
    let default = IdentifierHasher::DEFAULT_IPV6_PREFIX;
    let prefix = section.word("ipv6_prefix", default, integer(0..=128));
    let (trusted, trusts_everybody) = trusted_proxies(section);
    let header = section.optional("client_ip_header", choice);
    if header.is_some() && !section.has("trusted_proxies") {
        section.conflict(
            "client_ip_header",
            "has no effect: nobody is trusted to write it",
            Some("list the proxies before this one in trusted_proxies"),
        );
    }
    IdentitySettings {
        hasher: IdentifierHasher::new(secret.as_deref(), prefix),
        clients: ClientRule {
            trusted,
            header: header.unwrap_or_default(),
        },
        trusts_everybody,
        consumers: consumers(section),
        named: RefCell::default(),
    }
}

/// Where consumers are listed, and which headers hold their keys.
fn consumers(section: &mut Section<'_>) -> Option<ConsumersSettings> {
    if !section.has("consumers") {
        section.field("consumers");
        return None;
    }
    section.section("consumers", |section| {
        section.require("file", "file: /etc/slidegate/consumers.yaml");
        let file = section.optional("file", |text| Ok::<_, Rejected>(PathBuf::from(text)));
        let mut seen = Vec::new();
        let headers = section.list("headers", "[x-api-key]", |item| {
            item.word(|text| {
                let header = match format!("header:{text}").parse()? {
                    IdentifierSource::Header(header) => header,
                    _ => return Err(Rejected::new("a header name")),
                };
                if seen.contains(&header) {
                    return Err(Rejected::new("each header stands once, and this one did"));
                }
                seen.push(header.clone());
                Ok(header)
            })
        });
        let usual = || ["x-api-key", "authorization"].map(HeaderName::from_static);
        Some(ConsumersSettings {
            file: file?,
            headers: headers.unwrap_or_else(|| usual().into()),
        })
    })?
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
    integer(1..=16)(text).map_err(|_| {
        let accepted = "a list of addresses and ranges, as in [10.0.0.0/8], or how many proxies every \
                        request passes, from 1 to 16";
        let is_range = !is_plain_integer(text) && text.parse::<Cidr>().is_ok();
        Rejected::new(accepted).hint(is_range.then(|| format!("write [{text}]")))
    })
}

/// A list of addresses and ranges, without those that are faulty; `None` where it is no such list.
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
