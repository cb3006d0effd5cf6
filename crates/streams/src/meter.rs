//! Metrics through the `metrics` facade. Install a recorder before listeners start.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::Stats;

/// The metrics of one group of a topic.
pub(crate) struct Meter {
    backlog: Gauge,
    lag: Gauge,
    pending: Gauge,
    waiting: Gauge,
    oldest: Gauge,
    dead_letters: Gauge,
    seconds: Histogram,
    handled: Counter,
    failures: Counter,
    dead_lettered: Counter,
    lost: Counter,
    trim_blocked: Gauge,
}

impl Meter {
    pub(crate) fn new(topic: &str, group: &str) -> Self {
        let labels = [("topic", topic.to_owned()), ("group", group.to_owned())];
        Self {
            backlog: gauge!("duly_streams_backlog", &labels),
            lag: gauge!("duly_streams_lag", &labels),
            pending: gauge!("duly_streams_pending", &labels),
            waiting: gauge!("duly_streams_waiting", &labels),
            oldest: gauge!("duly_streams_oldest_pending_seconds", &labels),
            dead_letters: gauge!("duly_streams_dead_letters", &labels),
            seconds: histogram!("duly_streams_handling_seconds", &labels),
            handled: counter!("duly_streams_handled_total", &labels),
            failures: counter!("duly_streams_failures_total", &labels),
            dead_lettered: counter!("duly_streams_dead_letters_total", &labels),
            lost: counter!("duly_streams_trimmed_unhandled_total", &labels),
            trim_blocked: gauge!("duly_streams_trim_blocked", &labels),
        }
    }

    pub(crate) fn record_handled(&self, count: usize, took: Duration) {
        self.seconds.record(took.as_secs_f64());
        self.handled.increment(count as u64);
    }

    pub(crate) fn record_failure(&self) {
        self.failures.increment(1);
    }

    pub(crate) fn record_dead_letter(&self) {
        self.dead_lettered.increment(1);
    }

    pub(crate) fn record_lost(&self, count: usize) {
        self.lost.increment(count as u64);
    }

    pub(crate) fn record_trim_blocked(&self, entries: u64) {
        self.trim_blocked.set(entries as f64);
    }

    pub(crate) fn record_stats(&self, stats: &Stats) {
        self.backlog.set(stats.backlog() as f64);
        self.lag.set(stats.lag as f64);
        self.pending.set(stats.pending as f64);
        self.waiting.set(stats.waiting as f64);
        self.oldest.set(stats.oldest_pending.unwrap_or_default().as_secs_f64());
        self.dead_letters.set(stats.dead_letters as f64);
    }
}
