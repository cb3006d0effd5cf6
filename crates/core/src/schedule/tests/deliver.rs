//! What is handed over, and what its end means.

use std::time::Duration;

use super::bench::*;
use crate::{
    DeadReason, Outcome,
    schedule::{Action, AttemptResult, DeliveryTerms, LaneSettings},
    store::Settlement,
};

fn is_retry_at(settlement: &Settlement, from: u64, to: u64) -> bool {
    matches!(settlement, Settlement::Retry { at: time, .. } if *time >= at(from) && *time <= at(to))
}

#[test]
fn a_claim_is_handed_over_as_one_call_in_order() {
    let mut bench = Bench::with(sink());
    let jobs = bench.feed(A, 7);
    let deliveries = bench.deliveries();
    assert_eq!(deliveries.len(), 1);
    assert_eq!(deliveries[0].1, jobs);
}

#[test]
fn each_message_has_its_own_end() {
    let mut bench = Bench::with(sink());
    let jobs = bench.feed(A, 3);
    let (delivery, _) = bench.deliveries().remove(0);
    let receipt = Some("proof".to_owned());
    let ends = vec![
        AttemptResult::Delivered { receipt: receipt.clone() },
        AttemptResult::failed(Outcome::Refused, "never"),
        AttemptResult::failed(Outcome::Unknown, "no answer"),
    ];
    bench.delivered(delivery, ends);
    let settles = bench.settles();
    assert_eq!(settles[0], (jobs[0], Settlement::Delivered { receipt }));
    assert!(matches!(settles[1].1, Settlement::Dead { reason: DeadReason::Refused, .. }));
    assert!(is_retry_at(&settles[2].1, 1_000, 1_250));
}

#[test]
fn a_message_that_used_up_its_attempts_or_its_lateness_is_dead_without_a_call() {
    let mut bench = Bench::with(sink());
    bench.pass(ms(100));
    bench.hint(A, at(0));
    bench.claim_of(A);
    let exhausted = DeliveryTerms { attempt: 4, ..bench.due() };
    let expired = DeliveryTerms { due: at(0), max_lateness: Some(ms(99)), ..bench.due() };
    bench.give(A, vec![exhausted, expired], None);
    assert_eq!(bench.deliveries(), []);
    let reasons: Vec<_> = bench.settles().into_iter().map(|(_, settlement)| settlement).collect();
    assert_eq!(
        reasons,
        [
            Settlement::Dead { reason: DeadReason::Exhausted, attempt: None },
            Settlement::Dead { reason: DeadReason::Expired, attempt: None }
        ]
    );
}

#[test]
fn the_last_attempt_that_fails_makes_a_dead_letter() {
    let mut bench = Bench::with(sink());
    bench.hint(A, at(0));
    bench.claim_of(A);
    let last = DeliveryTerms { attempt: 3, ..bench.due() };
    bench.give(A, vec![last], None);
    let (delivery, _) = bench.deliveries().remove(0);
    bench.delivered(delivery, vec![AttemptResult::failed(Outcome::Unknown, "no answer")]);
    assert!(matches!(bench.settles()[0].1, Settlement::Dead { reason: DeadReason::Exhausted, .. }));
}

#[test]
fn a_call_that_fails_as_a_whole_is_repeated_one_by_one_before_anything_counts() {
    let mut bench = Bench::with(sink());
    let jobs = bench.feed(A, 3);
    let (delivery, _) = bench.deliveries().remove(0);
    let bad = || AttemptResult::failed(Outcome::Unknown, "broken pipe");
    bench.delivered(delivery, vec![bad(), bad(), bad()]);
    assert_eq!(bench.settles(), []);
    let mut settlements = Vec::new();
    for _ in 0..3 {
        for (delivery, call) in bench.deliveries() {
            assert_eq!(call.len(), 1);
            bench.delivered(delivery, vec![if call[0] == jobs[1] { bad() } else { done() }]);
        }
        settlements.extend(bench.settles());
    }
    assert_eq!(settlements.len(), 3);
    for (job, settlement) in settlements {
        let delivered = settlement == Settlement::Delivered { receipt: None };
        assert_eq!(delivered, job != jobs[1], "{job:?} {settlement:?}");
    }
}

#[test]
fn an_unknown_outcome_is_recorded_although_the_call_alone_met_an_outage() {
    let mut bench = Bench::with(sink());
    bench.feed(A, 2);
    let (delivery, _) = bench.deliveries().remove(0);
    bench.delivered(delivery, vec![AttemptResult::failed(Outcome::Unknown, "broken pipe"); 2]);
    let (alone, _) = bench.deliveries().remove(0);
    bench.delivered(alone, vec![unreachable()]);
    let settles = bench.settles();
    assert_eq!(settles.len(), 1, "the other one is still under way");
    let is_unknown = |settlement: &Settlement| matches!(settlement, Settlement::Retry { attempt, .. } if attempt.outcome == Outcome::Unknown);
    assert!(settles.iter().all(|(_, settlement)| is_unknown(settlement)), "{settles:?}");
}

