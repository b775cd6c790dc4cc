//! What a request takes from the limits of a policy: always the same, or what a trusted proxy says.

use http::HeaderName;

use super::{IdentifierSource, Refusal, RequestView};
use crate::ratelimit::Cost;

/// What a request takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CostRule {
    /// Unless a header says otherwise. Default 1.
    pub fixed: Cost,
    /// The header that may say so.
    pub header: Option<CostHeader>,
}

/// A header in which a trusted proxy says what a request takes. From anyone else it is not looked at: clients
/// would make themselves cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostHeader {
    /// Its name.
    pub name: HeaderName,
    /// The most that it may say.
    pub max: Cost,
}

impl CostRule {
    /// What this request takes.
    ///
    /// # Errors
    /// If a trusted peer sent the header more than once, or what it says is no cost or above the most.
    pub fn of(&self, view: &RequestView<'_>) -> Result<Cost, Refusal> {
        let Some(header) = self.header.as_ref().filter(|_| view.peer_is_trusted) else {
            return Ok(self.fixed);
        };
        let mut lines = view.head.headers.get_all(&header.name).iter();
        let Some(line) = lines.next() else {
            return Ok(self.fixed);
        };
        if lines.next().is_some() {
            let source = IdentifierSource::Header(header.name.clone());
            return Err(Refusal::DuplicateValue(source));
        }
        let cost = line.to_str().ok().and_then(|text| text.trim().parse().ok());
        cost.filter(|cost| *cost <= header.max)
            .ok_or_else(|| Refusal::InvalidCost {
                header: header.name.clone(),
                max: header.max,
            })
    }

    /// The least that a request takes.
    pub fn least(&self) -> Cost {
        match self.header {
            Some(_) => Cost::ONE,
            None => self.fixed,
        }
    }
}

impl From<Cost> for CostRule {
    fn from(fixed: Cost) -> Self {
        Self {
            fixed,
            header: None,
        }
    }
}
