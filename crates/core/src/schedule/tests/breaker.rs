//! An outage: the breaker opens, probes, lets one through, and closes by itself.

use std::time::Duration;

use super::bench::*;
use crate::{
    ErrorScope, Outcome, SinkError, SinkErrorKind,
    schedule::{Action, AttemptResult, Event, Report},
    store::Settlement,
};

fn probes(bench: &mut Bench) -> usize {
    let before = bench.actions.len();
    bench.actions.retain(|action| !matches!(action, Action::Probe { .. }));
    before - bench.actions.len()
}

/// A bench whose target just turned out to be away.
fn broken(end: AttemptResult) -> Bench {
    let mut bench = Bench::with(sink());
    bench.feed(A, 25);
    let deliveries = bench.deliveries();
    bench.delivered(deliveries[0].0, vec![end; 10]);
    bench
}

#[test]
fn an_outage_counts_no_attempt_and_hands_back_what_was_not_begun() {
    let mut bench = broken(unreachable());
    let settles = bench.settles();
    let retries = settles.iter().filter(
        |(_, v)| matches!(v, Settlement::Retry { attempt, .. } if attempt.outcome == Outcome::Unreachable),
    );
    assert_eq!(retries.count(), 10);
    assert_eq!(settles.iter().filter(|(_, settlement)| *settlement == Settlement::Release).count(), 5);
    assert_eq!(bench.claim_of(A), None);
    assert!(matches!(bench.reports()[..], [Report::BreakerOpened { lane: A, .. }]));
}

#[test]
fn a_breaker_probes_then_lets_one_message_through_then_closes() {
    let mut bench = broken(unreachable());
    bench.settles();
    bench.pass(ms(500));
    assert_eq!(probes(&mut bench), 1);
    assert_eq!(bench.claim_of(A), None);
    bench.apply(Event::Probed { lane: A, result: Ok(()) });
    assert_eq!(bench.claim_of(A), None, "what was under way when it broke must end first");
    let late = crate::schedule::DeliveryKey { lane: A, serial: 2 };
    bench.delivered(late, vec![unreachable(); 10]);
    bench.settles();
    bench.pass(Duration::from_secs(1));
    assert_eq!(probes(&mut bench), 1);
    bench.apply(Event::Probed { lane: A, result: Ok(()) });
    assert_eq!(bench.claim_of(A), Some(1));
    let terms = bench.due();
    bench.give(A, vec![terms], Some(at(0)));
    let deliveries = bench.deliveries();
    assert_eq!(deliveries.len(), 1);
    bench.delivered(deliveries[0].0, vec![done()]);
    assert!(bench.reports().contains(&Report::BreakerClosed { lane: A }));
    assert!(bench.claim_of(A).is_some_and(|limit| limit > 1));
}

#[test]
fn a_target_that_stays_away_for_two_days_is_probed_at_most_every_fifteen_seconds() {
    let mut bench = broken(unreachable());
    bench.settles();
    let mut count = 0;
    let two_days = 2 * 86_400;
    for _ in 0..two_days / 5 {
        bench.pass(Duration::from_secs(5));
        for _ in 0..probes(&mut bench) {
            count += 1;
            let error = SinkError::new(SinkErrorKind::Unreachable, "still away");
            bench.apply(Event::Probed { lane: A, result: Err(error) });
        }
        bench.actions.clear();
    }
    assert!(count > two_days / 40 && count < two_days / 10, "{count} probes");
}

#[test]
fn a_half_open_breaker_opens_again_when_its_one_message_fails() {
    for end in [unreachable(), AttemptResult::failed(Outcome::Unknown, "no answer")] {
        let mut bench = Bench::with(sink());
        bench.feed(A, 10);
        let (delivery, _) = bench.deliveries().remove(0);
        bench.delivered(delivery, vec![unreachable(); 10]);
        bench.settles();
        bench.pass(ms(500));
        bench.apply(Event::Probed { lane: A, result: Ok(()) });
        assert_eq!(bench.claim_of(A), Some(1));
        let terms = bench.due();
        bench.give(A, vec![terms], Some(at(0)));
        let (delivery, _) = bench.deliveries().remove(0);
        bench.delivered(delivery, vec![end]);
        bench.settles();
        assert_eq!(bench.claim_of(A), None);
        bench.pass(Duration::from_secs(1));
        assert_eq!(probes(&mut bench), 2);
    }
}

#[test]
fn a_targets_wish_for_a_later_time_is_honoured() {
    let end = AttemptResult::Failed {
        outcome: Outcome::Throttled,
        detail: "slower".into(),
        retry_after: Some(Duration::from_secs(90)),
        scope: ErrorScope::Target,
    };
    let mut bench = broken(end);
    assert!(
        bench.settles().iter().any(|(_, v)| matches!(v, Settlement::Retry { at: t, .. } if *t == at(90_000)))
    );
    bench.pass(Duration::from_secs(89));
    assert_eq!(probes(&mut bench), 0);
    bench.pass(Duration::from_secs(1));
    assert_eq!(probes(&mut bench), 1);
}

#[test]
fn an_operator_may_probe_at_once() {
    let mut bench = broken(AttemptResult::failed(Outcome::Misconfigured, "wrong password"));
    bench.apply(Event::ProbeNow { lane: A });
    assert_eq!(probes(&mut bench), 1);
    bench.apply(Event::ProbeNow { lane: A });
    assert_eq!(probes(&mut bench), 0, "one probe at a time");
}

#[test]
fn a_probe_that_is_never_answered_is_a_failed_one() {
    let mut bench = broken(unreachable());
    bench.settles();
    bench.pass(ms(500));
    assert_eq!(probes(&mut bench), 1);
    bench.pass(Duration::from_secs(5));
    assert_eq!(probes(&mut bench), 0);
    bench.pass(Duration::from_secs(1));
    assert_eq!(probes(&mut bench), 1);
}
