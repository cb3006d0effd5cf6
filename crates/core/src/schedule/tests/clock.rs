//! Wall time is followed in both directions; jumps are told.

use super::bench::*;
use crate::schedule::{Action, Event, Report};

fn step_wall(bench: &mut Bench, by_ms: i64) {
    bench.wall_us = bench.wall_us.wrapping_add_signed(by_ms * 1000);
    bench.apply(Event::Tick);
}

#[test]
fn a_step_forwards_brings_due_times_nearer_and_is_told() {
    let mut bench = Bench::with(sink());
    bench.hint(A, at(60_000));
    step_wall(&mut bench, 59_000);
    assert_eq!(bench.reports(), [Report::ClockJumped { by_us: 59_000_000 }]);
    assert!(bench.actions.iter().any(|action| matches!(action, Action::Sweep { .. })), "it looks at once");
    bench.sweeps();
    bench.pass(ms(999));
    assert_eq!(bench.claim_of(A), None);
    bench.pass(ms(1));
    assert!(bench.claim_of(A).is_some());
}

#[test]
fn a_step_backwards_moves_due_times_away() {
    let mut bench = Bench::with(sink());
    bench.hint(A, at(1_000));
    step_wall(&mut bench, -5_000);
    assert_eq!(bench.reports(), [Report::ClockJumped { by_us: -5_000_000 }]);
    bench.pass(ms(5_999));
    assert_eq!(bench.claim_of(A), None);
    bench.pass(ms(1));
    assert!(bench.claim_of(A).is_some());
}

#[test]
fn what_waits_for_a_call_when_the_clock_steps_back_is_handed_back() {
    let mut bench = Bench::with(sink());
    bench.feed(A, 25);
    let deliveries = bench.deliveries();
    step_wall(&mut bench, -10_000);
    bench.delivered(deliveries[0].0, vec![done(); 10]);
    assert_eq!(bench.deliveries(), []);
    let settles = bench.settles();
    assert_eq!(settles.iter().filter(|(_, v)| *v == crate::store::Settlement::Release).count(), 5);
}

#[test]
fn a_slewing_clock_is_followed_without_a_word() {
    let mut bench = Bench::with(sink());
    bench.hint(A, at(20_000));
    for _ in 0..100 {
        bench.pass(ms(100));
        bench.wall_us += 100;
        bench.apply(Event::Tick);
        bench.sweeps();
    }
    assert_eq!(bench.reports(), []);
    // Twenty seconds of wall time are 10 ms less on the other clock by now.
    bench.pass(ms(10_000 - 11));
    assert_eq!(bench.claim_of(A), None);
    bench.pass(std::time::Duration::from_micros(1_500));
    assert!(bench.claim_of(A).is_some());
}
