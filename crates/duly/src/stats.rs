//! Statistics and metrics.

use std::time::Duration;

use duly_core::{HistogramSnapshot, Lane, Topic, store};

/// Counts of this process since it started.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Messages accepted.
    pub accepted: u64,
    /// Sends of known messages.
    pub duplicates: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// Failed attempts that are retried.
    pub failed: u64,
    /// Messages that became dead letters.
    pub dead: u64,
    /// Messages cancelled.
    pub cancelled: u64,
    /// Messages given to receivers of the built-in queue.
    pub handed_out: u64,
    /// Leases of this process that ended before their messages were settled.
    pub leases_lost: u64,
    /// Leases that ended, also those of receivers, as this process found them.
    pub leases_ended: u64,
    /// Failed calls of the store. Too many pending messages is no failure.
    pub store_failures: u64,
    /// Jumps of wall time.
    pub clock_jumps: u64,
    /// Events that subscribers missed.
    pub events_missed: u64,
    /// Lateness of attempts.
    pub lateness: Quantiles,
}

/// Lateness of attempts in quantiles. Each is the upper end of its bucket, so never too small.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Quantiles {
    /// The number of attempts.
    pub count: u64,
    /// 50 %.
    pub p50: Duration,
    /// 99 %.
    pub p99: Duration,
    /// 99.9 %.
    pub p999: Duration,
    /// The maximum.
    pub max: Duration,
}

impl From<&HistogramSnapshot> for Quantiles {
    fn from(snapshot: &HistogramSnapshot) -> Self {
        Self {
            count: snapshot.count(),
            p50: snapshot.quantile(0.5),
            p99: snapshot.quantile(0.99),
            p999: snapshot.quantile(0.999),
            max: snapshot.max(),
        }
    }
}

/// All metrics of this process.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// The counts.
    pub stats: Stats,
    /// Lateness of attempts.
    pub lateness: HistogramSnapshot,
    /// Per sink and queue, sorted; lanes past the [limit](crate::Builder::LANES_MEASURED_MAX) are in `other`.
    pub lanes: Vec<(Lane, LaneMetrics)>,
    /// The other lanes together.
    pub other: LaneMetrics,
    /// Per [watched](crate::Builder::watch_topics) topic, over all sinks, sorted.
    pub topics: Vec<(Topic, LaneMetrics)>,
    /// Metrics of the store.
    pub store: store::StoreMetrics,
}

/// Metrics of one lane or topic.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct LaneMetrics {
    /// Messages delivered.
    pub delivered: u64,
    /// Failed attempts that are retried.
    pub failed: u64,
    /// Messages that became dead letters.
    pub dead: u64,
    /// Lateness of attempts.
    pub lateness: HistogramSnapshot,
    /// Durations of calls of the sink or handler. Empty for receivers and topics.
    pub calls: HistogramSnapshot,
}
