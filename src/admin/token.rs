//! What a request to the admin listener has to show where one is asked for.

use std::{fmt, str::FromStr};

/// The word that whoever asks the admin listener must know. Only its hash is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AdminToken(blake3::Hash);

impl AdminToken {
    /// Whether this is the word, in a time that tells nothing of it.
    pub fn is(&self, word: &[u8]) -> bool {
        // Hashes of the same length, compared to their end whatever they hold.
        blake3::hash(word) == self.0
    }
}

impl FromStr for AdminToken {
    type Err = ParseAdminTokenError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let can_be_sent = text.bytes().all(|byte| byte.is_ascii_graphic());
        let long_enough = (SHORTEST..=LONGEST).contains(&text.len());
        (can_be_sent && long_enough)
            .then(|| Self(blake3::hash(text.as_bytes())))
            .ok_or(ParseAdminTokenError)
    }
}

/// Neither the word nor its hash is shown.
impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken(***)")
    }
}

/// The text can not be a token. It is not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token is {SHORTEST} to {LONGEST} letters, digits and signs, without spaces")]
pub struct ParseAdminTokenError;

/// Too many to be tried through, should they be chosen at random.
const SHORTEST: usize = 16;

/// What surely fits into a request's head.
const LONGEST: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_the_whole_word_and_no_other() {
        let token: AdminToken = "0123456789abcdef".parse().expect("a token");
        assert!(token.is(b"0123456789abcdef"));
        for other in [
            "",
            "0123456789abcde",
            "0123456789abcdefg",
            "0123456789abcdeF",
        ] {
            assert!(!token.is(other.as_bytes()), "{other}");
        }
        assert_eq!(format!("{token:?}"), "AdminToken(***)");
    }

    #[test]
    fn a_token_can_be_sent_in_a_header_and_not_be_tried_through() {
        for text in [
            "x".repeat(16),
            "x".repeat(1024),
            "aZ09-._~+/=!$%&'()*,".to_owned(),
        ] {
            assert!(text.parse::<AdminToken>().is_ok(), "{text}");
        }
        for text in [
            "x".repeat(15),
            "x".repeat(1025),
            "x y".repeat(10),
            "é".repeat(20),
            "x\n".repeat(10),
        ] {
            assert_eq!(
                text.parse::<AdminToken>(),
                Err(ParseAdminTokenError),
                "{text}"
            );
        }
    }
}
