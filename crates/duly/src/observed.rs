//! How calls of the store end: what fails again and again is not ready, whatever the store says of itself.

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

/// So many failures in a row are no accident: a deadlock or a connection that broke is one, and is tried again.
const FAILURES_MIN: u32 = 3;
/// A failure says nothing of the present any more after this span. What delivers tries again several times within it.
const COUNTS_FOR: Duration = seconds(30);
/// So many lanes with failing claims are told apart.
const LANES_MAX: usize = 1_000;

/// A call of the store.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Call<'a> {
    Insert,
    Claim(&'a Lane),
    Settle,
    /// Apart from settles: a renewal that succeeds says nothing of those.
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

    fn counts(&self, now: Monotonic) -> Option<&StoreError> {
        let (at, error) = self.last.as_ref()?;
        (self.times >= FAILURES_MIN && now.since(*at) < COUNTS_FOR).then_some(error)
    }
}

#[derive(Debug, Default)]
struct Streaks {
    insert: Streak,
    settle: Streak,
    extend: Streak,
    sweep: Streak,
    /// By lane: one whose messages are damaged must not be hidden by another that is well.
    claims: BTreeMap<Lane, Streak>,
    /// While claims of some lane fail: the lane whose claim last succeeded, and when.
    claimed: Option<(Lane, Monotonic)>,
}

impl Streaks {
    fn is_empty(&self) -> bool {
        let Self { insert, settle, extend, sweep, claims, claimed: _ } = self;
        claims.is_empty() && [insert, settle, extend, sweep].iter().all(|streak| streak.times == 0)
    }

    /// The lanes whose claims fail again and again.
    fn failing_lanes(&self, now: Monotonic) -> Result<(), StoreError> {
        let mut failing = self.claims.iter().filter_map(|(lane, streak)| Some((lane, streak.counts(now)?)));
        let Some((lane, error)) = failing.next() else { return Ok(()) };
        let more = match failing.count() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        told(Some(error), &format!("claims of {lane}{more}"))
    }

    /// Whether a claim of some lane has succeeded of late, and none of that lane has failed since.
    fn is_claiming(&self, now: Monotonic) -> bool {
        let claimed = self.claimed.as_ref();
        claimed.is_some_and(|(lane, at)| now.since(*at) < COUNTS_FOR && !self.claims.contains_key(lane))
    }
}

/// How calls of the store ended of late.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    streaks: Mutex<Streaks>,
    /// Whether anything failed: while all is well, a call costs one load.
    failing: AtomicBool,
    /// Since when a sweep waits for its answer.
    sweep_since: Mutex<Option<Monotonic>>,
}

impl Observed {
    fn lock(&self) -> MutexGuard<'_, Streaks> {
        self.streaks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn sweep_began(&self, now: Monotonic) {
        *self.sweep_since.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    pub(crate) fn sweep_ended(&self) {
        *self.sweep_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// A sweep that waits for longer than a lease: the store hangs, and whatever this node held by a lease has ended.
    pub(crate) fn answering(&self, now: Monotonic, lease: Duration) -> Result<(), StoreError> {
        let since = *self.sweep_since.lock().unwrap_or_else(PoisonError::into_inner);
        match since.filter(|since| now.since(*since) > lease) {
            None => Ok(()),
            Some(_) => {
                let what = format!("the store has not answered a sweep for more than {lease:?}");
                Err(StoreError::new(StoreErrorKind::Unavailable, what))
            }
        }
    }

    pub(crate) fn well(&self, call: Call<'_>, now: Monotonic) {
        if !self.failing.load(Relaxed) {
            return;
        }
        let mut streaks = self.lock();
        match call {
            Call::Insert => streaks.insert = Streak::default(),
            Call::Settle => streaks.settle = Streak::default(),
            Call::Extend => streaks.extend = Streak::default(),
            Call::Sweep => streaks.sweep = Streak::default(),
            Call::Claim(lane) => {
                streaks.claims.remove(lane);
                let others_fail = !streaks.claims.is_empty();
                streaks.claimed = others_fail.then(|| (lane.clone(), now));
            }
        }
        self.failing.store(!streaks.is_empty(), Relaxed);
    }

    pub(crate) fn failed(&self, call: Call<'_>, now: Monotonic, error: &StoreError) {
        let mut streaks = self.lock();
        self.failing.store(true, Relaxed);
        let Streaks { insert, settle, extend, sweep, claims, claimed: _ } = &mut *streaks;
        match call {
            Call::Insert => insert.failed(now, error),
            Call::Settle => settle.failed(now, error),
            Call::Extend => extend.failed(now, error),
            Call::Sweep => sweep.failed(now, error),
            Call::Claim(lane) => {
                if claims.len() >= LANES_MAX && !claims.contains_key(lane) {
                    claims.retain(|_, streak| streak.counts(now).is_some());
                }
                if claims.len() < LANES_MAX || claims.contains_key(lane) {
                    claims.entry(lane.clone()).or_default().failed(now, error);
                }
            }
        }
    }

    /// Why messages are not accepted, as far as calls have shown.
    pub(crate) fn accepting(&self, now: Monotonic) -> Result<(), StoreError> {
        told(self.lock().insert.counts(now), "inserts")
    }

    /// Why the messages of some lanes do not go out while those of others do, as far as calls have shown.
    pub(crate) fn degraded(&self, now: Monotonic) -> Option<StoreError> {
        let streaks = self.lock();
        streaks.failing_lanes(now).err().filter(|_| streaks.is_claiming(now))
    }

    /// Why what is due does not go out or is not recorded, as far as calls have shown. Some lanes that fail are not all.
    pub(crate) fn claiming(&self, now: Monotonic) -> Result<(), StoreError> {
        let streaks = self.lock();
        if !streaks.is_claiming(now) {
            streaks.failing_lanes(now)?;
        }
        let rest = [(&streaks.settle, "settles"), (&streaks.extend, "renewals"), (&streaks.sweep, "sweeps")];
        rest.into_iter().try_for_each(|(streak, what)| told(streak.counts(now), what))
    }
}

fn told(error: Option<&StoreError>, what: &str) -> Result<(), StoreError> {
    error.map_or(Ok(()), |error| Err(error.clone().in_words(|said| format!("{what} fail: {said}"))))
}

/// Whether an error means that the store does not do its work. A limit that is reached is none, nor a message too large.
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
        let observed = Observed::default();
        let (lease, at) = (seconds(2), |secs: u64| Monotonic::from_micros(secs * 1_000_000));
        assert!(observed.answering(at(100), lease).is_ok(), "none is under way");
        observed.sweep_began(at(100));
        assert!(observed.answering(at(102), lease).is_ok());
        assert!(observed.answering(at(103), lease).is_err());
        observed.sweep_ended();
        assert!(observed.answering(at(103), lease).is_ok());
    }

