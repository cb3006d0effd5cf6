//! What one destination, message or claim must not cost the others: found by reading the scheduler as an adversary.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use super::{bench::*, destination::*};
use crate::{
    ErrorScope, LeaseLoss, Outcome,
    schedule::{AttemptResult, DeliveryTerms, Event, Job, LaneSettings, Rate},
    store::Settlement,
};

const POISON: u64 = 9;

fn retry_ms(settles: &[(Job, Settlement)], job: Job) -> u64 {
    settles
        .iter()
        .find_map(|(j, v)| match v {
            Settlement::Retry { at, .. } if *j == job => Some(at.as_millis()),
            _ => None,
        })
        .unwrap()
}

#[test]
fn the_backlog_of_one_destination_puts_off_no_other() {
    let mut bench = Bench::with(LaneSettings { in_flight: 2_000, ..lane() });
    let jobs = bench.feed_to(&[BAD, GOOD]);
    bench.ends_now(|job| Some(if job == jobs[0] { about_destination(Outcome::Unreachable) } else { done() }));
    bench.settles();
    for _ in 0..100 {
        bench.feed_to(&[BAD; 1_000]);
        bench.settles();
    }
    let jobs = bench.feed_to(&[GOOD]);
    bench.ends_now(|_| Some(about_destination(Outcome::Throttled)));
    let now = bench.now().wall().as_millis();
    let at = retry_ms(&bench.settles(), jobs[0]);
    assert!(at - now <= 1_000, "its breaker is open for half a second, it waits {} ms", at - now);
}

#[test]
fn each_message_of_a_failed_call_tries_alone_however_long_that_takes() {
    let mut bench = Bench::with(lane());
    bench.feed_to(&[BAD; 5]);
    bench.ends_now(|_| Some(AttemptResult::failed(Outcome::Unknown, "connection lost")));
    for _ in 0..5 {
        let calls = bench.deliveries();
        if calls.is_empty() {
            break;
        }
        bench.pass(ms(600));
        for (delivery, jobs) in calls {
            assert_eq!(jobs.len(), 1);
            bench.delivered(delivery, vec![done()]);
        }
    }
    let settles = bench.settles();
    let counted = settles.iter().filter(|(_, v)| !matches!(v, Settlement::Delivered { .. })).count();
    assert_eq!(counted, 0, "{settles:?}");
}

#[test]
fn what_may_have_arrived_is_not_recorded_as_denied() {
    let mut bench = Bench::with(lane());
    bench.feed_to(&[BAD; 2]);
    let (first, _) = bench.deliveries().remove(0);
    bench.feed_to(&[BAD; 3]);
    let (second, _) = bench.deliveries().remove(0);
    bench.delivered(second, vec![denied(), denied(), denied()]);
    bench.settles();
    let reset = || AttemptResult::failed(Outcome::Unknown, "connection lost");
    bench.delivered(first, vec![reset(), reset()]);
    let settles = bench.settles();
    assert_eq!(settles.len(), 2);
    for (_, settlement) in &settles {
        assert!(
            matches!(settlement, Settlement::Retry { attempt, .. } if attempt.outcome.maybe_delivered()),
            "{settlement:?}"
        );
    }
}

#[test]
fn a_lane_that_may_hold_less_than_its_slots_keeps_room_for_others() {
    let mut bench = Bench::with(LaneSettings { in_flight: 10, ..lane() });
    let jobs = bench.feed_to(&[GOOD, BAD]);
    bench.ends_now(|job| (job == jobs[0]).then(done));
    bench.settles();
    bench.feed_to(&[BAD; 9]);
    bench.pass(ms(1_500));
    bench.settles();
    bench.hint(A, bench.now().wall());
    assert!(bench.claim_of(A).is_some(), "a silent destination holds all that the lane may hold");
}

#[test]
fn a_straggler_from_before_does_not_keep_a_destination_from_being_tried() {
    let mut bench = Bench::with(LaneSettings {
        timeout: Duration::from_secs(600),
        lease: Duration::from_secs(3600),
        ..lane()
    });
    let jobs = bench.feed_to(&[BAD, BAD, GOOD]);
    bench.ends_now(|job| {
        if job == jobs[0] {
            Some(about_destination(Outcome::Throttled))
        } else if job == jobs[2] {
            Some(done())
        } else {
            None
        }
    });
    bench.settles();
    for _ in 0..60 {
        bench.pass(ms(1_000));
        bench.feed_to(&[BAD]);
        if !bench.deliveries().is_empty() {
            return;
        }
        bench.settles();
    }
    panic!("not tried for a minute, although its breaker opened for half a second");
}

