//! Health of each broker. A broker that rejects messages is avoided for a while, as RocketMQ's own clients do.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use duly_core::Monotonic;

/// A broker that rejected a message, or is silent while others answer, is avoided for this long.
const AVOIDED: Duration = Duration::from_secs(3);
/// Interval of heartbeats to a broker that is down.
const RECHECK: Duration = Duration::from_secs(3);
/// A broker is up if it answered within this time.
const ANSWERED: Duration = Duration::from_secs(60);
/// Brokers that are remembered; beyond this, all are forgotten.
const REMEMBERED: usize = 4_096;

/// How a broker ranks for the next message, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Preference {
    /// Up, as far as is known.
    Good,
    /// Only if there is no better one.
    Poor,
    /// Down until it answers a heartbeat: an unanswered message counts an attempt, a heartbeat does not.
    Down,
}

#[derive(Debug, Default)]
struct Broker {
    is_down: bool,
    recheck_at: Monotonic,
    avoided_until: Monotonic,
    answered_at: Option<Monotonic>,
    /// The largest batch that it may take, as far as it has refused any.
    batch_bytes_max: Option<usize>,
}

/// The state of each broker, by its address.
#[derive(Default)]
pub(super) struct Brokers(Mutex<HashMap<Arc<str>, Broker>>);

impl Brokers {
    pub(super) fn of(&self, address: &str, now: Monotonic) -> Preference {
        self.lock().get(address).map_or(Preference::Good, |broker| usable(broker, now))
    }

    /// The broker answered, with success or an error.
    pub(super) fn answered(&self, address: &Arc<str>, now: Monotonic) {
        self.change(address, |broker| {
            broker.is_down = false;
            broker.answered_at = Some(now);
        });
    }

    /// The broker rejected a message, or is silent.
    pub(super) fn avoid(&self, address: &Arc<str>, now: Monotonic) {
        self.change(address, |broker| broker.avoided_until = now.saturating_add(AVOIDED));
    }

    /// The broker is unreachable, or did not answer.
    pub(super) fn down(&self, address: &Arc<str>, now: Monotonic) {
        self.change(address, |broker| {
            broker.is_down = true;
            // It may come back in another version, or with other settings.
            broker.batch_bytes_max = None;
            broker.recheck_at = now.saturating_add(RECHECK);
        });
    }

    /// The broker refused a larger batch, or with 0 every batch.
    pub(super) fn limit_batches(&self, address: &Arc<str>, bytes_max: usize) {
        self.change(address, |broker| {
            let known = broker.batch_bytes_max.unwrap_or(usize::MAX);
            broker.batch_bytes_max = Some(known.min(bytes_max));
        });
    }

    /// Maximum of bytes of a batch that the broker takes.
    pub(super) fn batch_bytes_max(&self, address: &str) -> usize {
        let known = self.lock().get(address).and_then(|broker| broker.batch_bytes_max);
        known.unwrap_or(usize::MAX)
    }

    /// The brokers that are down and should be probed now. Each is returned to one caller at a time.
    pub(super) fn to_recheck(&self, now: Monotonic) -> Vec<Arc<str>> {
        let mut all = self.lock();
        let due = all.iter_mut().filter(|(_, broker)| broker.is_down && broker.recheck_at <= now);
        due.map(|(address, broker)| {
            broker.recheck_at = now.saturating_add(RECHECK);
            address.clone()
        })
        .collect()
    }

    /// Whether a broker other than these is up.
    pub(super) fn has_others(&self, these: &[Arc<str>], now: Monotonic) -> bool {
        self.lock().iter().any(|(other, broker)| {
            let is_there = broker.answered_at.is_some_and(|at| now.since(at) < ANSWERED);
            !these.contains(other) && is_there && usable(broker, now) != Preference::Down
        })
    }

    fn change(&self, address: &Arc<str>, change: impl FnOnce(&mut Broker)) {
        let mut all = self.lock();
        if all.len() >= REMEMBERED && !all.contains_key(address) {
            all.clear();
        }
        change(all.entry(address.clone()).or_default());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<str>, Broker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn usable(broker: &Broker, now: Monotonic) -> Preference {
    if broker.is_down {
        Preference::Down
    } else if broker.avoided_until > now {
        Preference::Poor
    } else {
        Preference::Good
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_broker_that_is_down_stays_so_until_it_answers_and_one_that_is_busy_for_a_while() {
        let (brokers, a) = (Brokers::default(), Arc::from("a:1"));
        let at = |seconds: u64| Monotonic::from_micros(seconds * SECOND);
        assert_eq!(brokers.of("a:1", at(0)), Preference::Good);
        brokers.avoid(&a, at(0));
        assert_eq!(
            (brokers.of("a:1", at(1)), brokers.of("a:1", at(3))),
            (Preference::Poor, Preference::Good)
        );
        brokers.down(&a, at(3));
        assert_eq!(brokers.to_recheck(at(4)), [] as [Arc<str>; 0]);
        assert_eq!(
            (brokers.of("a:1", at(999)), brokers.to_recheck(at(6))),
            (Preference::Down, vec![a.clone()])
        );
        assert_eq!(brokers.to_recheck(at(7)), [] as [Arc<str>; 0], "somebody is asking it already");
        brokers.answered(&a, at(7));
        assert_eq!(brokers.of("a:1", at(7)), Preference::Good);
    }

    #[test]
    fn a_limit_of_batches_falls_and_is_forgotten_when_the_broker_goes() {
        let (brokers, a, b) = (Brokers::default(), Arc::from("a:1"), Arc::from("b:1"));
        assert_eq!(brokers.batch_bytes_max("a:1"), usize::MAX);
        for (bytes, known) in [(1_000, 1_000), (5_000, 1_000), (0, 0)] {
            brokers.limit_batches(&a, bytes);
            assert_eq!(brokers.batch_bytes_max("a:1"), known);
        }
        brokers.answered(&a, Monotonic::from_micros(0));
        brokers.down(&b, Monotonic::from_micros(0));
        assert_eq!((brokers.batch_bytes_max("a:1"), brokers.batch_bytes_max("b:1")), (0, usize::MAX));
        brokers.down(&a, Monotonic::from_micros(0));
        assert_eq!(brokers.batch_bytes_max("a:1"), usize::MAX);
    }

    #[test]
    fn another_broker_is_there_only_if_it_answered_of_late() {
        let (brokers, a, b) = (Brokers::default(), [Arc::from("a:1")], Arc::from("b:1"));
        let at = |seconds: u64| Monotonic::from_micros(seconds * SECOND);
        brokers.answered(&a[0], at(0));
        assert!(!brokers.has_others(&a, at(1)));
        brokers.answered(&b, at(1));
        assert!(brokers.has_others(&a, at(2)) && !brokers.has_others(&a, at(70)));
        brokers.down(&b, at(2));
        assert!(!brokers.has_others(&a, at(2)));
    }
}
