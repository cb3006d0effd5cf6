//! Results of store calls: repeated failures make a node not ready, whatever the store reports itself.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use duly_core::{
    Lane, Monotonic,
    store::{Claimed, StoreError, StoreErrorKind},
};

use crate::seconds;

/// Failures in a row that count. Fewer may be a deadlock or a broken connection, which are retried.
const FAILURES_MIN: u32 = 3;
/// How long a failure counts. Delivery retries several times within it.
const FAILURE_TTL: Duration = seconds(30);
/// Lanes with failing claims that are tracked.
const LANES_MAX: usize = 1_000;

/// A call without a result for so long counts as failing: the store hangs. Clients of stores on a server give up before.
const CALL_TIMEOUT: Duration = seconds(10);

/// The kind of a call that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    Insert,
    Claim,
    Settle,
    Extend,
    Sweep,
}

impl CallKind {
    const ALL: [Self; 5] = [Self::Insert, Self::Claim, Self::Settle, Self::Extend, Self::Sweep];

    fn words(self) -> &'static str {
        match self {
            Self::Insert => "an insert",
            Self::Claim => "a claim",
            Self::Settle => "a settle",
            Self::Extend => "a renewal",
            Self::Sweep => "a sweep",
        }
    }
}

/// The calls under way, by kind and in the order of their begin.
#[derive(Debug, Default)]
struct OpenCalls {
    last: u64,
    begun: [BTreeMap<u64, Monotonic>; CallKind::ALL.len()],
}

/// A call is under way until this is dropped, also if its caller gives up.
#[derive(Debug)]
pub(crate) struct CallGuard {
    open: Arc<Mutex<OpenCalls>>,
    kind: CallKind,
    number: u64,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        lock(&self.open).begun[self.kind as usize].remove(&self.number);
    }
}

