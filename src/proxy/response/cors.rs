//! Which pages may read what they are answered (CORS).

use http::{HeaderValue, header, request::Parts};
use pingora::http::ResponseHeader;

use crate::proxy::field::{Field, Fields};

/// Which pages may read our answers (Fetch Standard, 3.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    /// Those of these origins, each as browsers write it: `https://app.example.com`. `None` for all.
    pub origins: Option<Vec<Box<str>>>,
    /// Whether also to requests with cookies. Never together with all origins.
    pub credentials: bool,
}

impl Cors {
    /// Lets the page that asked read an answer of our own, and the headers `exposed` on it, if it may.
    pub(super) fn share(
        &self,
        asked: &Parts,
        exposed: &HeaderValue,
        head: &mut impl Fields,
    ) -> pingora::Result<()> {
        if let Some(reader) = self.reader(asked) {
            head.set(&ALLOW_ORIGIN, reader)?;
            head.set(&EXPOSE_HEADERS, exposed.clone())?;
            if self.credentials {
                head.set(&ALLOW_CREDENTIALS, "true")?;
            }
        }
        self.vary(head)
    }

    /// The same of our headers on an answer of the upstream's, where that lets pages read it.
    pub(super) fn expose(
        &self,
        asked: &Parts,
        exposed: &HeaderValue,
        head: &mut ResponseHeader,
    ) -> pingora::Result<()> {
        if !head.headers.contains_key(&ALLOW_ORIGIN.name) {
            return Ok(());
        }
        if self.reader(asked).is_some() {
            head.add(&EXPOSE_HEADERS, exposed.clone())?;
        }
        self.vary(head)
    }

    /// For whom an answer is readable, if it is for the page that asked. A page has one origin.
    fn reader(&self, asked: &Parts) -> Option<HeaderValue> {
        let mut lines = asked.headers.get_all(header::ORIGIN).iter();
        let (Some(origin), None) = (lines.next(), lines.next()) else {
            return None;
        };
        let Some(origins) = &self.origins else {
            return Some(HeaderValue::from_static("*"));
        };
        let is_known = |known: &str| known.as_bytes() == origin.as_bytes();
        origins
            .iter()
            .any(|known| is_known(known))
            .then(|| origin.clone())
    }

    /// Caches are not to show one origin what another got, nor what nobody did.
    fn vary(&self, head: &mut impl Fields) -> pingora::Result<()> {
        if self.origins.is_some() {
            head.add(&VARY, "Origin")?;
        }
        Ok(())
    }
}

static ALLOW_ORIGIN: Field =
    Field::new("Access-Control-Allow-Origin", "access-control-allow-origin");
static ALLOW_CREDENTIALS: Field = Field::new(
    "Access-Control-Allow-Credentials",
    "access-control-allow-credentials",
);
static EXPOSE_HEADERS: Field = Field::new(
    "Access-Control-Expose-Headers",
    "access-control-expose-headers",
);
static VARY: Field = Field::new("Vary", "vary");
