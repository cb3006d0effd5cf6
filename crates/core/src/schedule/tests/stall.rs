//! A destination that is slow to answer keeps its rate; one that has stopped leaves the lane to others.

use std::time::Duration;

use super::{destination::*, target::Target};
use crate::schedule::LaneSettings;

/// 128 slots, as those of a webhook.
pub(super) fn lane_of_128() -> LaneSettings {
    LaneSettings { in_flight: 128, batch: 32, timeout: Duration::from_secs(8), ..lane() }
}

#[test]
fn a_burst_to_a_destination_that_answers_after_400_ms_keeps_its_rate() {
    let mut target = Target::new(lane_of_128(), &[(BAD, Some(400))]);
    target.send([GOOD, BAD]);
    target.pass(1_000);
    target.send([BAD; 200]);
    // 64 at a time: four rounds.
    target.pass(1_700);
    assert_eq!((target.delivered(BAD), target.deferred(BAD)), (201, 0));
}

#[test]
fn a_first_answer_shows_that_its_destination_has_not_stalled() {
    let mut target = Target::new(lane_of_128(), &[(BAD, Some(400))]);
    target.send([GOOD]);
    target.send([BAD; 60]);
    target.pass(100);
    target.send([BAD; 60]);
    target.pass(310);
    assert_eq!((target.delivered(BAD), target.deferred(BAD)), (60, 56), "nothing was known of it");
    // Four are under way.
    target.send([BAD; 124]);
    target.pass(900);
    assert_eq!((target.delivered(BAD), target.deferred(BAD)), (188, 56), "now it is");
}

#[test]
fn a_destination_that_stops_to_answer_stalls_after_twice_the_time_of_its_answers() {
    for (before, stalled_ms) in [(5, 250), (200, 400), (400, 800), (700, 1_000)] {
        let mut target = Target::new(lane_of_128(), &[(BAD, Some(before))]);
        target.send([GOOD, BAD]);
        target.pass(1_000);
        target.answer_ms.insert(BAD, None);
        target.send([BAD; 100]);
        target.pass(stalled_ms - 5);
        assert_eq!(target.deferred(BAD), 0, "answers took {before} ms");
        target.pass(10);
        assert_eq!(target.deferred(BAD), 36, "answers took {before} ms");
        target.send([GOOD; 10]);
        target.pass(5);
        assert_eq!(target.delivered(GOOD), 11);
    }
}

#[test]
fn what_is_remembered_of_answers_is_bounded() {
    let mut target = Target::new(LaneSettings { in_flight: 1_024, batch: 256, ..lane() }, &[]);
    for round in 0..10 {
        target.send(round * 1_000..(round + 1) * 1_000);
        target.pass(3);
    }
    let (len, max) = target.destinations().answers().len_and_max();
    assert!((1_000..=max).contains(&len), "{len} are remembered");
}
