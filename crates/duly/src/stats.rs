//! What is counted and measured, as numbers to read.

use std::time::Duration;

use duly_core::{HistogramSnapshot, Lane, Topic, store};

/// The counts of what happened in this process since it started.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Messages accepted.
    pub accepted: u64,
    /// Messages sent that were known already.
    pub duplicates: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// Tries that failed and are followed by another.
    pub failed: u64,
    /// Messages given up.
    pub dead: u64,
    /// Messages cancelled.
    pub cancelled: u64,
    /// Messages given to receivers of the built-in queue.
    pub handed_out: u64,
    /// Claims of this process that ended before their outcome was recorded: the messages come again.
    pub leases_lost: u64,
    /// Leases that ran out, receivers' too, as this process found them.
    pub leases_ended: u64,
    /// Calls of the store that failed. Too many pending messages is no failure.
    pub store_failures: u64,
    /// Steps of wall time.
    pub clock_jumps: u64,
    /// Events that listeners were too slow for.
    pub events_missed: u64,
    /// How late tries began.
    pub lateness: Quantiles,
}

/// How late tries began, in quantiles. Each is the upper end of its step, so never too small.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Quantiles {
    /// How many tries.
    pub count: u64,
    /// Half of them began within this.
    pub p50: Duration,
    /// All but one in a hundred.
    pub p99: Duration,
    /// All but one in a thousand.
    pub p999: Duration,
    /// All of them.
    pub max: Duration,
}

impl From<&HistogramSnapshot> for Quantiles {
    fn from(spread: &HistogramSnapshot) -> Self {
        Self {
            count: spread.count(),
            p50: spread.quantile(0.5),
            p99: spread.quantile(0.99),
            p999: spread.quantile(0.999),
            max: spread.max(),
        }
    }
}

/// Everything that this process measures, at one moment.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// The counts.
    pub stats: Stats,
    /// How late tries began.
    pub lateness: HistogramSnapshot,
    /// Per sink and queue, in order; those past the [most](crate::Builder::LANES_MEASURED_MAX) are in `other`.
    pub lanes: Vec<(Lane, LaneMetrics)>,
    /// The rest of the lanes together.
    pub other: LaneMetrics,
    /// Per topic that is [watched](crate::Builder::watch_topics), whichever sinks it goes to, in order.
    pub topics: Vec<(Topic, LaneMetrics)>,
    /// What the store measures.
    pub store: store::StoreMetrics,
}

/// What is measured of one lane or topic.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct LaneMetrics {
    /// Messages delivered.
    pub delivered: u64,
    /// Tries that failed and are followed by another.
    pub failed: u64,
    /// Messages given up.
    pub dead: u64,
    /// How late tries began.
    pub lateness: HistogramSnapshot,
    /// How long calls of the sink or handler took. Nothing for receivers, whose work nobody sees, and for topics.
    pub calls: HistogramSnapshot,
}
