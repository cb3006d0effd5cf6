//! What may have killed a process is tried alone.

use std::time::Duration;

use super::bench::*;
use crate::{
    LeaseLoss,
    schedule::{DeliveryTerms, LaneSettings},
    store::Settlement,
};

fn lost(bench: &Bench) -> DeliveryTerms {
    DeliveryTerms { lost: LeaseLoss::InBatch, attempt: 9, ..bench.due() }
}

#[test]
fn a_suspect_is_called_alone_even_past_its_attempts() {
    let mut bench = Bench::with(sink());
    bench.hint(A, at(0));
    bench.claim_of(A);
    let suspect = lost(&bench);
    let jobs = bench.give(A, vec![suspect], Some(at(0)));
    assert_eq!(bench.deliveries()[0].1, jobs);
    assert!(bench.claim_of(A).is_some(), "its neighbours need not wait");
    let terms = vec![bench.due(); 3];
    bench.give(A, terms, None);
    assert_eq!(bench.deliveries()[0].1.len(), 3);
}

#[test]
fn a_second_suspect_of_any_lane_waits_for_the_first() {
    let mut bench = Bench::with(sink());
    bench.add(B, sink());
    bench.hint(A, at(0));
    bench.claim_of(A);
    let suspect = lost(&bench);
    bench.give(A, vec![suspect.clone()], None);
    let (first, _) = bench.deliveries().remove(0);
    bench.claim_of(A);
    bench.nothing(A, None);

    bench.hint(B, at(0));
    bench.claim_of(B);
    let second = bench.give(B, vec![suspect], None);
    assert_eq!(bench.deliveries(), []);
    assert_eq!(bench.settles(), [(second[0], Settlement::Release)]);
    bench.pass(ms(3_000));
    assert_eq!(bench.claim_of(B), None);

    bench.delivered(first, vec![done()]);
    bench.settles();
    assert!(bench.claim_of(B).is_some());
}

#[test]
fn a_suspect_does_not_join_the_call_of_those_before_it() {
    let mut bench = Bench::with(LaneSettings { concurrency: 1, ..sink() });
    bench.feed(A, 1);
    let (busy, _) = bench.deliveries().remove(0);
    let waiting = bench.feed(A, 2);
    bench.hint(A, at(0));
    bench.claim_of(A);
    let terms = lost(&bench);
    let suspect = bench.give(A, vec![terms], None);
    bench.delivered(busy, vec![done()]);
    let (next, jobs) = bench.deliveries().remove(0);
    assert_eq!(jobs, waiting);
    bench.delivered(next, vec![done(); 2]);
    assert_eq!(bench.deliveries()[0].1, suspect);
}

/// The first wait of [`handler`] after a failure.
const FAILED: Duration = Duration::from_secs(5);

/// Terms of a message of a queue whose claim was just lost for the first time.
fn just_lost(bench: &Bench) -> DeliveryTerms {
    let lost_at = Some(bench.now().wall());
    DeliveryTerms { lost: LeaseLoss::InBatch, attempt: 2, lost_at, ..bench.due() }
}

#[test]
fn what_a_handler_lost_waits_as_after_a_failure_and_is_then_called_alone() {
    let mut bench = Bench::with(handler());
    bench.hint(A, at(0));
    bench.claim_of(A);
    let terms = just_lost(&bench);
    let jobs = bench.give(A, vec![terms.clone()], None);
    assert_eq!(bench.deliveries(), []);
    let least = bench.now().wall().saturating_add(FAILED);
    let [(job, Settlement::Defer { at: ready })] = bench.settles()[..] else { panic!("not put off") };
    assert_eq!(job, jobs[0]);
    assert!((least..=least.saturating_add(FAILED / 4)).contains(&ready), "{ready}");
    assert!(bench.claim_of(A).is_some(), "others need not wait");
    bench.nothing(A, Some(ready));
    bench.pass(FAILED + FAILED / 4);
    assert!(bench.claim_of(A).is_some());
    let jobs = bench.give(A, vec![DeliveryTerms { lost_at: None, ..terms }], None);
    assert_eq!(bench.deliveries()[0].1, jobs);
}

#[test]
fn what_waits_after_a_loss_holds_up_no_suspect_of_another_lane() {
    let mut bench = Bench::with(handler());
    bench.add(B, sink());
    bench.hint(A, at(0));
    bench.claim_of(A);
    let terms = just_lost(&bench);
    bench.give(A, vec![terms], None);
    bench.hint(B, at(0));
    bench.claim_of(B);
    let suspect = lost(&bench);
    let jobs = bench.give(B, vec![suspect], None);
    assert_eq!(bench.deliveries()[0].1, jobs);
}
