//! What a request is called, by all who write of it.

use http::{HeaderMap, HeaderValue};
use uuid::Uuid;

use super::field::Field;

/// What a request is called: the value of its `X-Request-Id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// What whoever sent the request called it, or else a new one. Kept is a single line of 1 to 128 letters, digits and
    /// `._~+/=:@-`, which can be written anywhere without being escaped. It proves nothing: clients may send what they
    /// like.
    pub fn of(headers: &HeaderMap) -> Self {
        let mut lines = headers.get_all(&X_REQUEST_ID.name).iter();
        match (lines.next(), lines.next()) {
            (Some(id), None) if is_plain(id.as_bytes()) => Self(id.clone()),
            _ => Self::random(),
        }
    }

    /// One that nothing else has: a UUID of version 4.
    fn random() -> Self {
        let mut text = Uuid::encode_buffer();
        let text = Uuid::new_v4().hyphenated().encode_lower(&mut text);
        Self(HeaderValue::from_str(text).expect("a UUID is letters, digits and hyphens"))
    }

    /// As it stands in a header.
    pub fn value(&self) -> HeaderValue {
        self.0.clone()
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        self.0.to_str().expect("it is letters, digits and marks")
    }
}

fn is_plain(id: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._~+/=:@-".contains(byte);
    (1..=LONGEST).contains(&id.len()) && id.iter().all(is_plain)
}

/// Where it stands.
pub(super) static X_REQUEST_ID: Field = Field::new("X-Request-Id", "x-request-id");

/// Above what any of the usual makers of ids writes.
const LONGEST: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            let line = HeaderValue::from_str(line).expect("a value");
            headers.append("x-request-id", line);
        }
        RequestId::of(&headers).as_str().to_owned()
    }

    #[test]
    fn an_id_that_can_be_written_anywhere_is_kept() {
        let longest = "x".repeat(128);
        for id in [
            "1",
            "Root=1-67891233-abcdef012345678912345678",
            "a/b+c=@~:._-",
            &longest,
        ] {
            assert_eq!(of(&[id]), id);
        }
    }

    #[test]
    fn any_other_is_replaced_by_one_that_nothing_else_has() {
        let too_long = "x".repeat(129);
        for lines in [
            &[][..],
            &[""],
            &["a b"],
            &["a\"b"],
            &["a,b"],
            &["a", "a"],
            &[&too_long],
        ] {
            let (one, other) = (of(lines), of(lines));
            assert_ne!(one, other, "{lines:?}");
            let parts: Vec<usize> = one.split('-').map(str::len).collect();
            assert_eq!(parts, [8, 4, 4, 4, 12], "{one}");
        }
    }
}
