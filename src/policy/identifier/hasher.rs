//! From what identifies to what is counted: grouped addresses, and the keyed hash of everything else.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

use super::{Identifier, part::IdentifierPart, read::header_key};
use crate::policy::Client;

/// A key longer than [`MAX_IDENTIFYING_VALUE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key is at most {MAX_IDENTIFYING_VALUE} bytes long")]
pub struct KeyTooLong;

/// The longest value of a header, a cookie or a query parameter that is hashed, in bytes.
pub const MAX_IDENTIFYING_VALUE: usize = 8 * 1024;

/// The keyed hash that turns what a client sent into an [`Identifier`].
///
/// BLAKE3 in keyed mode, cut to 128 bits. Proxies that share a Redis share the secret, else they count
/// one client as two.
#[derive(Clone)]
pub struct IdentifierHasher {
    key: [u8; 32],
    is_keyed: bool,
    ipv6_prefix: u8,
}

impl IdentifierHasher {
    /// IPv6 clients are grouped by this prefix unless configured: what a subscriber commonly gets.
    pub const DEFAULT_IPV6_PREFIX: u8 = 64;

    /// A hasher keyed by `secret`, where `None` stands for a fixed, public key, that groups IPv6 clients by so
    /// many bits, at most 128.
    pub fn new(secret: Option<&str>, ipv6_prefix: u8) -> Self {
        Self {
            key: blake3::derive_key(KEY_CONTEXT, secret.unwrap_or_default().as_bytes()),
            is_keyed: secret.is_some(),
            ipv6_prefix: ipv6_prefix.min(128),
        }
    }

    /// Whether its key is a secret.
    pub fn is_keyed(&self) -> bool {
        self.is_keyed
    }

    /// The identifier of a client: its address, IPv6 by its group; [`Identifier::Unix`] for a peer without one.
    pub fn client(&self, client: Client) -> Identifier {
        match self.grouped(client) {
            Client::Unix => Identifier::Unix,
            Client::Address(address) => Identifier::Address(address),
        }
    }

    /// The identifier of an API key as a header's value holds it, an auth scheme (`Bearer`) before it
    /// perhaps; `None` if nothing is left of it.
    ///
    /// # Errors
    /// If it is longer than [`MAX_IDENTIFYING_VALUE`].
    pub fn api_key(&self, value: &[u8]) -> Result<Option<Identifier>, KeyTooLong> {
        let key = header_key(value)?;
        Ok(key.map(|key| self.identifier(&[IdentifierPart::Header(key)])))
    }

    /// The identifier of these parts together. Different parts have different identifiers, except that a lone
    /// client has its own, which is no hash.
    pub fn identifier(&self, parts: &[IdentifierPart<'_>]) -> Identifier {
        match parts {
            [IdentifierPart::Client(client)] => return self.client(*client),
            [IdentifierPart::Consumer(consumer)] => return consumer.identifier,
            _ => {}
        }
        self.hash(|mut out| IdentifierPart::encode(parts, &mut out))
    }

    /// The identifier of the consumer of this name.
    pub fn consumer(&self, name: &str) -> Identifier {
        self.hash(|out| IdentifierPart::encode_consumer(name, out))
    }

    /// The hash of an identifier: its own, or the one that it would be if clients were hashed.
    pub(in crate::policy) fn hash_of(&self, identifier: Identifier) -> [u8; 16] {
        let client = match identifier {
            Identifier::Hash(hash) => return hash,
            Identifier::Address(address) => Client::Address(address),
            Identifier::Unix => Client::Unix,
        };
        self.digest(|mut out| IdentifierPart::encode(&[IdentifierPart::Client(client)], &mut out))
    }

    fn hash(&self, encode: impl FnOnce(&mut dyn FnMut(&[u8]))) -> Identifier {
        Identifier::Hash(self.digest(encode))
    }

    fn digest(&self, encode: impl FnOnce(&mut dyn FnMut(&[u8]))) -> [u8; 16] {
        let mut hash = blake3::Hasher::new_keyed(&self.key);
        encode(&mut |piece| {
            hash.update(piece);
        });
        let mut short = [0; 16];
        short.copy_from_slice(&hash.finalize().as_bytes()[..16]);
        short
    }

    /// The client by its network, an IPv4 address in its own form.
    pub fn grouped(&self, client: Client) -> Client {
        match client {
            Client::Unix => Client::Unix,
            Client::Address(address) => Client::Address(self.group(address.to_canonical())),
        }
    }

    fn group(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(_) => address,
            IpAddr::V6(address) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(self.ipv6_prefix))
                    .unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        }
    }
}

/// The key is a secret.
impl fmt::Debug for IdentifierHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentifierHasher")
            .field("ipv6_prefix", &self.ipv6_prefix)
            .finish_non_exhaustive()
    }
}

const KEY_CONTEXT: &str = "slidegate 2026-12 identifier hash";
