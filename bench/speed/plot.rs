//! The ratios as a picture: a bar for each subject, as long as its speed against Pingora alone.

use std::{fmt::Write, fs, path::Path};

use super::rounds::Rounds;

/// Writes it; nothing, where there is no `bare` to compare with.
pub fn write(rounds: &Rounds, path: &Path) {
    let Some(bare) = rounds.of("bare") else {
        return;
    };
    let bars: Vec<_> = rounds
        .0
        .iter()
        .map(|found| (found.name, found.speed_against(bare)))
        .collect();
    fs::write(path, svg(&bars)).expect("the picture is written");
}

fn svg(bars: &[(&str, f64)]) -> String {
    let height = TOP + bars.len() * LINE + 10;
    let longest = bars.iter().map(|(_, ratio)| *ratio).fold(1.0, f64::max);
    let scale = BARS / longest;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 {height}\" role=\"img\">\n\
         <title>Requests that one core answers, against Pingora alone</title>\n\
         <style>\n\
           text {{ font: 13px sans-serif; fill: #24292f }} rect {{ fill: #8c959f }} .own {{ fill: #0969da }}\n\
           line {{ stroke: #24292f; stroke-dasharray: 3 3 }}\n\
           @media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3 }} line {{ stroke: #e6edf3 }} .own {{ fill: #4493f8 }} }}\n\
         </style>\n\
         <text x=\"10\" y=\"20\">Requests that one core answers, against Pingora alone (1.0)</text>\n"
    );
    for (place, (name, ratio)) in bars.iter().enumerate() {
        let y = TOP + place * LINE;
        let own = if PEERS.iter().any(|peer| name.starts_with(peer)) {
            ""
        } else {
            " class=\"own\""
        };
        let width = ratio * scale;
        let (baseline, end) = (y + 14, LEFT + width + 6.0);
        writeln!(
            svg,
            "<text x=\"{}\" y=\"{baseline}\" text-anchor=\"end\">{name}</text>\
             <rect x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"18\"{own}/>\
             <text x=\"{end:.1}\" y=\"{baseline}\">{ratio:.2}</text>",
            LEFT - 8.0
        )
        .expect("a string takes it");
    }
    let x = LEFT + scale;
    writeln!(
        svg,
        "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{}\"/>\n</svg>",
        TOP - 4,
        height - 10
    )
    .expect("a string takes it");
    svg
}

const TOP: usize = 34;
const LINE: usize = 24;
const LEFT: f64 = 230.0;
const BARS: f64 = 510.0;

/// How the names of those begin that are not slidegate.
const PEERS: [&str; 5] = ["bare", "nginx", "haproxy", "envoy", "traefik"];
