//! The header fields that are ours, and the two kinds of heads that get them.

use http::{HeaderMap, HeaderName, HeaderValue};
use pingora::{ErrorType::InvalidHTTPHeader, OrErr as _, http::ResponseHeader};

/// A header field of ours.
pub(super) struct Field {
    /// Its name where names are written as they were sent: among an upstream's.
    pub(super) written: &'static str,
    /// Its name elsewhere.
    pub(super) name: HeaderName,
}

impl Field {
    /// `name` is `written` in lower case.
    pub(super) const fn new(written: &'static str, name: &'static str) -> Self {
        Self {
            written,
            name: HeaderName::from_static(name),
        }
    }
}

/// Where fields are put.
pub(super) trait Fields {
    /// Puts it in the place of those of its name.
    ///
    /// # Errors
    /// If the value can not stand in a header.
    fn set<V: TryInto<HeaderValue>>(&mut self, field: &Field, value: V) -> pingora::Result<()>;

    /// Puts it beside those of its name.
    ///
    /// # Errors
    /// If the value can not stand in a header.
    fn add<V: TryInto<HeaderValue>>(&mut self, field: &Field, value: V) -> pingora::Result<()>;
}

/// An upstream's: it keeps how each name was written.
impl Fields for ResponseHeader {
    fn set<V: TryInto<HeaderValue>>(&mut self, field: &Field, value: V) -> pingora::Result<()> {
        self.insert_header(field.written, value)
    }

    fn add<V: TryInto<HeaderValue>>(&mut self, field: &Field, value: V) -> pingora::Result<()> {
        self.append_header(field.written, value).map(drop)
    }
}

/// Our own answer's. Names are in lower case, as in HTTP/2: to keep how each is written costs an eighth of a denial.
impl Fields for HeaderMap {
    fn set<V: TryInto<HeaderValue>>(&mut self, field: &Field, value: V) -> pingora::Result<()> {
        self.insert(&field.name, sendable(value)?);
        Ok(())
    }

    fn add<V: TryInto<HeaderValue>>(&mut self, field: &Field, value: V) -> pingora::Result<()> {
        self.append(&field.name, sendable(value)?);
        Ok(())
    }
}

fn sendable(value: impl TryInto<HeaderValue>) -> pingora::Result<HeaderValue> {
    let told = "a value that can not stand in a header";
    value.try_into().explain_err(InvalidHTTPHeader, |_| told)
}