#[test]
fn a_whole_failure_of_connection_is_not_repeated_one_by_one() {
    let mut bench = Bench::with(sink());
    bench.feed(A, 3);
    let (delivery, _) = bench.deliveries().remove(0);
    bench.delivered(delivery, vec![unreachable(); 3]);
    assert_eq!(bench.deliveries(), []);
    assert_eq!(bench.settles().len(), 3);
}

#[test]
fn a_missing_outcome_is_an_unknown_one() {
    let mut bench = Bench::with(sink());
    bench.feed(A, 2);
    let (delivery, _) = bench.deliveries().remove(0);
    bench.delivered(delivery, vec![done()]);
    let settles = bench.settles();
    assert_eq!(settles[0].1, Settlement::Delivered { receipt: None });
    assert!(
        matches!(&settles[1].1, Settlement::Retry { attempt, .. } if attempt.outcome == Outcome::Unknown)
    );
}

#[test]
fn a_call_that_takes_too_long_is_given_up_and_its_late_answer_ignored() {
    let mut bench = Bench::with(sink());
    bench.feed(A, 1);
    let (delivery, _) = bench.deliveries().remove(0);
    bench.pass(ms(4_999));
    assert_eq!(bench.settles(), []);
    bench.pass(ms(1));
    assert!(bench.actions.iter().any(|a| matches!(a, Action::Abandon { delivery: d } if *d == delivery)));
    let settles = bench.settles();
    assert!(
        matches!(&settles[0].1, Settlement::Retry { attempt, .. } if attempt.outcome == Outcome::Unknown)
    );
    bench.delivered(delivery, vec![done()]);
    assert_eq!(bench.settles(), []);
}

#[test]
fn handlers_run_side_by_side_up_to_their_concurrency() {
    let mut bench = Bench::with(LaneSettings { concurrency: 3, in_flight: 10, ..handler() });
    bench.feed(A, 10);
    let first = bench.deliveries();
    assert_eq!(first.len(), 3);
    assert!(first.iter().all(|(_, jobs)| jobs.len() == 1));
    bench.delivered(first[1].0, vec![done()]);
    assert_eq!(bench.deliveries().len(), 1);
}

#[test]
fn hanging_handlers_do_not_keep_free_slots_idle() {
    let mut bench = Bench::with(LaneSettings { concurrency: 100, in_flight: 100, ..handler() });
    bench.feed(A, 95);
    assert_eq!(bench.deliveries().len(), 95);
    for _ in 0..50 {
        bench.feed(A, 1);
        let deliveries = bench.deliveries();
        assert_eq!(deliveries.len(), 1);
        bench.delivered(deliveries[0].0, vec![done()]);
        bench.settles();
    }
}

#[test]
fn a_busy_lane_claims_when_it_is_worth_its_while() {
    let mut bench = Bench::with(LaneSettings { concurrency: 10, in_flight: 100, ..handler() });
    bench.feed(A, 100);
    bench.hint(A, at(0));
    let mut claims = 0;
    let mut running = bench.deliveries();
    for _ in 0..50 {
        bench.delivered(running.remove(0).0, vec![done()]);
        bench.settles();
        running.extend(bench.deliveries());
        if let Some(limit) = bench.claim_of(A) {
            assert!(limit >= 25, "{limit}");
            claims += 1;
            let terms = vec![bench.due(); limit];
            bench.give(A, terms, Some(at(0)));
        }
    }
    assert_eq!(claims, 2);
}

#[test]
fn a_handler_that_says_no_fails_or_hangs_comes_again_after_its_wait() {
    for (end, wait) in [
        (AttemptResult::failed(Outcome::Again, ""), 1_000),
        (AttemptResult::failed(Outcome::Failed, "panicked"), 5_000),
    ] {
        let mut bench = Bench::with(handler());
        bench.feed(A, 1);
        let (delivery, _) = bench.deliveries().remove(0);
        bench.delivered(delivery, vec![end]);
        assert!(is_retry_at(&bench.settles()[0].1, wait, wait + wait / 4));
        bench.pass(ms(wait - 1));
        assert_eq!(bench.claim_of(A), None);
        bench.pass(ms(1 + wait / 4));
        assert!(bench.claim_of(A).is_some());
    }
    let mut bench = Bench::with(LaneSettings { lease: Duration::from_secs(600), ..handler() });
    bench.feed(A, 1);
    bench.deliveries();
    bench.pass(Duration::from_secs(60));
    let settles = bench.settles();
    assert!(matches!(&settles[0].1, Settlement::Retry { attempt, .. } if attempt.outcome == Outcome::Failed));
    assert!(is_retry_at(&settles[0].1, 65_000, 66_250));
}
