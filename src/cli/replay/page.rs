//! What a replay found as one page that needs nothing else: no other file, no network, no script.
//!
//! Whatever a log has may stand in it, and only as text: all of it goes through [`escaped`], and a policy in the page forbids
//! what might get through.

mod chart;
mod plots;

use std::fmt::Write as _;

use super::table;
use crate::replay::{LimitReport, Report, Suggestion};

/// What the page tells of.
pub(super) struct Page<'r> {
    /// By the limits that were asked for.
    pub report: &'r Report,
    /// The same requests by other limits.
    pub others: &'r [Report],
    /// How busy identifiers were.
    pub suggestions: &'r [Suggestion],
}

/// A picture, and how it is read.
struct Figure {
    title: &'static str,
    read: String,
    /// Classes, and what they stand for.
    key: &'static [(&'static str, &'static str)],
    svg: String,
}

impl Page<'_> {
    /// The page, as well-formed XML that a browser takes for HTML.
    pub fn html(&self) -> String {
        let mut html = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
             <title>slidegate replay</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
             <h1>What these limits would have done</h1>\n"
        );
        html += &self.facts();
        if self.report.timeline.length() > 0 {
            html += &plots::over_time(&self.report.timeline).html();
        }
        for limit in &self.report.limits {
            html += &self.limit(limit);
        }
        html += &self.unread();
        html + "</main>\n</body>\n</html>\n"
    }

    fn facts(&self) -> String {
        let logs = &self.report.logs;
        let mut html = String::new();
        if let Some((first, last)) = logs.span_ms {
            let (first, last) = (table::moment(first), table::moment(last));
            html += &format!("<p class=\"faint\">{first} to {last}</p>\n");
        }
        html += "<ul class=\"facts\">\n";
        let mut fact = |number: u64, what: &str| {
            writeln!(html, "<li><b>{number}</b> {}</li>", escaped(what))
                .expect("a string takes everything");
        };
        fact(logs.requests, "requests");
        if let Some(outcome) = self.report.requests.get(self.report.in_force) {
            fact(outcome.passed, "pass");
            fact(
                outcome.denied,
                &format!("denied by {}", self.report.in_force),
            );
            if outcome.refused > 0 {
                fact(outcome.refused, "refused for what they are");
            }
        }
        let unread = logs.unreadable.values().sum();
        if unread > 0 {
            fact(unread, "lines tell of no request");
        }
        html += "</ul>\n";
        if let Some(warning) = table::forgetful(self.report) {
            html += &format!("<p>{}</p>\n", escaped(&warning));
        }
        html
    }

    fn limit(&self, limit: &LimitReport) -> String {
        let plan = limit.plan.iter().map(|plan| format!(", plan {plan}"));
        let shadow = (limit.mode == "shadow").then(|| ", shadow".to_owned());
        let more: String = plan.chain(shadow).collect();
        let heading = escaped(&format!("{}{more}: {}", limit.policy, limit.limit));
        let (requests, share, identifiers) = (
            limit.requests,
            table::percent(limit.share),
            limit.identifiers,
        );
        let mut html = format!(
            "<h2>{heading}</h2>\n<p class=\"faint\">asked about {requests} requests ({}) of {identifiers} identifiers</p>\n",
            escaped(&share)
        );
        let rules = table::rules(limit, self.report.in_force);
        html += &rows("By each algorithm, on the same requests", &rules);
        if !limit.worst.is_empty() {
            html += &rows("Most denied by the rule in force", &table::worst(limit));
        }
        if let Some(suggestion) = self.suggestion(limit) {
            html += &plots::peaks(&suggestion.peaks, limit).html();
        }
        html += &plots::near(&limit.near, self.report.in_force).html();
        let reports = self.others.iter().chain([self.report]);
        html + &plots::by_limit(&plots::same_limit(reports, limit)).html()
    }

    /// What identifiers did at their busiest; `None` where not all of them meet this limit.
    fn suggestion(&self, limit: &LimitReport) -> Option<&Suggestion> {
        let is_another_tier = |other: &LimitReport| {
            other.policy == limit.policy && other.slot.tier != limit.slot.tier
        };
        if self.report.limits.iter().any(is_another_tier) {
            return None;
        }
        let window = limit.of.window().to_string();
        let mut suggestions = self.suggestions.iter();
        suggestions.find(|one| one.policy == limit.policy && one.window == window)
    }

    fn unread(&self) -> String {
        let logs = &self.report.logs;
        if logs.unreadable.is_empty() {
            return String::new();
        }
        let mut text = String::new();
        for (reason, lines) in &logs.unreadable {
            writeln!(text, "{lines} {reason}").expect("a string takes everything");
        }
        for shown in &logs.unreadable_lines {
            let (file, line, reason, begins) =
                (&shown.file, shown.line, shown.reason, &shown.begins);
            writeln!(text, "  {file}:{line}: {reason}: {begins}")
                .expect("a string takes everything");
        }
        format!(
            "<h2>Lines that tell of no request</h2>\n<pre>{}</pre>\n",
            escaped(&text)
        )
    }
}

impl Figure {
    fn html(&self) -> String {
        let (title, read) = (escaped(self.title), escaped(&self.read));
        let mut html = format!("<figure>\n<figcaption><h3>{title}</h3><p>{read}</p>");
        if !self.key.is_empty() {
            html += "<ul class=\"key\">";
            for (class, what) in self.key {
                html += &format!("<li><i class=\"{class}\"></i>{}</li>", escaped(what));
            }
            html += "</ul>";
        }
        format!("{html}</figcaption>\n{}</figure>\n", self.svg)
    }
}

/// A table whose first row is its head.
fn rows(caption: &str, rows: &[Vec<String>]) -> String {
    let mut html = format!(
        "<div class=\"table\"><table><caption>{}</caption>\n",
        escaped(caption)
    );
    for (place, row) in rows.iter().enumerate() {
        let (before, after) = match place {
            0 => ("<thead><tr>", "</tr></thead>\n<tbody>\n"),
            _ => ("<tr>", "</tr>\n"),
        };
        html += before;
        for (column, cell) in row.iter().enumerate() {
            let cell = escaped(cell);
            html += &match (place, column) {
                (0, _) => format!("<th scope=\"col\">{cell}</th>"),
                (_, 0) => format!("<th scope=\"row\">{cell}</th>"),
                _ => format!("<td>{cell}</td>"),
            };
        }
        html += after;
    }
    html + "</tbody></table></div>\n"
}

/// As text that is nothing but text, between tags and in an attribute.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            // XML has no way to write most of them.
            control if control.is_control() && control != '\n' => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

const STYLE: &str = include_str!("page/style.css");
