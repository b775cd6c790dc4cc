//! Header values of several words, written one after another; one of at most 96 bytes asks for memory as a value alone.

use std::net::IpAddr;

use http::HeaderValue;
use smallvec::SmallVec;

/// What is written so far.
#[derive(Default)]
pub(super) struct HeaderText(SmallVec<[u8; USUAL]>);

impl HeaderText {
    pub(super) fn word(&mut self, word: &str) -> &mut Self {
        self.0.extend_from_slice(word.as_bytes());
        self
    }

    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        self.word(itoa::Buffer::new().format(number))
    }

    pub(super) fn address(&mut self, address: IpAddr) -> &mut Self {
        let IpAddr::V4(address) = address else {
            return self.word(&address.to_string());
        };
        let [first, others @ ..] = address.octets();
        self.number(first.into());
        for octet in others {
            self.word(".").number(octet.into());
        }
        self
    }

    /// As it stands in a header.
    ///
    /// # Panics
    /// If a word of it can not stand there.
    pub(super) fn value(&self) -> HeaderValue {
        HeaderValue::from_bytes(&self.0).expect("words for a header")
    }
}

/// Longer ones cost an allocation.
const USUAL: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_everybody_writes_them() {
        for address in [
            "0.0.0.0",
            "192.0.2.7",
            "255.255.255.255",
            "::1",
            "2001:db8::7",
        ] {
            let parsed: IpAddr = address.parse().expect(address);
            assert_eq!(HeaderText::default().address(parsed).value(), address);
        }
    }

    #[test]
    fn words_and_numbers_stand_as_they_were_written() {
        let mut text = HeaderText::default();
        let long = "x".repeat(100);
        text.word(&long).word(";r=").number(0);
        text.word(";t=").number(u64::MAX);
        assert_eq!(
            text.value(),
            format!("{long};r=0;t=18446744073709551615").as_str()
        );
    }
}
