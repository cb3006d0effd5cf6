//! Everything that is measured at one moment, whichever way it leaves.
//!
//! There is no registry to keep: everything is known when somebody asks, and the histograms come with their counts.

use duly::HistogramSnapshot;

/// Bounds of histograms are powers of two of a microsecond, where the counts are exact: 64 µs to 71 minutes.
const DOUBLINGS: std::ops::RangeInclusive<u32> = 6..=32;

/// A page of metrics.
#[derive(Default)]
pub(super) struct Page {
    pub(super) families: Vec<Family>,
}

/// One metric, with a value for each combination of its labels.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
    pub(super) samples: Vec<Sample>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

pub(super) struct Sample {
    /// A label without a value is left out.
    pub(super) labels: Vec<(&'static str, String)>,
    pub(super) value: Value,
}

pub(super) enum Value {
    Count(u64),
    Number(f64),
    Spans(HistogramSnapshot),
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<u8> for Value {
    fn from(flag: u8) -> Self {
        Self::Count(flag.into())
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl Page {
    pub(super) fn counter(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.family(name, Kind::Counter, help)
    }

    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.family(name, Kind::Gauge, help)
    }

    pub(super) fn histogram(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.family(name, Kind::Histogram, help)
    }

    fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) -> &mut Family {
        self.families.push(Family { name, kind, help, samples: Vec::new() });
        let last = self.families.len() - 1;
        &mut self.families[last]
    }
}

impl Family {
    /// One value.
    pub(super) fn value(&mut self, labels: &[(&'static str, &str)], value: impl Into<Value>) {
        let labels = labels.iter().filter(|(_, label)| !label.is_empty());
        let labels = labels.map(|(name, label)| (*name, (*label).to_owned())).collect();
        self.samples.push(Sample { labels, value: value.into() });
    }

    /// Measured spans.
    pub(super) fn spans(&mut self, labels: &[(&'static str, &str)], spans: &HistogramSnapshot) {
        self.value(labels, Value::Spans(spans.clone()));
    }
}

/// The bounds of every histogram in seconds, each with the number of spans that are shorter.
pub(super) fn buckets(spans: &HistogramSnapshot) -> impl Iterator<Item = (f64, u64)> {
    DOUBLINGS.map(|doublings| ((1u64 << doublings) as f64 / 1e6, spans.below(doublings)))
}
