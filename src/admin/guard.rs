//! Who is answered: programs of operators, and no page that a browser shows.
//!
//! A browser on an operator's machine reaches what that machine reaches, and any page may make it send requests.
//! Such a request names the page it comes from, which no answer here wants to know; and a page that had its own
//! name lead to this machine, so as to be taken for one of it, still sends that name as the host.

use std::net::IpAddr;

use http::{HeaderMap, StatusCode, header, request::Parts, uri::Authority};

use super::AdminToken;

/// Why a request is not answered. What it holds is not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    /// A page of somewhere makes a browser ask.
    #[error("a page of a browser asks, and none may")]
    Page,
    /// Nobody is asked for a token, so that a name must not lead here.
    #[error(
        "without admin_token it is asked by an address or localhost, and this request names another host"
    )]
    Host,
    /// The token is wanted.
    #[error("the admin_token is wanted, as in Authorization: Bearer <token>")]
    Token,
}

impl Refused {
    pub fn status(self) -> StatusCode {
        match self {
            Self::Page | Self::Host => StatusCode::FORBIDDEN,
            Self::Token => StatusCode::UNAUTHORIZED,
        }
    }
}

/// Whether a request may be answered; `token` is what it must show, if anything.
pub(super) fn admit(head: &Parts, token: Option<&AdminToken>) -> Result<(), Refused> {
    if is_of_a_page(&head.headers) {
        return Err(Refused::Page);
    }
    match token {
        Some(token) if shows(&head.headers, token) => Ok(()),
        Some(_) => Err(Refused::Token),
        None if names_this_machine(head) => Ok(()),
        None => Err(Refused::Host),
    }
}

/// Browsers send an origin with all but plain GETs of their own, and with those that scripts make to elsewhere; the
/// newer ones tell of each request whether a page of another origin caused it.
fn is_of_a_page(headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all("sec-fetch-site").iter();
    let elsewhere = sites.any(|site| site != "none" && site != "same-origin");
    headers.contains_key(header::ORIGIN) || elsewhere
}

fn shows(headers: &HeaderMap, token: &AdminToken) -> bool {
    let mut lines = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return false;
    };
    let line = line.as_bytes();
    let (scheme, rest) = line.split_at(line.len().min(BEARER.len()));
    scheme.eq_ignore_ascii_case(BEARER) && token.is(rest.trim_ascii())
}

/// Whether every host that it names is an address or localhost. One that names none is not of a browser.
fn names_this_machine(head: &Parts) -> bool {
    let in_target = head.uri.authority().map(|authority| authority.as_str());
    let is_ours = |host: &str| {
        let host = host.parse::<Authority>();
        host.is_ok_and(|host| is_address_or_localhost(host.host()))
    };
    let in_headers = head.headers.get_all(header::HOST).iter();
    in_target.is_none_or(is_ours)
        && in_headers
            .into_iter()
            .all(|host| host.to_str().is_ok_and(is_ours))
}

fn is_address_or_localhost(host: &str) -> bool {
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    bare.unwrap_or(host).parse::<IpAddr>().is_ok() || host.eq_ignore_ascii_case("localhost")
}

const BEARER: &[u8] = b"Bearer ";

#[cfg(test)]
mod tests {
    use super::*;

    fn head(target: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::get(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn without_a_token_a_request_by_address_or_localhost_is_answered_and_one_by_another_name_is_not()
     {
        let admitted = |target: &str, headers: &[_]| admit(&head(target, headers), None);
        for host in [
            "127.0.0.1:9465",
            "127.0.0.1",
            "[::1]:9465",
            "10.0.0.7",
            "localhost:1",
            "LOCALHOST",
        ] {
            assert_eq!(admitted("/", &[("host", host)]), Ok(()), "{host}");
        }
        assert_eq!(admitted("/", &[]), Ok(()));
        for host in [
            "evil.example:9465",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.1",
            "2130706433",
            "evil@example",
            "::1",
            "",
        ] {
            assert_eq!(
                admitted("/", &[("host", host)]),
                Err(Refused::Host),
                "{host}"
            );
        }
        let two = [("host", "127.0.0.1"), ("host", "evil.example")];
        assert_eq!(admitted("/", &two), Err(Refused::Host));
        assert_eq!(
            admitted("http://evil.example/", &two[..1]),
            Err(Refused::Host)
        );
    }

    #[test]
    fn with_a_token_it_alone_lets_in_by_whatever_name() {
        let token = "0123456789abcdef".parse().expect("a token");
        let admitted = |lines: &[&str]| {
            let lines = lines.iter().map(|line| ("authorization", *line));
            let headers: Vec<_> = lines.chain([("host", "admin.example")]).collect();
            admit(&head("/", &headers), Some(&token))
        };
        for line in ["Bearer 0123456789abcdef", "bearer  0123456789abcdef "] {
            assert_eq!(admitted(&[line]), Ok(()), "{line}");
        }
        for line in [
            "",
            "Bearer",
            "Bearer ",
            "0123456789abcdef",
            "Basic 0123456789abcdef",
            "Bearer 0123456789abcdef0",
            "Bearer0123456789abcdef",
        ] {
            assert_eq!(admitted(&[line]), Err(Refused::Token), "{line}");
        }
        assert_eq!(admitted(&[]), Err(Refused::Token));
        let right = "Bearer 0123456789abcdef";
        assert_eq!(admitted(&[right, right]), Err(Refused::Token));
    }

    #[test]
    fn no_page_is_answered_whatever_it_shows() {
        let token: AdminToken = "0123456789abcdef".parse().expect("a token");
        let right = ("authorization", "Bearer 0123456789abcdef");
        let admitted = |header| {
            let head = head("/", &[right, ("host", "127.0.0.1"), header]);
            [None, Some(&token)].map(|token| admit(&head, token))
        };
        for header in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("origin", "http://127.0.0.1"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert_eq!(admitted(header), [Err(Refused::Page); 2], "{header:?}");
        }
        for site in ["none", "same-origin"] {
            assert_eq!(admitted(("sec-fetch-site", site)), [Ok(()); 2], "{site}");
        }
    }
}
