//! `near_limit`: the bands in which decisions near a limit are counted.

use crate::{
    config::{
        leaf::{Decimals, Rejected, decimal},
        section::Section,
    },
    limiter::LimiterSettings,
};

/// The edges of the bands, ascending.
pub fn edges(section: &mut Section<'_>) -> Vec<f64> {
    let mut edges: Vec<f64> = Vec::new();
    let mut given = 0;
    let read = section.list("edges", EXAMPLE, |item| {
        given += 1;
        let edge = item.word(|text| {
            let edge = decimal(0.0..=10.0, Decimals::Two)(text)?;
            match edges.last() {
                Some(&last) if edge <= last => Err(Rejected::new(format!(
                    "edges ascend, and the one before is {last}"
                ))),
                _ => Ok(edge),
            }
        });
        edges.extend(edge);
        edge
    });
    match read {
        Some(edges) => {
            if given < 2 {
                section.conflict("edges", "a band has two edges; give at least two", None);
            }
            edges
        }
        None => LimiterSettings::DEFAULT_NEAR_LIMIT_EDGES.to_vec(),
    }
}

/// The edges that there are where none are given.
const EXAMPLE: &str = "[0.90, 0.95, 1.00, 1.05, 1.10]";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_what_there_is_by_default() {
        let edges = LimiterSettings::DEFAULT_NEAR_LIMIT_EDGES.map(|edge| format!("{edge:.2}"));
        assert_eq!(EXAMPLE, format!("[{}]", edges.join(", ")));
    }
}
