//! Outcomes are gathered, and repeated until they are recorded.

use std::time::Duration;

use super::bench::*;
use crate::{
    schedule::{Action, Event, LaneSettings, Report},
    store::Settlement,
};

#[test]
fn settles_gather_while_others_are_under_way() {
    let mut bench = Bench::with(LaneSettings { concurrency: 50, ..handler() });
    bench.feed(A, 20);
    for (delivery, _) in bench.deliveries() {
        bench.delivered(delivery, vec![done()]);
    }
    let batches = bench.settle_batches();
    assert_eq!(batches.iter().map(|(_, batch)| batch.len()).collect::<Vec<_>>(), [1, 1]);
    bench.apply(Event::Settled { settle: batches[0].0, lost: Vec::new() });
    assert_eq!(bench.settle_batches()[0].1.len(), 18);
}

#[test]
fn a_failed_settle_is_repeated_until_it_is_recorded() {
    let mut bench = Bench::with(sink());
    let jobs = bench.feed(A, 3);
    let (delivery, _) = bench.deliveries().remove(0);
    bench.delivered(delivery, vec![done(); 3]);
    for round in 0..3 {
        let batches = bench.settle_batches();
        assert_eq!(batches.len(), 1, "round {round}");
        assert_eq!(batches[0].1.iter().map(|(job, _)| *job).collect::<Vec<_>>(), jobs);
        bench.apply(Event::SettleFailed { settle: batches[0].0 });
        assert_eq!(bench.settle_batches().len(), 0, "not at once");
        bench.pass(ms(800));
    }
    assert_eq!(bench.settles().len(), 3);
}

#[test]
fn an_outcome_that_cannot_be_recorded_before_its_lease_ends_is_given_up() {
    let mut bench = Bench::with(sink());
    let jobs = bench.feed(A, 1);
    let (delivery, _) = bench.deliveries().remove(0);
    bench.delivered(delivery, vec![done()]);
    let mut tries = 0;
    for _ in 0..130 {
        for (settle, _) in bench.settle_batches() {
            tries += 1;
            bench.apply(Event::SettleFailed { settle });
        }
        bench.pass(ms(100));
    }
    assert!(tries > 3, "{tries}");
    let forgotten = |action: &Action| matches!(action, Action::Forget { jobs: lost } if *lost == jobs);
    assert!(bench.actions.iter().any(forgotten));
    assert!(bench.reports().contains(&Report::LeasesLost { lane: A, count: 1 }));
    bench.actions.clear();
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.settle_batches().len(), 0);
}

#[test]
fn a_retry_wakes_its_lane_at_its_time() {
    let mut bench = Bench::with(handler());
    bench.feed(A, 1);
    let (delivery, _) = bench.deliveries().remove(0);
    bench.delivered(delivery, vec![crate::schedule::AttemptResult::failed(crate::Outcome::Again, "")]);
    assert!(matches!(bench.settles()[0].1, Settlement::Retry { .. }));
    assert_eq!(bench.claim_of(A), None);
    bench.pass(ms(1_250));
    assert!(bench.claim_of(A).is_some());
}
