//! One chart: a frame with axes in which shapes are placed by shares of its width and height, drawn as SVG.
//!
//! By hand: what is drawn is bars, cells and lines, each with a word on it that a reader's pointer and a screen reader
//! find. Colours are classes of the page's style.

use super::escaped;

/// What stands along a side, each at its share of it.
pub(super) struct Axis {
    pub label: String,
    pub ticks: Vec<(f64, String)>,
}

/// A chart that is being drawn.
pub(super) struct Chart {
    svg: String,
    height: f64,
}

impl Chart {
    /// An empty frame of this height; `title` and `told` are for those who do not see it.
    pub fn new(height: f64, title: &str, told: &str, across: &Axis, up: &Axis) -> Self {
        let (title, told) = (escaped(title), escaped(told));
        let mut chart = Self {
            svg: format!(
                "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\
                 <title>{title}</title><desc>{told}</desc>\n"
            ),
            height,
        };
        chart.up(up);
        chart.across(across);
        chart
    }

    /// A filled part, from a corner to the one across it, of this class and with this said of it.
    pub fn cell(
        &mut self,
        from: (f64, f64),
        to: (f64, f64),
        class: &str,
        opacity: f64,
        said: &str,
    ) {
        let (left, right) = (self.x(from.0), self.x(to.0));
        let (top, bottom) = (self.y(to.1), self.y(from.1));
        let (width, height, said) = ((right - left).max(0.5), bottom - top, escaped(said));
        self.put(&format!(
            "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             fill-opacity=\"{opacity:.2}\"><title>{said}</title></rect>\n"
        ));
    }

    /// A line through points, each with what is said of it.
    pub fn line(&mut self, points: &[(f64, f64, String)], class: &str) {
        let place = |(x, y, _): &(f64, f64, String)| format!("{:.1},{:.1}", self.x(*x), self.y(*y));
        let places: Vec<_> = points.iter().map(place).collect();
        let places = places.join(" ");
        self.put(&format!(
            "<polyline class=\"path {class}\" points=\"{places}\"/>\n"
        ));
        for (x, y, said) in points {
            let (x, y, said) = (self.x(*x), self.y(*y), escaped(said));
            self.put(&format!(
                "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{said}</title></circle>\n"
            ));
        }
    }

    /// A thin mark from one place to another.
    pub fn mark(&mut self, from: (f64, f64), to: (f64, f64)) {
        let ((left, bottom), (right, top)) = (self.at(from), self.at(to));
        self.put(&format!(
            "<line class=\"mark\" x1=\"{left:.1}\" y1=\"{bottom:.1}\" x2=\"{right:.1}\" y2=\"{top:.1}\"/>\n"
        ));
    }

    /// Words at a place, moved by so many pixels, `start`, `middle` or `end` of them there.
    pub fn words(&mut self, at: (f64, f64), moved: (f64, f64), anchor: &str, words: &str) {
        let ((x, y), words) = (self.at(at), escaped(words));
        let (x, y) = (x + moved.0, y + moved.1);
        self.put(&format!(
            "<text class=\"strong\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>\n"
        ));
    }

    /// What is drawn.
    pub fn svg(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }

    fn up(&mut self, axis: &Axis) {
        let right = WIDTH - RIGHT;
        for (share, text) in &axis.ticks {
            let (y, text) = (self.y(*share), escaped(text));
            self.put(&format!(
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>\n",
                LEFT - 8.0,
                y + 4.5
            ));
        }
        let label = escaped(&axis.label);
        self.put(&format!("<text x=\"0\" y=\"14\">{label}</text>\n"));
    }

    fn across(&mut self, axis: &Axis) {
        let (bottom, right) = (self.height - BOTTOM, WIDTH - RIGHT);
        self.put(&format!(
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>\n"
        ));
        for (share, text) in &axis.ticks {
            let (x, text) = (self.x(*share), escaped(text));
            self.put(&format!(
                "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>\n",
                bottom + 19.0
            ));
        }
        let label = escaped(&axis.label);
        self.put(&format!(
            "<text x=\"{right}\" y=\"{}\" text-anchor=\"end\">{label}</text>\n",
            self.height - 6.0
        ));
    }

    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (self.x(x), self.y(y))
    }

    fn x(&self, share: f64) -> f64 {
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, share: f64) -> f64 {
        let (top, bottom) = (TOP, self.height - BOTTOM);
        bottom - share * (bottom - top)
    }

    fn put(&mut self, shape: &str) {
        self.svg.push_str(shape);
    }
}

/// Round numbers from 0 to the first that is no less than `most`, in at most five steps of at least `least`; and the last.
pub(super) fn round_steps(most: f64, least: f64) -> (Vec<f64>, f64) {
    let most = if most > 0.0 { most } else { 1.0 };
    let magnitude = 10_f64.powf((most / 5.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * magnitude);
    let step = steps.into_iter().find(|step| most / step <= 5.0);
    let step = step.unwrap_or(most).max(least);
    let many = (most / step).ceil();
    let numbers = std::iter::successors(Some(0.0), |number| Some(number + 1.0));
    let numbers = numbers.take_while(|number| *number <= many);
    (numbers.map(|number| number * step).collect(), many * step)
}

const WIDTH: f64 = 800.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 48.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_round_numbers_and_ends_no_lower_than_what_is_drawn() {
        for (most, least, last, steps) in [
            (7.0, 1.0, 8.0, 4),
            (1.0, 0.0, 1.0, 5),
            (0.3, 0.0, 0.3, 3),
            (0.0, 0.0, 1.0, 5),
            (4_321.0, 1.0, 5_000.0, 5),
            // Of counts none is between two.
            (0.0, 1.0, 1.0, 1),
            (1.0, 1.0, 1.0, 1),
            (2.0, 1.0, 2.0, 2),
        ] {
            let (numbers, end) = round_steps(most, least);
            assert!((end - last).abs() < 1e-9, "{most}: {end}");
            assert_eq!(numbers.len(), steps + 1, "{most}: {numbers:?}");
        }
    }
}
