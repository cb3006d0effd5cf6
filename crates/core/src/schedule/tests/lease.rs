//! Leases: renewed while in hand, told when lost.

use std::time::Duration;

use super::bench::*;
use crate::{
    Monotonic,
    schedule::{Action, Event, Job, LaneSettings, Report},
    store::Settlement,
};

fn extends(bench: &mut Bench) -> Vec<Vec<Job>> {
    let mut found = Vec::new();
    bench.actions.retain(|action| match action {
        Action::Extend { jobs, .. } => {
            found.push(jobs.clone());
            false
        }
        _ => true,
    });
    found
}

fn forgotten(bench: &Bench) -> Vec<Job> {
    let jobs = |action: &Action| match action {
        Action::Forget { jobs } => jobs.clone(),
        _ => Vec::new(),
    };
    bench.actions.iter().flat_map(jobs).collect()
}

#[test]
fn a_lease_is_renewed_while_the_handler_runs() {
    let mut bench = Bench::with(handler());
    let jobs = bench.feed(A, 1);
    let (delivery, _) = bench.deliveries().remove(0);
    for _ in 0..15 {
        bench.pass(Duration::from_secs(3));
        for jobs in extends(&mut bench) {
            let requested_at = Monotonic::from_micros(bench.mono_us);
            bench.apply(Event::Extended { jobs, lost: Vec::new(), requested_at });
        }
    }
    assert_eq!(forgotten(&bench), []);
    bench.delivered(delivery, vec![done()]);
    assert_eq!(bench.settles(), [(jobs[0], Settlement::Delivered { receipt: None })]);
    bench.pass(Duration::from_secs(20));
    assert_eq!(extends(&mut bench), Vec::<Vec<Job>>::new());
}

#[test]
fn a_handler_that_lost_its_lease_is_told_and_its_result_ignored() {
    let mut bench = Bench::with(handler());
    let jobs = bench.feed(A, 1);
    let (delivery, _) = bench.deliveries().remove(0);
    bench.pass(Duration::from_secs(3));
    let requested_at = Monotonic::from_micros(bench.mono_us);
    bench.apply(Event::Extended { jobs: jobs.clone(), lost: jobs.clone(), requested_at });
    assert_eq!(forgotten(&bench), jobs);
    assert!(bench.reports().contains(&Report::LeasesLost { lane: A, count: 1 }));
    bench.delivered(delivery, vec![done()]);
    assert_eq!(bench.settles(), []);
}

#[test]
fn a_lease_that_could_not_be_renewed_is_given_up_when_it_ends() {
    let mut bench = Bench::with(handler());
    let jobs = bench.feed(A, 1);
    bench.pass(Duration::from_secs(12));
    assert!(extends(&mut bench).len() >= 3, "it was tried more than once");
    assert_eq!(forgotten(&bench), jobs);
}

#[test]
fn what_waited_so_long_that_its_lease_nearly_ends_is_handed_back() {
    let mut bench = Bench::with(LaneSettings { concurrency: 1, batch: 1, ..handler() });
    bench.feed(A, 2);
    let (delivery, _) = bench.deliveries().remove(0);
    bench.pass(Duration::from_secs(10));
    bench.delivered(delivery, vec![done()]);
    assert_eq!(bench.deliveries(), []);
    let settlements: Vec<_> = bench.settles().into_iter().map(|(_, settlement)| settlement).collect();
    assert_eq!(settlements, [Settlement::Delivered { receipt: None }, Settlement::Release]);
}

#[test]
fn a_call_whose_lease_cannot_be_renewed_is_ended_before_another_node_may_deliver() {
    let mut bench = Bench::with(LaneSettings { timeout: ms(60_000), ..sink() });
    let jobs = bench.feed(A, 1);
    let (delivery, _) = bench.deliveries().remove(0);
    let began = bench.mono_us;
    let abandoned = |bench: &Bench| {
        bench.actions.iter().any(|a| matches!(a, Action::Abandon { delivery: d } if *d == delivery))
    };
    while !abandoned(&bench) && bench.mono_us < began + 60_000_000 {
        bench.pass(ms(100));
    }
    let lease = sink().lease;
    assert!(bench.mono_us - began < lease.as_micros() as u64, "it ran on after the end of its lease");
    assert!(extends(&mut bench).len() >= 2, "it was tried more than once to renew it");
    let [(job, Settlement::Retry { attempt, .. })] = &bench.settles()[..] else { panic!("not told") };
    assert_eq!((*job, attempt.outcome), (jobs[0], crate::Outcome::Unknown));
}

#[test]
fn what_another_node_paused_or_resumed_is_followed() {
    let mut bench = Bench::with(sink());
    bench.swept_with(vec![A]);
    bench.hint(A, crate::Timestamp::from_millis(bench.wall_us / 1000));
    assert_eq!(bench.claim_of(A), None);
    bench.swept_with(Vec::new());
    assert!(bench.claim_of(A).is_some());
}