    #[test]
    fn what_fails_again_and_again_counts_until_it_succeeds_or_is_long_ago() {
        let (observed, start) = (Observed::default(), Monotonic::from_micros(0));
        let (good, bad) = (lane(1), lane(2));
        for _ in 0..FAILURES_MIN {
            assert_eq!(observed.claiming(start), Ok(()));
            observed.failed(Call::Claim(&bad), start, &error());
        }
        let said = observed.claiming(start).unwrap_err();
        assert_eq!(said.what, "claims of queue/t2 fail: unreadable");
        assert_eq!(
            observed.claiming(start.saturating_add(COUNTS_FOR)),
            Ok(()),
            "nobody asks for it any more"
        );
        observed.well(Call::Claim(&good), start);
        observed.well(Call::Claim(&bad), start);
        assert_eq!((observed.claiming(start), observed.failing.load(Relaxed)), (Ok(()), false));
        for call in [Call::Settle, Call::Extend, Call::Sweep, Call::Insert] {
            (0..FAILURES_MIN).for_each(|_| observed.failed(call, start, &error()));
            assert!(observed.claiming(start).and(observed.accepting(start)).is_err());
            observed.well(call, start);
            assert!(observed.claiming(start).and(observed.accepting(start)).is_ok());
        }
    }

    #[test]
    fn a_renewal_that_succeeds_does_not_hide_settles_that_fail() {
        let (observed, start) = (Observed::default(), Monotonic::from_micros(0));
        for _ in 0..FAILURES_MIN {
            observed.failed(Call::Settle, start, &error());
            observed.well(Call::Extend, start);
        }
        assert_eq!(observed.claiming(start).unwrap_err().what, "settles fail: unreadable");
        observed.well(Call::Settle, start);
        assert_eq!(observed.claiming(start), Ok(()));
    }

    #[test]
    fn one_lane_that_fails_degrades_a_node_on_which_others_are_claimed_from() {
        let (observed, start) = (Observed::default(), Monotonic::from_micros(0));
        let (good, bad) = (lane(1), lane(2));
        for _ in 0..FAILURES_MIN {
            observed.failed(Call::Claim(&bad), start, &error());
            observed.well(Call::Claim(&good), start);
        }
        assert_eq!(observed.claiming(start), Ok(()));
        assert_eq!(observed.degraded(start).unwrap().what, "claims of queue/t2 fail: unreadable");
        // Nothing shows that the other could still be claimed from.
        observed.failed(Call::Claim(&good), start, &error());
        assert_eq!(observed.degraded(start), None);
        assert!(observed.claiming(start).is_err());
        observed.well(Call::Claim(&good), start);
        observed.well(Call::Claim(&bad), start);
        assert_eq!((observed.claiming(start), observed.degraded(start)), (Ok(()), None));
        assert!(observed.lock().claimed.is_none());
    }

    #[test]
    fn however_many_lanes_fail_what_is_kept_of_them_is_bounded() {
        let (observed, start) = (Observed::default(), Monotonic::from_micros(0));
        for topic in 0..2 * LANES_MAX {
            observed.failed(Call::Claim(&lane(topic)), start, &error());
        }
        assert!(observed.lock().claims.len() <= LANES_MAX);
    }
}
