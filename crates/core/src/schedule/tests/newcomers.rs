//! Many destinations behind one silent part of a target, each with a message or two: no breaker of one sees them.

use std::time::Duration;

use super::{bench::*, destination::*, stall::lane_of_128, target::Target};
use crate::schedule::{AttemptResult, LaneSettings};

/// Keys of destinations that get one message each, from here on.
const FIRST: u64 = 1_000;

#[test]
fn many_silent_destinations_leave_slots_to_one_that_answers() {
    for per_ms in [1, 5] {
        let mut target = Target::new(lane_of_128(), &[(GOOD, Some(2))]);
        target.others_ms = None;
        for _ in 0..3 {
            target.send([GOOD]);
            target.pass(10);
        }
        let mut next = FIRST;
        for tick in 0..20_000 {
            target.send(next..next + per_ms);
            next += per_ms;
            if tick % 5 == 0 {
                target.send([GOOD]);
            }
            target.pass(1);
        }
        assert!(target.delivered(GOOD) >= 3_950, "{} of 4,000", target.delivered(GOOD));
        assert!(target.waited_ms(GOOD) <= 300, "it waited {} ms", target.waited_ms(GOOD));
        assert!(target.under_way() >= 64, "{} silent ones are tried", target.under_way());
    }
}

#[test]
fn a_lane_of_new_destinations_alone_uses_every_slot() {
    let mut target = Target::new(lane_of_128(), &[]);
    target.others_ms = Some(40);
    target.send(FIRST..FIRST + 1_000);
    target.pass(10);
    assert_eq!(target.under_way(), 128);
    target.pass(1_000);
    assert_eq!((target.delivered_of_all(), target.deferred_of_all()), (1_000, 0));
}

#[test]
fn new_destinations_that_answer_keep_their_rate_beside_a_regular_one() {
    let mut target = Target::new(lane_of_128(), &[]);
    target.others_ms = Some(100);
    for _ in 0..3 {
        target.send([GOOD]);
        target.pass(150);
    }
    target.send(FIRST..FIRST + 960);
    target.pass(10);
    assert_eq!(target.under_way(), 96, "three quarters");
    // Ten rounds of 96 messages, and up to 25 ms between two rounds.
    target.pass(1_250);
    assert_eq!((target.delivered_of_all(), target.deferred_of_all()), (963, 0));
}

#[test]
fn new_destinations_that_answer_after_400_ms_are_not_taken_for_silent_ones_for_long() {
    let mut target = Target::new(lane_of_128(), &[(GOOD, Some(2))]);
    target.others_ms = Some(400);
    for _ in 0..3 {
        target.send([GOOD]);
        target.pass(10);
    }
    target.send(FIRST..FIRST + 96);
    target.pass(500);
    assert_eq!(target.delivered_of_all(), 99);
    target.send(FIRST + 100..FIRST + 300);
    target.pass(1_400);
    assert_eq!((target.delivered_of_all(), target.deferred_of_all()), (299, 0));
}

#[test]
fn a_destination_that_fell_silent_is_regular_again_after_an_answer() {
    let mut target = Target::new(lane_of_128(), &[(BAD, Some(2))]);
    for _ in 0..3 {
        target.send([GOOD, BAD]);
        target.pass(10);
    }
    let is_regular = |target: &Target| target.destinations().answers().is_regular(BAD);
    assert!(is_regular(&target));
    target.answer_ms.insert(BAD, None);
    for silent in 1..=3 {
        target.send([BAD]);
        target.pass(8_100);
        assert_eq!(is_regular(&target), silent < 3, "one lost answer may be the fault of its message");
    }
    target.answer_ms.insert(BAD, Some(2));
    target.pass(1_000);
    target.send([BAD]);
    target.pass(10);
    assert!(is_regular(&target));
}

#[test]
fn regular_destinations_that_fall_silent_and_are_forgotten_are_newcomers() {
    let mut bench = Bench::with(LaneSettings { in_flight: 4_000, batch: 2_000, ..lane() });
    let all: Vec<u64> = (FIRST..FIRST + 1_400).collect();
    for _ in 0..2 {
        for some in all.chunks(700) {
            bench.feed_to(some);
            bench.ends_now(|_| Some(done()));
            bench.settles();
            bench.pass(ms(1));
        }
    }
    let regular = |bench: &Bench| {
        let answers = bench.scheduler.lanes[&A].destinations.answers();
        all.iter().filter(|key| answers.is_regular(**key)).count()
    };
    assert_eq!(regular(&bench), 1_400);
    for some in all.chunks(700) {
        let jobs = bench.feed_to(some);
        // One that answers shows that the call did not fail as a whole.
        bench.ends_now(|job| {
            Some(if job == jobs[0] { done() } else { AttemptResult::no_answer("no answer") })
        });
        bench.settles();
        bench.pass(ms(1));
    }
    // Others need the room.
    bench.feed_to(&(1..100).collect::<Vec<_>>());
    assert!(regular(&bench) <= 1_024 + 100, "{} destinations are regular", regular(&bench));
}

