//! Counters: in total, per lane and per watched topic.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use duly_core::{Histogram, HistogramSnapshot, Lane, Topic, store::Settlement};

use crate::{LaneMetrics, Metrics, Stats};

/// Lanes with counters of their own. Topics of the queue are free text: without a bound they would fill the memory.
pub(crate) const LANES_MAX: usize = 1_000;

/// The counters of this process.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) messages: MessageCounters,
    pub(crate) engine: EngineCounters,
    lateness: Histogram,
    lanes: Mutex<HashMap<Lane, Arc<LaneCounters>>>,
    /// The lanes past [`LANES_MAX`] together.
    other: Arc<LaneCounters>,
    /// The watched topics. Fixed at the start, so that reading needs no lock.
    topics: BTreeMap<Topic, LaneCounters>,
}

/// Counters of messages, over all lanes.
#[derive(Debug, Default)]
pub(crate) struct MessageCounters {
    pub(crate) accepted: AtomicU64,
    pub(crate) duplicates: AtomicU64,
    delivered: AtomicU64,
    failed: AtomicU64,
    dead: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) handed_out: AtomicU64,
}

/// Counters of the engine: leases, the store, the clock and event subscribers.
#[derive(Debug, Default)]
pub(crate) struct EngineCounters {
    pub(crate) leases_lost: AtomicU64,
    pub(crate) leases_ended: AtomicU64,
    pub(crate) store_failures: AtomicU64,
    pub(crate) clock_jumps: AtomicU64,
    pub(crate) events_missed: Arc<AtomicU64>,
}

/// The counters of one lane.
#[derive(Debug, Default)]
pub(crate) struct LaneCounters {
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

impl Counters {
    pub(crate) fn watching(topics: impl IntoIterator<Item = Topic>) -> Self {
        let topics = topics.into_iter().map(|topic| (topic, LaneCounters::default())).collect();
        Self { topics, ..Self::default() }
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<Lane, Arc<LaneCounters>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counters of a lane: its own, or those of all lanes past the limit.
    pub(crate) fn lane(&self, lane: &Lane) -> Arc<LaneCounters> {
        let mut lanes = self.lanes();
        if let Some(known) = lanes.get(lane) {
            return known.clone();
        }
        if lanes.len() >= LANES_MAX {
            return self.other.clone();
        }
        lanes.entry(lane.clone()).or_default().clone()
    }

    /// An attempt began.
    pub(crate) fn began(&self, lane: &LaneCounters, topic: &Topic, late_us: u64) {
        self.lateness.record(late_us);
        lane.lateness.record(late_us);
        if let Some(topic) = self.topic(topic) {
            topic.lateness.record(late_us);
        }
    }

    /// A claim was settled.
    pub(crate) fn settled(&self, lane: &LaneCounters, topic: &Topic, settlement: &Settlement) {
        let (all, one): (_, fn(&LaneCounters) -> &AtomicU64) = match settlement {
            Settlement::Delivered { .. } => (&self.messages.delivered, |counters| &counters.delivered),
            // A deferral is no attempt.
            Settlement::Retry { attempt, .. } if attempt.is_deferral() => return,
            Settlement::Retry { .. } => (&self.messages.failed, |counters| &counters.failed),
            Settlement::Dead { .. } => (&self.messages.dead, |counters| &counters.dead),
            Settlement::Release | Settlement::Defer { .. } => return,
        };
        add(all, 1);
        add(one(lane), 1);
        if let Some(topic) = self.topic(topic) {
            add(one(topic), 1);
        }
    }

    /// Failed calls of the store.
    pub(crate) fn failures(&self) -> u64 {
        self.engine.store_failures.load(Relaxed)
    }

    fn topic(&self, topic: &Topic) -> Option<&LaneCounters> {
        if self.topics.is_empty() { None } else { self.topics.get(topic) }
    }

    pub(crate) fn stats(&self) -> Stats {
        self.stats_with(&self.lateness.snapshot())
    }

    fn stats_with(&self, lateness: &HistogramSnapshot) -> Stats {
        let Self { messages, engine, .. } = self;
        Stats {
            accepted: messages.accepted.load(Relaxed),
            duplicates: messages.duplicates.load(Relaxed),
            delivered: messages.delivered.load(Relaxed),
            failed: messages.failed.load(Relaxed),
            dead: messages.dead.load(Relaxed),
            cancelled: messages.cancelled.load(Relaxed),
            handed_out: messages.handed_out.load(Relaxed),
            leases_lost: engine.leases_lost.load(Relaxed),
            leases_ended: engine.leases_ended.load(Relaxed),
            store_failures: engine.store_failures.load(Relaxed),
            clock_jumps: engine.clock_jumps.load(Relaxed),
            events_missed: engine.events_missed.load(Relaxed),
            lateness: lateness.into(),
        }
    }

    pub(crate) fn metrics(&self, store: duly_core::store::StoreMetrics) -> Metrics {
        let lateness = self.lateness.snapshot();
        let known: Vec<_> =
            self.lanes().iter().map(|(lane, counters)| (lane.clone(), counters.clone())).collect();
        let mut lanes: Vec<_> =
            known.into_iter().map(|(lane, counters)| (lane, counters.metrics())).collect();
        lanes.sort_unstable_by(|(one, _), (two, _)| one.cmp(two));
        Metrics {
            stats: self.stats_with(&lateness),
            lateness,
            lanes,
            other: self.other.metrics(),
            topics: self.topics.iter().map(|(topic, counters)| (topic.clone(), counters.metrics())).collect(),
            store,
        }
    }
}

impl LaneCounters {
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
        let counters = Counters::default();
        let topic = Topic::parse("any").unwrap();
        for number in 0..5_000 {
            counters.began(&counters.lane(&queue(number)), &topic, 10);
            counters.settled(
                &counters.lane(&queue(number)),
                &topic,
                &Settlement::Delivered { receipt: None },
            );
        }
        let measures = counters.metrics(Default::default());
        assert_eq!(measures.lanes.len(), LANES_MAX);
        assert_eq!(measures.other.delivered, 4_000);
        assert_eq!((measures.stats.delivered, measures.lateness.count()), (5_000, 5_000));
    }

    #[test]
    fn a_watched_topic_is_counted_whichever_lane_it_travels_in() {
        let topic = Topic::parse("order").unwrap();
        let counters = Counters::watching([topic.clone()]);
        let dead = Settlement::Dead { reason: duly_core::DeadReason::Refused, attempt: None };
        counters.settled(&counters.lane(&queue(1)), &topic, &dead);
        counters.settled(&counters.lane(&queue(2)), &topic, &Settlement::Release);
        counters.settled(&counters.lane(&queue(2)), &topic, &dead);
        counters.settled(&counters.lane(&queue(2)), &Topic::parse("mail").unwrap(), &dead);
        let measures = counters.metrics(Default::default());
        assert_eq!((measures.topics[0].1.dead, measures.stats.dead), (2, 3));
    }
}
