//! What may have killed a process is tried alone.

use super::bench::*;
use crate::{
    Lost,
    schedule::{LaneSettings, Terms},
    store::Verdict,
};

fn lost(bench: &Bench) -> Terms {
    Terms { lost: Lost::InCompany, attempt: 9, ..bench.due() }
}

#[test]
fn a_suspect_is_called_alone_even_past_its_attempts() {
    let mut bench = Bench::with(sink());
    bench.hint(A, at(0));
    bench.claim_of(A);
    let suspect = lost(&bench);
    let jobs = bench.give(A, vec![suspect], Some(at(0)));
    assert_eq!(bench.deliveries()[0].1, jobs);
    assert!(bench.claim_of(A).is_some(), "its neighbours need not wait");
    let terms = vec![bench.due(); 3];
    bench.give(A, terms, None);
    assert_eq!(bench.deliveries()[0].1.len(), 3);
}

#[test]
fn a_second_suspect_of_any_lane_waits_for_the_first() {
    let mut bench = Bench::with(sink());
    bench.add(B, sink());
    bench.hint(A, at(0));
    bench.claim_of(A);
    let suspect = lost(&bench);
    bench.give(A, vec![suspect.clone()], None);
    let (first, _) = bench.deliveries().remove(0);
    bench.claim_of(A);
    bench.nothing(A, None);

    bench.hint(B, at(0));
    bench.claim_of(B);
    let second = bench.give(B, vec![suspect], None);
    assert_eq!(bench.deliveries(), []);
    assert_eq!(bench.settles(), [(second[0], Verdict::HandBack)]);
    bench.pass(ms(3_000));
    assert_eq!(bench.claim_of(B), None);

    bench.delivered(first, vec![done()]);
    bench.settles();
    assert!(bench.claim_of(B).is_some());
}

#[test]
fn a_suspect_does_not_join_the_call_of_those_before_it() {
    let mut bench = Bench::with(LaneSettings { concurrency: 1, ..sink() });
    bench.feed(A, 1);
    let (busy, _) = bench.deliveries().remove(0);
    let waiting = bench.feed(A, 2);
    bench.hint(A, at(0));
    bench.claim_of(A);
    let terms = lost(&bench);
    let suspect = bench.give(A, vec![terms], None);
    bench.delivered(busy, vec![done()]);
    let (next, jobs) = bench.deliveries().remove(0);
    assert_eq!(jobs, waiting);
    bench.delivered(next, vec![done(); 2]);
    assert_eq!(bench.deliveries()[0].1, suspect);
}
