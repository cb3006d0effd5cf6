//! Where the store moves messages to the target by itself.

use super::bench::*;
use crate::{
    Timestamp,
    schedule::{Action, Event, LaneSettings, Rate},
};

fn moving() -> LaneSettings {
    LaneSettings { in_store_max: 1_000, ..sink() }
}

/// What the lane asked for: to claim, and to be moved.
fn asked(bench: &mut Bench) -> Option<(usize, usize)> {
    let asked = bench.actions.iter().find_map(|action| match action {
        Action::Claim { limit, in_store_max, .. } => Some((*limit, *in_store_max)),
        _ => None,
    });
    bench.claim_of(A);
    asked
}

fn moved(bench: &mut Bench, delivered_in_store: usize, next: Option<Timestamp>) {
    let requested_at = bench.now().mono();
    bench.apply(Event::Claimed { lane: A, taken: Vec::new(), delivered_in_store, next, requested_at });
}

#[test]
fn more_may_be_moved_than_held() {
    let mut bench = Bench::with(moving());
    bench.hint(A, at(0));
    assert_eq!(asked(&mut bench), Some((100, 1_000)));
    moved(&mut bench, 1_000, None);
    assert_eq!(asked(&mut bench), Some((100, 1_000)), "all that was asked for: there may be more");
    moved(&mut bench, 999, None);
    assert_eq!(asked(&mut bench), None);
    assert!(bench.deliveries().is_empty() && bench.settles().is_empty());
}

#[test]
fn what_is_left_is_asked_for_at_once_if_something_was_moved_and_after_a_pause_if_not() {
    let mut bench = Bench::with(moving());
    bench.hint(A, at(0));
    assert!(asked(&mut bench).is_some());
    moved(&mut bench, 3, Some(at(0)));
    assert!(asked(&mut bench).is_some(), "it went on");
    moved(&mut bench, 0, Some(at(0)));
    assert_eq!(asked(&mut bench), None, "it does not go on: asking without end would help nobody");
    bench.pass(ms(2));
    assert!(asked(&mut bench).is_some());
}

#[test]
fn the_rate_limit_counts_what_is_moved() {
    let rate = Some(Rate { per_second: 100, burst: 10 });
    let mut bench = Bench::with(LaneSettings { rate, ..moving() });
    bench.hint(A, at(0));
    let mut sent = 0;
    for _ in 0..1_000 {
        while let Some((_, in_store_max)) = asked(&mut bench) {
            sent += in_store_max;
            moved(&mut bench, in_store_max, Some(at(0)));
        }
        bench.pass(ms(1));
    }
    assert!((100..=110).contains(&sent), "{sent} in a second");
}

#[test]
fn a_target_that_was_away_is_tried_with_one_message_by_its_sink() {
    let mut bench = Bench::with(moving());
    bench.feed(A, 1);
    let (delivery, _) = bench.deliveries().remove(0);
    bench.delivered(delivery, vec![unreachable()]);
    bench.settles();
    bench.hint(A, at(0));
    bench.pass(ms(40));
    assert_eq!(asked(&mut bench), None, "left alone");
    bench.pass(ms(2_000));
    bench.apply(Event::Probed { lane: A, result: Ok(()) });
    assert_eq!(asked(&mut bench), Some((1, 0)));
    let terms = vec![bench.due()];
    bench.give(A, terms, Some(at(0)));
    let (delivery, _) = bench.deliveries().remove(0);
    bench.delivered(delivery, vec![done()]);
    bench.settles();
    assert!(asked(&mut bench).is_some_and(|(_, in_store_max)| in_store_max == 1_000), "back");
}
