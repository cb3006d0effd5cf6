//! Rates: the difference between counters now and a moment ago.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use duly::{HistogramSnapshot, Lane, Metrics, Monotonic, SinkName};

/// Window of rates.
pub(super) const RATE_SPAN: Duration = Duration::from_secs(10);
/// Window of lateness and failures.
pub(super) const JUDGED_SPAN: Duration = Duration::from_secs(60);

/// Per second, over the last ten seconds.
#[derive(Debug, Clone, Default)]
pub struct Rates {
    /// Accepted.
    pub accepted: f64,
    /// Delivered.
    pub delivered: f64,
    /// Delivered, per sink; the built-in queue is one of them.
    pub delivered_by_sink: BTreeMap<String, f64>,
}

/// The counters at one time.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    at: Monotonic,
    accepted: u64,
    delivered: u64,
    by_sink: BTreeMap<String, u64>,
    all: AttemptCounts,
    topics: BTreeMap<String, AttemptCounts>,
}

/// Attempts: how many, how many failed, how late they began.
#[derive(Debug, Clone, Default)]
pub(super) struct AttemptCounts {
    pub(super) count: u64,
    pub(super) failed: u64,
    pub(super) lateness: HistogramSnapshot,
}

impl AttemptCounts {
    fn of(delivered: u64, failed: u64, lateness: &HistogramSnapshot) -> Self {
        Self { count: delivered + failed, failed, lateness: lateness.clone() }
    }

    /// Without those that are counted in `part`.
    pub(super) fn without(&self, part: &Self) -> Self {
        Self {
            count: self.count.saturating_sub(part.count),
            failed: self.failed.saturating_sub(part.failed),
            lateness: self.lateness.since(&part.lateness),
        }
    }
}

impl Sample {
    pub(super) fn of(at: Monotonic, measures: &Metrics) -> Self {
        let stats = &measures.stats;
        let mut by_sink = BTreeMap::from([(SinkName::QUEUE.to_owned(), measures.other.delivered)]);
        for (lane, measured) in &measures.lanes {
            let sink = match lane {
                Lane::Sink(sink) => sink.as_str(),
                _ => SinkName::QUEUE,
            };
            *by_sink.entry(sink.to_owned()).or_default() += measured.delivered;
        }
        let topic = |measured: &duly::LaneMetrics| {
            AttemptCounts::of(measured.delivered, measured.failed + measured.dead, &measured.lateness)
        };
        let topics = measures.topics.iter().map(|(name, measured)| (name.to_string(), topic(measured)));
        Self {
            at,
            accepted: stats.accepted,
            delivered: stats.delivered,
            by_sink,
            all: AttemptCounts::of(stats.delivered, stats.failed + stats.dead, &measures.lateness),
            topics: topics.collect(),
        }
    }
}

/// Samples of the last minute, oldest first.
#[derive(Debug, Default)]
pub(super) struct Samples(VecDeque<Sample>);

impl Samples {
    pub(super) fn push(&mut self, sample: Sample) {
        let now = sample.at;
        self.0.push_back(sample);
        // Keep one sample from before the window, or the window would be shorter.
        while self.0.get(1).is_some_and(|next| now.since(next.at) >= JUDGED_SPAN) {
            self.0.pop_front();
        }
    }

    /// The latest sample, and the one `span` earlier.
    fn ends(&self, span: Duration) -> Option<(&Sample, &Sample)> {
        let last = self.0.back()?;
        let first = self.0.iter().rev().find(|sample| last.at.since(sample.at) >= span);
        Some((first.or(self.0.front())?, last))
    }

    pub(super) fn rates(&self) -> Rates {
        let Some((first, last)) = self.ends(RATE_SPAN) else { return Rates::default() };
        let seconds = last.at.since(first.at).as_secs_f64();
        let rate = |old: u64, new: u64| {
            if seconds > 0.0 { new.saturating_sub(old) as f64 / seconds } else { 0.0 }
        };
        let by_sink = last.by_sink.iter().map(|(sink, new)| {
            let old = first.by_sink.get(sink).copied().unwrap_or(0);
            (sink.clone(), rate(old, *new))
        });
        Rates {
            accepted: rate(first.accepted, last.accepted),
            delivered: rate(first.delivered, last.delivered),
            delivered_by_sink: by_sink.collect(),
        }
    }

    /// Attempts of the last minute: all, and those of each watched topic.
    pub(super) fn attempts(&self) -> (AttemptCounts, BTreeMap<String, AttemptCounts>) {
        let Some((first, last)) = self.ends(JUDGED_SPAN) else { return Default::default() };
        let nothing = AttemptCounts::default();
        let topics = last.topics.iter().map(|(topic, attempts)| {
            (topic.clone(), attempts.without(first.topics.get(topic).unwrap_or(&nothing)))
        });
        (last.all.without(&first.all), topics.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(second: u64, accepted: u64) -> Sample {
        Sample { at: Monotonic::from_micros(second * 1_000_000), accepted, ..Sample::default() }
    }

    #[test]
    fn rates_are_those_of_the_last_ten_seconds() {
        let mut samples = Samples::default();
        assert_eq!(samples.rates().accepted, 0.0);
        samples.push(sample(0, 500));
        assert_eq!(samples.rates().accepted, 0.0, "one moment has no rate");
        samples.push(sample(2, 700));
        assert_eq!(samples.rates().accepted, 100.0, "a short time counts as what it is");
        for second in [4, 6, 8, 10, 12, 14] {
            samples.push(sample(second, 700));
        }
        assert_eq!(samples.rates().accepted, 0.0);
    }

    #[test]
    fn a_minute_is_kept_and_no_more() {
        let mut samples = Samples::default();
        for second in (0..600).step_by(2) {
            samples.push(sample(second, 0));
        }
        assert_eq!(samples.0.len(), 31);
    }
}