/// A call of the store.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StoreCall<'a> {
    Insert,
    Claim(&'a Lane),
    /// A claim that found nothing, not even a later message. It proves nothing of other lanes: of a queue that does not exist the
    /// store reads nothing.
    EmptyClaim(&'a Lane),
    Settle,
    /// Apart from settles, because a renewal that succeeds says nothing of them.
    Extend,
    Sweep,
}

impl<'a> StoreCall<'a> {
    /// A claim of `lane` with this result.
    pub(crate) fn claim(lane: &'a Lane, result: &Result<Claimed, StoreError>) -> Self {
        match result {
            Ok(Claimed { messages, next: None, .. }) if messages.is_empty() => Self::EmptyClaim(lane),
            _ => Self::Claim(lane),
        }
    }
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
    /// While claims of some lane fail: the lane of the last claim that found messages, and its time.
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

    /// Whether a claim of some lane found messages recently, and none of that lane failed since.
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
    open: Arc<Mutex<OpenCalls>>,
    /// When a claim found messages last, in microseconds.
    claimed_at: AtomicU64,
}

impl StoreMonitor {
    fn lock(&self) -> MutexGuard<'_, Streaks> {
        lock(&self.streaks)
    }

    /// A call begins. It is under way until the guard is dropped.
    pub(crate) fn begin(&self, kind: CallKind, now: Monotonic) -> CallGuard {
        let mut open = lock(&self.open);
        open.last += 1;
        let number = open.last;
        open.begun[kind as usize].insert(number, now);
        drop(open);
        CallGuard { open: self.open.clone(), kind, number }
    }

    /// Since when the oldest call of this kind is under way.
    fn oldest(&self, kind: CallKind) -> Option<Monotonic> {
        lock(&self.open).begun[kind as usize].values().next().copied()
    }

    /// Whether claims succeed although the oldest one has no result in time.
    fn are_others_claimed(&self, now: Monotonic) -> bool {
        let claimed = Monotonic::from_micros(self.claimed_at.load(Relaxed));
        let is_later = |since: Monotonic| claimed > since.saturating_add(CALL_TIMEOUT);
        now.since(claimed) < FAILURE_TTL && self.oldest(CallKind::Claim).is_some_and(is_later)
    }

    /// Fails if a call of this kind is under way for longer than `limit`.
    fn check_answering(&self, kind: CallKind, now: Monotonic, limit: Duration) -> Result<(), StoreError> {
        if self.oldest(kind).is_none_or(|since| now.since(since) <= limit) {
            return Ok(());
        }
        let what = format!("the store has not answered {} for more than {limit:?}", kind.words());
        Err(StoreError::new(StoreErrorKind::Unavailable, what))
    }

    pub(crate) fn record_success(&self, call: StoreCall<'_>, now: Monotonic) {
        if matches!(call, StoreCall::Claim(_)) {
            self.claimed_at.store(now.as_micros(), Relaxed);
        }
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
            StoreCall::EmptyClaim(lane) => {
                streaks.claims.remove(lane);
                if streaks.claims.is_empty() {
                    streaks.claimed = None;
                }
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
            StoreCall::Claim(lane) | StoreCall::EmptyClaim(lane) => {
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
    pub(crate) fn check_inserts(&self, now: Monotonic) -> Result<(), StoreError> {
        failing_with(self.lock().insert.current_error(now), "inserts")
    }

    /// Fails if an insert has no result.
    pub(crate) fn check_inserts_answered(&self, now: Monotonic) -> Result<(), StoreError> {
        self.check_answering(CallKind::Insert, now, CALL_TIMEOUT)
    }

    /// The error of lanes whose claims fail or have no result while those of others succeed.
    pub(crate) fn degraded(&self, now: Monotonic) -> Option<StoreError> {
        let streaks = self.lock();
        let failing = streaks.failing_lanes(now).err().filter(|_| streaks.is_claiming(now));
        failing.or_else(|| {
            let others = self.are_others_claimed(now);
            self.check_answering(CallKind::Claim, now, CALL_TIMEOUT).err().filter(|_| others)
        })
    }

    /// Fails if claims of all lanes, settles, renewals or sweeps fail repeatedly, or one of them has no result. A sweep may take as long as
    /// a lease: then the leases of this node have ended.
    pub(crate) fn check_claiming(&self, now: Monotonic, lease: Duration) -> Result<(), StoreError> {
        let streaks = self.lock();
        if !streaks.is_claiming(now) {
            streaks.failing_lanes(now)?;
        }
        let rest = [(&streaks.settle, "settles"), (&streaks.extend, "renewals"), (&streaks.sweep, "sweeps")];
        rest.into_iter().try_for_each(|(streak, what)| failing_with(streak.current_error(now), what))?;
        drop(streaks);
        if !self.are_others_claimed(now) {
            self.check_answering(CallKind::Claim, now, CALL_TIMEOUT)?;
        }
        self.check_answering(CallKind::Settle, now, CALL_TIMEOUT)?;
        self.check_answering(CallKind::Extend, now, CALL_TIMEOUT)?;
        self.check_answering(CallKind::Sweep, now, lease)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

    const LEASE: Duration = seconds(30);

    fn lane(topic: usize) -> Lane {
        Lane::Queue(Topic::parse(&format!("t{topic}")).unwrap())
    }

    fn error() -> StoreError {
        StoreError::new(StoreErrorKind::Damaged, "unreadable")
    }

    #[test]
    fn a_call_that_is_not_answered_is_a_failure_until_it_is() {
        let (monitor, at) = (StoreMonitor::default(), |secs: u64| Monotonic::from_micros(secs * 1_000_000));
        let check = |now| monitor.check_inserts_answered(now).and(monitor.check_claiming(now, LEASE));
        for kind in CallKind::ALL {
            let limit = if kind == CallKind::Sweep { LEASE } else { CALL_TIMEOUT };
            let (from, late) = (at(100), at(101).saturating_add(limit));
            let call = monitor.begin(kind, from);
            assert_eq!(check(from.saturating_add(limit)), Ok(()), "{kind:?}");
            let other = monitor.begin(kind, late);
            let error = check(late).unwrap_err();
            assert!(error.what.contains(kind.words()), "{error}");
            assert_eq!(monitor.check_inserts_answered(late).is_err(), kind == CallKind::Insert, "{kind:?}");
            drop(call);
            assert_eq!(check(late), Ok(()), "{kind:?}: only the other is under way");
            drop(other);
        }
    }

    #[test]
    fn a_claim_that_is_not_answered_degrades_a_node_on_which_others_are() {
        let (monitor, at) = (StoreMonitor::default(), |secs: u64| Monotonic::from_micros(secs * 1_000_000));
        let call = monitor.begin(CallKind::Claim, at(100));
        monitor.record_success(StoreCall::Claim(&lane(1)), at(105));
        assert!(monitor.check_claiming(at(111), LEASE).is_err(), "it says nothing of later");
        assert_eq!(monitor.degraded(at(111)), None);
        monitor.record_success(StoreCall::Claim(&lane(1)), at(112));
        assert_eq!(monitor.check_claiming(at(113), LEASE), Ok(()));
        assert!(monitor.degraded(at(113)).is_some());
        assert!(monitor.check_claiming(at(113).saturating_add(FAILURE_TTL), LEASE).is_err());
        drop(call);
        assert_eq!((monitor.check_claiming(at(113), LEASE), monitor.degraded(at(113))), (Ok(()), None));
    }

    #[test]
    fn what_fails_again_and_again_counts_until_it_succeeds_or_is_long_ago() {
        let (monitor, start) = (StoreMonitor::default(), Monotonic::from_micros(0));
        let (good, bad) = (lane(1), lane(2));
        for _ in 0..FAILURES_MIN {
            assert_eq!(monitor.check_claiming(start, LEASE), Ok(()));
            monitor.record_failure(StoreCall::Claim(&bad), start, &error());
        }
        let text = monitor.check_claiming(start, LEASE).unwrap_err();
        assert_eq!(text.what, "claims of queue/t2 fail: unreadable");
        assert_eq!(
            monitor.check_claiming(start.saturating_add(FAILURE_TTL), LEASE),
            Ok(()),
            "nobody asks for it any more"
        );
        monitor.record_success(StoreCall::Claim(&good), start);
        monitor.record_success(StoreCall::Claim(&bad), start);
        assert_eq!((monitor.check_claiming(start, LEASE), monitor.failing.load(Relaxed)), (Ok(()), false));
        for call in [StoreCall::Settle, StoreCall::Extend, StoreCall::Sweep, StoreCall::Insert] {
            (0..FAILURES_MIN).for_each(|_| monitor.record_failure(call, start, &error()));
            assert!(monitor.check_claiming(start, LEASE).and(monitor.check_inserts(start)).is_err());
            monitor.record_success(call, start);
            assert!(monitor.check_claiming(start, LEASE).and(monitor.check_inserts(start)).is_ok());
        }
    }

    #[test]
    fn a_renewal_that_succeeds_does_not_hide_settles_that_fail() {
        let (monitor, start) = (StoreMonitor::default(), Monotonic::from_micros(0));
        for _ in 0..FAILURES_MIN {
            monitor.record_failure(StoreCall::Settle, start, &error());
            monitor.record_success(StoreCall::Extend, start);
        }
        assert_eq!(monitor.check_claiming(start, LEASE).unwrap_err().what, "settles fail: unreadable");
        monitor.record_success(StoreCall::Settle, start);
        assert_eq!(monitor.check_claiming(start, LEASE), Ok(()));
    }

    #[test]
    fn one_lane_that_fails_degrades_a_node_on_which_others_are_claimed_from() {
        let (monitor, start) = (StoreMonitor::default(), Monotonic::from_micros(0));
        let (good, bad) = (lane(1), lane(2));
        for _ in 0..FAILURES_MIN {
            monitor.record_failure(StoreCall::Claim(&bad), start, &error());
            monitor.record_success(StoreCall::Claim(&good), start);
        }
        assert_eq!(monitor.check_claiming(start, LEASE), Ok(()));
        assert_eq!(monitor.degraded(start).unwrap().what, "claims of queue/t2 fail: unreadable");
        // Nothing shows that the other could still be claimed from.
        monitor.record_failure(StoreCall::Claim(&good), start, &error());
        assert_eq!(monitor.degraded(start), None);
        assert!(monitor.check_claiming(start, LEASE).is_err());
        monitor.record_success(StoreCall::Claim(&good), start);
        monitor.record_success(StoreCall::Claim(&bad), start);
        assert_eq!((monitor.check_claiming(start, LEASE), monitor.degraded(start)), (Ok(()), None));
        assert!(monitor.lock().claimed.is_none());
    }

    #[test]
    fn a_claim_that_finds_nothing_does_not_hide_that_those_of_others_fail() {
        let (monitor, at) = (StoreMonitor::default(), |secs: u64| Monotonic::from_micros(secs * 1_000_000));
        let (idle, bad) = (lane(1), lane(2));
        let claimed = |next| Ok(Claimed { messages: Vec::new(), next });
        let (nothing, later) = (claimed(None), claimed(Some(duly_core::Timestamp::default())));
        for _ in 0..FAILURES_MIN {
            monitor.record_failure(StoreCall::Claim(&bad), at(100), &error());
        }
        let call = monitor.begin(CallKind::Claim, at(100));
        monitor.record_success(StoreCall::claim(&idle, &nothing), at(111));
        assert!(monitor.check_claiming(at(112), LEASE).is_err());
        assert_eq!(monitor.degraded(at(112)), None);
        monitor.record_success(StoreCall::claim(&bad, &nothing), at(112));
        let error = monitor.check_claiming(at(112), LEASE).unwrap_err();
        assert!(error.what.contains("has not answered a claim"), "one of another lane goes on: {error}");
        monitor.record_success(StoreCall::claim(&idle, &later), at(113));
        assert_eq!(monitor.check_claiming(at(113), LEASE), Ok(()));
        drop(call);
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
