//! Counting what happens: in all, per lane and per watched topic.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use duly_core::{Histogram, HistogramSnapshot, Lane, Topic, store::Settlement};

use crate::{LaneMetrics, Metrics, Stats};

/// So many lanes are counted by name. Topics of the queue are free text: without a bound they would fill the memory.
pub(crate) const LANES_MAX: usize = 1_000;

/// The counts of this process.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) accepted: AtomicU64,
    pub(crate) duplicates: AtomicU64,
    delivered: AtomicU64,
    failed: AtomicU64,
    dead: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) handed_out: AtomicU64,
    pub(crate) leases_lost: AtomicU64,
    pub(crate) leases_ended: AtomicU64,
    pub(crate) store_failures: AtomicU64,
    pub(crate) clock_jumps: AtomicU64,
    pub(crate) events_missed: Arc<AtomicU64>,
    lateness: Histogram,
    lanes: Mutex<HashMap<Lane, Arc<LaneTally>>>,
    other: Arc<LaneTally>,
    /// Set once; looking needs no lock.
    topics: BTreeMap<Topic, LaneTally>,
}

/// The counts of one lane, kept at hand by whoever works for it.
#[derive(Debug, Default)]
pub(crate) struct LaneTally {
    delivered: AtomicU64,
    failed: AtomicU64,
    dead: AtomicU64,
    lateness: Histogram,
    /// How long calls of the sink or handler take.
    pub(crate) calls: Histogram,
}

/// Adds to a count.
pub(crate) fn add(count: &AtomicU64, more: usize) {
    count.fetch_add(more as u64, Relaxed);
}

impl Tally {
    pub(crate) fn watching(topics: impl IntoIterator<Item = Topic>) -> Self {
        let topics = topics.into_iter().map(|topic| (topic, LaneTally::default())).collect();
        Self { topics, ..Self::default() }
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<Lane, Arc<LaneTally>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts of a lane: its own, or those of all the rest once there are too many.
    pub(crate) fn lane(&self, lane: &Lane) -> Arc<LaneTally> {
        let mut lanes = self.lanes();
        if let Some(known) = lanes.get(lane) {
            return known.clone();
        }
        if lanes.len() >= LANES_MAX {
            return self.other.clone();
        }
        lanes.entry(lane.clone()).or_default().clone()
    }

    /// A try began.
    pub(crate) fn began(&self, lane: &LaneTally, topic: &Topic, late_us: u64) {
        self.lateness.record(late_us);
        lane.lateness.record(late_us);
        if let Some(topic) = self.topic(topic) {
            topic.lateness.record(late_us);
        }
    }

    /// A claim was settled.
    pub(crate) fn settled(&self, lane: &LaneTally, topic: &Topic, settlement: &Settlement) {
        let (all, one): (_, fn(&LaneTally) -> &AtomicU64) = match settlement {
            Settlement::Delivered { .. } => (&self.delivered, |tally| &tally.delivered),
            // Nothing was tried.
            Settlement::Retry { attempt, .. } if attempt.is_deferral() => return,
            Settlement::Retry { .. } => (&self.failed, |tally| &tally.failed),
            Settlement::Dead { .. } => (&self.dead, |tally| &tally.dead),
            Settlement::Release | Settlement::Defer { .. } => return,
        };
        add(all, 1);
        add(one(lane), 1);
        if let Some(topic) = self.topic(topic) {
            add(one(topic), 1);
        }
    }

    /// Calls of the store that failed so far.
    pub(crate) fn failures(&self) -> u64 {
        self.store_failures.load(Relaxed)
    }

    fn topic(&self, topic: &Topic) -> Option<&LaneTally> {
        if self.topics.is_empty() { None } else { self.topics.get(topic) }
    }

    pub(crate) fn stats(&self) -> Stats {
        self.stats_with(&self.lateness.snapshot())
    }

    fn stats_with(&self, lateness: &HistogramSnapshot) -> Stats {
        Stats {
            accepted: self.accepted.load(Relaxed),
            duplicates: self.duplicates.load(Relaxed),
            delivered: self.delivered.load(Relaxed),
            failed: self.failed.load(Relaxed),
            dead: self.dead.load(Relaxed),
            cancelled: self.cancelled.load(Relaxed),
            handed_out: self.handed_out.load(Relaxed),
            leases_lost: self.leases_lost.load(Relaxed),
            leases_ended: self.leases_ended.load(Relaxed),
            store_failures: self.store_failures.load(Relaxed),
            clock_jumps: self.clock_jumps.load(Relaxed),
            events_missed: self.events_missed.load(Relaxed),
            lateness: lateness.into(),
        }
    }

    pub(crate) fn metrics(&self, store: duly_core::store::StoreMetrics) -> Metrics {
        let lateness = self.lateness.snapshot();
        let known: Vec<_> = self.lanes().iter().map(|(lane, tally)| (lane.clone(), tally.clone())).collect();
        let mut lanes: Vec<_> = known.into_iter().map(|(lane, tally)| (lane, tally.metrics())).collect();
        lanes.sort_unstable_by(|(one, _), (two, _)| one.cmp(two));
        Metrics {
            stats: self.stats_with(&lateness),
            lateness,
            lanes,
            other: self.other.metrics(),
            topics: self.topics.iter().map(|(topic, tally)| (topic.clone(), tally.metrics())).collect(),
            store,
        }
    }
}

impl LaneTally {
    fn metrics(&self) -> LaneMetrics {
        LaneMetrics {
            delivered: self.delivered.load(Relaxed),
            failed: self.failed.load(Relaxed),
            dead: self.dead.load(Relaxed),
            lateness: self.lateness.snapshot(),
            calls: self.calls.snapshot(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(number: usize) -> Lane {
        Lane::Queue(Topic::parse(&format!("topic-{number}")).unwrap())
    }

    #[test]
    fn lanes_past_the_most_are_counted_together() {
        let tally = Tally::default();
        let topic = Topic::parse("any").unwrap();
        for number in 0..5_000 {
            tally.began(&tally.lane(&queue(number)), &topic, 10);
            tally.settled(&tally.lane(&queue(number)), &topic, &Settlement::Delivered { receipt: None });
        }
        let measures = tally.metrics(Default::default());
        assert_eq!(measures.lanes.len(), LANES_MAX);
        assert_eq!(measures.other.delivered, 4_000);
        assert_eq!((measures.stats.delivered, measures.lateness.count()), (5_000, 5_000));
    }

    #[test]
    fn a_watched_topic_is_counted_whichever_lane_it_travels_in() {
        let topic = Topic::parse("order").unwrap();
        let tally = Tally::watching([topic.clone()]);
        let dead = Settlement::Dead { reason: duly_core::DeadReason::Refused, attempt: None };
        tally.settled(&tally.lane(&queue(1)), &topic, &dead);
        tally.settled(&tally.lane(&queue(2)), &topic, &Settlement::Release);
        tally.settled(&tally.lane(&queue(2)), &topic, &dead);
        tally.settled(&tally.lane(&queue(2)), &Topic::parse("mail").unwrap(), &dead);
        let measures = tally.metrics(Default::default());
        assert_eq!((measures.topics[0].1.dead, measures.stats.dead), (2, 3));
    }
}