#[test]
fn what_is_under_way_leaves_room_to_remember_what_is_not_well() {
    let mut bench = Bench::with(LaneSettings { in_flight: 4_000, concurrency: 20, batch: 100, ..lane() });
    bench.feed_to(&[BAD]);
    bench.ends_now(|_| Some(about_destination(Outcome::Unreachable)));
    bench.settles();
    let others: Vec<u64> = (10..10 + 1_024).collect();
    bench.feed_to(&others[..512]);
    bench.feed_to(&others[512..]);
    bench.deliveries();
    bench.feed_to(&[BAD]);
    assert_eq!(bench.deliveries(), [], "one destination is not well, 1,024 may be remembered");
}

#[test]
fn a_message_that_was_sent_keeps_its_token() {
    let rate = Rate { per_second: 1, burst: 10 };
    let mut bench = Bench::with(LaneSettings { rate: Some(rate), ..lane() });
    bench.hint(A, bench.now().wall());
    assert_eq!(bench.claim_of(A), Some(10));
    let terms: Vec<_> =
        (0..5).map(|message| DeliveryTerms { destination: BAD, message, ..bench.due() }).collect();
    bench.give(A, terms, None);
    bench.ends_now(|_| Some(about_destination(Outcome::Unknown)));
    bench.settles();
    bench.hint(A, bench.now().wall());
    assert_eq!(bench.claim_of(A), Some(5), "five were sent");
}

#[test]
fn a_message_that_is_denied_without_being_sent_takes_no_token() {
    let rate = Rate { per_second: 1, burst: 10 };
    let mut bench = Bench::with(LaneSettings { rate: Some(rate), ..lane() });
    bench.hint(A, bench.now().wall());
    bench.claim_of(A);
    let terms = |messages: std::ops::Range<u64>, bench: &Bench| {
        messages.map(|message| DeliveryTerms { destination: BAD, message, ..bench.due() }).collect()
    };
    bench.give(A, terms(0..3, &bench), None);
    bench.ends_now(|_| Some(denied()));
    bench.settles();
    bench.hint(A, bench.now().wall());
    assert_eq!(bench.claim_of(A), Some(7));
    bench.give(A, terms(3..10, &bench), None);
    assert_eq!(bench.deliveries(), []);
    bench.settles();
    bench.hint(A, bench.now().wall());
    assert_eq!(bench.claim_of(A), Some(7), "nothing was sent");
}

#[test]
fn a_suspect_is_not_cleared_without_a_try() {
    let mut bench = Bench::with(lane());
    let jobs = bench.feed_to(&[BAD, GOOD]);
    bench.ends_now(|job| Some(if job == jobs[0] { about_destination(Outcome::Unreachable) } else { done() }));
    bench.settles();
    bench.hint(A, bench.now().wall());
    bench.claim_of(A);
    let suspect =
        DeliveryTerms { destination: BAD, message: 5, attempt: 4, lost: LeaseLoss::InBatch, ..bench.due() };
    bench.give(A, vec![suspect], None);
    let sent = !bench.deliveries().is_empty();
    let settles = bench.settles();
    assert!(
        sent || !matches!(settles[0].1, Settlement::Retry { .. }),
        "not sent, and the store clears it: {settles:?}"
    );
}

#[test]
fn nothing_is_denied_while_the_destination_is_being_tried() {
    let mut bench = Bench::with(lane());
    bench.feed_to(&[BAD; 3]);
    bench.ends_now(|_| Some(denied()));
    bench.settles();
    bench.pass(ms(500));
    bench.settles();
    bench.hint(A, bench.now().wall());
    bench.claim_of(A);
    let first = DeliveryTerms { destination: BAD, message: 5, ..bench.due() };
    let last = DeliveryTerms { destination: BAD, message: 6, attempt: 3, ..bench.due() };
    bench.give(A, vec![first, last], None);
    let (delivery, jobs) = bench.deliveries().remove(0);
    assert_eq!(jobs.len(), 1);
    let settles = bench.settles();
    bench.delivered(delivery, vec![done()]);
    assert!(!matches!(settles[0].1, Settlement::Dead { .. }), "the right was granted, and yet: {settles:?}");
}

#[test]
fn a_denied_message_costs_its_neighbours_nothing() {
    let mut bench = Bench::with(lane());
    for round in 0..5 {
        let jobs = bench.feed_to(&[BAD; 4]);
        let (delivery, sent) = bench.deliveries().remove(0);
        assert_eq!(sent, jobs, "round {round}: all are sent");
        // Two are denied, then those behind them arrive.
        bench.delivered(delivery, vec![denied(), denied(), done(), done()]);
        let settles = bench.settles();
        let is_delivered = |job| settles.contains(&(job, Settlement::Delivered { receipt: None }));
        assert!(is_delivered(jobs[2]) && is_delivered(jobs[3]), "{settles:?}");
    }
}

