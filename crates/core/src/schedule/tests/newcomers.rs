//! Many destinations behind one silent part of a target, each with a message or two: no breaker of one sees them.

use std::time::Duration;

use super::{destination::*, stall::lane_of_128, target::Target};
use crate::schedule::LaneSettings;

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
    target.send([BAD]);
    target.pass(8_100);
    assert!(!is_regular(&target));
    target.answer_ms.insert(BAD, Some(2));
    target.send([BAD]);
    target.pass(10);
    assert!(is_regular(&target));
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
