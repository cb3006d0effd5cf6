//! Results of store calls: repeated failures make a node not ready, whatever the store reports itself.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use duly_core::{
    Lane, Monotonic,
    store::{StoreError, StoreErrorKind},
};

use crate::seconds;

/// Failures in a row that count. Fewer may be a deadlock or a broken connection, which are retried.
const FAILURES_MIN: u32 = 3;
/// How long a failure counts. Delivery retries several times within it.
const FAILURE_TTL: Duration = seconds(30);
/// Lanes with failing claims that are tracked.
const LANES_MAX: usize = 1_000;

/// A call of the store.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StoreCall<'a> {
    Insert,
    Claim(&'a Lane),
    Settle,
    /// Apart from settles, because a renewal that succeeds says nothing of them.
    Extend,
    Sweep,
}

/// Failures in a row of one kind of call.
#[derive(Debug, Default)]
struct Streak {
    times: u32,
    last: Option<(Monotonic, StoreError)>,
}

impl Streak {
    fn failed(&mut self, now: Monotonic, error: &StoreError) {
        self.times = self.times.saturating_add(1);
        self.last = Some((now, error.clone()));
    }

    fn current_error(&self, now: Monotonic) -> Option<&StoreError> {
        let (at, error) = self.last.as_ref()?;
        (self.times >= FAILURES_MIN && now.since(*at) < FAILURE_TTL).then_some(error)
    }
}

#[derive(Debug, Default)]
struct Streaks {
    insert: Streak,
    settle: Streak,
    extend: Streak,
    sweep: Streak,
    /// By lane, so that a lane with damaged messages is not hidden by a healthy one.
    claims: BTreeMap<Lane, Streak>,
    /// While claims of some lane fail: the lane of the last successful claim, and its time.
    claimed: Option<(Lane, Monotonic)>,
}

impl Streaks {
    fn is_empty(&self) -> bool {
        let Self { insert, settle, extend, sweep, claims, claimed: _ } = self;
        claims.is_empty() && [insert, settle, extend, sweep].iter().all(|streak| streak.times == 0)
    }

    /// Fails if claims of some lanes fail repeatedly.
    fn failing_lanes(&self, now: Monotonic) -> Result<(), StoreError> {
        let mut failing =
            self.claims.iter().filter_map(|(lane, streak)| Some((lane, streak.current_error(now)?)));
        let Some((lane, error)) = failing.next() else { return Ok(()) };
        let more = match failing.count() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        failing_with(Some(error), &format!("claims of {lane}{more}"))
    }

    /// Whether a claim of some lane succeeded recently, and none of that lane failed since.
    fn is_claiming(&self, now: Monotonic) -> bool {
        let claimed = self.claimed.as_ref();
        claimed.is_some_and(|(lane, at)| now.since(*at) < FAILURE_TTL && !self.claims.contains_key(lane))
    }
}

/// Tracks the results of recent store calls.
#[derive(Debug, Default)]
pub(crate) struct StoreMonitor {
    streaks: Mutex<Streaks>,
    /// Whether anything failed; a fast path while nothing did.
    failing: AtomicBool,
    /// Since when a sweep is running.
    sweep_since: Mutex<Option<Monotonic>>,
}

