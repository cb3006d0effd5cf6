//! What a lane remembers of its destinations is bounded, however many there are.

use super::{bench::*, destination::*};
use crate::{
    Outcome,
    schedule::{LaneSettings, destinations::REMEMBERED_MAX},
};

/// Destinations of one call, and so under way together.
const CALL: usize = 100;
/// Where the many destinations begin: after [`BAD`].
const FIRST: u64 = 1_000;

/// As many destinations of a lane as it remembers, and those of its lane that are open.
fn remembered(bench: &Bench) -> (usize, usize) {
    let destinations = &bench.scheduler.lanes[&A].destinations;
    (destinations.len(), destinations.open())
}

/// A message to each of these, in calls of [`CALL`] one after the other, and none is taken.
fn fail(bench: &mut Bench, destinations: &[u64]) {
    for call in destinations.chunks(CALL) {
        bench.feed_to(call);
        bench.ends_now(|_| Some(about_destination(Outcome::Unreachable)));
        bench.settles();
        bench.pass(ms(1));
    }
}

fn lane_of(in_flight: usize) -> LaneSettings {
    LaneSettings { in_flight, buffered: in_flight, concurrency: in_flight / CALL, batch: CALL, ..lane() }
}

#[test]
fn of_ten_thousand_destinations_that_fail_the_least_recently_used_are_forgotten() {
    let mut bench = Bench::with(lane_of(1_000));
    fail(&mut bench, &[BAD]);
    for call in (FIRST..FIRST + 10_000).collect::<Vec<_>>().chunks(CALL) {
        fail(&mut bench, call);
        let (all, open) = remembered(&bench);
        assert!(all <= REMEMBERED_MAX + CALL, "{all} are remembered");
        assert_eq!(all, open, "each of them failed");
        // One that goes on to be used.
        bench.feed_to(&[BAD]);
        bench.settles();
    }
    let of = |bench: &mut Bench, destination| {
        bench.feed_to(&[destination]);
        let is_sent = !bench.deliveries().is_empty();
        bench.settles();
        is_sent
    };
    assert!(!of(&mut bench, FIRST + 9_999), "the last is remembered");
    assert!(!of(&mut bench, BAD), "and so is one that was used all the time");
    assert!(of(&mut bench, FIRST), "the first costs an attempt more");
}

#[test]
fn thousands_are_forgotten_in_one_pass() {
    let mut bench = Bench::with(lane_of(5_000));
    for call in (FIRST..FIRST + 4_000).collect::<Vec<_>>().chunks(CALL) {
        bench.feed_to(call);
    }
    bench.ends_now(|_| Some(about_destination(Outcome::Unreachable)));
    bench.settles();
    let visits = |bench: &Bench| bench.scheduler.lanes[&A].destinations.visits();
    let (before, known) = (visits(&bench), remembered(&bench).0);
    fail(&mut bench, &[BAD]);
    let (after, left) = (visits(&bench), remembered(&bench).0);
    assert!(known - left > 1_000, "of {known}, {left} are left");
    assert_eq!(after - before, known, "each was looked at once");
}

#[test]
fn what_was_under_way_together_is_not_remembered_for_ever() {
    let mut bench = Bench::with(lane_of(5_000));
    let many: Vec<u64> = (FIRST..FIRST + 4_000).collect();
    for call in many.chunks(CALL) {
        bench.feed_to(call);
    }
    bench.ends_now(|_| Some(about_destination(Outcome::Unreachable)));
    bench.settles();
    assert!(remembered(&bench).0 > 2 * REMEMBERED_MAX, "all of them were under way");
    fail(&mut bench, &[BAD]);
    let (all, open) = remembered(&bench);
    assert!(all <= REMEMBERED_MAX + 1, "{all} are remembered, and one was under way");
    assert_eq!(all, open);
}
