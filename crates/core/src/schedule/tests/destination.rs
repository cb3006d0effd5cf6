//! Destinations inside a lane: one that is silent, full or forbidden holds up no other.

use std::time::Duration;

use super::bench::*;
use crate::{
    DeadReason, ErrorScope, Outcome,
    schedule::{AttemptResult, DeliveryTerms, Event, Job, LaneSettings, Report},
    store::Settlement,
};

pub(super) const GOOD: u64 = 1;
pub(super) const BAD: u64 = 2;

/// Twenty slots: four calls of five messages.
pub(super) fn lane() -> LaneSettings {
    LaneSettings { in_flight: 100, concurrency: 4, batch: 5, ..sink() }
}

pub(super) fn about_destination(outcome: Outcome) -> AttemptResult {
    AttemptResult::Failed { outcome, detail: "no".into(), retry_after: None, scope: ErrorScope::Destination }
}

pub(super) fn denied() -> AttemptResult {
    AttemptResult::failed(Outcome::Denied, "no permission")
}

impl Bench {
    /// Due messages to these destinations, each a message of its own.
    pub(super) fn feed_to(&mut self, destinations: &[u64]) -> Vec<Job> {
        self.hint(A, self.now().wall());
        let limit = self.claim_of(A).unwrap_or_default();
        assert!(limit >= destinations.len(), "the lane asks for {limit}, not {}", destinations.len());
        let first = self.mono_us * 1_000;
        let terms = destinations.iter().zip(first..);
        let terms = terms
            .map(|(&destination, message)| DeliveryTerms { destination, message, ..self.due() })
            .collect();
        self.give(A, terms, None)
    }

    pub(super) fn ends_now(&mut self, mut result_of: impl FnMut(Job) -> Option<AttemptResult>) {
        for (delivery, jobs) in self.deliveries() {
            let results =
                jobs.iter().enumerate().filter_map(|(index, job)| Some((index, result_of(*job)?))).collect();
            self.apply(Event::CallResults { delivery, results, is_over: false });
        }
    }
}

pub(super) fn deferred(settles: &[(Job, Settlement)]) -> usize {
    let is_deferred = |settlement: &Settlement| matches!(settlement, Settlement::Retry { attempt, .. } if attempt.is_deferral());
    settles.iter().filter(|(_, settlement)| is_deferred(settlement)).count()
}

#[test]
fn a_message_is_settled_when_its_own_outcome_is_known() {
    let mut bench = Bench::with(lane());
    let jobs = bench.feed_to(&[GOOD, BAD, GOOD]);
    let (delivery, _) = bench.deliveries().remove(0);
    bench.apply(Event::CallResults { delivery, results: vec![(2, done())], is_over: false });
    assert_eq!(bench.settles(), [(jobs[2], Settlement::Delivered { receipt: None })]);
    bench.apply(Event::CallResults {
        delivery,
        results: vec![(2, unreachable()), (0, done())],
        is_over: true,
    });
    let settles = bench.settles();
    assert_eq!(
        settles[0],
        (jobs[0], Settlement::Delivered { receipt: None }),
        "the first outcome of a message stands"
    );
    assert!(
        matches!(&settles[1].1, Settlement::Retry { attempt, .. } if attempt.outcome == Outcome::Unknown)
    );
    assert_eq!(settles.len(), 2);
}

#[test]
fn a_straggler_holds_up_no_new_call() {
    let mut bench = Bench::with(LaneSettings { concurrency: 1, ..lane() });
    let jobs = bench.feed_to(&[BAD, GOOD]);
    bench.ends_now(|job| (job == jobs[1]).then(done));
    bench.settles();
    let next = bench.feed_to(&[GOOD]);
    assert_eq!(bench.deliveries()[0].1, next, "a call with an outcome no longer counts as a whole");
    let last = bench.feed_to(&[GOOD]);
    assert_eq!(bench.deliveries(), [], "a call without one does, for a while");
    bench.pass(ms(100));
    assert_eq!(bench.deliveries()[0].1, last);
}

#[test]
fn a_silent_destination_leaves_slots_for_the_others() {
    let mut bench = Bench::with(lane());
    // Others are around.
    let jobs = bench.feed_to(&[GOOD, BAD]);
    bench.ends_now(|job| (job == jobs[0]).then(done));
    bench.settles();
    bench.feed_to(&[BAD; 40]);
    for _ in 0..8 {
        bench.pass(ms(100));
    }
    let under_way: usize = bench.deliveries().iter().map(|(_, jobs)| jobs.len()).sum();
    assert_eq!(under_way + 1, 10, "half of the twenty slots");
    for _ in 0..5 {
        let good = bench.feed_to(&[GOOD]);
        assert_eq!(bench.deliveries()[0].1, good, "at once");
        bench.pass(ms(100));
    }
    let settles = bench.settles();
    assert_eq!(deferred(&settles), 31, "what cannot go leaves the lane after a second");
}

#[test]
fn a_destination_that_is_alone_may_use_every_slot() {
    let mut bench = Bench::with(lane());
    bench.feed_to(&[BAD; 40]);
    let mut under_way = 0;
    for _ in 0..10 {
        under_way += bench.deliveries().iter().map(|(_, jobs)| jobs.len()).sum::<usize>();
        bench.pass(ms(100));
    }
    assert_eq!(under_way, 20);
    assert_eq!(bench.settles(), []);
}