#[test]
fn a_message_that_is_denied_again_and_again_denies_no_other() {
    let mut bench = Bench::with(lane());
    for _ in 0..6 {
        bench.hint(A, bench.now().wall());
        bench.claim_of(A);
        let poison = DeliveryTerms { destination: BAD, message: 77, ..bench.due() };
        bench.give(A, vec![poison], None);
        bench.ends_now(|_| Some(denied()));
        bench.settles();
        bench.pass(Duration::from_secs(1));
    }
    let good = bench.feed_to(&[BAD]);
    assert_eq!(bench.deliveries()[0].1, good);
}

#[test]
fn a_trial_that_is_denied_after_an_outage_lets_the_others_go() {
    let mut bench = Bench::with(lane());
    bench.feed_to(&[BAD]);
    bench.ends_now(|_| Some(about_destination(Outcome::Unreachable)));
    bench.settles();
    bench.pass(ms(500));
    let jobs = bench.feed_to(&[BAD]);
    let (delivery, sent) = bench.deliveries().remove(0);
    assert_eq!(sent, jobs, "its trial");
    bench.delivered(delivery, vec![denied()]);
    bench.settles();
    let jobs = bench.feed_to(&[BAD, BAD]);
    assert_eq!(bench.deliveries()[0].1, jobs, "it answers, and one message says nothing about others");
}

#[test]
fn innocents_do_not_die_with_a_poison_message() {
    let mut bench = Bench::with(LaneSettings { batch: 10, ..lane() });
    let mut attempts: BTreeMap<u64, u32> = (0..10).map(|id| (id, 1)).collect();
    let lost = || AttemptResult::failed(Outcome::Unknown, "connection lost");
    let mut dead = Vec::new();
    for _ in 0..6 {
        bench.hint(A, bench.now().wall());
        bench.claim_of(A);
        let terms: Vec<_> = attempts
            .iter()
            .map(|(&message, &attempt)| DeliveryTerms { destination: BAD, message, attempt, ..bench.due() })
            .collect();
        let ids: Vec<u64> = attempts.keys().copied().collect();
        let jobs = bench.give(A, terms, None);
        let id_of = |job: Job| ids[jobs.iter().position(|j| *j == job).unwrap()];
        for _ in 0..12 {
            let calls = bench.deliveries();
            if calls.is_empty() {
                break;
            }
            bench.pass(ms(600));
            for (delivery, sent) in calls {
                let bad = sent.iter().any(|job| id_of(*job) == POISON);
                bench.delivered(delivery, sent.iter().map(|_| if bad { lost() } else { done() }).collect());
            }
        }
        for (job, settlement) in bench.settles() {
            let id = id_of(job);
            match settlement {
                Settlement::Delivered { .. } => _ = attempts.remove(&id),
                Settlement::Dead { .. } => {
                    attempts.remove(&id);
                    dead.push(id);
                }
                Settlement::Retry { attempt, .. } => {
                    *attempts.get_mut(&id).unwrap() += u32::from(attempt.outcome.counts())
                }
                Settlement::Release | Settlement::Defer { .. } => {}
            }
        }
        bench.pass(Duration::from_secs(3));
        if bench.claim_of(A).is_some() {
            bench.nothing(A, None);
        }
    }
    dead.retain(|id| *id != POISON);
    assert_eq!(dead, Vec::<u64>::new(), "innocent, and never tried alone");
}

#[test]
fn a_slow_destination_does_not_fill_the_lane_again_and_again() {
    let mut bench = Bench::with(lane());
    let jobs = bench.feed_to(&[GOOD, BAD]);
    bench.ends_now(|job| (job == jobs[0]).then(done));
    bench.settles();
    bench.feed_to(&[BAD; 99]);
    bench.pass(ms(1_100));
    assert!(deferred(&bench.settles()) > 80, "what waited for a second leaves");
    for _ in 0..5 {
        bench.feed_to(&[BAD; 80]);
        assert!(deferred(&bench.settles()) >= 80, "the rest of the backlog passes through at once");
        let good = bench.feed_to(&[GOOD]);
        bench.pass(ms(100));
        assert_eq!(bench.deliveries().pop().map(|(_, jobs)| jobs), Some(good));
    }
}

