//! Outcomes are gathered, and repeated until they are recorded.

use std::{collections::BTreeMap, time::Duration};

use super::bench::*;
use crate::{
    schedule::{Action, Event, Job, LaneSettings, Report},
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

/// Answers settles like a store that refuses every batch with `bad`. Returns how many settlements it took, and the
/// refused calls.
fn settle_but(bench: &mut Bench, bad: Job) -> (usize, usize) {
    let (mut taken, mut refused) = (0, 0);
    loop {
        let batches = bench.settle_batches();
        if batches.is_empty() {
            return (taken, refused);
        }
        for (settle, batch) in batches {
            let is_refused = batch.iter().any(|(job, _)| *job == bad);
            refused += usize::from(is_refused);
            taken += if is_refused { 0 } else { batch.len() };
            let answer = Event::Settled { settle, lost: Vec::new() };
            bench.apply(if is_refused { Event::SettleFailed { settle } } else { answer });
        }
    }
}

/// Leases that are renewed, so that a claim lasts as long as its settlement waits.
fn renew(bench: &mut Bench) {
    let mut renewed = Vec::new();
    bench.actions.retain(|action| match action {
        Action::Extend { jobs, .. } => {
            renewed.push(jobs.clone());
            false
        }
        _ => true,
    });
    let requested_at = bench.now().mono();
    for jobs in renewed {
        bench.apply(Event::Extended { jobs, lost: Vec::new(), requested_at });
    }
}

#[test]
fn a_settlement_that_the_store_refuses_stops_no_other() {
    let large = LaneSettings { in_flight: 600, concurrency: 1, batch: 600, ..sink() };
    let mut bench = Bench::with(large.clone());
    bench.add(B, large);
    let bad = bench.feed(A, 600)[17];
    for (delivery, jobs) in bench.deliveries() {
        bench.delivered(delivery, vec![done(); jobs.len()]);
    }
    let (mut taken, mut longest, mut refused) = (0, 0, BTreeMap::new());
    for tick in 0..6_000 {
        // Another lane has something to settle all the time.
        let other = tick % 20 == 0 && tick < 5_000;
        if other {
            bench.feed(B, 1);
            let (delivery, _) = bench.deliveries().remove(0);
            bench.delivered(delivery, vec![done()]);
        }
        let (more, fails) = settle_but(&mut bench, bad);
        taken += more;
        *refused.entry(tick / 1_000).or_insert(0) += fails;
        let waits = bench.scheduler.snapshot(B).map_or(0, |lane| lane.in_flight);
        longest = longest.max(waits);
        assert!(tick != 5_000 || taken == 599 + 250, "{taken} after five seconds, {refused:?}");
        renew(&mut bench);
        bench.pass(ms(1));
    }
    assert!(longest <= 2, "{longest} of the other lane waited for the one that is refused");
    bench.pass(Duration::from_secs(2));
    assert!(refused[&5] <= 2, "the refused one is repeated slowly: {refused:?}");
    // It is taken as soon as the store takes it.
    for _ in 0..20 {
        renew(&mut bench);
        bench.settles();
        bench.pass(ms(500));
    }
    assert_eq!(bench.scheduler.snapshot(A).map(|lane| lane.in_flight), Some(0));
}

#[test]
fn a_settlement_that_the_store_refuses_delays_no_new_one() {
    let mut bench = Bench::with(sink());
    bench.add(B, sink());
    let bad = bench.feed(A, 1)[0];
    let (delivery, _) = bench.deliveries().remove(0);
    bench.delivered(delivery, vec![done()]);
    for _ in 0..100 {
        settle_but(&mut bench, bad);
        renew(&mut bench);
        bench.pass(ms(300));
    }
    bench.feed(B, 1);
    let (delivery, _) = bench.deliveries().remove(0);
    bench.delivered(delivery, vec![done()]);
    assert_eq!(settle_but(&mut bench, bad).0, 1, "at once");
}

#[test]
fn a_store_that_was_away_for_long_is_not_flooded_when_it_is_back() {
    let mut bench = Bench::with(LaneSettings { in_flight: 600, concurrency: 1, batch: 600, ..sink() });
    bench.feed(A, 600);
    for (delivery, jobs) in bench.deliveries() {
        bench.delivered(delivery, vec![done(); jobs.len()]);
    }
    let mut failed = 0;
    for _ in 0..1_200 {
        for (settle, _) in bench.settle_batches() {
            failed += 1;
            bench.apply(Event::SettleFailed { settle });
        }
        renew(&mut bench);
        bench.pass(ms(50));
    }
    assert!((10..60).contains(&failed), "{failed} failed calls in a minute");
    let mut calls = 0;
    for _ in 0..200 {
        for (settle, _) in bench.settle_batches() {
            calls += 1;
            bench.apply(Event::Settled { settle, lost: Vec::new() });
        }
        bench.pass(ms(50));
    }
    assert!(calls <= failed + 1, "{calls} calls");
    assert_eq!(bench.scheduler.snapshot(A).map(|lane| lane.in_flight), Some(0));
}
