//! `near_limit`: the bands in which decisions near a limit are counted.

use crate::config::{
    leaf::{Decimals, Rejected, decimal},
    section::Section,
};

/// The edges of the bands, ascending.
pub fn edges(section: &mut Section<'_>) -> Vec<f64> {
    let mut edges: Vec<f64> = Vec::new();
    let mut given = 0;
    let read = section.list("edges", "[0.90, 0.95, 1.00, 1.05, 1.10]", |item| {
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
        None => vec![0.90, 0.95, 1.00, 1.05, 1.10],
    }
}