#[test]
fn silence_towards_several_messages_opens_the_breaker_of_their_destination_alone() {
    let mut bench = Bench::with(lane());
    bench.feed_to(&[BAD, BAD, BAD]);
    bench.deliveries();
    bench.pass(Duration::from_secs(5));
    assert!(
        bench
            .reports()
            .iter()
            .any(|report| matches!(report, Report::DestinationOpened { destination: BAD, .. }))
    );
    let settles = bench.settles();
    assert_eq!(settles.len(), 3, "{settles:?}");
    let is_unknown = |settlement: &Settlement| matches!(settlement, Settlement::Retry { attempt, .. } if attempt.outcome == Outcome::Unknown);
    assert!(
        settles.iter().all(|(_, settlement)| is_unknown(settlement)),
        "what was sent and not answered is recorded so"
    );
    let jobs = bench.feed_to(&[GOOD, BAD, BAD]);
    assert_eq!(bench.deliveries()[0].1, jobs[..1], "nothing is sent there, others go on");
    assert_eq!(deferred(&bench.settles()), 2);
    assert!(!bench.reports().iter().any(|report| matches!(report, Report::BreakerOpened { .. })));
}

#[test]
fn one_message_that_is_never_answered_slows_no_other_to_the_same_destination() {
    let mut bench = Bench::with(lane());
    for _ in 0..6 {
        bench.hint(A, bench.now().wall());
        bench.claim_of(A);
        let poison = DeliveryTerms { destination: BAD, message: 77, ..bench.due() };
        bench.give(A, vec![poison], None);
        assert_eq!(bench.deliveries().len(), 1);
        bench.pass(Duration::from_secs(5));
        bench.settles();
    }
    let good = bench.feed_to(&[BAD]);
    assert_eq!(bench.deliveries()[0].1, good);
}

#[test]
fn an_open_destination_lets_one_message_try_when_its_time_has_come_and_closes_on_an_answer() {
    let mut bench = Bench::with(lane());
    let jobs = bench.feed_to(&[BAD, GOOD]);
    bench.ends_now(|job| Some(if job == jobs[0] { about_destination(Outcome::Throttled) } else { done() }));
    let settles = bench.settles();
    assert!(settles.iter().any(|(job, settlement)| {
        *job == jobs[0]
            && matches!(settlement, Settlement::Retry { attempt, .. } if attempt.outcome == Outcome::Throttled)
    }));
    bench.pass(ms(500));
    let jobs = bench.feed_to(&[BAD, BAD, BAD]);
    let (delivery, sent) = bench.deliveries().remove(0);
    assert_eq!(sent, jobs[..1]);
    assert_eq!(deferred(&bench.settles()), 2);
    bench.delivered(delivery, vec![done()]);
    assert!(
        bench
            .reports()
            .iter()
            .any(|report| matches!(report, Report::DestinationClosed { destination: BAD, .. }))
    );
    bench.settles();
    let jobs = bench.feed_to(&[BAD, BAD]);
    assert_eq!(bench.deliveries()[0].1, jobs);
}

#[test]
fn a_forbidden_destination_is_asked_once_in_a_while_and_its_messages_die_by_their_policy() {
    let mut bench = Bench::with(lane());
    let jobs = bench.feed_to(&[BAD, BAD, BAD, GOOD]);
    bench.ends_now(|job| Some(if job == jobs[3] { done() } else { denied() }));
    bench.settles();
    bench.hint(A, bench.now().wall());
    bench.claim_of(A);
    let last = DeliveryTerms { destination: BAD, message: 5, attempt: 3, ..bench.due() };
    let first = DeliveryTerms { destination: BAD, message: 6, ..bench.due() };
    bench.give(A, vec![last, first], None);
    assert_eq!(bench.deliveries(), [], "the answer is known");
    let settles = bench.settles();
    assert!(matches!(settles[0].1, Settlement::Dead { reason: DeadReason::Exhausted, attempt: Some(_) }));
    assert!(matches!(&settles[1].1, Settlement::Retry { attempt, .. } if attempt.outcome == Outcome::Denied));
}

#[test]
fn what_a_destination_that_is_away_costs_the_store_does_not_grow_with_its_backlog() {
    let mut bench = Bench::with(lane());
    let jobs = bench.feed_to(&[BAD, GOOD]);
    bench.ends_now(|job| Some(if job == jobs[0] { about_destination(Outcome::Unreachable) } else { done() }));
    bench.settles();
    let mut times = Vec::new();
    for _ in 0..10 {
        bench.feed_to(&[BAD; 50]);
        let at = |(_, settlement): (Job, Settlement)| match settlement {
            Settlement::Retry { at, .. } => at.as_millis(),
            other => panic!("{other:?}"),
        };
        times.extend(bench.settles().into_iter().map(at));
    }
    let first = times.iter().min().copied().unwrap_or_default();
    for from in (first..first + 2_000).step_by(100) {
        let count = times.iter().filter(|time| (from..from + 100).contains(*time)).count();
        assert!(count <= 51, "{count} within 100 ms: {times:?}");
    }
    times.sort_unstable();
    times.dedup();
    assert!(times.len() <= 12, "they come back in groups: {times:?}");
}

#[test]
fn a_lost_lease_frees_the_slot_of_its_destination() {
    let mut bench = Bench::with(LaneSettings { timeout: Duration::from_secs(60), lease: ms(400), ..lane() });
    bench.feed_to(&[GOOD, BAD]);
    let (delivery, _) = bench.deliveries().remove(0);
    bench.apply(Event::CallResults { delivery, results: vec![(0, done())], is_over: false });
    bench.settles();
    for _ in 0..30 {
        bench.feed_to(&[BAD]);
        bench.pass(ms(500));
        bench.settles();
    }
    let good = bench.feed_to(&[GOOD]);
    assert_eq!(bench.deliveries().last().map(|(_, jobs)| jobs.clone()), Some(good));
}
