//! A clean stop.

use std::time::Duration;

use super::bench::*;
use crate::{
    Monotonic, Outcome,
    schedule::{Action, Event, LaneSettings},
    store::Settlement,
};

fn is_removed(bench: &Bench) -> bool {
    bench.actions.iter().any(|action| matches!(action, Action::LaneRemoved { lane: A }))
}

fn stop(bench: &mut Bench, grace: Duration) {
    let grace_end = Monotonic::from_micros(bench.mono_us).saturating_add(grace);
    bench.apply(Event::LaneStopped { lane: A, grace_end });
}

#[test]
fn what_runs_finishes_and_what_waits_is_handed_back() {
    let mut bench = Bench::with(LaneSettings { concurrency: 2, ..handler() });
    bench.feed(A, 5);
    let deliveries = bench.deliveries();
    stop(&mut bench, Duration::from_secs(10));
    assert_eq!(bench.settles().iter().filter(|(_, v)| *v == Settlement::Release).count(), 3);
    assert!(!is_removed(&bench));
    for (delivery, _) in deliveries {
        bench.delivered(delivery, vec![done()]);
    }
    assert_eq!(bench.settles().len(), 2);
    assert!(is_removed(&bench));
    assert!(!bench.scheduler.has_lane(A));
}

#[test]
fn a_handler_that_does_not_finish_in_time_is_ended_and_its_task_handed_back() {
    let mut bench = Bench::with(handler());
    let jobs = bench.feed(A, 1);
    stop(&mut bench, Duration::from_secs(10));
    bench.pass(ms(9_999));
    assert!(!is_removed(&bench));
    bench.pass(ms(1));
    assert!(bench.actions.iter().any(|action| matches!(action, Action::Abandon { .. })));
    assert_eq!(bench.settles(), [(jobs[0], Settlement::Release)]);
    assert!(is_removed(&bench));
}

#[test]
fn a_call_of_a_sink_that_is_ended_has_an_unknown_outcome() {
    let mut bench = Bench::with(sink());
    bench.feed(A, 1);
    bench.apply(Event::Shutdown { grace_end: Monotonic::from_micros(bench.mono_us + 1_000) });
    bench.pass(ms(1));
    let settles = bench.settles();
    assert!(
        matches!(&settles[0].1, Settlement::Retry { attempt, .. } if attempt.outcome == Outcome::Unknown)
    );
    assert!(is_removed(&bench));
}

#[test]
fn what_a_claim_brings_after_the_stop_is_handed_back() {
    let mut bench = Bench::with(sink());
    bench.hint(A, at(0));
    assert!(bench.claim_of(A).is_some());
    stop(&mut bench, Duration::from_secs(1));
    assert!(!is_removed(&bench));
    let terms = vec![bench.due(); 2];
    bench.give(A, terms, None);
    assert!(bench.settles().iter().all(|(_, settlement)| *settlement == Settlement::Release));
    assert!(is_removed(&bench));
}
