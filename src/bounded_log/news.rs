//! Failures of what is tried again and again.

/// Why something failed the last time, if it did: what failed for the same reason before is no news.
#[derive(Debug)]
pub struct News<R>(Option<R>);

impl<R> Default for News<R> {
    fn default() -> Self {
        Self(None)
    }
}

impl<R: PartialEq> News<R> {
    /// It failed: the reason, if it is to be told.
    pub fn failed(&mut self, reason: R) -> Option<&R> {
        if self.0.as_ref() == Some(&reason) {
            return None;
        }
        Some(self.0.insert(reason))
    }

    /// It went well: whatever fails next is news.
    pub fn went_well(&mut self) {
        self.0 = None;
    }

    /// Whether it failed the last time.
    pub const fn is_failing(&self) -> bool {
        self.0.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_once_until_there_is_another_or_all_went_well() {
        let mut news = News::default();
        let told = ["away", "away", "full", "away"].map(|reason| news.failed(reason).is_some());
        assert_eq!(told, [true, false, true, true]);
        assert!(news.is_failing());
        news.went_well();
        assert!(!news.is_failing());
        assert_eq!(news.failed("away"), Some(&"away"));
    }
}
