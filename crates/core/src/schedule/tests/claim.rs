//! When a lane asks the store, and for how much.

use std::time::Duration;

use super::bench::*;
use crate::schedule::{Action, Event, LaneSettings, Rate};

#[test]
fn nothing_is_claimed_before_its_time() {
    let mut bench = Bench::with(sink());
    bench.hint(A, at(1500));
    bench.pass(ms(1499));
    assert_eq!(bench.claim_of(A), None);
    bench.pass(ms(1));
    assert!(bench.claim_of(A).is_some());
}

#[test]
fn the_wake_up_comes_at_the_microsecond_at_which_the_millisecond_begins() {
    let mut bench = Bench::with(sink());
    bench.wall_us += 250;
    bench.hint(A, at(10));
    assert_eq!(bench.scheduler.next_wake().unwrap().as_micros(), bench.mono_us + 9_750);
}

#[test]
fn an_earlier_hint_replaces_a_later_one_and_not_the_other_way_round() {
    let mut bench = Bench::with(sink());
    bench.hint(A, at(5_000));
    bench.hint(A, at(1_000));
    bench.hint(A, at(9_000));
    bench.pass(ms(1_000));
    assert!(bench.claim_of(A).is_some());
}

#[test]
fn a_hint_during_a_claim_is_not_overwritten_by_its_answer() {
    let mut bench = Bench::with(sink());
    bench.hint(A, at(0));
    assert!(bench.claim_of(A).is_some());
    bench.hint(A, at(0));
    bench.nothing(A, None);
    assert!(bench.claim_of(A).is_some());
}

#[test]
fn a_full_claim_is_followed_by_another_at_once() {
    let mut bench = Bench::with(LaneSettings { in_flight: 5_000, concurrency: 50, batch: 100, ..sink() });
    bench.hint(A, at(0));
    let limit = bench.claim_of(A).unwrap();
    let terms = vec![bench.due(); limit];
    bench.give(A, terms, None);
    assert!(bench.claim_of(A).is_some());
}

#[test]
fn no_more_is_held_than_the_in_flight_limit() {
    let mut bench = Bench::with(LaneSettings { in_flight: 15, ..sink() });
    bench.hint(A, at(0));
    assert_eq!(bench.claim_of(A), Some(15));
    let terms = vec![bench.due(); 15];
    bench.give(A, terms, Some(at(0)));
    assert_eq!(bench.claim_of(A), None);
    let deliveries = bench.deliveries();
    assert_eq!(deliveries.iter().map(|(_, jobs)| jobs.len()).collect::<Vec<_>>(), [10, 5]);
    bench.delivered(deliveries[0].0, vec![done(); 10]);
    assert_eq!(bench.claim_of(A), None, "a slot is free once its message is settled, not before");
    assert_eq!(bench.settles().len(), 10);
    assert_eq!(bench.claim_of(A), Some(10));
}

#[test]
fn what_waits_for_a_call_is_bounded() {
    let settings = LaneSettings { in_flight: usize::MAX, concurrency: 1, batch: 1, ..sink() };
    let mut bench = Bench::with(settings);
    let mut claimed = 0;
    bench.hint(A, at(0));
    while let Some(limit) = bench.claim_of(A) {
        claimed += limit;
        let terms = vec![bench.due(); limit];
        bench.give(A, terms, Some(at(0)));
    }
    assert!(claimed <= LaneSettings::BUFFERED_MAX + 1, "{claimed}");
}

#[test]
fn what_is_done_but_not_yet_recorded_takes_no_place_from_what_waits_for_a_call() {
    let mut bench =
        Bench::with(LaneSettings { in_flight: 100, buffered: 10, concurrency: 10, batch: 1, ..sink() });
    bench.hint(A, at(0));
    assert_eq!(bench.claim_of(A), Some(10));
    let terms = vec![bench.due(); 10];
    bench.give(A, terms, Some(at(0)));
    assert_eq!(bench.claim_of(A), Some(10), "ten are being called, and none waits");
    let terms = vec![bench.due(); 10];
    bench.give(A, terms, Some(at(0)));
    assert_eq!(bench.claim_of(A), None, "ten wait");
    for (delivery, jobs) in bench.deliveries() {
        bench.delivered(delivery, vec![done(); jobs.len()]);
    }
    assert!(bench.claim_of(A).is_some(), "nothing is recorded yet, but what waited is being called");
}

#[test]
fn a_store_that_records_slowly_lets_a_lane_hold_all_of_its_in_flight_limit() {
    let mut bench =
        Bench::with(LaneSettings { in_flight: 100, buffered: 10, concurrency: 2, batch: 5, ..sink() });
    let mut held = 0;
    bench.hint(A, at(0));
    while let Some(limit) = bench.claim_of(A) {
        held += limit;
        let terms = vec![bench.due(); limit];
        bench.give(A, terms, Some(at(0)));
        for (delivery, jobs) in bench.deliveries() {
            bench.delivered(delivery, vec![done(); jobs.len()]);
        }
    }
    assert_eq!(held, 100, "neither concurrency × batch nor what may wait for a call bounds it");
}