/// Silent ones for which 10,000 messages are due.
const CROWD: std::ops::Range<u64> = FIRST..FIRST + 10_000;

#[test]
fn a_regular_destination_without_messages_for_a_minute_finds_a_slot_in_a_silent_crowd() {
    let mut target = Target::with_returns(lane_of_128(), &[(GOOD, Some(2))]);
    target.others_ms = None;
    for _ in 0..3 {
        target.send([GOOD]);
        target.pass(10);
    }
    target.pass(61_000);
    target.send(CROWD);
    target.pass(10);
    target.send([GOOD]);
    target.pass(9_000);
    assert_eq!(target.delivered(GOOD), 4, "when the first of the crowd timed out");
    // The crowd is known to be silent by now.
    target.pass(1_000);
    target.send([GOOD]);
    target.pass(300);
    assert_eq!(target.delivered(GOOD), 5);
}

#[test]
fn a_silent_crowd_is_remembered_over_a_quiet_minute() {
    let mut target = Target::new(lane_of_128(), &[(GOOD, Some(2))]);
    target.others_ms = None;
    for _ in 0..3 {
        target.send([GOOD]);
        target.pass(10);
    }
    target.send(FIRST..FIRST + 96);
    target.pass(70_000);
    target.send(CROWD);
    target.pass(10);
    target.send([GOOD]);
    target.pass(2_000);
    assert_eq!((target.delivered(GOOD), target.under_way()), (4, 96));
}

#[test]
fn a_busy_destination_is_regular_soon_after_a_restart_with_a_silent_backlog() {
    let mut target = Target::with_returns(lane_of_128(), &[(GOOD, Some(2))]);
    target.others_ms = None;
    target.send(CROWD);
    for _ in 0..3_000 {
        target.send([GOOD]);
        target.pass(5);
    }
    assert!(target.destinations().answers().is_regular(GOOD));
    let before = target.delivered(GOOD);
    for _ in 0..1_000 {
        target.send([GOOD]);
        target.pass(5);
    }
    let delivered = target.delivered(GOOD) - before;
    assert!(delivered >= 950, "{delivered} of 1,000 beside the crowd");
}

#[test]
fn one_lost_answer_leaves_a_busy_destination_its_slots_beside_a_silent_crowd() {
    let mut target = Target::with_returns(lane_of_128(), &[(GOOD, Some(2))]);
    target.others_ms = None;
    for _ in 0..3 {
        target.send([GOOD]);
        target.pass(10);
    }
    target.send(CROWD);
    target.pass(1_000);
    target.answer_ms.insert(GOOD, None);
    target.send([GOOD]);
    target.pass(1);
    target.answer_ms.insert(GOOD, Some(2));
    target.pass(8_100);
    for _ in 0..100 {
        target.send([GOOD]);
        target.pass(5);
    }
    assert!(
        target.delivered(GOOD) >= 95,
        "{} of 100, and {} deferred",
        target.delivered(GOOD),
        target.deferred(GOOD)
    );
}

#[test]
fn a_burst_to_new_destinations_is_not_deferred_for_a_silent_one_among_them() {
    let mut target = Target::new(lane_of_128(), &[(BAD, None)]);
    target.others_ms = Some(40);
    target.send([GOOD, BAD]);
    target.pass(1_000);
    target.send(FIRST..FIRST + 1_000);
    target.pass(1_000);
    assert_eq!((target.delivered_of_all(), target.deferred_of_all()), (1_001, 0));
    target.pass(8_000);
    target.send(FIRST + 2_000..FIRST + 3_000);
    target.pass(10);
    assert!(target.under_way() > 96, "one lost answer: {} are under way", target.under_way());
}

#[test]
fn messages_of_silent_newcomers_come_back_in_groups() {
    let settings = LaneSettings { timeout: Duration::from_secs(30), ..lane_of_128() };
    let mut target = Target::new(settings, &[(GOOD, Some(2))]);
    target.others_ms = None;
    for _ in 0..3 {
        target.send([GOOD]);
        target.pass(10);
    }
    target.send(FIRST..FIRST + 1_096);
    target.pass(2_000);
    let times = target.deferred_to();
    assert_eq!(times.len(), 1_000);
    for second in 0.. {
        let from = times[0] + second * 1_000;
        let count = times.iter().filter(|at| (from..from + 1_000).contains(*at)).count();
        assert!(count <= 550, "{count} within a second");
        if from > times[999] {
            break;
        }
    }
}
