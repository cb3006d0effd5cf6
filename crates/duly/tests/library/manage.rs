//! Looking, cancelling, rescheduling, pausing.

use duly::{Changed, Message, Query, SinkErrorKind, SinkOptions, State, days, minutes, seconds};

use crate::bench::{Bench, Mood};

const DONE: Changed = Changed::Done { maybe_delivered: false };

#[tokio::test]
async fn cancel_answers_exactly() {
    let (bench, target) = Bench::with_target(Mood::Good, SinkOptions::default()).await;
    let accepted = bench.duly.send(Message::to("orders/x").after(seconds(10))).await.unwrap();
    assert_eq!(bench.duly.cancel(&accepted).await.unwrap(), DONE);
    assert_eq!(bench.duly.cancel(&accepted).await.unwrap(), Changed::TooLate(State::Cancelled));
    assert_eq!(bench.duly.cancel("stranger").await.unwrap(), Changed::Unknown);
    bench.pass(minutes(1)).await;
    assert_eq!(target.arrivals(), []);

    let id = bench.send(Message::to("orders/x").after(seconds(10))).await;
    bench.pass(seconds(10)).await;
    assert_eq!(bench.duly.cancel(&id).await.unwrap(), Changed::TooLate(State::Delivered));
}

#[tokio::test]
async fn cancel_while_a_call_is_under_way_is_too_late_and_after_an_unknown_outcome_says_maybe() {
    let (bench, target) = Bench::with_target(Mood::Hangs, SinkOptions::default()).await;
    let id = bench.send(Message::to("orders/x").after(seconds(1))).await;
    bench.pass(seconds(2)).await;
    assert_eq!(bench.duly.cancel(&id).await.unwrap(), Changed::TooLate(State::InFlight));
    bench.pass(seconds(7)).await;
    assert_eq!(bench.record(&id).await.state, State::Pending);
    assert_eq!(bench.duly.cancel(&id).await.unwrap(), Changed::Done { maybe_delivered: true });
    target.set(Mood::Good);
    bench.pass(minutes(10)).await;
    assert_eq!(target.arrivals(), []);
}

#[tokio::test]
async fn reschedule_moves_both_ways_and_fire_means_now() {
    let (bench, target) = Bench::with_target(Mood::Good, SinkOptions::default()).await;
    let id = bench.send(Message::to("orders/x").after(minutes(10))).await;
    let sooner = bench.in_ms(5_000);
    assert_eq!(bench.duly.reschedule(&id, sooner).await.unwrap(), DONE);
    bench.pass(seconds(5)).await;
    assert_eq!(target.arrivals(), [(id.to_string(), 1, sooner)]);

    let id = bench.send(Message::to("orders/x").after(seconds(1))).await;
    assert_eq!(bench.duly.reschedule(&id, bench.in_ms(60_000)).await.unwrap(), DONE);
    bench.pass(seconds(59)).await;
    assert_eq!(target.arrivals().len(), 1);
    assert_eq!(bench.duly.fire(&id).await.unwrap(), DONE);
    bench.calm().await;
    assert_eq!(target.arrivals().len(), 2);
    let too_far = bench.duly.now().saturating_add(days(5_000));
    assert_eq!(bench.duly.reschedule("x", too_far).await.unwrap_err().code(), "too_far");
}

#[tokio::test]
async fn many_are_cancelled_and_fired_at_once() {
    let (bench, target) = Bench::with_target(Mood::Good, SinkOptions::default()).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(bench.send(Message::to("orders/x").after(minutes(10))).await);
    }
    assert_eq!(bench.duly.cancel_many(&ids[..2]).await.unwrap(), [DONE, DONE]);
    let answers = bench.duly.fire_many(&ids[1..]).await.unwrap();
    assert_eq!(answers, [Changed::TooLate(State::Cancelled), DONE, DONE]);
    bench.calm().await;
    assert_eq!(target.ids().len(), 2);
}

#[tokio::test]
async fn a_paused_sink_waits_and_goes_on_when_resumed() {
    let (bench, target) = Bench::with_target(Mood::Good, SinkOptions::default()).await;
    bench.duly.pause_sink("orders").await.unwrap();
    bench.send(Message::to("orders/x").after(seconds(1))).await;
    let late = bench.send(Message::to("orders/x").after(seconds(1)).max_lateness(seconds(30))).await;
    bench.pass(minutes(1)).await;
    assert_eq!(target.arrivals(), []);
    // What is too late is given up during the pause, too.
    assert!(bench.duly.lanes().await.unwrap().iter().any(|lane| lane.paused && lane.ready == 1));
    bench.duly.resume_sink("orders").await.unwrap();
    bench.calm().await;
    assert_eq!(target.arrivals().len(), 1);
    let record = bench.record(&late).await;
    assert_eq!((record.state, record.reason), (State::Dead, Some(duly::DeadReason::Expired)));
}

#[tokio::test]
async fn dead_letters_are_listed_replayed_and_purged() {
    let (bench, target) = Bench::with_target(Mood::Bad(SinkErrorKind::Refused), SinkOptions::default()).await;
    let first = bench.send(Message::to("orders/x").text("kept")).await;
    let second = bench.send(Message::to("orders/x")).await;
    bench.pass(seconds(1)).await;
    assert_eq!(bench.duly.dead().await.unwrap().records.len(), 2);
    assert_eq!(bench.record(&first).await.message.body.as_bytes(), b"kept");
    target.set(Mood::Good);
    assert_eq!(bench.duly.replay(std::slice::from_ref(&first)).await.unwrap(), [DONE]);
    assert_eq!(bench.duly.purge(std::slice::from_ref(&second)).await.unwrap(), [DONE]);
    bench.calm().await;
    assert_eq!(target.ids(), [first.to_string()]);
    let listed = bench.duly.list(&Query::all(State::Delivered)).await.unwrap();
    assert_eq!(listed.records.len(), 1);
    let totals = bench.duly.totals().await.unwrap();
    assert!(totals.balance());
    assert_eq!((totals.delivered, totals.purged, totals.dead), (1, 1, 0));
}

#[tokio::test]
async fn the_forecast_counts_what_comes_due() {
    let bench = Bench::start().await;
    for minute in [1, 1, 3] {
        bench.send(Message::to("order").after(minutes(minute))).await;
    }
    let from = bench.duly.now();
    let counts = bench.duly.forecast(from, from.saturating_add(minutes(4)), 4).await.unwrap();
    assert_eq!(counts.iter().sum::<u64>(), 3);
}