#[test]
fn a_claim_that_gives_nothing_although_it_should_is_not_repeated_in_a_busy_loop() {
    let mut bench = Bench::with(sink());
    bench.hint(A, at(0));
    let mut claims = 0;
    for _ in 0..100 {
        if bench.claim_of(A).is_some() {
            claims += 1;
            bench.nothing(A, Some(at(0)));
        }
        bench.pass(ms(1));
    }
    assert!((2..=12).contains(&claims), "{claims}");
}

#[test]
fn a_failing_store_is_asked_again_after_a_growing_wait() {
    let mut bench = Bench::with(sink());
    bench.hint(A, at(0));
    let mut claims = 0;
    for _ in 0..1_000 {
        if bench.claim_of(A).is_some() {
            claims += 1;
            bench.apply(Event::ClaimFailed { lane: A });
        }
        bench.pass(ms(10));
    }
    assert!((5..=12).contains(&claims), "{claims}");
}

#[test]
fn the_rate_limit_holds_over_time() {
    let rate = Some(Rate { per_second: 100, burst: 10 });
    let mut bench = Bench::with(LaneSettings { rate, in_flight: 1_000, concurrency: 1_000, ..sink() });
    bench.hint(A, at(0));
    let mut sent = 0;
    for _ in 0..1_000 {
        while let Some(limit) = bench.claim_of(A) {
            let terms = vec![bench.due(); limit];
            bench.give(A, terms, Some(at(0)));
            for (delivery, jobs) in bench.deliveries() {
                sent += jobs.len();
                bench.delivered(delivery, vec![done(); jobs.len()]);
            }
            bench.settles();
        }
        bench.pass(ms(1));
    }
    assert!((100..=110).contains(&sent), "{sent} in a second");
}

#[test]
fn tokens_of_an_empty_claim_are_given_back() {
    let rate = Some(Rate { per_second: 1, burst: 5 });
    let mut bench = Bench::with(LaneSettings { rate, ..sink() });
    for _ in 0..3 {
        bench.hint(A, bench.now().wall());
        assert_eq!(bench.claim_of(A), Some(5));
        bench.nothing(A, None);
    }
}

#[test]
fn a_paused_lane_claims_nothing_and_hands_back_what_waits() {
    let mut bench = Bench::with(sink());
    bench.feed(A, 25);
    assert_eq!(bench.deliveries().len(), 2);
    bench.apply(Event::Paused { lane: A });
    let settles = bench.settles();
    assert_eq!(settles.len(), 5);
    assert!(settles.iter().all(|(_, settlement)| *settlement == crate::store::Settlement::Release));
    bench.pass(Duration::from_secs(4));
    assert_eq!(bench.claim_of(A), None);
    bench.apply(Event::Resumed { lane: A });
    assert!(bench.claim_of(A).is_some());
}

#[test]
fn a_lane_that_hangs_does_not_hinder_another() {
    let mut bench = Bench::with(sink());
    bench.add(B, sink());
    bench.feed(A, 100);
    assert_eq!(bench.deliveries().len(), 2);
    for round in 1..=200 {
        bench.pass(ms(20));
        bench.hint(B, bench.now().wall());
        assert!(bench.claim_of(B).is_some(), "round {round}");
        let terms = vec![bench.due(); 10];
        bench.give(B, terms, None);
        let deliveries = bench.deliveries();
        assert_eq!(deliveries.len(), 1, "round {round}");
        bench.delivered(deliveries[0].0, vec![done(); 10]);
        bench.settles();
    }
}

#[test]
fn a_lost_wake_up_is_found_by_the_sweep() {
    let mut bench = Bench::with(sink());
    // Nobody says that something is due at 300: only the sweep knows.
    let end = bench.mono_us + 3_000_000;
    let mut claimed_after = None;
    while let Some(wake) = bench.scheduler.next_wake().map(|wake| wake.as_micros()).filter(|w| *w <= end) {
        bench.wall_us += wake - bench.mono_us;
        bench.mono_us = wake;
        bench.apply(Event::Tick);
        let sweeps = bench.actions.iter().any(|action| matches!(action, Action::Sweep { .. }));
        bench.actions.retain(|action| !matches!(action, Action::Sweep { .. }));
        if sweeps {
            bench.swept(vec![(A, at(300))]);
        }
        if bench.claim_of(A).is_some() {
            claimed_after = Some(bench.now().wall().as_millis() - START_MS);
            break;
        }
    }
    assert_eq!(claimed_after.map(|ms| (300..=2_300).contains(&ms)), Some(true), "{claimed_after:?}");
}

#[test]
fn an_idle_scheduler_wakes_every_two_seconds_and_no_more() {
    let mut bench = Bench::with(sink());
    bench.pass(Duration::from_secs(10));
    let mut wakes = 0;
    let end = bench.mono_us + 60_000_000;
    while let Some(wake) = bench.scheduler.next_wake().map(|wake| wake.as_micros()).filter(|w| *w <= end) {
        bench.wall_us += wake - bench.mono_us;
        bench.mono_us = wake;
        bench.apply(Event::Tick);
        bench.sweeps();
        wakes += 1;
    }
    assert!(wakes <= 31, "{wakes} in a minute");
}
