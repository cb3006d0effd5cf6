//! Prometheus's text form, version 0.0.4: the one that every scraper reads.
//!
//! Written by hand, because everything is known at the moment of the scrape: there is no registry to keep, and the
//! histograms come with their counts.

use std::fmt::{Display, Write};

use duly::HistogramSnapshot;

/// Bounds of histograms are powers of two of a microsecond, where the counts are exact: 64 µs to 71 minutes.
const DOUBLINGS: std::ops::RangeInclusive<u32> = 6..=32;

/// A page of metrics.
#[derive(Default)]
pub(super) struct Text(String);

/// One metric with its labels.
pub(super) struct Family<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl Text {
    pub(super) fn counter(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "counter", help)
    }

    pub(super) fn gauge(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "gauge", help)
    }

    pub(super) fn histogram(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "histogram", help)
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) -> Family<'_> {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { text: &mut self.0, name }
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

impl Family<'_> {
    /// One value. A label without a value is left out.
    pub(super) fn value(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.sample("", labels, None, value);
    }

    /// The buckets, the sum and the count of measured spans, in seconds.
    pub(super) fn spans(&mut self, labels: &[(&str, &str)], spread: &HistogramSnapshot) {
        let count = spread.count();
        for doublings in DOUBLINGS {
            let bound = (1u64 << doublings) as f64 / 1e6;
            self.sample("_bucket", labels, Some(&bound.to_string()), spread.below(doublings));
        }
        self.sample("_bucket", labels, Some("+Inf"), count);
        self.sample("_sum", labels, None, spread.sum().as_secs_f64());
        self.sample("_count", labels, None, count);
    }

    fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], bound: Option<&str>, value: impl Display) {
        let _ = write!(self.text, "{}{suffix}", self.name);
        let mut before = '{';
        for (name, label) in labels.iter().copied().chain(bound.map(|bound| ("le", bound))) {
            if !label.is_empty() {
                let _ = write!(self.text, "{before}{name}=\"{}\"", Escaped(label));
                before = ',';
            }
        }
        if before == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            c => f.write_char(c),
        })
    }
}
