//! What `/metrics` tells, taken apart.

use std::collections::BTreeSet;

/// Everything under one name.
pub struct Family {
    pub name: String,
    pub kind: String,
    pub help: String,
    pub series: Vec<Series>,
}

/// One line.
pub struct Series {
    /// That of the family; of a histogram with `_bucket`, `_sum` or `_count`.
    pub name: String,
    pub labels: Vec<(String, String)>,
}

impl Family {
    /// The values that a label has in it.
    pub fn values(&self, label: &str) -> BTreeSet<&str> {
        let labels = self.series.iter().flat_map(|series| &series.labels);
        let values = labels.filter(|(name, _)| name == label);
        values.map(|(_, value)| value.as_str()).collect()
    }
}

/// In the order of the text, which is to be in the format of Prometheus, with help and type before values.
pub fn parse(text: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("a help");
            families.push(Family {
                name: name.to_owned(),
                kind: String::new(),
                help: help.to_owned(),
                series: Vec::new(),
            });
            continue;
        }
        let family = families.last_mut().expect("a help comes first");
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a type");
            assert_eq!(name, family.name);
            family.kind = kind.to_owned();
        } else {
            let series = series(line).unwrap_or_else(|| panic!("not a series: {line}"));
            assert!(series.name.starts_with(&family.name), "{line}");
            family.series.push(series);
        }
    }
    families
}

/// Of a value without `"`, which none of ours has.
fn series(line: &str) -> Option<Series> {
    let (series, value) = line.rsplit_once(' ')?;
    value.parse::<f64>().ok()?;
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}')?),
        None => (series, ""),
    };
    let labels = labels.split_terminator("\",").map(|label| {
        let (name, value) = label.split_once("=\"")?;
        Some((name.to_owned(), value.trim_end_matches('"').to_owned()))
    });
    Some(Series {
        name: name.to_owned(),
        labels: labels.collect::<Option<_>>()?,
    })
}