#[test]
fn a_refusal_does_not_wait_for_what_is_silent_beside_it() {
    let mut bench = Bench::with(lane());
    let jobs = bench.feed_to(&[BAD, GOOD]);
    let (delivery, _) = bench.deliveries().remove(0);
    let refused = || AttemptResult::failed(Outcome::Refused, "too large");
    bench.apply(Event::CallResults { delivery, results: vec![(1, refused())], is_over: false });
    assert_eq!(bench.settles(), [], "the whole call may be refused in these words");
    bench.pass(ms(600));
    let settles = bench.settles();
    assert!(
        matches!(&settles[..], [(job, Settlement::Dead { .. })] if *job == jobs[1]),
        "the other is under way still: {settles:?}"
    );
}

#[test]
fn a_call_that_is_refused_bit_by_bit_in_the_same_words_is_tried_one_by_one() {
    let mut bench = Bench::with(lane());
    bench.feed_to(&[GOOD; 3]);
    let (delivery, _) = bench.deliveries().remove(0);
    for index in 0..3 {
        let refused = AttemptResult::failed(Outcome::Refused, "the batch is bad");
        bench.apply(Event::CallResults { delivery, results: vec![(index, refused)], is_over: index == 2 });
        bench.pass(ms(100));
    }
    assert_eq!(bench.settles(), [], "nobody dies for another");
    assert!(bench.deliveries().iter().all(|(_, jobs)| jobs.len() == 1));
}

#[test]
fn a_lane_that_is_being_tried_finds_the_message_that_can_go() {
    let mut bench = Bench::with(lane());
    let jobs = bench.feed_to(&[BAD, GOOD]);
    let for_long = AttemptResult::Failed {
        outcome: Outcome::Unreachable,
        detail: "no leader".into(),
        retry_after: Some(Duration::from_secs(60)),
        scope: ErrorScope::Destination,
    };
    bench.ends_now(|job| Some(if job == jobs[0] { for_long.clone() } else { unreachable() }));
    bench.settles();
    bench.pass(Duration::from_secs(1));
    bench.apply(Event::Probed { lane: A, result: Ok(()) });
    let mut destinations = vec![BAD; 15];
    destinations.push(GOOD);
    let jobs = bench.feed_to(&destinations);
    assert_eq!(bench.deliveries().into_iter().map(|(_, jobs)| jobs).collect::<Vec<_>>(), [vec![jobs[15]]]);
    assert_eq!(deferred(&bench.settles()), 15);
}

#[test]
fn what_is_put_off_was_no_try() {
    let mut bench = Bench::with(lane());
    bench.feed_to(&[BAD]);
    bench.ends_now(|_| Some(about_destination(Outcome::Unreachable)));
    let is_deferral = |settles: &[(Job, Settlement)]| match &settles[0].1 {
        Settlement::Retry { attempt, .. } => attempt.is_deferral(),
        other => panic!("{other:?}"),
    };
    assert!(!is_deferral(&bench.settles()), "it was sent");
    bench.feed_to(&[BAD]);
    assert!(is_deferral(&bench.settles()), "it was not");
}

/// How long a message waits at most in a lane that holds 1,024, in ms, while another destination gets `bad` messages per millisecond
/// and answers none.
fn longest_wait_beside(bad: usize) -> u64 {
    let settings = LaneSettings { in_flight: 1_024, batch: 256, timeout: Duration::from_secs(8), ..lane() };
    let mut bench = Bench::with(settings);
    let mut backlog = VecDeque::new();
    let mut since = BTreeMap::new();
    let mut longest = 0;
    for tick in 0..5_000 {
        backlog.extend(std::iter::repeat_n((BAD, tick), bad).chain([(GOOD, tick)]));
        bench.hint(A, bench.now().wall());
        if let Some(limit) = bench.claim_of(A) {
            let taken: Vec<_> = backlog.drain(..limit.min(backlog.len())).collect();
            let due = bench.due();
            let terms = taken.iter().zip(bench.mono_us * 1_000..);
            let terms = terms.map(|(&(destination, _), message)| DeliveryTerms {
                destination,
                message,
                ..due.clone()
            });
            let jobs = bench.give(A, terms.collect(), None);
            let good = jobs.iter().zip(taken).filter(|(_, (destination, _))| *destination == GOOD);
            since.extend(good.map(|(job, (_, tick))| (job.serial, tick)));
        }
        bench.ends_now(|job| {
            longest = longest.max(tick - since.remove(&job.serial)?);
            Some(done())
        });
        bench.settles();
        bench.pass(ms(1));
    }
    longest
}

#[test]
fn a_destination_that_stopped_answering_leaves_the_room_of_a_lane_to_others() {
    for bad in [1, 2, 10] {
        let longest = longest_wait_beside(bad);
        assert!(longest <= 300, "{bad} silent messages per millisecond: another one waited {longest} ms");
    }
}