impl StoreMonitor {
    fn lock(&self) -> MutexGuard<'_, Streaks> {
        self.streaks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn sweep_began(&self, now: Monotonic) {
        *self.sweep_since.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    pub(crate) fn sweep_ended(&self) {
        *self.sweep_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Fails if a sweep has run for longer than a lease: the store hangs, and the leases of this node have ended.
    pub(crate) fn check_answering(&self, now: Monotonic, lease: Duration) -> Result<(), StoreError> {
        let since = *self.sweep_since.lock().unwrap_or_else(PoisonError::into_inner);
        match since.filter(|since| now.since(*since) > lease) {
            None => Ok(()),
            Some(_) => {
                let what = format!("the store has not answered a sweep for more than {lease:?}");
                Err(StoreError::new(StoreErrorKind::Unavailable, what))
            }
        }
    }

    pub(crate) fn record_success(&self, call: StoreCall<'_>, now: Monotonic) {
        if !self.failing.load(Relaxed) {
            return;
        }
        let mut streaks = self.lock();
        match call {
            StoreCall::Insert => streaks.insert = Streak::default(),
            StoreCall::Settle => streaks.settle = Streak::default(),
            StoreCall::Extend => streaks.extend = Streak::default(),
            StoreCall::Sweep => streaks.sweep = Streak::default(),
            StoreCall::Claim(lane) => {
                streaks.claims.remove(lane);
                let others_fail = !streaks.claims.is_empty();
                streaks.claimed = others_fail.then(|| (lane.clone(), now));
            }
        }
        self.failing.store(!streaks.is_empty(), Relaxed);
    }

    pub(crate) fn record_failure(&self, call: StoreCall<'_>, now: Monotonic, error: &StoreError) {
        let mut streaks = self.lock();
        self.failing.store(true, Relaxed);
        let Streaks { insert, settle, extend, sweep, claims, claimed: _ } = &mut *streaks;
        match call {
            StoreCall::Insert => insert.failed(now, error),
            StoreCall::Settle => settle.failed(now, error),
            StoreCall::Extend => extend.failed(now, error),
            StoreCall::Sweep => sweep.failed(now, error),
            StoreCall::Claim(lane) => {
                if claims.len() >= LANES_MAX && !claims.contains_key(lane) {
                    claims.retain(|_, streak| streak.current_error(now).is_some());
                }
                if claims.len() < LANES_MAX || claims.contains_key(lane) {
                    claims.entry(lane.clone()).or_default().failed(now, error);
                }
            }
        }
    }

    /// Fails if inserts fail repeatedly.
    pub(crate) fn check_accepting(&self, now: Monotonic) -> Result<(), StoreError> {
        failing_with(self.lock().insert.current_error(now), "inserts")
    }

    /// The error of lanes whose claims fail while those of others succeed.
    pub(crate) fn degraded(&self, now: Monotonic) -> Option<StoreError> {
        let streaks = self.lock();
        streaks.failing_lanes(now).err().filter(|_| streaks.is_claiming(now))
    }

    /// Fails if claims of all lanes, settles, renewals or sweeps fail repeatedly.
    pub(crate) fn check_claiming(&self, now: Monotonic) -> Result<(), StoreError> {
        let streaks = self.lock();
        if !streaks.is_claiming(now) {
            streaks.failing_lanes(now)?;
        }
        let rest = [(&streaks.settle, "settles"), (&streaks.extend, "renewals"), (&streaks.sweep, "sweeps")];
        rest.into_iter().try_for_each(|(streak, what)| failing_with(streak.current_error(now), what))
    }
}

fn failing_with(error: Option<&StoreError>, what: &str) -> Result<(), StoreError> {
    error.map_or(Ok(()), |error| Err(error.clone().in_words(|text| format!("{what} fail: {text}"))))
}

/// Whether an error is a failure of the store. A limit that is reached or a message too large is none.
pub(crate) fn is_failure(error: &StoreError) -> bool {
    use StoreErrorKind::{TooLarge, TooMany, TooManyInFlight};
    !matches!(error.kind, TooMany | TooManyInFlight | TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;
    use duly_core::Topic;

    fn lane(topic: usize) -> Lane {
        Lane::Queue(Topic::parse(&format!("t{topic}")).unwrap())
    }

    fn error() -> StoreError {
        StoreError::new(StoreErrorKind::Damaged, "unreadable")
    }

    #[test]
    fn a_sweep_that_is_not_answered_within_a_lease_is_a_failure_until_it_is() {
        let monitor = StoreMonitor::default();
        let (lease, at) = (seconds(2), |secs: u64| Monotonic::from_micros(secs * 1_000_000));
        assert!(monitor.check_answering(at(100), lease).is_ok(), "none is under way");
        monitor.sweep_began(at(100));
        assert!(monitor.check_answering(at(102), lease).is_ok());
        assert!(monitor.check_answering(at(103), lease).is_err());
        monitor.sweep_ended();
        assert!(monitor.check_answering(at(103), lease).is_ok());
    }

    #[test]
    fn what_fails_again_and_again_counts_until_it_succeeds_or_is_long_ago() {
        let (monitor, start) = (StoreMonitor::default(), Monotonic::from_micros(0));
        let (good, bad) = (lane(1), lane(2));
        for _ in 0..FAILURES_MIN {
            assert_eq!(monitor.check_claiming(start), Ok(()));
            monitor.record_failure(StoreCall::Claim(&bad), start, &error());
        }
        let text = monitor.check_claiming(start).unwrap_err();
        assert_eq!(text.what, "claims of queue/t2 fail: unreadable");
        assert_eq!(
            monitor.check_claiming(start.saturating_add(FAILURE_TTL)),
            Ok(()),
            "nobody asks for it any more"
        );
        monitor.record_success(StoreCall::Claim(&good), start);
        monitor.record_success(StoreCall::Claim(&bad), start);
        assert_eq!((monitor.check_claiming(start), monitor.failing.load(Relaxed)), (Ok(()), false));
        for call in [StoreCall::Settle, StoreCall::Extend, StoreCall::Sweep, StoreCall::Insert] {
            (0..FAILURES_MIN).for_each(|_| monitor.record_failure(call, start, &error()));
            assert!(monitor.check_claiming(start).and(monitor.check_accepting(start)).is_err());
            monitor.record_success(call, start);
            assert!(monitor.check_claiming(start).and(monitor.check_accepting(start)).is_ok());
        }
    }

    #[test]
    fn a_renewal_that_succeeds_does_not_hide_settles_that_fail() {
        let (monitor, start) = (StoreMonitor::default(), Monotonic::from_micros(0));
        for _ in 0..FAILURES_MIN {
            monitor.record_failure(StoreCall::Settle, start, &error());
            monitor.record_success(StoreCall::Extend, start);
        }
        assert_eq!(monitor.check_claiming(start).unwrap_err().what, "settles fail: unreadable");
        monitor.record_success(StoreCall::Settle, start);
        assert_eq!(monitor.check_claiming(start), Ok(()));
    }

    #[test]
    fn one_lane_that_fails_degrades_a_node_on_which_others_are_claimed_from() {
        let (monitor, start) = (StoreMonitor::default(), Monotonic::from_micros(0));
        let (good, bad) = (lane(1), lane(2));
        for _ in 0..FAILURES_MIN {
            monitor.record_failure(StoreCall::Claim(&bad), start, &error());
            monitor.record_success(StoreCall::Claim(&good), start);
        }
        assert_eq!(monitor.check_claiming(start), Ok(()));
        assert_eq!(monitor.degraded(start).unwrap().what, "claims of queue/t2 fail: unreadable");
        // Nothing shows that the other could still be claimed from.
        monitor.record_failure(StoreCall::Claim(&good), start, &error());
        assert_eq!(monitor.degraded(start), None);
        assert!(monitor.check_claiming(start).is_err());
        monitor.record_success(StoreCall::Claim(&good), start);
        monitor.record_success(StoreCall::Claim(&bad), start);
        assert_eq!((monitor.check_claiming(start), monitor.degraded(start)), (Ok(()), None));
        assert!(monitor.lock().claimed.is_none());
    }

    #[test]
    fn however_many_lanes_fail_what_is_kept_of_them_is_bounded() {
        let (monitor, start) = (StoreMonitor::default(), Monotonic::from_micros(0));
        for topic in 0..2 * LANES_MAX {
            monitor.record_failure(StoreCall::Claim(&lane(topic)), start, &error());
        }
        assert!(monitor.lock().claims.len() <= LANES_MAX);
    }
}
